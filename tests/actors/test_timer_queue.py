"""Deadlines in order, cancelled ones gone, and no growth by cancelled ones."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from poe.actors.timer_queue import TimerQueue


def test_nothing_is_due_in_an_empty_queue():
    assert TimerQueue().pop_due(1e9) is None
    assert TimerQueue().next_deadline_s() is None


def test_an_action_is_due_at_its_deadline_and_once():
    queue = TimerQueue()
    queue.add(2.0, list)
    assert queue.pop_due(1.9) is None
    assert queue.pop_due(2.0) is list
    assert queue.pop_due(2.0) is None


def test_a_timer_that_has_fired_can_be_cancelled_without_effect():
    queue = TimerQueue()
    timer = queue.add(1.0, list)
    queue.pop_due(1.0)
    timer.cancel()
    assert len(queue) == 0


def test_cancelled_timers_do_not_fill_the_queue():
    queue = TimerQueue()
    keep = queue.add(1.0, list)
    for _ in range(10_000):
        queue.add(2.0, list).cancel()
    assert len(queue) == 1
    assert len(queue._heap) < 3_000  # noqa: SLF001 - memory is the point
    assert queue.next_deadline_s() == keep.deadline_s


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans())))
def test_live_timers_come_in_the_order_of_their_deadlines(entries):
    queue = TimerQueue()
    expected: list[int] = []
    popped: list[int] = []
    for deadline_s, is_cancelled in entries:
        timer = queue.add(deadline_s, partial(popped.append, deadline_s))
        if is_cancelled:
            timer.cancel()
        else:
            expected.append(deadline_s)
    assert len(queue) == len(expected)
    while (action := queue.pop_due(20.0)) is not None:
        action()
    assert popped == sorted(expected)
