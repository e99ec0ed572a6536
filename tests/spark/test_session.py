"""The session that knows the format `poe`."""

import os
import signal
import subprocess
import sys
import threading
from importlib import import_module

import pytest

from poe.cli.interrupt import Interrupt
from poe.errors import SparkMissing
from poe.spark.session import apart_from_interrupts
from tests.cli.processes import DEADLINE_S

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("is_closed", [False, True])
def test_executors_get_the_package_also_where_nothing_can_be_written_beside_it(
    tmp_path, monkeypatch, is_closed
):
    package = tmp_path / "handed_out"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
        if is_closed:  # whoever runs this may write anything; nobody makes a folder of a file
            (folder / "__pycache__").write_text("")
    (package / "inner" / "one.py").write_text("print(1)")
    module = import_module("poe.spark.session")
    monkeypatch.setattr(module, "_PACKAGE", package)
    zipped = module._zipped_package.__wrapped__()  # noqa: SLF001 - the session would need a cluster
    command = [sys.executable, "-c", "import handed_out.inner.one"]
    ran = subprocess.run(command, env={"PYTHONPATH": str(zipped)}, capture_output=True, check=True)
    assert ran.stdout == b"1\n"


def test_an_interrupt_does_not_wait_for_spark():
    over = threading.Event()
    threads: list[threading.Thread] = []

    def work():
        threads.append(threading.current_thread())
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(DEADLINE_S)

    with Interrupt() as interrupt, pytest.raises(KeyboardInterrupt):
        apart_from_interrupts(work)
    assert interrupt.number == signal.SIGINT
    assert threads != [threading.main_thread()]
    over.set()
    threads[0].join(DEADLINE_S)


def test_what_spark_refuses_is_told_as_it_is():
    def work():
        raise SparkMissing("Java")

    with pytest.raises(SparkMissing, match="Java"):
        apart_from_interrupts(work)
    assert apart_from_interrupts(lambda: 1) == 1


@pytest.mark.slow
def test_streams_that_start_at_the_same_time_change_a_map_that_bears_it(spark):
    """Each of them puts entries into the environment of the data source, in a thread of its own."""
    data_source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("poe")  # noqa: SLF001
    environment = data_source.dataSourceCls().envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert dict(environment).items() >= spark.sparkContext.environment.items()
