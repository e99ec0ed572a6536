"""Topics that nodes agree on: made, put onto, read, trimmed and deleted at any of them."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from poe.broker import NODE_SUP
from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.cluster.log.engine_door import EngineLeaver
from poe.cluster.log.tree import LOG_SUP
from poe.errors import (
    CallTimeout,
    InvalidTopicName,
    NoLogEngine,
    NoQuorum,
    OptionError,
    PropertyFixed,
    PutTooLarge,
    SequenceGap,
    TooFewNodes,
    TopicExists,
    UnknownTopic,
)
from poe.node import Node
from poe.protocol import PutId
from poe.supervision import RestartChild, TerminateChild
from tests.cluster.log.replicated import replicated
from tests.waiting import wait_until

P = b"p" * 16


def test_what_is_put_at_any_node_is_the_same_at_all(three):
    made = three["a"].create_topic("t", replicas=3)
    pointers = [
        three["abc"[number % 3]].put_many("t", [b"%d" % number, b"x" * number])
        for number in range(1, 31)
    ]
    assert pointers == sorted(set(pointers))
    three.wait_same()
    for name in "abc":
        found = three[name].describe("t")
        assert found.id == made.id
        assert three.values(name)[:2] == [b"1", b"x"]
        assert len(three.values(name)) == 60


def test_segments_begin_at_the_same_message_at_all_nodes(three):
    three["a"].create_topic("t", replicas=3, count_limit=10)
    for number in range(40):
        three["abc"[number % 3]].put_many("t", [b"%d" % number] * (1 + number % 4))
    three.wait_same()
    assert len(three.files("a")) > 5


def test_limits_of_the_node_that_makes_a_topic_hold_at_all(tmp_path):
    with replicated(tmp_path, count_limit=10) as nodes:
        nodes.options["count_limit"] = 7
        nodes.stop("c")
        nodes.start("c")
        nodes["a"].create_topic("t", replicas=3)
        for number in range(30):
            nodes["c"].put("t", b"%d" % number)
        nodes.wait_same()
        assert len(nodes.files("c")) == 3


def test_a_sequenced_put_is_stored_once_whichever_node_gets_it(three):
    three["a"].create_topic("t", replicas=3)
    first = three["a"].put_many("t", [b"0"], PutId(P, 0, 0))
    assert three["b"].put_many("t", [b"0"], PutId(P, 0, 0)) == first
    second = three["b"].put_many("t", [b"1"], PutId(P, 0, 1))
    assert three["c"].put_many("t", [b"0"], PutId(P, 0, 0)) == first
    with pytest.raises(SequenceGap):
        three["c"].put_many("t", [b"3"], PutId(P, 0, 3))
    assert three["c"].put_many("t", [b"2"], PutId(P, 0, 2)) > second
    three.wait_same()
    for name in "abc":
        assert three.values(name) == [b"0", b"1", b"2"]


def test_what_several_nodes_put_later_onto_one_topic_is_all_there(three):
    """Each has numbers of its own: of two nodes one took for stored what it had not put."""
    three["a"].create_topic("t", replicas=3)
    three.wait_same()
    for number, name in enumerate("abab"):
        three[name].control("queue_put", topic=b"t", messages=[b"%d" % number], due_us=1)
        wait_until(lambda: len(three.values("a")) > number, 20)  # noqa: B023 - it is called at once
        three.wait_same()
    assert three.values("a") == [b"0", b"1", b"2", b"3"]


def test_a_put_whose_acknowledgement_is_lost_is_stored_once_and_answered(three):
    three["a"].create_topic("t", replicas=3)
    three.log.acks_to_lose = 3
    pointers = [three["a"].put("t", b"%d" % number) for number in range(5)]
    assert len(set(pointers)) == 5
    three.wait_same()
    assert three.values("b") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.slow
def test_without_a_majority_a_put_is_refused_and_stored_nowhere(three):
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"before")
    three.log.cut("b")
    three.log.cut("c")
    with pytest.raises(NoQuorum) as refused:
        three["a"].put("t", b"refused")
    assert refused.value.retriable
    assert three.values("a") == [b"before"]
    three.log.heal("b")
    three["a"].put("t", b"after")
    three.log.heal("c")
    three.wait_same()
    assert three.values("c") == [b"before", b"after"]


@pytest.mark.slow
def test_a_node_that_is_cut_off_reads_on_and_takes_no_puts(three):
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"1")
    three.wait_same()
    three.log.cut("c")
    three["a"].put("t", b"2")
    assert three.values("c") == [b"1"]
    with pytest.raises(NoQuorum):
        three["c"].put("t", b"x")
    three.log.heal("c")
    three.wait_same()
    assert three.values("c") == [b"1", b"2"]


@pytest.mark.parametrize("names", ["a", "ab"])
def test_one_node_and_two_refuse_to_make_such_a_topic(tmp_path, names):
    with replicated(tmp_path, names) as nodes, pytest.raises(TooFewNodes) as refused:
        nodes["a"].create_topic("t", replicas=3)
    assert (refused.value.wanted, refused.value.live) == (3, len(names))


def test_a_node_without_an_engine_says_what_to_do(tmp_path):
    with Node(dir=tmp_path, port=None) as node, pytest.raises(NoLogEngine, match="log-engine"):
        node.create_topic("t", replicas=3)


@pytest.mark.parametrize("replicas", [0, 2, 4, 7])
def test_a_number_of_replicas_of_which_no_majority_is_safer_is_refused(three, replicas):
    with pytest.raises(OptionError, match="replicas"):
        three["a"].create_topic("t", replicas=replicas)


def test_replicas_never_change(three):
    three["a"].create_topic("t", replicas=3)
    with pytest.raises(PropertyFixed):
        three["b"].alter_topic("t", replicas=1)
    three.put_own("a", "plain", b"x")
    with pytest.raises(PropertyFixed):
        three["a"].alter_topic("plain", replicas=3)
    with pytest.raises(OptionError, match="replicas"):
        three["a"].adopt_topic("plain", replicas=3)


def test_limits_of_segments_never_change_since_nodes_would_change_them_at_other_messages(three):
    three["a"].create_topic("t", replicas=3, count_limit=10)
    with pytest.raises(PropertyFixed):
        three["b"].alter_topic("t", count_limit=20)
    three["b"].alter_topic("t", count_limit=10, max_bytes=1 << 30)


def test_a_topic_is_made_once(three):
    three["a"].create_topic("t", replicas=3)
    three.wait_all(lambda name: three.state(name) == "following")
    for name in "abc":
        with pytest.raises(TopicExists):
            three[name].create_topic("t", replicas=3)


def test_a_name_that_another_node_has_for_a_topic_of_its_own_is_refused(three):
    three.put_own("b", "t", b"mine")
    with pytest.raises(TopicExists, match="on node b, and there alone"):
        three["a"].create_topic("t", replicas=3)
    three["b"].control("delete", topic=b"t")
    three["a"].create_topic("t", replicas=3)


def agreed_on(nodes):
    """Topics in the catalog, and all streams."""
    return {key for key in nodes.log.catalog if key.startswith("topic-")}, set(nodes.streams)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_name_that_a_node_has_for_a_topic_of_its_own_is_refused_for_a_partition(three, name):
    three.put_own(name, "t-1", b"mine")
    with pytest.raises(TopicExists, match="topic 't-1' exists already"):
        three["a"].create_topic("t", replicas=3, partitions=3)
    assert agreed_on(three) == (set(), set())
    three["a"].create_topic("t", replicas=3)
    with pytest.raises(TopicExists, match="topic 't-1' exists already"):
        three["a"].alter_topic("t", partitions=3)
    three[name].control("delete", topic=b"t-1")
    three["a"].alter_topic("t", partitions=3)
    three.wait_all(lambda each: three.state(each, b"t-1") == "following")


@pytest.mark.parametrize(("there", "name"), [("t-1", "t"), ("other", "n" * 199)])
def test_nodes_agree_on_nothing_that_none_of_them_could_have(three, there, name):
    three["a"].create_topic(there, replicas=3)
    before = agreed_on(three)
    with pytest.raises((TopicExists, InvalidTopicName)):
        three["b"].create_topic(name, replicas=3, partitions=3)
    assert agreed_on(three) == before


def test_a_node_that_was_away_and_has_another_topic_of_that_name_keeps_it_and_says_so(tmp_path):
    with replicated(tmp_path, "abcd") as nodes:
        nodes.put_own("b", "t", b"mine")
        nodes.log.cut("b")
        nodes["a"].create_topic("t", replicas=3)
        nodes["a"].put("t", b"all")
        nodes.log.heal("b")
        wait_until(lambda: b"t" in nodes.logs("b")["refused"], 10)
        assert nodes.values("b") == [b"mine"]
        wait_until(lambda: b"t" in nodes["c"].topics(), 10)
        assert nodes.values("c") == [b"all"]
        # Once it is gone there, no put makes it anew, and the copy comes.
        nodes["b"].control("delete", topic=b"t")
        wait_until(lambda: put_or_refused(nodes["b"], b"next"), 10)
        nodes.wait_same()
        assert nodes.values("b") == [b"all", b"next"]
        assert nodes.logs("b")["refused"] == {}


def test_a_topic_of_one_node_alone_takes_puts_though_it_is_empty_and_others_agree_on_its_name(
    tmp_path,
):
    with replicated(tmp_path, "abcd") as nodes:
        nodes.create_own("b", "t")
        nodes.log.cut("b")
        nodes["a"].create_topic("t", replicas=3)
        nodes.log.heal("b")
        wait_until(lambda: b"t" in nodes.logs("b")["refused"], 10)
        nodes["b"].put("t", b"mine")
        assert nodes.values("b") == [b"mine"]


def test_a_topic_of_several_partitions_that_a_node_has_refused_is_not_made_there(tmp_path):
    with replicated(tmp_path, "abcd") as nodes:
        nodes.put_own("b", "t-1", b"mine")
        nodes.log.cut("b")
        nodes["a"].create_topic("t", replicas=3, partitions=3)
        nodes.log.heal("b")
        wait_until(lambda: b"t" in nodes.logs("b")["refused"], 10)
        with pytest.raises(NoQuorum, match="is replicated"):
            nodes["b"].create_topic("t")


def put_or_refused(node, message):
    with suppress(NoQuorum):
        return node.put("t", message) > 0
    return False


def test_altered_properties_hold_at_all_nodes(three):
    three["a"].create_topic("t", replicas=3)
    three["b"].alter_topic("t", partitions=3, max_age=60)
    three.wait_all(lambda name: three[name].describe("t").properties.partitions == 3)
    for name in "abc":
        assert three[name].describe("t").properties.max_age == 60
    three["c"].put("t-2", b"x")
    three.wait_same("t-2")
    assert three.values("a", "t-2") == [b"x"]


def test_what_may_have_been_agreed_on_is_not_told_as_not_done(three, monkeypatch):
    three["a"].create_topic("t", replicas=3)
    engine = three.log.find("a")
    put = engine.put_catalog

    def put_in_doubt(key, value, revision, told):
        put(key, value, revision, lambda _: told(NoQuorum(key)))

    with monkeypatch.context() as patch:
        patch.setattr(engine, "put_catalog", put_in_doubt)
        with pytest.raises(NoQuorum, match="agrees on topic t just now") as refused:
            three["a"].alter_topic("t", max_age=60)
    assert "may be done later" in str(refused.value)
    assert "nothing is stored" not in str(refused.value)
    three.wait_all(lambda name: three[name].describe("t").properties.max_age == 60)


def test_what_is_agreed_on_is_told_as_done_though_the_majority_is_lost_just_then(
    three, monkeypatch
):
    three["a"].create_topic("t", replicas=3)
    engine = three.log.find("a")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "state", lambda _, told: told(NoQuorum("the engine")))
        assert three["a"].alter_topic("t", max_age=60).properties.max_age == 60
        three["a"].control("delete", topic=b"t")
    three.wait_all(lambda name: b"t" not in three[name].topics())


def test_a_deleted_topic_is_gone_at_all_nodes_and_may_be_made_again(three):
    first = three["a"].create_topic("t", replicas=3, partitions=2)
    three["a"].put("t-0", b"old")
    three["b"].control("delete", topic=b"t")
    three.wait_all(lambda name: b"t-0" not in three[name].topics())
    for name in "abc":
        with pytest.raises(UnknownTopic):
            three[name].next("t-0", 0)
    assert three.streams == {}
    second = three["c"].create_topic("t", replicas=3)
    assert second.id != first.id
    three["a"].put("t", b"new")
    three.wait_same()
    assert three.values("b") == [b"new"]


def test_a_node_that_was_away_while_a_topic_was_deleted_and_made_anew_has_the_new_one(three):
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"old")
    three.stop("c")
    three["a"].control("delete", topic=b"t")
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"new")
    three.start("c")
    three.wait_same()
    assert three.values("c") == [b"new"]


def test_a_node_that_was_away_while_a_topic_was_deleted_twice_has_none(three):
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"old")
    three.wait_same()
    three.stop("c")
    three["a"].control("delete", topic=b"t")
    three["a"].create_topic("t", replicas=3)
    three["a"].control("delete", topic=b"t")
    three.start("c")
    wait_until(lambda: b"t" not in three["c"].topics() and three.files("c") == {}, 10)


def test_a_node_that_has_not_heard_which_topics_there_are_makes_none(three):
    """A put onto a replicated topic that it does not know would make one of this node alone."""
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"1")
    three.put_own("c", "own", b"x")
    three.stop("c")
    three.wipe("c")
    three.log.cut("c")
    three.start("c")
    for name in ("t", "other"):
        with pytest.raises(NoQuorum, match="is replicated"):
            three["c"].put(name, b"refused")
        with pytest.raises(NoQuorum, match="is replicated"):
            three["c"].create_topic(name, envelope=True)
    three.log.heal("c")
    wait_until(lambda: three.state("c") == "following", 10)
    three["c"].put("t", b"2")
    three.wait_same()
    assert three.values("a") == [b"1", b"2"]
    three.put_own("c", "other", b"x")


def test_while_its_part_in_the_log_begins_anew_a_node_refuses_what_may_be_put_again(three):
    """Producers give up what no node takes; and a put would make a topic of this node alone."""
    three["a"].create_topic("t", replicas=3)
    node = three["a"]
    node.system.call(NODE_SUP, TerminateChild(LOG_SUP))
    for name in ("t", "other"):
        with pytest.raises(NoQuorum):
            node.put(name, b"refused")
    node.system.call(NODE_SUP, RestartChild(LOG_SUP))
    wait_until(lambda: put_or_refused(node, b"x"), 10)
    three.wait_same()
    assert three.values("b") == [b"x"]


def test_a_node_that_is_stopped_leaves_the_engine(three):
    """In its process it would go on to answer other nodes, also beside its next life."""
    three.stop("c")
    assert three.log.find("c") is None
    assert three.log.find("b") is not None


def test_a_node_leaves_the_engine_also_where_who_is_to_is_killed(three, monkeypatch):
    """As where those that are stopped before take longer than a stop may."""
    monkeypatch.setattr(EngineLeaver, "terminate", lambda _, __: None)
    three.stop("c")
    assert three.log.find("c") is None


def test_a_node_that_waits_for_its_engine_stops_at_once(three, monkeypatch):
    """What it has asked is told at its end as not known, and who awaits that is not killed."""
    engine = three.log.find("c")
    left = engine.close
    asked: list[Callable[[Any], object]] = []

    def close():
        left()
        while asked:
            asked.pop()(NoQuorum("the engine"))

    monkeypatch.setattr(engine, "state", lambda _, told: asked.append(told))
    monkeypatch.setattr(engine, "close", close)
    with pytest.raises(CallTimeout):
        three["c"].system.call(LOGS, DescribeLogs(), timeout_s=0.1)
    three.stop("c")


def test_a_trim_takes_the_same_segments_at_all_nodes(three):
    three["a"].create_topic("t", replicas=3, count_limit=10)
    pointers = [three["a"].put("t", b"%d" % number) for number in range(35)]
    assert three["b"].control("trim", topic=b"t", pointer=pointers[19]) == 2
    three.wait_same()
    assert three.values("c")[0] == b"20"
    assert three["a"].control("trim", topic=b"t", pointer=pointers[-1]) == 2
    three["c"].put("t", b"last")
    three.wait_same()
    three.wait_all(lambda name: three.values(name) == [b"last"])


def test_ordinals_are_the_same_at_all_nodes(three):
    three["a"].create_topic("t", replicas=3, count_limit=10)
    pointers = [three["a"].put("t", b"%d" % number) for number in range(35)]
    three["a"].control("trim", topic=b"t", pointer=pointers[19])
    three.wait_same()
    for name in "abc":
        [part] = three[name].describe("t").partitions
        assert (part.first_ordinal, part.next_ordinal) == (20, 35)


def test_a_put_that_is_too_large_for_one_entry_is_refused(three):
    three["a"].create_topic("t", replicas=3)
    with pytest.raises(PutTooLarge):
        three["a"].put_many("t", [b"x" * (6 << 20)] * 3)
    three["a"].put_many("t", [b"x" * (6 << 20)] * 2)
    three.wait_same()


def test_entries_that_nobody_understands_are_left_out_by_all(three, caplog):
    three["a"].create_topic("t", replicas=3)
    three["a"].put("t", b"1")
    [name] = three.streams
    for payload in (b"", b"\xff" * 30, b"\x01\x01" + bytes(16), b"\x01\x03" + bytes(16) + b"x"):
        three.streams[name].append(f"foreign-{len(payload)}", 0, payload)
    three.log.spread(name)
    three["b"].put("t", b"2")
    three.wait_same()
    assert three.values("c") == [b"1", b"2"]
    assert "topic t" in caplog.text


def test_what_a_group_has_not_read_is_proposed_to_go_by_no_node(three):
    group = {"mode": "ordered", "topics": ["t"], "group": "billing"}
    three["a"].create_topic("t", replicas=3, count_limit=10, max_age=0.1, keep_unread=["billing"])
    three["a"].control("group_create", **group)
    three["a"].create_topic("u", replicas=3, count_limit=10, max_age=0.1)
    values = [b"%d" % number for number in range(25)]
    for topic in "tu":
        for value in values:
            three["a"].put(topic, value)
    # Topics are looked at one after the other: twice, so that a look at t lies in between.
    three.wait_all(lambda name: three.values(name, "u") == [])
    three["a"].put("u", b"again")
    three.wait_all(lambda name: three.values(name, "u") == [])
    three.wait_all(lambda name: three.values(name) == values)
    three["a"].control("group_reset", group="billing", to="newest")
    three.wait_all(lambda name: three.values(name) == [])
