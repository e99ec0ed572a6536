"""Who gets in: at a node with users, through its port."""

import contextlib
import json
import logging
import math
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from poe import Node
from poe.broker.access import failure_delays, strangers
from poe.broker.connection.session import STRANGER_FRAME_MAX
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    AuthenticationRequired,
    ConnectionClosed,
    NotAuthorized,
    Overloaded,
    RemoteProtocolError,
    SecurityError,
    SecurityFileError,
)
from poe.protocol import ControlRequest, PutRequest
from poe.protocol.frames import HEADER_SIZE, frame_header
from poe.security.audit import LOGGER
from poe.storage import Store, SystemClock
from tests.broker.nodes import address, connect
from tests.broker.users_file import UsersFile, connect_as, log_in, step
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def impatient(request, monkeypatch):
    """Have failures answered at once, where a test does not look at that."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(failure_delays, "FIRST_S", 0.001)


@pytest.fixture
def users(tmp_path) -> UsersFile:
    """Alice may do everything with `orders`, and bob nothing."""
    users = UsersFile(tmp_path / "users.toml")
    users.password("alice", "secret")
    users.password("bob", "other")
    users.grant("alice", "read write create delete", topics="orders")
    users.write()
    return users


@pytest.fixture
def guarded(serve, users):
    """A node with these users, which looks for other files only when it is told to."""
    return serve(users=users.path, reload_interval=0)


def is_closed(client):
    """Wait until the node has closed a connection."""
    client.settimeout(10)
    with contextlib.suppress(ConnectionResetError):
        while client.recv(65536):
            pass
    return True


# ---- before it is known who asks ----------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.write(b"orders", [b"m"]),
        lambda client: client.read(b"orders", 0, 1),
        lambda client: client.control("health"),
        lambda client: client.control("fly"),
    ],
)
def test_a_stranger_is_served_nothing_and_hung_up_on(guarded, ask):
    with connect(guarded) as client:
        with pytest.raises(AuthenticationRequired):
            ask(client)
        with pytest.raises(ConnectionClosed):
            client.control("health")


def test_what_follows_a_refused_request_is_not_served(guarded):
    with connect(guarded) as client:
        log_in(client, "alice", "secret")
        with socket.create_connection(address(guarded)) as stranger:
            put = PutRequest(b"orders", [b"m"]).encode()
            stranger.sendall(put * 50)
            assert is_closed(stranger)
        assert client.read(b"orders", 0, 10) == []


def test_a_stranger_may_send_small_frames_only(guarded):
    with socket.create_connection(address(guarded)) as stranger:
        stranger.sendall(frame_header(16, STRANGER_FRAME_MAX))
        told = stranger.recv(65536)
        assert b"FrameTooLarge" in told
        assert is_closed(stranger)


@pytest.mark.parametrize(
    ("body_bytes", "refusal"), [(4096, "AuthenticationFailed"), (4097, "FrameTooLarge")]
)
def test_a_step_has_4_kib_at_most(guarded, body_bytes, refusal):
    def frame(data):
        return ControlRequest("auth", 1, {"mechanism": "X", "data": data}).encode()

    data = bytes(body_bytes - len(frame(bytes(1000))) + HEADER_SIZE + 1000)
    with socket.create_connection(address(guarded)) as stranger:
        stranger.sendall(frame(data))
        assert refusal.encode() in stranger.recv(65536)


def test_who_says_nothing_is_closed_without_a_word(serve, users):
    node = serve(users=users.path, auth_timeout=0.1)
    with socket.create_connection(address(node)) as stranger:
        stranger.settimeout(10)
        assert stranger.recv(1) == b""


def test_only_so_many_strangers_of_an_address_have_a_place_until_they_are_known(
    serve, users, monkeypatch
):
    monkeypatch.setattr(strangers, "_PATIENCE_S", 0.0)
    node = serve(users=users.path, unauthenticated_per_address_max=2)
    with socket.create_connection(address(node)) as first, connect(node) as client:
        log_in(client, "alice", "secret")
        with socket.create_connection(address(node)), connect(node) as other:
            first.settimeout(10)
            assert first.recv(1) == b""
            log_in(other, "bob", "other")
            assert client.control("topics") == other.control("topics") == []


def test_who_goes_gives_its_place_back(serve, users):
    node = serve(users=users.path, unauthenticated_per_address_max=1)
    for _ in range(3):
        with socket.create_connection(address(node)) as stranger:
            stranger.sendall(PutRequest(b"t", [b"m"]).encode())
            assert is_closed(stranger)
        wait_until(lambda: _may_come(node), 10)


def _may_come(node):
    try:
        with connect(node) as client:
            return bool(log_in(client, "alice", "secret"))
    except (ConnectionClosed, ConnectionResetError):
        return False


@pytest.mark.parametrize("arguments", [{}, {"mechanism": 1}, {"mechanism": "BEARER", "data": "x"}])
def test_a_step_that_is_none_is_refused(guarded, arguments):
    with connect(guarded) as client, pytest.raises(RemoteProtocolError):
        client.control("auth", **arguments)


# ---- passwords and tokens -----------------------------------------------------------------------


def test_a_password_lets_its_user_in(guarded):
    with connect(guarded) as client:
        told = log_in(client, "alice", "secret")
        assert (told["principal"], told["expires_s"]) == ("alice", None)
        pointer = client.write(b"orders", [b"m"])
        assert client.read(b"orders", 0, 10) == [(pointer, b"m")]


def test_frames_may_be_large_once_it_is_known_who_sends_them(guarded):
    with connect(guarded) as client:
        log_in(client, "alice", "secret")
        assert client.write(b"orders", [bytes(1_000_000)]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")]
)
def test_whatever_is_wrong_is_told_in_the_same_words_and_late(guarded, user, password, caplog):
    begin_s = time.monotonic()
    with connect(guarded) as client:
        with pytest.raises(AuthenticationFailed) as caught:
            log_in(client, user, password)
        assert str(caught.value) == "authentication failed"
        assert not caught.value.reason
        assert 0.4 < time.monotonic() - begin_s < 10
        with pytest.raises(ConnectionClosed):
            client.control("health")


@pytest.mark.slow
def test_others_are_served_while_somebody_guesses(guarded, monkeypatch):
    monkeypatch.setattr("poe.broker.access.failure_delays.FIRST_S", 15.0)
    guess = ControlRequest("auth", 1, {"mechanism": "BEARER", "data": b"x"}).encode()
    with socket.create_connection(address(guarded)) as guesser, connect(guarded) as client:
        guesser.sendall(guess)
        log_in(client, "alice", "secret")
        assert client.control("topics") == []
        assert select.select([guesser], [], [], 0)[0] == []


@pytest.mark.slow
def test_who_guesses_gets_on_no_faster_by_more_connections(serve, users):
    node = serve(users=users.path, unauthenticated_per_address_max=2)
    guess = ControlRequest("auth", 1, {"mechanism": "BEARER", "data": b"x"}).encode()
    with contextlib.ExitStack() as guessers, connect_as(node, None) as admin:
        for _ in range(20):
            guesser = guessers.enter_context(socket.create_connection(address(node)))
            guesser.sendall(guess)
            time.sleep(0.01)
        assert admin.control("security")["authentication_failed_count"] <= 4


def test_a_token_lets_its_user_in(serve, users):
    token = users.token("bob", "ci")
    users.write()
    with connect_as(serve(users=users.path), token) as client:
        assert client.control("topics") == []


@pytest.mark.parametrize(
    "change", [lambda text: text[:-1], lambda text: text.swapcase(), lambda _: ""]
)
def test_a_token_that_is_not_quite_it_lets_nobody_in(serve, users, change):
    token = users.token("bob", "ci")
    users.write()
    with pytest.raises(AuthenticationFailed):
        connect_as(serve(users=users.path), change(token) or "none")


def test_an_expired_token_lets_nobody_in(serve, users):
    token = users.token("bob", "ci", expires_s=time.time() - 10)
    users.write()
    with pytest.raises(AuthenticationFailed):
        connect_as(serve(users=users.path), token)


def test_who_may_read_the_file_in_the_folder_administers(guarded):
    with connect_as(guarded, None) as client:
        assert client.write(b"anything", [b"m"]) > 0
        assert client.control("health")["version"]
        assert client.control("tree")
        assert client.control("security")["sessions"] == {"poe.admin": 1}


def test_that_file_is_for_its_owner_is_new_at_each_start_and_gone_at_the_end(
    serve, users, tmp_path
):
    path = tmp_path / "data" / "admin.token"
    node = serve(dir=tmp_path / "data", users=users.path)
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    node.stop()
    assert not path.exists()
    node.start()
    assert path.read_text() != first
    with pytest.raises(AuthenticationFailed):
        connect_as(node, first.strip())


def test_the_file_of_a_node_that_comes_as_soon_as_it_may_stays(serve, users, tmp_path, monkeypatch):
    nodes = [serve(dir=tmp_path / "data", users=users.path)]
    close = Store.close

    def close_and_start(store):
        close(store)
        if len(nodes) == 1:
            nodes.append(serve(dir=tmp_path / "data", users=users.path))

    monkeypatch.setattr(Store, "close", close_and_start)
    nodes[0].stop()
    with connect_as(nodes[1], None) as client:
        assert client.control("health")["version"]


def test_who_does_not_exist_has_the_same_salt_after_a_restart(serve, users, tmp_path):
    def salt(node, user):
        with connect(node) as client:
            told = step(client, "SCRAM-SHA-256", b"n,,n=%b,r=abc" % user)["data"]
            match = re.search(rb",s=([^,]*),", told)
            assert match is not None
            return match[1]

    node = serve(dir=tmp_path / "data", users=users.path)
    before = [salt(node, each) for each in (b"alice", b"nobody", b"noone")]
    node.stop()
    node.start()
    assert [salt(node, each) for each in (b"alice", b"nobody", b"noone")] == before
    assert len(set(before)) == 3


# ---- on a live connection -----------------------------------------------------------------------


def test_a_principal_may_prove_anew_who_it_is(serve, users):
    token = users.token("alice", "ci")
    users.write()
    with connect(serve(users=users.path)) as client:
        for _ in range(5):
            log_in(client, "alice", "secret")
            assert step(client, "BEARER", token.encode())["principal"] == "alice"
        assert client.write(b"orders", [b"m"]) > 0


def test_nobody_becomes_another_principal(guarded):
    with connect(guarded) as client:
        log_in(client, "alice", "secret")
        with pytest.raises(AuthenticationFailed):
            log_in(client, "bob", "other")
        with pytest.raises(ConnectionClosed):
            client.write(b"orders", [b"m"])


class SettableClock:
    """Tells the time that it was set to."""

    def __init__(self):
        self.now_s = 1_800_000_000

    def now_us(self):
        return self.now_s * 1_000_000


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def timed(users, clock, tmp_path):
    """A node at the time of a clock, and a token that is valid for a minute."""
    token = users.token("alice", "ci", clock.now_s + 60)
    users.write()
    options = {"dir": tmp_path / "data", "port": 0, "users": users.path}
    with Node(options, clock=clock) as node:
        yield node, token


def test_a_connection_ends_with_the_time_of_its_token(timed, clock):
    node, token = timed
    with connect_as(node, token) as client:
        clock.now_s += 59
        assert client.write(b"orders", [b"m"]) > 0
        clock.now_s += 1
        with pytest.raises(AuthenticationExpired):
            client.write(b"orders", [b"m"])
        with pytest.raises(ConnectionClosed):
            client.write(b"orders", [b"m"])
    with connect_as(node, None) as admin:
        wait_until(lambda: admin.control("security")["expired_count"] == 1, 10)


def test_a_token_ends_by_the_clock_of_the_machine_though_that_was_set(serve, users, monkeypatch):
    """As behind a suspended machine; the time of messages does not jump, and is late then."""
    token = users.token("alice", "ci", time.time() + 3600)
    users.write()
    node = serve(users=users.path)
    with connect_as(node, token) as client:
        assert client.write(b"orders", [b"m"]) > 0
        monkeypatch.setattr(SystemClock, "now_us", lambda _: int((time.time() + 7200) * 1e6))
        with pytest.raises(AuthenticationExpired):
            client.write(b"orders", [b"m"])
    with pytest.raises(AuthenticationFailed):
        connect_as(node, token)


def test_who_waits_does_so_no_longer_than_its_token_is_valid(timed, clock):
    node, token = timed
    with connect_as(node, token) as client, ThreadPoolExecutor(1) as pool:
        wanted = {"topic": b"orders", "pointer": 0, "timeout_s": 60}
        waiting = pool.submit(client.control, "wait", **wanted)
        clock.now_s += 60
        with pytest.raises((NotAuthorized, AuthenticationExpired)):
            waiting.result(10)


@pytest.mark.slow
def test_who_says_nothing_is_hung_up_on_when_its_token_expires(serve, users):
    token = users.token("alice", "ci", math.ceil(time.time()) + 3)
    users.write()
    arguments = {"mechanism": "BEARER", "data": token.encode()}
    with socket.create_connection(address(serve(users=users.path))) as client:
        client.settimeout(10)
        client.sendall(ControlRequest("auth", 1, arguments).encode())
        assert b"alice" in client.recv(65536)
        assert b"AuthenticationExpired" in client.recv(65536)


def test_who_proves_it_again_and_again_leaves_no_timers(timed):
    node, token = timed
    with connect_as(node, token) as client:
        timers = node.system.run_queue.timers
        count = len(timers)
        for _ in range(50):
            step(client, "BEARER", token.encode())
        assert len(timers) < count + 25


def test_a_connection_outlives_its_token_with_another_proof(timed, clock):
    node, token = timed
    with connect_as(node, token) as client:
        log_in(client, "alice", "secret")
        clock.now_s += 3600
        assert client.write(b"orders", [b"m"]) > 0


# ---- what may be done ---------------------------------------------------------------------------


def test_a_refusal_is_the_same_for_what_is_there_and_what_is_not(guarded):
    with connect_as(guarded, None) as admin:
        admin.write(b"there", [b"m"])
        admin.control("group_create", group="there", mode="shared", topics=[b"there"])
    with connect(guarded) as client:
        log_in(client, "alice", "secret")
        for ask in (
            lambda name: client.write(name, [b"m"]),
            lambda name: client.read(name, 0, 1),
            lambda name: client.control("wait", topic=name, pointer=0, timeout_s=0),
            lambda name: client.control("segments", topic=name),
            lambda name: client.control("delete", topic=name),
            lambda name: client.control("create", topic=name),
            lambda name: client.control("topic_alter", topic=name, properties={}),
            lambda name: client.control("group", group=name.decode()),
            lambda name: client.control("group_positions", group=name.decode()),
        ):
            told = []
            for name in (b"there", b"where"):
                with pytest.raises(NotAuthorized) as caught:
                    ask(name)
                told.append(str(caught.value).replace(name.decode(), "…"))
            assert told[0] == told[1]


def test_a_principal_has_only_so_many_connections(serve, users, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    users.quota("bob", connections=2)
    users.write()
    node = serve(users=users.path)
    with connect(node) as first, connect(node) as second:
        log_in(first, "bob", "other")
        log_in(second, "bob", "other")
        with connect(node) as third, pytest.raises(Overloaded, match="connections of 2"):
            log_in(third, "bob", "other")
        told = [json.loads(each.message) for each in caplog.records if each.name == LOGGER]
        assert [each["event"] for each in told] == ["authenticated", "authenticated", "turned away"]
        assert (told[2]["principal"], told[2]["credential"]) == ("bob", "password")
        assert "connections of 2" in told[2]["reason"]
        second.close()
        wait_until(lambda: _gets_in(node), 5)


def _gets_in(node):
    with connect(node) as client:
        try:
            return bool(log_in(client, "bob", "other"))
        except Overloaded:
            return False


# ---- without users, and with files that are wrong -----------------------------------------------


def test_a_node_without_users_says_so(node):
    with connect(node) as client:
        for op in ("auth", "authorize", "security"):
            with pytest.raises(SecurityError, match="has no users"):
                client.control(op)


def test_a_file_that_is_wrong_keeps_a_node_from_starting(serve, users, tmp_path):
    users.path.write_text("version = 1\n[users.alice]\npasword = 1\n")
    with pytest.raises(SecurityFileError, match=r"users\.toml, line 3"):
        serve(dir=tmp_path / "data", users=users.path)
    assert not (tmp_path / "data").exists()
    users.write()
    serve(dir=tmp_path / "data", users=users.path)


@pytest.mark.slow
def test_a_node_that_stops_waits_for_nobody_who_guesses(guarded, caplog):
    guess = ControlRequest("auth", 1, {"mechanism": "BEARER", "data": b"x"}).encode()
    guessers = [socket.create_connection(address(guarded)) for _ in range(8)]
    for each in guessers:
        each.sendall(guess)
    with connect_as(guarded, None) as admin:
        wait_until(lambda: admin.control("security")["authentication_failed_count"] == 8, 10)
    begin_s = time.monotonic()
    guarded.stop()
    assert time.monotonic() - begin_s < 2  # a connection may take 3 s to be drained
    assert "cut off" not in caplog.text
    for each in guessers:
        each.close()
