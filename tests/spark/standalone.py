"""Processes of Spark on this machine: a cluster of a master and a worker; a server of Connect."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.waiting import wait_until

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Run a cluster with two cores and 1 GiB for executors; its master's address is the value."""
    folder.mkdir()
    address = ["--host", _HOST, "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        log = stack.enter_context(_running(folder, "master.Master", *address))
        master = _in_log(log, r"Starting Spark master at (spark://\S+)")
        room = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        log = stack.enter_context(_running(folder, "worker.Worker", *address, *room, master))
        _in_log(log, r"(Successfully registered with master)")
        yield master


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server of Spark Connect with two cores, which finds poe; its address is the value."""
    folder.mkdir()
    config = {
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    settings = [word for item in config.items() for word in ("--conf", "=".join(item))]
    arguments = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments += ["--master", "local[2]", *settings, "spark-internal"]
    with _running(folder, "SparkSubmit", *arguments) as log:
        yield "sc://" + _in_log(log, r"Spark Connect server started at: (\S+)")


@contextmanager
def _running(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    log = folder / f"{name}.log"
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(spark_class), f"org.apache.spark.deploy.{name}", *arguments]
    variables = {
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | variables, stdout=output, stderr=output
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def _in_log(log: Path, pattern: str) -> str:
    wait_until(lambda: re.search(pattern, log.read_text()), timeout_s=_START_TIMEOUT_S)
    found = re.search(pattern, log.read_text())
    assert found is not None
    return found[1]
