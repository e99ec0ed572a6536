"""On executors in processes of their own, nothing comes from the driver's environment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.nodes import read_by_frames
from tests.broker.server_process import ServerProcess
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def master(java, tmp_path):
    with standalone_cluster(tmp_path / "cluster") as master:
        yield master


def test_a_cluster_reads_and_writes_with_what_spark_hands_out_and_survives_a_kill(master, tmp_path):
    program = Path(__file__).with_name("cluster_program.py")
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with ServerProcess(tmp_path / "poe") as server:
        with server.connect() as client:
            for number in range(8):
                client.write("t", [b"%d %05d " % (number, n) + b"x" * 100 for n in range(2000)])
        run = subprocess.run(
            [sys.executable, str(program), str(server.port), master],
            env=variables,
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr[-3000:]
        with server.connect() as client:
            written = read_by_frames(client.read, b"numbers", 100_000)
            topics = client.topics()
    assert [int(message) for _, message in written] == list(range(200_000))
    assert sorted(topics) == [b"numbers", b"t"], "nothing is staged any more"
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["count"] == 16_000
    assert found["newest"].startswith("7 01999 x")
    assert found["partitions"] == 4
    assert len(set(found["poe"])) == 2, "each executor has its own"
    assert all(path.endswith("/poe.zip/poe/__init__.pyc") for path in found["poe"]), found
    # Executors clean nothing up; those of a local cluster work below the installed Spark.
    for folder in {Path(path).parents[3] for path in found["poe"]}:
        shutil.rmtree(folder)
