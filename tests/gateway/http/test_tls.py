"""The gateway by HTTPS, and clients that mean no good, or stop in the middle of a handshake."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import shutil
import signal
import socket
import ssl
import threading
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import trustme
import uvloop
from prometheus_client import REGISTRY

from poe.errors import OptionError
from poe.gateway.http import GatewayOptions, tls_listener
from poe.gateway.http.certificate import ServedCertificate
from poe.gateway.http.tls_listener import TlsListener
from poe.option import load_options
from poe.security.server_tls import ServerSide, ServerTls
from tests.cli.processes import complaint, poe
from tests.gateway.http.front import HOST, TIMEOUT_S, Front, reply, stored, whole_reply
from tests.tls import Certificates, let_certificates_expire
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EVERYWHERE = "0.0.0.0"
HELLO = b"\x16\x03\x01\x02\x00\x01"
"""How a client begins, and no more."""


@pytest.fixture(scope="module")
def secure(node, certificates):
    with Front(node, tls=certificates) as front:
        yield front


@contextlib.contextmanager
def connected(front, certificates, name=None, **options):
    """A connection by TLS for bytes that no client library would send."""
    context = certificates.client_context(name, "http/1.1")
    for option, value in options.items():
        setattr(context, option, value)
    with (
        front.connect_plain() as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        yield connection


def serial_of(front, certificates):
    with connected(front, certificates) as connection:
        return connection.getpeercert()["serialNumber"]


def is_refused(front, certificates, name=None, **options):
    """Whether a client gets nothing; with TLS 1.3 it learns that after its handshake."""
    try:
        with connected(front, certificates, name, **options) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(100) == b""
    except OSError:
        return True


def count(front, name):
    """A counter of the gateway; 0 where nothing was counted."""
    lines = front.http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_until_counted(front, name, least):
    wait_until(lambda: count(front, name) >= least, timeout_s=TIMEOUT_S)


def test_posts_and_gets_are_as_they_are_in_plaintext(secure, node, topic):
    assert secure.http.post(f"/sync/{topic}", content=b"x" * 100_000).status_code == 200
    assert stored(node, topic) == [b"x" * 100_000]
    assert secure.http.get(f"/topics/{topic}").json()["messages"][0]["value"] == "x" * 100_000


def test_http_1_1_is_agreed_on_also_with_clients_that_do_not_ask(secure, certificates):
    with connected(secure, certificates) as connection:
        assert (connection.selected_alpn_protocol(), connection.version()) == (
            "http/1.1",
            "TLSv1.3",
        )
    context = ssl.create_default_context(cafile=str(certificates.file("ca.pem")))
    with (
        secure.connect_plain() as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reply(connection)[0].startswith(b"HTTP/1.1 200 ")


def test_an_older_tls_is_taken_only_where_that_is_said(secure, node, certificates):
    old = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    assert is_refused(secure, certificates, **old)
    with Front(node, "--tls-min", "1.2", tls=certificates) as lax:
        assert not is_refused(lax, certificates, **old)


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00\x00\x00\x05hello", b"\n" * 4000],
    ids=["http", "a frame", "lines"],
)
def test_nothing_is_said_in_plaintext(secure, sent):
    with secure.connect_plain() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        assert b"HTTP" not in whole_reply(connection)


def test_a_client_that_closes_by_tls_alone_is_let_go(secure, certificates):
    with connected(secure, certificates) as connection, contextlib.suppress(OSError):
        connection.unwrap().close()
    assert secure.http.get("/healthz").status_code == 200


@pytest.mark.alone
def test_half_handshakes_keep_nobody_out(secure, certificates):
    """More than may be under way, and none of them ever goes on."""
    with contextlib.ExitStack() as stack:
        for _ in range(2 * tls_listener.SHAKING_MAX):
            stack.enter_context(secure.connect_plain()).sendall(HELLO)
        began_s = time.monotonic()
        for _ in range(10):
            assert not is_refused(secure, certificates)
        assert time.monotonic() - began_s < 5
    assert count(secure, "poe_gateway_handshakes_total") > tls_listener.SHAKING_MAX


def in_its_loop(test):
    """A test as a coroutine, in the kind of loop that gateways run in."""

    @functools.wraps(test)
    def run(**fixtures):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(**fixtures))

    return run


class Made(asyncio.Protocol):
    """Notes that there is a connection."""

    def __init__(self, made):
        self._made = made

    def connection_made(self, transport):
        self._made.append(transport)


class Listening:
    """A listener in this process, with connections that only say that they are there."""

    def __init__(self, certificates):
        self.context = certificates.server_context()
        self.made = []

    async def __aenter__(self):
        self.socket = socket.create_server((HOST, 0))
        self.socket.setblocking(False)
        self.listener = TlsListener(self.socket, lambda: self.context, self.protocol, 5)
        self.listener.start()
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        await self.listener.wait_closed()
        self.socket.close()

    def protocol(self):
        return Made(self.made)


async def half_way(listening):
    """Begin a handshake, and return where its end can be read."""
    reader, writer = await asyncio.open_connection(*listening.socket.getsockname())
    writer.write(HELLO)
    return reader, writer


@in_its_loop
async def test_half_a_handshake_ends_with_its_time(certificates, monkeypatch):
    monkeypatch.setattr(tls_listener, "HANDSHAKE_TIMEOUT_S", 0.2)
    async with Listening(certificates) as listening:
        reader, writer = await half_way(listening)
        assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
        writer.close()
    assert listening.made == []


@in_its_loop
async def test_of_too_many_handshakes_of_one_address_its_oldest_goes(certificates, monkeypatch):
    monkeypatch.setattr(tls_listener, "SHAKING_PER_NETWORK_MAX", 3)
    async with Listening(certificates) as listening:
        clients = [await half_way(listening) for _ in range(4)]
        assert await asyncio.wait_for(clients[0][0].read(), TIMEOUT_S) == b""
        late = asyncio.ensure_future(clients[1][0].read())
        assert not (await asyncio.wait([late], timeout=0.1))[0]
        late.cancel()
        for _, writer in clients:
            writer.close()


@in_its_loop
async def test_who_is_in_a_handshake_is_let_go_at_the_end(certificates):
    async with Listening(certificates) as listening:
        reader, writer = await half_way(listening)
        await asyncio.sleep(0)
    assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
    writer.close()


def failed_count():
    return REGISTRY.get_sample_value("poe_gateway_handshakes_total", {"outcome": "failed"}) or 0


@in_its_loop
async def test_a_client_with_a_name_that_is_no_text_has_failed(certificates, caplog):
    certificates.issue_garbled("garbled")
    caplog.set_level(logging.DEBUG, "poe.gateway.tls")
    before = failed_count()
    async with Listening(certificates) as listening:
        listening.context.load_verify_locations(certificates.file("ca.pem"))
        listening.context.verify_mode = ssl.CERT_REQUIRED
        listening.context.sslobject_class = ServerSide
        reader, writer = await asyncio.open_connection(
            *listening.socket.getsockname(),
            ssl=certificates.client_context("garbled"),
            server_hostname=HOST,
        )
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
        writer.close()
    assert listening.made == []
    assert failed_count() == before + 1
    (told,) = [each for each in caplog.messages if "came to nothing" in each]
    assert told.endswith("its certificate has a name that is no text")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_clients_need_a_certificate_where_an_authority_is_given(node, certificates):
    certificates.issue("client", "client@example")
    with Front(node, "--tls-client-ca", certificates.file("ca.pem"), tls=certificates) as front:
        assert is_refused(front, certificates)
        assert not is_refused(front, certificates, "client")


def copied(certificates, folder):
    """Return the same authority with files of its own, which a test may replace."""
    for each in certificates.folder.iterdir():
        shutil.copy(each, folder)
    return Certificates(certificates.authority, folder)


def test_a_new_certificate_is_used_at_sighup_and_old_connections_go_on(
    node, certificates, tmp_path
):
    own = copied(certificates, tmp_path)
    with Front(node, "--reload-interval-s", 0, tls=own) as front:
        old = serial_of(front, own)
        with connected(front, own) as connection:
            own.issue("server", "localhost", HOST)
            assert serial_of(front, own) == old  # nobody has looked yet
            front.process.send_signal(signal.SIGHUP)
            wait_until(lambda: serial_of(front, own) != old, timeout_s=TIMEOUT_S)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert reply(connection)[0].startswith(b"HTTP/1.1 200 ")
        assert front.end()[0] == 0


def test_changed_files_are_found_and_broken_ones_change_nothing(node, certificates, tmp_path):
    own = copied(certificates, tmp_path)
    with Front(node, "--reload-interval-s", 0.1, tls=own) as front:
        old = serial_of(front, own)
        own.file("server.pem").write_text("no certificate")
        wait_until_counted(front, 'poe_gateway_reloads_total{outcome="failed"}', 1)
        assert serial_of(front, own) == old
        own.issue("server", "localhost", HOST)
        wait_until(lambda: serial_of(front, own) != old, timeout_s=TIMEOUT_S)
        assert count(front, "poe_gateway_certificate_days") > 1
        code, _, told = front.end()
    assert code == 0
    assert b"the certificate stays as it was" in told


def test_reloads_under_load_disturb_nobody(node, certificates, tmp_path, topic):
    """Requests on old and new connections, while good and broken files take turns."""
    own = copied(certificates, tmp_path)
    with Front(node, "--reload-interval-s", 0, tls=own) as front:
        is_over = threading.Event()
        failures, done = [], []

        def load():
            context = own.client_context()
            while not is_over.is_set():
                try:
                    with httpx.Client(verify=context, timeout=TIMEOUT_S) as client:
                        for _ in range(5):
                            url = f"https://{HOST}:{front.port}/async/{topic}"
                            done.append(client.post(url, content=b"x").status_code)
                except Exception as error:  # noqa: BLE001 - whatever it is
                    failures.append(error)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for each in threads:
            each.start()
        good = own.file("server.pem").read_bytes()
        for number in range(30):
            temporary = own.file("new.pem")
            temporary.write_bytes(good if number % 2 else b"broken")
            temporary.replace(own.file("server.pem"))
            front.process.send_signal(signal.SIGHUP)
            wait_until_counted(front, "poe_gateway_reloads_total", number + 1)
        is_over.set()
        for each in threads:
            each.join()
        assert failures == []
        assert set(done) == {202}
        assert count(front, "poe_gateway_reloads_total") == 30


def test_a_certificate_that_expires_soon_is_told_once_for_each_limit(certificates, caplog):
    paths = certificates.file("server.pem"), certificates.file("server.key")
    tls = ServerTls(certificate=paths[0], key=paths[1])
    expires_s = tls.build().expires_s
    times_s = iter([expires_s - days * 86_400 for days in (30, 20.9, 20, 6.9, 6, 0.9, 0.5)])
    certificate = ServedCertificate(tls, lambda: next(times_s))
    for _ in range(6):
        certificate.look()
    told = [each.getMessage() for each in caplog.records if "expires in" in each.getMessage()]
    assert [each.split(" expires in ")[1] for each in told] == [
        "20.9 days; renew it",
        "6.9 days; renew it",
        "0.9 days; renew it",
    ]


def test_a_certificate_that_cannot_be_read_for_the_moment_is_read_at_the_next_look(
    certificates, tmp_path, monkeypatch
):
    own = copied(certificates, tmp_path)
    tls = ServerTls(certificate=own.file("server.pem"), key=own.file("server.key"))
    served = ServedCertificate(tls)
    before = served.context()
    own.issue("server", "localhost")

    def fail(*arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("poe.security.small_file.os.open", fail)
        served.look()
    assert served.context() is before
    served.look()
    assert served.context() is not before


async def test_while_a_disk_does_not_answer_others_are(certificates, tmp_path, monkeypatch):
    own = copied(certificates, tmp_path)
    served = ServedCertificate(
        ServerTls(certificate=own.file("server.pem"), key=own.file("server.key"))
    )
    answers, build, before = threading.Event(), ServerTls.build, served.context()
    asked = threading.Event()

    def late(self, used):
        asked.set()
        assert answers.wait(TIMEOUT_S)
        return build(self, used)

    monkeypatch.setattr(ServerTls, "build", late)
    watching = asyncio.create_task(served.watch(0.0))
    served.renew_soon()
    try:
        assert await asyncio.to_thread(asked.wait, TIMEOUT_S)
        assert served.context() is before
        answers.set()
        await until_another_context(served, before)
    finally:
        answers.set()
        watching.cancel()


async def until_another_context(served, before):
    async with asyncio.timeout(TIMEOUT_S):
        while served.context() is before:  # noqa: ASYNC110 - a thread has it be another
            await asyncio.sleep(0.001)


async def test_a_look_that_fails_is_told_and_not_the_last(
    certificates, tmp_path, monkeypatch, caplog
):
    own = copied(certificates, tmp_path)
    served = ServedCertificate(
        ServerTls(certificate=own.file("server.pem"), key=own.file("server.key"))
    )
    build, before, failures = ServerTls.build, served.context(), iter(["what nobody thought of"])

    def failing_once(self, used):
        for each in failures:
            raise RuntimeError(each)
        return build(self, used)

    monkeypatch.setattr(ServerTls, "build", failing_once)
    watching = asyncio.create_task(served.watch(0.001))
    served.renew_soon()
    try:
        await until_another_context(served, before)
    finally:
        watching.cancel()
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert told.getMessage() == "the files of TLS could not be looked at"


def test_a_certificate_that_expires_in_use_keeps_no_revocation_waiting(
    certificates, tmp_path, monkeypatch
):
    own = copied(certificates, tmp_path)
    served = ServedCertificate(
        ServerTls(
            certificate=own.file("server.pem"),
            key=own.file("server.key"),
            client_ca=own.file("ca.pem"),
            client_crl=own.revoke(),
        )
    )
    before = served.context()
    let_certificates_expire(monkeypatch)
    own.revoke("server")
    served.look()
    assert served.context() is not before


@pytest.mark.parametrize("what", ["expired", "of another key", "missing"])
def test_a_certificate_that_is_of_no_use_is_told_at_the_start(certificates, tmp_path, what):
    own = copied(certificates, tmp_path)
    if what == "expired":
        own.issue("server", "localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    elif what == "missing":
        own.file("server.pem").unlink()
    else:
        other = trustme.CA().issue_cert("localhost")
        other.private_key_pem.write_to_path(own.file("server.key"))
    files = ["--tls-certificate", own.file("server.pem"), "--tls-key", own.file("server.key")]
    run = poe("gateway", "--port", 0, *files)
    assert run.returncode != 0
    assert str(tmp_path) in complaint(run)


def test_others_are_let_in_by_tls_and_tokens_or_when_that_is_meant(certificates):
    tls: dict[str, Any] = {"tls_certificate": certificates.file("server.pem")}
    bearer: dict[str, Any] = {"authentication": "bearer"}
    for options in ({}, tls, bearer):
        with pytest.raises(OptionError, match=r"insecure.*tls_certificate with auth.*=bearer"):
            GatewayOptions(host=EVERYWHERE, **options)
    GatewayOptions(host=EVERYWHERE, **tls, **bearer)
    GatewayOptions(host=EVERYWHERE, insecure=True)


@pytest.mark.parametrize(
    "options", [{"tls_key": "x"}, {"tls_client_ca": "x"}, {"tls_client_crl": "x"}]
)
def test_options_of_tls_come_with_what_they_are_for(options, tmp_path):
    with pytest.raises(OptionError, match="tls_"):
        load_options(GatewayOptions, {name: tmp_path / each for name, each in options.items()})


def test_kafka_cannot_say_what_a_bearer_may():
    with pytest.raises(OptionError, match="Kafka"):
        GatewayOptions(broker="kafka://127.0.0.1:9092", authentication="bearer")


def test_origins_by_https_are_others_than_by_http(node, certificates):
    options = "--allowed-origins", "https://app.example"
    with Front(node, *options, tls=certificates) as front:
        for origin, status in (("https://app.example", 200), ("http://app.example", 403)):
            assert front.http.get("/topics", headers={"Origin": origin}).status_code == status
