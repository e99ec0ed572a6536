"""How seldom the gateway tries a broker that lets it in no more: each try takes a place there.

And what becomes of those who ask brokers of Kafka that are away.
"""

import asyncio
import threading

import pytest

from poe.client.url import parse_url
from poe.errors import AuthenticationFailed, ConnectFailed
from poe.gateway.http.body import NDJSON, messages_in
from poe.gateway.http.brokers import REFUSED_WAIT_S, Brokers
from poe.security.entry import Entry


class Door:
    """Stands for connecting: raises what it is told to, by host, and counts who has knocked."""

    def __init__(self, **errors):
        self.errors = errors
        self.knocked = []

    async def __call__(self, server, timeout_s):
        del timeout_s
        self.knocked.append(server.host)
        raise self.errors[server.host]


@pytest.fixture
def tried(monkeypatch):
    """Has somebody connect at certain times; returns what they are told."""

    async def tried(door, times, url="poe://a"):
        now_s = 0.0
        monkeypatch.setattr("poe.gateway.http.brokers.connect_to", door)
        brokers = Brokers(parse_url(url, Entry()), {}, 1.0, lambda: now_s)
        told = []
        for time_s in times:
            now_s = time_s
            with pytest.raises((AuthenticationFailed, ConnectFailed)) as failed:
                await brokers.connect(1.0)
            told.append(failed.type)
        return told

    return tried


async def test_a_broker_that_has_refused_the_gateway_is_not_tried_at_once(tried):
    door = Door(a=AuthenticationFailed())
    told = await tried(door, [0, 1, REFUSED_WAIT_S - 1, REFUSED_WAIT_S, REFUSED_WAIT_S + 1])
    assert told == [AuthenticationFailed] * 5
    assert len(door.knocked) == 2


async def test_nor_when_the_next_refusal_comes_too_late_to_be_heard(tried):
    door = Door(a=AuthenticationFailed())
    times = [0, REFUSED_WAIT_S, REFUSED_WAIT_S + 1]

    async def then_silence(server, timeout_s):
        try:
            await door(server, timeout_s)
        finally:
            door.errors["a"] = server.unreachable("no answer within 1 s")

    assert await tried(then_silence, times) == [
        AuthenticationFailed,
        ConnectFailed,
        AuthenticationFailed,
    ]
    assert len(door.knocked) == 2


async def test_another_broker_is_tried_all_the_same(tried):
    away = ConnectFailed("b", 5555, "Connection refused")
    door = Door(a=AuthenticationFailed(), b=away)
    await tried(door, [0, 1, 2], "poe://a,b")
    assert door.knocked == ["a", "b", "b", "b"]


async def test_a_broker_that_is_away_is_tried_each_time(tried):
    door = Door(a=ConnectFailed("a", 5555, "Connection refused"))
    await tried(door, [0, 1, 2])
    assert len(door.knocked) == 3


async def test_brokers_of_kafka_that_are_away_keep_nobody_else_waiting(monkeypatch):
    """Who asks for topics is told in time, however many ask, and large bodies are taken apart."""
    may_end = threading.Event()
    monkeypatch.setattr(Brokers, "_topics_of_kafka", lambda *_: may_end.wait())
    brokers = Brokers(parse_url("kafka://a", Entry()), {}, 1.0)
    try:
        async with asyncio.timeout(20):
            asked = [brokers.topics(0.1) for _ in range(100)]
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(each) for each in told} == {ConnectFailed}
            lines = b"1\n" * 20_000
            assert len(await messages_in(NDJSON, lines, None, None, 100_000)) == 20_000
    finally:
        may_end.set()


async def test_librdkafka_has_the_time_to_say_why_brokers_of_kafka_do_not_answer(monkeypatch):
    given_s = []
    monkeypatch.setattr(Brokers, "_topics_of_kafka", lambda _, limit_s: given_s.append(limit_s))
    await Brokers(parse_url("kafka://a", Entry()), {}, 1.0).topics(20.0)
    assert 10.0 < given_s[0] < 20.0
