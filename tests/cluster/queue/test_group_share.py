"""One node's part in a group: what it hands out of what it owns, and who waits."""

import pytest

from poe.cluster.frames import Known
from poe.errors import GroupFenced, GroupMismatch, OptionError, UnknownOption
from tests.cluster.queue.sharing import ITS, ME, MINE, OTHER, SECOND, Node, X, Y, pointers_of


def done_of(node, stream=MINE):
    return list(node.share.done(stream))


def test_what_is_put_is_leased_done_and_told():
    node = Node()
    node.hold(MINE, 0, 10)
    lease, pointers = node.take()
    assert pointers == list(range(1, 11))
    assert (lease.topic, lease.after, lease.last) == (b"jobs@0101010101010101.1", 0, 10)
    assert node.done(lease) == ()
    assert done_of(node) == [(0, 10)]
    [news] = node.share.knowledge.take_news()
    assert news == Known("workers", MINE, ((0, 10),), ((ME, ((0, 10),)),), ())
    assert node.done(lease) == (lease.id,)


def test_a_lease_is_of_several_puts_and_spans_no_gap():
    node = Node()
    node.hold(MINE, 0, 2)
    node.hold(MINE, 2, 2)
    node.hold(MINE, 5, 2)
    assert node.take()[1] == [1, 2, 3, 4]
    assert node.take()[1] == [6, 7]


def test_limits_cut_a_lease():
    node = Node()
    node.hold(MINE, 0, 10)
    assert node.take(X, 3)[1] == [1, 2, 3]
    assert node.take(Y, 3)[1] == [4, 5, 6]


def test_who_waits_is_answered_when_something_comes_the_first_first():
    node = Node()
    assert node.lease(X, wait_s=10.0, token="x") is None
    assert node.lease(Y, wait_s=10.0, token="y") is None
    node.hold(MINE, 0, 2)
    node.collect()
    assert pointers_of(node.answers.pop("x")) == [1, 2]
    node.sleep(2)
    assert node.answers.pop("y").found is None
    assert not node.answers


def test_who_is_gone_is_handed_nothing():
    node = Node()
    node.lease(X, wait_s=10.0, token="x")
    node.share.cancel("x")
    node.hold(MINE, 0, 2)
    assert node.answers == {}
    leased = node.lease(Y)
    node.share.undelivered(leased.lease, node.now_us)
    assert node.take(X)[1] == [1, 2]


def test_who_has_gone_while_it_waited_is_handed_nothing_and_the_next_one_is():
    node = Node()
    node.lease(X, wait_s=10.0, token="x")
    node.lease(Y, wait_s=10.0, token="y")
    node.gone.add("x")
    node.hold(MINE, 0, 2)
    node.collect()
    assert pointers_of(node.answers.pop("y")) == [1, 2]
    assert not node.answers
    assert not list(node.share.report())


def test_who_is_no_member_is_refused():
    node = Node(members=())
    node.hold(MINE, 0, 2)
    with pytest.raises(GroupFenced):
        node.take()
    node.join(X)
    assert node.take()[1] == [1, 2]


def test_a_member_that_waits_and_falls_silent_is_told_so():
    node = Node(session_s=1.0, members=(X,))
    node.lease(X, wait_s=2.0, token="x")
    node.sleep(1.5)
    node.sleep(0.6)
    assert isinstance(node.answers["x"], GroupFenced)


def test_what_has_expired_comes_again_and_its_cause_is_kept():
    node = Node(lease_s=5)
    node.hold(MINE, 0, 2)
    lease, _ = node.take(X)
    node.sleep(6)
    assert node.take(Y)[1] == [1]
    assert node.done(lease) == (lease.id,)
    [again] = node.share.knowledge.known(MINE).again
    assert (again.cause, again.node, again.other) == ("lease expired", ME, ME)
    assert (again.since_us, again.ranges) == (node.now_us, ((0, 1),))


@pytest.mark.parametrize(("verdict", "cause"), [("release", "released"), ("retry", "retried")])
def test_what_was_given_back_comes_again_and_its_cause_is_kept(verdict, cause):
    node = Node()
    node.hold(MINE, 0, 2)
    node.said(node.take()[0], verdict)
    assert node.take(Y)[1] == [1, 2]
    assert [each.cause for each in node.share.knowledge.known(MINE).again] == [cause]


def test_what_is_not_owned_any_more_is_not_handed_out():
    node = Node()
    node.hold(MINE, 0, 10)
    held, _ = node.take(X, 4)
    node.share.set_owned(MINE, [(0, 2), (8, 10)], node.now_us)
    assert node.take()[1] == [9, 10]
    node.said(held, "release")
    assert node.take()[1] == [1, 2]
    assert node.lease().found is None
    node.share.set_owned(MINE, [(0, 10)], node.now_us)
    assert node.take()[1] == [3, 4, 5, 6, 7, 8]


def test_what_is_taken_over_is_handed_out_and_named_if_it_was_before():
    node = Node()
    node.share.learn(Known("workers", ITS, ((0, 2),), ((OTHER, ((0, 6),)),), ()), node.now_us)
    node.hold(ITS, 0, 10)
    assert node.take()[1] == [3, 4, 5, 6, 7, 8, 9, 10]
    [again] = node.share.knowledge.known(ITS).again
    assert again[:3] == ("taken over", ME, OTHER)
    assert again.ranges == ((2, 6),)


def test_what_is_done_elsewhere_is_not_handed_out():
    node = Node()
    node.hold(MINE, 0, 10)
    held, _ = node.take(X, 4)
    node.share.learn(Known("workers", MINE, ((0, 6),), (), ()), node.now_us)
    assert node.take()[1] == [7, 8, 9, 10]
    assert node.done(held) == (held.id,)
    assert done_of(node) == [(0, 6)]


def test_what_is_owned_and_not_held_is_passed_over():
    node = Node()
    node.hold(MINE, 0, 10)
    node.copies.drop(MINE, 2, 4)
    node.copies.drop(MINE, 8, 10)
    assert node.take()[1] == [1, 2]
    assert node.take()[1] == [5, 6, 7, 8]
    assert node.lease().found is None
    assert done_of(node) == []


def test_a_dropped_range_that_comes_back_is_not_done():
    node = Node()
    node.hold(MINE, 0, 4)
    lease, _ = node.take()
    node.copies.drop(MINE, 0, 4)
    node.said(lease, "release")
    assert node.lease().found is None
    assert done_of(node) == []


def test_two_nodes_that_make_a_group_at_once_have_other_leases():
    one, other = Node(ME), Node(OTHER)
    leases = []
    for node in (one, other):
        node.hold(MINE, 0, 2)
        leases.append(node.take()[0].id)
    assert len(set(leases)) == 2


def test_a_pause_and_what_a_member_holds_and_extends():
    node = Node(lease_s=5)
    node.hold(MINE, 0, 4)
    lease, _ = node.take(X, 2)
    assert node.operate("group_extend", member=X, leases=[lease.id, 7], seconds=10.0) == [7]
    node.operate("group_pause")
    assert "paused" in node.lease(Y).lease.why
    node.sleep(6)
    node.operate("group_resume")
    assert node.take(Y)[1] == [3, 4]
    node.operate("group_leave", member=X)
    assert node.take(Y)[1] == [1, 2]


def test_a_group_tells_of_itself():
    node = Node()
    node.hold(MINE, 0, 4)
    node.take(X, 2)
    told = node.operate("group")
    assert told["delivery"] == "at-least-once"
    assert [member["messages"] for member in told["members"]] == [2, 0]
    assert told["streams"] == [
        {"stream": "0101010101010101.1", "done_ranges": 0, "granted_ranges": 1}
    ]


def test_what_no_group_of_a_queue_has_is_refused():
    node = Node()
    with pytest.raises(GroupMismatch):
        node.operate("group_commit")
    with pytest.raises(OptionError):
        Node(delivery="exactly-once")
    with pytest.raises(UnknownOption):
        Node(speed=3)


def test_a_stream_is_forgotten():
    node = Node()
    node.hold(MINE, 0, 4)
    node.done(node.take()[0])
    node.share.forget(MINE)
    assert list(node.share.knowledge.streams()) == []
    assert node.operate("group")["units"] == []


def test_at_most_once_is_done_when_it_is_handed_out():
    node = Node(delivery="at-most-once", lease_s=5)
    node.hold(MINE, 0, 4)
    lease, pointers = node.take(X, 2)
    assert pointers == [1, 2]
    assert done_of(node) == [(0, 2)]
    assert node.said(lease, "retry") == ()
    node.sleep(6)
    node.beat(Y)
    assert node.take(Y)[1] == [3, 4]
    assert node.lease().found is None


def test_at_most_once_is_handed_out_by_its_origin_alone():
    node = Node(delivery="at-most-once")
    node.hold(ITS, 0, 4)
    assert node.lease().found is None


def test_the_next_deadline_is_that_of_who_waits_or_holds():
    node = Node(lease_s=1, session_s=100)
    node.lease(X, wait_s=1.5, token="x")
    assert node.share.next_deadline_us() == node.now_us + 1.5 * SECOND
    node.hold(MINE, 0, 1)
    assert node.share.next_deadline_us() == node.now_us + SECOND
