"""Stream writes on a real Spark: what comes in on a topic goes out on another, once."""

from functools import partial

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import StringType, StructField, StructType

from poe.errors import OptionError
from poe.spark import PoeDataSource
from tests.broker.nodes import address, connect, read_by_frames, stored
from tests.broker.server_process import ServerProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


class Flow:
    """A query from topic `in` to topic `out` of a node."""

    def __init__(self, spark, node, folder):
        host, port = address(node)
        self.options = {"host": host, "port": port}
        self.spark, self.node = spark, node
        self.checkpoint = str(folder / "checkpoint")

    def put(self, messages):
        with connect(self.node) as client:
            client.write(b"in", messages)

    def source(self, **options):
        reader = self.spark.readStream.format("poe").options(**self.options)
        return reader.options(topic="in", **options).load()

    def run(self, stream):
        """Run the writer of a stream until it has caught up."""
        writer = stream.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def to_out(self, df, **options):
        return df.writeStream.format("poe").options(**{"topic": "out", **self.options, **options})

    def out(self, topic=b"out"):
        return stored(self.node, topic)


@pytest.fixture
def flow(spark, node, tmp_path):
    return Flow(spark, node, tmp_path)


def test_messages_go_from_topic_to_topic_across_restarts(flow):
    first = [b"%d" % number for number in range(50_000)]
    flow.put(first)
    flow.run(flow.to_out(flow.source(maxMessagesPerTrigger=30_000)))
    assert flow.out() == first
    flow.put([b"more"])
    flow.run(flow.to_out(flow.source()))
    assert flow.out() == [*first, b"more"]


def test_replayed_batch_is_written_once(flow, tmp_path):
    flow.put([b"%d" % number for number in range(1000)])
    flow.run(flow.to_out(flow.source()))
    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()
    flow.run(flow.to_out(flow.source()))
    assert len(flow.out()) == 1000


def test_rows_may_tell_their_topic(flow):
    flow.put([b"1", b"2", b"3"])
    topic = F.when(F.expr("message = '2'"), "even").otherwise("odd")
    df = flow.source().withColumn("topic", topic)
    flow.run(df.writeStream.format("poe").options(**flow.options))
    assert flow.out(b"even") == [b"2"]
    assert flow.out(b"odd") == [b"1", b"3"]


def test_foreach_batch_writes_once_with_a_producer_and_its_epoch(flow, tmp_path):
    flow.put([b"%d" % number for number in range(100)])
    options = {**flow.options, "producerId": "mine"}

    def write(df, epoch):
        for topic in ("out", "copy"):
            writer = df.select("message").write.format("poe").mode("append")
            writer.options(**options, epoch=epoch, topic=topic).save()

    flow.run(flow.source().writeStream.foreachBatch(write))
    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()
    flow.run(flow.source().writeStream.foreachBatch(write))
    assert len(flow.out()) == len(flow.out(b"copy")) == 100


def test_batch_that_fails_reaches_nobody(flow):
    flow.put([b"1", b"2"])
    fails = F.when(F.expr("message = '2'"), F.raise_error(F.lit("no more")))
    df = flow.source().select(fails.otherwise(F.col("message")).alias("message"))
    with pytest.raises(PySparkException, match="no more"):
        flow.run(flow.to_out(df))
    assert flow.out() == []


def has_done(query, batches_count):
    return len(query.recentProgress) >= batches_count


def test_nothing_is_lost_or_doubled_when_the_server_is_killed_while_a_query_runs(spark, tmp_path):
    messages = [b"%d" % number for number in range(20_000)]
    server = ServerProcess(tmp_path / "node")
    options = {"host": "127.0.0.1", "port": server.port}
    with server.connect() as client:
        client.write(b"in", messages)
    source = spark.readStream.format("poe").options(**options, maxMessagesPerTrigger=4000)
    sink = source.option("topic", "in").load().writeStream.format("poe").options(**options)
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.option("topic", "out").trigger(availableNow=True).start()
    kills_in_time = 0
    try:
        for batches_count in (1, 2, 3):
            # Whatever the next micro-batch is at.
            wait_until(partial(has_done, query, batches_count), timeout_s=100)
            server.kill()
            kills_in_time += query.isActive
            server = ServerProcess(tmp_path / "node", port=server.port)
        query.awaitTermination()
        assert kills_in_time, "the query was done before the first kill"
        with server.connect() as client:
            found = [message for _, message in read_by_frames(client.read, b"out", 100_000)]
        assert found == messages
    finally:
        query.stop()
        server.kill()


@pytest.mark.parametrize(
    ("options", "overwrite", "words"),
    [
        ({}, True, "use append: topics only grow"),
        ({"producerId": "p", "epoch": "1"}, False, "with batch writes only"),
    ],
)
def test_what_no_stream_can_be_is_refused_before_it_starts(options, overwrite, words):
    schema = StructType([StructField("message", StringType())])
    with pytest.raises(OptionError, match=words):
        PoeDataSource({"topic": "t", **options}).streamWriter(schema, overwrite=overwrite)
