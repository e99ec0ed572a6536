"""The time of day that does not jump, and what is done when it seems to have."""

import logging
import random

import pytest

from poe.broker.appendix.hybrid_clock import HybridClock, JumpWatch
from tests.broker.nodes import START_US

S = 1_000_000
"""A second in microseconds."""
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S


class Machine:
    """A machine whose time moves when it is told to, and whose wall clock can be set."""

    def __init__(self):
        self.monotonic_ns = 5_000_000_000
        self.wall_offset_ns = START_US * 1000 - self.monotonic_ns
        self.clock = HybridClock(self.wall_ns, lambda: self.monotonic_ns)

    def wall_ns(self):
        return self.monotonic_ns + self.wall_offset_ns

    def advance(self, seconds):
        self.monotonic_ns += round(seconds * 1e9)

    def set_wall(self, seconds):
        self.wall_offset_ns += round(seconds * 1e9)

    def ahead_s(self):
        """Tell how far the clock is ahead of the wall clock."""
        return self.clock.now_us() / 1e6 - self.wall_ns() / 1e9


@pytest.fixture
def machine():
    return Machine()


def test_it_is_the_wall_clock_as_long_as_nobody_sets_that(machine):
    assert machine.clock.now_us() == START_US
    for _ in range(100):
        machine.advance(0.37)
        assert machine.ahead_s() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("step_s", [-50, -1, 1, 50])
def test_small_steps_are_followed_without_a_jump(machine, step_s):
    machine.set_wall(step_s)
    for _ in range(int(abs(step_s) * 10) + 2):
        before_us = machine.clock.now_us()
        machine.advance(1)
        passed_us = machine.clock.now_us() - before_us
        assert 0.9 * S <= passed_us <= 1.1 * S
    assert machine.ahead_s() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("jump_s", [-10 * YEAR_S, -HOUR_S, 61, HOUR_S, 10 * YEAR_S])
def test_jumps_are_told_and_not_followed(machine, jump_s, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [])
    machine.set_wall(jump_s)
    machine.advance(1000)
    assert machine.clock.now_us() == START_US + 1000 * S
    assert f"{jump_s:.0f} s from where it should be" in caplog.text


def test_a_clock_that_is_set_right_again_is_followed_again(machine):
    machine.set_wall(HOUR_S)
    machine.advance(1)
    machine.clock.now_us()
    machine.set_wall(-HOUR_S + 5)
    for _ in range(100):
        machine.advance(1)
        machine.clock.now_us()
    assert machine.ahead_s() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_wall_clock_does_time_moves_on_evenly(machine, seed):
    print("seed", seed)
    chance = random.Random(seed)
    last_us = machine.clock.now_us()
    for _ in range(2000):
        if chance.random() < 0.3:
            machine.set_wall(chance.choice([-1, 1]) * 10 ** chance.uniform(-3, 9))
        passed_s = chance.choice([0, 1e-6, 0.1, 1, 100])
        machine.advance(passed_s)
        now_us = machine.clock.now_us()
        assert 0.9 * passed_s * S - 2 <= now_us - last_us <= 1.1 * (passed_s + 0.5) * S + 2
        last_us = now_us


def test_two_clocks_that_agree_are_trusted():
    watch = JumpWatch(START_US - S, START_US)
    for number in range(10):
        assert not watch.has_jumped(START_US + number * 600 * S, number * 600.0)


@pytest.mark.parametrize("jump_s", [-10 * YEAR_S, -61, 61, 10 * YEAR_S])
def test_a_jump_is_distrusted_until_it_is_dealt_with(jump_s):
    watch = JumpWatch(START_US - S, START_US)
    assert not watch.has_jumped(START_US, 0.0)
    assert watch.has_jumped(START_US + jump_s * S + S, 1.0)
    assert watch.has_jumped(START_US + jump_s * S + 2 * S, 2.0)
    watch.trust()
    assert not watch.has_jumped(START_US + jump_s * S + 3 * S, 3.0)


@pytest.mark.parametrize(("newest_s", "expected"), [(0, False), (-59, False), (-HOUR_S, True)])
def test_a_start_long_after_the_last_message_is_distrusted(newest_s, expected):
    watch = JumpWatch(START_US + newest_s * S, START_US)
    assert watch.has_jumped(START_US, 0.0) is expected


def test_an_empty_store_has_nothing_to_distrust():
    assert not JumpWatch(0, START_US).has_jumped(START_US, 0.0)
