"""A bucket delays in proportion to what was taken."""

from hypothesis import given
from hypothesis import strategies as st

from poe.security.bucket import TokenBucket


def test_what_is_in_the_bucket_costs_no_time():
    bucket = TokenBucket(rate=10, burst=20)
    bucket.debit(20, 100.0)
    assert bucket.owed_s(100.0) == 0.0


def test_a_debt_is_paid_by_time():
    bucket = TokenBucket(rate=10, burst=20)
    bucket.debit(50, 100.0)
    assert bucket.owed_s(100.0) == 3.0
    assert bucket.owed_s(102.0) == 1.0
    assert bucket.owed_s(103.0) == 0.0


def test_a_bucket_holds_no_more_than_its_burst():
    bucket = TokenBucket(rate=10, burst=20)
    bucket.debit(0, 0.0)
    bucket.debit(30, 1e6)
    assert bucket.owed_s(1e6) == 1.0


def test_a_clock_that_goes_back_fills_nothing_twice():
    bucket = TokenBucket(rate=10, burst=10)
    bucket.debit(30, 100.0)
    bucket.debit(0, 90.0)
    assert bucket.owed_s(100.0) == 2.0


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), min_size=1),
    st.floats(1, 100),
    st.floats(0, 100),
)
def test_who_waits_for_what_is_owed_gets_no_more_than_the_rate_and_one_burst(steps, rate, burst):
    bucket, now_s, taken, last = TokenBucket(rate, burst), 0.0, 0.0, 0.0
    for amount, pause_s in steps:
        now_s += pause_s + bucket.owed_s(now_s)
        assert taken <= (rate * now_s + burst) * (1 + 1e-9) + 1e-6
        bucket.debit(amount, now_s)
        taken, last = taken + amount, amount
    assert taken - last <= (rate * now_s + burst) * (1 + 1e-9) + 1e-6
