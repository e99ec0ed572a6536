"""A server whose disk is full goes on with all that needs no room, and recovers by itself."""

import contextlib

import pytest

from poe.errors import StorageFull
from poe.protocol import ControlRequest
from tests.broker.nodes import SimulatedNode, seconds
from tests.broker.server_process import ServerProcess
from tests.scenarios.clients import RawClient
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOPICS = [b"a", b"b", b"c"]
LARGE = [b"x" * 1000] * 20


@pytest.fixture
def serve(disk):
    """Start servers on the small disk, one after the other."""
    with contextlib.ExitStack() as servers:
        yield lambda **options: servers.enter_context(
            ServerProcess(
                disk.folder / "data",
                **{"min_free": 0, "count_limit": 20, "worker_timeout": 0.2, **options},
            )
        )


def fill_topics(client):
    for topic in TOPICS:
        client.write(topic, [b"%d" % number for number in range(30)])


def check_reads(client):
    for topic in TOPICS:
        messages = [message for _, message in client.read(topic, 0, 30)]
        assert messages == [b"%d" % number for number in range(30)]


def check_puts_are_refused(client):
    for topic in [*TOPICS, b"new"]:
        with pytest.raises(StorageFull, match="free space"):
            client.write(topic, LARGE)
    assert client.topics() == TOPICS


def check_puts_resume(client):
    for topic in [*TOPICS, b"new"]:
        pointer = client.write(topic, LARGE)
        assert client.read(topic, pointer - 1, 1) == [(pointer, LARGE[-1])]


def check_puts_resume_within(client, seconds):
    def is_taken():
        with contextlib.suppress(StorageFull):
            return client.write(TOPICS[0], [b"x"]) > 0
        return False

    wait_until(is_taken, seconds)
    check_puts_resume(client)


def test_a_server_on_a_full_disk_reads_refuses_and_resumes(serve, disk):
    server = serve()
    with server.connect() as client:
        fill_topics(client)
        disk.fill()
        for _ in range(3):
            check_puts_are_refused(client)
            check_reads(client)
        disk.free()
        check_puts_resume(client)
        check_reads(client)
    assert server.stop() == 0


def test_a_server_starts_on_a_full_disk_and_resumes(serve, disk):
    first = serve()
    with first.connect() as client:
        fill_topics(client)
    assert first.stop() == 0
    disk.fill()
    with serve().connect() as client:
        check_reads(client)
        check_puts_are_refused(client)
        check_reads(client)
        disk.free()
        check_puts_resume(client)


def test_a_server_that_was_killed_on_a_full_disk_is_back_when_there_is_room(serve, disk):
    first = serve()
    with first.connect() as client:
        fill_topics(client)
        disk.fill()
        check_puts_are_refused(client)
    first.kill()
    disk.fill()
    with serve().connect() as client:
        assert client.control("health")["status"] == "ok"
        disk.free()
        check_reads(client)
        check_puts_resume(client)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_server_that_was_ended_on_a_full_disk_reads_refuses_and_resumes(serve, disk, end):
    """For what has to be written at the end and at the start there is room in reserve."""
    first = serve(min_free=400_000)
    with first.connect() as client:
        fill_topics(client)
    disk.fill()
    assert (disk.folder / "data/store.reserve").stat().st_size == 25_000
    getattr(first, end)()
    disk.fill()
    with serve(min_free=400_000).connect() as client:
        check_reads(client)
        check_puts_are_refused(client)
        check_reads(client)
        disk.free()
        check_puts_resume_within(client, 2)


def test_who_waits_at_a_writer_without_room_keeps_nobody_waiting(serve, disk):
    """Such a writer stays sealed; asked again and again, it once left no time for anybody else."""
    first = serve()
    with first.connect() as client:
        fill_topics(client)
    first.stop()
    disk.fill()
    server = serve()
    waiting = [RawClient(("127.0.0.1", server.port)) for _ in range(20)]
    for client in waiting:
        arguments = {"topic": TOPICS[0], "pointer": 2**56 - 2, "timeout_s": 20}
        # The reply to the first request tells that the server has got to the second.
        health = ControlRequest("health", 1, {}).encode()
        client.send(health + ControlRequest("wait", 2, arguments).encode())
        assert client.frame()
    with server.connect() as client:
        assert seconds(lambda: check_puts_are_refused(client)) < 1
        assert seconds(lambda: check_reads(client)) < 1
    for client in waiting:
        client.close()


@pytest.mark.timeout(10)
def test_who_waits_at_a_writer_without_room_is_told_when_the_time_is_over(disk):
    """In simulated time an endless exchange of messages would never let the time pass."""
    sim = SimulatedNode(disk.folder / "data", min_free=0)
    sim.node.put(TOPICS[0], b"1")
    sim.stop()
    disk.fill()
    sim.start()
    newest = sim.read(TOPICS[0], 0, 1)[0][0]
    start_s = sim.clock.monotonic_s()
    assert sim.node.control("wait", topic=TOPICS[0], pointer=newest, timeout_s=3) is False
    assert 3 <= sim.clock.monotonic_s() - start_s < 4
    sim.stop()
