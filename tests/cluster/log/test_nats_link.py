"""Connections to servers that are ill: a few lines that speak for them."""

import ssl
import threading
from functools import partial
from typing import Any

import pytest

from poe.cluster.log.engine import Connected, Disconnected, NotStored, Stored
from poe.cluster.log.nats_target import Login, NatsTarget
from tests.cluster.log.old_server import old_server
from tests.waiting import wait_until

pytest.importorskip("nats")

from poe.cluster.log import nats_link
from poe.cluster.log.nats_engine import NatsEngine

PATIENCE_S = 20.0
PINGS = 4
"""So many of them are sent until an engine is connected."""


class Fixed:
    """A server at a url."""

    def __init__(self, url):
        self.url = url

    def target(self):
        return NatsTarget((self.url,))


class Secret(Fixed):
    """The same, which is to speak TLS, and to be told a password then."""

    def target(self):
        url = self.url.replace("nats:", "tls:")
        return NatsTarget((url,), Login("ann", "pencil"), tls=ssl.create_default_context())


@pytest.fixture
def heard():
    return []


@pytest.fixture
def start(heard, monkeypatch):
    """Starts an engine that soon notices that a server says nothing."""
    monkeypatch.setattr(nats_link, "_PING_S", 0.2)
    engines = []

    def begin(url, found=Fixed):
        engine = NatsEngine("x", "c", found(url))
        engines.append(engine)
        engine.open(heard.append)
        return engine

    yield begin
    for engine in engines:
        engine.close()


def answer_some(client, count):
    """Answer so many pings."""
    while count > 0 and (content := client.recv(65536)):
        client.sendall(b"PONG\r\n" * min(count, content.count(b"PING")))
        count -= content.count(b"PING")


def count(heard, kind):
    return sum(isinstance(each, kind) for each in heard)


@pytest.mark.parametrize("pongs", range(PINGS + 2))
def test_a_server_that_dies_while_it_is_connected_to_is_connected_to_again(start, heard, pongs):
    def serve(client, number):
        answer_some(client, 1000 if number else pongs)

    with old_server(serve) as url:
        start(url)
        wait_until(lambda: heard and isinstance(heard[-1], Connected), PATIENCE_S)


def test_a_server_that_does_not_ask_for_tls_is_told_nothing_where_there_is_to_be_some(start, heard):
    told = []

    def serve(client, number):
        while content := client.recv(65536):
            told.append(content)
            client.sendall(b"PONG\r\n" * content.count(b"PING"))

    with old_server(serve, auth_required=True) as url:
        start(url, Secret)
        wait_until(lambda: heard, PATIENCE_S)
    assert isinstance(heard[0], Disconnected)
    assert "no TLS" in heard[0].why
    assert told == []


def test_a_server_that_reads_nothing_any_more_is_given_up(start, heard):
    ending = threading.Event()

    def serve(client, number):
        answer_some(client, 1000 if number else PINGS)
        ending.wait(PATIENCE_S)

    with old_server(serve) as url:
        engine = start(url)
        wait_until(lambda: count(heard, Connected), PATIENCE_S)
        told: list[NotStored | Stored] = []
        for number in range(16):
            engine.publish("s", str(number), bytes(1 << 20), 0.5, told.append)
        wait_until(lambda: count(heard, Disconnected), PATIENCE_S)
        wait_until(lambda: count(heard, Connected) == 2, PATIENCE_S)
        ending.set()
        wait_until(lambda: len(told) == 16, PATIENCE_S)
        assert all(isinstance(each, NotStored) for each in told)


def test_what_was_on_its_way_to_a_server_that_read_nothing_is_in_nobodys_way_later(start, heard):
    """A task that waits for its socket is ended with its connection."""

    def serve(client, number):
        if number:
            acknowledge(client)
        answer_some(client, PINGS)
        ending.wait(PATIENCE_S)

    ending = threading.Event()
    with old_server(serve) as url:
        engine = start(url)
        wait_until(lambda: count(heard, Connected), PATIENCE_S)
        for number in range(16):
            engine.publish("s", str(number), bytes(1 << 20), 0.5, lambda _: None)
        wait_until(lambda: count(heard, Connected) == 2, PATIENCE_S)
        for number in range(50):
            told: list[NotStored | Stored] = []
            engine.publish("s", f"later {number}", b"x", 5.0, told.append)
            wait_until(partial(bool, told), PATIENCE_S)
            assert told == [Stored(1)]
        ending.set()


def acknowledge(client):
    """Answer pings, and say of all entries that they are stored."""
    for line in client.makefile("rb"):
        match line.split():
            case [b"PING"]:
                client.sendall(b"PONG\r\n")
            case [b"HPUB", _, reply, *_]:
                client.sendall(b'MSG %s 1 9\r\n{"seq":1}\r\n' % reply)


def test_an_entry_that_waits_behind_others_is_told_in_time_and_surely_not_stored(heard):
    def serve(client, number):
        answer_some(client, PINGS)
        ending.wait(PATIENCE_S)

    ending = threading.Event()
    with old_server(serve) as url:
        engine = NatsEngine("x", "c", Fixed(url))
        engine.open(heard.append)
        try:
            wait_until(lambda: count(heard, Connected), PATIENCE_S)
            told: list[Any] = []
            for number in range(16):
                engine.publish("s", str(number), bytes(1 << 20), 0.5, told.append)
            wait_until(lambda: len(told) == 16, 4.0)
            assert not count(heard, Disconnected)
            assert [each.is_sure for each in told].count(True) > 8
            assert engine.metrics()["under_way"] == 0
        finally:
            ending.set()
            engine.close()
