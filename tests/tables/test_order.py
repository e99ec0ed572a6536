"""Which keys are the same, and which comes first."""

import itertools
import math

import pytest

from poe.errors import InvalidTableArgument
from poe.tables.order import hashable_key, match_key, order_key

ASCENDING = [-1, 0.5, 1, 2**70, None, False, True, "a", "b", (), (2,), (1, 0), (1, "a"), b"", b"a"]


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, False), ("a", b"a"), ((1,), (1.0,))])
def test_keys_of_different_types_do_not_match(pair):
    assert match_key(pair[0]) != match_key(pair[1])


@pytest.mark.parametrize("value", [1, 1.5, "a", (1, ("b", None)), [1, [2.0]], True, b"x"])
def test_a_key_matches_its_equal(value):
    assert match_key(value) == match_key(value)


def test_a_list_and_a_tuple_do_not_match():
    assert match_key([1]) != match_key((1,))


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(ASCENDING, 2)])
def test_values_are_ordered_as_in_erlang(first, second):
    assert order_key(first) < order_key(second)


def test_an_integer_and_a_float_of_the_same_value_compare_equal():
    assert order_key((1, "a")) == order_key((1.0, "a"))
    assert order_key(1) != order_key(True)


@pytest.mark.parametrize("value", [[1], {}, ([],), math.nan])
def test_what_can_change_or_is_no_number_is_no_key(value):
    with pytest.raises(InvalidTableArgument):
        hashable_key(value)
    with pytest.raises(InvalidTableArgument):
        order_key(value)


def test_values_without_a_place_in_the_order_are_keys_of_sets_only():
    key = frozenset({1})
    assert hashable_key(key) == hashable_key(key)
    with pytest.raises(InvalidTableArgument, match="address of an actor"):
        order_key(key)
