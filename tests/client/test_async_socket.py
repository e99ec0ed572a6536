import asyncio
import socket as tcp
import threading
from contextlib import asynccontextmanager
from functools import partial
from struct import pack

import pytest
import uvloop

import poe.client
from poe.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    InvalidMessage,
    LocalProtocolError,
    PointerOutOfRange,
    RemoteProtocolError,
    UnknownTopic,
)
from poe.protocol import IN_FLIGHT_MAX
from poe.security import Tls
from tests.ports import free_port, name_ports, swallowing_port
from tests.protocol.scripted_server import Peer, ScriptedServer, pointer_body, record
from tests.protocol.test_client import answer_puts


@pytest.fixture(autouse=True, params=["plain", "tls"])
def over(request, monkeypatch):
    """What is between client and server."""
    if request.param == "tls":
        certificates = request.getfixturevalue("certificates")
        tls = Tls(certificates.file("ca.pem"))
        monkeypatch.setattr(ScriptedServer, "tls", certificates.server_context())
        monkeypatch.setattr(poe.client, "connect", partial(poe.client.connect, tls=tls))
    return request.param


@asynccontextmanager
async def connected(script, **options):
    """A client of a server that plays `script`."""
    with ScriptedServer(script) as server:
        async with await poe.client.connect(port=server.port, **options) as client:
            yield client


async def test_write_and_read_send_the_frames_of_the_codec():
    def script(peer: Peer) -> None:
        assert peer.receive() == (2, b"\0\0\0\x01t\0\0\0\x05hello")
        peer.send(3, pointer_body(42))
        assert peer.receive() == (0, pointer_body(7) + b"\0\0\0\x64" + b"t")
        peer.send(1, record(8, b"a") + record(9, b"bc"))

    async with connected(script) as client:
        assert await client.write("t", [b"hello"]) == 42
        assert await client.read("t", 7, 100) == [(8, b"a"), (9, b"bc")]


async def test_control_requests_are_those_of_the_blocking_client():
    def script(peer: Peer) -> None:
        for op, result in (("topics", [b"t"]), ("status", {b"t": []}), ("wait", 1), ("info", 5)):
            request = peer.receive_control()
            assert request["op"] == op
            peer.send_control(request["id"], result)

    async with connected(script) as client:
        assert await client.topics() == [b"t"]
        assert await client.status() == {b"t": []}
        assert await client.wait("t", 5, 1.5) is True
        assert await client.control("info", topic=b"t") == 5


async def test_replies_that_come_byte_by_byte_are_put_together():
    records = record(1, b"x" * 3000) + record(2, b"n")

    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(pack(">IH", 2 + len(records), 1) + records, piece_size=1)

    async with connected(script) as client:
        assert await client.read(b"t", 0, 10) == [(1, b"x" * 3000), (2, b"n")]


async def test_calls_at_the_same_time_get_their_own_replies():
    count = 5 * IN_FLIGHT_MAX
    async with connected(answer_puts) as client:
        pointers = await asyncio.gather(*(client.write("t", [b"m"]) for _ in range(count)))
    assert pointers == list(range(1, count + 1))


async def test_requests_under_way_are_bounded():
    seen = []

    def script(peer: Peer) -> None:
        for _ in range(IN_FLIGHT_MAX):
            peer.receive()
        # An answer to the first is the only thing that lets one more request out.
        peer.send(3, pointer_body(1))
        peer.receive()
        seen.append("one more")
        for number in range(2, IN_FLIGHT_MAX + 2):
            peer.send(3, pointer_body(number))

    async with connected(script) as client:
        count = IN_FLIGHT_MAX + 1
        pointers = await asyncio.gather(*(client.write("t", [b"m"]) for _ in range(count)))
    assert pointers == list(range(1, count + 1))
    assert seen == ["one more"]


async def test_server_that_takes_nothing_holds_requests_back():
    over = threading.Event()
    with ScriptedServer(lambda _: over.wait(10)) as deaf:
        client = await poe.client.connect(port=deaf.port, timeout_s=0.25)
        calls = (client.write("t", [b"x" * 8_000_000]) for _ in range(10))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, CallTimeout) for each in outcomes)
        transport = client._pipeline._transport  # noqa: SLF001 - its buffer has no other door
        assert transport is not None
        assert transport.get_write_buffer_size() < 2 * 8_000_000
        await client.close()
        over.set()


async def test_reply_of_a_cancelled_call_is_dropped():
    def script(peer: Peer) -> None:
        peer.receive()
        peer.receive()
        peer.send(1, record(1, b"dropped"))
        peer.send(3, pointer_body(2))

    async with connected(script) as client:
        cancelled = asyncio.create_task(client.read("t", 0, 1))
        other = asyncio.create_task(client.write("t", [b"m"]))
        await asyncio.sleep(0)  # lets both send
        cancelled.cancel()
        assert await other == 2
        assert cancelled.cancelled()


async def test_call_cancelled_before_its_turn_sends_nothing():
    def script(peer: Peer) -> None:
        for number in range(IN_FLIGHT_MAX):
            assert peer.receive()[1].endswith(b"early")
            peer.send(3, pointer_body(number))
        assert peer.receive()[1].endswith(b"later")
        peer.send(3, pointer_body(99))

    async with connected(script) as client:
        early = [asyncio.create_task(client.write("t", [b"early"])) for _ in range(IN_FLIGHT_MAX)]
        waiting = asyncio.create_task(client.write("t", [b"never"]))
        await asyncio.sleep(0)  # lets all come to their turn
        waiting.cancel()
        assert await asyncio.gather(*early) == list(range(IN_FLIGHT_MAX))
        assert await client.write("t", [b"later"]) == 99


@pytest.mark.slow
async def test_socket_outlives_a_call_that_timed_out():
    def script(peer: Peer) -> None:
        assert peer.receive()[0] == 0
        assert peer.receive()[0] == 2
        peer.send(1, record(1, b"late"))
        peer.send(3, pointer_body(2))

    async with connected(script, timeout_s=1) as client:
        with pytest.raises(CallTimeout, match=r"within 1(\.0)? s"):
            await client.read("t", 0, 1)
        assert await client.write("t", [b"m"]) == 2


async def test_refusal_is_raised_where_it_belongs():
    def script(peer: Peer) -> None:
        for _ in range(3):
            peer.receive()
        peer.send(3, pointer_body(1))
        peer.send_error(401, "UnknownTopic", "no", topic=b"t")
        peer.send_error(207, "InvalidMessage", "no", size_bytes=9, message_max=5)

    async with connected(script) as client:
        calls = (client.write("t", [b"m"]) for _ in range(3))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes[0] == 1
    assert [type(each) for each in outcomes[1:]] == [UnknownTopic, InvalidMessage]


async def test_lost_connection_fails_all_calls_under_way_and_later_ones():
    def script(peer: Peer) -> None:
        for _ in range(IN_FLIGHT_MAX):
            peer.receive()
        peer.send(3, pointer_body(1))
        peer.send_bytes(b"\0\0\0\x09\0\x03a")

    async with connected(script) as client:
        calls = (client.write("t", [b"m"]) for _ in range(2 * IN_FLIGHT_MAX))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert outcomes[0] == 1
        assert all(isinstance(each, ConnectionClosed) for each in outcomes[1:])
        with pytest.raises(ConnectionClosed, match="open a new one"):
            await client.write("t", [b"m"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"\0\0\0\x02\0\x01", "type 1 came as the answer, not 3"),
        (b"\0\0\0\0", "has no type"),
        (b"\xff\xff\xff\xff", "frame of 4294967295 bytes is refused"),
    ],
)
async def test_reply_that_makes_no_sense_ends_the_connection(reply, reason):
    def script(peer: Peer) -> None:
        peer.receive()
        peer.send_bytes(reply)
        peer.wait_closed()

    async with connected(script) as client:
        for _ in range(2):
            with pytest.raises(ConnectionClosed, match=reason):
                await client.write("t", [b"m"])


async def test_control_reply_with_another_id_ends_the_connection():
    def script(peer: Peer) -> None:
        peer.send_control(peer.receive_control()["id"] + 1, None)
        peer.wait_closed()

    async with connected(script) as client:
        with pytest.raises(RemoteProtocolError, match="answered with id"):
            await client.topics()
        with pytest.raises(ConnectionClosed, match="answered with id"):
            await client.topics()


async def test_server_that_refuses_the_connection_is_heard():
    def script(peer: Peer) -> None:
        peer.send_error(403, "Overloaded", "node is full", limit="connections_max", value=9)

    async with connected(script) as client:
        # Only the first call may find the connection still open.
        with pytest.raises((ConnectionClosed, poe.errors.Overloaded), match="node is full"):
            await client.write("t", [b"m"])
        with pytest.raises(ConnectionClosed):
            await client.write("t", [b"m"])


async def test_a_request_behind_the_last_words_of_a_server_has_not_been_done():
    def script(peer: Peer) -> None:
        peer.send_error(403, "Overloaded", "node is full", limit="connections_max", value=9)
        peer.receive()

    async with connected(script) as client:
        while not client._pipeline._last_words:  # noqa: ASYNC110, SLF001 - till it came
            await asyncio.sleep(0)
        with pytest.raises(ConnectionClosed, match=r"node is full$"):
            await client.write("t", [b"m"])


async def test_follow_reads_on_from_the_last_pointer_and_waits_at_the_end():
    def script(peer: Peer) -> None:
        assert peer.receive() == (0, pointer_body(0) + b"\0\0\0\x02t")
        peer.send(1, record(1, b"a") + record(2, b"b"))
        assert peer.receive() == (0, pointer_body(2) + b"\0\0\0\x02t")
        peer.send(1, b"")
        request = peer.receive_control()
        assert (request["op"], request["pointer"]) == ("wait", 2)
        peer.send_control(request["id"], result=True)
        assert peer.receive() == (0, pointer_body(2) + b"\0\0\0\x02t")
        peer.send(1, record(3, b"c"))

    followed = []
    async with connected(script) as client:
        async for pointer, message in client.follow("t", batch=2):
            followed.append((pointer, message))
            if pointer == 3:
                break
    assert followed == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_mistakes_of_the_caller_send_nothing():
    async with connected(answer_puts, frame_max=1000) as client:
        for call, error in (
            (client.write("", [b"m"]), LocalProtocolError),
            (client.write("t", [b""]), LocalProtocolError),
            (client.write("t", [b"x" * 2000]), LocalProtocolError),
            (client.read("t", 1 << 56, 1), PointerOutOfRange),
            (client.wait("t", -1, 1.0), PointerOutOfRange),
            (anext(client.follow("t", batch=0)), LocalProtocolError),
        ):
            with pytest.raises(error):
                await call
        assert await client.write("t", [b"m"]) == 1


async def test_nobody_listening_is_said_so():
    with tcp.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        await poe.client.connect("127.0.0.1", port)


@pytest.mark.slow
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_address_that_swallows_packets_keeps_nobody_from_the_next(monkeypatch, loop_factory):
    async def put() -> None:
        async with await poe.client.connect("localhost", 1, timeout_s=20) as client:
            assert await client.write("t", [b"m"]) == 1

    async def put_nowhere() -> None:
        with pytest.raises(ConnectFailed, match="timed out"):
            await poe.client.connect("holes.test", 1, timeout_s=0.3)
        with pytest.raises(ConnectFailed, match="refused"):
            await poe.client.connect("closed.test", 1, timeout_s=20)

    with (
        swallowing_port() as hole,
        ScriptedServer(answer_puts) as server,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        name_ports(monkeypatch, "localhost", [hole, server.port])
        runner.run(put())
        name_ports(monkeypatch, "holes.test", [hole, hole])
        name_ports(monkeypatch, "closed.test", [free_port(), free_port()])
        runner.run(put_nowhere())


async def test_closed_socket_says_so():
    async with connected(Peer.wait_closed) as client:
        under_way = asyncio.create_task(client.read("t", 0, 1))
        await asyncio.sleep(0)  # lets it send
        await client.close()
        for call in (under_way, client.read("t", 0, 1)):
            with pytest.raises(ConnectionClosed, match="closed here"):
                await call


def test_client_runs_on_uvloop_too():
    messages = [(number, b"%07d" % number * 20) for number in range(1, 5000)]

    def script(peer: Peer) -> None:
        peer.receive()
        peer.send(1, b"".join(record(*each) for each in messages))
        answer_puts(peer)

    async def session() -> None:
        async with connected(script) as client:
            assert await client.read("t", 0, 5000) == messages
            pointers = await asyncio.gather(*(client.write("t", [b"m"]) for _ in range(200)))
            assert pointers == list(range(1, 201))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(session())
