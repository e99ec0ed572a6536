"""A plan is read as it was written, or it is said that it is none."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.errors import UnknownPlan
from poe.mapping.plan import Plan, Trial

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
