"""When nothing is kept of a stream any more: it is over, and all know the same of it."""

from poe.cluster.frames import Digest, Summary
from poe.cluster.identity import StreamId
from poe.cluster.queue.streams_over import StreamsOver
from tests.cluster.queue.wired import node_ref

ME, OTHER, AWAY, GONE = map(node_ref, (1, 2, 3, 4))
FIRST, SECOND = StreamId(GONE.id, 1), StreamId(GONE.id, 2)


def knows(*streams, digest=5):
    """Return the digest of a node that knows of these streams, and no others."""
    known = tuple(Summary("g", stream, digest) for stream in streams)
    return Digest(b"jobs", 1, 1, known, (), (), is_answer=True)


def test_a_stream_of_which_nothing_is_known_any_more_keeps_no_later_one_from_being_forgotten():
    over = StreamsOver(ME)
    for ref in (OTHER, AWAY):
        over.see(ref)
    over.forget_node(GONE.id)
    over.hear(OTHER.id, knows(FIRST), knows(FIRST))
    assert over.settle([], lambda _: True) == []
    for ref in (OTHER, AWAY):  # all groups that had it were deleted meanwhile
        over.hear(ref.id, knows(SECOND), knows(SECOND))
    assert over.settle([], lambda _: True) == [SECOND]


def test_a_stream_of_which_nothing_is_known_and_that_is_held_is_not_forgotten_with_a_later_one():
    over = StreamsOver(ME)
    over.see(OTHER)
    over.forget_node(GONE.id)
    over.hear(OTHER.id, knows(SECOND), knows(SECOND))
    assert over.settle([FIRST], lambda _: True) == []
    assert not over.is_forgotten(FIRST)
    assert over.settle([], lambda _: True) == [SECOND]


def test_nodes_differ_in_streams_of_which_one_knows_other_things_or_alone_knows_something():
    over = StreamsOver(ME)
    assert over.hear(OTHER.id, knows(FIRST), knows(FIRST)) == set()
    assert over.hear(OTHER.id, knows(FIRST), knows(FIRST, digest=6)) == {FIRST}
    assert over.hear(OTHER.id, knows(FIRST), knows(FIRST, SECOND)) == {SECOND}
    assert over.hear(OTHER.id, knows(FIRST, SECOND), knows(FIRST)) == {SECOND}
    # A hash of nothing, as behind a write that failed.
    assert over.hear(OTHER.id, knows(FIRST, digest=0), knows()) == set()
