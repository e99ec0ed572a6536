"""Another program listens where a server of Poe should be: every client says so, and shows it."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest

import poe.client
from poe import protocol
from poe.client import Consumer, Producer
from poe.errors import FrameTooLarge, PoeError, RemoteProtocolError
from poe.protocol.frames import FRAME_MAX, FrameReader, frame_header
from tests.cli.processes import complaint
from tests.cli.processes import poe as poe_command
from tests.waiting import wait_until

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
FOREIGN = [
    (HTTP, r"b'HTTP/1.1 400 Bad Request\r\nConnection: cl'"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", r"b'SSH-2.0-OpenSSH_9.6\r\n'"),
    (b"-ERR unknown command\r\n", r"b'-ERR unknown command\r\n'"),
    (b"\x15\x03\x01\x00\x02\x02\x46", r"b'\x15\x03\x01\x00\x02\x02F'"),
    (b"\x1b[2J\x07\xff\xfe", r"b'\x1b[2J\x07\xff\xfe'"),
    (b"220 mail", "b'220 mail'"),
]
EACH = pytest.mark.parametrize(("sent", "shown"), FOREIGN)


@contextmanager
def foreign(sent):
    """The port of a server that answers whatever it is sent with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    try:
                        peer.recv(100)
                        peer.sendall(sent)
                        while peer.recv(1000):
                            pass
                    except OSError:
                        pass  # the client has gone

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def check(error, port, shown):
    text = str(error)
    assert f"server 127.0.0.1:{port} is no server of Poe" in text
    assert shown in text
    assert text.isprintable()


@EACH
def test_the_blocking_client_says_so(sent, shown):
    with (
        foreign(sent) as port,
        protocol.socket(port=port) as client,
        pytest.raises(RemoteProtocolError) as caught,
    ):
        client.topics()
    check(caught.value, port, shown)


@EACH
async def test_the_asyncio_client_says_so(sent, shown):
    with foreign(sent) as port:
        async with await poe.client.connect(port=port) as client:
            with pytest.raises(PoeError) as caught:
                await client.topics()
    check(caught.value, port, shown)


@EACH
def test_the_consumer_says_so(sent, shown):
    with (
        foreign(sent) as port,
        pytest.raises(PoeError) as caught,
        Consumer(f"poe://127.0.0.1:{port}", "t", timeout_s=0) as consumer,
    ):
        consumer.receive()
    check(caught.value, port, shown)


def test_the_consumer_says_so_at_once_where_it_never_had_a_server():
    told = []
    with foreign(HTTP) as port:

        def receive():
            try:
                with Consumer(f"poe://127.0.0.1:{port}", "t", timeout_s=None) as consumer:
                    consumer.receive()
            except PoeError as error:
                told.append(error)

        threading.Thread(target=receive, daemon=True).start()
        wait_until(lambda: told, timeout_s=20)
    assert type(told[0]) is RemoteProtocolError
    check(told[0], port, FOREIGN[0][1])


@EACH
def test_the_producer_says_so(sent, shown, caplog):
    with (
        foreign(sent) as port,
        Producer(f"poe://127.0.0.1:{port}", close_timeout_s=0) as producer,
    ):
        producer.produce_async("t", b"x")
        wait_until(lambda: "is no server" in str(producer.info("t").last_error))
        check(producer.info("t").last_error, port, shown)


@pytest.mark.slow
def test_the_command_line_says_so():
    with foreign(HTTP) as port:
        for command in ("status", "topics"):
            told = complaint(poe_command(command, port=port))
            assert "what answers there is no server of Poe" in told
            assert "b'HTTP/1.1 400 Bad Request" in told


@pytest.mark.parametrize("part_size", [1, 3, 4, 5, 6, 100])
def test_it_is_said_however_the_bytes_come(part_size):
    async def run():
        with foreign_in_parts(part_size) as port:
            async with await poe.client.connect(port=port) as client:
                with pytest.raises(PoeError, match=r"begins with b'HTTP"):
                    await client.topics()

    asyncio.run(run())


@contextmanager
def foreign_in_parts(part_size):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            peer, _ = listening.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    for start in range(0, len(HTTP), part_size):
                        peer.sendall(HTTP[start : start + part_size])
                    while peer.recv(1000):
                        pass
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
    thread.join()


@pytest.mark.parametrize(
    "header", [frame_header(3, 5000), frame_header(3, FRAME_MAX * 8), frame_header(255, 5000)]
)
def test_a_frame_that_is_only_too_large_is_told_as_that(header):
    reader = FrameReader(1000)
    reader.buffer()[: len(header)] = header
    reader.received(len(header))
    with pytest.raises(FrameTooLarge) as caught:
        reader.next_frame()
    assert reader.explained(caught.value, "server") is caught.value
