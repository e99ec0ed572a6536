"""A benchmark that is interrupted leaves neither processes nor files behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.python_process import ROOT, environment
from tests.waiting import wait_until

PARTS = ["socket", "mixed", "fsync", "memory", "connections"]


def run(part, folder):
    """Start one part; whatever it starts has `folder` in its environment."""
    json = folder.with_suffix(".json")
    return subprocess.Popen(
        [sys.executable, "-m", "bench.run", "--quick", "--only", part, "--json", str(json)],
        cwd=ROOT,
        env=environment(TMPDIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def command_lines(folder):
    """Of the processes that were started with `folder` in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(f"TMPDIR={folder}\0") in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "written"
    path.mkdir()
    return path


def serves(folder):
    return any("serve" in line.split("\0") for line in command_lines(folder))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("part", PARTS)
def test_an_interrupt_ends_all_that_was_started(part, number, folder):
    bench = run(part, folder)
    wait_until(lambda: serves(folder), timeout_s=30)
    bench.send_signal(number)
    _, errors = bench.communicate(timeout=30)
    assert bench.returncode == 130
    assert errors.splitlines()[-1].startswith("interrupted")
    assert command_lines(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("part", PARTS)
def test_control_c_in_a_terminal_which_reaches_every_process_does_too(part, folder):
    bench = run(part, folder)
    wait_until(lambda: serves(folder), timeout_s=30)
    os.killpg(bench.pid, signal.SIGINT)
    _, errors = bench.communicate(timeout=30)
    assert bench.returncode == 130
    assert "Traceback" not in errors
    assert command_lines(folder) == []
    assert list(folder.iterdir()) == []
