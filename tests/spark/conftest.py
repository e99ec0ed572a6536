"""One Spark session for all tests, and a node beside it."""

import shutil

import pytest

from poe import Node


@pytest.fixture(scope="session")
def spark():
    """A session on two cores, started with the first test that asks for it."""
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no Java; apt-get install default-jre-headless")
    from poe.spark import session  # noqa: PLC0415 - there may be no PySpark

    config = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session("tests", "local[2]", **config)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def node(tmp_path):
    """A node with a listener, in this process."""
    with Node(dir=tmp_path / "node", port=0) as node:
        yield node
