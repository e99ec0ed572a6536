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


def test_parts_of_a_range_are_joined_cut_and_found_missing_whatever_is_there():
    for seed in range(50):
        dice = Random(seed)
        ranges = RangeSet()
        numbers: set[int] = set()
        for _ in range(60):
            after = dice.randrange(40)
            last = after + dice.randrange(1, 12)
            asked = set(range(after + 1, last + 1))
            before = set(numbers)
            if dice.random() < 0.6:
                parts = ranges.join(after, last)
                numbers |= asked
                assert _numbers(parts) == numbers - before, seed
            else:
                parts = ranges.cut(after, last)
                numbers -= asked
                assert _numbers(parts) == before - numbers, seed
            assert _numbers(ranges) == numbers, seed
            assert _numbers(ranges.within(after, last)) == numbers & asked, seed
            assert _numbers(ranges.without(after, last)) == asked - numbers, seed
            assert ranges.first() == next(iter(ranges), None), seed


def test_parts_are_found_across_chunks():
    ranges = RangeSet()
    for number in range(5000):
        ranges.add(10 * number, 10 * number + 4)
    assert len(ranges.within(0, 50_000)) == 5000
    assert len(ranges.without(2, 49_993)) == 4999
    assert ranges.join(2, 49_993) == [(10 * n + 4, 10 * n + 10) for n in range(4999)]
    assert list(ranges) == [(0, 49_994)]


def test_values_of_the_parts_of_a_range():
    values: RangeMap[str] = RangeMap()
    values.set(0, 10, "a")
    values.set(20, 30, "b")
    assert values.within(5, 25) == [(5, 10, "a"), (20, 25, "b")]
    assert values.within(10, 20) == []


def _numbers(ranges):
    return {number for after, last in ranges for number in range(after + 1, last + 1)}
