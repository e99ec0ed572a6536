"""Each rule of a replicated log tells what breaks it, and is silent about what does not."""

from copy import deepcopy

import pytest

from torture.log_history import (
    Change,
    Copy,
    LogHistory,
    Outcome,
    Put,
    Read,
    Stuck,
    Trimmed,
    Try,
    from_rows,
    read_rows,
    to_rows,
    write_rows,
)
from torture.log_rules import RULES, broken

FILES = {"10_data": "h"}


def put(number, *messages, pointer=0, outcome: Outcome = "acked", is_sequenced=True):
    """A put of one client onto `t`."""
    asked = Try("a", number, outcome, pointer, number + 0.5, outcome)
    return Put("t", "p", number, messages, is_sequenced, [asked])


RECORDS = ((10, b"0"), (11, b"1a"), (12, b"1b"), (15, b"2"))
"""What there is: three puts, of which the second one has two messages."""


def sound(**changes) -> LogHistory:
    """Two copies of a topic, of which something was read before."""
    history = LogHistory(
        puts=[
            put(0, b"0", pointer=10),
            put(1, b"1a", b"1b", pointer=12),
            put(2, b"2", pointer=15),
            put(3, b"3", outcome="refused"),
        ],
        reads=[Read("a", "t", 2, 10, 12, RECORDS[1:3])],
        copies=[Copy(node, "t", 0, RECORDS, FILES) for node in "ab"],
    )
    for name, value in changes.items():
        setattr(history, name, value)
    return history


def holding(*records, node="b", **fields):
    """The copies, one of which holds something else."""
    return [
        Copy(each, "t", 0, records if each == node else RECORDS, FILES)._replace(
            **fields if each == node else {}
        )
        for each in "ab"
    ]


def both(*records):
    """Copies that hold something else at both nodes."""
    return [Copy(node, "t", 0, records, FILES) for node in "ab"]


def read_of(*records, after=10, end=12):
    return [Read("a", "t", 2, after, end, records)]


PLAIN = (0, b"2", 15), (1, b"0", 10)
"""Puts without ids, in the order in which they were acknowledged: number, message and pointer."""


def ack(pointer):
    return Try("a", 0, "acked", pointer, 0.5, "acked")


WRONG = Put("t", "p", 4, (b"4",), is_sequenced=True, tries=[Try("a", 4, "wrong", why="a gap")])

BROKEN = {
    "nowhere": ("missing", sound(copies=both(*RECORDS[:3]))),
    "at one node only": ("missing", sound(copies=holding(*RECORDS[:3]))),
    "elsewhere than was told": ("missing", sound(copies=both(*RECORDS[:3], (16, b"2")))),
    "elsewhere than was told again": (
        "missing",
        sound(puts=[Put("t", "p", 0, (b"0",), is_sequenced=True, tries=[*map(ack, (10, 9))])]),
    ),
    "another message": ("two values", sound(copies=holding(*RECORDS[:3], (15, b"1a")))),
    "another one before": ("two values", sound(reads=read_of((11, b"1b"), (12, b"1a")))),
    "less": ("unequal", sound(copies=holding(*RECORDS[:3]))),
    "other ordinals": ("unequal", sound(copies=holding(*RECORDS, first_ordinal=7))),
    "other bytes": ("unequal", sound(copies=holding(*RECORDS, files={"10_data": "x"}))),
    "the second before the first": (
        "disordered",
        sound(copies=both((10, b"2"), *RECORDS[1:3], (15, b"0"))),
    ),
    "a plain one before that of its client": (
        "disordered",
        sound(puts=[put(n, m, pointer=p, is_sequenced=False) for n, m, p in PLAIN]),
    ),
    "refused": ("refused, and there", sound(copies=both(*RECORDS, (16, b"3")))),
    "twice": ("halved or twice", sound(copies=both(*RECORDS, (16, b"2")))),
    "half": ("halved or twice", sound(copies=both(RECORDS[0], *RECORDS[2:]))),
    "in two places": (
        "halved or twice",
        sound(copies=both(*RECORDS[:2], (13, b"1b"), RECORDS[3])),
    ),
    "put by nobody": ("invented", sound(copies=both(*RECORDS, (16, b"9")))),
    "a copy that falls": ("falling", sound(copies=both(*RECORDS[:2], RECORDS[3], RECORDS[2]))),
    "a read that falls": ("falling", sound(reads=read_of(RECORDS[2], RECORDS[1]))),
    "read, and gone": ("taken back", sound(copies=both(RECORDS[0], *RECORDS[3:]))),
    "came in between": ("taken back", sound(reads=read_of(RECORDS[2]))),
    "came before all": ("taken back", sound(reads=read_of(*RECORDS[1:3], after=0))),
    "told of a gap": ("overlooked", sound(puts=[*sound().puts, WRONG])),
    "still at it": ("stuck", sound(stuck=[Stuck("t at a takes nothing")])),
}
"""By what has happened: the rule that it breaks, among others perhaps, and the history."""

ALLOWED = {
    "nothing": LogHistory(),
    "all is well": sound(),
    "in doubt, and there": sound(
        puts=[*sound().puts[:3], put(3, b"3", outcome="doubt")], copies=both(*RECORDS, (16, b"3"))
    ),
    "trimmed": sound(
        copies=[each._replace(first_ordinal=1) for each in both(*RECORDS[1:])],
        trims=[Trimmed("t", 10)],
    ),
    "let go": sound(
        copies=[each._replace(first_ordinal=3) for each in both(RECORDS[3])], shrinking={"t"}
    ),
    "deleted": sound(copies=both(), deletes=[Change("t", 3.5)]),
    "perhaps deleted": sound(copies=both(), deletes=[Change("t", float("inf"))]),
}


def told(history):
    return {each.partition(":")[0] for each in broken(history)}


@pytest.mark.parametrize(("rule", "history"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_a_rule_is_told(rule, history):
    assert rule in told(history)


@pytest.mark.parametrize("history", ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_not(history):
    assert broken(history) == []


def test_each_rule_is_broken_here():
    assert {rule for rule, _ in BROKEN.values()} == set(RULES)


@pytest.mark.parametrize("history", [each for _, each in BROKEN.values()] + list(ALLOWED.values()))
def test_a_history_is_the_same_from_a_file(tmp_path, history):
    history = deepcopy(history)
    history.copies = [each._replace(records=each.records * 300) for each in history.copies]
    write_rows(tmp_path / "h", to_rows(history))
    found = from_rows(read_rows(tmp_path / "h"))
    assert list(to_rows(found)) == list(to_rows(history))
    assert found.copies == history.copies
    assert broken(found) == broken(history)
