"""Crowds that ask for much at once leave room for others, and cost little while they wait."""

import contextlib
import resource
from pathlib import Path

import pytest

from poe.errors import StorageError
from poe.protocol import ControlRequest, PointerRequest, PutRequest
from tests.broker.nodes import rss_bytes, seconds
from tests.broker.server_process import ServerProcess
from tests.scenarios.clients import RawClient
from tests.scenarios.conftest import TOPIC

pytestmark = pytest.mark.slow

HEALTH = ControlRequest("health", 1, {}).encode()
INFO = ControlRequest("info", 1, {}).encode()
READ = PointerRequest(TOPIC, 0, 1).encode()
PUT = PutRequest(b"other", [b"x"]).encode()
BURST_BYTES = 100_000


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path / "data") as server:
        server.address = ("127.0.0.1", server.port)
        yield server


@pytest.mark.parametrize("request_bytes", [READ, PUT, INFO], ids=["reads", "puts", "info"])
def test_clients_that_pipeline_many_small_requests_hold_up_nobody(server, crowd, request_bytes):
    """All that was received of 200 such clients was once served before anybody else: for 12 s."""
    with server.connect() as busy:
        busy.write(TOPIC, [b"x"])
        for client in crowd(server.address, 100):
            client.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.send(request_bytes * (BURST_BYTES // len(request_bytes)))
        for _ in range(3):
            assert seconds(lambda: busy.write(TOPIC, [b"x"])) < 1.5
            assert seconds(lambda: busy.read(TOPIC, 0, 1)) < 1.5


def test_who_waits_for_news_holds_no_receive_buffer(server, crowd):
    with server.connect() as client:
        client.write(TOPIC, [b"x"])
    before = rss_bytes(server.pid)
    arguments = {"topic": TOPIC, "pointer": 2**56 - 2, "timeout_s": 60}
    wait = ControlRequest("wait", 2, arguments).encode()
    waiting = crowd(server.address, 500)
    for client in waiting:
        client.send(HEALTH + wait)
        assert client.frame()
    assert rss_bytes(server.pid) - before < 500 * 20_000


def write_for_ever(client, topic):
    while True:
        client.write(topic, [b"x"])


def test_without_descriptors_requests_are_refused_until_there_are_some(server, crowd):
    with server.connect() as client:
        client.write(TOPIC, [b"x"])
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        in_use = max(int(link.name) for link in Path(f"/proc/{server.pid}/fd").iterdir())
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (in_use + 1, hard))
        eager = crowd(server.address, 100)
        for topic in (b"new1", b"new2"):
            with pytest.raises(StorageError, match="Too many open files"):
                write_for_ever(client, topic)
        assert client.control("health")["status"] == "ok"
        for each in eager:
            each.close()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
        with RawClient(server.address) as other:
            assert other.control("health")["status"] == "ok"
        assert client.write(b"new1", [b"x"])
