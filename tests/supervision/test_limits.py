"""Limits that a supervisor could never reach are told at its start."""

import logging

import pytest

from poe.supervision import Backoff, Strategy, SupervisorFlags
from poe.supervision.limits import unreachable_limits

ONE, REST, ALL = Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ALL


def found(world, intensity, period_s, backoff, strategy=ONE, **options):
    flags = SupervisorFlags(
        strategy=strategy, intensity=intensity, period_s=period_s, backoff=backoff
    )
    return list(unreachable_limits(flags, [world.spec("a", **options)]))


@pytest.mark.parametrize(
    ("intensity", "period_s", "backoff", "is_unreachable"),
    [
        (3, 5, None, False),
        (0, 5, Backoff(first_s=100, max_s=100), False),
        (1, 5, Backoff(first_s=6, max_s=6), True),
        (1, 5, Backoff(first_s=5.9, max_s=5.9), False),
        (3, 5, Backoff(first_s=1, factor=2), True),  # 1 + 2 + 4
        (3, 7, Backoff(first_s=1, factor=2), False),
        (3, 5, Backoff(first_s=1, factor=2, jitter=0.5), False),
        (10**9, 5, Backoff(first_s=1e-6, max_s=1e-6), False),
    ],
)
def test_waits_that_leave_the_window_are_found(world, intensity, period_s, backoff, is_unreachable):
    assert bool(found(world, intensity, period_s, backoff)) is is_unreachable


@pytest.mark.parametrize("wait_s", [5.9, 6])
def test_what_is_said_is_what_happens(world, wait_s):
    backoff = Backoff(first_s=wait_s, max_s=wait_s)
    supervisor = world.supervise([world.spec("a")], intensity=1, period_s=5, backoff=backoff)
    for _ in range(10):
        if world.reason_of(supervisor) is None:
            world.end(supervisor, "a")
            world.base.advance(wait_s)
    is_unreachable = bool(found(world, 1, 5, backoff))
    assert (world.reason_of(supervisor) is None) is is_unreachable


@pytest.mark.parametrize(
    ("strategy", "shutdown_s", "is_unreachable"),
    [
        (ONE, 6, False),
        (REST, 6, True),
        (ALL, 6, True),
        (ALL, 5, False),
        (ALL, "infinity", False),
        (ALL, "brutal_kill", False),
    ],
)
def test_a_shutdown_longer_than_the_window_is_found(world, strategy, shutdown_s, is_unreachable):
    warnings = found(world, 1, 5, None, strategy, shutdown_s=shutdown_s)
    assert bool(warnings) is is_unreachable


def test_a_supervisor_warns_when_it_starts(world, caplog):
    caplog.set_level(logging.WARNING, "poe.supervision")
    world.supervise(world.specs("a"), intensity=1, backoff=Backoff(first_s=60, max_s=60))
    [record] = caplog.records
    assert (record.levelno, "restarted for ever" in record.message) == (logging.WARNING, True)
