"""Batch writes on a real Spark: all rows of a DataFrame reach their topics, or none."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import StringType, StructField, StructType

from poe.errors import PoeError
from poe.spark import PoeDataSource
from poe.spark.read_options import STAGING_PREFIX
from tests.broker.nodes import address, connect, stored

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def writer(df, node, **options):
    host, port = address(node)
    options = {"host": host, "port": port, **options}
    return df.write.format("poe").mode("append").options(**options)


def staging_topics(node):
    with connect(node) as client:
        return [topic for topic in client.topics() if topic.startswith(STAGING_PREFIX.encode())]


def numbers(spark, count, partitions=2):
    """Make rows with their number as the message, in order."""
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("message"))


def test_all_rows_are_there_in_the_order_of_their_partitions(spark, node):
    writer(numbers(spark, 100_000), node, topic="t").save()
    assert stored(node, b"t") == [b"%d" % number for number in range(100_000)]
    assert staging_topics(node) == []


def test_binary_messages_go_where_their_row_says(spark, node):
    rows = [("a", b"\x00\xff"), ("b", b"2"), ("a", b"3")]
    df = spark.createDataFrame(rows, "topic string, message binary").coalesce(1)
    writer(df, node).save()
    assert stored(node, b"a") == [b"\x00\xff", b"3"]
    assert stored(node, b"b") == [b"2"]


def test_no_rows_make_no_topic(spark, node):
    writer(numbers(spark, 0), node, topic="t").save()
    with connect(node) as client:
        assert client.topics() == []


def test_job_that_fails_leaves_the_topic_untouched_and_nothing_staged(spark, node):
    writer(numbers(spark, 10), node, topic="t").save()
    fails = numbers(spark, 200_000, 4).select(
        F.when(F.col("message") == "199999", F.raise_error(F.lit("no more")))
        .otherwise(F.col("message"))
        .alias("message")
    )
    with pytest.raises(PySparkException, match="no more"):
        writer(fails, node, topic="t").save()
    assert len(stored(node, b"t")) == 10
    assert staging_topics(node) == []


def test_write_of_a_producer_and_an_epoch_is_done_once(spark, node):
    for partitions in (2, 3, 1):
        df = numbers(spark, 1000, partitions)
        writer(df, node, topic="t", producerId="p", epoch=7).save()
    assert stored(node, b"t") == [b"%d" % number for number in range(1000)]
    writer(numbers(spark, 5), node, topic="t", producerId="p", epoch=8).save()
    assert len(stored(node, b"t")) == 1005


def test_row_without_a_message_is_refused_with_the_way_out(spark, node):
    df = spark.createDataFrame([("a",), (None,)], "message string")
    with pytest.raises(PySparkException, match=r"no message.*where\(length\(message\) > 0\)"):
        writer(df, node, topic="t").save()


@pytest.mark.parametrize(
    ("column", "overwrite", "words"),
    [("message", True, "use append: topics only grow"), ("user", False, "no column 'message'")],
)
def test_what_no_topic_can_take_is_refused_before_the_write_begins(column, overwrite, words):
    schema = StructType([StructField(column, StringType())])
    with pytest.raises(PoeError, match=words):
        PoeDataSource({"topic": "t", "port": "1"}).writer(schema, overwrite=overwrite)
