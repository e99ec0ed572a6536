"""What is remembered of who holds what, and who may."""

import pytest

from poe.cluster.frames import WHOLE, Held, News
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.holders import LIVES_OVER_MAX, UNANSWERED_MAX, Holders
from poe.cluster.ranges import minus
from tests.cluster.queue.wired import node_ref

A, B = node_ref(1), node_ref(2)
STREAM, OTHER = StreamId(A.id, 1), StreamId(B.id, 1)


@pytest.fixture
def holders():
    return Holders()


def test_what_a_node_was_asked_to_hold_it_may_hold_until_it_has_answered(holders):
    holders.expect(B, STREAM, 0, 5)
    holders.note_unanswered(B, STREAM, 5, 20)
    holders.note_answered(B, STREAM, 10, 12)
    assert holders.may_be_held_by(B, STREAM) == [(0, 10), (12, 20)]
    assert list(holders.held_by(B, STREAM)) == [(0, 5)]


def test_what_lives_held_that_are_over_they_may_have_handed_out_whatever_is_heard_of_them_late(
    holders,
):
    later = B._replace(epoch=2)
    holders.expect(B, STREAM, 0, 5)
    holders.forget(B.id, before_epoch=later.epoch)
    assert list(holders.held_by(B, STREAM)) == []
    holders.expect(B, STREAM, 7, 9)
    holders.expect(B, OTHER, 1, 2)
    holders.expect(later, STREAM, 20, 30)
    assert holders.may_be_held_by(B, STREAM) == [(0, 5), (7, 9)]
    holders.forget(B.id)
    assert holders.may_be_held_by(B, STREAM) == [(0, 5), (7, 9)]
    assert holders.may_be_held_by(B, OTHER) == [(1, 2)]
    assert holders.may_be_held_by(later, STREAM) == [(20, 30)]
    assert set(holders.nodes()) == {B, later}
    holders.forget_stream(STREAM)
    assert holders.may_be_held_by(B, STREAM) == []
    assert holders.may_be_held_by(B, OTHER) == [(1, 2)]


@pytest.fixture
def say(holders):
    """Have the second node say what it holds; what `done` tells is known to be done."""

    def say(since, version, *, added=(), dropped=(), done=()):
        held = (Held(STREAM, added, dropped),) if added or dropped else ()
        news = News(b"jobs", 1, since, version, held, (), ())
        return holders.take(B, news, lambda _, ranges: minus(ranges, done))[0]

    return say


def test_what_a_node_has_let_go_since_something_was_missed_it_may_have_handed_out(holders, say):
    say(WHOLE, 1, added=((0, 30),))
    say(1, 2, dropped=((0, 10),))
    assert holders.may_have_handed_out(B, STREAM) == [(10, 30)]
    assert say(3, 4) == "missed"
    say(WHOLE, 5, added=((13, 30),), done=[(11, 12)])
    say(5, 6, dropped=((13, 16),), done=[(14, 15)])
    assert holders.doubt(B, STREAM, 20, 25)
    assert holders.may_be_held_by(B, STREAM) == [(16, 20), (25, 30)]
    let_go = [(10, 11), (12, 14), (15, 30)]
    assert holders.may_have_handed_out(B, STREAM) == let_go
    holders.note_agreed(B, (1, 6), {STREAM})
    holders.note_agreed(B, (1, 5), set())  # late, from before it let go
    assert holders.may_have_handed_out(B, STREAM) == let_go
    holders.note_agreed(B, (1, 6), {OTHER})
    assert holders.may_have_handed_out(B, STREAM) == [(16, 20), (25, 30)]
    say(6, 7, dropped=((16, 20),))
    assert holders.may_have_handed_out(B, STREAM) == [(16, 20), (25, 30)]
    holders.note_agreed(B, (1, 7), set())
    say(7, 8, dropped=((25, 30),))
    assert holders.may_have_handed_out(B, STREAM) == []


def test_what_a_life_had_let_go_that_is_over_it_does_not_hold_and_may_have_handed_out(holders, say):
    say(WHOLE, 1, added=((0, 30),))
    say(WHOLE, 3, added=((10, 30),))
    holders.forget(B.id)
    assert holders.may_be_held_by(B, STREAM) == [(10, 30)]
    assert holders.may_have_handed_out(B, STREAM) == [(0, 30)]
    holders.forget_stream(STREAM)
    assert holders.may_have_handed_out(B, STREAM) == []


def test_of_a_stream_that_is_forgotten_nothing_is_unexplained(holders, say):
    say(WHOLE, 1, added=((0, 30),))
    say(WHOLE, 3, added=())
    assert holders.may_have_handed_out(B, STREAM) == [(0, 30)]
    holders.forget_stream(STREAM)
    assert holders.may_have_handed_out(B, STREAM) == []


def test_what_a_node_was_asked_to_hold_it_may_have_handed_out_though_it_is_doubted(holders):
    holders.expect(B, STREAM, 0, 5)
    holders.note_unanswered(B, STREAM, 5, 20)
    holders.doubt(B, STREAM, 0, 100)
    assert holders.may_be_held_by(B, STREAM) == [(5, 20)]
    assert holders.may_have_handed_out(B, STREAM) == [(0, 20)]


def test_no_more_than_a_bound_is_remembered(holders):
    for number in range(UNANSWERED_MAX + 10):
        holders.note_unanswered(B, STREAM, 2 * number, 2 * number + 1)
        assert len(holders.may_be_held_by(B, STREAM)) <= UNANSWERED_MAX
    assert holders.may_be_held_by(B, STREAM)[0][0] == 0
    for epoch in range(2 * LIVES_OVER_MAX):
        life = NodeRef(A.id, epoch)
        holders.expect(life, STREAM, 0, 1)
        holders.forget(A.id, before_epoch=epoch + 1)
    assert len(holders.nodes()) == LIVES_OVER_MAX + 1
