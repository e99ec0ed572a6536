"""What was announced is sent, or the connection ends."""

import logging
import os
import socket

import pytest

from poe.actors import GenServer, SocketWatch
from poe.broker.reply_sender import ReplySender
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
        try:
            return self.sender.start(b"head", request)
        except ConnectionClosed as error:
            return str(error)

    def terminate(self, reason):
        self.watch.close()


@KILLING
@pytest.mark.usefixtures("quiet")
def test_a_file_that_was_cut_meanwhile_ends_the_connection(serve, tmp_path, caplog):
    """What was announced cannot be sent any more, and padding would be taken for messages."""
    (tmp_path / "base").mkdir()
    path = tmp_path / "base" / "data"
    path.write_bytes(b"x" * 100)
    records = FileSlice(RealFiles.at(tmp_path / "base").open("data", "r"), 10, 90, 1, 1, 0)
    system = serve().system
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    ref = system.start(Sender, ours)
    assert system.call(ref, records, 5) is True
    assert peer.recv(1000) == b"head" + b"x" * 90
    os.truncate(path, 50)
    with caplog.at_level(logging.ERROR, "poe.broker"):
        assert "shorter than announced" in system.call(ref, records, 5)
    assert peer.recv(1000) == b"head" + b"x" * 40
    assert "cut short" in caplog.text
    system.stop(ref)
    peer.close()
