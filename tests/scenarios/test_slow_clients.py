"""Clients that take their time, or come in crowds, cost bounded memory and hold up nobody."""

import contextlib
import itertools
import signal
import struct
import threading
import time
from pathlib import Path

import pytest

from poe.errors import ConnectionClosed
from poe.protocol import ControlRequest, PointerRequest, PutReply, PutRequest
from poe.protocol.frames import PUT_REQUEST
from tests.broker.nodes import rss_bytes, seconds
from tests.broker.server_process import ServerProcess
from tests.scenarios.clients import BlockingClient, RawClient, connection_count, frame
from tests.scenarios.conftest import TOPIC
from tests.waiting import wait_until

MIB = 1 << 20
HEALTH = ControlRequest("health", 1, {}).encode()


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path / "data", send_timeout=1.0) as server:
        server.address = ("127.0.0.1", server.port)
        yield server


@pytest.fixture
def busy(server):
    busy = BlockingClient(server.address)
    yield busy
    busy.close()


@pytest.mark.slow
def test_a_reader_that_never_reads_costs_no_memory_and_is_closed(server, crowd, busy):
    for _ in range(20):
        busy.write(TOPIC, [b"x" * 10_000] * 100)
    before = rss_bytes(server.pid)
    open_count = socket_count(server.pid)
    for client in crowd(server.address, 20):
        client.send(PointerRequest(TOPIC, 0, 2**32 - 1).encode() * 50)
    wait_until(lambda: socket_count(server.pid) == open_count + 20)
    for _ in range(50):
        assert seconds(lambda: busy.read(TOPIC, 0, 10)) < 1
    assert rss_bytes(server.pid) - before < 10 * MIB
    wait_until(lambda: socket_count(server.pid) == open_count)


def socket_count(pid):
    """Count without files, which the server opens and closes when it likes."""
    with contextlib.suppress(FileNotFoundError):  # one was closed meanwhile
        links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        return sum(link.startswith("socket:") for link in links)
    return None


@pytest.mark.slow
def test_a_writer_that_never_reads_its_replies_is_slowed_down(server, crowd):
    """Its replies wait in the kernel, then its requests do, and at last it cannot send."""
    (client,) = crowd(server.address, 1)
    client.socket.settimeout(0.3)
    before = rss_bytes(server.pid)
    with pytest.raises(TimeoutError):
        client.send(HEALTH * 10_000_000)
    assert rss_bytes(server.pid) - before < 10 * MIB
    with RawClient(server.address) as other:
        assert other.control("health")["status"] == "ok"


@pytest.mark.slow
def test_two_thousand_idle_clients_leave_a_busy_one_alone(server, crowd, busy):
    alone_s = seconds(lambda: work(busy))
    before = rss_bytes(server.pid)
    idle = crowd(server.address, 2000)
    for client in idle[::50]:
        assert client.control("health")["status"] == "ok"
    assert seconds(lambda: work(busy)) < 3 * alone_s + 0.5
    assert rss_bytes(server.pid) - before < 2000 * 10_000 + 5 * MIB
    for client in idle:
        client.close()
    with RawClient(server.address) as last:
        assert last.read(TOPIC, 0, 1)


def work(client):
    for _ in range(500):
        client.write(TOPIC, [b"x" * 100] * 10)


@pytest.mark.slow
def test_announced_lengths_cost_nothing_before_their_bytes_come(server, crowd):
    before = rss_bytes(server.pid)
    clients = crowd(server.address, 300)
    for client in clients:
        client.send(struct.pack(">IH", 60 * MIB, PUT_REQUEST) + b"\0" * 1000)
    with RawClient(server.address) as other:
        assert other.control("health")["status"] == "ok"
    assert rss_bytes(server.pid) - before < 10 * MIB


@pytest.mark.slow
def test_thousands_of_bad_frames_leave_no_memory_behind(server):
    bad_frames = itertools.cycle(
        [
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            frame(77, b"x" * 100),
            frame(2, b"\0\0\0\1t\0\0\0\5x"),
            frame(16, b"\xdf\xff\xff\xff\xff"),
            frame(2, b"\0\0\0\2../\0\0\0\1x"),
        ]
    )

    def send(count):
        for _ in range(count):
            with RawClient(server.address) as client:
                client.send(next(bad_frames))
                client.error()

    # Who was told of its error may linger for 2 s, and the allocator takes its share, at first.
    # More of them are sent by the scenario `frames` of torture.
    send(4000)
    before = rss_bytes(server.pid)
    send(3000)
    assert rss_bytes(server.pid) - before < 4 * MIB


@pytest.mark.slow
def test_a_refused_name_costs_no_memory_either(server):
    with RawClient(server.address) as client:
        requests = [PutRequest(b"../%d" % n, [b"x" * 100]).encode() for n in range(5000)]

        def send(some):
            for start in range(0, len(some), 100):
                client.send(b"".join(some[start : start + 100]))
                for _ in range(100):
                    client.error()

        send(requests[:500])
        before = rss_bytes(server.pid)
        send(requests)
        assert rss_bytes(server.pid) - before < 3 * MIB


# ---- waiting ------------------------------------------------------------------------------------


def wait_request(pointer, timeout_s, topic=TOPIC):
    arguments = {"topic": topic, "pointer": pointer, "timeout_s": timeout_s}
    return ControlRequest("wait", 1, arguments).encode()


@pytest.mark.slow
@pytest.mark.parametrize("topic", [TOPIC, b"unknown"])
def test_who_goes_while_it_waits_is_noticed(node, topic, crowd):
    clients = crowd(node.address, 10)
    for client in clients:
        # The reply to the first request tells that the server has got to the second.
        client.send(HEALTH + wait_request(2**56 - 1, 30, topic))
        assert client.frame()
    for client in clients:
        client.close()
    wait_until(lambda: connection_count(node) == 0)


def test_who_waits_is_told_of_the_next_message(node, raw):
    newest = node.info()[0][1][-1][1].pointer_high
    raw.send(wait_request(newest, 30))
    pointer = node.put(TOPIC, b"4")
    assert raw.frame()[1].endswith(b"\xa6result\xc3")
    assert raw.read(TOPIC, newest, 10) == [(pointer, b"4")]


def test_who_waits_for_a_new_topic_is_told_of_its_first_message(node, raw):
    raw.send(wait_request(0, 30, b"new"))
    node.put(b"new", b"1")
    assert raw.frame()[1].endswith(b"\xa6result\xc3")


def test_who_waits_in_vain_is_told_so(raw):
    raw.send(wait_request(2**56 - 1, 0.02))
    assert raw.frame()[1].endswith(b"\xa6result\xc2")


def test_a_wait_survives_the_sealing_of_its_segment(node, raw):
    newest = node.info()[0][1][-1][1].pointer_high
    raw.send(wait_request(newest, 30))
    raw.send(PointerRequest(TOPIC, newest, 10).encode())
    with RawClient(node.address) as other:
        other.write(TOPIC, [b"4"] * 3)
    assert raw.frame()[1].endswith(b"\xa6result\xc3")
    assert raw.frame()[1].count(b"4") >= 3


@pytest.mark.slow
def test_many_who_wait_are_all_told_at_once(node, crowd):
    newest = node.info()[0][1][-1][1].pointer_high
    clients = crowd(node.address, 300)
    for client in clients:
        client.send(wait_request(newest, 30))
    node.put(TOPIC, b"4")
    for client in clients:
        assert client.frame()[1].endswith(b"\xa6result\xc3")


@pytest.mark.slow
def test_followers_get_every_message_in_order(node):
    count = 2000
    followers = [BlockingClient(node.address) for _ in range(4)]
    seen: list[list[bytes]] = [[] for _ in followers]

    def follow(client, messages):
        for _, message in client.socket.follow(b"news", 0, 10):
            messages.append(message)
            if len(messages) == count:
                return

    threads = [
        threading.Thread(target=follow, args=pair) for pair in zip(followers, seen, strict=True)
    ]
    for thread in threads:
        thread.start()
    expected = [b"%d" % number for number in range(count)]
    for message in expected:
        node.put(b"news", message)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert seen == [expected] * 4
    for follower in followers:
        follower.close()


def test_a_server_that_stops_ends_its_clients(node, client):
    node.stop()
    with pytest.raises((ConnectionClosed, AssertionError, ConnectionError)):
        client.read(TOPIC, 0, 1)


@pytest.mark.slow
def test_a_stall_of_the_server_throws_no_client_out(tmp_path):
    """As when its machine is paused: what the client sent meanwhile lies in the socket."""
    frame = PutRequest(b"t", [b"x" * 1000]).encode()
    server = ServerProcess(tmp_path / "data", frame_timeout=0.5)
    with server, RawClient(("127.0.0.1", server.port)) as raw:
        raw.send(frame[:500])
        with RawClient(("127.0.0.1", server.port)) as other:
            other.control("health")  # so the half has arrived
        server.process.send_signal(signal.SIGSTOP)
        raw.send(frame[500:])
        time.sleep(1.0)  # how long the stall lasts, not how long something may take
        server.process.send_signal(signal.SIGCONT)
        assert raw.frame()[0] == PutReply.MESSAGE_TYPE


@pytest.mark.slow
def test_a_client_whose_frames_always_overlap_is_not_late(tmp_path):
    """Some frame is unfinished all the time, but each makes progress."""
    frame = PutRequest(b"t", [b"x" * 1000]).encode()
    server = ServerProcess(tmp_path / "data", frame_timeout=0.5)
    with server, RawClient(("127.0.0.1", server.port)) as raw:
        raw.send(frame[:500])
        for _ in range(12):
            time.sleep(0.1)  # the pace of the client
            raw.send(frame[500:] + frame[:500])
            assert raw.frame()[0] == PutReply.MESSAGE_TYPE
