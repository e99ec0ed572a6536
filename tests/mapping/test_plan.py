"""A plan is read as it was written, or it is said that it is none."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.errors import ProducerFenced, UnknownPlan
from poe.mapping.decision import Put
from poe.mapping.message import Columns
from poe.mapping.plan import Decided, Plan, Target, Trial, producer_of, puts_of
from poe.storage.segment.producers import Producers

PLAN = Plan(
    life=1,
    number=2,
    first=5,
    last=9,
    count=4,
    rules=b"hash",
    spread={b"topic!": 3},
    trial=Trial(1, 9, b"process", 1),
)
FIELDS = msgpack.unpackb(PLAN.encode())
WRONG: tuple[object, ...] = (1.5, ["x"], b"", {})


def test_a_plan_is_read_as_it_was_written():
    assert Plan.decode(PLAN.encode()) == PLAN


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (place, value)
        for place, field in enumerate(FIELDS)
        for value in WRONG
        if isinstance(value, list) or type(value) is not type(field)
    ],
)
def test_what_is_no_plan_is_told_before_anything_is_done_with_it(place, value):
    fields = [*FIELDS]
    fields[place] = value
    with pytest.raises(UnknownPlan):
        Plan.decode(msgpack.packb(fields))


@pytest.mark.parametrize(
    "content", [b"", b"\xc0", b"\x90", b"\x91\x01", b"\x01", PLAN.encode()[:-1]]
)
def test_what_is_cut_off_or_something_else_is_no_plan(content):
    with pytest.raises(UnknownPlan):
        Plan.decode(content)


def test_what_goes_onto_a_topic_and_onto_a_partition_of_it_by_name_has_different_numbers():
    """The second one would be taken for stored: it would be lost."""
    batch = Columns(b"source", [1, 2, 3], [b"1", b"2", b"3"])
    puts = {b"t": Put([0], [b"1"], None, None), b"t-0": Put([1, 2], [b"2", b"3"], None, None)}
    targets = {b"t": Target((b"t-0", b"t-1"), False), b"t-0": Target((b"t-0",), False)}
    plan = Plan(life=1, number=2, first=0, last=3, count=3)
    sent = puts_of(plan, b"p" * 16, Decided(batch, puts), targets)
    assert [(each.topic, list(each.messages)) for each in sent] == [
        (b"t-0", [b"1"]),
        (b"t-0", [b"2", b"3"]),
    ]
    assert [(each.put_id.epoch, each.put_id.sequence) for each in sent] == [(2, 0), (2, 1)]


def test_a_life_shuts_out_earlier_ones_of_its_group_alone():
    """One that was made anew may count lives from before, as behind a clock that was set back."""
    producers = Producers()
    producers.add((producer_of("m", 1_000, b"unit", 9), 1, 0), 1)
    with pytest.raises(ProducerFenced):
        producers.find((producer_of("m", 1_000, b"unit", 8), 1, 0))
    assert producers.find((producer_of("m", 900, b"unit", 8), 1, 0)) is None


def test_lives_are_told_apart_for_longer_than_anybody_counts():
    """They are microseconds since 2026, also of a clock that is decades ahead for a moment."""
    producers = Producers()
    for life in (1, (1 << 48) - 1, 1 << 48, 1 << 54):
        put = producer_of("m", 0, b"unit", life), 1, 0
        assert producers.find(put) is None
        producers.add(put, life)
