"""Clients that break the rules of TLS hurt nobody but themselves."""

import contextlib
import random
import socket
import struct
import time

import pytest

from poe.protocol import ControlRequest, PointerRequest, PutRequest
from tests.broker.nodes import rss_bytes
from tests.forged_records import ALERT, ForgedRecords
from tests.scenarios.clients import RawClient, SecureAddress, connection_count, received_until_end
from tests.tls import Tap
from tests.waiting import wait_until

TOPIC = b"t"
HEALTH = ControlRequest("health", 7, {}).encode()
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def node(serve, certificates):
    return serve(port=None, **certificates.server_options(), unauthenticated_per_address_max=200)


@pytest.fixture
def unharmed(node, certificates):
    """Check, at the end, that those who were there are served, and a new client, too."""
    address = SecureAddress(node.tls_address, certificates.client_context())
    with RawClient(address) as there:
        there.write(TOPIC, [b"1"])
        yield
        assert [each for _, each in there.read(TOPIC, 0, 10)] == [b"1"]
        with RawClient(address) as new:
            assert TOPIC in new.control("topics")
        there.end()
        wait_until(lambda: connection_count(node) == 0, timeout_s=10)


@pytest.fixture
def tap(node, certificates):
    with Tap.to(node.tls_address, certificates) as tap:
        yield tap


@pytest.fixture
def forged(node, certificates, tmp_path):
    """What makes any record, behind a handshake."""
    log = tmp_path / "keys"
    context = certificates.client_context()
    context.keylog_filename = str(log)
    with Tap.to(node.tls_address, certificates, context) as tap:
        yield ForgedRecords(tap, log)


# ---- handshakes ---------------------------------------------------------------------------------


def hello(certificates):
    """Tell the first bytes of a client, as it would send them."""
    tap = Tap(certificates, socket.socket())
    with tap:
        return tap.hello()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.usefixtures("unharmed")
def test_a_client_may_leave_at_any_byte_of_its_hello(node, certificates, ending):
    whole = hello(certificates)
    for size in {*range(12), *range(12, len(whole) + 1, 29), len(whole)}:
        with socket.create_connection(node.tls_address, 10) as client:
            client.sendall(whole[:size])
            if ending == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.usefixtures("unharmed")
def test_a_client_may_leave_at_any_byte_of_its_last_flight(node, certificates, ending):
    for size in range(0, 80, 7):
        with Tap(certificates, socket.create_connection(node.tls_address, 10)) as tap:
            last = tap.last_flight()
            assert size < len(last)
            tap.send(last[:size])
            if ending == "reset":
                tap.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.mark.slow
@pytest.mark.usefixtures("unharmed")
def test_a_handshake_may_come_byte_by_byte(node, certificates):
    with Tap(certificates, socket.create_connection(node.tls_address, 10)) as tap:
        tap.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in tap.hello():
            tap.send(bytes([byte]))
        for byte in tap.last_flight():
            tap.send(bytes([byte]))
        for byte in tap.encrypted(HEALTH):
            tap.send(bytes([byte]))
        assert tap.frame() is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("unharmed")
def test_a_hello_with_wrong_bytes_gets_an_alert_at_most(node, certificates, seed):
    dice = random.Random(seed)
    for _ in range(50):
        data = bytearray(hello(certificates))
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with socket.create_connection(node.tls_address, 10) as client:
            client.settimeout(10)
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            received = received_until_end(client)
            # Or the server's part of a handshake, where the hello could be read nevertheless.
            assert received[:1] in {b"", b"\x15", b"\x16"}


def is_served(node, certificates):
    """Return whether a client that means it gets in; of a crowd the oldest gives way in time."""
    address = SecureAddress(node.tls_address, certificates.client_context())
    try:
        with RawClient(address) as good:
            return good.control("health")["status"] == "ok"
    except OSError:  # closed in its handshake
        return False


@pytest.mark.slow
def test_a_thousand_half_hellos_take_little_and_a_good_client_connects_at_once(serve, certificates):
    node = serve(port=None, **certificates.server_options())
    half = hello(certificates)[:200]
    before_bytes = rss_bytes()
    with contextlib.ExitStack() as closing:
        for number in range(1000):
            source = (f"127.1.0.{number % 100 + 1}", 0)
            client = closing.enter_context(socket.socket())
            client.settimeout(10)
            client.bind(source)
            client.connect(node.tls_address)
            with contextlib.suppress(ConnectionError):
                client.sendall(half)
        wait_until(lambda: connection_count(node) == 256, 20)
        assert rss_bytes() - before_bytes < 32 << 20
        wait_until(lambda: is_served(node, certificates), 10)


@pytest.mark.slow
@pytest.mark.parametrize("crowd", ["127.1.0.1", "127.0.0.1"])
def test_a_crowd_of_one_address_keeps_nobody_out(serve, certificates, crowd):
    """Nor one of its own address, as long as that is quick."""
    node = serve(port=None, **certificates.server_options())
    half = hello(certificates)[:200]
    with contextlib.ExitStack() as closing:
        for _ in range(300):
            client = closing.enter_context(socket.socket())
            client.settimeout(10)
            client.bind((crowd, 0))
            client.connect(node.tls_address)
            with contextlib.suppress(ConnectionError):
                client.sendall(half)
        wait_until(lambda: is_served(node, certificates), 10)


# ---- records ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("unharmed")
def test_a_record_may_be_split_at_every_byte(node, tap):
    tap.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in range(1, len(HEALTH) + 22):
        record = tap.encrypted(HEALTH)
        tap.send(record[:cut])
        tap.send(record[cut:])
        assert tap.frame() is not None


@pytest.mark.usefixtures("unharmed")
def test_a_frame_may_come_in_records_of_one_byte(tap):
    for request in (HEALTH, PointerRequest(TOPIC, 0, 1).encode()):
        tap.send(b"".join(tap.encrypted(bytes([byte])) for byte in request * 20))
        for _ in range(20):
            assert tap.frame() is not None


@pytest.mark.usefixtures("unharmed")
def test_records_that_carry_nothing_are_passed_over(forged):
    nothing = b"".join(forged.record(b"") for _ in range(20))
    forged.tap.send(nothing + forged.record(HEALTH) + forged.record(b"") + forged.record(HEALTH))
    assert forged.tap.frame() is not None
    assert forged.tap.frame() is not None


@pytest.mark.usefixtures("unharmed")
def test_records_that_carry_nothing_for_ever_end_the_connection(forged):
    forged.tap.send(b"".join(forged.record(b"") for _ in range(1000)))
    with pytest.raises(OSError, match=r"alert|reset|EOF"):
        forged.tap.frame()


@pytest.mark.usefixtures("unharmed")
def test_keys_may_be_changed_at_any_time(forged):
    for _ in range(30):
        forged.tap.send(forged.record(HEALTH[:5]) + forged.key_update() + forged.record(HEALTH[5:]))
        assert forged.tap.frame() is not None
    forged.tap.send(forged.key_update())
    time.sleep(0.05)
    forged.tap.send(forged.record(PutRequest(TOPIC, [b"x" * 100_000]).encode()[:4]))


@pytest.mark.slow
def test_who_changes_keys_and_reads_no_answer_stops_nobody(node, forged, certificates):
    """The answers to that are few, and wait for the next reply."""
    address = SecureAddress(node.tls_address, certificates.client_context())
    node.put_many(TOPIC, [b"x" * 100_000] * 50)
    forged.tap.send(forged.record(PointerRequest(TOPIC, 0, 100).encode()))
    forged.tap.send(forged.record(PointerRequest(TOPIC, 0, 100).encode()))
    for _ in range(200):
        forged.tap.send(forged.key_update())
    with RawClient(address) as good:
        began_s = time.monotonic()
        for _ in range(100):
            good.control("health")
        assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("size", [16 * 1024 + 1, 16 * 1024 + 200])
@pytest.mark.usefixtures("unharmed")
def test_a_record_that_is_too_long_ends_the_connection(forged, size):
    forged.tap.send(forged.record(b"\0" * size))
    with pytest.raises(OSError, match="alert record overflow"):
        forged.tap.frame()


@pytest.mark.usefixtures("unharmed")
def test_a_full_record_is_not_too_long(forged):
    message = b"x" * (16 * 1024 - 14 - len(TOPIC))
    request = PutRequest(b"other", [message[4:]]).encode()
    assert len(request) == 16 * 1024
    forged.tap.send(forged.record(request) + forged.record(HEALTH))
    assert forged.tap.frame() is not None
    assert forged.tap.frame() is not None


@pytest.mark.usefixtures("unharmed")
def test_a_record_that_was_changed_ends_the_connection(tap):
    record = bytearray(tap.encrypted(HEALTH))
    record[-3] ^= 1
    tap.send(record)
    with pytest.raises(OSError, match="alert bad record mac"):
        tap.frame()


@pytest.mark.usefixtures("unharmed")
def test_an_alert_ends_the_connection(forged):
    forged.tap.send(forged.record(b"\2\x50", ALERT))
    with contextlib.suppress(OSError):
        assert forged.tap.frame() is None


@pytest.mark.usefixtures("unharmed")
def test_a_farewell_within_a_frame_ends_the_connection_and_nothing_is_stored(node, forged):
    request = PutRequest(b"other", [b"x" * 1000]).encode()
    forged.tap.send(forged.record(request[:500]) + forged.record(b"\1\0", ALERT))
    assert forged.tap.frame() is None
    assert node.topics() == [TOPIC]


@pytest.mark.usefixtures("unharmed")
def test_an_end_within_a_record_ends_the_connection_and_nothing_is_stored(node, tap):
    tap.send(tap.encrypted(PutRequest(b"other", [b"x" * 1000]).encode())[:-1])
    tap.socket.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        assert tap.frame() is None
    assert node.topics() == [TOPIC]


@pytest.mark.slow
@pytest.mark.usefixtures("unharmed")
def test_a_reset_within_a_reply_ends_the_connection(node, certificates):
    node.put_many(b"big", [b"x" * 100_000] * 100)
    for wanted in (0, 1, 100, 20_000, 1_000_000):
        with Tap.to(node.tls_address, certificates) as tap:
            tap.send(tap.encrypted(PointerRequest(b"big", 0, 100).encode()))
            received = 0
            while received < wanted:
                received += len(tap.socket.recv(min(wanted - received, 65536)))
            tap.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    delete = ControlRequest("delete", 1, {"topic": b"big"}).encode()
    with Tap.to(node.tls_address, certificates) as tap:
        tap.send(tap.encrypted(delete))
        assert tap.frame() is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("unharmed")
def test_whatever_follows_a_handshake_nobody_else_is_hurt(node, certificates, seed):
    dice = random.Random(seed)
    for _ in range(30):
        with Tap.to(node.tls_address, certificates) as tap:
            sent = bytearray(tap.encrypted(HEALTH) + dice.randbytes(dice.randrange(300)))
            if dice.random() < 0.5:
                sent[dice.randrange(len(sent))] = dice.randrange(256)
            tap.send(sent)
            with contextlib.suppress(OSError):  # the node may have hung up already
                tap.socket.shutdown(socket.SHUT_WR)
                while tap.frame() is not None:
                    pass
