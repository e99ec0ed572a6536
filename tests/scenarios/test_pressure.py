"""More bytes are on their way than the node may hold: it stops to receive, and goes on."""

import contextlib
import select
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from poe.errors import Overloaded
from poe.protocol import RANGE_COUNT_MAX, IndexedReply, PutReply, PutRequest, RangeRequest
from poe.protocol.frames import PUT_REQUEST
from tests.broker.nodes import read_by_frames, rss_bytes
from tests.broker.server_process import ServerProcess
from tests.protocol.streams import records_of
from tests.scenarios.clients import HEADER, RawClient
from tests.scenarios.conftest import TOPIC
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MIB = 1 << 20
IN_FLIGHT_MAX = MIB
CONNECTIONS_MAX = 32
SHARE = IN_FLIGHT_MAX // 2 // CONNECTIONS_MAX
SMALL = PutRequest(b"small", [b"x" * 100] * 100).encode()
"""A request that each connection has room for at any time."""


@pytest.fixture
def node(serve):
    return serve(frame_timeout=60, in_flight_max=IN_FLIGHT_MAX, connections_max=CONNECTIONS_MAX)


def large_frame(number):
    return PutRequest(TOPIC, [b"%02d" % number * (450 * 1024)]).encode()


def begin(clients, frames, size):
    """Have each send the beginning of its frame; return what is left of the frames.

    What the server does not take waits in the kernel, or stays with the client.
    """
    left = []
    for client, frame in zip(clients, frames, strict=True):
        client.socket.settimeout(0.3)
        sent = 0
        try:
            while sent < size:
                sent += client.socket.send(frame[sent:size])
        except TimeoutError:
            pass
        client.socket.settimeout(30)
        left.append(frame[sent:])
    return left


def finish(client, rest):
    """Send the rest and take the reply, in one thread: what encrypts takes no two at a time."""
    client.send(rest)
    return client.frame()


@pytest.mark.alone  # each of them must grow by 1 MiB in a second while it has its turn
def test_frames_that_do_not_fit_together_all_get_through(node, crowd):
    """Each of them alone is nearly as large as the whole budget."""
    count = 8
    clients = crowd(node.address, count)
    frames = [large_frame(number) for number in range(count)]
    left = begin(clients, frames, 800 * 1024)
    with RawClient(node.address) as other:
        other.send(SMALL)  # whole
        assert other.frame()[0] == PutReply.MESSAGE_TYPE
    with ThreadPoolExecutor(count) as pool:
        replies = [*pool.map(finish, reversed(clients), reversed(left))]
    assert [None if reply is None else reply[0] for reply in replies] == [
        PutReply.MESSAGE_TYPE
    ] * count
    with RawClient(node.address) as other:
        stored = [message for _, message in read_by_frames(other.read, TOPIC, 1)]
    assert sorted(stored) == [b"%02d" % number * (450 * 1024) for number in range(count)]


def test_small_requests_in_pieces_pass_however_full_it_is(node, crowd):
    hogs = crowd(node.address, 3)
    begin(hogs, [large_frame(number) for number in range(3)], 800 * 1024)
    assert len(SMALL) < SHARE
    for client in crowd(node.address, 10):
        for start in range(0, len(SMALL), 1000):
            client.send(SMALL[start : start + 1000])
        assert client.frame()[0] == PutReply.MESSAGE_TYPE


def test_peers_that_never_finish_are_hung_up_on_when_others_need_the_room(node, crowd):
    hogs = crowd(node.address, 3)
    begin(hogs, [large_frame(number) for number in range(3)], 800 * 1024)
    with RawClient(node.address, timeout_s=30) as client:
        client.send(large_frame(9))
        assert client.frame()[0] == PutReply.MESSAGE_TYPE
    told = [error for hog in hogs if (error := error_of(hog)) is not None]
    assert told
    assert {(type(error), error.limit) for error in told} == {(Overloaded, "in_flight_max")}


def error_of(client):
    """Tell the error that a client was hung up on with; None when it was not."""
    client.socket.settimeout(0.1)
    try:
        return client.error()
    except TimeoutError:
        return None


def test_records_by_ranges_come_in_small_replies(node, crowd):
    """Where entries have no room, a reply holds as many as a connection's share has."""
    messages = [b"%04d" % number for number in range(5000)]
    with RawClient(node.address) as reader:
        last = reader.write(TOPIC, messages)
        begin(crowd(node.address, 3), [large_frame(number) for number in range(3)], 800 * 1024)

        def read(pointer):
            asked = RangeRequest(TOPIC, pointer, last, RANGE_COUNT_MAX, MIB)
            return records_of(reader.call(asked, IndexedReply).records)

        wait_until(lambda: len(read(0)) == SHARE // 12)  # what the hogs have sent has arrived
        records = read(0)
        while found := read(records[-1][0]):
            records += found
    assert [message for _, message in records] == messages


def test_a_copy_that_has_no_room_is_refused_and_may_be_tried_again(node, crowd):
    asked = {"source": TOPIC, "topic": b"copy", "producer": bytes(16), "epoch": 0, "sequence": 0}
    with RawClient(node.address) as raw:
        last = raw.write(TOPIC, [b"x" * SHARE])
        hogs = crowd(node.address, 3)
        begin(hogs, [large_frame(number) for number in range(3)], 800 * 1024)

        def is_copied():
            try:
                return raw.control("copy", pointer=last - 1, last=last, **asked)
            except Overloaded:
                return False

        wait_until(lambda: not is_copied())  # what the hogs have sent has arrived
        for hog in hogs:
            hog.close()
        # All of them would not fit together: each gives its room back.
        wait_until(lambda: all(is_copied() for _ in range(50)))
        assert raw.read(b"copy", 0, 10)[0][1] == b"x" * SHARE


def test_peers_that_leave_give_their_room_back(node, crowd):
    for _ in range(5):
        hogs = crowd(node.address, 5)
        begin(hogs, [large_frame(number) for number in range(5)], 800 * 1024)
        for hog in hogs:
            hog.close()
    with RawClient(node.address, timeout_s=30) as client:
        for number in range(3):
            client.send(large_frame(number))
            assert client.frame()[0] == PutReply.MESSAGE_TYPE


def test_memory_stays_within_the_budget(tmp_path, crowd):
    """200 clients once made it hold 2 MiB each."""
    options = {"in_flight_max": 16 * MIB, "frame_timeout": 60}
    with ServerProcess(tmp_path / "data", **options) as server:
        before = rss_bytes(server.pid)
        beginning = HEADER.pack(60 * MIB, PUT_REQUEST) + b"\0" * (2 * MIB)
        clients = crowd(("127.0.0.1", server.port), 200)
        for client in clients:
            client.socket.setblocking(False)
        sent = [0] * len(clients)

        def are_all_stuck():
            progress = 0
            for number, client in enumerate(clients):
                try:
                    size = client.socket.send(beginning[sent[number] :])
                except BlockingIOError:
                    continue
                sent[number] += size
                progress += size
            return not progress

        wait_until(are_all_stuck)
        assert rss_bytes(server.pid) - before < 30 * MIB
        with RawClient(("127.0.0.1", server.port)) as other:
            assert other.control("health")["status"] == "ok"


def test_entries_for_peers_that_take_nothing_stay_within_the_budget(tmp_path):
    """Those of 40 peers would take 120 MiB."""
    with (
        ServerProcess(tmp_path / "data", in_flight_max=16 * MIB) as server,
        RawClient(("127.0.0.1", server.port)) as other,
        contextlib.ExitStack() as peers,
    ):
        last = other.write(TOPIC, np.zeros((RANGE_COUNT_MAX, 1), np.uint8))
        asked = RangeRequest(TOPIC, 0, last, RANGE_COUNT_MAX, RANGE_COUNT_MAX * 12)
        assert len(other.call(asked, IndexedReply).records) == RANGE_COUNT_MAX
        before = rss_bytes(server.pid)
        for _ in range(40):
            peer = peers.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(asked.encode())
            select.select([peer], [], [], 10)  # its reply has begun
        assert rss_bytes(server.pid) - before < 30 * MIB
        assert len(other.call(asked, IndexedReply).records) < 100
