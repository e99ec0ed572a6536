"""What nodes know of each other: who holds what, what is done, who hands out."""

import random

import pytest

from poe.broker.requests.groups import GroupRequest
from poe.cluster.frames import Difference, Known, News, decode
from poe.cluster.identity import StreamId
from poe.cluster.queue.group_share import LeasedCopies
from poe.cluster.queue.queue import BestEffortQueue
from poe.protocol.leases import Failed, LeaseRequest
from tests.cluster.queue.wired import SECOND_US, Wired, node_ref

FEW = [b"message %d" % number for number in range(20)]


def known_of(nodes, number):
    """Return all that a node knows of the group."""
    return nodes[number].known("work")


def agree(nodes):
    """See that all nodes think the same of who holds what, and that it is so."""
    seen = [queue.holders() for queue in nodes.queues.values()]
    assert seen[1:] == seen[:-1]
    for stream, there in seen[0].items():
        for node, ranges in there.items():
            if node in nodes.queues:
                assert list(nodes.queues[node].copies.held(stream)) == ranges


def test_all_know_who_holds_what_soon():
    nodes = Wired(4)
    for number in range(12):
        nodes.put(number % 4, FEW, number)
        nodes.wait(0.3)
    agree(nodes)


def test_what_was_lost_on_the_way_is_asked_for():
    nodes = Wired(3)
    for number in range(6):
        nodes.put(0, FEW, number, copies=1)
        nodes.now_us += SECOND_US
        nodes[0].tick(nodes.now_us)
        if number % 2:
            nodes.lose()
        nodes.settle()
    nodes.put(0, FEW, "last", copies=1)
    nodes.wait(1)
    agree(nodes)


def test_what_is_done_is_known_everywhere_at_once():
    nodes = Wired(3)
    nodes.make_group(1)
    nodes.put(0, FEW)
    nodes.settle()
    assert nodes.work(0) == FEW
    nodes.wait(0.01)
    assert known_of(nodes, 0)
    assert known_of(nodes, 0) == known_of(nodes, 1) == known_of(nodes, 2)


def test_a_node_that_was_cut_off_learns_what_it_missed_and_tells_what_it_has_done():
    nodes = Wired(3, copies=1)
    nodes.make_group(0)
    nodes.wait(1)
    for one, other in ((0, 1), (0, 2)):
        nodes.part(one, other)
    nodes.put(0, FEW, "cut off")
    nodes.put(1, FEW, "elsewhere")
    nodes.settle()
    assert nodes.work(0) == nodes.work(1) == FEW
    nodes.wait(1)
    assert known_of(nodes, 0) != known_of(nodes, 1) == known_of(nodes, 2)
    nodes.heal(0, 1)
    nodes.settle()
    assert known_of(nodes, 0) == known_of(nodes, 1)
    nodes.wait(21)  # nobody has told it node 2, but for the digests
    assert known_of(nodes, 1) == known_of(nodes, 2)
    agree(nodes)


def test_however_much_is_known_it_is_told_in_pieces_that_fit(monkeypatch):
    monkeypatch.setattr("poe.cluster.frames.KNOWN_RANGES_MAX", 400)
    nodes = Wired(2, copies=1)
    nodes.make_group(0)
    nodes.part(0, 1)
    ranges = tuple((2 * number, 2 * number + 1) for number in range(800))
    stream = StreamId(*nodes.refs[0])
    known = Known("work", stream, ranges, ((node_ref(9), ranges),), ())
    told = News(b"jobs", 1, 0, 0, (), (known,), ())
    nodes[0].hear(nodes.refs[1], told, nodes.now_us)
    nodes.heal(0, 1)
    asked = Difference(b"jobs", is_held_asked=False, known=(("work", stream),))
    sizes = []
    for _ in range(20):
        nodes.wait(10)
        nodes[0].hear(nodes.refs[1], asked, nodes.now_us)
        nodes.collect()
        sizes += [len(body) for *_, body in nodes.under_way]
    assert known_of(nodes, 0) == known_of(nodes, 1)
    assert max(sizes) < 20 * 400


def test_a_group_is_known_everywhere_also_where_a_node_was_away():
    nodes = Wired(3)
    nodes.part(0, 1)
    nodes.part(0, 2)
    nodes.make_group(1, "one")
    nodes.make_group(0, "two")
    nodes.heal(0, 1)
    nodes.heal(0, 2)
    nodes.settle()
    for number in range(3):
        assert {each.name for each in nodes[number].groups()} == {"one", "two"}


def lease_s_of(nodes, number):
    return nodes[number].describe()["groups"]["work"]["options"]["lease_s"]


def test_a_group_that_was_made_on_both_sides_of_a_split_has_the_same_options_everywhere():
    nodes = Wired(2, copies=1)
    nodes.part(0, 1)
    nodes.make_group(0, lease_s=5.0)
    nodes.now_us += 1
    nodes.make_group(1, lease_s=9.0)
    nodes.put(0, FEW)
    lease, messages = nodes.take(0, 10)
    nodes.done(0, lease)
    nodes.take(0, 5)
    before = known_of(nodes, 0)
    nodes.heal(0, 1)
    nodes.settle()
    assert [lease_s_of(nodes, number) for number in range(2)] == [9.0, 9.0]
    assert known_of(nodes, 0) == before
    nodes.wait(20)
    assert messages + nodes.work(0) == FEW
    nodes.wait(1)
    assert known_of(nodes, 0) == known_of(nodes, 1)


def test_who_waits_for_messages_of_a_group_whose_options_change_is_answered():
    nodes = Wired(2, copies=1)
    nodes.part(0, 1)
    nodes.make_group(0, lease_s=5.0)
    request = LeaseRequest("work", nodes.join(0), 10, 1 << 24, 5.0)
    nodes[0].serve("work", request, "asked", nodes.now_us)
    nodes.now_us += 1
    nodes.make_group(1, lease_s=9.0)
    nodes.heal(0, 1)
    nodes.settle()
    answer = nodes.answers["asked"]
    assert isinstance(answer, LeasedCopies)
    assert answer.found is None


def test_a_pause_outlives_a_change_of_options():
    nodes = Wired(2, copies=1)
    nodes.part(0, 1)
    nodes.make_group(0, lease_s=5.0)
    nodes.ask(0, GroupRequest("group_pause", {}))
    nodes.now_us += 1
    nodes.make_group(1, lease_s=9.0)
    nodes.heal(0, 1)
    nodes.settle()
    nodes.put(0, FEW)
    nodes.settle()
    assert lease_s_of(nodes, 0) == 9.0
    assert nodes.take(0)[1] == nodes.take(1)[1] == []


def pause(nodes, number, op="group_pause"):
    nodes.ask(number, GroupRequest(op, {}))


def test_a_pause_that_nobody_heard_is_told_again_and_so_is_its_end():
    nodes = Wired(2, copies=1)
    nodes.make_group(0)
    nodes.put(1, FEW)
    for op, messages in (("group_pause", []), ("group_resume", FEW)):
        pause(nodes, 0, op)
        nodes.lose()
        nodes.wait(21)
        assert nodes.take(1)[1] == messages


@pytest.mark.parametrize("count", [1, 2])
def test_a_pause_outlives_a_crash_of_the_queue(count):
    nodes = Wired(count, copies=1)
    nodes.make_group(0)
    pause(nodes, 0)
    nodes.put(0, FEW)
    nodes.settle()
    nodes.crash(0)
    nodes.wait(2)
    assert nodes.take(0)[1] == []
    pause(nodes, 0, "group_resume")
    assert nodes.take(0)[1] == FEW


def test_a_deleted_group_is_deleted_everywhere():
    nodes = Wired(2)
    nodes.make_group(0)
    record = nodes[0].groups()[0]
    nodes.now_us += 1
    nodes[1].make_group(record._replace(deleted_us=nodes.now_us), nodes.now_us)
    nodes.settle()
    assert not nodes[0].groups()
    assert not nodes[1].groups()


def test_the_origin_hands_out_and_nobody_else_while_it_is_there():
    nodes = Wired(3, copies=3)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    assert nodes.take(1)[1] == nodes.take(2)[1] == []
    assert nodes.take(0)[1] == FEW


def test_when_the_origin_dies_one_other_node_hands_out_what_is_not_done():
    nodes = Wired(4, copies=3)
    nodes.make_group(0)
    nodes.put(0, FEW[:10], "first")
    nodes.settle()
    nodes.work(0)
    nodes.put(0, FEW[10:], "second")
    nodes.wait(1)
    nodes.kill(0)
    nodes.settle()
    assert sorted(nodes.work(1) + nodes.work(2) + nodes.work(3)) == FEW[10:]
    nodes.wait(1)
    assert nodes.work(1) + nodes.work(2) + nodes.work(3) == []


def test_two_sides_of_a_split_both_hand_out_and_then_know_of_each_other():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.part(0, 1)
    assert nodes.work(0) == FEW
    assert nodes.work(1) == FEW
    nodes.heal(0, 1)
    nodes.settle()
    assert known_of(nodes, 0) == known_of(nodes, 1)
    (known,) = known_of(nodes, 0).values()
    assert len(known.granted) == 2


@pytest.mark.parametrize(("holder", "other"), [(1, 2), (2, 1)])
def test_who_is_back_is_asked_whether_it_holds_what_was_said_of_it(holder, other):
    nodes = Wired(3, copies=3)
    nodes.make_group(0)
    nodes.wait(1)
    nodes.cut.add(frozenset((nodes.refs[0], nodes.refs[other])))
    nodes.put(0, FEW)
    nodes.settle()
    nodes.part(holder, other)
    nodes.wait(5)
    nodes.kill(0)
    nodes.heal(holder, other)
    nodes.wait(5)
    assert nodes.work(holder) + nodes.work(other) == FEW


def test_after_a_heal_what_was_taken_over_is_the_origins_again():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.part(0, 1)
    nodes.heal(0, 1)
    nodes.settle()
    assert nodes.take(1)[1] == []
    assert nodes.take(0)[1] == FEW


def test_what_all_groups_have_done_is_dropped_by_all_who_hold_it():
    nodes = Wired(3)
    nodes.make_group(0, "one")
    nodes.make_group(1, "two")
    nodes.put(0, FEW)
    nodes.settle()
    nodes.work(0, "one")
    nodes.wait(1)
    assert sum(nodes[number].copies.messages_count for number in range(3)) == 2 * len(FEW)
    nodes.work(0, "two")
    nodes.wait(1)
    assert sum(nodes[number].copies.messages_count for number in range(3)) == 0
    agree(nodes)


def test_a_late_copy_of_what_is_done_is_not_kept():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.collect()
    late = [each for each in nodes.under_way if each[1] == nodes.refs[1]]
    nodes.settle()
    nodes.work(0)
    nodes.wait(1)
    nodes.under_way.extend(late)
    nodes.wait(1)
    assert nodes[1].copies.messages_count == 0


def test_a_new_group_begins_with_what_is_still_held():
    nodes = Wired(2)
    nodes.make_group(0, "one")
    nodes.put(0, FEW[:10], "first")
    nodes.settle()
    nodes.work(0, "one")
    nodes.wait(1)
    nodes.put(0, FEW[10:], "second")
    nodes.settle()
    nodes.make_group(1, "two")
    assert nodes.work(0, "two") == FEW[10:]


@pytest.mark.parametrize("wanted", [2, 3])
def test_what_is_on_too_few_nodes_is_copied_anew_after_a_while(wanted):
    nodes = Wired(5, copies=wanted)
    for number in range(40):
        nodes.put(0, FEW, number)
        nodes.wait(0.2)
    stream = nodes.results[0].stream
    lost = next(n for n in (1, 2, 3, 4) if nodes[n].copies.messages_count)
    held = 40 * len(FEW)
    nodes.kill(lost)
    nodes.wait(25)
    rest = [nodes[n] for n in range(5) if n != lost]
    assert sum(queue.copies.messages_count for queue in rest) < wanted * held
    nodes.wait(20)
    assert sum(queue.copies.messages_count for queue in rest) == wanted * held
    assert list(nodes[0].copies.held(stream)) == [(0, nodes.results[39].pointer)]
    agree(nodes)


def test_what_is_not_done_in_a_new_group_is_copied_anew_to_who_had_dropped_it():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.wait(1)
    nodes.part(0, 1)
    assert nodes.work(1) == FEW
    nodes.wait(1)
    nodes.make_group(0, "other")
    nodes.heal(0, 1)
    nodes.wait(60)
    nodes.kill(0)
    assert nodes.work(1, "other") == FEW


def test_what_is_done_is_not_copied_anew():
    nodes = Wired(3)
    nodes.make_group(0, "slow")
    nodes.make_group(0, "fast")
    nodes.put(0, FEW)
    nodes.settle()
    nodes.work(0, "fast")
    nodes.work(0, "slow")
    lost = next(n for n in (1, 2) if nodes[n].copies.messages_count)
    nodes.kill(lost)
    nodes.wait(60)
    assert nodes[3 - lost].copies.messages_count == 0


def test_a_node_that_comes_back_in_time_costs_no_copies():
    nodes = Wired(3)
    nodes.put(0, FEW)
    nodes.wait(1)
    other = next(n for n in (1, 2) if nodes[n].copies.messages_count)
    nodes.part(0, other)
    nodes.wait(20)
    nodes.heal(0, other)
    nodes.wait(60)
    assert nodes[3 - other].copies.messages_count == 0


def test_a_stream_is_forgotten_when_its_origin_lives_anew_and_all_know_that_it_is_done():
    nodes = Wired(3)
    nodes.make_group(0)
    nodes.put(0, FEW)
    nodes.settle()
    old = nodes.results["put"].stream
    nodes.work(0)
    nodes.wait(60)
    assert old in known_of(nodes, 1)
    nodes.kill(0)
    nodes.wait(60)
    assert old in known_of(nodes, 1)
    nodes.restart(0)
    nodes.put(0, FEW, "anew")
    nodes.wait(120)
    for number in range(3):
        assert old not in known_of(nodes, number)
    assert nodes.work(0) == FEW
    nodes.wait(60)
    assert known_of(nodes, 0) == known_of(nodes, 1) == known_of(nodes, 2)


def test_what_came_twice_of_a_stream_that_is_forgotten_is_told_though_the_queue_crashes():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, FEW)
    lease, _ = nodes.take(0)
    back = Failed(lease.id, lease.after, lease.last, "retry")
    nodes.ask(0, LeaseRequest("work", nodes.join(0), 0, 1 << 24, 0.0, failed=(back,)))
    nodes.wait(10)
    assert nodes.work(0) == FEW
    nodes.wait(1)
    nodes.kill(0)
    nodes.restart(0)
    nodes.wait(120)
    rows = nodes[1].report()
    assert rows
    assert not known_of(nodes, 1)
    nodes.crash(1)
    assert nodes[1].report() == rows


def test_a_stream_is_not_forgotten_while_it_is_not_known_what_others_hold_of_it():
    nodes = Wired(3)
    nodes.make_group(0)
    nodes.put(0, FEW, "done")
    nodes.settle()
    old = nodes.results["done"].stream
    nodes.work(0)
    nodes.put(0, FEW, "not done")
    nodes.wait(1)
    nodes.kill(0)
    nodes.wait(1)
    nodes.restart(0)
    for _ in range(60):
        nodes.collect()
        while nodes.under_way:
            sender, node, body = nodes.under_way.popleft()
            frame = decode(body)
            if not (isinstance(frame, News) and frame.held):
                nodes.queues[node].hear(sender, frame, nodes.now_us)
            nodes.collect()
        nodes.now_us += 1_000_000
        for queue in nodes.queues.values():
            queue.tick(nodes.now_us)
    nodes.wait(20)
    assert old in known_of(nodes, 0)
    assert sorted(nodes.work(0) + nodes.work(1) + nodes.work(2)) == sorted(FEW)


def test_a_new_node_that_knows_of_few_others_yet_forgets_no_stream():
    nodes = Wired(4)
    nodes.make_group(0)
    nodes.put(0, FEW, "done")
    nodes.settle()
    old = nodes.results["done"].stream
    nodes.work(0)
    nodes.put(0, FEW, "not done")
    nodes.wait(1)
    nodes.kill(0)
    nodes.wait(1)
    nodes.restart(0)
    others = range(1, 4)
    holder = next(number for number in others if nodes[number].copies.held(old))
    knows = next(number for number in others if number != holder)
    nodes.kill(next(number for number in others if number not in (holder, knows)))
    new = Wired(1).refs[0]._replace(id=b"new node")
    nodes.refs.append(new)
    nodes.queues[new] = queue = BestEffortQueue(
        nodes.record, new, "", nodes.now_us, random.Random(5)
    )
    for other in (nodes.refs[0], nodes.refs[knows]):
        nodes.up(new, other)
        nodes.up(other, new)
    nodes.wait(30)
    assert old in queue.known("work")
