"""Ranges are cut, split, merged and admitted by arithmetic; a model of segments answers spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.protocol import Span
from poe.spark.planning import Limits, SegmentRange, admit, names_of, partitions, within

pytestmark = pytest.mark.spark

STEP = 1000
"""Between the timestamps of segments."""


class Model:
    """Segments as lists of record sizes: pointers count up from the timestamp of the segment."""

    def __init__(self, sizes, topic="t", begin=1, step=STEP):
        self.topic = topic
        self.segments = {(begin + i) * step: each for i, each in enumerate(sizes)}
        self.spans_count = 0

    def listed(self):
        return [
            SegmentRange(self.topic, at, at, at + len(sizes) - 1, len(sizes), sum(sizes))
            for at, sizes in self.segments.items()
        ]

    def records(self, whole):
        sizes = self.segments[whole.segment]
        return [
            (whole.segment + i, size)
            for i, size in enumerate(sizes)
            if whole.first <= whole.segment + i <= whole.last
        ]

    def span(self, whole, count, bytes_max):
        self.spans_count += 1
        taken: list[tuple[int, int]] = []
        for pointer, size in self.records(whole)[:count]:
            if taken and sum(s for _, s in taken) + size > bytes_max:
                break
            taken.append((pointer, size))
        if not taken:
            return None
        return Span(taken[-1][0], len(taken), sum(size for _, size in taken))

    def all_records(self):
        return [record for each in self.listed() for record in self.records(each)]


def exact(model, ranges):
    """The records of some ranges, which must be counted right."""
    found = []
    for each in ranges:
        records = model.records(each)
        assert each.last == records[-1][0]
        assert (each.count, each.bytes) == (len(records), sum(size for _, size in records))
        found += records
    return found


sizes_of_segments = st.lists(st.lists(st.integers(12, 5000), max_size=12), min_size=1, max_size=6)


@given(
    sizes=sizes_of_segments, bounds=st.tuples(st.integers(0, 8 * STEP), st.integers(0, 8 * STEP))
)
def test_what_lies_within_bounds_is_counted_exactly(sizes, bounds):
    model = Model(sizes)
    after, last = bounds
    ranges = within(model.listed(), after, last, model.span)
    expected = [record for record in model.all_records() if after < record[0] <= last]
    assert exact(model, ranges) == expected
    assert model.spans_count <= 4, "only segments that are cut are asked about"


@given(sizes=sizes_of_segments, bytes_max=st.integers(1, 10**6), count_min=st.integers(1, 8))
def test_partitions_hold_each_record_once_and_in_order(sizes, bytes_max, count_min):
    model = Model(sizes)
    ranges = within(model.listed(), 0, 10**9, model.span)
    parts = partitions(ranges, model.span, bytes_max, count_min)
    assert exact(model, [each for part in parts for each in part]) == model.all_records()
    assert all(parts)


def test_a_large_segment_is_split_and_small_ones_are_merged():
    mib = 1 << 20
    small = [mib // 100] * 100
    model = Model([small * 100, small, small, small], step=10**5)
    parts = partitions(model.listed(), model.span, 10 * mib)
    sizes = [sum(each.bytes for each in part) / mib for part in parts]
    assert len(parts) == 11
    assert 8 < min(sizes) <= max(sizes) < 13
    assert {each.segment for each in parts[-1]} == {i * 10**5 for i in (1, 2, 3, 4)}


def test_a_minimum_of_partitions_splits_what_has_bytes_enough():
    mib = 1 << 20
    model = Model([[mib] * 8])
    assert len(partitions(model.listed(), model.span, 100 * mib)) == 1
    assert len(partitions(model.listed(), model.span, 100 * mib, 4)) == 4
    tiny = Model([[100]])
    assert len(partitions(tiny.listed(), tiny.span, 100 * mib, 4)) == 1


def test_ten_thousand_tiny_segments_are_a_few_partitions():
    ranges = [SegmentRange("t", at, at, at, 1, 12) for at in range(1, 10_001)]
    parts = partitions(ranges, Model([]).span, 32 << 20)
    assert 15 <= len(parts) <= 25
    assert sum(map(len, parts)) == 10_000


def test_nothing_is_no_partition():
    assert partitions([], Model([]).span, 100) == []


@given(
    st.lists(sizes_of_segments, min_size=1, max_size=4),
    st.integers(1, 60),
    st.one_of(st.just(10**12), st.integers(1, 50_000)),
)
def test_limits_are_kept_by_all_topics_together_and_in_the_end_all_is_read(
    topics, count, bytes_max
):
    models = {f"t{i}": Model(sizes, f"t{i}", i + 1) for i, sizes in enumerate(topics)}
    after = dict.fromkeys(models, 0)

    def span(whole, count, bytes_max):
        return models[whole.topic].span(whole, count, bytes_max)

    def backlogs():
        found = {t: within(m.listed(), after[t], 10**9, span) for t, m in models.items()}
        return {topic: ranges for topic, ranges in found.items() if ranges}

    while waiting := backlogs():
        ends = admit(waiting, Limits(count, bytes_max), span)
        taken = [
            record
            for topic, end in ends.items()
            for record in models[topic].all_records()
            if after[topic] < record[0] <= end
        ]
        assert 1 <= len(taken) <= count
        assert len(taken) == 1 or sum(size for _, size in taken) <= bytes_max
        after |= ends


def test_topics_share_a_limit_by_what_waits():
    many, few = Model([[20] * 900], "many"), Model([[20] * 100], "few")
    models = {"many": many, "few": few}
    backlogs = {topic: model.listed() for topic, model in models.items()}
    ends = admit(
        backlogs, Limits(count=100), lambda whole, *limits: models[whole.topic].span(whole, *limits)
    )
    assert {topic: end - STEP + 1 for topic, end in ends.items()} == {"many": 90, "few": 10}


def test_without_limits_all_is_admitted_and_nothing_is_asked():
    model = Model([[20] * 5, [20] * 5])
    assert admit({"t": model.listed()}, Limits(), model.span) == {"t": 2 * STEP + 4}
    assert model.spans_count == 0


def test_topics_that_are_no_text_are_left_out():
    assert names_of([b"a", b"\xff", "ü".encode()]) == ["a", "ü"]
