"""Who hands out what: nodes that know the same come to the same, without a word."""

from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.identity import StreamId
from poe.cluster.queue.ownership import owned, rank
from poe.cluster.ranges import union
from tests.cluster.queue.wired import node_ref

NODES = [node_ref(number) for number in range(1, 5)]
STREAM = StreamId(NODES[0].id, 1)


def test_the_origin_comes_first_and_what_it_does_not_hold_is_handed_out_by_another():
    held = {NODES[0]: [(0, 10)], NODES[1]: [(5, 20)]}
    assert owned(NODES[0], b"q", STREAM, held, NODES) == [(0, 10)]
    assert owned(NODES[1], b"q", STREAM, held, NODES) == [(10, 20)]
    assert owned(NODES[1], b"q", STREAM, held, NODES[1:]) == [(5, 20)]
    assert owned(NODES[2], b"q", STREAM, held, NODES) == []


def test_an_origin_that_was_restarted_is_still_the_first():
    later = node_ref(1, epoch=7)
    held = {later: [(0, 10)], NODES[1]: [(0, 10)]}
    assert owned(later, b"q", STREAM, held, [later, *NODES]) == [(0, 10)]


def test_streams_have_other_orders():
    firsts = {
        min(NODES[1:], key=lambda node: rank(node, b"q", StreamId(NODES[0].id, epoch)))
        for epoch in range(30)
    }
    assert firsts == set(NODES[1:])


ranges = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda each: (each[0], sum(each)))
).map(lambda some: union(*([each] for each in some)) if some else [])


@given(st.fixed_dictionaries(dict.fromkeys(NODES, ranges)), st.sets(st.sampled_from(NODES)))
def test_each_message_that_somebody_live_holds_has_one_owner(held_by, live):
    owners = [
        number
        for me in live
        for after, last in owned(me, b"q", STREAM, held_by, live)
        for number in range(after, last)
    ]
    there = {
        number for node in live for after, last in held_by[node] for number in range(after, last)
    }
    assert sorted(owners) == sorted(there)
