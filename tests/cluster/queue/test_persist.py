"""A queue that outlives its nodes' processes: what is written and read, and when it is answered."""

from itertools import chain

import pytest

from poe.broker.requests.groups import GroupRequest
from poe.cluster.batch import Batch
from poe.cluster.frames import Difference, Known, News, Store, Stored, decode, parts_of
from poe.cluster.identity import StreamId
from poe.cluster.queue.effects import Trim, Write
from poe.cluster.queue.knowledge import StreamKnowledge
from poe.cluster.queue.log import (
    CHUNK_BYTES,
    LOG_BYTES_MIN,
    Compaction,
    Dropped,
    Kept,
    decode_entry,
    encode_entry,
)
from poe.cluster.queue.log_writer import LogWriter
from poe.errors import QueueBusy
from poe.protocol.leases import LeaseRequest
from tests.cluster.queue.wired import SECOND_US, Wired, node_ref

FEW = [b"message %d" % number for number in range(20)]
NO_ROOM = QueueBusy(b"jobs", "disk", 1)
NOTHING = StreamKnowledge()


def persistent(count, **properties):
    return Wired(count, persist=True, **properties)


def by_hand(count, **properties):
    """Return nodes that write when the test says."""
    nodes = persistent(count, **properties)
    nodes.is_writing_by_hand = True
    return nodes


def told_of_some(count, **properties):
    """Return nodes that the first one has told that five messages are done, in one group of two."""
    nodes = persistent(count, **properties)
    nodes.make_group(0)
    nodes.make_group(0, "other")
    nodes.put(0, FEW)
    nodes.wait(1)
    lease, _ = nodes.take(0, 5)
    nodes.done(0, lease)
    nodes.wait(1)
    return nodes


def start_again(nodes, number):
    """Have a node die, and live again with what it has written."""
    nodes.settle()
    nodes.kill(number)
    nodes.settle()
    nodes.restart(number)
    nodes.wait(2)


def test_a_put_is_answered_when_it_is_written():
    nodes = by_hand(1, copies=1)
    nodes.put(0, FEW)
    nodes.collect()
    assert not nodes.results
    nodes.write(0)
    nodes.collect()
    assert nodes.results["put"][:2] == ("ok", 1)


def test_a_copy_counts_when_its_node_has_written_it():
    nodes = by_hand(2)
    nodes.put(0, FEW)
    nodes.settle()
    nodes.write(0)
    nodes.settle()
    assert not nodes.results
    nodes.write(1)
    nodes.settle()
    assert nodes.results["put"][:2] == ("ok", 2)


def test_a_copy_that_comes_twice_counts_when_its_node_has_written_it():
    nodes = by_hand(2)
    nodes.put(0, FEW)
    nodes.collect()
    nodes.under_way.extend(list(nodes.under_way))
    nodes.settle()
    nodes.write(0)
    nodes.settle()
    assert not nodes.results
    nodes.write(1, NO_ROOM)
    nodes.wait(2)
    assert nodes.results["put"][:2] == ("under", 1)


def test_who_puts_the_same_again_while_it_is_written_is_answered_as_well():
    """As dead letters are, which their group puts again where it was not answered in time."""
    nodes = by_hand(1, copies=1)
    letters, until_us = Batch.encode(FEW, 0, 1), nodes.now_us + 9 * SECOND_US
    for token in ("first", "again"):
        nodes[0].hold(StreamId(b"another.", 7), letters, token, nodes.now_us, deadline_us=until_us)
    nodes.collect()
    nodes.write(0)
    nodes.collect()
    assert nodes.results["first"].state == "none"
    assert nodes.results["again"].state == "ok"


def test_an_acknowledgement_is_answered_when_it_is_written():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    lease, _ = nodes.take(0)
    nodes.is_writing_by_hand = True
    member = nodes.join(0)
    nodes[0].serve("work", nodes.acknowledgement(member, lease), "done", nodes.now_us)
    nodes.collect()
    assert "done" not in nodes.answers
    nodes.write(0, error=NO_ROOM)
    nodes.collect()
    assert nodes.answers["done"] is NO_ROOM


def test_what_is_done_is_handed_out_by_nobody_while_that_is_being_written():
    """As on a busy disk: that it is held no more was told before that it is done."""
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    lease, _ = nodes.take(0)
    nodes.is_writing_by_hand = True
    nodes[0].serve("work", nodes.acknowledgement(nodes.join(0), lease), "done", nodes.now_us)
    nodes.wait(1)
    request = LeaseRequest("work", nodes.join(1), 5, 1 << 24, 0.0)
    nodes[1].serve("work", request, "asked", nodes.now_us)
    nodes.collect()
    nodes.write(1)
    nodes.collect()
    assert nodes.answers["asked"].found is None
    write_no_more_by_hand(nodes)
    assert nodes[0].copies.messages_count == nodes[1].copies.messages_count == 0


def test_what_time_has_ended_is_held_until_that_is_written():
    """It is collected at the next time: at this one the log does not know of it yet."""
    nodes = persistent(1, copies=1)
    nodes.make_group(0, attempts_max=1, on_dead="drop", lease_s=10.0)
    nodes.make_group(0, "other")
    nodes.put(0, FEW[:1])
    nodes.wait(1)
    nodes.take(0)
    nodes.wait(9.5)
    other = next(each for each in nodes[0].groups() if each.name == "other")
    nodes[0].make_group(other.deleted(nodes.now_us), nodes.now_us)
    nodes.collect()
    nodes.is_writing_by_hand = True
    nodes.now_us += SECOND_US
    nodes[0].tick(nodes.now_us)
    assert nodes[0].known("work")[StreamId(*nodes.refs[0])].done
    assert nodes[0].copies.messages_count == 1
    write_no_more_by_hand(nodes)
    assert nodes[0].copies.messages_count == 0


def test_at_most_once_is_not_lost_where_it_cannot_be_written_that_it_is_handed_out():
    nodes = by_hand(1, copies=1)
    nodes.make_group(0, delivery="at-most-once")
    nodes.put(0, FEW)
    nodes.collect()
    nodes.write(0)
    request = LeaseRequest("work", nodes.join(0), 5, 1 << 24, 0.0)
    for number in range(4):
        nodes[0].serve("work", request, number, nodes.now_us)
        nodes.wait(1)  # the disk takes its time
        nodes.write(0, NO_ROOM)
        nodes.wait(1)
        assert nodes.answers.pop(number) is NO_ROOM
    nodes.is_writing_by_hand = False
    assert nodes.work(0) == FEW


def asked_once(nodes, token="asked"):
    """Have a member ask for what it gets at most once, and nothing written of that yet."""
    request = LeaseRequest("work", nodes.join(0), 5, 1 << 24, 0.0)
    nodes[0].serve("work", request, token, nodes.now_us)
    nodes.collect()


@pytest.fixture
def once():
    """Return nodes with a group that takes at most once, and which write by hand from now on."""
    nodes = persistent(3)
    nodes.make_group(0, delivery="at-most-once")
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.is_writing_by_hand = True
    return nodes


def write_no_more_by_hand(nodes):
    nodes.is_writing_by_hand = False
    nodes.wait(1)


def test_nobody_is_told_what_is_handed_out_at_most_once_before_it_is_written(once):
    asked_once(once)
    stream = once.results["put"].stream
    once[0].hear(once.refs[1], Difference(b"jobs", False, (("work", stream),)), once.now_us)
    once.settle()
    once.write(0, NO_ROOM)
    write_no_more_by_hand(once)
    assert not once[1].known("work").get(stream, NOTHING).done
    assert once.work(0) == FEW


def test_what_cannot_be_written_as_handed_out_at_most_once_comes_though_a_node_ends(once):
    asked_once(once)
    once.kill(2)
    once.collect()
    once.write(0, NO_ROOM)
    write_no_more_by_hand(once)
    stream = once.results["put"].stream
    assert not once[1].known("work").get(stream, NOTHING).done
    assert once.work(0) == FEW


def test_what_is_handed_out_at_most_once_is_kept_until_that_is_written():
    nodes = persistent(1, copies=1)
    nodes.make_group(0, delivery="at-most-once")
    nodes.put(0, FEW)
    messages = nodes.take(0, 5)[1]
    nodes.is_writing_by_hand = True
    asked_once(nodes)
    nodes.wait(1)
    nodes.write(0, NO_ROOM)
    write_no_more_by_hand(nodes)
    assert messages + nodes.work(0) == FEW


def test_who_waits_gets_what_could_not_be_written_as_handed_out_to_another(once):
    asked_once(once)
    waits = LeaseRequest("work", once.join(0), 100, 1 << 24, 30.0)
    once[0].serve("work", waits, "first", once.now_us)
    once[0].serve("work", waits, "waits", once.now_us)
    once.collect()
    once.write(0, NO_ROOM)
    once.is_writing_by_hand = False
    once.collect()
    assert once.answers["waits"].found.count == 5


def test_what_could_not_be_written_as_handed_out_comes_though_the_group_has_other_options(once):
    asked_once(once)
    once.now_us += 1
    once.make_group(0, delivery="at-most-once", lease_s=7.0)
    once.write(0, NO_ROOM)
    write_no_more_by_hand(once)
    assert once.work(0) == FEW


def test_what_is_written_anew_while_something_is_handed_out_has_that_too(once, monkeypatch):
    asked_once(once)
    with monkeypatch.context() as patched:
        patched.setattr("poe.cluster.queue.log.LOG_BYTES_MIN", -(1 << 24))
        once[0].tick(once.now_us)
    write_no_more_by_hand(once)
    assert once.answers["asked"].found is not None
    stream = once.results["put"].stream
    done = once[0].known("work")[stream].done
    once.part(0, 1)
    once.part(0, 2)
    once.kill(0)
    once.restart(0)
    assert done
    assert once[0].known("work")[stream].done == done


def test_what_a_node_held_and_had_not_done_it_hands_out_again():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    lease, messages = nodes.take(0, 10)
    assert messages == FEW[:10]
    nodes.done(0, lease)
    assert nodes.take(0, 5)[1] == FEW[10:15]
    known = nodes[0].known("work")
    start_again(nodes, 0)
    assert nodes[0].known("work") == known
    assert nodes.work(0) == FEW[10:]
    start_again(nodes, 0)
    assert nodes.work(0) == []
    assert nodes[0].copies.messages_count == 0


def test_a_node_that_comes_back_asks_what_was_done_before_it_hands_out():
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.kill(0)
    nodes.settle()
    assert nodes.work(1) == FEW
    nodes.restart(0)
    assert nodes.take(0)[1] == []
    nodes.wait(2)
    assert nodes.take(0)[1] == []
    assert nodes[0].copies.messages_count == 0


def test_what_is_written_by_all_is_there_when_all_have_stopped():
    nodes = persistent(3)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    for number in range(3):
        nodes.kill(number)
    for number in range(3):
        nodes.restart(number)
    nodes.wait(3)
    assert sorted(nodes.work(0) + nodes.work(1) + nodes.work(2)) == sorted(FEW)


def test_a_disk_that_is_full_makes_a_node_no_holder_for_a_while_and_is_told():
    nodes = by_hand(3)
    nodes.put(0, FEW)
    nodes.collect()
    _, asked, _ = nodes.under_way[0]
    full = nodes.refs.index(asked)
    nodes.settle()
    nodes.write(0)
    nodes.write(full, error=NO_ROOM)
    nodes.settle()
    assert nodes[full].copies.messages_count == 0
    assert "log fails" in {event.kind for event in nodes.events}
    nodes.is_writing_by_hand = False
    nodes.settle()
    assert nodes.results["put"][:2] == ("ok", 2)
    nodes.put(full, FEW, "elsewhere", copies=1)
    nodes.settle()
    assert nodes.results["elsewhere"].state == "ok"
    assert nodes[full].copies.messages_count == 0
    nodes.now_us += 6 * SECOND_US
    nodes.put(full, FEW, "here", copies=1)
    nodes.settle()
    assert nodes[full].copies.messages_count == len(FEW)


def test_a_damaged_message_of_the_log_is_counted_and_told_and_the_rest_is_read():
    nodes = persistent(1, copies=1)
    nodes.put(0, FEW[:10], "first")
    nodes.put(0, FEW[10:], "second")
    nodes.settle()
    log = nodes.logs[nodes.refs[0].id]
    log[0] = log[0][0], log[0][1][:40]
    log.insert(0, (0, b""))
    start_again(nodes, 0)
    assert nodes[0].copies.messages_count == 10
    assert nodes[0].counters()["log damaged"] == 2
    assert [event.kind for event in nodes.events] == ["log damaged"] * 2


def test_pointers_of_a_new_life_are_of_another_stream():
    nodes = persistent(1, copies=1)
    nodes.put(0, FEW, "first")
    start_again(nodes, 0)
    nodes.put(0, FEW, "second")
    nodes.settle()
    assert nodes.results["first"].stream != nodes.results["second"].stream
    assert len(nodes[0].copies.streams()) == 2


def test_a_log_that_has_grown_is_written_anew_and_let_go_of():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    kept = [bytes([number]) * 50_000 for number in range(40)]
    nodes.put(0, kept, "kept")
    lease, _ = nodes.take(0)
    for number in range(100):
        nodes.put(0, [bytes(50_000)] * 5, number)
        nodes.work(0)
        nodes.wait(0.2)
    written = sum(len(message) for _, message in nodes.logs[nodes.refs[0].id])
    assert written < 15_000_000 < 100 * 250_000
    start_again(nodes, 0)
    assert nodes.work(0) == kept
    assert lease.id


def test_what_was_dropped_for_room_does_not_come_back():
    nodes = persistent(1, copies=1, messages_max=30, on_full="drop-oldest")
    nodes.put(0, FEW, "first")
    nodes.put(0, FEW, "second")
    start_again(nodes, 0)
    assert nodes[0].copies.messages_count == len(FEW)


def test_what_is_done_and_forgotten_everywhere_does_not_come_back_with_who_held_it():
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.put(1, FEW)
    nodes.settle()
    assert nodes.work(1) == FEW
    nodes.wait(1)
    start_again(nodes, 1)
    nodes.wait(60)
    assert not nodes[0].known("work")
    nodes.part(0, 1)
    start_again(nodes, 1)
    nodes.part(0, 1)
    nodes.wait(3)
    assert nodes.work(1) == []
    assert nodes[1].copies.messages_count == 0


def test_who_was_forgotten_and_comes_back_with_its_disk_has_its_stream_remembered():
    nodes = persistent(3, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    lease, messages = nodes.take(0, limit=1)
    nodes.done(0, lease)
    nodes.wait(1)
    stream = nodes.results["put"].stream
    nodes.kill(0)
    for number in (1, 2):
        nodes[number].forget(nodes.refs[0].id, nodes.now_us)
    nodes.wait(60)
    assert stream not in nodes[1].known("work")
    nodes.restart(0)
    nodes.wait(20)
    for number in (1, 2):
        assert nodes[number].known("work") == nodes[0].known("work")
    nodes[0].record = nodes[0].record._replace(copies=2)
    nodes.wait(120)
    nodes.kill(0)
    assert messages + nodes.work(1) + nodes.work(2) == FEW


def test_nothing_is_let_go_before_all_is_written_anew_though_a_write_failed_meanwhile(monkeypatch):
    monkeypatch.setattr("poe.cluster.queue.log.LOG_BYTES_MIN", 100)
    monkeypatch.setattr("poe.cluster.queue.log.CHUNK_BYTES", 1)
    effects = []

    def emit(effect):
        if isinstance(effect, Write | Trim):
            effects.append(effect)

    writer = LogWriter(emit, is_there=True)
    held = [Dropped(StreamId(*node_ref(1)), ((number, number + 1),)) for number in range(1, 8, 2)]
    for _ in range(2):
        for _ in range(10):
            writer.write(held[0])
        writer.compact(0, lambda: held, 1)
        writer.write_failed(1, NO_ROOM, 1)  # the snapshot ends, but for what of it is under way
    for _ in range(10):
        writer.write(held[0])
    writer.compact(0, lambda: held, 1)
    while isinstance(effects[0], Write):
        writer.written(effects.pop(0).number, 1)
        assert len({type(each) for each in effects}) == 1  # nothing to write is left at a trim


def test_whatever_waits_for_one_message_is_done_when_that_is_written():
    """A disk stands still for minutes; others say meanwhile what they have done."""
    heard, waiting = [], 2000
    writer = LogWriter(lambda _: None, is_there=True)
    writer.write(Dropped(StreamId(*node_ref(1)), ((0, 1),)), lambda *_: heard.append(-1))
    for number in range(waiting):
        writer.when_written(lambda *_, number=number: heard.append(number), 1)
    assert heard == []
    writer.written(1, 2)
    assert heard == list(range(-1, waiting))


def test_what_a_node_was_told_by_one_that_is_gone_it_knows_after_a_restart():
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.make_group(0, "other")
    nodes.put(0, FEW)
    nodes.wait(1)
    lease, _ = nodes.take(0, 5)
    assert nodes.take(0)[1] == FEW[5:]
    nodes.done(0, lease)
    nodes.wait(1)
    nodes.kill(0)
    known = nodes[1].known("work")
    start_again(nodes, 1)
    assert nodes[1].known("work") == known
    assert nodes.work(1) == FEW[5:]
    assert nodes.work(1, "other") == FEW


def test_what_a_node_was_told_it_writes_once_and_tells_nobody_again_though_links_flap():
    nodes = told_of_some(3, copies=3)
    nodes.is_writing_by_hand = True
    counts = []
    for _ in range(3):
        nodes.part(0, 1)
        nodes.collect()
        entries = [decode_entry(each.message) for each in nodes.writes[nodes.refs[1]]]
        counts.append(sum(len(each.done) for each in entries if isinstance(each, Known)))
        nodes.write(0)
        nodes.write(1)
        nodes.now_us += SECOND_US
        nodes[1].tick(nodes.now_us)
        nodes.collect()
        told = [decode(body) for sender, _, body in nodes.under_way if sender == nodes.refs[1]]
        known = [known for each in told if isinstance(each, News) for known in each.known]
        assert not any(each.done or each.granted for each in known)
        nodes.heal(0, 1)
        nodes.settle()
    assert counts == [1, 0, 0]


def test_what_a_node_was_told_it_writes_when_it_can():
    nodes = told_of_some(2)
    nodes.is_writing_by_hand = True
    nodes.part(0, 1)
    nodes.collect()
    nodes.write(1, NO_ROOM)
    nodes.is_writing_by_hand = False
    nodes.heal(0, 1)
    nodes.wait(6)
    nodes.kill(0)
    start_again(nodes, 1)
    assert nodes.work(1) == FEW[5:]


@pytest.mark.parametrize("restarts_count", [1, 2])
def test_who_was_there_before_may_have_handed_out_for_a_group_that_is_heard_of_only_later(
    restarts_count,
):
    nodes = persistent(2)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.kill(0)
    nodes.make_group(1)
    assert nodes.take(1)[1] == FEW
    nodes.kill(1)
    nodes.restart(0)
    nodes.wait(2)
    if restarts_count == 2:
        start_again(nodes, 0)
    nodes.make_group(0)
    assert nodes.take(0)[1] == FEW
    [row] = nodes[0].repeated("work")
    assert (row.certainty, row.nodes) == ("may", (nodes.refs[0], nodes.refs[1]))


def test_of_each_node_that_was_there_before_one_life_is_named_for_such_a_group():
    nodes = persistent(2, copies=1)
    nodes.put(0, FEW)
    for _ in range(3):
        nodes.wait(1)
        nodes.kill(1)
        nodes.restart(1)
    nodes.wait(1)
    nodes.kill(1)
    start_again(nodes, 0)
    nodes.make_group(0)
    assert nodes.take(0)[1] == FEW
    assert [row.nodes for row in nodes[0].repeated("work")] == [(nodes.refs[0], nodes.refs[1])]


def test_what_is_handed_out_is_told_when_it_is_written_and_not_before():
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.is_writing_by_hand = True
    member = nodes.join(0)
    request = LeaseRequest("work", member, 1000, 1 << 24, 0.0)
    nodes[0].serve("work", request, "asked", nodes.now_us)
    nodes.wait(20)
    assert "asked" not in nodes.answers
    assert not any(known.granted for known in nodes[1].known("work").values())
    nodes.kill(0)
    nodes.is_writing_by_hand = False
    assert nodes.work(1) == FEW
    assert "certain" not in {each.certainty for each in nodes[1].repeated("work")}


def test_what_was_to_be_handed_out_and_could_not_be_written_was_not():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.is_writing_by_hand = True
    request = LeaseRequest("work", nodes.join(0), 1000, 1 << 24, 0.0)
    nodes[0].serve("work", request, "asked", nodes.now_us)
    nodes.collect()
    nodes.write(0, NO_ROOM)
    nodes.collect()
    assert nodes.answers["asked"] is NO_ROOM
    assert not any(known.granted for known in nodes[0].known("work").values())


def test_what_was_to_be_handed_out_when_a_queue_crashed_was_not():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.is_writing_by_hand = True
    request = LeaseRequest("work", nodes.join(0), 1000, 1 << 24, 0.0)
    nodes[0].serve("work", request, "asked", nodes.now_us)
    nodes.collect()
    nodes.writes.clear()
    nodes.crash(0)
    nodes.is_writing_by_hand = False
    nodes.wait(2)
    assert nodes.work(0) == FEW
    assert not list(nodes[0].repeated("work"))


def test_what_outlives_a_crash_is_held_once_more_by_the_log_and_nothing_besides():
    nodes = persistent(1, copies=1, messages_max=30, on_full="drop-oldest")
    nodes.put(0, FEW, "first")
    nodes.settle()
    nodes.is_writing_by_hand = True
    nodes.put(0, FEW, "second")
    nodes.collect()
    nodes.writes.clear()
    nodes.crash(0)
    assert nodes[0].copies.messages_count == len(FEW)
    nodes.collect()
    nodes.is_writing_by_hand = False
    held = [(each, list(nodes[0].copies.held(each))) for each in nodes[0].copies.streams()]
    start_again(nodes, 0)
    assert [(each, list(nodes[0].copies.held(each))) for each in nodes[0].copies.streams()] == held


def test_a_group_that_was_not_written_when_a_queue_crashed_is_written_then():
    nodes = by_hand(1, copies=1)
    nodes.make_group(0)
    nodes.writes.clear()
    nodes.crash(0)
    nodes.is_writing_by_hand = False
    nodes.put(0, FEW)
    nodes.wait(2)
    assert nodes.work(0) == FEW
    start_again(nodes, 0)
    assert [each.name for each in nodes[0].groups()] == ["work"]
    assert nodes.work(0) == []


def test_what_comes_soon_after_a_crash_is_not_handed_out_before_what_was_there():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW[:10], "first")
    nodes.wait(1)
    nodes.crash(0)
    nodes.put(0, FEW[10:], "second")
    nodes.wait(0.5)
    assert nodes.take(0)[1] == []
    nodes.wait(1)
    assert nodes.work(0) == FEW


def test_what_is_put_soon_after_a_restart_is_handed_out_at_once():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW[:10], "first")
    nodes.wait(1)
    nodes.kill(0)
    nodes.restart(0)
    nodes.put(0, FEW[10:], "second")
    nodes.wait(0.1)
    assert nodes.work(0) == FEW[10:]
    nodes.wait(1)
    assert nodes.work(0) == FEW[:10]


def test_what_was_lent_to_a_life_that_is_over_is_named_by_who_comes_back_from_its_log():
    nodes = persistent(2, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    member = nodes.join(1)
    request = LeaseRequest("work", member, 5, 1 << 24, 0.5)
    nodes[1].serve("work", request, "asked", nodes.now_us)
    nodes.wait(0.4)
    assert nodes.answers["asked"].found is not None
    nodes.lose()
    nodes.kill(0)
    nodes.kill(1)
    nodes.restart(0)
    nodes.wait(2)
    assert nodes.work(0) == FEW
    assert "may" in {each.certainty for each in nodes[0].repeated("work")}


def test_a_pause_outlives_the_process_and_is_answered_when_it_is_written():
    nodes = by_hand(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.write(0)
    nodes[0].serve("work", GroupRequest("group_pause", {}), "paused", nodes.now_us)
    nodes.collect()
    assert "paused" not in nodes.answers
    nodes.write(0)
    nodes.collect()
    assert nodes.answers["paused"] is None
    nodes.is_writing_by_hand = False
    for _ in range(2):
        start_again(nodes, 0)
        assert nodes.take(0)[1] == []
        for number in range(2):
            nodes.put(0, [bytes(3 << 20)], number)  # by the second time it is written anew
            nodes.wait(1)
            del nodes.results[number]
    nodes.ask(0, GroupRequest("group_resume", {}))
    start_again(nodes, 0)
    assert nodes.take(0, len(FEW))[1] == FEW


def answers_to(nodes, number):
    """Return what a node has told of copies that it was sent, as far as nobody has heard it."""
    frames = [decode(body) for sender, _, body in nodes.under_way if sender == nodes.refs[number]]
    return [each.outcome for each in frames if isinstance(each, Stored)]


@pytest.mark.parametrize(("error", "outcome"), [(None, "held"), (NO_ROOM, "failed")])
def test_a_copy_of_what_is_done_counts_when_that_is_written(error, outcome):
    nodes = persistent(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.collect()
    [(sender, _, body)] = [each for each in nodes.under_way if isinstance(decode(each[2]), Store)]
    nodes.wait(2)
    nodes.kill(0)
    lease, messages = nodes.take(1)
    assert messages == FEW
    nodes.is_writing_by_hand = True
    acknowledged = nodes.acknowledgement(nodes.join(1), lease)
    nodes[1].serve("work", acknowledged, "done", nodes.now_us)
    nodes[1].hear(sender, decode(body), nodes.now_us)
    nodes.collect()
    assert answers_to(nodes, 1) == []
    nodes.write(1, error)
    nodes.collect()
    assert answers_to(nodes, 1) == [outcome]


def test_what_is_dropped_while_all_is_written_anew_does_not_come_back():
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    large = [bytes([number]) * (1 << 20) for number in range(12)]
    for each in large:
        nodes.put(0, [each], each[:1])
    nodes.wait(1)
    for _ in range(9):
        nodes.done(0, nodes.take(0, 1)[0])
    lease, messages = nodes.take(0, 3)
    assert messages == large[9:]
    nodes.is_writing_by_hand = True
    nodes.wait(0.2)
    entries = [decode_entry(each.message) for each in nodes.writes[nodes.refs[0]]]
    assert any(isinstance(each, Kept) for each in entries)
    member = nodes.join(0)
    nodes[0].serve("work", nodes.acknowledgement(member, lease), "done", nodes.now_us)
    nodes.wait(0.2)
    while nodes.writes:
        nodes.write(0)
        nodes.collect()
    assert nodes[0].copies.messages_count == 0
    nodes.is_writing_by_hand = False
    assert min(number for number, _ in nodes.logs[nodes.refs[0].id]) > 1
    nodes.kill(0)
    nodes.restart(0)
    assert nodes[0].copies.messages_count == 0


def test_however_much_is_known_it_is_written_anew_in_messages_that_a_topic_takes(monkeypatch):
    monkeypatch.setattr("poe.cluster.frames.KNOWN_RANGES_MAX", 400)
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    ranges = tuple((2 * number, 2 * number + 1) for number in range(2000))
    known = Known("work", StreamId(node_ref(9).id, 1), ranges, ((node_ref(9), ranges),), ())
    told = News(b"jobs", 1, 0, 0, (), (known,), ())
    nodes[0].hear(node_ref(9), told, nodes.now_us)
    for number in range(2):
        nodes.put(0, [bytes(3 << 20)], number)
        nodes.done(0, nodes.take(0)[0])
        nodes.wait(1)
    log = nodes.logs[nodes.refs[0].id]
    assert log[0][0] > 1
    assert max(len(message) for _, message in log) < 20 * 400
    nodes.kill(0)
    nodes.restart(0)
    assert nodes[0].known("work")[known.stream] == known


def entries_of(count):
    stream = StreamId(b"a" * 8, 1)
    return [
        Kept(stream, Batch.encode([bytes(CHUNK_BYTES // 2)], number, number + 1))
        for number in range(count)
    ]


def test_what_is_known_is_not_written_anew_for_its_own_size():
    compaction = Compaction()
    compaction.wrote(LOG_BYTES_MIN + 1)
    assert compaction.is_due(0)
    ends = range(1 << 40, (1 << 40) + 600_000, 2)
    known = Known("work", StreamId(b"a" * 8, 1), tuple((end, end + 1) for end in ends), (), ())
    compaction.begin(parts_of(known), 1)
    while messages := compaction.take_chunk():
        for message in messages:
            compaction.wrote(len(message))
    compaction.end()
    assert not compaction.is_due(0)
    compaction.wrote(3 * LOG_BYTES_MIN)
    assert compaction.is_due(0)


def test_all_is_written_anew_in_parts_before_anything_is_let_go_of():
    compaction, entries = Compaction(), entries_of(5)
    compaction.begin(entries, 7)
    written = []
    while messages := compaction.take_chunk():
        written.append(list(map(decode_entry, messages)))
    assert [len(part) for part in written] == [2, 2, 1]
    assert list(chain.from_iterable(written)) == entries
    assert compaction.end() == 7


def test_nothing_is_let_go_of_where_one_message_of_many_could_not_be_written_anew():
    compaction = Compaction()
    compaction.begin(entries_of(5), 7)
    assert compaction.take_chunk()
    compaction.fail()
    assert compaction.take_chunk() == []
    assert compaction.end() is None


def test_a_log_that_tells_of_more_than_there_may_be_is_read_as_far_as_there_is_room(monkeypatch):
    nodes = persistent(1, copies=1)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    monkeypatch.setattr("poe.cluster.queue.knowledge.STREAMS_MAX", 4)
    log = nodes.logs[nodes.refs[0].id]
    for epoch in range(6):
        stream = StreamId(b"stranger", epoch)
        log.append((0, encode_entry(Known("work", stream, ((0, 5),), (), ()))))
    start_again(nodes, 0)
    assert nodes.work(0) == FEW
