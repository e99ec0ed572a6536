"""What is known of a group is joined by union: all nodes come to the same, whatever comes when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.frames import Again, Known, News, encode, flat_known, in_frames, take_known
from poe.cluster.identity import StreamId
from poe.cluster.queue.knowledge import Knowledge
from poe.cluster.ranges import union
from tests.cluster.queue.wired import node_ref

A, B = node_ref(1), node_ref(2)
STREAM = StreamId(A.id, 1)


def test_what_is_handed_out_twice_is_kept_with_its_cause():
    knowledge = Knowledge("g", A)
    assert knowledge.grant(STREAM, 0, 10) == []
    assert knowledge.grant(STREAM, 5, 15) == [(A, 5, 10)]
    knowledge.note_again(STREAM, ("lease expired", A), 7, 5, 10)
    assert knowledge.grant(STREAM, 14, 16) == [(A, 14, 15)]
    knowledge.note_again(STREAM, ("lease expired", A), 9, 14, 15)
    known = knowledge.known(STREAM)
    assert known.granted == ((A, ((0, 16),)),)
    assert known.again == (Again("lease expired", A, A, 7, ((5, 10), (14, 15))),)


def test_what_others_were_handed_out_by_is_named():
    knowledge = Knowledge("g", A)
    knowledge.join(Known("g", STREAM, (), ((B, ((0, 8),)),), ()))
    assert knowledge.grant(STREAM, 5, 10) == [(B, 5, 8)]
    assert knowledge.known(STREAM).granted == ((A, ((5, 10),)), (B, ((0, 8),)))


def test_news_are_told_once_and_only_of_this_node():
    knowledge = Knowledge("g", A)
    assert knowledge.join(Known("g", STREAM, ((0, 4),), (), ())) == [(0, 4)]
    assert knowledge.take_news() == []
    knowledge.finish(STREAM, 0, 6)
    [news] = knowledge.take_news()
    assert news.done == ((4, 6),)
    assert knowledge.take_news() == []
    assert knowledge.join(Known("g", STREAM, ((2, 8),), (), ())) == [(6, 8)]
    assert knowledge.known(STREAM).done == ((0, 8),)


ranges = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda each: (each[0], sum(each))),
    max_size=4,
).map(lambda some: tuple(union(*([each] for each in some))) if some else ())
nodes = st.sampled_from([A, B])
knowns = st.builds(
    Known,
    st.just("g"),
    st.just(STREAM),
    ranges,
    st.lists(st.tuples(nodes, ranges), max_size=2).map(tuple),
    st.lists(
        st.builds(Again, st.sampled_from(["x", "y"]), nodes, nodes, st.integers(0, 9), ranges),
        max_size=2,
    ).map(tuple),
)


@pytest.mark.slow
@given(st.lists(knowns, max_size=4), st.randoms())
def test_to_join_is_commutative_associative_and_idempotent(some, dice):
    one, other = Knowledge("g", A), Knowledge("g", A)
    for known in some:
        one.join(known)
    shuffled = some * 2
    dice.shuffle(shuffled)
    for known in shuffled:
        other.join(known)
    assert one.known(STREAM) == other.known(STREAM)
    third = Knowledge("g", A)
    third.join(one.known(STREAM))
    assert third.known(STREAM) == one.known(STREAM)


@given(st.lists(knowns, max_size=4))
def test_what_is_known_travels(some):
    knowledge = Knowledge("g", A)
    for known in some:
        knowledge.join(known)
    known = knowledge.known(STREAM)
    group, stream, done, granted, again = flat_known(known)
    travelled = (
        group,
        stream,
        tuple(done),
        tuple((node, tuple(ends)) for node, ends in granted),
        tuple((*each[:-1], tuple(each[-1])) for each in again),
    )
    assert take_known(travelled) == known


@pytest.mark.slow
def test_much_that_is_known_comes_in_frames_that_joined_are_all_of_it():
    many = tuple((2 * number, 2 * number + 1) for number in range(30_000))
    much = Known("g", STREAM, many, ((A, many), (B, ((0, 1),))), (Again("x", A, B, 7, many[:9]),))
    little = Known("g", StreamId(B.id, 1), ((0, 1),), (), ())
    frames = in_frames([little, much, little])
    assert len(frames) > 1
    assert all(len(encode(News(b"q", 0, 0, 0, (), each, ()))) < 1 << 20 for each in frames)
    knowledge = Knowledge("g", A)
    for known in (each for frame in reversed(frames) for each in frame):
        knowledge.join(known)
    assert knowledge.known(STREAM) == much
    assert knowledge.known(little.stream) == little
    assert in_frames([little, little]) == [(little, little)]
    assert in_frames([]) == [()]


def test_the_news_of_a_node_joined_make_others_know_what_it_knows():
    one, other = Knowledge("g", A), Knowledge("g", A)
    for number in range(10):
        one.grant(STREAM, number % 3, number + 1)
        one.finish(STREAM, number, number + 2)
        one.note_again(STREAM, ("retried", B), number, 0, number + 1)
        for news in one.take_news():
            other.join(news)
    assert other.known(STREAM) == one.known(STREAM)
