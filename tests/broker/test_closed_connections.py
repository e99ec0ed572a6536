"""What a closed peer left is gone at once, with the garbage collector off, however it went."""

import gc
import mmap
import socket
import struct
import weakref
from itertools import product
from pathlib import Path

import pytest

from poe.broker.connection import connection as connection_module
from poe.broker.connection.connection import Connection
from poe.protocol import PointerRequest, PutRequest
from poe.protocol.frames import PUT_REQUEST
from poe.supervision.api import TerminateChild, WhichChildren
from tests.broker.nodes import KILLING
from tests.scenarios.clients import connection_count, dial
from tests.tls import BOTH
from tests.waiting import wait_until

TRANSPORTS = BOTH


TOPIC = b"t"
ANNOUNCED = 50_000_000
RECEIVED = 1_000_000
BLOCK_MAX = 1_200_000
"""What is received into up to here may stay, for the next frame to lie in."""
RESET = struct.pack("ii", 1, 0)
pytestmark = pytest.mark.usefixtures("uncollected")


def begin_put(peer, size):
    """Send so many bytes of a put that is announced as much larger."""
    peer.sendall(struct.pack(">IHI", ANNOUNCED, PUT_REQUEST, len(TOPIC)) + TOPIC)
    peer.sendall(b"x" * size)


def connections():
    """Those that are there; what was made since `uncollected` began is all in the youngest part."""
    return [each for each in gc.get_objects(generation=0) if type(each) is Connection]


def reader_of(connection):
    return vars(connection)["_frames"]


def parts_of(connection):
    """Return weak references to all that a connection is made of, and to what it has received."""
    own = vars(connection)
    parts = [connection, connection.ref, own["_watch"]]
    received = reader_of(connection)._view.obj  # noqa: SLF001 - what nobody is to see
    if isinstance(received, mmap.mmap) and len(received) > BLOCK_MAX:
        parts.append(received)
    return [weakref.ref(each) for each in parts]


def close(node, peer):
    del node
    peer.close()


def reset(node, peer):
    del node
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


def kill(node, peer):
    del peer
    node.system.exit(connection_ref(node), "kill")


def crash(node, peer):
    del peer
    vars(connections()[0])["_budget"] = None  # as a bug in it would
    node.system.run_queue.post_from_outside(connection_ref(node).cell, object(), None)
    node.system.exit(connection_ref(node), ValueError("boom"))


def terminate(node, peer):
    del peer
    node.system.call("connection_sup", TerminateChild(connection_ref(node)))


def end_of_time(node, peer):
    """Say nothing more, until `frame_timeout`; then take the news and close."""
    del node
    while peer.recv(1000):
        pass
    peer.close()


def shutdown(node, peer):
    del peer
    node.stop()


def break_the_protocol(peer):
    """Finish a put whose messages have no lengths, and take the news."""
    peer.sendall(b"x" * (ANNOUNCED - RECEIVED - 2 - len(TOPIC)))
    while peer.recv(1000):
        pass
    peer.close()


def connection_ref(node):
    return node.system.call("connection_sup", WhichChildren())[0].ref


@KILLING
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("end", "size"),
    [
        *product([close, reset, kill, crash, terminate, shutdown], [100, 100_000, 2_000_000]),
        (end_of_time, 100),  # a second more is allowed for each 16 KiB
    ],
)
def test_a_put_that_is_broken_off_leaves_nothing(serve, end, size, monkeypatch):
    monkeypatch.setattr(connection_module, "_GOODBYE_S", 0.05)
    node = serve(frame_timeout=1.0 if end is end_of_time else 10.0)
    with dial(node.address) as peer:
        begin_put(peer, size)
        wait_until(lambda: connections() and reader_of(connections()[0]).pending_bytes >= size)
        parts = parts_of(connections()[0])
        budget = vars(connections()[0])["_budget"]
        end(node, peer)
        wait_until(lambda: [part() for part in parts if part() is not None] == [])
        assert budget.held_bytes == 0
        assert connections() == []


@pytest.mark.usefixtures("quiet")
def test_a_refused_frame_leaves_nothing(serve):
    node = serve()
    with dial(node.address) as peer:
        begin_put(peer, RECEIVED)
        wait_until(connections)
        wait_until(lambda: reader_of(connections()[0]).pending_bytes >= RECEIVED)
        parts = parts_of(connections()[0])
        break_the_protocol(peer)
        wait_until(lambda: [part() for part in parts if part() is not None] == [])


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_put_that_the_store_refuses_leaves_nothing(serve):
    """Its error has gone through frames that hold the messages and the call."""
    node = serve(message_max=1000)
    with dial(node.address) as peer:
        peer.sendall(PutRequest(TOPIC, [b"small"]).encode())
        assert peer.recv(1000)
        parts = parts_of(connections()[0])
        frame = PutRequest(TOPIC, [b"x" * 30_000_000]).encode()
        before = mapped_bytes()
        for _ in range(5):
            peer.sendall(frame)
            assert b"message" in peer.recv(1000)
        wait_until(lambda: mapped_bytes() - before < 30_000_000)
        peer.close()
        wait_until(lambda: [part() for part in parts if part() is not None] == [])


def mapped_bytes():
    """Return how much memory this process has of its own; with what malloc keeps, less exactly."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


@pytest.mark.parametrize("size", [0, 100, 100_000, 3_000_000])
def test_a_reset_that_comes_with_bytes_before_it_is_noticed(serve, size):
    """libuv tells it once, together with the bytes, and stops to watch the descriptor."""
    node = serve()
    for _ in range(10):
        peer = dial(node.address)
        begin_put(peer, size)
        reset(node, peer)
    wait_until(lambda: connection_count(node) == 0)


def test_requests_that_are_served_leave_nothing(serve):
    node = serve()
    with dial(node.address) as peer:
        peer.sendall(PutRequest(TOPIC, [b"x" * 500_000]).encode())
        assert peer.recv(1000)
        peer.sendall(PointerRequest(b"unknown", 0, 1).encode())
        assert peer.recv(1000)
        parts = parts_of(connections()[0])
        peer.close()
        wait_until(lambda: [part() for part in parts if part() is not None] == [])
