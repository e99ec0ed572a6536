"""Reads and writes of replicated topics, at nodes whose copies lag: each message is there once.

The nodes agree by a simulated engine, so that a copy lags for as long as a test wants.
"""

import threading
from contextlib import ExitStack, contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from poe.client.partition_topic import partition_topics
from poe.errors import DataLost, NodeIsBehind, NotReplicated, UnknownTopic
from poe.protocol import JoinedBatch
from poe.protocol.envelope import encode
from poe.protocol.server import Server
from poe.spark.retrying_socket import RetryingSocket
from poe.spark.staging import Staging
from poe.spark.targets import Targets
from tests.broker.nodes import address
from tests.cluster.log.replicated import replicated
from tests.spark.sources import batch_reader, batch_table, messages, stream_reader, table
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

PATIENT = {"retryTimeout": "20"}
HASTY = {"retryTimeout": "0.3"}


@pytest.fixture
def three(tmp_path):
    with replicated(tmp_path, port=0) as nodes:
        nodes["a"].create_topic("t", replicas=3, count_limit=10)
        yield nodes


def url(nodes, names="abc"):
    return "poe://" + ",".join("{}:{}".format(*address(nodes[name])) for name in names)


def servers(nodes, names="abc"):
    return [Server(*address(nodes[name])) for name in names]


def fill(nodes, *numbers, name="a"):
    for number in numbers:
        nodes[name].put("t", b"%d" % number)
    lagging = {each for each in nodes.nodes if not nodes.log.is_there(each)}
    for each in nodes.nodes.keys() - lagging:
        wait_until(lambda: nodes.values(each)[-1:] == [b"%d" % numbers[-1]])  # noqa: B023 - at once


@pytest.fixture
def make_query():
    """Makes queries, whose connections end with the test."""
    with ExitStack() as stack:

        def make(**options):
            query = Query(**options)
            stack.callback(query.reader.stop)
            return query

        yield make


@contextmanager
def lagging(nodes, *names):
    """Cut nodes off: their copies stay as they are until the end."""
    for name in names:
        nodes.log.cut(name)
    yield
    for name in names:
        nodes.log.heal(name)


@contextmanager
def healed_when_asked(nodes, name, monkeypatch):
    """Have a copy that lags go on once a reader has found out that it does."""
    asked = threading.Event()
    init = NodeIsBehind.__init__

    def note(self, server, lacks):
        init(self, server, lacks)
        asked.set()

    monkeypatch.setattr(NodeIsBehind, "__init__", note)

    def heal():
        assert asked.wait(20)
        nodes.log.heal(name)

    healing = threading.Thread(target=heal)
    healing.start()
    yield
    healing.join(20)
    assert asked.is_set()


def numbers(read):
    return [int(each) for each in messages(read)]


def test_what_was_planned_at_one_node_is_waited_for_at_another_one(three, monkeypatch):
    fill(three, *range(5))
    three.log.cut("c")
    fill(three, *range(5, 25))
    planned = batch_reader(topic="t", url=url(three, "a")).partitions()
    reader = batch_reader(topic="t", url=url(three, "c"), **PATIENT)
    with healed_when_asked(three, "c", monkeypatch):
        assert numbers(table(reader, planned)) == list(range(25))


def test_a_copy_that_lags_for_too_long_is_told_of_and_not_taken_for_a_loss(three):
    fill(three, *range(5))
    with lagging(three, "c"):
        fill(three, *range(5, 8))
        planned = batch_reader(topic="t", url=url(three, "a")).partitions()
        for patience in (HASTY, HASTY | {"failOnDataLoss": "false"}):
            reader = batch_reader(topic="t", url=url(three, "c"), **patience)
            with pytest.raises(NodeIsBehind, match="not got topic 't' up to pointer"):
                table(reader, planned)


def test_another_node_is_asked_for_what_a_copy_lacks(three):
    fill(three, *range(5))
    with lagging(three, "c"):
        fill(three, *range(5, 25))
        planned = batch_reader(topic="t", url=url(three, "a")).partitions()
        reader = batch_reader(topic="t", url=url(three, "cab"))
        assert numbers(table(reader, planned)) == list(range(25))


def test_a_table_is_all_that_any_of_the_nodes_has(three):
    fill(three, *range(5))
    with lagging(three, "c"):
        fill(three, *range(5, 25))
        assert numbers(batch_table(topic="t", url=url(three, "c"))) == list(range(5))
        assert numbers(batch_table(topic="t", url=url(three, "cb"))) == list(range(25))
        assert numbers(batch_table(topicPattern="t", url=url(three, "cb"))) == list(range(25))
        assert numbers(batch_table(topic="t", url=url(three, "ca"))) == list(range(25))


def test_a_topic_that_a_node_has_not_heard_of_is_found_at_another_one(tmp_path):
    with replicated(tmp_path, "abcd", port=0) as nodes, lagging(nodes, "c"):
        nodes["a"].create_topic("new", replicas=3, partitions=2, envelope=True)
        for name in partition_topics(b"new", 2):
            nodes["a"].put(name, encode(None, b"m"))
        with pytest.raises(UnknownTopic):
            batch_table(topic="new", url=url(nodes, "c"))
        for options in ({"topic": "new"}, {"topicPattern": "new-.*"}):
            read = batch_table(**options, url=url(nodes, "cb"))
            assert sorted(read["partition"].to_pylist()) == [0, 1]
            assert messages(read) == [b"m", b"m"]


class Query:
    """A query that takes what is there, one micro-batch for each call."""

    def __init__(self, *, is_available_now=True, **options):
        self.reader = stream_reader(**options)
        if is_available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.offset = self.reader.initialOffset()

    def batch(self):
        end = self.reader.latestOffset(self.offset, ReadAllAvailable())
        if end == self.offset:
            return None
        read = table(self.reader, self.reader.partitions(self.offset, end))
        self.offset = end
        return numbers(read)


def test_a_query_that_takes_what_is_there_does_not_end_where_a_copy_does(three, make_query):
    fill(three, *range(5))
    with lagging(three, "c"):
        fill(three, *range(5, 25))
        query = make_query(topic="t", url=url(three, "cab"))
        assert query.batch() == list(range(25))
        assert query.batch() is None


def test_a_query_goes_on_at_another_node_and_misses_nothing(three, make_query):
    fill(three, *range(15))
    query = make_query(topic="t", url=url(three, "abc"), is_available_now=False)
    assert query.batch() == list(range(15))
    three.log.cut("b")
    fill(three, *range(15, 30))
    assert query.batch() == list(range(15, 30))
    three.stop("a")
    assert query.batch() is None
    fill(three, *range(30, 31), name="c")
    three.log.heal("b")
    wait_until(lambda: query.batch() == [30])


def test_a_micro_batch_is_planned_again_at_a_node_that_lags_as_it_was(
    three, make_query, monkeypatch
):
    fill(three, *range(5))
    three.log.cut("c")
    fill(three, *range(5, 25))
    first = make_query(topic="t", url=url(three, "a"))
    end = first.reader.latestOffset(first.offset, ReadAllAvailable())
    again = make_query(topic="t", url=url(three, "c"), **PATIENT).reader
    with healed_when_asked(three, "c", monkeypatch):
        assert numbers(table(again, again.partitions(first.offset, end))) == list(range(25))


def test_what_was_removed_is_lost_and_not_waited_for(three, make_query):
    fill(three, *range(25))
    three.wait_same()
    query = make_query(topic="t", url=url(three, "cab"), is_available_now=False)
    planned = batch_reader(topic="t", url=url(three, "a")).partitions()
    three["a"].control("trim", topic=b"t", pointer=three["a"].put("t", b"25"))
    three.wait_same()
    with pytest.raises(DataLost):
        table(batch_reader(topic="t", url=url(three, "cab")), planned)
    query.offset = {"t": 1}
    with pytest.raises(DataLost):
        query.batch()


def test_a_topic_of_one_node_is_refused_where_several_are_named(three):
    three["a"].put("own", b"m")
    with pytest.raises(NotReplicated, match="'own' is one of a node alone"):
        batch_table(topic="own", url=url(three))
    with RetryingSocket(servers(three), 0.2) as server:
        with pytest.raises(NotReplicated):
            list(Targets(server).of([(b"own", batch_of(b"m"))]))
        with pytest.raises(NodeIsBehind, match="not got topic 'none' yet"):
            list(Targets(server).of([(b"none", batch_of(b"m"))]))
    assert messages(batch_table(topic="own", url=url(three, "a"))) == [b"m"]


def batch_of(*rows):
    return JoinedBatch(b"".join(len(each).to_bytes(4, "big") + each for each in rows), len(rows))


def write(nodes, names, rows, epoch=0, commit_names=None):
    """Stage rows at the first of some nodes that can be asked, and commit them likewise."""
    staging = Staging.of_producer("p", "t")
    with RetryingSocket(servers(nodes, names), 20.0) as server:
        staging.open(server)
        ranges = staging.stage(server, Targets(server).of([(b"t", batch_of(*rows))]))
    with RetryingSocket(servers(nodes, commit_names or names), 20.0) as server:
        staging.commit(server, epoch, ranges)


def stored(nodes, name="a"):
    return [int(each) for each in nodes.values(name)]


def test_rows_are_staged_and_committed_at_nodes_that_know_of_them(three):
    write(three, "abc", [b"1", b"2"])
    with lagging(three, "c"):
        write(three, "cab", [b"3"], epoch=1)
        assert stored(three) == [1, 2, 3]
    three.wait_same()
    topics = three["a"].control("topic_list")
    assert all(each["properties"]["replicas"] == 3 for each in topics.values())


def test_a_batch_that_is_committed_again_at_a_node_that_lags_is_there_once(three):
    write(three, "abc", [b"1", b"2"])
    with lagging(three, "c"):
        write(three, "ab", [b"3", b"4"], epoch=1)
        write(three, "ab", [b"4", b"3"], epoch=1, commit_names="cab")
        assert stored(three) == [1, 2, 3, 4]
    three.wait_same()
    assert stored(three, "c") == [1, 2, 3, 4]


def test_a_write_of_one_batch_leaves_no_topic_whichever_node_it_goes_on_at(three):
    staging = Staging.of_one_write()
    with RetryingSocket(servers(three, "ab"), 20.0) as server:
        staging.open(server)
        three.log.cut("c")
        ranges = staging.stage(server, [(b"t", [b"1"])])
    with RetryingSocket(servers(three, "cb"), 20.0) as server:
        ranges += staging.stage(server, [(b"t", [b"2"])])
        staging.commit(server, 0, ranges)
    three.log.heal("c")
    assert stored(three) == [1, 2]
    for name in "abc":
        wait_until(lambda: list(three[name].control("topic_list")) == [b"t"])  # noqa: B023


@pytest.mark.parametrize("is_temporary", [True, False])
def test_a_node_that_has_not_heard_of_a_staging_topic_makes_none_of_its_own(tmp_path, is_temporary):
    staging = Staging(b"s" * 16, is_temporary=is_temporary)
    with replicated(tmp_path, "abcd", port=0) as nodes:
        nodes["a"].create_topic("t", replicas=3)
        wait_until(lambda: nodes.state("c") == "following")
        with lagging(nodes, "c"):
            with RetryingSocket(servers(nodes, "ab"), 20.0) as server:
                staging.open(server)
            with RetryingSocket(servers(nodes, "cb"), 20.0) as server:
                ranges = staging.stage(server, [(b"t", [b"1"])])
            assert list(nodes["c"].control("topic_list")) == [b"t"]
            with RetryingSocket(servers(nodes, "cb"), 20.0) as server:
                staging.commit(server, 0, ranges)
            assert list(nodes["c"].control("topic_list")) == [b"t"]
        nodes.wait_same()
        assert stored(nodes, "c") == [1]


def test_a_commit_goes_on_where_a_node_has_died_in_the_midst_of_it(three):
    staging = Staging.of_producer("p", "t")
    with RetryingSocket(servers(three), 20.0) as server:
        staging.open(server)
        ranges = staging.stage(server, [(b"t", [b"%d" % number]) for number in range(3)])

        class Dying(RetryingSocket):
            left = 5

            def call(self, method, *args, **kwargs):
                self.left -= 1
                if self.left == 0:
                    three.stop("a")
                return super().call(method, *args, **kwargs)

    with Dying(servers(three), 20.0) as server:
        staging.commit(server, 0, ranges)
        staging.commit(server, 0, ranges[:1])
    assert stored(three, "b") == [0, 1, 2]
