"""Groups of whole queues: put at one node, worked on at another, done at all."""

import random
import tracemalloc

import pytest

from poe.broker.groups.membership import MemberInfo
from poe.broker.requests.groups import GroupRequest
from poe.cluster.identity import StreamId
from poe.cluster.queue.group_share import LeasedCopies
from poe.cluster.queue.queue import GROUPS_MAX, BestEffortQueue
from poe.cluster.queue_record import GroupRecord
from poe.errors import GroupFull
from poe.protocol.leases import Done, LeaseRequest
from poe.storage.formats.record import decode_records
from tests.cluster.queue.wired import Wired

MEMBER = b"m" * 16


class Grouped(Wired):
    """Nodes with a group, and a member at each that asks."""

    def __init__(self, count, delivery="at-least-once", **properties):
        super().__init__(count, **properties)
        self.asked_count = 0
        record = GroupRecord(b"jobs", "workers", {"delivery": delivery}, 1, self.refs[0].id)
        self[0].make_group(record, self.now_us)
        self.settle()
        self.wait(0.2)
        for number in range(count):
            assert [each.name for each in self[number].groups()] == ["workers"]
            self.say(number, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))

    def say(self, number, request):
        self.asked_count += 1
        token = self.asked_count
        self[number].serve("workers", request, token, self.now_us)
        self.settle()
        return token

    def lease(self, number, limit=100, wait_s=1.0, done=()):
        return self.say(number, LeaseRequest("workers", MEMBER, limit, 1 << 20, wait_s, done))

    def got(self, token):
        """Return the lease and the messages that came."""
        answer = self.answers.pop(token)
        assert isinstance(answer, LeasedCopies)
        lease, found = answer
        return lease, [] if found is None else [each for _, each in decode_records(found.records)]


def test_what_is_put_at_one_node_is_worked_on_at_another_and_done_at_all():
    nodes = Grouped(3)
    token = nodes.lease(2)
    nodes.wait(0.1)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    lease, messages = nodes.got(token)
    assert messages == [b"one", b"two"]
    told = nodes.lease(2, 0, done=[Done(lease.id)])
    assert nodes.got(told)[0].lost == ()
    nodes.wait(1)
    stream = StreamId(*nodes.refs[0])
    assert [len(queue.copies.held(stream)) for queue in nodes.queues.values()] == [0, 0, 0]


def test_the_origin_hands_out_while_it_is_there_and_another_holder_when_it_is_gone():
    nodes = Grouped(2)
    nodes.put(0, [b"one", b"two", b"three"])
    nodes.settle()
    assert nodes.got(nodes.lease(0, 1))[1] == [b"one"]
    assert nodes.got(nodes.lease(1, wait_s=0))[1] == []
    nodes.part(0, 1)
    nodes.settle()
    assert nodes.got(nodes.lease(1))[1] == [b"one", b"two", b"three"]
    assert nodes.got(nodes.lease(0))[1] == [b"two", b"three"]


def test_both_sides_of_a_split_hand_out_and_what_one_has_done_is_done():
    nodes = Grouped(2)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.part(0, 1)
    lease, _ = nodes.got(nodes.lease(1))
    nodes.lease(1, 0, done=[Done(lease.id)])
    nodes.heal(0, 1)
    nodes.wait(1)
    assert nodes.got(nodes.lease(0, wait_s=0))[1] == []


def crash(nodes, number):
    """Have a node's queue begin anew with its copies, and what goes with them, and nothing else."""
    ref, old = nodes.refs[number], nodes[number]
    nodes.queues[ref] = BestEffortQueue(
        old.record, ref, "", nodes.now_us, random.Random(7), old.copies
    )
    for other in nodes.refs:
        if other != ref:
            nodes.up(ref, other)
    nodes.wait(2)


def test_what_was_handed_out_before_a_crash_and_is_again_is_named():
    nodes = Grouped(2)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.cut.add(frozenset(nodes.refs))
    nodes.lease(0, 1)
    nodes.lose()
    nodes.cut.clear()
    crash(nodes, 0)
    nodes.say(0, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))
    assert nodes.got(nodes.lease(0))[1] == [b"one", b"two"]
    [row] = nodes[0].report()
    assert (row["group"], row["certainty"], row["cause"]) == ("workers", "again", "restarted")
    assert (row["after"], row["last"]) == (0, nodes.results["put"].first)


def test_what_a_lone_node_has_done_is_done_though_the_queue_crashes():
    nodes = Grouped(1, copies=1)
    nodes.put(0, [b"one", b"two"])
    lease, _ = nodes.got(nodes.lease(0, 1))
    nodes.lease(0, 0, done=[Done(lease.id)])
    crash(nodes, 0)
    nodes.say(0, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))
    assert nodes.got(nodes.lease(0))[1] == [b"two"]


def test_at_most_once_is_at_most_once_though_the_queue_crashes():
    nodes = Grouped(2, delivery="at-most-once")
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.cut.add(frozenset(nodes.refs))
    assert nodes.got(nodes.lease(0, 1))[1] == [b"one"]
    nodes.lose()
    nodes.cut.clear()
    crash(nodes, 0)
    nodes.say(0, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))
    nodes.wait(20)
    nodes.put(0, [b"three"], token="later")
    nodes.say(0, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))
    assert nodes.got(nodes.lease(0))[1] == [b"two", b"three"]


def test_at_most_once_is_handed_out_by_no_later_life_of_its_origin_and_kept_by_nobody():
    nodes = Grouped(3, delivery="at-most-once", copies=3)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.cut = {frozenset((nodes.refs[0], other)) for other in nodes.refs[1:]}
    assert nodes.got(nodes.lease(0, 1))[1] == [b"one"]
    nodes.lose()
    nodes.kill(0)
    nodes.cut.clear()
    nodes.wait(60)
    assert nodes[1].copies.messages_count == 2
    nodes.restart(0)
    nodes.wait(60)
    for number in range(3):
        nodes.say(number, GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)}))
        assert nodes.got(nodes.lease(number, wait_s=0))[1] == []
        assert nodes[number].copies.messages_count == 0


def test_at_most_once_is_not_kept_for_an_origin_that_has_dropped_it_already():
    nodes = Grouped(2)
    nodes.put(0, [b"one"])
    nodes.settle()
    record = GroupRecord(b"jobs", "once", {"delivery": "at-most-once"}, nodes.now_us, b"x" * 8)
    nodes[1].make_group(record, nodes.now_us)
    nodes.lose()
    lease, _ = nodes.got(nodes.lease(0))
    nodes.lease(0, 0, done=[Done(lease.id)])
    nodes.wait(60)
    assert nodes[0].copies.messages_count == nodes[1].copies.messages_count == 0
    assert len(nodes[0].groups()) == 2


def test_who_was_gone_before_a_group_was_heard_of_may_have_handed_out_what_it_holds():
    nodes = Wired(2)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.part(0, 1)
    nodes[0].make_group(GroupRecord(b"jobs", "workers", {}, 1, nodes.refs[1].id), nodes.now_us)
    join = GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)})
    nodes[0].serve("workers", join, "join", nodes.now_us)
    request = LeaseRequest("workers", MEMBER, 100, 1 << 20)
    nodes[0].serve("workers", request, "lease", nodes.now_us)
    assert [(row["certainty"], row["cause"]) for row in nodes[0].report()] == [("may", "unheard")]


def test_after_a_crash_anybody_may_have_handed_out_what_has_outlived_it():
    nodes = Wired(2)
    nodes.put(0, [b"one", b"two"])
    nodes.settle()
    nodes.part(0, 1)
    old = nodes[0]
    queue = BestEffortQueue(
        old.record, nodes.refs[0], "", nodes.now_us, random.Random(7), old.copies
    )
    queue.make_group(GroupRecord(b"jobs", "workers", {}, 1, nodes.refs[1].id), nodes.now_us)
    join = GroupRequest("group_join", {"info": MemberInfo(id=MEMBER)})
    queue.serve("workers", join, "join", nodes.now_us)
    queue.serve("workers", LeaseRequest("workers", MEMBER, 100, 1 << 20), "lease", nodes.now_us)
    [row] = queue.report()
    assert (row["certainty"], row["nodes"][1]) == ("may", "0000000000000000.0")


def test_who_waits_is_answered_at_once_when_the_node_is_about_to_stop():
    nodes = Wired(1, copies=1)
    nodes.make_group(0)
    request = LeaseRequest("work", nodes.join(0), 1, 1 << 20, 10.0)
    nodes[0].serve("work", request, "waits", nodes.now_us)
    nodes.collect()
    assert "waits" not in nodes.answers
    nodes[0].release_waiting(nodes.now_us)
    nodes.collect()
    answer = nodes.answers["waits"]
    assert isinstance(answer, LeasedCopies)
    assert answer.found is None


def deleted(name, at_us):
    return GroupRecord(b"jobs", name, {}, 1, b"a" * 8, deleted_us=at_us)


@pytest.mark.parametrize("number", [0, 1], ids=["here", "elsewhere"])
def test_who_waits_at_a_group_that_is_deleted_waits_no_more(number):
    nodes = Grouped(2)
    token = nodes.lease(number, wait_s=60.0)
    assert token not in nodes.answers
    nodes[0].make_group(deleted("workers", nodes.now_us), nodes.now_us)
    nodes.settle()
    nodes.wait(3)
    _, messages = nodes.got(token)
    assert messages == []


def test_a_group_that_a_clock_ahead_has_deleted_can_be_made_anew_at_once():
    nodes = Wired(2)
    nodes.make_group(0)
    [group] = nodes[0].groups()
    nodes[0].make_group(group.deleted(nodes.now_us + 5_000_000), nodes.now_us)
    nodes.wait(1)
    assert nodes[1].groups() == []
    record = GroupRecord(b"jobs", "work", {}, nodes.now_us, nodes.refs[1].id)
    held = nodes[1].make_group(record, nodes.now_us)
    nodes.wait(1)
    assert [each.groups() for each in nodes.queues.values()] == [[held], [held]]


def make_anew_while_away(nodes):
    """Have a group deleted and made anew at a node while the other one is not there."""
    nodes.part(0, 1)
    [group] = [each for each in nodes[0].groups() if each.name == "work"]
    nodes[0].make_group(group.deleted(nodes.now_us), nodes.now_us)
    nodes.wait(1)
    nodes.make_group(0)


def test_what_a_former_group_had_done_is_not_done_in_one_that_was_made_anew():
    nodes = Wired(2, persist=True)
    nodes.make_group(0)
    nodes.make_group(0, "other")
    nodes.put(0, [b"one", b"two"])
    nodes.wait(1)
    assert nodes.work(0) == [b"one", b"two"]
    nodes.wait(1)
    make_anew_while_away(nodes)
    nodes.wait(1)
    nodes.kill(0)
    nodes.cut.clear()
    nodes.restart(0)
    nodes.wait(2)
    assert nodes.work(0) + nodes.work(1) == [b"one", b"two"]
    nodes.wait(20)
    assert nodes[0].known("work") == nodes[1].known("work")


def test_the_pause_of_a_former_group_is_none_of_one_that_was_made_anew():
    nodes = Wired(2)
    nodes.make_group(0)
    nodes.put(0, [b"one", b"two"])
    nodes.wait(1)
    nodes.ask(1, GroupRequest("group_pause", {}))
    nodes.wait(1)
    make_anew_while_away(nodes)
    nodes.heal(0, 1)
    nodes.wait(1)
    assert nodes.take(0, limit=1)[1] == [b"one"]
    nodes.ask(1, GroupRequest("group_pause", {}))
    nodes.wait(1)
    assert nodes.take(0)[1] == []
    nodes.ask(0, GroupRequest("group_resume", {}))
    assert nodes.take(0)[1] == [b"two"]


@pytest.mark.slow
def test_groups_that_are_deleted_leave_room_for_others():
    nodes = Wired(1)
    for number in range(GROUPS_MAX + 3):
        nodes.make_group(0, f"g{number}")
        nodes[0].make_group(deleted(f"g{number}", nodes.now_us + number), nodes.now_us)
    assert len(nodes[0].copies.groups) == GROUPS_MAX
    # Or nodes that know of others would tell each other for ever.
    nodes[0].make_group(deleted("older", nodes.now_us - 1), nodes.now_us)
    assert "older" not in nodes[0].copies.groups
    for number in range(GROUPS_MAX):
        nodes.make_group(0, f"living{number}")
    with pytest.raises(GroupFull):
        nodes.make_group(0, "more")
    assert len(nodes[0].groups()) == GROUPS_MAX


def test_the_groups_are_told_where_they_have_changed_and_not_at_each_lease():
    nodes = Wired(2)
    assert nodes[1].take_groups() is None
    nodes.make_group(0)
    assert [each.name for each in nodes[1].take_groups() or ()] == ["work"]
    nodes.put(1, [b"one"])
    nodes.settle()
    assert nodes.work(1) == [b"one"]
    assert nodes[1].take_groups() is None
    nodes[0].make_group(nodes[0].groups()[0].deleted(nodes.now_us), nodes.now_us)
    nodes.settle()
    assert nodes[1].take_groups() == []


def test_what_was_given_is_let_go_when_nobody_asks_for_it_again():
    nodes = Grouped(2, copies=1)
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        token = nodes.lease(1, limit=500)
        nodes.put(0, [bytes(1000)] * 500)
        nodes.wait(1)
        lease, messages = nodes.got(token)
        assert len(messages) == 500
        del messages
        nodes.got(nodes.lease(1, 0, done=[Done(lease.id)]))
        nodes.wait(60)
        assert tracemalloc.get_traced_memory()[0] - before_bytes < 200_000
    finally:
        tracemalloc.stop()
