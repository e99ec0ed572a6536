"""The judge tells each way in which a store can be wrong, and is silent about one that is right."""

from operator import attrgetter
from random import Random

import pytest

from torture.checker import Journal, Sender

TOPIC = b"t"


@pytest.fixture
def journal():
    """Three acknowledged puts of three messages each, one without a reply, one that was refused."""
    made = Journal()
    sender = Sender(made, Random(1))
    for number in range(5):
        put = sender.begin(TOPIC)
        put.messages = [b"%d.%d" % (number, at) for at in range(3)]
        if number < 3:
            put.pointer = 10 * number + 3
    put.is_refused = True
    return made


def records(journal, *numbers):
    """The records of these puts, as they would be stored."""
    return [
        (10 * number + 1 + at, message)
        for number in numbers
        for at, message in enumerate(journal.puts[TOPIC][number].messages)
    ]


def told(journal, stored, **options):
    return journal.judge({TOPIC: stored}, **options)


@pytest.mark.parametrize("numbers", [[0, 1, 2], [0, 1, 2, 3]])
def test_what_was_acknowledged_is_enough_and_what_was_under_way_is_fine(journal, numbers):
    assert told(journal, records(journal, *numbers)) == []
    assert told(journal, records(journal, *numbers)) == []


@pytest.mark.parametrize(
    ("numbers", "part"),
    [
        ([0, 2], "put 2 of producer 1 (3 messages) was acknowledged and is not there"),
        ([0, 1, 2, 4], "was refused, or had gone, and is there"),
        ([0, 1, 2, 1], "is there twice"),
        ([0, 2, 1], "lies behind a later one of its producer"),
    ],
)
def test_a_wrong_set_of_puts_is_told(journal, numbers, part):
    assert any(part in failure for failure in told(journal, records(journal, *numbers)))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda stored: stored[:-1], "is there in part: its first 2"),
        (lambda stored: stored[1:], "begins with its message 1"),
        (lambda stored: [*stored[:4], *stored[5:]], "is there in part: its first 1"),
        (lambda stored: [(1, b"wrong"), *stored[1:]], "nobody sent b'wrong'"),
        (lambda stored: [(p + 1, m) for p, m in stored], "acknowledged at 3, and is at 4"),
        (lambda stored: stored[::-1], "pointers do not rise"),
    ],
)
def test_wrong_records_are_told(journal, change, part):
    failures = told(journal, change(records(journal, 0, 1, 2)))
    assert any(part in failure for failure in failures), failures


@pytest.mark.parametrize(
    ("numbers", "lost_end", "part"),
    [
        ([0, 2], "newest", "put 2 of producer 1 (3 messages) is not there, and what came later is"),
        ([0, 2], "oldest", "put 2 of producer 1 (3 messages) is not there, and what came before"),
        ([1, 2], "newest", "put 1 of producer 1 (3 messages) is not there, and what came later is"),
        ([0, 1], "oldest", "put 3 of producer 1 (3 messages) is not there, and what came before"),
        ([0, 1], "newest", None),
        ([1, 2], "oldest", None),
        ([], "newest", None),
        ([], "oldest", None),
    ],
)
def test_what_may_go_goes_from_one_end(journal, numbers, lost_end, part):
    stored = records(journal, *numbers)
    failures = told(journal, stored, may_lose=lambda _: True, lost_end=lost_end)
    assert [failure for failure in failures if part is None or part not in failure] == []
    assert bool(failures) == (part is not None)


def test_half_of_a_put_without_reply_is_told_unless_that_is_allowed(journal):
    stored = records(journal, 0, 1, 2, 3)[:-1]
    assert "its first 2 messages" in told(journal, stored)[0]
    assert told(journal, stored, are_halves_told=False) == []


def test_what_a_fault_may_take_away_may_be_missing_once_and_for_all(journal):
    assert told(journal, records(journal, 0, 1), may_lose=lambda put: put.number == 3) == []
    assert "was refused, or had gone" in told(journal, records(journal, 0, 1, 2))[0]


def test_a_put_without_reply_that_was_absent_must_not_come_back(journal):
    assert told(journal, records(journal, 0, 1, 2)) == []
    assert "was refused, or had gone" in told(journal, records(journal, 0, 1, 2, 3))[0]


def test_a_put_that_is_doubtful_may_come_back_where_the_fault_may_do_that(journal):
    journal.puts[TOPIC][3].is_doubtful = True
    assert told(journal, records(journal, 0, 1, 2)) == []
    may_return = attrgetter("is_doubtful")
    assert told(journal, records(journal, 0, 1, 2, 3), may_return=may_return) == []


def test_torn_bytes_of_a_put_without_reply_are_told_unless_that_is_allowed(journal):
    journal.puts[TOPIC][3].messages = [b"4.3.0:abc", b"4.3.1:abc", b"4.3.2:abc"]
    stored = records(journal, 0, 1, 2, 3)
    stored[-2] = (stored[-2][0], b"4.3.\0\0\0\0\0")
    assert "its first 1 messages" in told(journal, stored)[0]
    assert told(journal, stored, are_halves_told=False) == []
    assert told(journal, stored) == []
