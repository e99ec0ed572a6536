"""Topics as streams of a real Spark: triggers, limits, progress, a server that goes and comes."""

import json
import threading

import pytest
from pyspark.errors import StreamingQueryException

from tests.broker.server_process import ServerProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path / "poe", ack="flushed") as server:
        yield server


class Sink:
    """What the batches of a query have brought, in the driver."""

    def __init__(self):
        self.batches = []

    def __call__(self, batch, _number):
        rows = sorted(batch.collect(), key=lambda row: (row.topic, row.pointer))
        self.batches.append([bytes(row.message).decode() for row in rows])

    @property
    def messages(self):
        return [message for batch in self.batches for message in batch]


def stream(spark, port, **options):
    return spark.readStream.format("poe").options(host="127.0.0.1", port=port, **options).load()


def start(table, sink, folder, **trigger):
    writer = table.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_once(spark, port, folder, **options):
    """Read what there is now, and return the batches and the query."""
    sink = Sink()
    query = start(stream(spark, port, **options), sink, folder, availableNow=True)
    query.awaitTermination()
    return sink.batches, query


def put(server, topic, *messages):
    with server.connect() as client:
        return client.write(topic, [message.encode() for message in messages])


def test_available_now_reads_in_batches_of_the_limit_and_goes_on_from_its_checkpoint(
    spark, server, tmp_path
):
    put(server, "t", *"abcde")
    options = {"topicPattern": "[tu]", "maxMessagesPerTrigger": 2}
    batches, query = run_once(spark, server.port, tmp_path / "checkpoint", **options)
    assert batches == [["a", "b"], ["c", "d"], ["e"]]
    progress = query.recentProgress
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [2, 2, 1]
    put(server, "t", "f")
    last = put(server, "u", "new topic")
    batches, query = run_once(spark, server.port, tmp_path / "checkpoint", **options)
    assert batches == [["f", "new topic"]]
    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"])["u"] == last
    assert json.loads(source["latestOffset"])["u"] == last


def test_a_query_continues_when_its_server_is_killed_and_started_again(spark, server, tmp_path):
    sink = Sink()
    put(server, "t", "before")
    query = start(stream(spark, server.port, topic="t"), sink, tmp_path / "checkpoint")
    again: list[ServerProcess] = []
    try:
        query.processAllAvailable()
        server.kill()

        def start_again():
            again.append(ServerProcess(tmp_path / "poe", port=server.port, ack="flushed"))

        starting = threading.Thread(target=start_again)
        starting.start()
        starting.join()
        put(again[0], "t", "after")
        query.processAllAvailable()
        assert sink.messages == ["before", "after"]
        assert query.isActive
    finally:
        query.stop()
        for each in again:
            each.kill()


def test_what_was_trimmed_before_it_was_read_fails_the_query_or_is_a_warning(
    spark, server, tmp_path
):
    put(server, "t", "a")
    batches, _ = run_once(spark, server.port, tmp_path / "checkpoint", topic="t")
    assert batches == [["a"]]
    gone = put(server, "t", "unseen")
    with server.connect() as client:
        client.trim("t", gone)
    put(server, "t", "b")
    with pytest.raises(StreamingQueryException, match="deleted before they were read"):
        run_once(spark, server.port, tmp_path / "checkpoint", topic="t")
    batches, _ = run_once(
        spark, server.port, tmp_path / "checkpoint", topic="t", failOnDataLoss=False
    )
    assert batches == [["b"]]


def test_a_folder_is_a_stream_too(spark, server, tmp_path):
    put(server, "t", "a", "b")
    (index,) = (tmp_path / "poe/topics/t").glob("*_index")
    wait_until(lambda: index.stat().st_size == 24, 20)
    sink = Sink()
    table = spark.readStream.format("poe").options(path=tmp_path / "poe", topic="t").load()
    start(table, sink, tmp_path / "checkpoint", availableNow=True).awaitTermination()
    assert sink.messages == ["a", "b"]
