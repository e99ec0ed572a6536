"""Work queues on a node: who gets which messages, and what becomes of those that are not done."""

import shutil
from itertools import pairwise
from typing import Any

import pytest

from poe.actors import Call, Error, GenServer
from poe.broker import RoutingTable
from poe.broker.requests.groups import lease_messages
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    CorruptRecord,
    GroupFenced,
    GroupMismatch,
    InvalidTopicName,
    PoeError,
    RangeNotLeased,
    WriteFailed,
)
from poe.protocol import Done, Failed, IndexedRecords, LeaseRequest, envelope
from poe.storage import Segment
from poe.storage.segment.producers import WINDOW_COUNT
from tests.broker.nodes import read_by_next

ANN, BOB = (bytes([number]) * 16 for number in (1, 2))
BEHIND_2026_US = 4 * 365 * 24 * 3600 * 1_000_000
"""Groups count their lives from then on."""


class Leases(GenServer):
    """Asks for leases as a connection does."""

    def init(self, routes: RoutingTable):
        self.handler = RequestHandler(self, routes)

    async def handle_call(self, request: Any, caller: Call):
        try:
            lease, found = await lease_messages(self.handler, request)
        except PoeError as error:
            return Error(error)
        if found is None:
            return lease, []
        records = IndexedRecords.of(found.entries, memoryview(found.records.read()))
        starts = records.starts.tolist()
        values = [bytes(records.data[begin + 11 : end]) for begin, end in pairwise(starts)]
        return lease, list(zip(records.pointers.tolist(), values, strict=True))


class Queue:
    """A queue in simulated time."""

    def __init__(self, sim):
        self.sim = sim
        self.values = {}

    def join(self, member, **options):
        named = {"group": "workers", "mode": "shared", "topics": ["jobs"], "options": options}
        return self.sim.node.control("group_join", member=member, **named)

    def put(self, count):
        return [self.sim.node.put(b"jobs", b"%d" % number) for number in range(count)]

    def ask(self, member, limit=10, wait_s=0.0, done=(), failed=()):
        asked = LeaseRequest("workers", member, limit, 1 << 20, wait_s, done, failed)
        ref = self.sim.system.start(Leases, self.sim.routes)
        return self.sim.system.call(ref, asked)

    def values_of(self, member, **arguments):
        lease, records = self.ask(member, **arguments)
        return lease, [value for _, value in records]

    def describe(self):
        return self.sim.node.control("group", group="workers")

    def unit(self):
        [unit] = self.describe()["units"]
        return unit


@pytest.fixture
def queue(simulate):
    return Queue(simulate())


def test_each_message_goes_to_one_member(queue):
    queue.put(5)
    queue.join(ANN)
    queue.join(BOB)
    assert queue.values_of(ANN, limit=2)[1] == [b"0", b"1"]
    assert queue.values_of(BOB, limit=2)[1] == [b"2", b"3"]
    assert queue.values_of(ANN, limit=2)[1] == [b"4"]
    assert queue.values_of(BOB, limit=2)[1] == []


def test_a_topic_that_is_deleted_and_made_anew_is_worked_on_from_its_begin(queue):
    queue.put(4)
    queue.join(ANN)
    done, _ = queue.ask(ANN, limit=2)
    held, _ = queue.ask(ANN, limit=1, done=[Done(done.id)])
    queue.sim.node.control("delete", topic="jobs")
    assert queue.unit()["floor"] == 0
    queue.put(2)
    lease, values = queue.values_of(ANN, done=[Done(held.id)])
    assert (lease.lost, values) == ((held.id,), [b"0", b"1"])
    queue.sim.stop()
    queue.sim.start()
    queue.join(ANN)
    assert queue.values_of(ANN)[1] == [b"0", b"1"]


def test_what_is_acknowledged_with_the_next_request_is_done(queue):
    pointers = queue.put(4)
    queue.join(ANN)
    lease, _ = queue.ask(ANN, limit=2)
    lease, _ = queue.ask(ANN, limit=2, done=[Done(lease.id)])
    assert queue.unit()["floor"] == pointers[1]
    queue.ask(ANN, limit=0, done=[Done(lease.id)])
    assert queue.unit()["floor"] == pointers[3]


def test_acknowledgements_outlive_a_stop_and_leases_do_not(queue):
    queue.put(4)
    queue.join(ANN)
    lease, _ = queue.ask(ANN, limit=1)
    queue.ask(ANN, limit=2, done=[Done(lease.id)])
    queue.sim.stop()
    queue.sim.start()
    with pytest.raises(GroupFenced):
        queue.ask(ANN)
    queue.join(BOB)
    lease, values = queue.values_of(BOB)
    assert values == [b"1", b"2", b"3"]
    assert lease.attempts == 0


def test_what_is_not_acknowledged_in_time_comes_again_in_halves(queue):
    queue.put(4)
    queue.join(ANN, lease_s=1, session_s=60)
    queue.ask(ANN, limit=4)
    queue.sim.advance(1.1)
    lease, values = queue.values_of(ANN, limit=4)
    assert values == [b"0", b"1"]
    assert lease.attempts == 1


def test_what_was_leased_and_expired_is_told_as_lost_and_costs_nothing_else(queue):
    queue.put(2)
    queue.join(ANN, lease_s=1, session_s=60, retry_s=0)
    lease, _ = queue.ask(ANN, limit=1)
    queue.sim.advance(1.1)
    again, values = queue.values_of(ANN, limit=1, done=[Done(lease.id)])
    assert again.lost == (lease.id,)
    assert values == [b"0"]


def test_a_member_that_is_silent_loses_what_it_held(queue):
    queue.put(1)
    queue.join(ANN, session_s=2, retry_s=0)
    queue.ask(ANN)
    queue.sim.advance(1.5)
    queue.join(BOB)
    queue.sim.advance(0.6)
    assert queue.values_of(BOB)[1] == [b"0"]


def test_what_a_member_that_leaves_has_held_is_free_at_once(queue):
    queue.put(1)
    queue.join(ANN)
    queue.ask(ANN)
    queue.join(BOB)
    queue.sim.node.control("group_leave", group="workers", member=ANN)
    lease, values = queue.values_of(BOB)
    assert (values, lease.attempts) == ([b"0"], 0)


def test_what_fails_too_often_becomes_one_dead_letter(queue):
    [pointer] = queue.put(1)
    queue.join(ANN, attempts_max=3, retry_s=0)
    for _ in range(3):
        lease, values = queue.values_of(ANN)
        assert values == [b"0"]
        failed = Failed(lease.id, lease.after, lease.last, "retry", 0.0, "no JSON")
        queue.ask(ANN, limit=0, failed=[failed])
    assert queue.values_of(ANN)[1] == []
    letter_pointer, letter = queue.sim.node.next(b"workers.dead", 0)
    assert queue.sim.node.next(b"workers.dead", letter_pointer) is None
    assert envelope.decode(letter) == (
        None,
        b"0",
        {
            "poe.topic": b"jobs",
            "poe.pointer": b"%d" % pointer,
            "poe.attempts": b"3",
            "poe.reason": b"no JSON",
        },
    )
    assert queue.unit()["floor"] == pointer


def test_a_dead_letter_that_cannot_be_put_is_put_later_and_once(queue, monkeypatch):
    queue.put(1)
    queue.join(ANN)
    queue.sim.node.put(b"workers.dead", b"there")
    lease, _ = queue.ask(ANN)
    append = Segment.append

    def refuse(self, *arguments):
        if "dead" in self.path:
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    monkeypatch.setattr(Segment, "append", refuse)
    failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
    queue.ask(ANN, limit=0, failed=[failed])
    assert queue.unit()["dying_ranges"] == 1
    monkeypatch.setattr(Segment, "append", append)
    queue.sim.advance(5)
    letters = read_by_next(queue.sim.node, b"workers.dead")
    assert len(letters) == 2
    assert queue.unit()["dying_ranges"] == 0


def test_dead_letters_that_are_there_hold_up_no_others_though_a_power_cut_has_taken_that_they_are(
    queue, monkeypatch
):
    """Of the older ones their topic does not know any more where they are."""
    sim, count = queue.sim, WINDOW_COUNT + 2
    queue.put(count)
    queue.join(ANN)
    sim.node.put(b"workers.dead", b"there")
    leases = [queue.ask(ANN, limit=1)[0] for _ in range(count)]
    failed = [Failed(each.id, each.after, each.last, "dead", None, "bad") for each in leases]
    append = Segment.append

    def refuse(self, *arguments):
        if "dead" in self.path:
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "append", refuse)
        queue.ask(ANN, limit=0, failed=failed)
        sim.stop()
    log, copy = sim.folder / "topics" / "poe.groups", sim.folder / "before"
    shutil.copytree(log, copy)
    sim.start()
    queue.describe()
    sim.advance(1)
    assert queue.unit()["dying_ranges"] == 0
    sim.stop()
    shutil.rmtree(log)
    copy.rename(log)
    sim.start()
    queue.describe()
    sim.advance(1)
    assert queue.unit()["dying_ranges"] == 0
    assert len(read_by_next(sim.node, b"workers.dead")) == count + 1


def test_a_dead_letter_is_put_though_a_power_cut_has_set_back_the_log_and_the_clock_with_it(queue):
    """Their topic knows of a later epoch; they were tried again in an earlier one, for good."""
    sim = queue.sim

    def bury(count):
        for _ in range(count):
            lease, _ = queue.ask(ANN, limit=1)
            failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
            queue.ask(ANN, limit=0, failed=[failed])

    sim.wall.offset_us = BEHIND_2026_US
    queue.put(3)
    queue.join(ANN)
    sim.stop()
    log, copy = sim.folder / "topics" / "poe.groups", sim.folder / "before"
    shutil.copytree(log, copy)
    sim.start()
    queue.join(ANN)
    bury(1)
    sim.stop()
    shutil.rmtree(log)
    copy.rename(log)
    sim.wall.offset_us -= 3_600_000_000
    sim.start()
    queue.join(ANN)
    bury(3)
    assert queue.unit()["dying_ranges"] == 0
    letters = [envelope.decode(each) for _, each in read_by_next(sim.node, b"workers.dead")]
    assert [each[1] for each in letters] == [b"0", b"0", b"1", b"2"]


def test_dead_letters_go_on_where_a_power_cut_has_taken_the_last_life_and_not_what_it_buried(
    queue, monkeypatch
):
    """Their topic takes none of an epoch that is over: it is of an earlier life."""
    sim = queue.sim
    queue.put(3)
    queue.join(ANN)
    sim.node.put(b"workers.dead", b"there")
    append = Segment.append

    def refuse(self, *arguments):
        if "dead" in self.path:
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    def give_up():
        lease, _ = queue.ask(ANN, limit=1)
        queue.ask(ANN, limit=0, failed=[Failed(lease.id, lease.after, lease.last, "dead")])

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "append", refuse)
        give_up()
        sim.stop()
    log, copy = sim.folder / "topics" / "poe.groups", sim.folder / "before"
    shutil.copytree(log, copy)
    sim.advance(2)
    sim.start()
    queue.join(ANN)
    give_up()
    sim.stop()
    shutil.rmtree(log)
    copy.rename(log)
    sim.advance(2)
    sim.start()
    queue.join(ANN)
    for _ in range(2):
        give_up()
    sim.advance(40)
    assert queue.unit()["dying_ranges"] == 0
    letters = [letter for _, letter in read_by_next(sim.node, b"workers.dead")][1:]
    assert {envelope.decode(each)[1] for each in letters} == {b"0", b"1", b"2"}


def test_a_topic_of_dead_letters_that_refuses_them_is_not_tried_with_each_request(queue):
    queue.put(1)
    queue.join(ANN, session_s=600)
    queue.sim.node.put(b"workers.dead", b"there")
    lease, _ = queue.ask(ANN)
    append = Segment.append
    tries = []

    def refuse(self, *arguments):
        if "dead" in self.path:
            tries.append(queue.sim.clock.monotonic_s())
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "append", refuse)
        queue.ask(ANN, limit=0, failed=[failed])
        for _ in range(100):
            queue.ask(ANN)
            queue.sim.advance(1)
    assert 3 < len(tries) < 20
    queue.sim.advance(30)
    assert queue.unit()["dying_ranges"] == 0
    assert len(read_by_next(queue.sim.node, b"workers.dead")) == 2


def test_a_topic_of_dead_letters_that_does_not_answer_keeps_nobody_from_working(queue):
    """As a replicated one may, that has no majority."""
    sim = queue.sim
    queue.put(20)
    queue.join(ANN, session_s=600)
    sim.node.put(b"workers.dead", b"there")
    lease, _ = queue.ask(ANN, limit=1)
    writer = sim.routes[b"workers.dead"].writer
    sim.system.suspend(writer)
    failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
    answers: list[Any] = []
    for number in range(20):
        said = (failed,) if not number else ()
        asked = LeaseRequest("workers", ANN, 1, 1 << 20, 0.0, (), said)
        ref = sim.system.start(Leases, sim.routes)
        sim.system.start(Waiter, ref, asked, answers)
        sim.advance(1)
    assert len(answers) > 10
    sim.system.resume(writer)
    sim.advance(40)
    assert queue.unit()["dying_ranges"] == 0
    assert len(read_by_next(sim.node, b"workers.dead")) == 2


def test_dead_letters_go_on_where_their_topic_was_made_anew(queue):
    """It knows nothing of those that were put before, and expects their first number."""
    queue.put(4)
    queue.join(ANN)
    for number in range(4):
        lease, _ = queue.ask(ANN, limit=1)
        if number == 2:
            queue.sim.node.control("delete", topic="workers.dead")
        failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
        queue.ask(ANN, limit=0, failed=[failed])
    letters = [letter for _, letter in read_by_next(queue.sim.node, b"workers.dead")]
    assert [envelope.decode(each)[1] for each in letters] == [b"2", b"3"]
    assert queue.unit()["dying_ranges"] == 0


def test_a_pattern_does_not_stand_for_the_dead_letters_of_its_group(simulate):
    sim = simulate()
    sim.node.put(b"work1", b"poison")
    named = {"group": "workers", "mode": "shared", "topics": ["work*"], "options": {}}
    sim.node.control("group_join", member=ANN, **named)
    queue = Queue(sim)
    lease, _ = queue.ask(ANN)
    queue.ask(ANN, limit=0, failed=[Failed(lease.id, lease.after, lease.last, "dead", None, "bad")])
    sim.node.put(b"work2", b"next")
    sim.advance(2)
    assert {each["unit"] for each in sim.node.control("group", group="workers")["units"]} == {
        b"work1",
        b"work2",
    }
    assert queue.values_of(ANN)[1] == [b"next"]


def test_a_message_that_was_an_envelope_keeps_key_and_headers_as_a_dead_letter(queue):
    queue.sim.node.put(b"jobs", envelope.encode(b"key", b"value", {"a": b"1"}))
    queue.join(ANN)
    lease, _ = queue.ask(ANN)
    failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
    queue.ask(ANN, limit=0, failed=[failed])
    key, value, headers = envelope.decode(queue.sim.node.next(b"workers.dead", 0)[1])
    assert headers is not None
    assert (key, value, headers["a"], headers["poe.topic"]) == (b"key", b"value", b"1", b"jobs")


def test_what_a_topic_says_is_no_envelope_is_none(queue):
    queue.sim.node.control("topic_create", topic="jobs", properties={"envelope": False})
    message = envelope.encode(b"key", b"value", None)
    queue.sim.node.put(b"jobs", message)
    queue.join(ANN)
    lease, _ = queue.ask(ANN)
    failed = Failed(lease.id, lease.after, lease.last, "dead", None, "bad")
    queue.ask(ANN, limit=0, failed=[failed])
    _, letter = queue.sim.node.next(b"workers.dead", 0)
    assert envelope.decode(letter)[:2] == (None, message)


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_a_dead_letter_needs_no_topic_that_others_have_made(simulate, partitions):
    sim = simulate(auto_create=False)
    sim.node.control("create", topic="jobs")
    if partitions is not None:
        sim.node.create_topic("workers.dead", partitions=partitions)
    queue = Queue(sim)
    [pointer] = queue.put(1)
    queue.join(ANN)
    lease, _ = queue.ask(ANN)
    queue.ask(ANN, limit=0, failed=[Failed(lease.id, lease.after, lease.last, "dead", None, "bad")])
    topic = b"workers.dead-0" if partitions == 3 else b"workers.dead"
    _, letter = queue.sim.node.next(topic, 0)
    assert envelope.decode(letter)[1] == b"0"
    assert queue.unit()["floor"] == pointer


@pytest.mark.parametrize("options", [{}, {"dead_letter_topic": "a/b"}])
def test_a_group_whose_dead_letters_could_go_nowhere_is_not_made(simulate, options):
    group = "workers" if options else "w" * 199
    named = {"group": group, "mode": "shared", "topics": ["jobs"]}
    control = simulate().node.control
    with pytest.raises(InvalidTopicName):
        control("group_create", **named, options=options)
    assert control("groups") == []
    control("group_create", **named, options={**options, "on_dead": "drop"})


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_a_group_of_a_topic_that_can_never_be_is_not_made(simulate, mode):
    """Its members would wait for ever, and nobody be told why."""
    control = simulate().node.control
    with pytest.raises(InvalidTopicName, match="a/b"):
        control("group_create", group="workers", mode=mode, topics=["jobs", "a/b"])
    assert control("groups") == []
    control("group_create", group="workers", mode=mode, topics=["jobs", "a/*"])


def test_a_poll_is_answered_when_something_comes(queue):
    queue.put(1)
    queue.join(ANN)
    lease, _ = queue.ask(ANN)
    queue.ask(ANN, limit=0, done=[Done(lease.id)])
    system = queue.sim.system
    asked = LeaseRequest("workers", ANN, 10, 1 << 20, 30.0)
    ref = system.start(Leases, queue.sim.routes)
    answers: list[Any] = []
    system.start(Waiter, ref, asked, answers)
    queue.sim.advance(5)
    assert answers == []
    queue.sim.node.put_many(b"jobs", [b"0", b"1"])
    queue.sim.advance(0.1)
    [(lease, records)] = answers
    assert [value for _, value in records] == [b"0", b"1"]
    assert lease.id


def test_who_does_not_wait_gets_what_came_after_there_was_nothing(queue):
    queue.put(1)
    queue.join(ANN)
    queue.ask(ANN)
    assert queue.values_of(ANN)[1] == []
    queue.put(1)
    assert queue.values_of(ANN)[1] == [b"0"]


def test_topics_without_messages_are_looked_at_in_turns_however_many_there_are(queue):
    for number in range(60):
        queue.sim.node.put(b"web.%02d" % number, b"1")
    named = {"group": "workers", "mode": "shared", "topics": ["web.*"]}
    queue.sim.node.control("group_join", member=ANN, **named, options={"start": "newest"})
    before_s = queue.sim.clock.monotonic_s()
    assert queue.values_of(ANN)[1] == []
    assert queue.sim.clock.monotonic_s() > before_s, "others were served meanwhile"


def test_a_dead_letter_whose_message_is_gone_says_so_and_holds_no_other_up(queue, monkeypatch):
    queue.put(1)
    queue.sim.advance(0.1)
    [pointer] = queue.put(1)
    queue.join(ANN, retry_s=0)
    leases = [queue.ask(ANN, limit=1)[0] for _ in range(2)]
    failed = [Failed(each.id, each.after, each.last, "dead", None, "bad") for each in leases]
    get_range = RequestHandler.get_range

    async def gone(self, topic, request):
        is_gone = topic == b"jobs" and request.pointer < leases[0].last
        return None if is_gone else await get_range(self, topic, request)

    monkeypatch.setattr(RequestHandler, "get_range", gone)
    queue.ask(ANN, limit=0, failed=failed)
    letters = [envelope.decode(each) for _, each in read_by_next(queue.sim.node, b"workers.dead")]
    assert [value for _, value, _ in letters] == [b"", b"0"]
    assert (letters[0].headers or {})["poe.gone"] == b"1"
    assert queue.unit()["floor"] == pointer


def test_a_message_that_no_letter_has_room_for_stays_where_it_is_and_holds_no_other_up(simulate):
    """With what is said of it, it would be larger than any message may be."""
    queue = Queue(simulate(message_max=1000))
    large = queue.sim.node.put_many(b"jobs", [b"small", b"x" * 1000])
    last = queue.sim.node.put(b"jobs", b"other")
    queue.join(ANN)
    leases = [queue.ask(ANN, limit=limit)[0] for limit in (2, 1)]
    failed = [Failed(each.id, each.after, each.last, "dead", None, "bad") for each in leases]
    queue.ask(ANN, limit=0, failed=failed)
    letters = [envelope.decode(each) for _, each in read_by_next(queue.sim.node, b"workers.dead")]
    assert [value for _, value, _ in letters] == [b"small", b"", b"other"]
    assert letters[1].headers == {
        "poe.topic": b"jobs",
        "poe.pointer": b"%d" % large,
        "poe.attempts": b"1",
        "poe.reason": b"bad",
        "poe.large": b"1",
    }
    assert queue.unit()["floor"] == last


def test_a_poll_ends_with_nothing_when_its_time_is_over(queue):
    queue.join(ANN, session_s=60)
    answers: list[Any] = []
    asked = LeaseRequest("workers", ANN, 10, 1 << 20, 3.0)
    ref = queue.sim.system.start(Leases, queue.sim.routes)
    queue.sim.system.start(Waiter, ref, asked, answers)
    queue.sim.advance(2.9)
    assert answers == []
    queue.sim.advance(0.2)
    assert answers[0][0].id == 0


def test_who_waits_and_is_silent_is_a_member_no_longer_than_its_session(queue):
    queue.join(ANN, session_s=2)
    queue.join(BOB)
    answers: list[Any] = []
    asked = LeaseRequest("workers", ANN, 10, 1 << 20, 30.0)
    ref = queue.sim.system.start(Leases, queue.sim.routes)
    queue.sim.system.start(Waiter, ref, asked, answers)
    for _ in range(5):
        queue.sim.advance(0.5)
        queue.join(BOB)
    [only] = queue.describe()["members"]
    assert only["id"] == BOB


def test_a_group_that_was_held_up_takes_nobody_for_silent_whom_it_has_not_heard(queue):
    """By its disk, maybe, or with all of its node."""
    sim = queue.sim
    queue.put(2)
    queue.join(ANN, session_s=10, lease_s=10)
    lease, _ = queue.ask(ANN, limit=1)
    sim.system.suspend("group workers")
    sim.advance(30)
    answers: list[Any] = []
    asked = LeaseRequest("workers", ANN, 1, 1 << 20, 0.0, [Done(lease.id)])
    ref = sim.system.start(Leases, sim.routes)
    sim.system.start(Waiter, ref, asked, answers)
    sim.advance(0)
    sim.system.resume("group workers")
    sim.advance(0)
    [(again, records)] = answers
    assert (again.lost, [value for _, value in records]) == ((), [b"1"])
    sim.advance(9)
    assert len(queue.describe()["members"]) == 1
    sim.advance(2)
    assert queue.describe()["members"] == []


def test_a_group_that_is_held_up_again_and_again_finds_out_who_is_gone(queue):
    queue.join(ANN, session_s=10)
    for _ in range(2):
        queue.sim.system.suspend("group workers")
        queue.sim.advance(15)
        queue.sim.system.resume("group workers")
        queue.sim.advance(0)
    assert queue.describe()["members"] == []


def test_a_group_that_is_held_up_again_and_again_keeps_who_was_heard_of_in_between(queue):
    queue.put(1)
    queue.join(ANN, session_s=10, lease_s=10)
    lease, _ = queue.ask(ANN, limit=1)
    for _ in range(3):
        queue.sim.system.suspend("group workers")
        queue.sim.advance(15)
        queue.sim.system.resume("group workers")
        queue.sim.advance(0)
        queue.ask(ANN)
    assert queue.ask(ANN, limit=0, done=[Done(lease.id)])[0].lost == ()


@pytest.mark.parametrize("late_s", [0.6, 1.9])
def test_a_group_that_was_held_up_for_just_longer_than_a_session_takes_nobody_for_silent(
    queue, late_s
):
    queue.join(ANN, session_s=10)
    queue.sim.system.suspend("group workers")
    queue.sim.advance(10 + late_s)
    queue.sim.system.resume("group workers")
    queue.sim.advance(0)
    assert len(queue.describe()["members"]) == 1


def test_what_failed_while_the_clock_was_hours_ahead_is_tried_again_once_that_is_set_right(queue):
    def restart(ahead_s):
        queue.sim.stop()
        queue.sim.wall.offset_us = ahead_s * 1_000_000
        queue.sim.start()
        queue.join(ANN, retry_s=1, session_s=3600)

    def fail(delay_s=None):
        lease, _ = queue.ask(ANN)
        queue.ask(ANN, 0, failed=[Failed(lease.id, lease.after, lease.last, "retry", delay_s)])

    restart(ahead_s=5 * 3600)
    queue.put(1)
    fail()
    restart(ahead_s=0)
    queue.sim.advance(2)
    fail(delay_s=100)
    # Its log is ahead of the clock still, and what was said since is not.
    restart(ahead_s=0)
    queue.sim.advance(90)
    assert queue.values_of(ANN)[1] == []
    queue.sim.advance(12)
    assert queue.values_of(ANN)[1] == [b"0"]


def test_who_gets_nothing_is_told_what_keeps_it_back(queue):
    queue.join(ANN, leases_max=1)
    assert queue.ask(ANN)[0].why == ""  # there is nothing
    queue.put(2)
    queue.ask(ANN, limit=1)
    for wait_s in (0.0, 1.0):
        assert "leases_max" in told_after(queue, wait_s).why
    queue.sim.node.control("group_pause", group="workers")
    assert "is paused" in queue.ask(ANN)[0].why


def told_after(queue, wait_s):
    """What a member is told that waits for nothing."""
    answers: list[Any] = []
    asked = LeaseRequest("workers", ANN, 10, 1 << 20, wait_s)
    ref = queue.sim.system.start(Leases, queue.sim.routes)
    queue.sim.system.start(Waiter, ref, asked, answers)
    queue.sim.advance(wait_s + 0.1)
    return answers[0][0]


def test_what_was_given_back_is_for_who_waits(queue):
    queue.put(1)
    queue.join(ANN)
    queue.join(BOB)
    lease, _ = queue.ask(ANN)
    answers: list[Any] = []
    asked = LeaseRequest("workers", BOB, 10, 1 << 20, 30.0)
    ref = queue.sim.system.start(Leases, queue.sim.routes)
    queue.sim.system.start(Waiter, ref, asked, answers)
    given_back = Failed(lease.id, lease.after, lease.last, "release")
    queue.ask(ANN, limit=0, failed=[given_back])
    queue.sim.advance(0.1)
    [(again, records)] = answers
    assert [value for _, value in records] == [b"0"]
    assert again.attempts == 0


class Waiter(GenServer):
    """Keeps the answer to a request that may take its time."""

    def init(self, ref, request, answers):
        self.cast(self.ref, (ref, request, answers))

    async def handle_cast(self, message):
        ref, request, answers = message
        answers.append(await self.call(ref, request, timeout_s=None))


def test_who_waits_for_a_topic_that_is_made_anew_with_partitions_gets_what_comes_onto_those(queue):
    """And is not told that the topic is no partition of itself."""
    sim = queue.sim
    queue.put(1)
    queue.join(ANN, session_s=60)
    done, _ = queue.ask(ANN)
    ref, asked, answers = waits(sim, [Done(done.id)])
    sim.system.start(Waiter, ref, asked, answers)
    sim.advance(4.1)  # it has just asked again
    sim.node.control("delete", topic="jobs")
    sim.node.create_topic("jobs", partitions=2)
    sim.advance(5)
    sim.node.put(b"jobs-1", b"new")
    sim.advance(5)
    [(lease, records)] = answers
    assert (lease.topic, [value for _, value in records]) == (b"jobs-1", [b"new"])


def test_of_topics_that_have_gone_nothing_is_watched_any_more(queue):
    """Where topics come and go, what watched them stayed for as long as the node lived."""
    sim = queue.sim
    named = {"group": "workers", "mode": "shared", "topics": ["web.*"]}
    sim.node.control("group_join", member=ANN, **named, options={"session_s": 3600})
    for number in range(3):
        topic = f"web.{number}"
        sim.node.put(topic, b"0")
        sim.advance(2)
        done, _ = queue.ask(ANN)
        assert done.topic == topic.encode()
        sim.system.start(Waiter, *waits(sim, [Done(done.id)]))
        sim.advance(60)
        sim.node.control("delete", topic=topic)
        sim.advance(60)
    rows = sim.node.control("tree", all=True)
    assert [row for row in rows if row["actor"] == "UnitWatch"] == []


def waits(sim, done):
    """Return what a `Waiter` is to ask, and where it is to keep the answer."""
    asked = LeaseRequest("workers", ANN, 10, 1 << 20, 30.0, done)
    return sim.system.start(Leases, sim.routes), asked, []


def test_damage_is_skipped_and_told(queue, caplog):
    queue.put(3)
    queue.sim.advance(5)
    pointers = queue.put(2)
    queue.sim.stop()
    [path] = queue.sim.folder.glob("topics/jobs/*_data")
    content = bytearray(path.read_bytes())
    content[2 * 12 + 11] ^= 1
    path.write_bytes(content)
    queue.sim.start()
    queue.join(ANN)
    found = []
    for _ in range(6):
        lease, values = queue.values_of(ANN, limit=10)
        found += values
        if not lease.id:
            break
        queue.ask(ANN, limit=0, done=[Done(lease.id)])
    assert found == [b"0", b"1"]
    assert queue.unit()["floor"] == pointers[-1]


def damage_index(sim, topic):
    """Damage the index of a topic on the disk; return what makes it whole again."""
    [path] = sim.folder.glob(f"topics/{topic}/*_index")
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    return lambda: path.write_bytes(content)


def test_a_topic_whose_index_is_damaged_is_read_when_it_is_whole_and_keeps_no_other(queue):
    """How far the damage goes nobody knows: a look at each pointer took the node for ever."""
    queue.put(100)
    queue.sim.advance(1)
    heal = damage_index(queue.sim, "jobs")
    queue.join(ANN)
    with pytest.raises(CorruptRecord):
        queue.ask(ANN)
    assert queue.unit()["floor"] == queue.unit()["next"] == 0
    heal()
    queue.sim.advance(2)
    assert queue.values_of(ANN)[1] == [b"%d" % number for number in range(10)]


def test_a_dead_letter_waits_for_an_index_that_is_damaged(queue):
    queue.put(100)
    queue.sim.advance(1)
    queue.join(ANN)
    lease, _ = queue.ask(ANN)
    heal = damage_index(queue.sim, "jobs")
    queue.ask(ANN, limit=0, failed=[Failed(lease.id, lease.after, lease.last, "dead", None, "bad")])
    assert queue.unit()["dying_ranges"] == 1
    heal()
    queue.sim.advance(2)
    assert queue.unit()["dying_ranges"] == 0
    letters = [envelope.decode(each) for _, each in read_by_next(queue.sim.node, b"workers.dead")]
    assert [value for _, value, _ in letters] == [b"%d" % number for number in range(10)]


def test_what_was_never_leased_is_not_acknowledged(queue):
    queue.put(4)
    queue.join(ANN)
    lease, _ = queue.ask(ANN, limit=2)
    with pytest.raises(RangeNotLeased):
        queue.ask(ANN, limit=0, done=[Done(lease.id, ((lease.after, lease.last + 1),))])
    unknown, _ = queue.ask(ANN, limit=0, done=[Done(12345)])
    assert unknown.lost == (12345,)
    assert queue.unit()["floor"] == 0


def test_a_group_of_the_other_mode_is_told_apart(queue):
    named = {"group": "billing", "mode": "ordered", "topics": ["jobs"]}
    queue.sim.node.control("group_join", member=ANN, **named)
    ref = queue.sim.system.start(Leases, queue.sim.routes)
    with pytest.raises(GroupMismatch, match="ordered"):
        queue.sim.system.call(ref, LeaseRequest("billing", ANN, 10, 1 << 20))
    queue.join(BOB)
    with pytest.raises(GroupMismatch, match="shared"):
        queue.sim.node.control("group_positions", group="workers")


def test_a_group_may_begin_at_the_end(queue):
    queue.put(3)
    queue.join(ANN, start="newest")
    assert queue.values_of(ANN)[1] == []
    queue.sim.node.put(b"jobs", b"new")
    queue.sim.advance(0.1)
    _, values = queue.values_of(ANN, wait_s=1.0)
    assert values == [b"new"]
