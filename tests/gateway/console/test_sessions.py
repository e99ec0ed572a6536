"""Sessions of the console, with a clock that the test moves."""

import itertools

import pytest

from poe.errors import RequestRefused
from poe.gateway.console.sessions import FAILURES_MAX, FAILURES_S, IDLE_S, SESSIONS_MAX, Sessions
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


def test_whoever_logs_out_is_out_and_is_told_so_once(sessions):
    secret, session = sessions.open(None, ENTRY)
    ended = []
    session.on_end.add(lambda: ended.append("ended"))
    sessions.end(secret)
    sessions.end(secret)
    assert sessions.find(secret) is None
    assert ended == ["ended"]


def test_an_address_that_fails_often_waits_and_others_do_not(sessions, clock):
    for _ in range(FAILURES_MAX):
        sessions.check_may_try("10.0.0.1")
        sessions.note_failure("10.0.0.1")
    with pytest.raises(RequestRefused, match=r"try again in 61 s") as refused:
        sessions.check_may_try("10.0.0.1")
    assert refused.value.status == 429
    sessions.check_may_try("10.0.0.2")
    clock.now_s += FAILURES_S + 1
    sessions.check_may_try("10.0.0.1")
