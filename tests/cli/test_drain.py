"""SIGTERM under load: what was acknowledged is there, and no client is reset."""

import collections
import signal
import socket
import struct
import threading
import time

import pytest

from poe import Node
from poe.protocol import ControlRequest, PointerRequest, PutRequest
from tests.cli.processes import Server

CLIENTS = 20


class Client(threading.Thread):
    """Keeps `depth` puts under way until the server ends the stream."""

    def __init__(self, port, number, depth):
        super().__init__(daemon=True)
        self.acknowledged: list[bytes] = []
        self.end: object = None
        self._number, self._depth = number, depth
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def run(self):
        under_way: collections.deque[bytes] = collections.deque()
        count = 0
        with self._socket as peer:
            try:
                while True:
                    while len(under_way) < self._depth:
                        message = b"%d-%d" % (self._number, count)
                        count += 1
                        peer.sendall(PutRequest(b"t%d" % (self._number % 3), [message]).encode())
                        under_way.append(message)
                    frame = receive_frame(peer)
                    if not frame.startswith(b"\0\3"):
                        self.end = frame
                        return
                    self.acknowledged.append(under_way.popleft())
            except OSError as error:
                self.end = error


def receive_frame(peer):
    """Return type and body of a frame; nothing at the end of the stream."""
    data = b""
    size = 4
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            assert not data, "the stream has ended within a frame"
            return b""
        data += part
        if len(data) == 4 and size == 4:
            size += struct.unpack(">I", data)[0]
    return data[4:]


def serve(tmp_path, **options):
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return Server(tmp_path / "data", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"ack": "fsync"}, {"isolation": "process"}], ids=str)
@pytest.mark.parametrize("depth", [1, 16])
def test_clients_under_load_get_their_replies_and_a_clean_end(tmp_path, options, depth):
    with serve(tmp_path, **options) as server:
        clients = [Client(server.port, number, depth) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        while sum(len(client.acknowledged) for client in clients) < 20 * CLIENTS:
            time.sleep(0.01)
        server.process.terminate()
        assert server.process.wait(20) == 0
        for client in clients:
            client.join(20)
        assert [client.end for client in clients] == [b""] * CLIENTS
    with Node(dir=tmp_path / "data", port=None) as node:
        stored = set(messages_of(node))
    for client in clients:
        assert stored.issuperset(client.acknowledged)


def messages_of(node):
    for topic in node.topics():
        pointer = 0
        while (found := node.next(topic, pointer)) is not None:
            pointer, message = found
            yield message


@pytest.mark.slow
def test_requests_that_have_come_whole_are_served_before_the_end(tmp_path):
    """All of them were there before the signal, more than are served in a turn."""
    with serve(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(20)
        count = 50
        server.process.send_signal(signal.SIGSTOP)  # nothing is received before the end
        for number in range(count):
            peer.sendall(PutRequest(b"t", [b"%d" % number + b"x" * 1_000]).encode())
        peer.sendall(PointerRequest(b"t", 0, 1).encode()[:10])
        server.process.terminate()
        server.process.send_signal(signal.SIGCONT)
        replies = [receive_frame(peer) for _ in range(count)]
        assert {reply[:2] for reply in replies} == {b"\0\3"}
        assert receive_frame(peer) == b""
        peer.close()
        assert server.process.wait(20) == 0


def test_a_long_poll_ends_at_once_and_cleanly(tmp_path):
    with serve(tmp_path) as server, socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(20)
        peer.sendall(PutRequest(b"t", [b"m"]).encode())
        pointer = int.from_bytes(receive_frame(peer)[2:], "big")
        wait = {"topic": b"t", "pointer": pointer, "timeout_s": 30.0}
        peer.sendall(ControlRequest("wait", 1, wait).encode())
        time.sleep(0.1)
        server.process.terminate()
        assert receive_frame(peer)
        assert receive_frame(peer) == b""
        peer.close()
        assert server.process.wait(20) == 0


@pytest.mark.slow
def test_a_reader_that_takes_nothing_does_not_keep_the_store_from_closing(tmp_path):
    with serve(tmp_path) as server:
        port = server.port
        with socket.create_connection(("127.0.0.1", port)) as peer:
            for _ in range(30):
                peer.sendall(PutRequest(b"t", [b"x" * 1_000_000]).encode())
                receive_frame(peer)
            peer.sendall(PointerRequest(b"t", 0, 30).encode())
            peer.recv(1)
            started_s = time.monotonic()
            server.process.terminate()
            assert server.process.wait(20) == 0
            assert time.monotonic() - started_s < 10
    with Node(dir=tmp_path / "data", port=None) as node:
        assert len(list(messages_of(node))) == 30
