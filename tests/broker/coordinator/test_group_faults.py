"""What must not happen to groups when a part of the node crashes, is unwell, or ends in between."""

import errno
import threading
import time
from contextlib import contextmanager
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe import Node
from poe.actors import GenServer
from poe.broker.appendix.message import Put
from poe.broker.coordinator.group_log import GROUPS_TOPIC, Kind
from poe.broker.coordinator.group_topics import GroupTopics
from poe.broker.requests.groups import FindGroup, GroupRequest, ask_group
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    ActorDead,
    CorruptGroup,
    CorruptRecord,
    GroupFenced,
    OptionError,
    ReadFailed,
    StorageError,
    SyncFailed,
    UnknownGroup,
    UnknownTopic,
    WriteFailed,
)
from poe.protocol import Done, LeaseRequest
from poe.storage import Segment
from poe.storage.files import FileSlice
from tests.broker.nodes import connect, read_by_next

ANN, BOB = (bytes([number]) * 16 for number in (1, 2))


class Asker(GenServer):
    """Asks a group as a connection does, and keeps what it is answered."""

    def init(self, routes):
        self.handler = RequestHandler(self, routes)

    async def handle_cast(self, message: Any):
        name, request, answers = message
        try:
            answers.append(await ask_group(self.handler, FindGroup(name), request))
        except Exception as error:  # noqa: BLE001 - it is looked at
            answers.append(error)


def ask(sim, name, request):
    """Begin to ask a group; return the list that will hold the answer."""
    answers: list[Any] = []
    ref = sim.system.start(Asker, sim.routes)
    sim.system.cast(ref, (name, request, answers))
    sim.advance(0)
    return answers


def join(sim, member=ANN, mode="ordered", topics=("orders",), group="billing", **options):
    named = {"group": group, "mode": mode, "topics": list(topics), "options": options}
    return sim.node.control("group_join", member=member, **named)


def commit(sim, joined, **positions):
    named = {unit.encode(): position for unit, position in positions.items()}
    fenced = {"group": "billing", "member": ANN, "generation": joined["generation"]}
    return sim.node.control("group_commit", positions=named, **fenced)


def position(sim):
    found = sim.node.control("group_positions", group="billing")[b"orders"]
    return None if found is None else found[0]


def heartbeat(joined, wait_s):
    fenced = {"member": ANN, "generation": joined["generation"], "owned": (b"orders",)}
    return GroupRequest("group_heartbeat", {**fenced, "wait_s": wait_s})


def test_a_heartbeat_that_a_killed_group_held_back_is_told_so_and_kills_nobody(sim, quiet):
    joined = join(sim)
    answers = ask(sim, "billing", heartbeat(joined, 5.0))
    assert answers == []
    sim.kill("group billing")
    sim.advance(1)
    [answer] = answers
    assert isinstance(answer, GroupFenced)


def test_a_heartbeat_that_is_held_back_is_one_sign_of_life(sim):
    joined = join(sim, session_s=6, heartbeat_s=2)
    ask(sim, "billing", heartbeat(joined, 60.0))
    sim.advance(5.9)
    assert len(sim.node.control("group", group="billing")["members"]) == 1
    sim.advance(0.2)
    assert sim.node.control("group", group="billing")["members"] == []


def test_a_heartbeat_is_held_back_no_longer_than_members_are_to_be_heard_of(sim):
    joined = join(sim, session_s=6, heartbeat_s=2)
    answers = ask(sim, "billing", heartbeat(joined, 60.0))
    sim.advance(2.1)
    assert answers[0]["keep"] == [b"orders"]


def test_what_was_committed_after_the_registry_has_crashed_outlives_a_crash_of_the_group(
    sim, quiet
):
    joined = join(sim)
    commit(sim, joined, orders=5)
    sim.kill("groups")
    sim.advance(1)
    commit(sim, joined, orders=9)
    sim.kill("group billing")
    sim.advance(1)
    assert position(sim) == 9


def test_a_group_that_is_damaged_hides_no_other(sim):
    join(sim)
    broken = [int(Kind.SNAPSHOT), "broken", bytes(16), 0, msgpack.packb({"version": 99})]
    sim.node.control("group", group="billing")
    put_entry(sim, broken)
    sim.stop()
    sim.start()
    told = sim.node.control("groups")
    assert [each["group"] for each in told] == ["billing", "broken"]
    with pytest.raises(CorruptGroup, match="broken"):
        sim.node.control("group", group="broken")


@pytest.mark.parametrize(
    "content",
    [
        [1, ["billing"], bytes(16), 0, b""],
        [1, 7, bytes(16), 0, b""],
        [1, "billing", "id", 0, None],
        [1, "billing", bytes(16), None, b""],
        [2, "billing", bytes(16), 0, b"\xc1"],
        "text",
    ],
)
def test_what_the_log_holds_of_others_is_passed_over(sim, content):
    joined = join(sim)
    commit(sim, joined, orders=5)
    put_entry(sim, content)
    sim.stop()
    sim.start()
    assert [each["group"] for each in sim.node.control("groups")] == ["billing"]
    assert position(sim) == 5


def test_a_group_of_which_the_log_has_lost_the_begin_is_not_made_anew(sim):
    content = msgpack.packb([["positions", [[b"orders", 5, b""]]]])
    join(sim)
    put_entry(sim, [int(Kind.CHANGES), "headless", bytes(16), 3, content])
    sim.stop()
    sim.start()
    for _ in range(2):
        with pytest.raises(CorruptGroup, match="headless"):
            join(sim, group="headless")
    assert position(sim) is None


def test_while_the_log_cannot_be_read_no_group_is_taken_for_a_new_one(sim, monkeypatch):
    commit(sim, join(sim), orders=5)
    sim.stop()
    get_range = RequestHandler.get_range

    async def damaged(self, topic, request):
        if topic == GROUPS_TOPIC:
            raise CorruptRecord("poe.groups", 7)
        return await get_range(self, topic, request)

    with monkeypatch.context() as patch:
        patch.setattr(RequestHandler, "get_range", damaged)
        sim.start()
        with pytest.raises(CorruptRecord):
            join(sim)
    assert position(sim) == 5


def test_a_disk_that_does_not_give_the_log_crashes_nobody(sim, monkeypatch):
    commit(sim, join(sim), orders=5)
    registry = sim.system.actors.find("groups")
    sim.kill("group billing")

    def broken(_):
        raise OSError(errno.EIO, "no disk")

    with monkeypatch.context() as patch:
        patch.setattr(FileSlice, "read", broken)
        with pytest.raises(ReadFailed, match=r"poe\.groups"):
            position(sim)
    assert position(sim) == 5
    assert sim.system.actors.find("groups") is registry


def put_entry(sim, content):
    sim.system.call(sim.routes[GROUPS_TOPIC].writer, Put([msgpack.packb(content)]))


def test_a_group_that_is_damaged_can_be_deleted_and_made_anew(sim):
    join(sim)
    put_entry(sim, [int(Kind.SNAPSHOT), "broken", bytes(16), 0, msgpack.packb({"version": 99})])
    sim.stop()
    sim.start()
    with pytest.raises(CorruptGroup):
        sim.node.control("group_delete", group="broken")
    with pytest.raises(CorruptGroup):
        join(sim, group="broken")
    sim.node.control("group_delete", group="broken", force=True)
    assert join(sim, group="broken")["units"] == [b"orders"]
    sim.stop()
    sim.start()
    assert sim.node.control("groups")[1]["mode"] == "ordered"


def test_a_group_that_was_deleted_and_made_anew_at_once_begins_from_nothing(sim):
    commit(sim, join(sim), orders=5)
    sim.node.control("group_delete", group="billing", force=True)
    with pytest.raises(UnknownGroup):
        sim.node.control("group", group="billing")
    join(sim)
    assert position(sim) is None
    sim.stop()
    sim.start()
    assert position(sim) is None


def test_what_comes_of_a_group_that_was_deleted_hurts_no_new_one_of_its_name(sim):
    join(sim)
    old_id = next(
        group_id
        for _, entry in read_by_next(sim.node, GROUPS_TOPIC)
        for _, name, group_id, *_ in [msgpack.unpackb(entry)]
        if name == "billing"
    )
    sim.node.control("group_delete", group="billing", force=True)
    commit(sim, join(sim), orders=5)
    put_entry(sim, [int(Kind.CHANGES), "billing", old_id, 0, msgpack.packb([])])
    sim.stop()
    sim.start()
    assert position(sim) == 5


def test_nobody_is_told_under_which_id_a_group_puts_its_dead_letters(sim):
    made = sim.node.control("group_create", group="workers", mode="shared", topics=["jobs"])
    assert "id" not in made
    assert "id" not in sim.node.control("group", group="workers")


def test_where_nobody_knows_whether_a_change_is_written_the_log_is_asked(sim, quiet):
    join(sim, mode="shared", topics=["jobs"], group="workers")
    sim.node.put_many(b"jobs", [b"0", b"1", b"2"])
    lease, _ = lease_of(sim)
    with unsure_log(), pytest.raises(ActorDead):
        lease_of(sim, done=[Done(lease.id)])
    [unit] = sim.node.control("group", group="workers")["units"]
    assert unit["floor"] == lease.last


@contextmanager
def unsure_log():
    """Have nobody know of the log of the groups whether it has taken what it has."""
    append = Segment.append

    def break_behind(self, *arguments):
        pointer = append(self, *arguments)
        if "groups" in self.path:
            raise SyncFailed(self.path, "who knows")
        return pointer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "append", break_behind)
        yield


def test_a_group_whose_deletion_is_written_is_deleted_though_nobody_could_say_so(sim, quiet):
    commit(sim, join(sim), orders=5)
    with unsure_log(), pytest.raises(ActorDead, match="who knows"):
        sim.node.control("group_delete", group="billing", force=True)
    assert sim.node.control("groups") == []
    with pytest.raises(UnknownGroup):
        sim.node.control("group", group="billing")
    sim.node.control("group_create", group="billing", mode="ordered", topics=["orders"])
    assert position(sim) is None


def test_a_group_whose_deletion_is_not_written_is_there(sim, quiet):
    commit(sim, join(sim), orders=5)
    with refused_log(), pytest.raises(StorageError):
        sim.node.control("group_delete", group="billing", force=True)
    assert position(sim) == 5
    sim.node.control("group_delete", group="billing", force=True)
    assert sim.node.control("groups") == []


def lease_of(sim, member=ANN, **arguments):
    [answer] = ask(sim, "workers", LeaseRequest("workers", member, 1, 1 << 20, **arguments))
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_topic_that_cannot_be_read_keeps_no_other_from_who_works(sim, monkeypatch):
    for topic in (b"a", b"b"):
        sim.node.put(topic, topic)
    join(sim, mode="shared", topics=["a", "b"], group="workers", retry_s=0)
    read_range = Segment.read_range

    def refuse(self, *arguments):
        if "/a/" in self.path:
            raise ReadFailed(self.path, "no disk")
        return read_range(self, *arguments)

    monkeypatch.setattr(Segment, "read_range", refuse)
    lease, _ = lease_of(sim)
    assert lease.topic == b"b"
    with pytest.raises(ReadFailed):
        lease_of(sim, done=[Done(lease.id)])
    units = sim.node.control("group", group="workers")["units"]
    assert [each["floor"] for each in units] == [0, lease.last]
    monkeypatch.setattr(Segment, "read_range", read_range)
    assert lease_of(sim)[0].topic == b"a"


def test_messages_of_a_lease_come_with_their_ordinals(tmp_path):
    with Node(dir=tmp_path, port=0) as node, connect(node) as client:
        node.put_many(b"jobs", [b"0", b"1", b"2", b"3"])
        named = {"group": "workers", "mode": "shared", "topics": ["jobs"]}
        client.control("group_join", member=ANN, **named)
        leased = [client.lease(LeaseRequest("workers", ANN, 1, 1 << 20)) for _ in range(4)]
        assert [each.records.ordinal for each in leased] == [0, 1, 2, 3]


def test_a_node_with_members_that_wait_stops_at_once(tmp_path):
    node = Node(dir=tmp_path, port=0).start()
    with connect(node) as one, connect(node) as other:
        named = {"mode": "shared", "topics": ["jobs"]}
        one.control("group_join", group="workers", member=ANN, **named)
        told = other.control(
            "group_join", group="billing", member=ANN, mode="ordered", topics=["orders"]
        )
        beat = {"group": "billing", "member": ANN, "generation": told["generation"], "wait_s": 30}
        waiting = [
            threading.Thread(target=one.lease, args=(LeaseRequest("workers", ANN, 1, 9, 30.0),)),
            threading.Thread(
                target=other.control,
                args=("group_heartbeat",),
                kwargs={"owned": [b"orders"], **beat},
            ),
        ]
        for thread in waiting:
            thread.start()
        while not (
            node.system.get_state("group billing")["_heartbeats"]
            and node.system.get_state("group workers")["_leasing"].has_work
        ):
            pass  # they are on their way
        begin_s = time.monotonic()
        node.stop()
        assert time.monotonic() - begin_s < 1
        for thread in waiting:
            thread.join()


@pytest.mark.parametrize("topic", ["poe.groups", "poe.delayed", ""])
def test_dead_letters_do_not_go_onto_topics_of_the_node(sim, topic):
    with pytest.raises(OptionError, match="dead_letter_topic"):
        join(sim, mode="shared", dead_letter_topic=topic)
    assert sim.node.control("groups") == []


def test_topics_are_looked_through_when_some_have_come_or_gone_only(sim, monkeypatch):
    sim.node.put(b"web.a", b"1")
    looks: list[Any] = []
    units = GroupTopics.units

    def look(self, *arguments):
        looks.append(arguments)
        return units(self, *arguments)

    monkeypatch.setattr(GroupTopics, "units", look)
    joined = join(sim, topics=["web.*"], session_s=600)

    def owned():
        sim.advance(2)
        told = sim.node.control(
            "group_heartbeat",
            group="billing",
            member=ANN,
            generation=joined["generation"],
            owned=joined["units"],
        )
        joined.update(generation=told["generation"], units=told["keep"])
        return told["keep"]

    begin = len(looks)
    for number in range(5):
        sim.node.put(b"web.a", b"%d" % number)
        assert owned() == [b"web.a"]
    assert len(looks) - begin <= 1
    sim.node.put(b"web.b", b"1")
    assert owned() == [b"web.a", b"web.b"]
    sim.node.control("topic_create", topic="web.c", properties={"partitions": 2})
    sim.node.put(b"web.c-0", b"1")
    assert owned()[2:] == [b"web.c-0", b"web.c-1"]
    sim.node.control("topic_alter", topic="web.c", properties={"partitions": 3})
    assert owned()[2:] == [b"web.c-0", b"web.c-1", b"web.c-2"]
    sim.node.control("delete", topic="web.c")
    sim.advance(2)
    sim.node.control("group_lag", group="billing")
    assert len(sim.node.control("group_lag", group="billing")) == 2


@contextmanager
def refused_log():
    """Have the disk take nothing of the log of the groups."""
    append = Segment.append

    def refuse(self, *arguments):
        if "groups" in self.path:
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "append", refuse)
        yield


def test_a_heartbeat_that_was_held_back_tells_nothing_that_the_log_has_refused(sim):
    sim.node.put(b"web.a", b"1")
    joined = join(sim, topics=["web.*"], heartbeat_s=5)
    said = {"member": ANN, "generation": joined["generation"], "owned": [b"web.a"], "wait_s": 5.0}
    answers = ask(sim, "billing", GroupRequest("group_heartbeat", said))
    with refused_log():
        sim.node.put(b"web.b", b"1")
        sim.advance(2)
        with pytest.raises(StorageError):
            sim.node.control("group_positions", group="billing")  # finds the new unit
        assert answers == []
        sim.advance(4)
        [answer] = answers
        assert isinstance(answer, StorageError)
    sim.advance(2)
    [told] = ask(sim, "billing", GroupRequest("group_heartbeat", said))
    assert told["keep"] == [b"web.a", b"web.b"]
    sim.stop()
    sim.start()
    assert join(sim, topics=["web.*"])["generation"] > told["generation"]


def test_what_was_leased_when_the_log_refused_goes_to_who_asks_next(sim):
    join(sim, mode="shared", topics=["jobs"], group="workers", session_s=600)
    sim.node.put_many(b"jobs", [b"0", b"1", b"2"])
    first, _ = lease_of(sim)
    with refused_log():
        for _ in range(3):
            with pytest.raises(StorageError):
                lease_of(sim, done=[Done(first.id)])
    sim.advance(3)
    second, _ = lease_of(sim)
    assert (second.after, second.attempts) == (first.last, 0)


def test_a_reset_of_what_is_not_the_groups_is_refused(sim):
    join(sim)
    other = {"group": "billing", "force": True}
    for named in ({"to": {b"other": 3}}, {"to": "oldest", "units": [b"other"]}):
        with pytest.raises(UnknownTopic, match="other"):
            sim.node.control("group_reset", **named, **other)
    assert sim.node.control("group_positions", group="billing") == {b"orders": None}


def test_a_group_that_is_damaged_keeps_no_other_from_being_written_anew(simulate):
    sim = simulate(count_limit=10)
    join(sim, session_s=600)
    put_entry(sim, [int(Kind.SNAPSHOT), "broken", bytes(16), msgpack.packb({"version": 99})])
    join(sim, group="idle")
    sim.stop()
    sim.start()
    joined = join(sim, session_s=600)
    for pointer in range(100):
        commit(sim, joined, orders=pointer + 1)
        sim.advance(1)
    written = [msgpack.unpackb(each)[:2] for _, each in read_by_next(sim.node, GROUPS_TOPIC)]
    assert written.count([int(Kind.SNAPSHOT), "idle"]) > 1
