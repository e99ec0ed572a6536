"""Groups of replicated topics: one for the cluster, whichever node is asked."""

import contextlib
import os

import pytest

from poe.errors import GroupMismatch, NoQuorum, OptionError, TooFewNodes, UnknownGroup
from tests.cluster.log.replicated import replicated
from tests.waiting import wait_until


def join(node, group="g", mode="ordered", topics=(b"t",), member=None, **options):
    member = member or os.urandom(16)
    told = node.control(
        "group_join",
        group=group,
        mode=mode,
        topics=list(topics),
        options=options,
        member=member,
    )
    return member, told


def beat(node, member, generation, owned, wait_s=0):
    return node.control(
        "group_heartbeat",
        group="g",
        member=member,
        generation=generation,
        owned=list(owned),
        wait_s=wait_s,
    )


def commit(node, member, generation, pointer, group="g"):
    return node.control(
        "group_commit",
        group=group,
        member=member,
        generation=generation,
        positions={b"t": pointer},
    )


def positions(node, group="g"):
    return node.control("group_positions", group=group, member=b"m" * 16)


def coordinator(three, name="a"):
    return three.logs(name)["groups"]["node"]


@pytest.fixture
def topic(three):
    three["a"].create_topic("t", replicas=3)
    return three


def test_a_position_committed_at_one_node_is_that_of_all(topic):
    pointer = topic["a"].put("t", b"1")
    member, told = join(topic["a"])
    assert told["granted"].keys() == {b"t"}
    assert b"t" in commit(topic["b"], member, told["generation"], pointer)
    for name in "abc":
        assert positions(topic[name])[b"t"][0] == pointer
        assert [each["group"] for each in topic[name].control("groups")] == ["g"]


def test_members_at_different_nodes_hand_over_what_they_have(topic):
    topic["a"].control("topic_create", topic=b"p", properties={"replicas": 3, "partitions": 2})
    first, told = join(topic["a"], topics=[b"p"])
    units = set(told["granted"])
    assert len(units) == 2
    second, told = join(topic["b"], topics=[b"p"])
    assert not told["granted"]
    generation = 0
    while len(units) == 2:
        told = beat(topic["c"], first, generation, owned=units, wait_s=5)
        generation = told["generation"]
        units -= set(told["revoke"])
    beat(topic["a"], first, generation, units)
    told = beat(topic["b"], second, 0, owned=(), wait_s=20)
    assert set(told["granted"]) | units == {b"p-0", b"p-1"}


def test_a_group_has_replicated_topics_or_others(topic):
    topic.put_own("a", "plain", b"1")
    with pytest.raises(OptionError, match="replicated topics only"):
        join(topic["a"], topics=[b"t", b"plain"])
    join(topic["a"], "own", topics=[b"plain"])
    join(topic["b"])
    assert names(topic["a"]) == ["g", "own"]
    assert names(topic["c"]) == ["g"]
    with pytest.raises(GroupMismatch):
        join(topic["c"], mode="shared")
    with pytest.raises(UnknownGroup):
        topic["c"].control("group", group="own")


def names(node):
    return [each["group"] for each in node.control("groups")]


def test_a_group_that_is_deleted_at_one_node_is_gone_at_all(topic):
    member, _ = join(topic["a"])
    topic["c"].control("group_leave", group="g", member=member)
    topic["c"].control("group_delete", group="g")
    for name in "abc":
        assert names(topic[name]) == []
        with pytest.raises(UnknownGroup):
            positions(topic[name])
    join(topic["b"], mode="shared")


def test_a_group_that_was_deleted_at_another_node_is_made_anew_for_topics_of_one_node(topic):
    """Who had heard of it had one made for the cluster, of a topic that others have not got."""
    member, _ = join(topic["b"])
    topic["c"].control("group_leave", group="g", member=member)
    topic["c"].control("group_delete", group="g")
    topic.put_own("b", "plain", b"1")
    join(topic["b"], topics=[b"plain"])
    assert names(topic["b"]) == ["g"]
    assert names(topic["a"]) == []


def test_a_topic_that_is_deleted_is_forgotten_by_its_groups(topic):
    pointer = topic["a"].put("t", b"1")
    member, told = join(topic["a"])
    commit(topic["b"], member, told["generation"], pointer)
    topic["c"].control("delete", topic=b"t")
    assert positions(topic["a"]).get(b"t") is None


@pytest.mark.slow
def test_a_node_that_stops_hands_over_and_one_that_starts_knows_all(topic):
    pointers = [topic["a"].put("t", b"%d" % number) for number in range(5)]
    member, told = join(topic["a"])
    commit(topic["a"], member, told["generation"], pointers[3])
    assert coordinator(topic) == "a"
    topic.stop("a")
    assert positions(topic["b"])[b"t"][0] == pointers[3]
    topic.start("a")
    wait_until(lambda: coordinator(topic) == "b", 10)
    assert positions(topic["a"])[b"t"][0] == pointers[3]


def test_a_consumer_and_a_queue_take_from_a_replicated_topic_at_any_node(topic):
    values = [b"%d" % number for number in range(20)]
    topic["a"].put_many("t", values)
    topic.wait_same()
    with topic["b"].consumer("t", group="c") as consumer:
        first = [each.value for each in consumer.receive(10)]
    with topic["c"].consumer("t", group="c") as consumer:
        topic["a"].put("t", b"last")
        topic.wait_same()  # without `follow` the end of this copy is the end
        rest = [each.value for each in consumer.receive(10)]
    assert first + rest == [*values, b"last"]
    with topic["c"].queue("t", group="q") as queue:
        found: list[bytes] = []
        while len(found) < 21:
            job = queue.get(10)
            found.append(job.value)
            job.ack()
    assert sorted(found) == sorted([*values, b"last"])
    wait_until(lambda: topic["b"].control("group_lag", group="q")[b"t"]["messages"] == 0, 10)


def test_what_is_known_of_a_group_may_be_larger_than_messages_may_be(tmp_path):
    with replicated(tmp_path, message_max=100) as three:
        three["a"].create_topic("t", replicas=3)
        pointer = three["a"].put("t", b"1")
        member, told = join(three["a"])
        commit(three["b"], member, told["generation"], pointer)
        assert positions(three["c"])[b"t"][0] == pointer


def test_without_a_majority_no_group_is_made(tmp_path):
    with replicated(tmp_path) as nodes:
        nodes["a"].create_topic("t", replicas=3)
        nodes.log.cut("b")
        nodes.log.cut("c")
        with pytest.raises(TooFewNodes):
            join(nodes["a"])
        nodes.log.heal("b")
        nodes.log.heal("c")
        join(nodes["a"])


def is_put(node, topic):
    """Whether a node takes a put: it has heard then which topics are replicated."""
    with contextlib.suppress(NoQuorum):
        return node.put(topic, b"1") > 0
    return False


def test_a_node_that_has_not_heard_which_topics_there_are_makes_no_group_of_its_own(three):
    """It would be another one than that of all other nodes, and begin with the oldest message."""
    three.create_own("c", "plain")
    wait_until(lambda: is_put(three["c"], "plain"), 10)
    join(three["c"], "own", topics=[b"plain"])
    three.stop("c")
    three["a"].create_topic("t", replicas=3)
    pointer = three["a"].put("t", b"1")
    member, told = join(three["a"])
    commit(three["a"], member, told["generation"], pointer)
    three.log.cut("c")
    three.start("c")
    with pytest.raises(NoQuorum, match="topic t is replicated"):
        join(three["c"])
    assert names(three["c"]) == ["own"]
    three.log.heal("c")
    wait_until(lambda: three.state("c") == "following", 10)
    join(three["c"])
    assert positions(three["c"])[b"t"][0] == pointer
