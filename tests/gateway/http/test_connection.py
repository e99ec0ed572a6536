"""One connection of the gateway without sockets: what it keeps of requests that come at once."""

import asyncio
import socket

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from poe.broker.connection.client_count import ClientCount
from poe.gateway.http.connection import LimitedConnection
from poe.gateway.http.options import GatewayOptions

TIMEOUT_S = 20.0
REQUEST = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Transport(asyncio.Transport):
    """Has no client; keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.is_paused = False
        self.closed = asyncio.Event()

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def is_closing(self):
        return self.closed.is_set()

    def close(self):
        self.closed.set()


class Served:
    """An application that answers with the path once it may, and notes whose client has gone."""

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.gone = []

    async def __call__(self, scope, receive, send):
        heard = asyncio.ensure_future(self._hear(scope["path"], receive))
        await self.may_answer.wait()
        heard.cancel()
        headers = [(b"content-length", b"%d" % len(scope["path"]))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def _hear(self, path, receive):
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.append(path)


def made(application, state, **options):
    given = GatewayOptions(**options)
    clients = ClientCount(given.connections_max, given.connections_per_address_max)
    kind = type("Connection", (LimitedConnection,), {"options": given, "clients": clients})
    config = Config(
        application,
        lifespan="off",
        log_config=None,
        http=kind,
        timeout_keep_alive=given.keep_alive_s,
    )
    config.load()
    return kind(config=config, server_state=state, app_state={})


def connected(application, **options):
    connection = made(application, ServerState(), **options)
    connection.connection_made(Transport())
    return connection


async def until(is_so):
    for _ in range(int(TIMEOUT_S * 100)):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(is_so)


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.slow
async def test_of_requests_that_come_at_once_few_are_taken_apart_before_their_turn():
    served = Served()
    connection = connected(served)
    requests = [REQUEST % number for number in range(6000)]
    connection.data_received(b"".join(requests[:-1]))
    await turns()
    connection.data_received(requests[-1])
    assert len(connection.pipeline) < 200
    assert connection.transport.is_paused
    served.may_answer.set()
    while connection.transport.written.count(b"HTTP/1.1 200") < len(requests):
        await turns()
    written = connection.transport.written
    places = [written.index(b"\r\n\r\n/%d" % number) for number in (0, 1, 100, 5999)]
    assert places == sorted(places)
    assert not connection.transport.is_paused
    connection.connection_lost(None)


@pytest.mark.parametrize("count", [2, 3])
async def test_a_request_that_waits_is_not_late_with_its_head(count):
    served = Served()
    connection = connected(served, head_timeout_s=0.01)
    parts = b"".join(REQUEST % number for number in range(count))
    connection.data_received(parts[:-5])
    await asyncio.sleep(0.05)
    assert not connection.transport.is_closing()
    connection.data_received(parts[-5:])
    served.may_answer.set()
    await turns()
    assert connection.transport.written.count(b"HTTP/1.1 200") == count
    connection.connection_lost(None)


@pytest.mark.parametrize("sent", [b"\r\n", b"\r\n" * 3, b"\r\nG"])
async def test_a_client_that_goes_on_with_an_empty_line_has_the_time_of_a_head(sent):
    """Else its connection would be kept for ever: it is idle no more, and no request has begun."""
    served = Served()
    served.may_answer.set()
    connection = connected(served, head_timeout_s=0.01)
    connection.data_received(REQUEST % 1)
    await turns()
    assert connection.transport.written.count(b"HTTP/1.1 200") == 1
    connection.data_received(sent)
    async with asyncio.timeout(TIMEOUT_S):
        await connection.transport.closed.wait()
    assert connection.transport.written.endswith(b"connection: close\r\n\r\n")
    connection.connection_lost(None)


async def test_an_empty_line_before_a_request_means_nothing():
    served = Served()
    served.may_answer.set()
    connection = connected(served)
    for number in range(3):
        connection.data_received(b"\r\n" + REQUEST % number)
        await turns()
    assert connection.transport.written.count(b"HTTP/1.1 200") == 3
    connection.connection_lost(None)


async def test_half_a_head_has_its_time_once_the_request_before_it_is_answered():
    served = Served()
    connection = connected(served, head_timeout_s=0.01)
    connection.data_received(REQUEST % 1 + b"GET ")
    await turns()
    served.may_answer.set()
    async with asyncio.timeout(TIMEOUT_S):
        await connection.transport.closed.wait()
    first, second = connection.transport.written.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"200", b"408")
    connection.connection_lost(None)


@pytest.mark.parametrize("sent", [b"no HTTP\r\n\r\n", b"GET /2 HTTP/1.1\r\nno header\r\n\r\n"])
async def test_what_is_no_http_is_not_the_answer_to_the_request_before_it(sent):
    """A 400 says that nothing was taken, and that request may be done."""
    connection = connected(Served())
    connection.data_received(REQUEST % 1 + sent)
    await turns()
    assert connection.transport.is_closing()
    assert connection.transport.written == b""
    connection.connection_lost(None)


async def test_whoever_is_served_hears_that_its_client_has_gone_whatever_waits_behind():
    served = Served()
    connection = connected(served)
    connection.data_received(REQUEST % 1 + REQUEST % 2)
    await turns()
    connection.connection_lost(None)
    await turns()
    assert served.gone == ["/1"]
    served.may_answer.set()
    await turns()


async def _answer_much(_scope, _receive, send):
    """More than kernels keep of it below, and less than pauses the writing."""
    body = b"a" * 50_000
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("sent", "is_ended"),
    [
        (REQUEST % 1, False),
        (REQUEST % 1, True),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", False),
    ],
    ids=["idle", "half closed", "at its end"],
)
async def test_a_client_that_takes_nothing_is_let_go_however_little_is_left_for_it(sent, is_ended):
    """Its connection, of which there are so many and no more, would be kept for ever."""
    state = ServerState()
    options = {"keep_alive_s": 1, "body_timeout_s": 0.1}
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server = await loop.create_server(
            lambda: made(_answer_much, state, **options), sock=listening
        )
        async with server:
            client.setblocking(False)
            await loop.sock_connect(client, listening.getsockname())
            await loop.sock_sendall(client, sent)
            await until(lambda: state.total_requests)
            [connection] = state.connections
            assert 0 < connection.transport.get_write_buffer_size() < 64 << 10
            if is_ended:
                client.shutdown(socket.SHUT_WR)
            await until(lambda: not state.connections)
