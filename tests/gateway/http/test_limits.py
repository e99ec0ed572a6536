"""What bounds the gateway: clients that send too much, too slowly, or what is no HTTP at all."""

import contextlib
import select
import socket
import ssl
import time

import httpx
import pytest

from tests.gateway.http.front import TIMEOUT_S, Front, reply, stored, whole_reply
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CHUNKED_A = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
POST = b"POST /sync/%b HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module", params=["plain", "tls"])
def certified(request, certificates):
    """The certificates of a gateway, or None."""
    return certificates if request.param == "tls" else None


def limits(head_s, body_s):
    """Small ones of a gateway, and how long it waits for a request."""
    sizes = "--body-max", 1000, "--connections-max", 20, "--in-flight-max", 4000
    return *sizes, "--head-timeout-s", head_s, "--body-timeout-s", body_s


@pytest.fixture(scope="module")
def strict(node, certified):
    """A gateway with small limits."""
    more = "--messages-max", 10, "--topics-max", 40
    with Front(node, *limits(head_s=0.5, body_s=0.5), *more, tls=certified) as front:
        yield front


@pytest.fixture
def patient(node, certified):
    """A gateway with small limits that gives clients the time to come one after the other."""
    with Front(node, *limits(head_s=30, body_s=3), tls=certified) as front:
        yield front


def is_alive(front):
    return front.http.get("/healthz").status_code == 200


def test_a_body_at_the_limit_is_taken_and_one_beyond_it_is_not(strict, node, topic):
    assert strict.http.post(f"/sync/{topic}", content=b"a" * 1000).status_code == 200
    refused = strict.http.post(f"/sync/{topic}", content=b"a" * 1001)
    assert refused.status_code == 413
    assert "body_max" in refused.json()["error"]["message"]
    assert stored(node, topic) == [b"a" * 1000]


def test_a_client_that_sends_far_too_much_still_gets_to_read_why(strict, topic):
    assert strict.http.post(f"/sync/{topic}", content=b"a" * 3_000_000).status_code == 413


def test_a_chunked_body_is_measured_as_it_comes(strict, node, topic):
    def chunks(count):
        for _ in range(count):
            yield b"a" * 100

    assert strict.http.post(f"/sync/{topic}", content=chunks(10)).status_code == 200
    assert strict.http.post(f"/sync/{topic}", content=chunks(11)).status_code == 413
    assert stored(node, topic) == [b"a" * 1000]


def test_a_client_that_waits_for_100_is_refused_before_it_sends(strict, topic):
    with strict.connect() as connection:
        head = POST % topic.encode() + b"Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head)
        assert reply(connection)[0].startswith(b"HTTP/1.1 413 ")


def test_a_body_that_never_ends_is_given_up(strict, topic):
    """A terabyte is announced, and sent for as long as the gateway lets it."""
    sent_bytes = 0
    with strict.connect() as connection, contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.sendall(POST % topic.encode() + b"Content-Length: 1099511627776\r\n\r\n")
        while sent_bytes < 1 << 30:
            sent_bytes += connection.send(b"a" * 65536)
    assert sent_bytes < 1 << 30
    assert is_alive(strict)


def test_too_many_messages_in_one_request_are_refused(strict, node, topic):
    headers = {"Content-Type": "application/x-ndjson"}
    refused = strict.http.post(f"/sync/{topic}", content=b"1\n" * 11, headers=headers)
    assert refused.status_code == 413
    assert stored(node, topic) == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b"HTTP/1.1 408 "),
        (b"POST /sync/t HTTP/1.1\r\nHost: localhost\r\nX", b"HTTP/1.1 408 "),
        (POST % b"t" + b"Content-Length: 10\r\n\r\nabc", b"HTTP/1.1 408 "),
        (POST % b"t" + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", b"HTTP/1.1 408 "),
        (
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na",
            b"HTTP/1.1 404 ",
        ),
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "a rest nobody waits for"],
)
def test_a_client_that_stops_in_the_middle_is_told_and_let_go(strict, sent, status):
    with strict.connect() as connection:
        connection.sendall(sent)
        assert whole_reply(connection).startswith(status)


def test_a_client_that_dribbles_its_head_is_let_go(strict):
    """Slowloris: each header comes in time, and the head never ends."""
    with strict.connect() as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        told = b""
        deadline_s = time.monotonic() + 15
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline_s and not told:
                connection.sendall(b"X-A: b\r\n")
                with contextlib.suppress(TimeoutError):
                    told = connection.recv(65536)
        assert told.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 2_000_000,
        b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 300_000,
        b"GET /" + b"a" * 2_000_000,
    ],
    ids=["a long header", "many headers", "a long path"],
)
def test_a_head_without_end_is_refused(strict, head):
    with strict.connect() as connection:
        told = b""
        # Whoever is neither told nor let go has a TimeoutError.
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
        with contextlib.suppress(ConnectionError):
            told = connection.recv(65536)
        # The gateway may have closed while this was still sending: then the kernel drops its words.
        assert told == b"" or told.startswith(b"HTTP/1.1 431 ")
    assert is_alive(strict)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST % b"t" + b"Content-Length: -1\r\n\r\n",
        POST % b"t" + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        POST % b"t" + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        POST % b"t" + CHUNKED_A.replace(b"chunked", b"gzip, chunked"),
        POST % b"t" + b"Transfer-Encoding: gzip\r\n" + CHUNKED_A,
        POST % b"t" + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        POST % b"t" + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    ],
    ids=["TLS", "words", "another version", "raw bytes in a path", "negative length", "two lengths",
         "length and chunks", "gzip", "gzip apart", "no chunk size", "a chunk that lies"],
)  # fmt: skip
def test_what_is_no_http_is_refused_and_stores_nothing(strict, node, sent):
    with strict.connect() as connection:
        connection.sendall(sent)
        told = connection.recv(65536)
    assert told.split()[1] in {b"400", b"404", b"501"}
    assert stored(node, "t") == []
    assert is_alive(strict)


def test_requests_that_come_at_once_are_answered_in_order(strict, topic):
    one = POST % topic.encode() + b"Content-Type: application/json\r\nContent-Length: 1\r\n\r\n%d"
    with strict.connect() as connection:
        connection.sendall(
            b"".join(one % i for i in range(5)) + b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n"
        )
        content = b""
        while not content.endswith(b'{"status":"ok"}'):
            content += connection.recv(65536)
    assert content.count(b"HTTP/1.1 200 ") == 6


def test_more_clients_than_allowed_are_told_and_make_no_difference_to_the_others(patient, topic):
    assert is_alive(patient)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(patient.connect()) for _ in range(40)]
        refused = [whole_reply(each) for each in crowd[20:]]
        assert all(each.startswith(b"HTTP/1.1 503 ") for each in refused)
        assert all(b"\r\nretry-after: 1\r\n" in each for each in refused)
    path = f"/sync/{topic}"
    wait_until(lambda: patient.http.post(path, content=b"x").status_code == 200, TIMEOUT_S)


def test_an_address_has_so_many_clients_and_leaves_room_for_others(node, certified):
    options = "--connections-per-address-max", 2, "--connections-max", 4
    with Front(node, *options, tls=certified) as front, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(front.connect()) for _ in range(2)]
        content = whole_reply(stack.enter_context(front.connect()))
        assert content.startswith(b"HTTP/1.1 503 ")
        assert b"connections_per_address_max of 2" in content
        other = stack.enter_context(front.connect(from_address="127.0.0.2"))
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reply(other)[0].startswith(b"HTTP/1.1 200 ")
        crowd[0].close()

        def is_let_in():
            with contextlib.suppress(httpx.TransportError):
                return is_alive(front)

        wait_until(is_let_in, TIMEOUT_S)


def test_clients_that_were_refused_keep_nobody_out(node, certified):
    options = "--connections-max", 2, "--head-timeout-s", 300, "--body-timeout-s", 300
    with Front(node, *options, tls=certified) as front, contextlib.ExitStack() as stack:
        with front.connect(), front.connect():
            refused = [stack.enter_context(front.connect()) for _ in range(5)]
            assert all(each.recv(12) == b"HTTP/1.1 503" for each in refused)

        def is_let_in():
            with contextlib.suppress(httpx.TransportError):
                return is_alive(front)

        wait_until(is_let_in, TIMEOUT_S)


@pytest.mark.parametrize(
    ("sent", "head_s"),
    [
        (b"no HTTP\r\n\r\n", 300),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nno HTTP\r\n\r\n", 300),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na", 1),
    ],
    ids=["garbage", "garbage where an answer is due", "a rest nobody waits for"],
)
def test_clients_that_are_let_go_and_do_not_close_keep_nobody_out(node, certified, sent, head_s):
    options = "--connections-max", 2, "--head-timeout-s", head_s, "--body-timeout-s", 300
    with Front(node, *options, tls=certified) as front, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(front.connect()).sendall(sent)

        def is_let_in():
            with contextlib.suppress(httpx.TransportError):
                return is_alive(front)

        wait_until(is_let_in, TIMEOUT_S)


def test_bodies_that_are_under_way_are_bounded_together(patient, topic):
    """Eight clients send most of a body and wait: the limit of all together is four."""
    head = POST % topic.encode() + b"Content-Length: 1000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(patient.connect()) for _ in range(8)]
        for client in clients:
            client.sendall(head + b"a" * 900)
        statuses = [reply(client)[0].split()[1] for client in clients]
    assert statuses.count(b"503") == 4, "refused at once"
    assert statuses.count(b"408") == 4, "and the others when their time was over"
    assert patient.http.post(f"/sync/{topic}", content=b"x").status_code == 200


def test_clients_cannot_make_topics_without_end(strict):
    statuses = [strict.http.post(f"/sync/many_{i}", content=b"x").status_code for i in range(60)]
    assert statuses.count(503) >= 20
    assert is_alive(strict)


def test_topics_that_are_put_onto_later_alone_take_no_place_of_the_producer_s(node):
    with Front(node, "--topics-max", 1) as front:
        for number in range(3):
            later = front.http.post(f"/sync/later_{number}?delay_s=3600", content=b"x")
            assert later.status_code == 202, later.text
        assert front.http.post("/sync/at_once", content=b"x").status_code == 200
        assert front.http.post("/sync/at_once_too", content=b"x").status_code == 503


def test_a_client_that_reads_nothing_is_let_go(node, certified, topic):
    node.put(topic, b"a" * 12_000_000)
    with Front(node, "--body-timeout-s", 0.5, tls=certified) as front, front.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /topics/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % topic.encode())
        # Asked for no event, poll tells of the end of a connection alone.
        end = select.poll()
        end.register(client, 0)
        assert end.poll(TIMEOUT_S * 1000)
        assert is_alive(front)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.parametrize("part_bytes", [1, 7, 10_000])
def test_a_request_that_asks_for_another_protocol_is_served_in_this_one(
    front, node, topic, part_bytes
):
    post = POST % topic.encode() + UPGRADE
    requests = post + b"Content-Length: 5\r\n\r\nfirst" + post + CHUNKED_A
    requests += b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + b"\r\n"
    requests += POST % topic.encode() + UPGRADE.replace(b"Upgrade,", b"Upgrade, close,")
    requests += b"Content-Length: 4\r\n\r\nlast"
    with front.connect() as connection:
        for start in range(0, len(requests), part_bytes):
            connection.sendall(requests[start : start + part_bytes])
        assert whole_reply(connection).count(b"HTTP/1.1 200 ") == 4
    assert stored(node, topic) == [b"first", b"a", b"last"]


def test_a_client_of_http_1_0_that_asks_for_another_protocol_gets_its_own(front):
    with front.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n" + UPGRADE + b"\r\n")
        assert whole_reply(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("part_bytes", [1, 10_000])
@pytest.mark.parametrize(
    "trailer", [b"Host: evil.example", b"Content-Encoding: gzip", b"Poe-Key: k", b"Origin: null"]
)
def test_headers_behind_the_body_count_for_nothing(front, node, topic, part_bytes, trailer):
    chunks = CHUNKED_A.removesuffix(b"\r\n") + trailer + b"\r\n\r\n"
    request = POST % topic.encode() + chunks
    with front.connect() as connection:
        for _ in range(2):
            for start in range(0, len(request), part_bytes):
                connection.sendall(request[start : start + part_bytes])
            assert reply(connection)[0].startswith(b"HTTP/1.1 200 ")
    assert stored(node, topic) == [b"a", b"a"]


def test_a_host_behind_the_body_is_none(front, node, topic):
    request = POST.replace(b"Host: localhost\r\n", b"") % topic.encode()
    with front.connect() as connection:
        connection.sendall(request + CHUNKED_A[:-2] + b"Host: localhost\r\n\r\n")
        assert b"the host is missing" in reply(connection)[1]
    assert stored(node, topic) == []


def test_no_tunnel_is_made(front):
    with front.connect() as connection:
        connection.sendall(
            b"CONNECT h:80 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
        )
        assert whole_reply(connection).startswith(b"HTTP/1.1 405 ")
    assert is_alive(front)
