"""A certificate that is about to expire is told in time, and not again and again."""

import pytest

from poe.security.expiry import ExpiryWarning, days_left

DAY_S = 86_400.0
ENDS_S = 1000 * DAY_S


def said(warning, *days):
    """What is said so many days before the end, one look after the other."""
    return [warning.sentence("c.pem", ENDS_S, ENDS_S - each * DAY_S) for each in days]


def test_it_is_said_three_times_before_the_end_and_then_no_more():
    told = said(ExpiryWarning(), 90, 21.1, 21, 20, 7.1, 7, 6, 1.1, 1, 0.5, 0.1)
    assert [each is not None for each in told] == [
        *(False, False, True, False, False, True, False, False, True, False, False)
    ]
    assert told[2] == "c.pem expires in 21.0 days; renew it"


@pytest.mark.parametrize("days", [3, 0.5])
def test_who_begins_late_is_told_at_once(days):
    assert said(ExpiryWarning(), days, days) == [
        f"c.pem expires in {days:.1f} days; renew it",
        None,
    ]


def test_one_that_has_expired_is_told_as_such():
    assert said(ExpiryWarning(), 0, -1) == [
        "c.pem has expired, and clients refuse it; renew it",
        None,
    ]


def test_one_that_was_renewed_begins_anew():
    warning = ExpiryWarning()
    assert said(warning, 6)[0]
    assert said(warning, 90, 20) == [None, "c.pem expires in 20.0 days; renew it"]
    assert days_left(ENDS_S, ENDS_S - DAY_S) == 1.0
