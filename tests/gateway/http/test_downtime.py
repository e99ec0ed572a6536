"""A gateway whose broker is away, whose buffer is full, or that is told to stop."""

import contextlib
import signal
import socket
import time

import pytest

from poe.node import Node
from poe.testing import broker
from tests.cli.processes import complaint, poe
from tests.gateway.http.front import TIMEOUT_S, Front, stored
from tests.gateway.http.front import reply as reply_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture
def away(tmp_path):
    """A node that is down, and its gateway, which has a small buffer and little patience."""
    with Node(dir=tmp_path / "away", port=0) as node:
        assert node.address is not None
        port = node.address[1]
    options = ["buffer_count=3", "reconnect_max_s=0.2", "close_timeout_s=0.3"]
    producer = [word for each in options for word in ("--producer", each)]
    with Front(port, "--sync-timeout-s", 3, "--read-timeout-s", 1, *producer) as front:
        front.broker_port = port
        yield front


def refusal(reply):
    assert reply.headers["Retry-After"] == "1"
    return reply.status_code, reply.json()["error"]["name"]


def test_what_is_accepted_in_a_downtime_is_kept_and_the_rest_is_refused_honestly(away, tmp_path):
    replies = [away.http.post("/async/t", content=b"%d" % i) for i in range(6)]
    assert [each.status_code for each in replies] == [202, 202, 202, 429, 429, 429]
    assert refusal(replies[-1]) == (429, "BufferFull")
    gauges = away.http.get("/metrics").text.partition("TYPE poe_producer_messages_buffered gauge")
    assert gauges[2].split("\n")[1].endswith(" 3.0")
    with Node(dir=tmp_path / "away", port=away.broker_port) as node:
        wait_until(lambda: len(stored(node, "t")) == 3, timeout_s=20)
        assert away.http.post("/sync/t", content=b"after").status_code == 200
        assert stored(node, "t") == [b"0", b"1", b"2", b"after"]


def test_sync_tells_that_the_broker_is_down_and_leaves_nothing_behind(away, tmp_path):
    assert refusal(away.http.post("/sync/t", content=b"never")) == (503, "BrokerDown")
    with Node(dir=tmp_path / "away", port=away.broker_port) as node:
        wait_until(lambda: away.http.get("/readyz").status_code == 200, timeout_s=20)
        assert away.http.post("/sync/t", content=b"later").status_code == 200
        assert stored(node, "t") == [b"later"]


def test_without_its_broker_the_gateway_is_healthy_but_not_ready(away):
    for path in ("/readyz", "/topics", "/topics/t", "/topics/t?pointer=newest"):
        assert refusal(away.http.get(path))[0] == 503
    assert away.http.get("/healthz").json() == {"status": "ok"}
    assert away.http.get("/disco").text.startswith("poe@")


def test_a_gateway_that_stops_tells_what_it_could_not_deliver(away):
    for i in range(2):
        assert away.http.post("/async/t", content=b"%d" % i).status_code == 202
    code, _, stderr = away.end()
    assert code == 1
    assert b"accepted and not delivered" in stderr
    assert b"'t'" in stderr


def test_what_fails_after_a_202_is_logged(tmp_path):
    """The broker comes back, and refuses a name that it could not be asked about before."""
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
    with Front(port, "--producer", "reconnect_max_s=0.2") as front:
        assert front.http.post("/async/no%20name", content=b"x").status_code == 202
        with Node(dir=tmp_path, port=port):
            log = front.read_until(b"given up", pipe=front.process.stderr)
    assert b"'no name'" in log
    assert b"not allowed" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_stops_delivers_what_it_has_accepted(node, topic, number):
    with Front(node, "--producer", "linger_s=60") as front:
        front.http.post(f"/sync/{topic}", content=b"first")
        for i in range(50):
            reply = front.http.post(f"/batch/async/{topic}", content=b"%d" % i)
            assert reply.status_code == 202
        code, _, stderr = front.end(number)
    assert code == 0, stderr
    assert stored(node, topic) == [b"first", *(b"%d" % i for i in range(50))]


def test_followers_and_idle_clients_do_not_hold_up_the_end(node, topic):
    with (
        Front(node) as front,
        front.connect(),
        front.http.stream("GET", f"/topics/{topic}", headers=EVENTS) as reply,
    ):
        lines = reply.iter_lines()
        assert next(lines).startswith("id: ")
        code, _, stderr = front.end()
        assert (code, list(lines)) == (0, [""]), stderr


def test_a_request_under_way_is_answered_before_the_end(node, topic):
    with Front(node) as front, front.connect() as client:
        head = b"POST /sync/%b HTTP/1.1\r\nHost: localhost\r\n" % topic.encode()
        client.sendall(head + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        front.process.send_signal(signal.SIGTERM)
        front.read_until(b"stopping", pipe=front.process.stderr)
        client.sendall(b"x")
        assert reply_of(client)[0].startswith(b"HTTP/1.1 200 ")
        assert front.process.wait(TIMEOUT_S) == 0
    assert stored(node, topic) == [b"x"]


@pytest.mark.parametrize("path", [b"/sync/t", b"/sync/t?delay_s=1"])
def test_a_request_that_is_not_done_at_the_end_is_told_so(path):
    options = "--sync-timeout-s", 300, "--drain-timeout-s", 1, "--producer", "close_timeout_s=1"
    with broker() as slow, Front(slow.url, *options) as front, front.connect() as client:
        assert front.http.post("/sync/t", content=b"x").status_code == 200
        slow.set_latency(300)
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n" % path
        client.sendall(head + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"x")
        _, _, stderr = front.end()
        head, body = reply_of(client)
    assert head.startswith(b"HTTP/1.1 504 ")
    assert b"may have been done" in body
    assert b"Traceback" not in stderr


def test_a_port_that_is_taken_is_told(front):
    run = poe("gateway", "--port", front.port)
    assert run.returncode == 2
    assert "use another port" in complaint(run)


@pytest.fixture
def silent():
    """A server's address that takes connections off nobody's hands: its queue is full."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listening,
        contextlib.ExitStack() as fill,
    ):
        address = listening.getsockname()
        for _ in range(4):
            one = fill.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        yield address[1]


def asked(front, method, path, accept="application/json"):
    """Status of an answer, and how long it took."""
    begun_s = time.monotonic()
    reply = front.http.request(
        method, path, content=b"x" if method == "POST" else None, headers={"Accept": accept}
    )
    return reply.status_code, time.monotonic() - begun_s


ALL_DOWN = [
    ("POST", "/sync/t"), ("GET", "/topics"), ("GET", "/topics/t"), ("GET", "/readyz"),
    ("GET", "/topics/t?pointer=newest"), ("GET", "/topics/t", "application/octet-stream"),
    ("GET", "/topics/t", "text/event-stream"),
]  # fmt: skip


def test_with_default_options_nobody_waits_for_a_broker_that_is_down(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
    with Front(port) as front:
        for _ in range(2):
            took = {request: asked(front, *request) for request in ALL_DOWN}
            assert {status for status, _ in took.values()} == {503}
            assert max(took_s for _, took_s in took.values()) < 10, took
        with Node(dir=tmp_path, port=port):
            wait_until(lambda: asked(front, "POST", "/sync/t")[0] == 200, timeout_s=30)
            assert asked(front, "GET", "/topics/t")[0] == 200


def test_a_broker_that_nobody_hears_of_is_given_up_in_connect_timeout_s(silent):
    with Front(silent, "--connect-timeout-s", 0.5) as front:
        for request in (("POST", "/sync/t"), ("GET", "/topics"), ("GET", "/readyz")):
            status, took_s = asked(front, *request)
            assert status == 503, request
            assert took_s < 5, request


def test_who_waits_for_an_answer_gets_all_of_sync_timeout_s():
    """The short limit is for a broker that cannot be reached, not for one that takes its time."""
    with broker() as slow:
        options = ("--sync-timeout-s", 20, "--connect-timeout-s", 0.3)
        with Front(slow.url, *options) as front:
            wait_until(lambda: asked(front, "POST", "/sync/t")[0] == 200, timeout_s=TIMEOUT_S)
            slow.set_latency(0.5)  # each way
            assert asked(front, "POST", "/sync/t")[0] == 200
