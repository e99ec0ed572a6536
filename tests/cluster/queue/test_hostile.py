"""Peers that say what is untrue: what it costs whom."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.broker.requests.groups import GroupRequest
from poe.cluster.batch import Batch
from poe.cluster.fabric.envelope import FRAME_MAX_BYTES
from poe.cluster.frames import (
    WHOLE,
    Again,
    Back,
    Claim,
    Difference,
    Digest,
    Given,
    Held,
    Known,
    News,
    Paused,
    Prove,
    Release,
    Store,
    Stored,
    Summary,
    Want,
    decode,
)
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.holders import HEARSAY_NODES_MAX, NODES_MAX, Holders
from poe.cluster.queue.knowledge import STREAMS_MAX
from poe.cluster.queue.ownership import rank
from poe.cluster.queue.streams_over import ORIGINS_MAX, StreamsOver
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.record import POINTER_MAX
from tests.cluster.queue.wired import SECOND_US, Wired, node_ref

FEW = [b"message %d" % number for number in range(20)]
LIAR = node_ref(9)


def lie(nodes, number, frame):
    """Have a node hear what is untrue, from a node that is there."""
    nodes[number].hear(nodes.refs[-1], frame, nodes.now_us)
    nodes.settle()


def test_messages_in_the_name_of_this_node_are_refused_and_its_pointers_stay():
    nodes = Wired(2)
    stream = StreamId(*nodes.refs[0])
    batch = Batch.encode([b"forged"], 0, POINTER_MAX)
    lie(nodes, 0, Store(b"jobs", nodes.record, stream, batch, (), is_copy=True))
    assert nodes[0].copies.messages_count == 0
    assert nodes[0].counters()["frames refused"] == 1
    nodes.put(0, FEW)
    nodes.settle()
    assert nodes.results["put"].first == nodes.now_us


def test_a_record_that_wins_changes_no_queue_that_is_written_into_one_that_is_not():
    nodes = Wired(2, persist=True, created_us=5)
    stream = StreamId(*nodes.refs[1])
    record = QueueRecord(b"jobs", 1, created_us=9)
    batch = Batch.encode([b"x"], 0, 1)
    lie(nodes, 0, Store(b"jobs", record, stream, batch, (), is_copy=False))
    assert nodes[0].record.copies == 1
    assert nodes[0].record.persist


def test_a_node_that_says_to_hold_all_costs_a_put_nothing():
    nodes = Wired(3)
    held = (Held(StreamId(*nodes.refs[0]), ((0, POINTER_MAX),), ()),)
    lie(nodes, 0, News(b"jobs", 1 << 60, WHOLE, 1 << 60, held, (), ()))
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    assert nodes.results["put"][:2] == ("ok", 2)
    assert nodes.work(0) == FEW


def test_that_a_stream_is_forgotten_is_believed_of_none_that_lives_or_is_held():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    forgotten = tuple((ref.id, 1 << 60) for ref in nodes.refs)
    lie(nodes, 0, Digest(b"jobs", 1, 1, (), (), forgotten, is_answer=True))
    lie(nodes, 0, Digest(b"jobs", 1, 1, (), (), forgotten, is_answer=True))
    assert nodes.work(0) == FEW


@pytest.mark.slow
def test_groups_that_cannot_be_are_counted_and_told_and_no_more_are_made_than_may_be():
    nodes = Wired(2)
    wrong = GroupRecord(b"jobs", "wrong", {"lease_s": "never"}, 1)
    lie(nodes, 0, News(b"jobs", 1, 0, 0, (), (), (wrong,)))
    assert nodes[0].counters()["group refused"] == 1
    assert nodes.events[-1].kind == "group refused"
    many = tuple(GroupRecord(b"jobs", f"group-{number}", {}, 1) for number in range(2000))
    lie(nodes, 0, News(b"jobs", 1, 0, 0, (), (), many))
    assert len(nodes[0].groups()) == 1024
    assert not nodes[0].known("wrong")


SOME = st.integers(0, 3) | st.sampled_from([SECOND_US, 1_000_000_000_000, POINTER_MAX])
NODES = st.sampled_from([node_ref(1), node_ref(2), node_ref(3), LIAR])
STREAMS = st.builds(StreamId, st.sampled_from([node_ref(1).id, node_ref(2).id, LIAR.id]), SOME)
RANGES = st.sets(SOME, max_size=6).map(
    lambda ends: tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)
GROUPS = st.sampled_from(["work", "other", ""])
KNOWN = st.builds(
    Known, GROUPS, STREAMS, st.just(()), st.lists(st.tuples(NODES, RANGES), max_size=2).map(tuple),
    st.just(()),
)  # fmt: skip
BATCHES = st.builds(
    lambda after, gap, count: Batch.encode([b"lie"] * count, after, after + gap),
    st.integers(0, 1_000_000_000_010), st.integers(1, 9), st.integers(1, 20),
)  # fmt: skip
FRAMES = st.one_of(
    st.builds(
        Store, st.just(b"jobs"), st.just(QueueRecord(b"jobs", 2)), STREAMS, BATCHES,
        st.lists(NODES, max_size=3).map(tuple), st.booleans(),
    ),
    st.builds(
        Stored, st.just(b"jobs"), STREAMS, SOME, SOME, st.sampled_from(["held", "full", "failed"])
    ).filter(lambda frame: frame.after < frame.last),
    st.builds(
        News, st.just(b"jobs"), SOME, SOME | st.just(WHOLE), SOME,
        st.lists(st.builds(Held, STREAMS, RANGES, RANGES), max_size=3).map(tuple),
        st.lists(KNOWN, max_size=2).map(tuple), st.just(()),
    ),
    st.builds(
        Digest, st.just(b"jobs"), SOME, SOME,
        st.lists(st.builds(Summary, GROUPS, STREAMS, SOME), max_size=3).map(tuple), st.just(()),
        st.lists(st.tuples(st.just(LIAR.id), SOME), max_size=2).map(tuple), st.booleans(),
    ),
    st.builds(
        Difference, st.just(b"jobs"), st.booleans(),
        st.lists(st.tuples(GROUPS, STREAMS), max_size=3).map(tuple),
    ),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=12))
def test_whatever_a_node_says_what_others_put_is_handed_out(frames):
    nodes = Wired(3)
    nodes.make_group(0)
    nodes.put(0, FEW, "before")
    nodes.settle()
    for frame in frames:
        lie(nodes, 0, frame)
    nodes.put(0, FEW, "after", copies=1)
    nodes.wait(3)
    assert nodes.results["after"].state == "ok"
    worked = nodes.work(0)
    assert [each for each in worked if each != b"lie"] == FEW + FEW


@pytest.fixture
def heirs():
    """Return nodes of which one has died, who holds what it put, and who would be its heir."""
    nodes = Wired(3, copies=2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    stream = nodes.results["put"].stream
    liar, honest = sorted((1, 2), key=lambda number: rank(nodes.refs[number], b"jobs", stream))
    nodes.kill(0)
    nodes[liar].copies.drop(stream, 0, POINTER_MAX)
    nodes[honest].copies.forget(stream)
    batch = Batch.encode(FEW, 0, nodes.results["put"].first)
    store = Store(b"jobs", nodes.record, stream, batch, (nodes.refs[0],), is_copy=True)
    nodes[honest].hear(nodes.refs[0], store, nodes.now_us)
    nodes.settle()
    return nodes, honest, nodes.refs[liar], (Held(stream, ((0, POINTER_MAX),), ()),)


def test_what_a_dead_nodes_heir_is_said_to_hold_and_does_not_is_handed_out_by_the_next(heirs):
    nodes, honest, liar, held = heirs
    news = News(b"jobs", 1 << 60, WHOLE, 1 << 60, held, (), ())
    nodes[honest].hear(liar, news, nodes.now_us)
    assert nodes.take(honest)[1] == []
    nodes.wait(30)
    assert nodes.take(honest)[1] == FEW


def test_a_node_that_goes_on_saying_what_is_untrue_is_not_believed_for_a_while(heirs):
    nodes, honest, liar, held = heirs
    for version in range(1 << 60, (1 << 60) + 30):
        news = News(b"jobs", 1 << 60, WHOLE, version, held, (), ())
        nodes[honest].hear(liar, news, nodes.now_us)
        nodes.wait(1)
    assert nodes.take(honest)[1] == FEW


def test_a_node_that_holds_other_bytes_is_not_believed_and_its_copies_are_made_elsewhere():
    nodes = Wired(3)
    nodes.put(0, FEW)
    nodes.wait(1)
    other = next(number for number in (1, 2) if nodes[number].copies.messages_count)
    stream, last = nodes.results["put"].stream, nodes.results["put"].pointer
    nodes[other].copies.drop(stream, 0, last)
    nodes[other].copies.add(stream, Batch.encode([b"forged"] * len(FEW), 0, last - len(FEW) + 1))
    nodes.wait(60)
    assert nodes[3 - other].copies.messages_count == len(FEW)
    assert nodes[0].counters()["void claims"] >= 1
    assert "void claim" in {event.kind for event in nodes.events}


def test_a_node_that_never_proves_what_it_says_is_not_believed():
    nodes = Wired(2)
    nodes.put(0, FEW)
    nodes.wait(1)
    silent = nodes.refs[1]
    del nodes.queues[silent]
    nodes.wait(60)
    assert nodes[0].counters()["void claims"] == 1
    nodes[0].peer_pace(silent, nodes.now_us, is_slow=True)


def test_honest_nodes_prove_what_they_hold():
    nodes = Wired(4, copies=3)
    nodes.make_group(0)
    for number in range(30):
        nodes.put(number % 4, FEW, number)
        nodes.wait(3)
        nodes.work(number % 3)
    assert all("void claims" not in nodes[number].counters() for number in range(4))
    assert not nodes.events


def wait_for_question(nodes):
    """Let time pass until the first node has asked another one for a proof, not heard yet."""
    until_us = nodes.now_us + 20 * SECOND_US
    while True:
        assert nodes.now_us < until_us
        nodes.settle()
        due = [queue.next_deadline_us() for queue in nodes.queues.values()]
        nodes.now_us = min(each for each in due if each is not None)
        for queue in nodes.queues.values():
            queue.tick(nodes.now_us)
        nodes.collect()
        told = [decode(body) for sender, _, body in nodes.under_way if sender == nodes.refs[0]]
        if any(isinstance(each, Prove) for each in told):
            return


def test_a_node_that_has_just_dropped_what_it_is_to_prove_for_want_of_room_is_believed():
    nodes = Wired(2, messages_max=len(FEW), on_full="drop-oldest")
    for number in range(5):
        nodes.put(0, FEW, number)
        nodes.wait(1)
        wait_for_question(nodes)
        nodes.put(1, FEW, f"other {number}", copies=1)
        nodes.settle()
    nodes.put(0, FEW, "last")
    nodes.wait(1)
    assert {result.state for result in nodes.results.values()} == {"ok"}
    assert {event.kind for event in nodes.events} == {"dropped"}


def raw_group(queue=b"jobs", name="evil", options=None, created_us=5, deleted_us=0):
    """Return news of a group as a peer may write it."""
    group = [queue, name, options or {}, created_us, b"a" * 8, deleted_us]
    return decode(msgpack.packb((3, b"jobs", 1, 0, 0, [], [], [group])))


@pytest.mark.parametrize("deleted_us", [0, 9])
@pytest.mark.parametrize(
    "wrong",
    [{"queue": b"others"}, {"name": "a/b"}, {"name": ""}, {"options": {"lease_s": [[[]]]}}],
    ids=str,
)
def test_a_group_that_may_not_be_is_refused_though_it_is_deleted(wrong, deleted_us):
    nodes = Wired(2)
    lie(nodes, 0, raw_group(**wrong, deleted_us=deleted_us))
    assert nodes[0].counters()["group refused"] == 1
    nodes.wait(20)
    assert "group refused" not in nodes[1].counters()


def test_a_group_made_and_paused_at_the_end_of_time_goes_on_and_can_be_deleted():
    nodes = Wired(2)
    lie(nodes, 0, raw_group(name="work", created_us=POINTER_MAX))
    lie(nodes, 0, Paused(b"jobs", "work", POINTER_MAX, is_paused=True))
    nodes.put(0, FEW)
    nodes.settle()
    assert nodes.take(0)[1] == []
    nodes.ask(0, GroupRequest("group_resume", {}))
    assert nodes.work(0) == FEW
    [group] = nodes[0].groups()
    nodes[0].make_group(group.deleted(nodes.now_us), nodes.now_us)
    nodes.wait(20)
    assert not nodes[0].groups()
    assert not nodes[1].groups()


def test_what_is_not_put_yet_is_done_nowhere_whoever_says_it():
    nodes = Wired(2)
    nodes.make_group(0)
    done = Known("work", StreamId(*nodes.refs[0]), ((0, POINTER_MAX),), (), ())
    lie(nodes, 0, News(b"jobs", 1, 0, 0, (), (done,), ()))
    nodes.put(0, FEW)
    nodes.wait(1)
    assert nodes.work(0) == FEW


def test_what_is_not_put_yet_is_left_to_nobody():
    nodes = Wired(2)
    nodes.make_group(0, delivery="at-most-once")
    lie(nodes, 0, Claim(b"jobs", "work", StreamId(*nodes.refs[0]), ((0, POINTER_MAX),)))
    nodes.put(0, FEW)
    nodes.wait(1)
    assert nodes.work(0) == FEW


def lend(nodes, limit=1 << 60, bytes_max=1 << 60):
    """Have the last node want messages of the first; return what it is given, as bytes."""
    want = Want(b"jobs", "work", nodes.now_us, limit, bytes_max)
    nodes[0].hear(nodes.refs[-1], want, nodes.now_us)
    nodes.collect()
    return [body for _, _, body in nodes.under_way]


def test_a_node_that_wants_all_is_given_what_fits_an_envelope():
    nodes = Wired(2, copies=1)
    nodes.make_group(0)
    large = bytes(14 << 20)
    for number in range(3):
        stream = StreamId(node_ref(20 + number).id, 1)
        batch = Batch.encode([large], 0, 5)
        store = Store(b"jobs", nodes.record, stream, batch, (nodes.refs[0],), is_copy=True)
        nodes[0].hear(nodes.refs[1], store, nodes.now_us)
    nodes.lose()
    [given] = lend(nodes)
    assert 14 << 20 < len(given) < FRAME_MAX_BYTES
    assert nodes.work(0) == [large] * 2


def test_what_is_handed_back_for_ever_comes_again_as_soon_as_any_other():
    nodes = Wired(2, copies=1)
    nodes.make_group(0, retry_max_s=10.0)
    nodes.put(0, FEW)
    nodes.settle()
    given = decode(lend(nodes)[-1])
    assert isinstance(given, Given)
    [loan] = given.loans
    back = Back(loan.lease, loan.after, loan.last, 1, None, POINTER_MAX, "why")
    lie(nodes, 0, Release(b"jobs", "work", (back,)))
    nodes.wait(21)
    assert nodes.work(0) == FEW


def test_what_is_asked_for_many_times_is_told_once():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    nodes.work(0)
    nodes.lose()
    asked = ("work", StreamId(*nodes.refs[0]))
    for count in (1, 10_000):
        difference = Difference(b"jobs", is_held_asked=False, known=(asked,) * count)
        nodes[0].hear(nodes.refs[1], difference, nodes.now_us)
    nodes.collect()
    frames = [decode(each[2]) for each in nodes.under_way]
    told = [each for each in frames if isinstance(each, News) and each.known]
    assert len(told) == 2
    assert told[0] == told[1]


MANY = STREAMS_MAX + 200


@pytest.mark.slow
def test_of_what_a_node_names_without_end_a_part_is_kept():
    nodes = Wired(2)
    nodes.make_group(0)
    streams = [StreamId(LIAR.id, number) for number in range(MANY)]
    refs = [NodeRef(number.to_bytes(8), 1) for number in range(MANY)]
    some = ((0, 5),)
    known = tuple(Known("work", stream, some, (), ()) for stream in streams)
    lie(nodes, 0, News(b"jobs", 1, 0, 0, (), known, ()))
    granted = Known("work", streams[0], (), tuple((ref, some) for ref in refs), ())
    again = tuple(Again("retried", LIAR, ref, 1, some) for ref in refs)
    for each in (granted, granted._replace(granted=(), again=again)):
        lie(nodes, 0, News(b"jobs", 1, 0, 0, (), (each,), ()))
    assert nodes[0].counters()["frames refused"] == 3
    assert len(nodes[0].known("work")) == STREAMS_MAX
    held = tuple(Held(stream, some, ()) for stream in streams)
    lie(nodes, 0, News(b"jobs", 1 << 60, WHOLE, 1, held, (), ()))
    assert len(nodes[0].holders()) == STREAMS_MAX
    lie(nodes, 0, Digest(b"jobs", 1, 1, (), (), tuple((ref.id, 1) for ref in refs), is_answer=True))
    batch = Batch.encode([b"lie"], 0, 1)
    for number in range(MANY):
        stream = StreamId(LIAR.id, MANY + number)
        store = Store(b"jobs", nodes.record, stream, batch, tuple(refs[:9]), is_copy=True)
        nodes[0].hear(nodes.refs[1], store, nodes.now_us)
        del refs[:9]
    nodes.lose()
    assert nodes[0].copies.messages_count == STREAMS_MAX
    assert nodes[0].counters()["full"] == MANY - STREAMS_MAX


def test_of_too_many_nodes_it_is_not_believed_that_they_hold_anything():
    holders = Holders()
    for number in range(NODES_MAX + 5):
        holders.expect(NodeRef(number.to_bytes(8), 1), StreamId(*LIAR), 0, 5)
    assert len(holders.nodes()) == NODES_MAX


def test_holders_that_there_are_not_leave_room_for_those_that_there_are_and_are_told():
    nodes = Wired(3)
    stream = StreamId(LIAR.id, 1)
    batch = Batch.encode([b"m"], 0, 1)
    named = [NodeRef(number.to_bytes(8), 7) for number in range(HEARSAY_NODES_MAX + 64)]
    for begin in range(0, len(named), 32):
        holders = tuple(named[begin : begin + 32])
        lie(nodes, 0, Store(b"jobs", nodes.record, stream, batch, holders, is_copy=True))
    assert nodes[0].counters()["holders not believed"] >= 64
    assert [each.kind for each in nodes.events].count("holders not believed") == 1
    nodes.put(1, FEW, copies=3)
    nodes.settle()
    assert nodes.results["put"].made == 3
    nodes.make_group(0)
    nodes.kill(1)
    assert len(nodes.work(0)) + len(nodes.work(1 + 1)) >= len(FEW)


def test_of_too_many_origins_it_is_not_believed_that_they_are_forgotten():
    mine = Digest(b"jobs", 1, 1, (), (), (), is_answer=True)
    over = StreamsOver(node_ref(1))
    known = (Summary("work", StreamId(LIAR.id, 1), 5),)
    over.forget_node(LIAR.id)
    forgotten = tuple((number.to_bytes(8), 9) for number in range(ORIGINS_MAX))
    over.hear(b"liar", mine._replace(forgotten=(*forgotten, (LIAR.id, 9))), mine)
    over.hear(b"liar", mine, mine._replace(known=known))
    over.members.add(node_ref(2).id)
    assert over.settle([], lambda _: True) == []
