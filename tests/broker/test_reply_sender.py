"""What was announced is sent, or the connection ends."""

import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from poe.actors import GenServer
from poe.actors.socket_watch import SocketWatch
from poe.broker.connection.reply_sender import ReplySender
from poe.errors import ConnectionClosed
from poe.storage import FileSlice, RealFiles
from tests.broker.nodes import KILLING


class Sender(GenServer):
    """Sends a slice to a peer, and tells what came of it."""

    pinned_to_loop = True

    def init(self, peer):
        self.watch = SocketWatch(self, peer)
        self.sender = ReplySender(peer, self.watch, 1.0)

    def handle_call(self, request, caller):
        return self.send(request)

    async def send(self, records):
        try:
            is_out = self.sender.start(b"head", records)
            if not is_out:
                await self.sender.finish()
        except ConnectionClosed as error:
            return str(error)
        return is_out

    def terminate(self, reason):
        self.watch.close()


@pytest.fixture
def sender(serve, tmp_path):
    """The system, an actor that sends, the peer's socket, and the file that is sent from."""
    (tmp_path / "base").mkdir()
    path = tmp_path / "base" / "data"
    path.write_bytes(os.urandom(1 << 20))
    file = RealFiles.at(tmp_path / "base").open("data", "r")
    ours, peer = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    system = serve().system
    ref = system.start(Sender, ours)
    with peer:
        yield system, ref, peer, path, file
        system.stop(ref)


@KILLING
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("length", [90, 500_000])
def test_a_file_that_was_cut_meanwhile_ends_the_connection(sender, caplog, length):
    """What was announced cannot be sent any more, and padding would be taken for messages."""
    system, ref, _, path, file = sender
    os.truncate(path, 50)
    records = FileSlice(file, 10, length, 1, 1, 0)
    with caplog.at_level(logging.ERROR, "poe.broker"):
        assert "shorter than announced" in system.call(ref, records, 5)
    assert "cut short" in caplog.text


@KILLING
@pytest.mark.parametrize("length", [1, 3000, 128 << 10, (128 << 10) + 1, 500_000])
def test_whatever_the_peer_takes_at_once_it_gets_all_of_it(sender, length):
    system, ref, peer, path, file = sender
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(receive, peer, 4 + length)
        system.call(ref, FileSlice(file, 10, length, 1, 1, 0), 10)
        assert reading.result(10) == b"head" + path.read_bytes()[10 : 10 + length]


def receive(peer, size):
    received = b""
    while len(received) < size:
        received += peer.recv(1000)
    return received
