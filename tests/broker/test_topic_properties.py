"""Topics that were made with properties: their partitions, what holds for them, and their end."""

import random

import pytest

from poe import protocol
from poe.errors import (
    InvalidTopicName,
    OptionError,
    Overloaded,
    PropertyFixed,
    PropertyMismatch,
    RemoteProtocolError,
    ReservedTopic,
    TopicExists,
    TopicNotCreated,
    UnknownTopic,
)
from tests.broker.nodes import read_by_next
from torture.checker import Put
from torture.layers.simulated_disk import SimulatedDisk
from torture.simulated_node import SimulatedNode as PowerlessNode

LARGE = b"x" * 100


def create(sim, topic, **properties):
    return sim.node.control("topic_create", topic=topic, properties=properties)


def alter(sim, topic, **properties):
    return sim.node.control("topic_alter", topic=topic, properties=properties)


def describe(sim, topic):
    return sim.node.control("describe", topic=topic)


def messages(sim, topic):
    return [message for _, message in read_by_next(sim.node, topic)]


def put(sim, topic, *batch):
    """Put as connections do."""
    return sim.system.call(sim.frame_puts, (topic, list(batch)))


def test_a_topic_that_was_made_is_described_before_and_after_puts(sim):
    made = create(sim, b"t", partitions=2, envelope=True)
    assert made["version"] == 1
    assert made["properties"]["partitions"] == 2
    assert made["properties"]["envelope"] is True
    empty = {
        "oldest": None,
        "newest": None,
        "first_ordinal": 0,
        "next_ordinal": 0,
        "messages": 0,
        "bytes": 0,
        "segments": 0,
        "roles": "",
    }
    assert made["partitions"] == [{"topic": b"t-0", **empty}, {"topic": b"t-1", **empty}]
    first = sim.node.put(b"t-1", b"1")
    last = sim.node.put(b"t-1", b"2")
    told = describe(sim, b"t")
    assert told["id"] == made["id"]
    assert told["partitions"][1] == {
        "topic": b"t-1",
        "oldest": first,
        "newest": last,
        "first_ordinal": 0,
        "next_ordinal": 2,
        "messages": 2,
        "bytes": 24,
        "segments": 1,
        "roles": "1 w",
    }


def test_a_topic_that_a_put_has_made_is_described_as_it_is_by_default(sim):
    sim.node.put(b"t", b"1")
    told = describe(sim, b"t")
    assert (told["name"], told["version"]) == (b"t", 0)
    assert [each["topic"] for each in told["partitions"]] == [b"t"]
    assert told["properties"]["partitions"] == 1
    sim.stop()
    sim.start()
    assert describe(sim, b"t") == told


def test_an_unknown_topic_is_not_described(sim):
    with pytest.raises(UnknownTopic):
        describe(sim, b"t")


def test_nothing_goes_onto_a_partition_that_there_is_not(sim):
    create(sim, b"t", partitions=2)
    for topic in (b"t", b"t-2"):
        for attempt in (put, lambda sim, topic, _: sim.node.put(topic, b"1")):
            with pytest.raises(PropertyMismatch):
                attempt(sim, topic, b"1")
        with pytest.raises(PropertyMismatch):
            sim.read(topic, 0, 1)
        with pytest.raises(PropertyMismatch):
            sim.node.next(topic, 0)
        with pytest.raises(PropertyMismatch):
            sim.node.control("wait", topic=topic, pointer=0, timeout_s=0)
    assert sim.node.topics() == []
    assert sim.node.next(b"t-1", 0) is None
    assert sim.read(b"t-1", 0, 1) == []


def test_a_topic_grows(sim):
    create(sim, b"t")
    sim.node.put(b"t", b"1")
    told = alter(sim, b"t", partitions=3)
    assert [each["topic"] for each in told["partitions"]] == [b"t", b"t-1", b"t-2"]
    assert told["version"] == 2
    sim.node.put(b"t-2", b"2")
    with pytest.raises(PropertyFixed):
        alter(sim, b"t", partitions=2)


@pytest.mark.parametrize(
    ("op", "arguments", "error"),
    [
        ("topic_create", {"topic": b"t"}, TopicExists),
        ("topic_create", {"topic": b"u", "properties": {"partitions": 0}}, OptionError),
        ("topic_create", {"topic": b"u", "properties": {"colour": "red"}}, OptionError),
        ("topic_create", {"topic": b"u", "properties": 5}, OptionError),
        ("topic_create", {"topic": b"a/b"}, InvalidTopicName),
        ("topic_create", {"topic": b""}, RemoteProtocolError),
        ("topic_create", {"topic": b"poe.mine"}, ReservedTopic),
        ("topic_alter", {"topic": b"u", "properties": {}}, UnknownTopic),
        ("topic_alter", {"topic": b"t", "properties": {"envelope": True}}, PropertyFixed),
        ("topic_alter", {"topic": b"t", "properties": {"colour": 1}}, OptionError),
        ("topic_adopt", {"topic": b"u", "partitions": 2}, UnknownTopic),
        ("topic_adopt", {"topic": b"u", "partitions": "2"}, OptionError),
        ("topic_list", {"all": 1}, RemoteProtocolError),
        ("topic_list", {"count": -1}, RemoteProtocolError),
        ("describe", {}, RemoteProtocolError),
        ("delete", {"topic": b"poe.groups"}, ReservedTopic),
        ("trim", {"topic": b"poe.groups", "pointer": 1}, ReservedTopic),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(sim, op, arguments, error):
    before = create(sim, b"t")
    with pytest.raises(error):
        sim.node.control(op, **arguments)
    assert describe(sim, b"t") == before
    assert list(sim.node.control("topic_list", all=True)) == [b"t"]


def test_topics_are_adopted_with_what_they_hold(sim):
    for number in range(3):
        sim.node.put(b"t-%d" % number, b"%d" % number)
    told = sim.node.control("topic_adopt", topic=b"t", partitions=3, properties={"envelope": True})
    assert [each["messages"] for each in told["partitions"]] == [1, 1, 1]
    assert list(sim.node.control("topic_list")) == [b"t"]
    assert messages(sim, b"t-2") == [b"2"]
    assert describe(sim, b"t-2")["properties"]["envelope"] is True


def test_the_list_has_all_topics_page_by_page_and_no_partitions(sim):
    for number in range(7):
        sim.node.put(b"put%d" % number, b"1")
        create(sim, b"made%d" % number, partitions=2)
        sim.node.put(b"made%d-1" % number, b"1")
    everything = sim.node.control("topic_list")
    assert list(everything) == sorted(everything)
    assert len(everything) == 14
    assert everything[b"made3"]["properties"]["partitions"] == 2
    paged: dict[bytes, object] = {}
    after = b""
    while page := sim.node.control("topic_list", after=after, count=3):
        assert len(page) <= 3
        paged |= page
        after = max(page)
    assert paged == everything


def test_a_topic_is_deleted_with_its_partitions_and_made_anew_is_another(sim):
    made = create(sim, b"t", partitions=2, envelope=True)
    sim.node.put(b"t-0", b"1")
    sim.node.control("delete", topic=b"t")
    with pytest.raises(UnknownTopic):
        describe(sim, b"t")
    assert sim.node.topics() == []
    with pytest.raises(UnknownTopic):
        sim.node.control("delete", topic=b"t")
    again = create(sim, b"t")
    assert again["id"] != made["id"]
    sim.node.put(b"t", b"2")
    sim.stop()
    sim.start()
    assert describe(sim, b"t")["id"] == again["id"]


def test_a_topic_without_messages_is_deleted_too(sim):
    create(sim, b"t", partitions=2)
    sim.node.control("delete", topic=b"t")
    assert sim.node.control("topic_list") == {}


def test_a_topic_is_trimmed_as_a_whole(simulate):
    sim = simulate(count_limit=1)
    create(sim, b"t", partitions=2)
    for number in range(4):
        last = sim.node.put(b"t-%d" % (number % 2), b"1")
        sim.advance(1)
    assert sim.node.control("trim", topic=b"t", pointer=last) == 4
    assert [each["messages"] for each in describe(sim, b"t")["partitions"]] == [0, 0]


def test_partitions_rotate_by_the_limits_of_their_topic_and_by_new_ones(sim):
    create(sim, b"t", partitions=2, count_limit=2)
    for number in range(4):
        sim.node.put(b"t-1", b"%d" % number)
        sim.advance(1)
    assert describe(sim, b"t")["partitions"][1]["segments"] == 3
    alter(sim, b"t", count_limit=100)
    for number in range(4, 14):
        sim.node.put(b"t-1", b"%d" % number)
        sim.advance(1)
    assert describe(sim, b"t")["partitions"][1]["segments"] == 3
    alter(sim, b"t", count_limit=None, size_limit=10)
    sim.advance(1)
    assert describe(sim, b"t")["partitions"][1]["segments"] == 4
    assert messages(sim, b"t-1") == [b"%d" % number for number in range(14)]


@pytest.mark.parametrize("level", ["memory", "fsync"])
def test_a_topic_goes_on_with_another_ack_in_a_new_segment(sim, level):
    sim.node.put(b"t", b"1")
    sim.advance(0.01)
    told = alter(sim, b"t", ack=level)
    assert told["partitions"][0]["segments"] == 2
    sim.node.put(b"t", b"2")
    segments = sim.node._store.topics[b"t"]  # noqa: SLF001 - what it went into
    assert [each.options.ack for each in segments] == ["flushed", level]
    alter(sim, b"t", ack=None)
    sim.node.put(b"t", b"3")
    assert messages(sim, b"t") == [b"1", b"2", b"3"]
    sim.stop()
    sim.start()
    sim.node.put(b"t", b"4")
    assert messages(sim, b"t") == [b"1", b"2", b"3", b"4"]


def test_an_empty_segment_takes_another_ack_itself(sim):
    sim.node.control("create", topic=b"t")
    told = alter(sim, b"t", ack="fsync")
    assert told["partitions"][0]["segments"] == 1
    [segment] = sim.node._store.topics[b"t"]  # noqa: SLF001 - what puts go into
    assert segment.options.ack == "fsync"
    sim.node.put(b"t", b"1")
    assert messages(sim, b"t") == [b"1"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count_limit", [1, 100])
def test_with_fsync_from_now_on_no_power_cut_takes_what_was_put_then_or_before(seed, count_limit):
    """With a limit of 1 there is an empty segment already, behind one that is not synced yet."""
    disk = SimulatedDisk()
    node = PowerlessNode(disk, "flushed", count_limit)
    puts = [Put(b"t", 1, number, [b"%d" % number]) for number in range(2)]
    node.begin_put(0, puts[0])
    node.advance(0.6)
    [partition] = node.control("describe", topic=b"t")["partitions"]
    assert partition["segments"] == (2 if count_limit == 1 else 1)
    node.control("topic_alter", topic=b"t", properties={"ack": "fsync"})
    node.begin_put(0, puts[1])
    node.advance(0.1)
    assert puts[1].pointer is not None
    node.abandon(lambda: disk.cut_power(random.Random(seed)))
    node.start()
    assert [message for _, message in node.read_all()[b"t"]] == [b"0", b"1"]
    node.stop()


def test_what_waits_in_memory_can_be_read_when_only_what_is_synced_is_shown_from_now_on(simulate):
    sim = simulate(ack="memory")
    create(sim, b"t")
    sim.node.put_many(b"t", [b"1", b"2"])
    alter(sim, b"t", read="synced")
    assert [message for _, message in sim.read(b"t", 0, 10)] == [b"1", b"2"]
    assert [message for _, message in sim.read(b"t", 0, 1)] == [b"1"]


def test_what_consumers_see_changes_with_read_and_nothing_they_saw_goes(simulate):
    sim = simulate(sync_interval=5.0)
    sim.node.put(b"t", b"1")
    alter(sim, b"t", read="synced")
    sim.node.put(b"t", b"2")
    assert messages(sim, b"t") == [b"1"]
    alter(sim, b"t", read=None)
    assert messages(sim, b"t") == [b"1", b"2"]


def test_a_property_that_does_not_go_with_the_node_s_options_is_refused(simulate):
    sim = simulate(sync_interval=0.0)
    with pytest.raises(OptionError):
        create(sim, b"t", read="synced")
    assert sim.node.control("topic_list") == {}
    sim.node.put(b"t", b"1")
    with pytest.raises(OptionError):
        alter(sim, b"t", read="synced")
    assert describe(sim, b"t")["version"] == 0


def test_the_properties_hold_after_a_restart_too(sim):
    create(sim, b"t", count_limit=1, ack="fsync")
    sim.stop()
    sim.start()
    for number in range(3):
        sim.node.put(b"t", b"%d" % number)
        sim.advance(1)
    assert describe(sim, b"t")["partitions"][0]["segments"] == 4


def test_a_server_that_is_killed_goes_on_by_the_properties(sim, quiet):
    create(sim, b"t", count_limit=1)
    sim.node.put(b"t", b"1")
    sim.kill(sim.servers()[-1])
    sim.advance(1)
    sim.node.put(b"t", b"2")
    sim.advance(1)
    assert describe(sim, b"t")["partitions"][0]["segments"] == 3


def test_where_puts_make_no_topics_partitions_of_those_that_were_made_still_come(simulate):
    sim = simulate(auto_create=False)
    create(sim, b"t", partitions=2)
    sim.node.put(b"t-1", b"1")
    with pytest.raises(TopicNotCreated):
        sim.node.put(b"u", b"1")


def test_topics_without_messages_count_among_the_topics_that_there_may_be(simulate):
    sim = simulate(topics_max=2)
    create(sim, b"t")
    create(sim, b"u")
    with pytest.raises(Overloaded):
        create(sim, b"v")


# ---- how long messages are kept ------------------------------------------------------------------


def test_a_topic_keeps_its_messages_as_long_as_it_says_whatever_the_node_does(simulate):
    sim = simulate(max_age=100.0)
    create(sim, b"short", max_age=10)
    create(sim, b"long", max_age=1000)
    create(sim, b"ever", max_age="none")
    for topic in (b"short", b"long", b"ever", b"plain"):
        sim.node.put(topic, b"1")
    left = []
    for seconds in (12, 100, 1010):
        sim.advance(seconds)
        left.append([topic for topic in sorted(sim.node.topics()) if messages(sim, topic)])
    assert left == [[b"ever", b"long", b"plain"], [b"ever", b"long"], [b"ever"]]


def test_messages_go_by_a_property_that_comes_later(sim):
    sim.node.put(b"t", b"1")
    sim.advance(500)
    assert messages(sim, b"t") == [b"1"]
    alter(sim, b"t", max_age=100)
    sim.advance(11)
    assert messages(sim, b"t") == []


@pytest.mark.parametrize("is_node_s", [False, True])
def test_a_partition_keeps_no_more_bytes_than_it_may(simulate, is_node_s):
    options = {"count_limit": 1, "max_bytes": 500} if is_node_s else {"count_limit": 1}
    sim = simulate(**options)
    if not is_node_s:
        create(sim, b"t", max_bytes=500)
    for _ in range(20):
        sim.node.put(b"t", LARGE)
        sim.advance(1)
        assert describe(sim, b"t")["partitions"][0]["bytes"] <= 500
    assert len(messages(sim, b"t")) == 4


def test_a_limit_that_comes_later_holds_at_once(simulate):
    sim = simulate(count_limit=1)
    for _ in range(20):
        sim.node.put(b"t", LARGE)
        sim.advance(1)
    told = alter(sim, b"t", max_bytes=300)
    assert told["partitions"][0]["messages"] == 2


def test_topics_that_rest_are_kept_as_they_say(simulate, monkeypatch):
    monkeypatch.setattr("poe.storage.store.store.FEW_TOPICS", 0)
    sim = simulate(count_limit=1)
    create(sim, b"old", max_age=100)
    create(sim, b"large", max_bytes=10_000)
    for topic in (b"old", b"large", b"plain"):
        for _ in range(3):
            sim.node.put(topic, LARGE)
            sim.advance(1)
    sim.stop()
    sim.start()
    assert len(sim.routes.resting) == 3
    sim.advance(200)
    assert sorted(sim.routes.resting) == [b"large", b"plain"]
    assert messages(sim, b"old") == []
    alter(sim, b"large", max_bytes=250)
    sim.advance(601)
    assert len(messages(sim, b"large")) <= 2


# ---- the node's own topics -----------------------------------------------------------------------


def test_clients_neither_make_nor_put_onto_the_node_s_own_topics_and_do_not_see_them(serve):
    node = serve()
    with protocol.socket(*node.address, timeout_s=5) as client:
        with pytest.raises(ReservedTopic):
            client.write(b"poe.groups", [b"1"])
        with pytest.raises(ReservedTopic):
            node.put(b"poe.groups", b"1")
        with pytest.raises(ReservedTopic):
            client.control("create", topic=b"poe.groups")  # nor could they delete it
        node.control("create", topic=b"poe.groups")
        with pytest.raises(ReservedTopic):
            client.write(b"poe.groups", [b"1"])
        assert client.read(b"poe.groups", 0, 1) == []
        client.write(b"poe.staging.x", [b"1"])
        assert client.topics() == node.topics() == [b"poe.staging.x"]
        assert client.control("topics", all=True) == [b"poe.groups", b"poe.staging.x"]
        assert list(client.control("topic_list", all=True)) == [b"poe.groups", b"poe.staging.x"]
        assert list(client.info()) == [b"poe.staging.x"]
