"""The demonstration passes on real and on sample logs, and would notice a broken promise."""

import importlib.util
import subprocess
import sys

import pytest

from tests.python_process import ROOT, environment

DEMO = ROOT / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their own module up.
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["demo"]


def run_demo(folder):
    return subprocess.run(
        [sys.executable, DEMO],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=environment(LOGHUB=str(folder)),
    )


@pytest.mark.slow
def test_it_passes_with_the_sample(tmp_path):
    run = run_demo(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("2000 lines of sample.log")
    assert "(exit code -9)" in run.stdout
    assert run.stdout.endswith("every acknowledged line is there once and in order\n")


@pytest.mark.slow
def test_it_passes_with_real_logs(loghub):
    run = run_demo(loghub)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("10000 lines of Apache_2k.log, HDFS_2k.log")


@pytest.mark.parametrize(
    ("stored", "is_good"),
    [
        ([b"a:0 x", b"b:0 z", b"a:1 y"], True),
        ([b"a:0 x", b"b:0 z"], False),
        ([b"a:0 x", b"b:0 z", b"a:1 y", b"a:1 y"], False),
        ([b"a:1 y", b"b:0 z", b"a:0 x"], False),
        ([b"a:0 x", b"b:0 z", b"a:1 Y"], False),
        ([b"a:0 x", b"b:0 z", b"a:1 y", b"whose?"], False),
    ],
    ids=["good", "lost", "twice", "out of order", "altered", "foreign"],
)
def test_its_check_notices_what_is_wrong(demo, stored, is_good):
    producers = [demo.Producer("a", [b"x", b"y"]), demo.Producer("b", [b"z"])]
    for producer in producers:
        producer.acknowledged = producer.messages
    assert demo.check(producers, stored) is is_good
