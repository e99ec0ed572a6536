"""Replicated topics on whole nodes in simulated time: schedules that were found to matter."""

import contextlib
import errno
import os
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from poe.broker import control
from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.cluster.log import replica
from poe.cluster.log.peer_frames import DescribeCopy, decode_description, encode_question
from poe.cluster.log.pending_puts import REFUSE_AFTER_S, TRY_S
from poe.cluster.log.replica import Replica
from poe.errors import (
    ActorDead,
    NoQuorum,
    PoeError,
    PutUnconfirmed,
    RemoteProtocolError,
    SequenceGap,
    StorageError,
    TooFewNodes,
    TopicExists,
)
from poe.protocol import PutId
from poe.storage import SegmentOptions, Store
from poe.testing.simulated_log import SimulatedEngine
from tests.cluster.log.scheduled import Nodes
from torture.layers.simulated_disk import SimulatedDisk


def put(message, handler):
    return handler.put(b"t", [message])


def test_a_put_whose_replica_is_stopped_in_good_order_is_in_doubt_and_not_put_again():
    nodes = Nodes()
    answers = nodes.put("a", b"x")
    nodes.steps_until(lambda: nodes.stream.last_place == 1)
    nodes.nodes["a"].kill_actor("logs")  # which has its replicas stopped
    nodes.pass_time(5.0)
    assert isinstance(answers[0], PutUnconfirmed)
    assert nodes.messages("b") == [b"x"]


def test_a_put_that_another_node_had_to_send_back_is_not_stored_again_later():
    nodes = Nodes()
    assert isinstance(nodes.asked("b", lambda handler: handler.put(b"t", [b"0"])), int)
    answers = nodes.put("a", b"x")
    nodes.steps_until(lambda: nodes.stream.last_place == 2)
    nodes.log.cut("a")
    nodes.pass_time(1.0)
    nodes.stream.forget_to(2)
    nodes.log.heal("a")
    nodes.pass_time(200.0)
    assert isinstance(answers[0], PutUnconfirmed)
    for name in "abc":
        assert nodes.messages(name) == [b"0", b"x"]


def test_a_put_with_an_id_whose_replica_is_killed_is_not_refused_by_another_try():
    nodes = Nodes()
    put_id = PutId(b"p" * 16, 0, 0)
    answers = nodes.ask("a", lambda handler: handler.put(b"t", [b"x"], None, put_id))
    nodes.steps_until(lambda: nodes.stream.last_place == 1)
    [replica] = nodes.nodes["a"].replicas()
    nodes.nodes["a"].kill_actor(replica)  # and until there is another one puts are refused
    nodes.pass_time(5.0)
    assert isinstance(answers[0], ActorDead)
    assert nodes.messages("b") == [b"x"]
    assert isinstance(
        nodes.asked("a", lambda handler: handler.put(b"t", [b"x"], None, put_id)), int
    )
    assert nodes.messages("b") == [b"x"]


def cut_power(nodes, name, seed):
    """Cut the power of a node; what was not synced is there, or not, as a seed decides."""
    node = nodes.nodes[name]
    node.die(partial(node.disk.cut_power, Random(seed)))
    nodes.start(node)
    nodes.pass_time(3.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_that_was_deleted_is_not_back_after_a_power_cut(seed):
    nodes = Nodes()
    nodes.asked("a", lambda handler: handler.put(b"t", [b"x"]))
    nodes.pass_time(3.0)
    nodes.asked("a", partial(control, op="delete", arguments={"topic": b"t"}))
    cut_power(nodes, "b", seed)
    assert nodes.nodes["b"].files("t") == {}
    assert not nodes.nodes["b"].read_all()


@pytest.mark.parametrize("seed", range(5))
def test_what_was_trimmed_is_not_back_after_a_power_cut(seed):
    nodes = Nodes(count_limit=3)
    for message in (b"1", b"2", b"3"):
        pointer = nodes.asked("a", partial(put, message))
    nodes.asked("a", partial(put, b"4"))
    nodes.pass_time(3.0)
    arguments = {"topic": b"t", "pointer": pointer}
    nodes.asked("a", partial(control, op="trim", arguments=arguments))
    nodes.asked("a", partial(put, b"5"))
    nodes.pass_time(3.0)
    cut_power(nodes, "b", seed)
    assert nodes.messages("b") == [b"4", b"5"]
    assert nodes.nodes["b"].files("t") == nodes.nodes["a"].files("t")


@pytest.mark.parametrize("forgotten", [0, 5])
@pytest.mark.parametrize("nth", [0, 3, 9, 26, 33, 40])
def test_a_copy_is_whole_again_when_its_disk_is(nth, forgotten):
    nodes = Nodes(count_limit=3)
    for number in range(5):
        nodes.asked("a", partial(put, b"%d" % number))
    nodes.pass_time(3.0)
    nodes.nodes["c"].disk.failing.fail(nth, errno.EIO, is_for_ever=True)
    for number in range(5, 10):
        nodes.asked("a", partial(put, b"%d" % number))
        nodes.pass_time(0.4)
    nodes.stream.forget_to(forgotten)
    nodes.pass_time(3.0)
    nodes.nodes["c"].disk.failing.heal()
    nodes.asked("a", partial(put, b"last"))
    nodes.pass_time(10.0)
    assert nodes.messages("c") == nodes.messages("a")
    assert nodes.nodes["c"].files("t") == nodes.nodes["a"].files("t")


@pytest.mark.parametrize("nth", range(20))
@pytest.mark.parametrize("is_cut", [False, True])
def test_what_was_trimmed_while_a_disk_failed_is_not_back_at_the_next_start(nth, is_cut):
    nodes = Nodes(count_limit=3)
    for number in range(3):
        pointer = nodes.asked("a", partial(put, b"%d" % number))
    nodes.asked("a", partial(put, b"stays"))
    nodes.pass_time(3.0)
    node = nodes.nodes["c"]
    node.disk.failing.fail(nth, errno.EIO, is_for_ever=True)
    arguments = {"topic": b"t", "pointer": pointer}
    nodes.asked("a", partial(control, op="trim", arguments=arguments))
    nodes.pass_time(0.5)
    node.disk.failing.heal()
    nodes.pass_time(5.0)
    nodes.asked("a", partial(put, b"on"))
    nodes.pass_time(3.0)
    node.die(partial(node.disk.cut_power, Random(nth)) if is_cut else node.disk.kill)
    nodes.start(node)
    nodes.pass_time(3.0)
    assert nodes.messages("c") == [b"stays", b"on"]
    assert node.files("t") == nodes.nodes["a"].files("t")


@pytest.mark.parametrize("nth", range(20))
def test_a_segment_that_was_removed_in_part_is_made_anew(nth):
    disk = SimulatedDisk()
    store = Store.open(disk.files(), SegmentOptions())
    segment = store.create_segment(b"t", 1000, agreed_base=0)
    segment.append([b"old"], 1000, None, 1)
    disk.failing.fail(nth, errno.EIO, is_for_ever=True)
    with contextlib.suppress(StorageError):
        store.destroy_segment(b"t", segment)
    disk.failing.heal()
    if b"t" in store.topics:
        store.destroy_segment(b"t", segment)
    made = store.create_segment(b"t", 1000, agreed_base=0)
    assert (made.count, made.place()) == (0, 0)
    made.append([b"new"], 1000, None, 1)
    assert made.next(0) == (1000, b"new")


def lose_receipts(node, topic="t"):
    """Have a node that has died lose the receipts of its copy."""
    inodes = node.disk.memory.inodes
    for path in [each for each in inodes if f"topics/{topic}/" in each and each.endswith("_seq")]:
        del inodes[path]


def first_ordinal(nodes, name):
    described = nodes.asked(name, partial(control, op="describe", arguments={"topic": b"t"}))
    return described["partitions"][0]["first_ordinal"]


def trim_to_nothing(nodes, pointer):
    arguments = {"topic": b"t", "pointer": pointer}
    assert nodes.asked("a", partial(control, op="trim", arguments=arguments))
    nodes.pass_time(3.0)


def test_a_copy_that_was_trimmed_to_nothing_and_has_lost_its_receipts_is_not_filled_again():
    nodes = Nodes()
    trim_to_nothing(nodes, nodes.asked("a", partial(put, b"trimmed")))
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    lose_receipts(node)
    nodes.start(node)
    nodes.pass_time(3.0)
    nodes.asked("a", partial(put, b"on"))
    nodes.pass_time(3.0)
    assert nodes.messages("c") == nodes.messages("a") == [b"on"]
    assert node.files("t") == nodes.nodes["a"].files("t")


def states(nodes):
    told = [nodes.asked(name, describe)["topics"][b"t"] for name in "abc"]
    return [(each["state"], each["place"]) for each in told]


@pytest.mark.parametrize("kind", ["trim", "trim to nothing", "repeated", "gap"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_copies_know_how_far_they_are_where_what_came_last_has_stored_nothing(kind, is_cut):
    nodes = Nodes()

    def put_numbered(number):
        put_id = PutId(b"p" * 16, 0, number)
        return nodes.asked("a", lambda handler: handler.put(b"t", [b"numbered"], None, put_id))

    first = put_numbered(0)
    last = nodes.asked("a", partial(put, b"last"))
    match kind:
        case "trim" | "trim to nothing":
            pointer = first if kind == "trim" else last
            arguments = {"topic": b"t", "pointer": pointer}
            nodes.asked("a", partial(control, op="trim", arguments=arguments))
        case "repeated":
            assert put_numbered(0) == first
        case "gap":
            assert isinstance(put_numbered(7), SequenceGap)
    nodes.pass_time(3.0)
    assert states(nodes) == [("following", 3)] * 3
    nodes.stream.forget_to(3)
    for seed, node in enumerate(nodes.nodes.values()):
        node.die(partial(node.disk.cut_power, Random(seed)) if is_cut else node.disk.kill)
    for node in nodes.nodes.values():
        nodes.start(node)
    nodes.pass_time(3.0)
    assert states(nodes) == [("following", 3)] * 3
    assert isinstance(nodes.asked("b", partial(put, b"on")), int)


@pytest.mark.parametrize("seed", range(30))
def test_a_copy_that_was_fetched_with_nothing_in_it_has_its_ordinals_after_a_power_cut(seed):
    nodes = Nodes()
    nodes.asked("a", partial(put, b"1"))
    trim_to_nothing(nodes, nodes.asked("a", partial(put, b"2")))
    nodes.stream.forget_to(nodes.stream.last_place)
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    node.wipe()
    nodes.start(node)
    nodes.pass_time(3.0)
    cut_power(nodes, "c", seed)
    nodes.asked("a", partial(put, b"on"))
    nodes.pass_time(3.0)
    assert [first_ordinal(nodes, name) for name in "abc"] == [2, 2, 2]


def test_a_copy_without_receipts_is_not_given_up_for_one_that_has_nothing():
    nodes = Nodes()
    for number in range(5):
        nodes.asked("a", partial(put, b"%d" % number))
    nodes.pass_time(3.0)
    away, wiped, node = (nodes.nodes[name] for name in "abc")
    for one in (away, wiped, node):
        one.die(one.disk.kill)
    lose_receipts(node)
    wiped.wipe()
    [(name, stream)] = nodes.log.streams.items()
    stream.forget_to(3)
    kept = node.files("t")
    # It does not hear yet that it has missed something.
    nodes.log.may = lambda lane: lane != ("b", "stream", name)
    nodes.start(wiped)
    nodes.pass_time(1.0)
    nodes.start(node)
    nodes.pass_time(10.0)
    assert node.files("t") == kept
    nodes.log.may = None
    nodes.start(away)
    nodes.pass_time(10.0)
    for each in "abc":
        assert len(nodes.messages(each)) == 5
        assert nodes.nodes[each].files("t") == kept


@pytest.mark.parametrize("step_count", range(0, 40, 2))
def test_a_copy_whose_node_dies_while_it_is_fetched_has_nothing_that_was_trimmed(step_count):
    nodes = Nodes()
    pointer = nodes.asked("a", partial(put, b"trimmed"))
    nodes.pass_time(3.0)
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    lose_receipts(node)
    trim_to_nothing(nodes, pointer)
    nodes.asked("a", partial(put, b"on"))
    nodes.pass_time(3.0)
    nodes.start(node)
    for _ in range(step_count):
        nodes.log.step()
    node.die(node.disk.kill)
    nodes.start(node)
    nodes.pass_time(20.0)
    assert nodes.messages("c") == nodes.messages("a") == [b"on"]
    assert node.files("t") == nodes.nodes["a"].files("t")


@pytest.mark.parametrize("steps", [10, 16, 20, 25, 40])
def test_a_copy_that_is_fetched_in_part_is_not_offered_to_others(steps):
    nodes = Nodes(count_limit=2)
    nodes.asked("a", partial(put, b"0"))
    nodes.pass_time(3.0)
    nodes.log.cut("c")
    for number in range(1, 12):
        nodes.asked("a", partial(put, b"%d" % number))
    nodes.stream.forget_to(11)
    nodes.log.heal("c")
    for _ in range(steps):
        nodes.log.step()
    nodes.log.cut("c")
    nodes.pass_time(0.5)
    nodes.log.heal("c")
    [stream] = nodes.log.streams
    answers: list[Any] = []
    question = encode_question(DescribeCopy(stream))
    nodes.nodes["b"].engine.ask("c", question, 1.0, answers.append)
    nodes.steps_until(lambda: answers)
    assert answers[0] is not None
    with contextlib.suppress(RemoteProtocolError):
        copy = decode_description(answers[0])
        assert copy.place == sum(each.messages for each in copy.segments)


def wipe(nodes, name):
    """Have a node begin with nothing, when the stream has forgotten all that there is."""
    node = nodes.nodes[name]
    node.die(node.disk.kill)
    node.wipe()
    nodes.stream.forget_to(nodes.stream.last_place)
    return node


@pytest.mark.parametrize("is_well", [False, True])
@pytest.mark.parametrize("lost", ["topic_registry", "oldest segment"])
def test_a_copy_of_which_a_disk_does_not_let_all_be_served_is_not_offered_to_others(lost, is_well):
    nodes = Nodes(count_limit=1)
    for message in (b"1", b"2", b"3"):
        nodes.asked("a", partial(put, message))
    nodes.pass_time(3.0)
    wiped, node = wipe(nodes, "c"), nodes.nodes["a"]
    node.disk.failing.fail(0, errno.EMFILE, is_for_ever=True)
    node.kill_actor(lost if lost == "topic_registry" else node.servers()[0])
    nodes.pass_time(0.5)
    if is_well:  # and nobody has asked for the copy since
        node.disk.failing.heal()
    nodes.start(wiped)
    nodes.pass_time(10.0)
    assert nodes.messages("c") == [b"1", b"2", b"3"]
    assert wiped.files("t") == nodes.nodes["b"].files("t")


def test_a_copy_that_is_out_of_service_is_given_to_others_when_its_disk_is_well_again():
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    nodes.pass_time(3.0)
    wiped, node = wipe(nodes, "c"), nodes.nodes["a"]
    nodes.nodes["b"].leave()
    node.disk.failing.fail(0, errno.EMFILE, is_for_ever=True)
    node.kill_actor("topic_registry")
    nodes.pass_time(3.0)
    nodes.start(wiped)
    nodes.pass_time(3.0)
    node.disk.failing.heal()
    nodes.pass_time(10.0)
    assert nodes.messages("c") == [b"x"]
    assert wiped.files("t") == node.files("t")


@pytest.mark.parametrize("nth", range(8))
def test_nothing_is_left_of_a_deleted_topic_whose_segment_the_disk_let_be_made_in_part(nth):
    nodes = Nodes()
    node = nodes.nodes["c"]
    node.disk.failing.fail(nth, errno.ENOSPC, is_for_ever=True)
    nodes.asked("a", partial(put, b"x"))
    nodes.asked("a", partial(control, op="delete", arguments={"topic": b"t"}))
    node.disk.failing.heal()
    nodes.pass_time(10.0)
    assert node.files("t") == {}
    node.die(partial(node.disk.cut_power, Random(nth)))
    nodes.start(node)
    nodes.pass_time(3.0)
    arguments = {"topic": b"t", "properties": {"replicas": 3}}
    nodes.asked("c", partial(control, op="topic_create", arguments=arguments))
    assert isinstance(nodes.asked("c", partial(put, b"y")), int)
    assert nodes.messages("c") == [b"y"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EIO])
def test_a_topic_that_is_made_while_a_disk_fails_is_there_when_it_is_well_again(error):
    nodes = Nodes()
    nodes.nodes["c"].disk.failing.fail(0, error, is_for_ever=True)
    arguments = {"topic": b"u", "properties": {"replicas": 3}}
    nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    nodes.asked("a", lambda handler: handler.put(b"u", [b"x"]))
    nodes.pass_time(5.0)
    nodes.nodes["c"].disk.failing.heal()
    nodes.pass_time(10.0)
    assert isinstance(nodes.asked("c", lambda handler: handler.put(b"u", [b"y"])), int)
    assert nodes.nodes["c"].files("u") == nodes.nodes["a"].files("u") != {}


@pytest.mark.parametrize("full", ["c", "abc"])
def test_a_node_whose_copy_stands_still_takes_no_puts(full, monkeypatch):
    """They could not be answered; of all nodes together the stream would forget what none has."""
    logged: list[str] = []
    monkeypatch.setattr(replica.logger, "error", lambda text, *args: logged.append(text % args))
    free = count(1000)
    monkeypatch.setattr(os, "strerror", lambda _: f"{next(free)} bytes are free on the disk")
    nodes = Nodes()
    for name in full:
        nodes.nodes[name].disk.failing.fail(0, errno.ENOSPC, is_for_ever=True)
    nodes.put("a", b"x")
    nodes.pass_time(2.0)
    place = nodes.stream.last_place
    looks: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(Replica, "_look", lambda each: looks.append(each.describe_role()))
        told = [nodes.put(name, b"refused") for name in full]
        nodes.pass_time(REFUSE_AFTER_S + 1.0)
    assert looks == []  # the engine is not asked again and again
    assert [type(answer) for [answer] in told] == [NoQuorum] * len(full)
    assert nodes.stream.last_place == place
    # It is tried again and again, and logged once.
    assert [each.partition(": ")[0] for each in logged] == ["topic t stands still"] * len(full)
    for name in full:
        nodes.nodes[name].disk.failing.heal()
    nodes.pass_time(3.0)
    assert isinstance(nodes.asked("c", partial(put, b"y")), int)
    nodes.pass_time(3.0)
    for name in "abc":
        assert nodes.messages(name) == [b"x", b"y"]


def test_a_put_under_way_as_its_nodes_disk_becomes_full_is_soon_told_to_be_in_doubt():
    nodes = Nodes()
    nodes.nodes["c"].disk.failing.fail(0, errno.ENOSPC, is_for_ever=True)
    put_id = PutId(b"p" * 16, 0, 0)
    answers = nodes.ask("c", lambda handler: handler.put(b"t", [b"x"], None, put_id))
    nodes.pass_time(REFUSE_AFTER_S + TRY_S + 1.0)
    assert isinstance(answers[0], PutUnconfirmed)
    again = nodes.asked("b", lambda handler: handler.put(b"t", [b"x"], None, put_id))
    assert isinstance(again, int)
    assert nodes.messages("b") == [b"x"]


def with_one_that_makes_topics():
    """Nodes, and one of them, c, onto which a put makes a topic."""
    nodes = Nodes()
    node = nodes.nodes["c"]
    node.leave()
    node.auto_create = True
    nodes.start(node)
    nodes.pass_time(3.0)
    return nodes, node


def test_a_put_makes_no_topic_of_its_own_where_a_replicated_one_is_not_noted_yet():
    nodes, node = with_one_that_makes_topics()
    node.disk.failing.fail(0, errno.EMFILE, is_for_ever=True)
    arguments = {"topic": b"u", "properties": {"replicas": 3}}
    nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    nodes.pass_time(5.0)
    node.disk.failing.heal()
    assert isinstance(nodes.asked("c", lambda handler: handler.put(b"u", [b"x"])), NoQuorum)
    nodes.pass_time(10.0)
    assert isinstance(nodes.asked("c", lambda handler: handler.put(b"u", [b"y"])), int)
    assert node.files("u") == nodes.nodes["a"].files("u") != {}


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("topic_alter", {"topic": b"t", "properties": {"partitions": 2}}),
        ("delete", {"topic": b"t"}),
    ],
)
def test_without_a_majority_an_error_names_the_topic_as_its_user_does(op, arguments):
    nodes = Nodes()
    nodes.log.cut("a")
    told = nodes.asked("a", partial(control, op=op, arguments=arguments), within_s=20.0)
    assert isinstance(told, NoQuorum)
    assert told.what == "topic t"


def test_a_topic_that_is_altered_while_a_disk_fails_goes_on_when_it_is_well_again():
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    nodes.nodes["c"].disk.failing.fail(0, errno.EMFILE, is_for_ever=True)
    arguments = {"topic": b"t", "properties": {"max_age": 10**6}}
    nodes.asked("a", partial(control, op="topic_alter", arguments=arguments))
    nodes.nodes["c"].kill_actor("replica_sup")
    nodes.pass_time(5.0)
    nodes.nodes["c"].disk.failing.heal()
    nodes.pass_time(10.0)
    assert isinstance(nodes.asked("c", partial(put, b"y")), int)
    assert nodes.messages("c") == [b"x", b"y"]


@pytest.mark.parametrize("nth", [0, 1, 2, 5])
def test_a_deleted_topic_goes_when_the_disk_is_well_again(nth):
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    nodes.pass_time(3.0)
    nodes.nodes["c"].disk.failing.fail(nth, errno.EIO, is_for_ever=True)
    nodes.asked("a", partial(control, op="delete", arguments={"topic": b"t"}))
    nodes.pass_time(3.0)
    nodes.nodes["c"].disk.failing.heal()
    nodes.pass_time(3.0)
    assert nodes.nodes["c"].files("t") == {}
    assert not nodes.nodes["c"].knows("t")


def test_a_put_that_was_refused_is_published_again_soon_whatever_else_is_waited_for():
    """What was acknowledged once had all look again no sooner than it is given up."""
    nodes = Nodes()
    acknowledged = nodes.put("a", b"1")
    nodes.pass_time(0.3)
    assert acknowledged
    nodes.log.begin_election()
    refused = nodes.put("a", b"2")
    nodes.pass_time(0.001)
    nodes.log.end_election()
    nodes.pass_time(1.0)
    assert refused
    assert isinstance(refused[0], int)


def describe(handler):
    return handler.actor.call(LOGS, DescribeLogs(has_streams=False), timeout_s=None)


def test_a_copy_that_is_fetched_as_its_node_starts_holds_up_no_other_one():
    nodes = Nodes()
    arguments = {"topic": b"u", "properties": {"replicas": 3}}
    nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    for topic in (b"t", b"u"):
        nodes.asked("a", lambda handler, topic=topic: handler.put(topic, [b"x"]))
    nodes.pass_time(3.0)
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    lose_receipts(node)
    for stream in nodes.log.streams.values():
        stream.forget_to(stream.last_place)
    nodes.log.may = lambda lane: lane[1] != "peer"  # nobody answers
    nodes.start(node)
    nodes.pass_time(3.0)
    told = nodes.asked("c", describe)["topics"]
    assert {topic: each["state"] for topic, each in told.items()} == {
        b"t": "fetching", b"u": "following",
    }  # fmt: skip
    assert isinstance(nodes.asked("c", lambda handler: handler.put(b"u", [b"y"])), int)
    nodes.log.may = None
    nodes.pass_time(20.0)
    assert nodes.asked("c", describe)["topics"][b"t"]["state"] == "following"


@pytest.mark.parametrize("steps", range(8, 32, 4))
def test_a_copy_that_is_fetched_is_told_as_that_and_keeps_nobody_waiting(steps):
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    node.wipe()
    nodes.asked("a", partial(put, b"y"))
    nodes.pass_time(3.0)
    stream = nodes.stream
    stream.forget_to(stream.last_place)
    nodes.start(node)
    for _ in range(steps):
        nodes.log.step()
    for name in "ab":  # whatever they were asked is not answered for long
        nodes.log.pause(name)
    told = nodes.asked("c", describe, within_s=8.0)
    assert {each["state"] for each in told["topics"].values()} <= {"fetching", "stalled"}
    for name in "ab":
        nodes.log.resume(name)
    nodes.pass_time(15.0)
    assert nodes.asked("c", describe)["topics"][b"t"]["state"] == "following"
    assert nodes.messages("c") == [b"x", b"y"]


def test_the_stream_of_a_deleted_topic_goes_though_the_engine_could_not_do_it_at_once():
    nodes = Nodes()
    revision = nodes.log.revision
    answers = nodes.ask("a", partial(control, op="delete", arguments={"topic": b"t"}))
    nodes.steps_until(lambda: nodes.log.revision > revision)
    nodes.log.begin_election()
    nodes.pass_time(8.0)
    assert nodes.log.streams
    nodes.log.end_election()
    nodes.pass_time(8.0)
    assert answers
    assert not nodes.log.streams


def test_the_stream_of_a_deleted_topic_goes_though_all_nodes_end_before_the_engine_could_do_it():
    nodes = Nodes()
    revision = nodes.log.revision
    nodes.ask("a", partial(control, op="delete", arguments={"topic": b"t"}))
    nodes.steps_until(lambda: nodes.log.revision > revision)
    nodes.log.begin_election()
    nodes.pass_time(3.0)
    for node in nodes.running:
        assert not node.knows("t")
        node.die(node.disk.kill)
    nodes.log.end_election()
    for node in nodes.nodes.values():
        nodes.start(node)
    nodes.pass_time(8.0)
    assert not nodes.log.streams


def test_a_node_that_hears_of_the_past_deletes_no_stream_of_what_there_is_now():
    nodes = Nodes()
    [key] = [each for each in nodes.log.catalog if not each.startswith("node-")]
    past = nodes.log.catalog[key]
    nodes.asked("a", partial(control, op="delete", arguments={"topic": b"t"}))
    arguments = {"topic": b"t", "properties": {"replicas": 3}}
    nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    nodes.asked("a", partial(put, b"x"))
    nodes.pass_time(3.0)
    node, now = nodes.nodes["c"], nodes.log.catalog[key]
    streams = set(nodes.log.streams)
    node.leave()
    nodes.log.catalog[key] = past
    nodes.start(node)
    nodes.pass_time(3.0)
    node.leave()
    nodes.log.catalog[key] = now
    nodes.start(node)
    nodes.pass_time(15.0)
    assert streams <= set(nodes.log.streams)
    assert nodes.messages("c") == nodes.messages("a") == [b"x"]


def test_what_was_under_way_to_a_replica_that_was_killed_is_not_for_the_next_one():
    """Else that would take what follows, and never get what was lost with the one before."""
    nodes = Nodes()
    nodes.asked("b", partial(put, b"0"))
    nodes.pass_time(1.0)
    node, [name] = nodes.nodes["a"], nodes.log.streams
    [replica] = node.replicas()
    node.kill_actor(replica)
    nodes.put("b", b"x")
    nodes.steps()
    nodes.put("b", b"y")
    nodes.steps(lambda lane: lane[0] != "a")
    nodes.steps(lambda lane: lane == ("a", "stream", name), count=1)  # y is about to be handed on
    nodes.now_s += 0.2
    for one in nodes.nodes.values():
        one.move_to(nodes.now_s)
    assert node.replicas() not in ([], [replica])
    nodes.settle()
    nodes.pass_time(5.0)
    for each in "abc":
        assert nodes.messages(each) == [b"0", b"x", b"y"]


def test_a_replica_that_outlives_its_supervisor_does_not_end_what_the_next_one_follows(monkeypatch):
    """One that waits for the disk ends later than the next one begins."""
    nodes = Nodes(count_limit=1)
    node, held = nodes.nodes["c"], []
    queue = node.system.run_queue
    simulate_work = queue.simulate_work
    monkeypatch.setattr(queue, "simulate_work", lambda *work: held.append(work))
    for message in (b"1", b"2"):
        nodes.asked("a", partial(put, message))
        nodes.pass_time(1.0)
    assert held  # the first segment is synced before the next one is begun
    [replica] = node.replicas()
    node.kill_actor("replica_sup")
    nodes.pass_time(3.0)
    assert node.replicas() not in ([], [replica])
    monkeypatch.undo()
    for work in held:
        simulate_work(*work)
    nodes.pass_time(3.0)
    nodes.asked("a", partial(put, b"3"))
    nodes.pass_time(3.0)
    assert nodes.messages("c") == [b"1", b"2", b"3"]
    assert nodes.nodes["c"].files("t") == nodes.nodes["a"].files("t")


def test_of_topics_that_were_made_at_once_only_the_streams_of_one_stay():
    nodes = Nodes()
    for number, each in enumerate("abc"):
        nodes.nodes[each].wall.offset_us = 1000 * number  # else all mean the same topic
    arguments = {"topic": b"u", "properties": {"replicas": 3, "partitions": 4}}
    answers = [
        nodes.ask(each, partial(control, op="topic_create", arguments=arguments)) for each in "abc"
    ]
    nodes.pass_time(6.0)
    made = [answer for [answer] in answers if not isinstance(answer, PoeError)]
    assert len(made) == 1
    assert len(nodes.log.streams) == 1 + 4
    topics = nodes.asked("b", describe)["topics"]
    assert sorted(each["state"] for each in topics.values()) == ["following"] * (1 + 4)


def test_the_engine_is_held_to_what_a_replica_has_taken_from_the_begin(monkeypatch):
    """Else it reads all that there is into memory, while the first of it is stored."""
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    node = nodes.nodes["c"]
    node.leave()
    said = []

    def follow(_, *told):
        said.append(("follow", *told))

    def taken(_, stream, follow_id, place):
        said.append(("taken", stream, place, follow_id))

    monkeypatch.setattr(SimulatedEngine, "follow", follow)
    monkeypatch.setattr(SimulatedEngine, "taken", taken)
    nodes.start(node)
    nodes.pass_time(3.0)
    (_, *followed), (_, *held) = said
    assert followed == held


def call_servers_otherwise(monkeypatch):
    """Have servers be somebody else's, and called as he likes."""
    state = SimulatedEngine.state

    def otherwise(engine, deadline_s, told):
        def tell(found):
            if not isinstance(found, PoeError):
                servers = {f"server-{name}": True for name in found.nodes}
                found = found._replace(nodes=servers, answering=found.nodes)
            told(found)

        state(engine, deadline_s, tell)

    monkeypatch.setattr(SimulatedEngine, "state", otherwise)


def test_a_node_gets_all_back_from_others_also_where_servers_are_called_otherwise(monkeypatch):
    call_servers_otherwise(monkeypatch)
    nodes = Nodes()
    nodes.asked("a", partial(put, b"x"))
    nodes.pass_time(3.0)
    node = nodes.nodes["c"]
    node.die(node.disk.kill)
    node.wipe()
    nodes.stream.forget_to(nodes.stream.last_place)
    nodes.start(node)
    nodes.asked("a", partial(put, b"y"))
    nodes.pass_time(10.0)
    assert nodes.messages("c") == [b"x", b"y"]


def test_a_name_that_another_node_has_is_free_nowhere_also_where_servers_are_called_otherwise(
    monkeypatch,
):
    call_servers_otherwise(monkeypatch)
    nodes, _ = with_one_that_makes_topics()
    nodes.asked("c", lambda handler: handler.put(b"own", [b"x"]))
    arguments = {"topic": b"own", "properties": {"replicas": 3}}
    refused = nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    assert isinstance(refused, TopicExists)


def test_however_often_a_topic_could_not_be_made_it_leaves_the_same_streams(monkeypatch):
    nodes = Nodes()
    make = SimulatedEngine.make_stream

    def make_some(engine, stream, replicas, bytes_max, told):
        if stream.endswith("-2"):
            told(TooFewNodes(3, 2))
        else:
            make(engine, stream, replicas, bytes_max, told)

    arguments = {"topic": b"u", "properties": {"replicas": 3, "partitions": 4}}
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedEngine, "make_stream", make_some)
        for _ in range(3):
            refused = nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
            assert isinstance(refused, TooFewNodes)
    assert len(nodes.log.streams) == 1 + 2
    nodes.asked("a", partial(control, op="topic_create", arguments=arguments))
    assert len(nodes.log.streams) == 1 + 4
    assert isinstance(nodes.asked("b", lambda handler: handler.put(b"u-1", [b"x"])), int)
