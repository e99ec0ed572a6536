"""One Spark session for all tests; skipped with a reason where there is none."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator["SparkSession"]:
    """A session on two threads of this process."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'poe-queue[spark]'")
    if shutil.which("java") is None:
        pytest.skip("needs Java 17: apt-get install default-jre-headless")
    from poe.spark import session  # noqa: PLC0415 - not where PySpark is missing

    config = {
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
    }
    running = session("poe-tests", "local[2]", **config)
    yield running
    running.stop()
