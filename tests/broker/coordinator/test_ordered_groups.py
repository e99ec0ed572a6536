"""Groups of mode `ordered` on a node: what members are told, what outlives a crash."""

import threading
from functools import partial
from random import Random

import pytest

from poe import Node
from poe.broker.coordinator.group_log import GROUPS_TOPIC
from poe.errors import (
    GroupActive,
    GroupFenced,
    GroupMismatch,
    InvalidGroupName,
    OptionError,
    PoeError,
    PointerOutOfRange,
    RemoteProtocolError,
    UnknownGroup,
    WriteFailed,
)
from poe.storage import Segment
from tests.broker.nodes import connect
from torture.checker import Put
from torture.layers.simulated_disk import SimulatedDisk
from torture.simulated_node import SimulatedNode

BEHIND_2026_US = 4 * 365 * 24 * 3600 * 1_000_000
"""Groups count their lives from then on."""
HOUR_US = 3_600_000_000
ANN, BOB, CAT = (bytes([number]) * 16 for number in (1, 2, 3))
UNITS = [b"orders", b"web"]


class Member:
    """A member as a client of a group is: it keeps what it was told."""

    def __init__(self, sim, member, **arguments):
        self._sim = sim
        self._id = member
        joined = self.control("group_join", **arguments)
        self.generation, self.units = joined["generation"], list(joined["units"])

    def control(self, op, **arguments):
        return self._sim.node.control(op, group="billing", member=self._id, **arguments)

    def beat(self, **arguments):
        told = self.control(
            "group_heartbeat", generation=self.generation, owned=self.units, **arguments
        )
        self.generation, self.units = told["generation"], list(told["keep"])
        return told

    def commit(self, **positions):
        named = {unit.encode(): position for unit, position in positions.items()}
        return self.control("group_commit", generation=self.generation, positions=named)


def join(sim, member, **arguments):
    return Member(sim, member, **arguments)


def create(sim, **arguments):
    topics = [unit.decode() for unit in UNITS]
    return join(sim, ANN, mode="ordered", topics=topics, **arguments)


def restart(sim):
    sim.stop()
    sim.start()


def create_pattern(sim):
    return join(sim, ANN, mode="ordered", topics=["web.*"])


def positions(sim):
    return sim.node.control("group_positions", group="billing")


def group(sim):
    return sim.node.control("group", group="billing")


def test_who_joins_with_a_mode_makes_the_group(sim):
    assert create(sim).units == UNITS
    told = {"group": "billing", "mode": "ordered", "topics": UNITS}
    assert sim.node.control("groups") == [told]
    assert positions(sim) == dict.fromkeys(UNITS)


def test_a_group_that_is_not_there_is_not_made_by_chance(sim):
    with pytest.raises(UnknownGroup):
        join(sim, ANN)
    for op in ("group", "group_positions", "group_lag", "group_pause", "group_delete"):
        with pytest.raises(UnknownGroup):
            sim.node.control(op, group="billing")
    assert sim.node.control("groups") == []


def test_a_group_that_is_there_is_not_made_anew(sim):
    create(sim)
    with pytest.raises(GroupMismatch, match="shared"):
        join(sim, BOB, mode="shared", topics=["orders"])
    with pytest.raises(GroupMismatch, match="orders"):
        join(sim, BOB, mode="ordered", topics=["other"])
    with pytest.raises(GroupMismatch, match="in use"):
        sim.node.control("group_create", group="billing", mode="ordered", topics=["orders"])


def test_a_unit_passes_on_once_its_owner_has_given_it_up(sim):
    ann = create(sim)
    bob = join(sim, BOB)
    sim.advance(0.1)
    assert bob.beat()["keep"] == []
    assert ann.beat()["revoke"] == [b"web"]
    assert ann.beat()["revoke"] == []
    assert bob.beat()["keep"] == [b"web"]
    assert bob.commit(web=7) == {b"web": 7}


def test_a_member_that_leaves_hands_on_at_once(sim):
    ann, bob = create(sim), join(sim, BOB)
    sim.advance(0.1)
    ann.control("group_leave")
    sim.advance(0.1)
    assert bob.beat()["keep"] == UNITS
    with pytest.raises(GroupFenced, match="it left"):
        ann.commit(orders=1)


@pytest.mark.parametrize("life", ["live", "empty", "restarted"])
def test_a_topic_that_is_deleted_and_made_anew_is_another_one(sim, life):
    sim.node.put_many("orders", [b"1", b"2"])
    ann = create(sim)
    ann.commit(orders=5, web=6)
    if life == "empty":
        ann.control("group_leave")
    elif life == "restarted":
        restart(sim)
    sim.node.control("delete", topic="orders")
    sim.node.put("orders", b"3")
    assert positions(sim) == {b"orders": None, b"web": (6, b"")}
    if life == "live":
        assert ann.commit(orders=7, web=8) == {b"web": 8}
    restart(sim)
    assert positions(sim)[b"orders"] is None


def test_the_topics_of_a_pattern_are_forgotten_when_they_go(sim):
    for number in range(3):
        sim.node.put(f"web.{number}", b"1")
    ann = create_pattern(sim)
    ann.commit(**{"web.0": 5, "web.1": 6})
    sim.node.control("delete", topic="web.0")
    sim.node.control("delete", topic="web.2")
    assert positions(sim) == {b"web.1": (6, b"")}


def test_the_last_position_is_taken_with_the_leave(sim):
    ann, bob = create(sim), join(sim, BOB)
    sim.advance(0.1)
    ann.control("group_leave", generation=ann.generation, positions={b"orders": [5, b"note"]})
    sim.advance(0.1)
    granted = bob.beat()["granted"]
    assert granted[b"orders"] == (b"orders", 0, (5, b"note"))
    assert granted[b"web"] == (b"web", 0, None)
    bob.control("group_leave")
    with pytest.raises(RemoteProtocolError, match="generation"):
        bob.control("group_leave", positions={})


def test_a_member_that_is_silent_is_ended_by_the_group_itself(sim):
    ann, bob = create(sim, options={"session_s": 2}), join(sim, BOB)
    for _ in range(5):
        sim.advance(0.5)
        bob.beat()
    assert bob.units == UNITS
    with pytest.raises(GroupFenced, match="nothing was heard"):
        ann.beat()


def test_positions_outlive_a_stop_and_a_crash(sim, quiet):
    create(sim).commit(orders=[5, b"note"])
    for end in (lambda: sim.kill("group billing"), lambda: sim.kill("groups"), sim.stop):
        end()
        if not sim.node.is_running:
            sim.start()
        sim.advance(1)
        assert positions(sim) == {b"orders": (5, b"note"), b"web": None}


def test_a_crash_of_one_group_disturbs_no_other(sim, quiet):
    create(sim)
    sim.node.control("group_create", group="other", mode="ordered", topics=["orders"])
    before = sim.node.control("group", group="other")["generation"]
    sim.kill("group billing")
    assert group(sim)["generation"] > before
    assert sim.node.control("group", group="other")["generation"] == before


def test_a_member_of_an_earlier_life_is_fenced(sim, quiet):
    ann = create(sim)
    sim.kill("group billing")
    with pytest.raises(GroupFenced):
        ann.commit(orders=9)
    assert positions(sim)[b"orders"] is None


def test_a_heartbeat_is_held_back_until_there_is_something_to_say(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client, connect(node) as other:
        named = {"group": "billing", "mode": "ordered", "topics": ["orders"]}
        told = client.control("group_join", member=ANN, **named)
        later = other.control("group_join", member=BOB, **named)
        fenced = {"group": "billing", "member": BOB, "generation": later["generation"]}
        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                other.control("group_heartbeat", owned=[], wait_s=30, **fenced)
            )
        )
        waiting.start()
        while not node.system.get_state("group billing")["_heartbeats"]:
            pass  # it is on its way
        assert told["units"] == [b"orders"]
        assert answers == []
        client.control("group_leave", group="billing", member=ANN)
        waiting.join()
        assert answers[0]["keep"] == [b"orders"]


def test_a_heartbeat_that_would_be_held_back_for_too_long_is_held_back_for_less(sim):
    """Members of groups with long sessions ask so, and could not be heard of."""
    ann = create(sim, options={"session_s": 3600})
    ann.units = []
    assert ann.beat(wait_s=1200.0)["keep"] == UNITS


def test_what_the_disk_refuses_is_not_answered_and_not_lost(sim, monkeypatch):
    ann = create(sim)
    append = Segment.append

    def refuse(self, *arguments):
        raise WriteFailed(self.path, "no disk")

    monkeypatch.setattr(Segment, "append", refuse)
    with pytest.raises(WriteFailed):
        ann.commit(orders=5)
    monkeypatch.setattr(Segment, "append", append)
    sim.advance(3)
    ann.commit(web=6)
    sim.stop()
    sim.start()
    assert {unit: found[0] for unit, found in positions(sim).items()} == {b"orders": 5, b"web": 6}


@pytest.mark.slow
def test_what_the_disk_refuses_for_long_does_not_pile_up(sim, monkeypatch, quiet):
    ann = create(sim)
    ann.commit(web=1)
    append = Segment.append

    def refuse(self, *arguments):
        raise WriteFailed(self.path, "no disk")

    monkeypatch.setattr(Segment, "append", refuse)
    for number in range(1, 500):
        with pytest.raises(PoeError):
            ann.commit(orders=[number, bytes(1000)])
    assert len(sim.system.get_state("group billing")["_unwritten"]) < 100
    monkeypatch.setattr(Segment, "append", append)
    sim.advance(3)
    ann.commit(web=6)
    restart(sim)
    assert {unit: found[0] for unit, found in positions(sim).items()} == {b"orders": 499, b"web": 6}


def test_the_log_does_not_grow_with_what_was(sim):
    ann = create(sim)
    for number in range(2000):
        ann.commit(orders=[number, bytes(100)])
    rows = sim.node.control("segments", topic=GROUPS_TOPIC)
    sim.stop()
    sim.start()
    assert positions(sim)[b"orders"][0] == 1999
    assert sum(row["count"] for row in rows) < 2100


def test_lag_is_told_in_messages_and_seconds(sim):
    pointers = [sim.node.put(b"orders", b"%d" % number) for number in range(10)]
    ann = create(sim)
    sim.advance(1)
    ann.commit(orders=pointers[6])
    lag = sim.node.control("group_lag", group="billing")
    assert lag[b"orders"]["messages"] == 3
    assert lag[b"orders"]["position"] == pointers[6]
    assert lag[b"orders"]["newest"] == pointers[9]
    assert lag[b"orders"]["seconds"] == pytest.approx(1, abs=0.01)
    none = {"position": None, "newest": 0, "messages": 0, "seconds": 0}
    assert lag[b"web"] == none


def test_units_are_looked_at_in_turns_however_many_there_are(sim):
    sim.node.control("topic_create", topic="t", properties={"partitions": 60})
    sim.node.put(b"t-59", b"1")
    join(sim, ANN, mode="ordered", topics=["t"])
    for op, arguments in (("group_lag", {}), ("group_reset", {"to": "newest", "dry": True})):
        before_s = sim.clock.monotonic_s()
        told = sim.node.control(op, group="billing", **arguments)
        assert len(told) == 60
        assert sim.clock.monotonic_s() > before_s, "others were served meanwhile"


def test_a_reset_says_first_what_it_would_do(sim):
    pointers = [sim.node.put(b"orders", b"%d" % number) for number in range(10)]
    ann = create(sim, options={"session_s": 60})
    ann.commit(orders=pointers[4])
    reset = {"group": "billing", "units": [b"orders"]}
    moves = {b"orders": [pointers[4], pointers[9], 5]}
    assert sim.node.control("group_reset", to="newest", dry=True, **reset) == moves
    assert positions(sim)[b"orders"][0] == pointers[4]
    with pytest.raises(GroupActive):
        sim.node.control("group_reset", to="newest", **reset)
    assert sim.node.control("group_reset", to="newest", force=True, **reset) == moves
    assert positions(sim)[b"orders"][0] == pointers[9]
    with pytest.raises(GroupFenced, match="reset"):
        ann.beat()
    at = {"time_us": pointers[2]}
    assert sim.node.control("group_reset", to=at, **reset)[b"orders"][2] == -8
    assert sim.node.control("group_reset", to={b"orders": 3}, group="billing")[b"orders"][1] == 3


def test_a_group_is_deleted_with_all_it_knew(sim):
    ann = create(sim)
    ann.commit(orders=5)
    with pytest.raises(GroupActive):
        sim.node.control("group_delete", group="billing")
    ann.control("group_leave")
    sim.node.control("group_delete", group="billing")
    assert sim.node.control("groups") == []
    sim.stop()
    sim.start()
    assert sim.node.control("groups") == []
    create(sim)
    assert positions(sim) == dict.fromkeys(UNITS)


def test_a_pattern_finds_topics_that_come_later(sim):
    sim.node.put(b"web.a", b"1")
    ann = join(sim, ANN, mode="ordered", topics=["web.*"])
    assert ann.units == [b"web.a"]
    sim.node.put(b"web.b", b"1")
    sim.node.put(b"other", b"1")
    sim.advance(2)
    assert ann.beat()["keep"] == [b"web.a", b"web.b"]


def test_topics_are_compared_with_patterns_in_turns_however_many_there_are(sim):
    for number in range(60):
        sim.node.put(b"web.%02d" % number, b"1")
    patterns = [f"*.{number}*" for number in range(100)]
    before_s = sim.clock.monotonic_s()
    ann = join(sim, ANN, mode="ordered", topics=["web.00", *patterns])
    assert sim.clock.monotonic_s() > before_s, "others were served meanwhile"
    assert ann.units == [b"web.%02d" % number for number in range(60)]
    with pytest.raises(OptionError, match="101 patterns"):
        sim.node.control("group_create", group="more", mode="ordered", topics=[*patterns, "*"])


def test_patterns_find_topics_whatever_they_begin_with(sim):
    for name in (b"a", b"web.a", b"web.b.c", b"webs", b"x.dead"):
        sim.node.put(name, b"1")
    sim.node.control("topic_create", topic="web.p", properties={"partitions": 2})
    sim.node.put(b"web.p-1", b"1")
    ann = join(sim, ANN, mode="ordered", topics=["web.*", "web.b.*", "*.dead", "x*"])
    assert ann.units == [b"web.a", b"web.b.c", b"web.p-0", b"web.p-1", b"x.dead"]


def test_the_units_of_a_topic_are_its_partitions_also_when_it_grows(sim):
    sim.node.control("topic_create", topic="t", properties={"partitions": 2})
    ann = join(sim, ANN, mode="ordered", topics=["t"])
    assert ann.units == [b"t-0", b"t-1"]
    sim.node.control("topic_alter", topic="t", properties={"partitions": 3})
    sim.advance(2)
    assert ann.beat()["keep"] == [b"t-0", b"t-1", b"t-2"]
    assert join(sim, BOB, topics=["t*"]).units == []


@pytest.mark.parametrize(
    ("op", "arguments", "error"),
    [
        ("group", {"group": "../etc"}, InvalidGroupName),
        ("group", {"group": ".hidden"}, InvalidGroupName),
        ("group", {"group": "x" * 201}, InvalidGroupName),
        ("group", {"group": "a\nb"}, InvalidGroupName),
        ("group", {}, InvalidGroupName),
        ("group_join", {"group": "g"}, RemoteProtocolError),
        ("group_join", {"group": "g", "member": "x" * 16}, RemoteProtocolError),
        ("group_join", {"group": "g", "member": ANN, "topics": 7}, RemoteProtocolError),
        ("group_commit", {"group": "g", "member": ANN}, RemoteProtocolError),
        (
            "group_commit",
            {"group": "g", "member": ANN, "generation": 1, "positions": {b"a": -1}},
            PointerOutOfRange,
        ),
        (
            "group_commit",
            {"group": "g", "member": ANN, "generation": 1, "positions": {b"a": [1, 2, 3]}},
            RemoteProtocolError,
        ),
        ("group_reset", {"group": "g", "to": "tomorrow"}, RemoteProtocolError),
        ("group_reset", {"group": "g", "to": [1]}, RemoteProtocolError),
    ],
)
def test_wrong_arguments_are_refused_with_a_name(sim, op, arguments, error):
    with pytest.raises(error):
        sim.node.control(op, **arguments)


def test_a_group_that_is_made_anew_when_the_clock_is_set_back_has_later_generations(sim):
    sim.wall.offset_us = BEHIND_2026_US
    before = create(sim).generation
    sim.node.control("group_delete", group="billing", force=True)
    sim.stop()
    sim.wall.offset_us -= HOUR_US
    sim.start()
    assert create(sim).generation > before


def test_no_generation_is_given_twice_though_a_power_cut_has_set_back_log_and_clock():
    """As on a machine without a battery."""
    joined = {"group": "g", "member": ANN, "mode": "ordered", "topics": ["t"]}
    for seed in range(10):
        disk = SimulatedDisk()
        node = SimulatedNode(disk, "flushed", 100)
        node.begin_put(0, Put(b"t", 1, 0, [b"message"]))
        for _ in range(2):
            node.control("group_join", **joined)
            node.advance(1.5)  # so much is synced
        before = [node.control("group_join", **joined)["generation"] for _ in range(5)]
        node.abandon(partial(disk.cut_power, Random(seed)))
        node.wall.offset_us -= HOUR_US
        node.start()
        assert node.control("group_join", **joined)["generation"] > max(before), seed
        node.stop()
