"""Topics on Spark Connect, where the session is a client and Spark runs in another process."""

import pytest

pytest.importorskip("grpc_status.rpc_status", reason="needs pyspark[connect]: the extra test")
pytest.importorskip("zstandard", reason="needs pyspark[connect]: the extra test")

from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from poe.spark import register
from poe.spark.data_source import SCHEMA
from tests.spark.secured import SecuredNode
from tests.spark.standalone import connect_server
from tests.spark.test_grants import STAGING

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(java, tmp_path_factory):
    """A session that knows the format `poe`; its server's Python has Poe, which it finds itself."""
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as address:
        session = SparkSession.builder.remote(address).create()
        register(session)
        yield session
        session.stop()


@pytest.fixture
def options(node):
    host, port = node.address
    return {"host": host, "port": port}


def load(spark, options, topic):
    rows = spark.read.format("poe").options(**options, topic=topic).load()
    return [bytes(row.message) for row in rows.orderBy("pointer").collect()]


def test_a_topic_is_a_table_that_is_read_and_written(spark, options, node):
    node.put_many("t", [b"1", b"2", b"3"])
    rows = spark.read.format("poe").options(**options, topic="t").load()
    assert rows.columns == list(SCHEMA.names)
    assert [bytes(row.message) for row in rows.orderBy("pointer").collect()] == [b"1", b"2", b"3"]
    doubled = rows.selectExpr("string(2 * int(string(message))) AS message")
    doubled.write.format("poe").options(**options, topic="doubled").mode("append").save()
    assert sorted(load(spark, options, "doubled")) == [b"2", b"4", b"6"]


def test_a_stream_goes_from_topic_to_topic_and_on_from_its_checkpoint(
    spark, options, node, tmp_path
):
    def copy():
        stream = spark.readStream.format("poe").options(**options, topic="t").load()
        query = (
            stream.select("message")
            .writeStream.format("poe")
            .options(**options, topic="copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None

    for message in (b"1", b"2"):
        node.put("t", message)
        copy()
    assert load(spark, options, "copy") == [b"1", b"2"]


def test_a_node_with_users_is_read_and_written(spark, tmp_path, certificates):
    node = SecuredNode(tmp_path, certificates)
    flow = [("read write create", {"topics": "in out"}), *STAGING]
    node.add("flow", flow)
    node.start()
    try:
        node.node.put("in", b"1")
        options = node.options("flow")
        rows = spark.read.format("poe").options(**options, topic="in").load().select("message")
        rows.write.format("poe").options(**options, topic="out").mode("append").save()
        assert load(spark, options, "out") == [b"1"]
        with pytest.raises(PySparkException, match=r"not authorized to read topic 'other'"):
            load(spark, options, "other")
    finally:
        node.stop()


def test_a_mistyped_option_is_told_with_the_nearest(spark, options):
    with pytest.raises(PySparkException, match=r"'tpoic' is not known.*did you mean topic"):
        spark.read.format("poe").options(**options, tpoic="t").load().collect()
