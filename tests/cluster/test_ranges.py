"""Sets of ranges against sets of pointers."""

from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.ranges import covered, intersect, minus, union

ENDS = st.sets(st.integers(0, 60), max_size=24)


@st.composite
def range_lists(draw):
    ends = sorted(draw(ENDS))
    return list(zip(ends[::2], ends[1::2], strict=False))


def pointers(ranges):
    return {pointer for after, last in ranges for pointer in range(after + 1, last + 1)}


def check(ranges, expected):
    """See that ranges are those of a set of pointers, and as few as can be."""
    assert pointers(ranges) == expected
    ends = [end for bounds in ranges for end in bounds]
    assert ends == sorted(set(ends))


@given(range_lists(), range_lists())
def test_sets_of_ranges_are_sets_of_pointers(one, other):
    check(union(one, other), pointers(one) | pointers(other))
    check(intersect(one, other), pointers(one) & pointers(other))
    check(minus(one, other), pointers(one) - pointers(other))


@given(st.lists(range_lists(), max_size=4), st.integers(1, 3))
def test_what_is_in_so_many_sets(sets, count):
    every = set().union(*map(pointers, sets))
    held = {p for p in every if sum(p in pointers(each) for each in sets) >= count}
    check(covered(sets, count), held)
