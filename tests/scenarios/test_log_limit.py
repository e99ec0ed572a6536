"""Floods of lines alike are cut short, counted, and hide nothing else."""

import logging

import pytest

from poe.broker.log_limit import LINES_MAX, ONCE_A_MINUTE, LogLimit


@pytest.fixture
def log():
    """Log a line at a time of one's choice; returns the line, or None when it was left out."""
    limit = LogLimit()

    def log(time_s, message, *args, extra=None):
        logger = logging.getLogger("poe.broker")
        record = logger.makeRecord("", logging.INFO, "", 0, message, args, None, extra=extra)
        record.created = time_s
        return record.getMessage() if limit.filter(record) else None

    return log


def test_lines_alike_are_left_out_beyond_the_limit(log):
    lines = [log(100.0, "client %d", number) for number in range(50)]
    assert lines == [f"client {number}" for number in range(LINES_MAX)] + [None] * 40


def test_the_next_period_tells_how_many_were_left_out(log):
    for _ in range(50):
        log(100.0, "client %d", 1)
    assert log(101.0, "client %d", 2) == "client 2 (40 lines alike were left out before)"
    assert log(101.1, "client %d", 3) == "client 3"


def test_a_flood_of_one_kind_hides_no_other(log):
    for _ in range(50):
        log(100.0, "client %d", 1)
    assert log(100.0, "disk %s", "full") == "disk full"


def test_a_lasting_state_is_one_line_a_minute(log):
    lines = [log(100.0 + tick / 5, "disk %s", "full", extra=ONCE_A_MINUTE) for tick in range(601)]
    assert [(tick / 5, line) for tick, line in enumerate(lines) if line is not None] == [
        (0.0, "disk full"),
        (60.0, "disk full (299 lines alike were left out before)"),
        (120.0, "disk full (299 lines alike were left out before)"),
    ]


def test_a_quiet_log_is_left_alone(log):
    for second in range(50):
        assert log(100.0 + second, "client %d", second) == f"client {second}"


def test_a_clock_that_is_set_back_silences_nothing(log):
    for _ in range(50):
        log(1000.0, "client %d", 1)
    assert log(10.0, "client %d", 2) == "client 2 (40 lines alike were left out before)"


def test_a_percent_sign_in_what_is_logged_is_no_format(log):
    for _ in range(50):
        log(100.0, "topic %s", "100%d")
    assert log(102.0, "topic %s", "100%d").startswith("topic 100%d (40 lines")
