"""Which of the addresses of a name is connected to, and what is left of the others."""

import asyncio
import itertools
import socket
from contextlib import closing, suppress

import pytest
import uvloop

import poe.client
from poe.client import first_address
from poe.client.first_address import connect_first
from poe.errors import ConnectFailed
from poe.protocol.wire import place_of
from poe.security import Tls
from tests.ports import free_port, name_ports, swallowing_port

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


def _loopback():
    return socket.create_server(("127.0.0.1", 0), backlog=100)


@pytest.fixture
def made(monkeypatch):
    """The sockets that are made to connect."""
    made: list[socket.socket] = []

    class Noting:
        def __getattr__(self, name):
            return getattr(socket, name)

        def socket(self, *arguments):
            made.append(socket.socket(*arguments))
            return made[-1]

    monkeypatch.setattr(first_address, "socket", Noting())
    return made


@LOOPS
def test_the_next_address_is_tried_at_once_where_nobody_listens_at_the_first(
    monkeypatch, loop_factory
):
    monkeypatch.setattr("poe.client.first_address._NEXT_S", 1000.0)
    with (
        _loopback() as server,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        name_ports(monkeypatch, "two.test", [free_port(), server.getsockname()[1]])
        with closing(runner.run(connect_first("two.test", 0))) as connection:
            assert connection.getpeername() == server.getsockname()


def test_of_two_that_answer_in_one_turn_one_is_closed(monkeypatch, made):
    async def race(attempts, _):
        for attempt in attempts:
            await attempt()
        return None, 0, [None] * len(attempts)

    monkeypatch.setattr(first_address, "staggered_race", race)
    with _loopback() as one, _loopback() as other:
        name_ports(monkeypatch, "two.test", [each.getsockname()[1] for each in (one, other)])
        with closing(asyncio.run(connect_first("two.test", 0))) as connection:
            assert [each.fileno() for each in made] == [connection.fileno(), -1]


@LOOPS
def test_what_loses_is_closed(monkeypatch, made, loop_factory):
    monkeypatch.setattr("poe.client.first_address._NEXT_S", 0.01)
    with (
        swallowing_port() as hole,
        _loopback() as server,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        name_ports(monkeypatch, "two.test", [hole, server.getsockname()[1]])
        connection = runner.run(connect_first("two.test", 0))
        assert [each for each in made if each.fileno() >= 0] == [connection]
        connection.close()


@LOOPS
def test_who_is_cancelled_at_any_moment_leaves_nothing_open(made, loop_factory):
    """Also where a connection has been made, and nobody has it yet."""

    async def cancel_behind(turns):
        task = asyncio.ensure_future(connect_first("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            (await task).close()
            return True
        return False

    with (
        _loopback() as server,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        port = server.getsockname()[1]
        turns = itertools.count()
        made_it = [runner.run(cancel_behind(next(turns))) for _ in range(40)]
        while True not in made_it:  # on a busy machine, to connect takes more turns
            made_it.append(runner.run(cancel_behind(next(turns))))
        runner.run(asyncio.sleep(0))
        assert [each for each in made if each.fileno() >= 0] == []


async def test_a_handshake_that_takes_long_is_no_reason_to_try_the_next_address(monkeypatch):
    """Else a busy server gets two of them from each client, and whoever is faster wins."""
    monkeypatch.setattr("poe.client.first_address._NEXT_S", 0.01)
    with _loopback() as mute, _loopback() as other:
        other.setblocking(False)
        name_ports(monkeypatch, "two.test", [each.getsockname()[1] for each in (mute, other)])
        with pytest.raises(ConnectFailed, match="timed out"):
            await poe.client.connect("two.test", 1, tls=Tls(), timeout_s=0.3)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_link_local_address_keeps_its_network():
    """Without it nothing is reached there."""
    assert place_of(("fe80::1", 5555, 0, 4)) == ("fe80::1%4", 5555)
    assert place_of(("::1", 5555, 0, 0)) == ("::1", 5555)
    assert place_of(("127.0.0.1", 5555)) == ("127.0.0.1", 5555)
