"""Sessions of the console, with a clock that the test moves."""

import itertools
from contextlib import ExitStack

import pytest

from poe.broker.access.options import SecurityOptions
from poe.errors import RequestRefused
from poe.gateway.console.sessions import (
    FAILURES_MAX,
    FAILURES_S,
    IDLE_S,
    SESSIONS_MAX,
    TRIES_MAX,
    TRIES_PER_ADDRESS_MAX,
    Sessions,
)
from poe.security.credentials import Scram
from poe.security.entry import Entry

ENTRY = Entry()


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    numbers = itertools.count()
    return Sessions(clock, lambda: f"secret {next(numbers)}")


def test_a_token_opens_one_session_and_no_other(sessions):
    token = sessions.new_token()
    assert not sessions.redeem("secret")
    assert sessions.redeem(token)
    assert not sessions.redeem(token)


def test_a_new_token_makes_the_one_before_it_useless(sessions):
    first, second = sessions.new_token(), sessions.new_token()
    assert not sessions.redeem(first)
    assert sessions.redeem(second)


def test_without_a_token_nothing_is_one(sessions):
    assert not sessions.redeem("")


def test_a_session_is_found_by_its_secret_alone(sessions):
    secret, session = sessions.open("ann", ENTRY)
    assert sessions.find(secret) is session
    assert sessions.find(secret + " ") is None
    assert sessions.find("\ud800") is None


def test_a_session_ends_when_it_was_idle_for_long_and_not_while_it_is_used(sessions, clock):
    secret, session = sessions.open(None, ENTRY)
    ended = []
    session.on_end.add(lambda: ended.append("ended"))
    clock.now_s += IDLE_S - 1
    assert sessions.find(secret) is session
    clock.now_s += IDLE_S - 1
    assert sessions.find(secret) is session
    assert not ended
    clock.now_s += IDLE_S + 1
    assert sessions.find(secret) is None
    assert ended == ["ended"]


def test_of_too_many_sessions_the_one_that_was_idle_longest_gives_way(sessions):
    secrets = [sessions.open(None, ENTRY)[0] for _ in range(SESSIONS_MAX)]
    assert sessions.find(secrets[0]) is not None
    sessions.open(None, ENTRY)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(secrets[1]) is None
    assert sessions.find(secrets[0]) is not None


def test_sessions_end_whose_way_in_is_none_any_more_and_no_others(sessions):
    ended = []
    other = Entry(None, Scram("ann", "another"))
    for entry in (ENTRY, other, other):
        secret, session = sessions.open("ann", entry)
        session.on_end.add(lambda secret=secret: ended.append(secret))
    sessions.end_of(other)
    assert len(ended) == 2
    assert sessions.entries() == {ENTRY}


def test_whoever_logs_out_is_out_and_is_told_so_once(sessions):
    secret, session = sessions.open(None, ENTRY)
    ended = []
    session.on_end.add(lambda: ended.append("ended"))
    sessions.end(secret)
    sessions.end(secret)
    assert sessions.find(secret) is None
    assert ended == ["ended"]


def fail(sessions, address):
    with pytest.raises(RequestRefused, match="wrong"), sessions.trying(address):
        raise RequestRefused(401, "wrong")


def refused(sessions, address):
    with pytest.raises(RequestRefused) as refused, sessions.trying(address):
        pass
    return refused.value


def test_an_address_that_fails_often_waits_and_others_do_not(sessions, clock):
    for _ in range(FAILURES_MAX):
        fail(sessions, "10.0.0.1")
    error = refused(sessions, "10.0.0.1")
    assert error.status == 429
    assert "try again in 61 s" in str(error)
    with sessions.trying("10.0.0.2"):
        pass
    clock.now_s += FAILURES_S + 1
    with sessions.trying("10.0.0.1"):
        pass


def test_addresses_that_one_machine_has_all_of_wait_together(sessions):
    for number in range(FAILURES_MAX):
        fail(sessions, f"2001:db8::{number:x}")
    assert refused(sessions, "2001:db8::ffff").status == 429
    with sessions.trying("2001:db8:0:1::1"):
        pass


def test_an_address_that_tries_many_at_once_is_not_asked_for_all_of_them(sessions):
    with ExitStack() as tries:
        for _ in range(TRIES_PER_ADDRESS_MAX):
            tries.enter_context(sessions.trying("10.0.0.1"))
        assert refused(sessions, "10.0.0.1").status == 429
        tries.enter_context(sessions.trying("10.0.0.2"))
    with sessions.trying("10.0.0.1"):
        pass


def test_logins_that_wait_for_the_broker_leave_places_there_for_the_gateway(sessions):
    numbers = itertools.count()
    with ExitStack() as tries:
        for _ in range(TRIES_MAX):
            tries.enter_context(sessions.trying(f"10.0.0.{next(numbers)}"))
        assert refused(sessions, "10.0.1.1").status == 503
    with sessions.trying("10.0.1.1"):
        pass
    assert SecurityOptions().unauthenticated_per_address_max >= 2 * TRIES_MAX
