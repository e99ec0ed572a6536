"""What of a lease is handed out, and in which ranges the group is told what became of it."""

import numpy as np
import pytest

from poe.client.group.held_lease import HeldLease
from poe.protocol import Done, Failed, IndexedRecords, Lease
from poe.record import RECORD_HEADER_BYTES

POINTERS = [11, 13, 17, 20]


def records(pointers):
    messages = [b"message %d" % pointer for pointer in pointers]
    data = b"".join(bytes(RECORD_HEADER_BYTES) + each for each in messages)
    sizes = [0, *(RECORD_HEADER_BYTES + len(each) for each in messages)]
    starts = np.cumsum(sizes, dtype=np.uint64)
    return IndexedRecords(np.array(pointers, np.uint64), starts, memoryview(data))


def lease(pointers=tuple(POINTERS), *, attempts=0, last=20):
    return HeldLease(Lease(7, b"t", 10, last, attempts, 30.0), records(pointers), 0.0)


def take_all(held):
    while held.may_hand_out(0.0):
        held.take()
    return held


def test_messages_are_handed_out_in_order():
    held = lease()
    numbers = [held.take() for _ in POINTERS]
    assert [held.pointer(each) for each in numbers] == POINTERS
    assert held.message(2) == b"message 17"
    assert not held.may_hand_out(0.0)


def test_a_lease_that_is_done_whole_is_told_so():
    held = take_all(lease())
    for number in (2, 0, 3, 1):
        held.finish(number, None)
    assert held.take_outcomes(99) == ([Done(7)], [])
    assert held.is_over


def test_what_is_done_is_told_in_ranges_that_touch():
    held = take_all(lease())
    for number in (0, 1, 3):
        held.finish(number, None)
    assert held.take_outcomes(99) == ([Done(7, [(10, 13), (17, 20)])], [])
    assert held.take_outcomes(99) == ([], [])
    held.finish(2, None)
    assert held.take_outcomes(99) == ([Done(7, [(13, 17)])], [])
    assert held.is_over


def test_what_has_failed_is_told_by_itself():
    held = take_all(lease())
    held.finish(0, None)
    held.finish(1, ("retry", 2.0, "why"))
    assert held.take_outcomes(99) == (
        [Done(7, [(10, 11)])],
        [Failed(7, 11, 13, "retry", 2.0, "why")],
    )


def test_what_nobody_was_handed_is_given_back():
    held = lease()
    held.take()
    assert held.give_back()
    assert not held.give_back()
    assert held.take_outcomes(99) == ([], [Failed(7, 11, 20, "release")])
    assert not held.may_hand_out(0.0)
    held.finish(0, None)
    assert held.take_outcomes(99) == ([Done(7, [(10, 11)])], [])
    assert held.is_over


def test_nothing_is_handed_out_when_the_lease_has_ended():
    assert lease().may_hand_out(29.9)
    assert not lease().may_hand_out(30.0)


def test_of_messages_that_were_tried_before_each_is_told_before_the_next_one():
    held = lease(attempts=1)
    held.finish(held.take(), None)
    assert not held.may_hand_out(0.0)
    held.take_outcomes(99)
    held.is_telling = True
    assert not held.may_hand_out(0.0)
    held.is_telling = False
    assert held.may_hand_out(0.0)


def test_what_did_not_come_whole_is_to_be_tried_again():
    held = lease(POINTERS[:2])
    (failed,) = held.take_outcomes(99)[1]
    assert failed[:4] == (7, 13, 20, "retry")
    take_all(held)
    held.finish(0, None)
    held.finish(1, None)
    assert held.take_outcomes(99) == ([Done(7, [(10, 13)])], [])


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lease_is_stuck_when_nobody_works_on_it_or_takes_from_it(is_taken):
    held = lease()
    held.take()
    assert not held.is_stuck()
    if is_taken:
        held.take()
    assert held.is_stuck() is not is_taken


def test_no_more_is_told_at_a_time_than_is_asked_for():
    pointers = range(11, 11 + 2000)
    held = take_all(lease(pointers, last=pointers[-1]))
    for number in range(2000):
        held.finish(number, ("retry", None, "bad") if number % 2 else None)
    done, failed = [], []
    while held.has_outcomes:
        told_done, told_failed = held.take_outcomes(300)
        done += [each for part in told_done for each in part.ranges]
        failed += [(each.after, each.last) for each in told_failed]
        assert len(told_failed) <= 300
        assert sum(len(each.ranges) for each in told_done) <= 300
    assert held.is_over
    bounds = sorted(done + failed)
    assert bounds == [(pointer - 1, pointer) for pointer in pointers]
