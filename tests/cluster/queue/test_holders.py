"""What is remembered of who holds what, and who may."""

import pytest

from poe.cluster.frames import WHOLE, Held, News
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.holders import LIVES_OVER_MAX, UNANSWERED_MAX, Holders
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


def test_what_a_node_has_let_go_it_may_have_handed_out_until_it_has_told_all_that_it_did(holders):
    def say(since, version, added=(), dropped=(), done=()):
        held = (Held(STREAM, added, dropped),) if added or dropped else ()
        said = holders.take(B, News(b"jobs", 1, since, version, held, (), ()), lambda _: [*done])
        assert said[0] == "taken"

    say(WHOLE, 1, added=((0, 30),))
    say(1, 2, dropped=((0, 10),), done=[(2, 8)])
    say(WHOLE, 5, added=((12, 30),))
    assert list(holders.held_by(B, STREAM)) == [(12, 30)]
    assert holders.doubt(B, STREAM, 20, 25)
    assert holders.may_be_held_by(B, STREAM) == [(12, 20), (25, 30)]
    assert holders.may_have_handed_out(B, STREAM) == [(0, 2), (8, 30)]
    holders.note_agreed(B, {STREAM})
    assert holders.may_have_handed_out(B, STREAM) == [(0, 2), (8, 30)]
    holders.note_agreed(B, {OTHER})
    assert holders.may_have_handed_out(B, STREAM) == [(12, 20), (25, 30)]
    say(5, 6, dropped=((12, 20),))
    holders.forget(B.id)
    assert holders.may_have_handed_out(B, STREAM) == [(12, 20), (25, 30)]


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
