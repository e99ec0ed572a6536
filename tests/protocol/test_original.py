"""Our clients against the original's server: what it knows works, the rest is refused by name.

The bytes are those that the original has sent, compiled and run; it ends a connection on which it
was asked for anything that it does not know, with nothing but the end of the stream.
"""

import asyncio
import logging

import pytest

from poe import protocol
from poe.cli import main
from poe.client import GroupWorker, Producer, connect
from poe.errors import ConnectionClosed, OriginalServer, PoeError, RemoteProtocolError
from poe.protocol import PutId
from poe.protocol.leases import LeaseRequest
from poe.protocol.original import ReplyReader
from tests.protocol.scripted_server import ScriptedServer

UNKNOWN = bytes.fromhex("000000000001")
PUT = bytes.fromhex("0000000900030660de3cb1f7da")
RECORDS = bytes.fromhex("0000001e00010000000a0660de3cb1f7b96f6e650000000a0660de3cb1f7da74776f")
MESSAGES = [(0x0660DE3CB1F7B9, b"one"), (0x0660DE3CB1F7DA, b"two")]
PUT_ID = PutId(bytes(16), 0, 0)


def original(peer, piece_size=1 << 20):
    """Answer as the original does, until it is asked for what it does not know."""
    while True:
        try:
            message_type, body = peer.receive()
        except EOFError:
            return
        if message_type == 2:
            peer.send_bytes(PUT, piece_size)
        elif message_type == 0 and body[11:] != b"t":
            peer.send_bytes(UNKNOWN)
        elif message_type == 0 and int.from_bytes(body[7:11]) >= 2:
            peer.send_bytes(RECORDS, piece_size)
        else:
            return


LACKING = [
    ("control requests", lambda socket: socket.control("health")),
    ("control requests", lambda socket: socket.wait("t", 0, 0.1)),
    ("control requests", lambda socket: socket.topics()),
    ("sequenced puts", lambda socket: socket.write("t", [b"m"], PUT_ID)),
    ("range requests", lambda socket: socket.read_range("t", 0, 9)),
    ("leases", lambda socket: socket.lease(LeaseRequest("g", bytes(16), 1, 1000))),
    ("reads of fewer than 2 messages", lambda socket: socket.read("t", 0, 1)),
]


def calls():
    return pytest.mark.parametrize(("what", "call"), LACKING)


@pytest.fixture(params=[1, 3, 1 << 20])
def server(request):
    with ScriptedServer(lambda peer: original(peer, request.param)) as server:
        yield server


def test_a_topic_that_is_unknown_has_no_messages_and_the_connection_goes_on(server):
    with protocol.socket("127.0.0.1", server.port, timeout_s=5) as socket:
        assert socket.read("nothing", 0, 10) == []
        assert socket.read("nothing", 0, 1) == []
        assert socket.write("t", [b"one", b"two"]) == MESSAGES[-1][0]
        assert socket.read("t", 0, 10) == MESSAGES
        assert socket.read("nothing", 0, 10) == []


@calls()
def test_what_it_does_not_know_is_refused_by_its_name(server, what, call):
    with protocol.socket("127.0.0.1", server.port, timeout_s=5) as socket:
        sentence = f"server 127.0.0.1:{server.port} is the original Poe; it knows no "
        with pytest.raises(OriginalServer) as caught:
            call(socket)
        assert str(caught.value).startswith(
            sentence + what.partition(" of w")[0].partition(" of t")[0]
        )
        assert not socket.is_usable
        with pytest.raises(ConnectionClosed, match="is the original Poe"):
            socket.read("t", 0, 10)


@calls()
def test_the_asyncio_client_says_the_same(server, what, call):
    async def call_all():
        async with await connect("127.0.0.1", server.port, timeout_s=5) as socket:
            assert await socket.read("nothing", 0, 10) == []
            assert await socket.read("t", 0, 10) == MESSAGES
            with pytest.raises(OriginalServer, match="is the original Poe; it knows no"):
                await call(socket)

    del what
    asyncio.run(call_all())


async def test_puts_onto_queues_across_nodes_are_refused_so_too(server):
    async with await connect("127.0.0.1", server.port, timeout_s=5) as socket:
        with pytest.raises(OriginalServer, match="it knows no puts onto queues"):
            await socket.put_onto_queue("q", [b"m"])


@calls()
def test_a_server_that_just_closes_is_not_called_the_original(what, call):
    """It is asked, and does not answer as the original would."""

    def closing(peer):
        message_type, body = peer.receive()
        if message_type == 0 and b"original" in body:
            peer.send(1, b"")

    del what
    with (
        ScriptedServer(closing) as server,
        protocol.socket("127.0.0.1", server.port, timeout_s=5) as socket,
        pytest.raises(ConnectionClosed, match="closed the connection"),
    ):
        call(socket)


@pytest.mark.parametrize("what", ["put", "read"])
def test_what_the_original_knows_is_not_asked_about(what):
    asked = []

    def closing(peer):
        asked.append(peer.receive())

    with (
        ScriptedServer(closing) as server,
        protocol.socket("127.0.0.1", server.port, timeout_s=5) as socket,
        pytest.raises(ConnectionClosed),
    ):
        socket.write("t", [b"m"]) if what == "put" else socket.read("t", 0, 2)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "head", ["00000000", "0000000000", "000000000000", "000000010001", "000000000003"]
)
def test_other_frames_without_a_type_are_still_refused(head):
    reader = ReplyReader()
    content = bytes.fromhex(head)
    reader.buffer()[: len(content)] = content
    reader.received(len(content))
    with pytest.raises(RemoteProtocolError, match="has no type"):
        reader.next_frame()


@pytest.mark.slow
def test_a_producer_tells_why_it_delivers_nothing(server):
    with (
        Producer(f"poe://127.0.0.1:{server.port}", close_timeout_s=0.1) as producer,
        pytest.raises(PoeError, match="is the original Poe; it knows no sequenced puts"),
    ):
        producer.produce_sync("t", b"message", timeout_s=1)


def test_a_pool_of_handlers_says_so_at_once_and_without_a_traceback(caplog):
    with (
        ScriptedServer(original) as server,
        GroupWorker(f"poe://127.0.0.1:{server.port}", "t", print, concurrency=3) as pool,
        pytest.raises(OriginalServer, match="it knows no control requests"),
    ):
        pool.join(20)
    assert [each.exc_info for each in caplog.records if each.levelno >= logging.ERROR] == [None]


@pytest.mark.parametrize("command", [["topics"], ["status"], ["delete", "t", "--yes"]])
def test_the_command_line_says_it_in_one_sentence(command, capsys):
    with ScriptedServer(original) as server:
        assert main([*command, "--port", str(server.port)]) != 0
    told = capsys.readouterr().err
    assert "is the original Poe; it knows no control requests" in told
    assert told.count("\n") == 1
