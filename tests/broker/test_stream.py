"""What was announced is sent, or the connection ends."""

import errno
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from poe.actors import GenServer
from poe.actors.socket_watch import SocketWatch
from poe.broker.connection.stream import Stream
from poe.broker.log_limit import LogLimit
from poe.broker.requests.byte_budget import ByteBudget, Holding
from poe.errors import ConnectionClosed, ReadFailed
from poe.protocol import FrameReader, PointerRequest, PutReply, PutRequest
from poe.storage import FileSlice, RealFiles
from poe.storage.real_files import RealFile
from tests.broker.nodes import KILLING, address, connect
from tests.scenarios.clients import dial
from tests.tls import BOTH, connected_pair, peer_of
from tests.waiting import wait_until

TRANSPORTS = BOTH


class Sender(GenServer):
    """Sends a slice to a peer, and tells what came of it."""

    pinned_to_loop = True

    def init(self, peer):
        self.peer = peer
        self.watch = SocketWatch(self, peer.client)
        holding = Holding(ByteBudget(1 << 20, 1), lambda: None)
        self.stream = Stream(peer, FrameReader(), holding, self.watch, 1.0)

    def handle_call(self, request, caller):
        return self.send(request)

    async def send(self, records):
        try:
            end = records.offset + records.length
            is_out = self.peer.push(b"head", records.file, records.offset, end)
            if not is_out:
                await self.stream.finish()
        except ConnectionClosed as error:
            return str(error)
        return is_out

    def terminate(self, reason):
        self.watch.close()


@pytest.fixture(params=["plain", "tls"])
def sender(request, serve, tmp_path, tls_pair):
    """The system, an actor that sends, the peer's socket, and the file that is sent from."""
    (tmp_path / "base").mkdir()
    path = tmp_path / "base" / "data"
    path.write_bytes(os.urandom(1 << 20))
    file = RealFiles.at(tmp_path / "base").open("data", "r")
    ours, peer = connected_pair() if request.param == "plain" else tls_pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    system = serve().system
    ref = system.start(Sender, peer_of(ours))
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


@pytest.mark.parametrize("length", [20, 100_000])
def test_a_data_file_that_was_cut_ends_the_connection_of_who_reads_it(
    node, caplog, monkeypatch, length
):
    """A small reply is read from the file, a large one is sent by the kernel."""
    # Of its own: tests before this one have logged as many such lines as one second may have.
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [LogLimit()])
    node.put_many(b"t", [b"x" * length] * 10)
    (path,) = Path(node.config.dir).glob("topics/t/*_data")
    os.truncate(path, 5 * (length + 11))
    with caplog.at_level(logging.ERROR, "poe.broker"), connect(node) as client:
        assert len(client.read(b"t", 0, 5)) == 5
        with pytest.raises(ConnectionClosed):
            client.read(b"t", 0, 10)
    assert "cut short" in caplog.text


@pytest.mark.parametrize("length", [20, 100_000])
def test_what_the_disk_does_not_give_is_told_or_logged(node, caplog, monkeypatch, length):
    """Of a small reply nothing is sent yet; of a large one the head is, and no error can follow."""
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [LogLimit()])

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    node.put_many(b"t", [b"x" * length] * 10)
    with caplog.at_level(logging.ERROR, "poe.broker"), connect(node) as client:
        (pointer, _) = client.read(b"t", 0, 5)[-1]
        with monkeypatch.context() as broken:
            broken.setattr(RealFile, "read_at", fail)
            broken.setattr(os, "sendfile", fail)
            with pytest.raises(ReadFailed if length == 20 else ConnectionClosed):
                client.read(b"t", pointer, 5)
        if length == 20:
            assert len(client.read(b"t", pointer, 10)) == 5
        else:
            assert "cut short" in caplog.text
            assert os.strerror(errno.EIO) in caplog.text


@pytest.mark.slow
def test_replies_that_the_peer_takes_late_come_whole_and_in_order(node):
    """Small ones, of which the kernel takes any part before it takes no more."""
    node.put_many(b"t", [b"x" * 50] * 20)
    count = 3000
    requests = PointerRequest(b"t", 0, 20).encode() + PutRequest(b"t", [b"y"]).encode()
    with dial(address(node), receive_buffer_bytes=4096) as peer:
        peer.sendall(requests * count)
        wait_until(lambda: len(node.info()[0][1]) == 1 and node.info()[0][1][0][1].count > 30)
        reader, kinds, pointers = FrameReader(), list[int](), list[int]()
        while len(kinds) < 2 * count:
            assert reader.receive(peer.recv_into)
            while (frame := reader.next_frame()) is not None:
                kinds.append(frame[0])
                if frame[0] == PutReply.MESSAGE_TYPE:
                    pointers.append(PutReply.decode(frame[1]).pointer)
                else:
                    assert len(frame[1]) == 20 * 61
    assert kinds == [1, 3] * count
    assert pointers == sorted(set(pointers))
