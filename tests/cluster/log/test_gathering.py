"""Puts that share an entry: when, in which order, and where each ends in it."""

import threading

from poe.cluster.log.gathering import BYTES_MAX, COUNT_MAX, WAIT_MAX_S, Gathering
from tests.cluster.log.test_copies import fill


class Caller:
    """Who has put something; only who it is counts."""


def gathered(*batches):
    gathering = Gathering()
    callers = [Caller() for _ in batches]
    for caller, (batch, count) in zip(callers, batches, strict=True):
        gathering.add(caller, batch, count, 0.0)  # type: ignore[arg-type]  # it is never called
    return gathering, callers


def test_puts_go_when_as_many_wait_as_are_under_way():
    gathering, callers = gathered((b"a", 1))
    assert gathering.is_due(0.0)
    first = gathering.take()
    assert not gathering.is_due(WAIT_MAX_S)  # none waits
    for caller in callers * 2:
        gathering.add(caller, b"b", 1, 0.0)
    assert gathering.is_due(0.0)
    second = gathering.take()
    gathering.add(callers[0], b"c", 1, 0.0)
    gathering.add(callers[0], b"d", 1, 0.0)
    assert not gathering.is_due(0.0)  # three are under way
    gathering.end(first)
    assert gathering.is_due(0.0)
    assert len(gathering.take().parts) == len(second.parts) == 2


def test_a_put_waits_for_those_under_way_no_longer_than_a_moment():
    gathering, callers = gathered((b"a", 1), (b"a", 1))
    gathering.take()
    gathering.add(callers[0], b"b", 1, 0.0)
    assert not gathering.is_due(0.0)
    assert gathering.is_due(WAIT_MAX_S)


def test_puts_share_an_entry_in_their_order_and_each_knows_where_it_ends():
    gathering, callers = gathered((b"a", 2), (b"b", 3), (b"c", 1))
    shared = gathering.take()
    assert shared.batch == b"abc"
    assert [part.caller for part in shared.parts] == callers
    assert [part.behind_count for part in shared.parts] == [4, 1, 0]
    assert not gathering


def test_an_entry_has_bounds_which_one_put_alone_may_exceed():
    large = b"x" * (BYTES_MAX + 1)
    gathering, _ = gathered((large, 1), (b"b", 1), (large, 1), (b"c", COUNT_MAX), (b"d", 1))
    assert [gathering.take().batch[:2] for _ in range(5)] == [b"xx", b"b", b"xx", b"c", b"d"]


def test_each_of_many_who_put_at_once_is_told_of_its_own_messages(three):
    """So many threads that puts share entries."""
    three["a"].create_topic("t", replicas=3)
    fill(three, 1)
    told: dict[int, list[int]] = {}

    def put(number):
        messages = [b"%d-%d" % (number, each) for each in range(1 + number % 5)]
        for _ in range(20):
            told.setdefault(number, []).append(three["a"].put_many("t", messages))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    three.wait_same()
    for number, pointers in told.items():
        last = b"%d-%d" % (number, number % 5)
        assert [three["b"].next("t", pointer - 1) for pointer in pointers] == [
            (pointer, last) for pointer in pointers
        ]
