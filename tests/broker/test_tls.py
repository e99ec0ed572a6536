"""A node listens with TLS, and whatever comes there, nothing is said but by TLS."""

import contextlib
import logging
import socket
import ssl
import struct
import time
from datetime import UTC, datetime, timedelta

import pytest

from poe import Node
from poe.broker import TlsHolder
from poe.broker.access import strangers
from poe.config import Config
from poe.errors import OptionError, PortInUse, SecurityFileError
from poe.protocol import ControlRequest, PointerRequest, PutRequest
from poe.security.server_tls import ServerTls
from tests.scenarios.clients import RawClient, SecureAddress, connection_count, received_until_end
from tests.tls import Certificates, Tap, shake_hands
from tests.waiting import wait_until

TOPIC = b"t"
ALERT = 0x15


@pytest.fixture
def start(serve, certificates):
    """Start a node with TLS."""

    def started(**options):
        return serve(**certificates.server_options(), **options)

    return started


@pytest.fixture
def open_client(certificates):
    """Open clients, which are closed at the end."""
    with contextlib.ExitStack() as closing:

        def opened(node, name=None):
            context = certificates.client_context(name)
            return closing.enter_context(RawClient(SecureAddress(node.tls_address, context)))

        yield opened


# ---- options ------------------------------------------------------------------------------------


def test_a_port_with_tls_needs_a_certificate(tmp_path):
    with pytest.raises(OptionError, match="tls_certificate"):
        Config.load({"dir": tmp_path, "tls_port": 0})


def test_files_for_tls_need_a_port(tmp_path):
    """Else a server would speak plaintext, and who gave it a certificate would not know."""
    with pytest.raises(OptionError, match="tls_port"):
        Config.load({"dir": tmp_path, "port": 0, "tls_certificate": tmp_path / "server.pem"})


def test_a_revocation_list_needs_an_authority(tmp_path):
    with pytest.raises(OptionError, match="tls_client_ca"):
        Config.load({"dir": tmp_path, "tls_client_crl": "x.pem"})


def test_tls_alone_opens_a_node_to_nobody_else(certificates, tmp_path):
    options = {**certificates.server_options(), "dir": tmp_path, "tls_host": "0.0.0.0"}
    with pytest.raises(OptionError, match=r"tls_host.*loopback"):
        Config.load(options)
    assert Config.load({**options, "insecure": True}).security.tls_address.is_public


def test_a_host_that_leads_nowhere_is_named_by_its_option(certificates, tmp_path):
    options = {**certificates.server_options(), "dir": tmp_path, "tls_host": "nowhere.invalid"}
    with pytest.raises(OptionError, match="tls_host"):
        Config.load(options)


def test_a_certificate_that_cannot_be_used_keeps_a_node_from_starting(tmp_path, certificates):
    options = {**certificates.server_options(), "tls_key": certificates.file("ca.pem")}
    with pytest.raises(SecurityFileError, match="it holds no key"):
        Node(dir=tmp_path / "data", port=0, **options).start()
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_refused_and_nothing_is_left_behind(start, tmp_path, certificates):
    options = {**certificates.server_options(), "tls_port": start().tls_address[1]}
    with pytest.raises(PortInUse):
        Node(dir=tmp_path / "second", port=0, **options).start()
    assert not (tmp_path / "second").exists()


def test_both_ports_may_not_be_the_same(tmp_path, certificates):
    options = {**certificates.server_options(), "dir": tmp_path}
    with pytest.raises(OptionError, match=r"tls_port.*another one than port"):
        Config.load({**options, "port": 5555, "tls_port": 5555})
    Config.load({**options, "port": 0, "tls_port": 0})
    Config.load({**options, "port": 5555, "tls_port": 5555, "tls_host": "127.0.0.2"})


# ---- service ------------------------------------------------------------------------------------


def test_clients_are_served_by_both_ports(start, open_client):
    node = start()
    client = open_client(node)
    pointer = client.write(TOPIC, [b"1", b"2"])
    with RawClient(node.address) as plain:
        assert plain.read(TOPIC, 0, 10)[-1] == (pointer, b"2")
    assert client.read(TOPIC, 0, 10)[-1] == (pointer, b"2")
    assert client.control("topics") == [TOPIC]


def test_a_node_may_have_no_other_port(start, open_client):
    node = start(port=None)
    assert node.address is None
    assert open_client(node).control("health")["status"] == "ok"


@pytest.mark.slow
def test_a_stopped_node_frees_its_port(start, open_client):
    node = start()
    client = open_client(node)
    client.control("topics")
    port = node.tls_address[1]
    node.stop()
    assert client.frame() is None
    socket.create_server(("127.0.0.1", port)).close()


def test_the_port_outlives_a_listener_that_crashes(start, open_client):
    node = start()
    before = node.tls_address
    ref = node.system.whereis("listener_sup")
    node.system.exit(ref, "kill")
    # Between the two nobody has the name.
    wait_until(lambda: node.system.whereis("listener_sup") not in {None, ref}, 10)
    assert node.tls_address == before
    assert open_client(node).control("health")["status"] == "ok"


@pytest.mark.parametrize("size", [1, 1000, 16_384, 16_385, 300_000, 3_000_000])
def test_messages_of_any_size_go_in_and_come_out(start, open_client, size):
    client = open_client(start())
    message = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    messages = [message[:size], message[1 : size + 1]]
    client.write(TOPIC, messages)
    assert [each for _, each in client.read(TOPIC, 0, 10)] == messages


def test_a_small_frame_behind_a_large_one_in_one_record_is_answered(start, certificates):
    """Trap 1: what lies decrypted in OpenSSL is nothing that the event loop tells of."""
    node = start()
    with Tap.to(node.tls_address, certificates) as client:
        large = PutRequest(TOPIC, [b"x" * 300_000]).encode()
        small = ControlRequest("topics", 7, {}).encode()
        # The last record holds the end of the large frame, and the small one.
        cut = len(large) - 5000
        client.send(client.encrypted(large[:cut]) + client.encrypted(large[cut:] + small))
        assert client.frame()[0] == 3
        assert client.frame() is not None


@pytest.mark.slow
def test_a_long_poll_of_a_client_that_has_left_is_served_no_longer(start, open_client):
    """Trap 2: its farewell lies in the kernel as bytes that come, for as long as 60 s."""
    node = start()
    client = open_client(node)
    client.write(TOPIC, [b"1"])
    last = client.read(TOPIC, 0, 10)[-1][0]
    wait = ControlRequest("wait", 1, {"topic": TOPIC, "pointer": last, "timeout_s": 60.0})
    client.send(wait.encode())
    time.sleep(0.2)
    client.socket.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):
        client.socket.unwrap()
    client.close()
    wait_until(lambda: connection_count(node) == 0, timeout_s=10)


@pytest.mark.slow
def test_slow_readers_of_large_replies_get_all_of_them(start, open_client):
    """Trap 3: a record that the kernel refused is offered again."""
    node = start()
    message = bytes(range(256)) * 4000
    node.put_many(TOPIC, [message] * 8)
    clients = [open_client(node) for _ in range(4)]
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.send(PointerRequest(TOPIC, 0, 100).encode() * 5)
    for _ in range(5):
        for client in clients:
            frame = client.frame()
            assert frame is not None
            assert frame[1].count(message) == 8


@pytest.mark.slow
def test_a_record_that_does_not_end_is_not_waited_for(start, certificates):
    """Trap 5: no plaintext came, and nobody would look at the time."""
    node = start(frame_timeout=0.3)
    with Tap.to(node.tls_address, certificates) as client:
        client.send(client.encrypted(ControlRequest("topics", 7, {}).encode()))
        assert client.frame() is not None
        client.send(client.encrypted(ControlRequest("topics", 7, {}).encode())[:-1])
        assert "not whole" in str(client.error())
        assert client.frame() is None


@pytest.mark.slow
def test_a_client_that_says_nothing_is_no_late_one(start, certificates):
    node = start(frame_timeout=0.2)
    with Tap.to(node.tls_address, certificates) as client:
        time.sleep(0.5)
        client.send(client.encrypted(ControlRequest("topics", 7, {}).encode()))
        assert client.frame() is not None
        time.sleep(0.5)
        client.send(client.encrypted(ControlRequest("topics", 7, {}).encode()))
        assert client.frame() is not None


def test_a_server_that_hangs_up_says_so_by_tls(start, open_client):
    node = start(frame_max=1024)
    client = open_client(node)
    client.send(struct.pack(">IH", 1 << 20, 2))
    assert "frame_max" in str(client.error()) or "exceed" in str(client.error())
    assert client.socket.recv(10) == b""


# ---- who does not get through --------------------------------------------------------------------


def test_plaintext_is_never_answered_by_plaintext(start):
    """Trap 4: what is no handshake may be told so by an alert of TLS, and by nothing else."""
    node = start()
    for request in (
        ControlRequest("health", 1, {}).encode(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x80\x2e\x01\x00\x02" + b"x" * 44,
        b"\n",
    ):
        with socket.create_connection(node.tls_address, 10) as client:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            received = received_until_end(client)
            assert received == b"" or (received[0] == ALERT and len(received) == 7), received
    wait_until(lambda: connection_count(node) == 0)


def test_clients_beyond_connections_max_are_closed_without_a_word(start, open_client):
    """Trap 4: as above; an error frame before the handshake would be garbage to a client."""
    node = start(connections_max=1)
    open_client(node).control("health")
    with socket.create_connection(node.tls_address, 10) as client:
        assert received_until_end(client) == b""


def test_tls_on_the_port_for_plaintext_is_told_by_an_error_frame(start, certificates):
    node = start()
    with (
        socket.create_connection(node.address, 10) as client,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        certificates.client_context().wrap_socket(client, server_hostname="localhost")
    with RawClient(node.address) as plain:
        assert plain.control("health")["status"] == "ok"


@pytest.mark.parametrize("protocols", [None, ["http/1.1"], ["poe/2", "h2"]])
def test_who_does_not_say_that_it_speaks_poe_is_not_served(start, certificates, protocols):
    """Else a page could make a browser say what is a request to us."""
    node = start()
    context = certificates.client_context_for(protocols)
    with (
        socket.create_connection(node.tls_address, 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        with contextlib.suppress(OSError):
            client.sendall(ControlRequest("health", 1, {}).encode())
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b""
    wait_until(lambda: connection_count(node) == 0)


@pytest.mark.slow
def test_a_client_that_does_not_finish_its_handshake_is_closed(start):
    node = start(handshake_timeout=0.3)
    began_s = time.monotonic()
    with (
        socket.create_connection(node.tls_address, 10) as silent,
        socket.create_connection(node.tls_address, 10) as half,
    ):
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        assert received_until_end(silent) == b""
        assert received_until_end(half) == b""
    assert 0.2 < time.monotonic() - began_s < 5


@pytest.mark.slow
def test_a_handshake_that_trickles_is_closed_as_well(start):
    node = start(handshake_timeout=0.5)
    with socket.create_connection(node.tls_address, 10) as client:
        client.settimeout(0.02)
        record = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500
        began_s = time.monotonic()
        closed = False
        for byte in record:
            try:
                client.sendall(bytes([byte]))
                closed = client.recv(10) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed
        assert time.monotonic() - began_s < 5


def test_strangers_take_the_places_of_strangers_only(start, open_client, monkeypatch):
    """The oldest one is closed without a word; who is let in counts no more."""
    monkeypatch.setattr(strangers, "_PATIENCE_S", 0.0)
    node = start(unauthenticated_per_address_max=3)
    clients = [open_client(node) for _ in range(5)]
    for client in clients:
        client.control("health")
    with contextlib.ExitStack() as closing:
        waiting = [
            closing.enter_context(socket.create_connection(node.tls_address, 10)) for _ in range(3)
        ]
        wait_until(lambda: connection_count(node) == 8)
        assert open_client(node).control("health")["status"] == "ok"
        assert received_until_end(waiting[0]) == b""
        for client in clients:
            client.control("health")
        wait_until(lambda: connection_count(node) == 8)


def test_strangers_are_no_more_than_there_is_room_for(start, monkeypatch):
    monkeypatch.setattr(strangers, "_PATIENCE_S", 0.0)
    node = start(unauthenticated_max=2, unauthenticated_per_address_max=16)
    with contextlib.ExitStack() as closing:
        waiting = [
            closing.enter_context(
                socket.create_connection(node.tls_address, 10, (f"127.0.0.{number + 2}", 0))
            )
            for number in range(2)
        ]
        wait_until(lambda: connection_count(node) == 2)
        with socket.create_connection(node.tls_address, 10):
            assert received_until_end(waiting[0]) == b""
            wait_until(lambda: connection_count(node) == 2)


def test_a_node_that_stops_waits_for_nobodys_handshake(start):
    node = start()
    with socket.create_connection(node.tls_address, 10) as client:
        wait_until(lambda: connection_count(node) == 1)
        began_s = time.monotonic()
        node.stop()
        assert time.monotonic() - began_s < 5  # of 10
        assert received_until_end(client) == b""


# ---- certificates of clients ---------------------------------------------------------------------


def test_a_client_with_a_certificate_of_the_authority_is_served(start, certificates, open_client):
    certificates.issue("client", "client.example")
    node = start(tls_client_ca=certificates.file("ca.pem"))
    assert open_client(node, "client").control("health")["status"] == "ok"
    bare = open_client(node)
    with pytest.raises(ssl.SSLError, match="certificate required"):
        bare.control("health")


def test_a_revoked_client_is_not_served(start, certificates, open_client):
    certificates.issue("gone", "gone.example")
    ca, crl = certificates.file("ca.pem"), certificates.revoke("gone")
    node = start(tls_client_ca=ca, tls_client_crl=crl)
    gone = open_client(node, "gone")
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        gone.control("health")


def test_a_client_with_a_name_that_is_no_text_is_let_go_and_told_in_a_line(
    start, certificates, caplog
):
    certificates.issue_garbled("garbled")
    node = start(tls_client_ca=certificates.file("ca.pem"))
    caplog.set_level(logging.INFO)
    with (
        socket.create_connection(node.tls_address, 10) as plain,
        certificates.client_context("garbled").wrap_socket(
            plain, server_hostname="localhost"
        ) as client,
        contextlib.suppress(ConnectionError),
    ):
        assert client.recv(1) == b""
    wait_until(lambda: connection_count(node) == 0)
    (line,) = [each for each in caplog.messages if "no TLS with" in each]
    assert line.endswith("its certificate has a name that is no text")
    with RawClient(node.address) as client:
        told = client.control("security")
    assert (told["handshakes_count"], told["handshakes_failed_count"]) == (0, 1)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_new_context_takes_the_place_of_the_old_one_which_is_left_alone(tmp_path):
    own = Certificates.make(tmp_path)
    holder = TlsHolder(ServerTls(certificate=own.file("server.pem"), key=own.file("server.key")))
    older = holder.now
    own.issue("server", "localhost", "127.0.0.1")
    newer = holder.build()
    assert holder.now is older
    assert holder.swap(newer) == []
    assert holder.now is newer
    own.file("server.key").write_text("broken")
    with pytest.raises(SecurityFileError):
        holder.build()
    for each in (older, newer):
        client, _ = shake_hands(each.context, own.client_context())
        assert client.getpeercert(binary_form=True) == each.certificate
    assert older.certificate != newer.certificate


def test_a_certificate_that_is_about_to_expire_is_told_at_the_start_and_when_it_is_renewed(
    serve, tmp_path, caplog
):
    own, now = Certificates.make(tmp_path), datetime.now(UTC)
    own.issue("server", "localhost", not_after=now + timedelta(days=5))
    node = serve(**own.server_options())
    assert "server.pem expires in 5.0 days; renew it" in caplog.text
    caplog.clear()
    own.issue("server", "localhost", not_after=now + timedelta(hours=12))
    node.reload()
    assert "server.pem expires in 0.5 days; renew it" in caplog.text
    caplog.clear()
    own.issue("server", "localhost", not_after=now + timedelta(days=90))
    node.reload()
    assert "expires" not in caplog.text
