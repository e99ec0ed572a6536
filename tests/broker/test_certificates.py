"""Who is known by a certificate, and what TLS and passwords do for each other."""

import contextlib
import socket
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from poe.actors import GenServer
from poe.actors.clock import SimulatedClock
from poe.broker.access.access import GATEKEEPER
from poe.broker.access.files import AccessFiles
from poe.broker.access.options import SecurityOptions
from poe.broker.access.tls_holder import Shown
from poe.broker.connection.gatekeeper import Gatekeeper, GatekeeperParts
from poe.broker.connection.session import SessionEnded
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    ConnectionClosed,
    SecurityFileError,
)
from poe.protocol import ControlRequest
from poe.security.binding import endpoint_binding
from poe.testing.simulated_system import SimulatedSystem
from tests.broker.nodes import SimulatedWall, connect
from tests.broker.users_file import UsersFile, connect_as, log_in, step
from tests.scenarios.clients import RawClient, SecureAddress
from tests.tls import Certificates, let_certificates_expire

NAME = "alice.example.org"
DAY_S = 86_400


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("poe.broker.access.failure_delays.FIRST_S", 0.001)


@pytest.fixture
def issued(tmp_path):
    """An authority, and what it has signed for alice, and for somebody with a longer name."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    certificates = Certificates.make(folder)
    certificates.issue("alice", NAME)
    certificates.issue("bob", "bob.example.org")
    certificates.issue("mallory", f"not-{NAME}")
    return certificates


@pytest.fixture
def users(tmp_path) -> UsersFile:
    users = UsersFile(tmp_path / "users.toml")
    users.password("alice", "secret")
    users.certificate("alice", f"DNS:{NAME}")
    users.certificate("bob", "DNS:bob.example.org")
    users.grant("alice bob", "read write create", topics="orders")
    users.write()
    return users


@pytest.fixture
def guarded(serve, users, issued):
    return serve(
        **issued.server_options(),
        tls_client_ca=issued.file("ca.pem"),
        users=users.path,
        reload_interval=0,
    )


@pytest.fixture
def dial(guarded, issued):
    """Open clients by TLS, with a certificate or without."""
    with contextlib.ExitStack() as closing:

        def dialled(name=None):
            address = SecureAddress(guarded.tls_address, issued.client_context(name))
            return closing.enter_context(RawClient(address))

        yield dialled


def test_a_certificate_lets_its_user_in(dial):
    client = dial("alice")
    told = step(client, "EXTERNAL")
    assert told["principal"] == "alice"
    assert told["expires_s"] > 1_700_000_000
    assert client.write(b"orders", [b"m"]) > 0


@pytest.mark.parametrize("name", ["mallory", None])
def test_no_certificate_or_one_that_merely_looks_like_it_lets_nobody_in(dial, name):
    with pytest.raises(AuthenticationFailed):
        step(dial(name), "EXTERNAL")


def test_a_certificate_is_none_without_tls(guarded):
    with connect(guarded) as client, pytest.raises(AuthenticationFailed):
        step(client, "EXTERNAL")


def test_a_client_without_a_certificate_may_have_a_password(dial, issued):
    client = dial()
    log_in(client, "alice", "secret", endpoint_binding(issued.der("server")))
    assert client.write(b"orders", [b"m"]) > 0


def test_a_password_is_bound_to_the_certificate_of_the_server(dial):
    with pytest.raises(AuthenticationFailed):
        log_in(dial(), "alice", "secret", bytes(32))


@pytest.mark.parametrize(
    ("mechanism", "header"),
    [("SCRAM-SHA-256-PLUS", b"n,,"), ("SCRAM-SHA-256", b"p=tls-server-end-point,,")],
)
def test_what_binds_a_password_is_what_its_mechanism_says(dial, mechanism, header):
    with pytest.raises(AuthenticationFailed):
        step(dial(), mechanism, header + b"n=alice,r=abc")


# ---- reload -------------------------------------------------------------------------------------


def hung_up(client):
    try:
        while True:
            client.control("topics")
    except (AuthenticationExpired, ConnectionClosed, AssertionError):
        return True


def test_another_name_in_the_file_ends_what_the_old_one_has_begun(guarded, dial, users):
    alice, bob = dial("alice"), dial("bob")
    for client in (alice, bob):
        step(client, "EXTERNAL")
    users.remove("alice")
    users.certificate("alice", "DNS:other.example.org")
    users.write()
    assert guarded.reload()["ended_count"] == 1
    assert hung_up(alice)
    assert bob.control("topics") == []


def test_a_revoked_certificate_is_hung_up_on_and_no_other(serve, users, issued):
    options = {"tls_client_ca": issued.file("ca.pem"), "tls_client_crl": issued.revoke()}
    node = serve(**issued.server_options(), **options, users=users.path, reload_interval=0)
    with contextlib.ExitStack() as closing:
        alice, bob = (
            closing.enter_context(
                RawClient(SecureAddress(node.tls_address, issued.client_context(name)))
            )
            for name in ("alice", "bob")
        )
        for client in (alice, bob):
            step(client, "EXTERNAL")
        issued.revoke("alice")
        assert node.reload()["ended_count"] == 1
        assert hung_up(alice)
        assert bob.control("topics") == []


@pytest.mark.slow
def test_a_certificate_that_expires_is_hung_up_on_where_it_alone_lets_in(serve, issued):
    options = {"tls_client_ca": issued.file("ca.pem"), "reload_interval": 0.1}
    node = serve(**issued.server_options(), **options)
    until = datetime.now(UTC) + timedelta(seconds=6)
    issued.issue("brief", "brief.example.org", not_after=until)
    with contextlib.ExitStack() as closing:
        alice, brief = (
            closing.enter_context(
                RawClient(SecureAddress(node.tls_address, issued.client_context(name)))
            )
            for name in ("alice", "brief")
        )
        assert brief.control("topics") == []
        assert hung_up(brief)
        assert datetime.now(UTC) > until - timedelta(seconds=1)
        assert alice.control("topics") == []


class Told(GenServer):
    """Keeps what it is told."""

    def init(self):
        self.told = []

    def handle_cast(self, message):
        self.told.append(message)


def test_what_expires_is_found_also_where_nobody_looks_at_the_files(issued, caplog):
    files = AccessFiles(SecurityOptions(**issued.server_options(), reload_interval=0))
    assert files.tls is not None
    clock = SimulatedClock()
    wall, expires_s = SimulatedWall(clock), files.tls.now.expires_s
    wall.offset_us = round((expires_s - 30 * DAY_S) * 1e6) - wall.now_us()
    with SimulatedSystem(clock=clock) as system:
        client = system.start(Told)
        assert client is not None
        files.tls.shown["client"] = Shown(client, b"", expires_s - 5 * DAY_S)
        system.start(Gatekeeper, GatekeeperParts(None, files, wall), name=GATEKEEPER)
        system.advance(10)
        assert system.get_state(client)["told"] == []
        assert "expires in" not in caplog.text
        wall.offset_us += round(25 * DAY_S * 1e6)
        system.advance(10)
        assert system.get_state(client)["told"] == [SessionEnded()]
        assert "server.pem expires in 5.0 days" in caplog.text


def test_a_new_certificate_of_the_server_is_shown_to_new_clients(guarded, dial, issued):
    client = dial("alice")
    step(client, "EXTERNAL")
    before = issued.der("server")
    issued.issue("server", "localhost", "127.0.0.1", "::1")
    assert issued.der("server") != before
    guarded.reload()
    assert client.write(b"orders", [b"m"]) > 0
    log_in(dial(), "alice", "secret", endpoint_binding(issued.der("server")))


def test_a_certificate_that_cannot_be_used_changes_nothing(guarded, dial, issued, users):
    users.remove("bob")
    users.write()
    key = issued.file("server.key")
    before = key.read_bytes()
    key.write_bytes(issued.file("alice.key").read_bytes())
    with pytest.raises(SecurityFileError, match="server"):
        guarded.reload()
    key.write_bytes(before)
    client = dial("bob")
    assert step(client, "EXTERNAL")["principal"] == "bob"
    with connect_as(guarded, None) as admin:
        told = admin.control("security")
    assert told["reload_failed_count"] == 1
    assert told["handshakes_count"] == 1


def test_a_certificate_of_the_server_that_has_expired_keeps_nobody_in(
    guarded, dial, users, issued, monkeypatch
):
    bob = dial("bob")
    step(bob, "EXTERNAL")
    let_certificates_expire(monkeypatch)
    users.remove("bob")
    users.write()
    assert guarded.reload()["ended_count"] == 1
    assert hung_up(bob)
    issued.issue("server", "localhost")  # another one, and no good either
    with pytest.raises(SecurityFileError, match="has expired"):
        guarded.reload()


def test_a_certificate_of_the_server_that_has_expired_keeps_no_revocation_list_waiting(
    serve, issued, monkeypatch
):
    options = {"tls_client_ca": issued.file("ca.pem"), "tls_client_crl": issued.revoke()}
    node = serve(**issued.server_options(), **options, reload_interval=0)
    address = SecureAddress(node.tls_address, issued.client_context("alice"))
    with RawClient(address) as alice:
        assert alice.write(b"orders", [b"m"]) > 0
        let_certificates_expire(monkeypatch)
        issued.revoke("alice")
        assert node.reload() == {"ended_count": 1}
        assert hung_up(alice)


def test_without_users_a_revoked_certificate_is_hung_up_on_as_well(serve, issued):
    options = {"tls_client_ca": issued.file("ca.pem"), "tls_client_crl": issued.revoke()}
    node = serve(**issued.server_options(), **options, reload_interval=0)
    with contextlib.ExitStack() as closing:
        alice, bob = (
            closing.enter_context(
                RawClient(SecureAddress(node.tls_address, issued.client_context(name)))
            )
            for name in ("alice", "bob")
        )
        assert alice.write(b"orders", [b"m"]) > 0
        assert bob.write(b"orders", [b"m"]) > 0
        issued.revoke("alice")
        assert node.reload() == {"ended_count": 1}
        assert hung_up(alice)
        assert bob.write(b"orders", [b"m"]) > 0


def test_a_certificate_that_is_revoked_in_the_midst_of_its_handshake_lets_nobody_in(serve, issued):
    options = {"tls_client_ca": issued.file("ca.pem"), "tls_client_crl": issued.revoke()}
    node = serve(**issued.server_options(), **options, reload_interval=0)
    with contextlib.ExitStack() as closing:
        alice, bob = (
            closing.enter_context(HalfShaken(node.tls_address, issued.client_context(name)))
            for name in ("alice", "bob")
        )
        issued.revoke("alice")
        node.reload()
        assert bob.is_served()
        assert not alice.is_served()


class HalfShaken:
    """A client that has heard the server's part of a handshake, and has still to say its own."""

    def __init__(self, address, context):
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent, server_hostname="localhost")
        self._socket = socket.create_connection(address, 10)
        while not self._is_shaken():
            self._socket.sendall(self._sent.read())
            content = self._socket.recv(65536)
            assert content, "the node has hung up"
            self._received.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _is_shaken(self):
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            return True
        return False

    def is_served(self):
        """Say the rest, and ask something; tell whether that is answered."""
        self._tls.write(ControlRequest("health", 1, {}).encode())
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self._socket.sendall(self._sent.read())
            while content := self._socket.recv(65536):
                self._received.write(content)
                with contextlib.suppress(ssl.SSLWantReadError):
                    return bool(self._tls.read())
        return False
