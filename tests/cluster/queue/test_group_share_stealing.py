"""Nodes whose members wait are given messages by others, which they keep or hand back."""

from contextlib import suppress

import pytest

from poe.cluster.frames import Back, Given, Keep, Release, Revoked, Want, decode, encode
from poe.cluster.identity import StreamId
from poe.errors import RangeNotLeased, RemoteProtocolError
from tests.cluster.queue.sharing import MINE, Sharers, X, Y, pointers_of

Z = b"z" * 16


def hungry(nodes, number, member=Y, limit=10, token="waits"):
    """Have a member wait at a node, and that node ask the others."""
    assert nodes[number].lease(member, limit, wait_s=2.0, token=token) is None
    nodes.sleep(0.1)


def got(nodes, number, token="waits"):
    nodes.settle()
    return nodes[number].answers.pop(token)


def test_who_waits_is_given_what_others_hold():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 5)
    nodes[1].lease(Y, 3, wait_s=2.0)
    nodes.sleep(0.1)
    leased = got(nodes, 1, "token")
    assert pointers_of(leased) == [1, 2, 3]
    assert nodes[0].take(X)[1] == [4, 5]
    assert nodes[1].done(leased.lease, member=Y) == ()
    nodes.gossip()
    for node in nodes.nodes:
        assert list(node.share.done(MINE)) == [(0, 3)]
    nodes.sleep(60)
    nodes[0].join(X)
    assert nodes[0].take(X)[1] == [4]  # in halves: its member fell silent


def test_what_comes_while_others_wait_is_given_at_once_but_own_members_come_first():
    nodes = Sharers((X,), (Y,))
    hungry(nodes, 1)
    nodes[0].hold(MINE, 0, 2)
    assert pointers_of(got(nodes, 1)) == [1, 2]
    hungry(nodes, 1, token="there")
    nodes[0].lease(X, 10, wait_s=2.0, token="here")
    nodes[0].hold(MINE, 2, 2)
    assert pointers_of(got(nodes, 0, "here")) == [3, 4]
    assert "there" not in nodes[1].answers


def test_a_lost_answer_is_repeated_and_the_same():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 4)
    nodes.lost = {(nodes[0].ref, nodes[1].ref)}
    hungry(nodes, 1, limit=2)
    [(_, _, first)] = nodes.frames(Given)
    assert not nodes[1].answers
    nodes.lost.clear()
    nodes.sleep(0.5)
    assert pointers_of(got(nodes, 1)) == [1, 2]
    [(_, _, second)] = nodes.frames(Given)
    assert second == first


def test_an_answer_that_comes_twice_is_taken_once():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1)
    [(sender, _, given)] = nodes.frames(Given)
    leased = got(nodes, 1)
    nodes[1].said(leased.lease, "release", Y)
    nodes[1].operate("group_leave", member=Y)
    nodes.sleep(1.1)
    nodes[1].share.hear(sender, given, nodes[1].now_us)
    nodes[1].join(Z)
    assert nodes[0].take(X)[1] == [1, 2]
    assert nodes[1].lease(Z).found is None


def test_what_is_kept_for_long_does_not_expire_at_its_owner():
    nodes = Sharers((X,), (Y,), lease_s=3, session_s=60)
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1)
    lease = got(nodes, 1).lease
    for _ in range(6):
        nodes.sleep(2)
        assert nodes[1].operate("group_extend", member=Y, leases=[lease.id], seconds=3.0) == []
    assert nodes.frames(Keep)
    assert nodes[0].lease(X).found is None
    assert nodes[1].done(lease, member=Y) == ()
    nodes.gossip()
    nodes.sleep(5)
    assert nodes[0].lease(X).found is None
    assert nodes[0].share.knowledge.known(MINE).again == ()


def test_what_nobody_asks_for_is_handed_back():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 6)
    hungry(nodes, 1, limit=6, token="first")
    leased = got(nodes, 1, "first")
    nodes[1].said(leased.lease, "release", Y)
    nodes.sleep(2.5)
    assert nodes.frames(Release)
    assert nodes[0].take(X)[1] == [1, 2, 3, 4, 5, 6]


def test_what_failed_elsewhere_is_handed_back_as_failed():
    nodes = Sharers((X,), (Y,), retry_s=10, attempts_max=3)
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1)
    lease = got(nodes, 1).lease
    nodes[1].said(lease, "retry", Y)
    nodes[1].operate("group_leave", member=Y)
    nodes.sleep(3)
    lease, pointers = nodes[0].take(X)
    assert (lease.attempts, pointers) == (1, [1, 2])
    nodes.gossip()


def test_who_borrows_is_told_of_earlier_failures():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 2)
    nodes[0].said(nodes[0].take(X)[0], "retry")
    hungry(nodes, 1)
    assert got(nodes, 1).lease.attempts == 1


def test_what_a_node_has_that_is_gone_is_handed_out_again():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1)
    assert pointers_of(got(nodes, 1)) == [1, 2]
    nodes.gossip()
    nodes[0].share.peer_down(nodes[1].ref, nodes[0].now_us)
    lease, pointers = nodes[0].take(X)
    assert (pointers, lease.attempts) == ([1, 2], 0)
    again = nodes[0].share.knowledge.known(MINE).again[0]
    assert again[:3] == ("node lost", nodes[0].ref, nodes[1].ref)


def test_what_is_left_of_a_lost_owner_is_not_handed_out():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 4)
    hungry(nodes, 1, limit=4)
    leased = got(nodes, 1)
    nodes[1].said(leased.lease._replace(last=2), "release", Y)
    nodes.part(0, 1)
    assert nodes[1].lease(Y).found is None
    assert nodes[1].done(leased.lease, member=Y) == ()
    assert list(nodes[1].share.done(MINE)) == [(2, 4)]


def test_what_a_lost_owner_leaves_to_this_node_is_handed_out_by_it():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 4)
    nodes[1].copies.add(MINE, next(nodes[0].copies.batches(MINE, 0, 4)))
    hungry(nodes, 1, limit=4)
    leased = got(nodes, 1)
    nodes.part(0, 1)
    nodes[1].share.set_owned(MINE, [(0, 4)], nodes[1].now_us)
    nodes[1].said(leased.lease, "release", Y)
    assert nodes[1].take(Y)[1] == [1, 2, 3, 4]


def test_leases_that_their_owner_has_given_up_are_not_handed_out_any_more():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 4)
    hungry(nodes, 1, limit=4)
    leased = got(nodes, 1)
    nodes[1].said(leased.lease, "release", Y)
    nodes[0].share.peer_down(nodes[1].ref, nodes[0].now_us)  # which it does not know
    assert nodes[0].take(X)[1] == [1, 2, 3, 4]
    again = nodes[1].lease(Y)
    assert pointers_of(again) == [1, 2, 3, 4]  # it cannot know better yet
    nodes[1].said(again.lease, "release", Y)
    nodes.sleep(1.1)
    assert nodes.frames(Revoked)
    assert nodes[1].lease(Y).found is None


def test_what_is_borrowed_is_not_lent():
    nodes = Sharers((), (Y,), (Z,))
    nodes[0].hold(MINE, 0, 4)
    hungry(nodes, 1, limit=4)
    leased = got(nodes, 1)
    nodes[1].said(leased.lease, "release", Y)
    hungry(nodes, 2, member=Z)
    assert not nodes[2].answers
    nodes.sleep(2)
    assert "waits" in nodes[2].answers


def test_a_node_that_is_sated_says_so():
    nodes = Sharers((), (Y,), ())
    hungry(nodes, 1)
    nodes[0].hold(MINE, 0, 1)
    assert pointers_of(got(nodes, 1)) == [1]
    last = nodes.frames(Want)[-1]
    assert (last[1], last[2].limit) == (nodes[2].ref, 0)
    nodes[2].hold(StreamId(nodes[2].ref.id, 1), 0, 2)
    nodes.settle()
    assert not nodes.frames(Given)


def test_at_most_once_is_done_when_it_is_given_and_handed_out_once():
    nodes = Sharers((X,), (Y,), delivery="at-most-once")
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1, limit=1, token="first")
    assert pointers_of(got(nodes, 1, "first")) == [1]
    nodes[0].hold(MINE, 2, 2)
    hungry(nodes, 1, limit=4, token="more")
    nodes.gossip()
    assert pointers_of(got(nodes, 1, "more")) == [2, 3, 4]
    assert nodes[0].lease(X).found is None
    assert list(nodes[0].share.done(MINE)) == [(0, 4)]
    assert nodes[1].share.knowledge.known(MINE).granted == ((nodes[1].ref, ((0, 4),)),)


def test_at_most_once_survives_that_what_is_done_is_heard_before_it_is_handed_out():
    nodes = Sharers((X,), (Y,), delivery="at-most-once")
    nodes[0].hold(MINE, 0, 2)
    nodes.lost = {(nodes[0].ref, nodes[1].ref)}
    hungry(nodes, 1)
    for known in nodes[0].share.knowledge.take_news():
        nodes[1].share.learn(known, nodes[1].now_us)
    nodes.lost.clear()
    nodes.sleep(0.5)
    assert pointers_of(got(nodes, 1)) == [1, 2]


def test_a_pause_holds_on_all_nodes():
    nodes = Sharers((X,), (Y,), (Z,))
    nodes[0].operate("group_pause")
    nodes.settle()
    nodes[1].hold(MINE, 0, 2)
    assert "paused" in nodes[1].lease(Y).lease.why
    nodes[2].hold(StreamId(nodes[2].ref.id, 1), 0, 2)
    assert "paused" in nodes[2].lease(Z).lease.why
    nodes[2].operate("group_resume")
    nodes.settle()
    assert nodes[1].take(Y)[1] == [1, 2]


def test_frames_travel_and_what_is_none_is_refused():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 2)
    hungry(nodes, 1)
    for _, _, frame in nodes.told:
        assert decode(encode(frame)) == frame
    [(_, _, given)] = nodes.frames(Given)
    loan = given.loans[0]
    for wrong in (
        loan._replace(after=1),
        loan._replace(last=1),
        loan._replace(after=5),
        loan._replace(limit=0),
        loan._replace(lease=-1),
        loan._replace(reason=b"no"),
        loan._replace(batches=(loan.batches[0]._replace(messages_count=1),)),
    ):
        with pytest.raises(RemoteProtocolError):
            decode(encode(given._replace(loans=(wrong,))))


def test_what_a_node_hands_back_that_it_was_not_given_changes_nothing():
    nodes = Sharers((X,), (Y,))
    nodes[0].hold(MINE, 0, 4)
    hungry(nodes, 1, limit=2)
    [(_, _, given)] = nodes.frames(Given)
    for lease, last in ((7, 2), (given.loans[0].lease, 9)):
        back = Back(lease, 0, last, 0, None, 0, "")
        frame = Release(b"jobs", "workers", (back,))
        with suppress(RangeNotLeased):
            nodes[0].share.hear(nodes[1].ref, frame, nodes[0].now_us)
    assert nodes[0].take(X)[1] == [3, 4]
    assert nodes[0].lease(X).found is None
