"""What clients say of servers that speak TLS otherwise than they should, or do not let them in."""

import asyncio
import contextlib
import ssl
import threading

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

import poe.client
import poe.protocol
from poe.errors import (
    AuthenticationFailed,
    ConnectFailed,
    OptionError,
    SecurityFileError,
    TlsFailed,
)
from poe.security import Certificate, PasswordFile, Scram, Tls, Token, TokenFile
from poe.security.binding import endpoint_binding
from poe.security.scram import ScramKeys, ScramServer
from poe.security.token import make_token
from tests.client.faces import FACES, run, topics_by
from tests.protocol.scripted_server import Peer, ScriptedServer, pointer_body
from tests.tls import Certificates

USER, PASSWORD = "alice", "canary-password"
TOKEN, _ = make_token("2026-11")
OTHER_TOKEN, _ = make_token("2026-12")


@pytest.fixture(params=FACES)
def face(request):
    return request.param


@pytest.fixture
def tls(certificates):
    return Tls(certificates.file("ca.pem"))


@pytest.fixture
def context(certificates):
    return certificates.server_context()


class Guard:
    """A script that lets in who shows one of some tokens, and then knows no topics."""

    def __init__(self, *tokens, expires_s=None):
        self.tokens = {each.encode() for each in tokens}
        self.expires_s = expires_s
        self.shown = []
        self.asked = []

    def __call__(self, peer: Peer) -> None:
        with contextlib.suppress(EOFError):
            while True:
                request = peer.receive_control()
                self.asked.append(request["op"])
                if request["op"] != "auth":
                    peer.send_control(request["id"], [])
                    continue
                assert request["mechanism"] == "BEARER"
                self.shown.append(request["data"])
                if request["data"] in self.tokens:
                    told = {"data": None, "principal": "ci", "expires_s": self.expires_s}
                    peer.send_control(request["id"], told)
                else:
                    peer.send_error(312, "AuthenticationFailed", "authentication failed")


def quiet(peer: Peer) -> None:
    with contextlib.suppress(EOFError, OSError):
        peer.wait_closed()


# --- TLS -----------------------------------------------------------------------------------------


def test_a_server_of_another_authority_is_refused_with_what_helps(face, tls, tmp_path):
    others = Certificates.make(tmp_path)
    with (
        ScriptedServer(quiet, others.server_context()) as server,
        pytest.raises(TlsFailed, match=f"127.0.0.1:{server.port}.*`ca`"),
    ):
        topics_by(face, server.port, tls=tls)


def test_a_server_of_another_name_is_refused_unless_that_name_is_given(face, certificates):
    path = certificates.issue("elsewhere", "elsewhere.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, path.with_suffix(".key"))
    context.set_alpn_protocols(["poe/1"])
    ca = certificates.file("ca.pem")
    with ScriptedServer(Guard(), context) as server:
        with pytest.raises(TlsFailed, match="server_name"):
            topics_by(face, server.port, tls=Tls(ca))
        named = Tls(ca, server_name="elsewhere.example")
        assert topics_by(face, server.port, tls=named) == []


def test_a_context_of_the_callers_own_is_taken(face, certificates, context):
    own = ssl.create_default_context(cafile=str(certificates.file("ca.pem")))
    with ScriptedServer(Guard(), context) as server:
        assert topics_by(face, server.port, tls=own) == []


def test_a_server_of_something_else_is_no_poe(face, tls, certificates):
    context = certificates.server_context()
    context.set_alpn_protocols(["h2"])
    with (
        ScriptedServer(quiet, context) as server,
        pytest.raises(TlsFailed, match="no Poe"),
    ):
        topics_by(face, server.port, tls=tls)


def test_a_server_without_tls_is_said_to_be_one(face, tls):
    def refuse(peer: Peer) -> None:
        peer.send_error(303, "FrameTooLarge", "frame is refused", size_bytes=1, frame_max=1)

    with ScriptedServer(refuse) as server, pytest.raises(TlsFailed, match="speaks no TLS"):
        topics_by(face, server.port, tls=tls)


def test_a_server_without_tls_that_says_nothing_is_not_waited_for(face, tls):
    over = threading.Event()
    with ScriptedServer(lambda _: over.wait(10)) as server:
        with pytest.raises(ConnectFailed, match=r"port of TLS|timed out"):
            topics_by(face, server.port, tls=tls, timeout_s=0.2)
        over.set()


def test_a_server_that_hangs_up_in_the_handshake_may_be_tried_again(face, tls):
    with ScriptedServer(lambda _: None) as server:
        with pytest.raises(ConnectFailed, match="handshake") as caught:
            topics_by(face, server.port, tls=tls)
        assert caught.value.retriable


def test_a_server_with_tls_is_said_to_be_one_to_who_has_none(face, context):
    with (
        ScriptedServer(quiet, context) as server,
        pytest.raises(TlsFailed, match=f"127.0.0.1:{server.port}.*poes://"),
    ):
        topics_by(face, server.port)


def test_a_server_that_wants_a_certificate_says_so(face, certificates, tls):
    context = certificates.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.file("ca.pem"))
    with (
        ScriptedServer(quiet, context) as server,
        pytest.raises(TlsFailed, match="give `certificate`"),
    ):
        topics_by(face, server.port, tls=tls)


def test_a_file_that_is_not_there_is_named(face, tmp_path):
    with (
        ScriptedServer(quiet) as server,
        pytest.raises(SecurityFileError, match=r"absent\.pem"),
    ):
        topics_by(face, server.port, tls=Tls(tmp_path / "absent.pem"))


# --- Logging in ----------------------------------------------------------------------------------


def test_a_token_is_shown_before_anything_is_asked(face, tls, context):
    guard = Guard(TOKEN)
    with ScriptedServer(guard, context) as server:
        assert topics_by(face, server.port, tls=tls, credentials=Token(TOKEN)) == []
    assert guard.asked == ["auth", "topics"]


def test_a_wrong_token_is_one_attempt_and_one_sentence(face, tls, context):
    guard = Guard(TOKEN)
    with ScriptedServer(guard, context) as server, pytest.raises(AuthenticationFailed) as caught:
        topics_by(face, server.port, tls=tls, credentials=Token(OTHER_TOKEN))
    assert len(guard.shown) == 1
    assert OTHER_TOKEN not in repr(caught.value)


def test_a_file_is_read_at_each_connect(face, tls, context, tmp_path):
    path = tmp_path / "token"
    guard = Guard(TOKEN, OTHER_TOKEN)
    with ScriptedServer(guard, context) as server:
        for token in (TOKEN, OTHER_TOKEN):
            path.write_text(f"{token}\n")
            path.chmod(0o600)
            topics_by(face, server.port, tls=tls, credentials=TokenFile(path))
    assert guard.shown == [TOKEN.encode(), OTHER_TOKEN.encode()]


def test_a_function_is_asked_at_each_connect(face, tls, context):
    tokens = [OTHER_TOKEN, TOKEN]
    guard = Guard(TOKEN, OTHER_TOKEN)
    with ScriptedServer(guard, context) as server:
        for _ in range(2):
            topics_by(face, server.port, tls=tls, credentials=Token(tokens.pop))
    assert guard.shown == [TOKEN.encode(), OTHER_TOKEN.encode()]


def test_a_function_that_fails_may_do_better_the_next_time(face, tls, context):
    def fail() -> str:
        msg = "canary"
        raise RuntimeError(msg)

    with ScriptedServer(Guard(TOKEN), context) as server:
        with pytest.raises(ConnectFailed, match="RuntimeError") as caught:
            topics_by(face, server.port, tls=tls, credentials=Token(fail))
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("slow_face", FACES[1:])
def test_a_function_that_hangs_is_not_waited_for(slow_face, tls, context):
    over = threading.Event()

    def hang() -> str:
        over.wait(10)
        return TOKEN

    with ScriptedServer(Guard(TOKEN), context) as server:
        with pytest.raises(ConnectFailed, match="timed out"):
            topics_by(slow_face, server.port, tls=tls, credentials=Token(hang), timeout_s=0.3)
        over.set()


def test_a_token_never_leaves_the_machine_in_the_clear(face, monkeypatch):
    monkeypatch.setattr("poe.protocol.login.is_loopback", lambda _: False)
    guard = Guard(TOKEN)
    with ScriptedServer(guard) as server, pytest.raises(OptionError, match="poes://"):
        topics_by(face, server.port, credentials=Token(TOKEN))
    assert guard.shown == []


def binding(certificate):
    """What a server's certificate binds a login to."""
    pem = certificate.read_text()
    end = "-----END CERTIFICATE-----"
    return endpoint_binding(ssl.PEM_cert_to_DER_cert(pem[: pem.index(end) + len(end)]))


@pytest.mark.parametrize("over", ["plain", "tls"])
def test_a_password_is_proved_and_bound_to_the_certificate(face, over, certificates, tls, tmp_path):
    keys = ScramKeys.of_password(PASSWORD, 4096)
    context = certificates.server_context() if over == "tls" else None
    bound = binding(certificates.file("server.pem")) if over == "tls" else None
    seen = []

    def script(peer: Peer) -> None:
        server = ScramServer(lambda _: (keys,), b"secret", bound)
        first, final = peer.receive_control(), None
        peer.send_control(first["id"], {"data": server.first(first["data"])})
        final = peer.receive_control()
        data, user = server.final(final["data"])
        seen.append((first["mechanism"], user))
        assert PASSWORD.encode() not in first["data"] + final["data"]
        peer.send_control(final["id"], {"data": data, "principal": user, "expires_s": None})
        asked = peer.receive_control()
        peer.send_control(asked["id"], [])

    path = tmp_path / "password"
    path.write_text(PASSWORD)
    path.chmod(0o600)
    entry = {"tls": tls} if over == "tls" else {}
    with ScriptedServer(script, context) as server:
        for credentials in (Scram(USER, PASSWORD), PasswordFile(USER, path)):
            assert topics_by(face, server.port, credentials=credentials, **entry) == []
    mechanism = "SCRAM-SHA-256-PLUS" if over == "tls" else "SCRAM-SHA-256"
    assert seen == [(mechanism, USER)] * 2


def test_a_certificate_is_shown_by_tls(face, certificates):
    path = certificates.issue("alice", "alice.example")
    context = certificates.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.file("ca.pem"))

    def script(peer: Peer) -> None:
        request = peer.receive_control()
        assert (request["mechanism"], request["data"]) == ("EXTERNAL", b"")
        peer.send_control(request["id"], {"data": None, "principal": "alice", "expires_s": None})
        peer.send_control(peer.receive_control()["id"], [])

    shown = Tls(certificates.file("ca.pem"), path, path.with_suffix(".key"))
    with ScriptedServer(script, context) as server:
        assert topics_by(face, server.port, tls=shown, credentials=Certificate()) == []


def test_a_server_that_closes_instead_of_answering_may_be_tried_again(face, tls, context):
    with (
        ScriptedServer(Peer.receive, context) as server,
        pytest.raises(ConnectFailed, match="closed"),
    ):
        topics_by(face, server.port, tls=tls, credentials=Token(TOKEN))


@pytest.mark.parametrize("wrong", [{"tls": "ca.pem"}, {"credentials": "canary"}])
def test_what_is_no_way_in_is_refused_and_not_shown(face, wrong):
    with pytest.raises(OptionError, match=r"use (Tls|Scram)") as caught:
        topics_by(face, 1, **wrong)
    assert "canary" not in f"{caught.value!r} {caught.value.value}"


# --- Renewal -------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch):
    """Logins are renewed within a moment."""
    monkeypatch.setattr("poe.protocol.renewal._PAUSE_MIN_S", 0.02)


def test_a_login_is_renewed_while_calls_go_on(face, tls, context, hasty):
    guard = Guard(TOKEN, expires_s=0.05)
    with ScriptedServer(guard, context) as server:
        busy_by(face, server.port, lambda: len(guard.shown) < 4, tls=tls, credentials=Token(TOKEN))
    assert guard.asked.count("auth") == 4


@pytest.mark.slow
def test_a_login_that_cannot_be_renewed_is_used_up(face, tls, context, hasty, caplog):
    guard = Guard(TOKEN, expires_s=60.0)
    tokens = [OTHER_TOKEN, OTHER_TOKEN, TOKEN]
    with ScriptedServer(guard, context) as server:

        def is_short() -> bool:
            guard.expires_s = 0.05
            return len(guard.shown) < 3

        guard.expires_s = 0.5
        credentials = Token(lambda: tokens.pop() if tokens else TOKEN)
        busy_by(face, server.port, is_short, tls=tls, credentials=credentials)
    assert guard.shown[1] == OTHER_TOKEN.encode()
    assert "not renewed" in caplog.text
    assert OTHER_TOKEN not in caplog.text


def test_batches_under_way_are_not_disturbed_by_a_renewal(tls, context, hasty):
    pointers = iter(range(1, 10_000))
    renewals = []

    def script(peer: Peer) -> None:
        with contextlib.suppress(EOFError):
            while True:
                kind, body = peer.receive()
                if kind == 2:
                    peer.send(3, pointer_body(next(pointers)))
                else:
                    request = msgpack.unpackb(body)
                    renewals.append(request["op"])
                    told = {"data": None, "principal": "ci", "expires_s": 0.05}
                    peer.send_control(request["id"], told)

    def batches():
        while len(renewals) < 4:
            yield [b"m"]

    entry = {"tls": tls, "credentials": Token(TOKEN)}
    with (
        ScriptedServer(script, context) as server,
        poe.protocol.socket(port=server.port, **entry) as socket,
    ):
        written = list(socket.write_batches("t", batches()))
    assert written == list(range(1, len(written) + 1))
    assert renewals == ["auth"] * 4


def busy_by(face, port, goes_on, **entry):
    """Ask for the topics again and again, on one connection."""
    if face == "blocking":
        with poe.protocol.socket(port=port, timeout_s=10, **entry) as socket:
            while goes_on():
                assert socket.topics() == []
        return

    async def session():
        async with await poe.client.connect(port=port, timeout_s=10, **entry) as socket:
            while goes_on():
                assert await asyncio.gather(*(socket.topics() for _ in range(10))) == [[]] * 10

    run(face, session)
