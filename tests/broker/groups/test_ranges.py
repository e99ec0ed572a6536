"""Sets of ranges stay small; `properties/test_groups.py` compares them with sets of numbers."""

from random import Random

from poe.broker.groups.ranges import RangeMap, RangeSet


def test_neighbours_become_one():
    ranges = RangeSet()
    for bounds in [(10, 20), (30, 40), (20, 30)]:
        ranges.add(*bounds)
    assert list(ranges) == [(10, 40)]
    ranges.remove(15, 20)
    assert list(ranges) == [(10, 15), (20, 40)]
    assert ranges.take_first(10) == 15
    assert ranges.take_first(15) == 15
    assert list(ranges) == [(20, 40)]


def test_what_is_added_in_any_order_is_one_range_in_the_end():
    ranges = RangeSet()
    numbers = list(range(20_000))
    Random(1).shuffle(numbers)
    most = 0
    for number in numbers:
        ranges.add(10 * number, 10 * number + 10)
        most = max(most, len(ranges))
    assert 4000 < most < 6000
    assert list(ranges) == [(0, 200_000)]


def test_ranges_are_found_in_whatever_chunk_they_are():
    ranges = RangeSet()
    for number in range(5000):
        ranges.add(10 * number, 10 * number + 4)
    for number in range(0, 5000, 7):
        assert ranges.holds(10 * number, 10 * number + 4)
        assert ranges.holds(10 * number + 1, 10 * number + 3)
        assert not ranges.holds(10 * number + 3, 10 * number + 5)
        assert not ranges.holds(10 * number + 4, 10 * number + 5)
    assert ranges.within(10_002, 10_013) == [(10_002, 10_004), (10_010, 10_013)]


def test_a_value_replaces_those_of_the_parts_that_it_covers():
    values: RangeMap[str] = RangeMap()
    values.set(0, 100, "a")
    values.set(20, 30, "b")
    values.set(30, 40, "b")
    values.set(50, 60, None)
    assert list(values) == [(0, 20, "a"), (20, 40, "b"), (40, 50, "a"), (60, 100, "a")]
    values.set(20, 40, "a")
    assert list(values) == [(0, 50, "a"), (60, 100, "a")]
