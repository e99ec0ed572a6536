"""The judge of a work queue tells what comes again, and knows which message it was."""

import pytest

from poe.protocol import Lease
from torture.simulated_members import WorkJudge

MEMBER = b"m" * 16
LEASE_S = 20.0
NAME = b"7"


def judge(*, are_puts_repeated):
    made = WorkJudge(LEASE_S, are_puts_repeated=are_puts_repeated)
    made.put(NAME).put_s = 0.0
    return made


def take(work, lease_id, pointer, now_s):
    """Have a member be given the message, at a pointer."""
    lease = Lease(lease_id, b"jobs", pointer - 1, pointer)
    work.deliver(MEMBER, lease, [(pointer, NAME)], now_s, now_s)


def tell(work, lease_id, verdict, now_s):
    """Have a member say what became of it, and be answered."""
    work.begin_answer(lease_id, verdict)
    work.answered(lease_id, verdict, now_s, is_lost=False)


def end(work, letters=(), stored=(NAME,)):
    return work.judge_end(set(stored), list(letters), has_lost=False)


@pytest.mark.parametrize("are_puts_repeated", [False, True])
@pytest.mark.parametrize("verdict", [None, "dead"])
def test_a_message_that_is_over_must_not_come_again(verdict, are_puts_repeated):
    work = judge(are_puts_repeated=are_puts_repeated)
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, verdict, now_s=2.0)
    take(work, 2, 10, now_s=3.0)
    [failure] = work.failures
    assert "came at 3.0" in failure


def test_a_message_that_is_given_up_is_a_dead_letter():
    work = judge(are_puts_repeated=True)
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, "dead", now_s=2.0)
    assert end(work, [NAME]) == []
    assert "b'7' was given up, and is no dead letter" in end(work)


@pytest.mark.parametrize("verdict", [None, "dead"])
def test_what_was_cut_off_and_put_again_is_another_message(verdict):
    """It was read before its sync failed; with `fsync` its put is made once more."""
    work = judge(are_puts_repeated=True)
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, verdict, now_s=2.0)
    take(work, 2, 20, now_s=3.0)
    assert work.failures == []
    assert end(work) == ["b'7' was never done"]
    tell(work, 2, None, now_s=4.0)
    assert end(work) == []
    take(work, 3, 20, now_s=5.0)
    assert len(work.failures) == 1


def test_what_is_said_of_a_message_that_was_cut_off_is_not_said_of_the_other_one():
    work = judge(are_puts_repeated=True)
    take(work, 1, 10, now_s=1.0)
    take(work, 2, 20, now_s=2.0)
    tell(work, 1, "dead", now_s=3.0)
    take(work, 3, 20, now_s=2.0 + LEASE_S)
    tell(work, 3, None, now_s=23.0)
    assert end(work) == []


def test_each_of_the_two_may_be_a_dead_letter():
    work = judge(are_puts_repeated=True)
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, "dead", now_s=2.0)
    take(work, 2, 20, now_s=3.0)
    tell(work, 2, "dead", now_s=4.0)
    assert end(work, [NAME] * 2) == []
    assert end(work, [NAME] * 3) == ["b'7' has 3 dead letters"]


def test_of_what_was_cut_off_and_not_put_again_there_is_no_letter():
    work = judge(are_puts_repeated=True)
    work.messages[NAME].put_s = None
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, "dead", now_s=2.0)
    assert end(work, stored=()) == []


@pytest.mark.parametrize(("are_puts_repeated", "then"), [(False, 20), (True, 9)])
def test_a_message_that_nobody_has_put_again_stays_where_it_is(are_puts_repeated, then):
    work = judge(are_puts_repeated=are_puts_repeated)
    take(work, 1, 10, now_s=1.0)
    tell(work, 1, "release", now_s=2.0)
    take(work, 2, then, now_s=3.0)
    assert work.failures == [f"b'7' was at pointer 10, and came at {then}"]
