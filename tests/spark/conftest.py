"""Tests of Spark: those that need a JVM share one session, and all need PySpark."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.spark.class_archive import jvm_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.sources import Topics

os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_DAEMON_JAVA_OPTS"] = jvm_options()
SESSION_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def pytest_pycollect_makemodule(module_path, parent):
    """Skip what cannot be imported, with the reason."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            pytest.skip(f"needs {package}: the extra poe-queue[spark]", allow_module_level=True)


@pytest.fixture(scope="session")
def java() -> None:
    """Skip what needs a JVM where there is none."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        pytest.skip("needs Java 17 or newer: apt-get install default-jre-headless")


@pytest.fixture(scope="session")
def spark(java) -> Iterator["SparkSession"]:
    """The one session of a run, on two threads."""
    from poe.spark import session  # noqa: PLC0415 - only where it can be imported

    spark = session("tests", "local[2]", **SESSION_CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def archived(tmp_path, java):
    """A store in simulated time with an archive beside it."""
    from tests.spark.archives import ArchivedNode  # noqa: PLC0415 - only where it can be imported

    made = ArchivedNode(tmp_path)
    yield made
    made.sim.stop()


@pytest.fixture
def topics(tmp_path) -> Iterator["Topics"]:
    """A node in simulated time, whose segments are short."""
    from tests.spark.sources import Topics  # noqa: PLC0415 - only where it can be imported

    topics = Topics(tmp_path / "poe", count_limit=3)
    yield topics
    topics.stop()
