"""How long who guesses waits: longer each time, and nobody else."""

import pytest

from poe.broker.access.failure_delays import LONGEST_S, FailureDelays


@pytest.mark.parametrize(("part", "first_s"), [(0.0, 0.5), (1.0, 1.0)])
def test_the_first_failure_costs_half_a_second_to_a_second(part, first_s):
    assert FailureDelays(lambda: part).failed("192.0.2.1", 0) == first_s


def test_each_failure_of_an_address_doubles_the_wait_up_to_a_limit():
    delays = FailureDelays(lambda: 1.0)
    waited_s = [delays.failed("192.0.2.1", number) for number in range(8)]
    assert waited_s == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S]
    assert delays.failed("192.0.2.2", 8) == 1


def test_an_address_that_was_good_for_a_minute_begins_anew():
    delays = FailureDelays(lambda: 1.0)
    delays.failed("192.0.2.1", 0)
    assert delays.failed("192.0.2.1", 60) == 2
    assert delays.failed("192.0.2.1", 121) == 1


def test_a_machine_that_has_many_addresses_is_one():
    delays = FailureDelays(lambda: 1.0)
    waited_s = [delays.failed(f"2001:db8::{number:x}", 0) for number in range(3)]
    assert waited_s == [1, 2, 4]
    assert delays.failed("2001:db8:1::1", 0) == 1


def test_only_so_many_addresses_are_remembered():
    delays = FailureDelays(lambda: 1.0)
    for number in range(5000):
        delays.failed(f"192.0.{number // 250}.{number % 250}", 0)
    assert delays.failed("192.0.0.0", 0) == 1
    assert delays.failed("192.0.19.249", 0) == 2
