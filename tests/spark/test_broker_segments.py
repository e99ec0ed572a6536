"""Topics are read from a running server; when it is away for a while, it is waited for; no JVM."""

import threading
import time

import pytest
from pyspark.sql.datasource import GreaterThan

from poe import Node
from poe.errors import ConnectFailed, DataLost, UnknownTopic
from tests.broker.server_process import ServerProcess
from tests.spark.sources import batch_reader, batch_table, messages, stream_reader, table

pytestmark = [pytest.mark.spark, pytest.mark.slow]


NODE = {"count_limit": 3, "check_interval": 0.01}


def place(node):
    assert node.address is not None
    host, port = node.address
    return {"host": host, "port": port}


def fill(node, topic="t", count=10):
    """Put messages over some segments, and return their pointers."""
    return [node.put(topic, f"{topic}{number}".encode()) for number in range(count)]


def test_a_topic_is_read_whole(node):
    pointers = fill(node)
    read = batch_table(**place(node), topic="t")
    assert messages(read) == [f"t{n}".encode() for n in range(10)]
    assert read["pointer"].to_pylist() == pointers


def test_bounds_and_filters_choose_messages(node):
    pointers = fill(node)
    read = batch_table(
        filters=[GreaterThan(("pointer",), pointers[3])],
        **place(node),
        topic="t",
        startingPointer=pointers[1],
        endingPointer=pointers[6],
    )
    assert read["pointer"].to_pylist() == pointers[4:7]


def test_a_segment_is_split_where_so_many_bytes_end(node):
    node.put_many("t", [b"x" * 1000] * 1000)
    reader = batch_reader(**place(node), topic="t", targetPartitionBytes=300_000)
    parts = reader.partitions()
    assert [sum(each.count for each in part.value) for part in parts] == [250, 250, 250, 250]
    assert table(reader, parts).num_rows == 1000


def test_an_unknown_topic_is_an_error(node):
    with pytest.raises(UnknownTopic):
        batch_reader(**place(node), topic="t").partitions()


def test_nobody_there_is_an_error_at_once():
    begin_s = time.monotonic()
    with pytest.raises(ConnectFailed):
        batch_reader(port=1, topic="t").partitions()
    assert time.monotonic() - begin_s < 5


def test_what_readers_do_not_see_yet_is_not_planned(tmp_path):
    with Node(dir=tmp_path / "poe", port=0, read="synced", sync_interval=3600) as node:
        options = {**place(node), "topic": "t"}
        reader = stream_reader(**options)

        def read_both():
            end = reader.latestOffset({}, reader.getDefaultReadLimit())
            streamed = messages(table(reader, reader.partitions({}, end)))
            assert messages(batch_table(**options)) == streamed
            return streamed

        node.put("t", b"a")
        assert read_both() == []
        node.sync()
        node.put("t", b"b")
        assert read_both() == [b"a"]
        node.sync()
        assert read_both() == [b"a", b"b"]
        reader.stop()


def test_messages_trimmed_after_planning_are_an_error(node):
    pointers = fill(node)
    reader = batch_reader(**place(node), topic="t")
    parts = reader.partitions()
    node.control("trim", topic="t", pointer=pointers[-1])
    with pytest.raises(DataLost, match=f"from {pointers[0]} to"):
        table(reader, parts)


@pytest.mark.parametrize(("before", "then"), [(1, 3), (3, 1), (3, 2)])
def test_a_topic_that_was_made_anew_with_other_partitions_is_read_on(node, before, then):
    """The names of its partitions are those of none then, says the server."""
    goes_on = stream_reader(**place(node), topic="t")

    def batch(start):
        """Read in a query that goes on, and in one that goes on from its checkpoint."""
        for reader in (goes_on, stream_reader(**place(node), topic="t")):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            found = messages(table(reader, reader.partitions(start, end)))
            reader.stop()
        return found, end

    def make(partitions, message):
        for each in node.create_topic("t", partitions=partitions).partitions:
            node.put(each.topic, message)

    make(before, b"old")
    found, offset = batch({})
    assert found == [b"old"] * before
    assert batch(offset) == ([], offset)
    node.control("delete", topic=b"t")
    make(then, b"new")
    found, offset = batch(offset)
    assert found == [b"new"] * then
    assert batch(offset) == ([], offset)


def test_a_server_that_is_killed_and_started_again_is_waited_for(tmp_path):
    folder = tmp_path / "poe"
    with ServerProcess(folder, ack="flushed") as first:
        port = first.port
        with first.connect() as client:
            client.write("t", [b"a", b"b"])
        reader = stream_reader(host="127.0.0.1", port=port, topic="t")
        start = reader.initialOffset()
        first.kill()
    again: list[ServerProcess] = []

    def start_again():
        again.append(ServerProcess(folder, port=port, ack="flushed"))

    starting = threading.Thread(target=start_again)
    starting.start()
    try:
        # The planner and the executors each find nobody at first.
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert messages(table(reader, reader.partitions(start, end))) == [b"a", b"b"]
    finally:
        starting.join()
        again[0].kill()
        reader.stop()


def test_a_server_that_stays_away_is_an_error_in_the_end(tmp_path):
    with ServerProcess(tmp_path / "poe") as server:
        with server.connect() as client:
            client.write("t", [b"a"])
        reader = stream_reader(host="127.0.0.1", port=server.port, topic="t", retryTimeout=0.2)
        start = reader.initialOffset()
        server.kill()
        with pytest.raises(ConnectFailed):
            reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.stop()
