"""How far a group is on a node, and what is passed over by a reset."""

import pytest

from poe.cluster.batch import Batch
from poe.errors import GroupActive, OptionError, UnknownTopic
from poe.record import POINTER_MAX
from tests.cluster.queue.sharing import ITS, MINE, Node, X

UNIT = b"jobs@0101010101010101.1"


def reset(node, to, **options):
    said = {"units": (), "dry": False, "force": False, **options}
    return node.operate("group_reset", to=to, **said)


def test_lag_is_what_is_held_and_not_done():
    node = Node()
    node.hold(MINE, 0, 10)
    lease, _ = node.take(X, 4)
    node.done(lease)
    assert node.operate("group_lag") == {
        UNIT: {"position": 4, "newest": 10, "messages": 6, "seconds": (node.now_us - 5) / 1e6}
    }
    node.done(node.take()[0])
    told = node.operate("group_lag")[UNIT]
    assert (told["messages"], told["seconds"]) == (0, 0.0)


def test_a_reset_passes_over_what_comes_before_a_place():
    node = Node(members=())
    node.hold(MINE, 0, 10)
    assert reset(node, 5, dry=True) == {UNIT: [0, 4, 4]}
    assert list(node.share.done(MINE)) == []
    assert reset(node, {UNIT: 4}) == {UNIT: [0, 4, 4]}
    assert list(node.share.done(MINE)) == [(0, 4)]
    node.join(X)
    assert node.take()[1] == [5, 6, 7, 8, 9, 10]
    node.operate("group_leave", member=X)
    assert reset(node, "newest") == {UNIT: [4, 10, 6]}
    [news] = node.share.knowledge.take_news()
    assert news.done == ((0, 10),)


@pytest.mark.parametrize("to", [POINTER_MAX, {UNIT: POINTER_MAX}])
def test_a_reset_passes_over_nothing_that_is_not_put_yet(to):
    node = Node(members=())
    node.hold(MINE, 0, 10)
    assert reset(node, to) == {UNIT: [0, node.now_us - 1, 10]}
    batch = Batch.encode([b"later"], 10, node.now_us)
    node.copies.add(MINE, batch)
    node.share.arrived(MINE, batch.after, batch.last, node.now_us)
    assert reset(node, to)[UNIT][1] == node.now_us
    assert list(node.share.done(MINE)) == [(0, node.now_us)]


def test_a_reset_ends_members_if_it_is_forced():
    node = Node()
    node.hold(MINE, 0, 4)
    node.take(X, 2)
    with pytest.raises(GroupActive):
        reset(node, "newest")
    reset(node, "newest", force=True)
    node.join(X)
    assert node.lease(X).found is None
    assert list(node.share.done(MINE)) == [(0, 4)]


def test_a_reset_does_not_begin_with_what_is_done():
    node = Node(members=())
    node.hold(MINE, 0, 4)
    with pytest.raises(OptionError):
        reset(node, "oldest")
    with pytest.raises(UnknownTopic):
        reset(node, {b"jobs@7.7": 4})
    assert ITS not in node.share.knowledge.streams()
