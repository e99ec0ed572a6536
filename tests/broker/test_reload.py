"""What a reload changes, and for whom: at a node that serves meanwhile."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from poe.broker.access.files import AccessFiles
from poe.broker.requests.events import EVENTS
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    ConnectionClosed,
    NotAuthorized,
    SecurityError,
    SecurityFileError,
)
from poe.protocol import Done, LeaseRequest
from tests.broker.nodes import address, connect
from tests.broker.users_file import UsersFile, connect_as, log_in, step
from tests.scenarios.clients import RawClient
from tests.waiting import wait_until

MEMBER = bytes(16)


@pytest.fixture
def users(tmp_path) -> UsersFile:
    users = UsersFile(tmp_path / "users.toml")
    users.password("alice", "secret")
    users.password("bob", "other")
    users.grant("alice bob", "read write create", prefixes="orders")
    users.grant("alice bob", "read create", group_prefixes="g")
    users.write()
    return users


@pytest.fixture
def guarded(serve, users):
    return serve(users=users.path, reload_interval=0)


@contextlib.contextmanager
def logged_in(node, user="alice", password="secret"):
    with connect(node) as client:
        log_in(client, user, password)
        yield client


def gone(client):
    """Wait until a connection is hung up on; tell whether that was said."""
    try:
        while True:
            client.control("topics")
    except AuthenticationExpired:
        return True
    except ConnectionClosed:
        return False


# ---- what changes -------------------------------------------------------------------------------


def test_a_new_user_gets_in(guarded, users):
    users.password("carol", "new")
    users.write()
    with connect(guarded) as client, pytest.raises(AuthenticationFailed):
        log_in(client, "carol", "new")
    assert guarded.reload() == {
        "users_added": ["carol"],
        "users_removed": [],
        "users_changed": [],
        "ended_count": 0,
    }
    with logged_in(guarded, "carol", "new"):
        pass


def test_a_removed_user_is_hung_up_on_and_nobody_else(guarded, users):
    with logged_in(guarded) as alice, logged_in(guarded, "bob", "other") as bob:
        assert alice.write("orders", [b"m"])
        assert bob.write("orders", [b"m"])
        users.remove("bob")
        users.write()
        assert guarded.reload()["ended_count"] == 1
        assert gone(bob)
        assert len(alice.read("orders", 0, 10)) == 2
    with connect(guarded) as client, pytest.raises(AuthenticationFailed):
        log_in(client, "bob", "other")


def test_who_says_nothing_is_told_at_once_and_in_good_order(guarded, users, caplog):
    with RawClient(address(guarded)) as bob:
        log_in(bob, "bob", "other")
        users.remove("bob")
        users.write()
        begin_s = time.monotonic()
        guarded.reload()
        assert isinstance(bob.error(), AuthenticationExpired)
        assert time.monotonic() - begin_s < 3  # where it is cut off it is told nothing
        bob.assert_closed()
    with connect_as(guarded, None) as admin:
        wait_until(lambda: "bob" not in admin.control("security")["sessions"], 10)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_another_password_ends_what_the_old_one_has_begun(guarded, users):
    with logged_in(guarded) as alice:
        users.remove("alice")
        users.password("alice", "newer")
        users.write()
        guarded.reload()
        assert gone(alice)
    with logged_in(guarded, "alice", "newer"):
        pass


def test_a_revoked_token_ends_its_connections_and_no_others_of_its_user(serve, users):
    first, second = users.token("bob", "first"), users.token("bob", "second")
    users.write()
    node = serve(users=users.path, reload_interval=0)
    with connect_as(node, first) as revoked, connect_as(node, second) as other:
        users.users["bob"] = [each for each in users.users["bob"] if '"first"' not in each]
        users.write()
        node.reload()
        assert gone(revoked)
        assert other.control("topics") == []


@pytest.mark.parametrize("by_s", [-10, 7200])
def test_a_token_lasts_as_long_as_the_newer_file_says(serve, users, by_s):
    token = users.token("bob", "ci", time.time() + 3600)
    users.write()
    node = serve(users=users.path, reload_interval=0)
    with connect_as(node, token) as client:
        row = users.users["bob"].pop()
        before, _ = row.split("expires")
        users.users["bob"].append(f"{before}expires = {_iso(time.time() + by_s)}\n")
        users.write()
        node.reload()
        if by_s < 0:
            assert gone(client)
        else:
            assert client.control("topics") == []


@pytest.mark.slow
def test_who_says_nothing_is_hung_up_on_when_a_newer_file_ends_its_token(serve, users):
    token = users.token("bob", "ci", time.time() + 3600)
    users.write()
    node = serve(users=users.path, reload_interval=0)
    with RawClient(address(node)) as client:
        step(client, "BEARER", token.encode())
        row = users.users["bob"].pop()
        users.users["bob"].append(row.split("expires")[0] + f"expires = {_iso(time.time() + 2)}\n")
        users.write()
        assert node.reload()["ended_count"] == 0
        assert isinstance(client.error(), AuthenticationExpired)


def _iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_a_grant_that_is_taken_back_holds_for_the_next_request(guarded, users):
    with logged_in(guarded) as alice:
        assert alice.write("orders", [b"m"])
        assert len(alice.read("orders", 0, 10)) == 1
        users.grants = []
        users.grant("alice", "read", topics="orders")
        users.write()
        guarded.reload()
        with pytest.raises(NotAuthorized):
            alice.write("orders", [b"m"])
        assert len(alice.read("orders", 0, 10)) == 1
        users.grants = []
        users.write()
        guarded.reload()
        with pytest.raises(NotAuthorized):
            alice.read("orders", 0, 10)


# ---- who waits ----------------------------------------------------------------------------------


@pytest.fixture
def waits(guarded, users):
    """Have alice wait for something, take grants or her away, and tell when she is told of that."""

    def wait(ask, *, is_removed):
        with logged_in(guarded) as client, ThreadPoolExecutor(1) as pool:
            client.write("orders", [b"m"])
            join = {"group": "group", "member": MEMBER}
            client.control("group_join", **join, mode="shared", topics=[b"orders", b"orders.new"])
            taken = client.lease(LeaseRequest("group", MEMBER, 10, 10_000, 0.0))
            client.lease(LeaseRequest("group", MEMBER, 0, 0, 0.0, (Done(taken.lease.id, None),)))
            waiting = pool.submit(ask, client)
            time.sleep(0.05)  # it is on its way, or comes later: both are to be refused
            users.grants = []
            if is_removed:
                users.remove("alice")
            users.write()
            begin_s = time.monotonic()
            guarded.reload()
            # Who has every grant, but another password, is not told to ask for grants.
            ended = (AuthenticationExpired, ConnectionClosed) if is_removed else NotAuthorized
            with pytest.raises(ended):
                waiting.result(20)
            return time.monotonic() - begin_s

    return wait


@pytest.mark.slow
@pytest.mark.parametrize("is_removed", [False, True], ids=["grant", "user"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.control("wait", topic="orders", pointer=2**55, timeout_s=60),
        lambda client: client.control("wait", topic="orders.new", pointer=0, timeout_s=60),
        lambda client: client.lease(LeaseRequest("group", MEMBER, 10, 10_000, 60.0)),
    ],
    ids=["wait", "wait for what is not there", "lease"],
)
def test_who_waits_is_refused_within_a_slice_of_its_time(waits, ask, is_removed):
    # As long as a slice, which is 2 s: one that was begun anew would take another one.
    assert waits(ask, is_removed=is_removed) < 3.9


def test_who_waits_for_events_hears_of_none_once_it_may_not(guarded, users):
    """That of the reload would be the first."""
    users.grant("alice", "admin")
    users.write()
    guarded.reload()
    with logged_in(guarded) as client, ThreadPoolExecutor(1) as pool:
        newest = client.events().newest_seq
        waiting = pool.submit(client.control, "events", after=newest, wait_s=60)
        wait_until(lambda: guarded.system.get_state(EVENTS)["_waiting"], 10)
        users.grants.pop()
        users.write()
        with connect_as(guarded, None) as admin:
            admin.control("reload")
        with pytest.raises(NotAuthorized):
            waiting.result(20)


def test_a_member_that_waits_to_be_told_is_told_and_then_refused(guarded, users):
    with logged_in(guarded) as client, ThreadPoolExecutor(1) as pool:
        join = {"group": "group", "member": MEMBER, "mode": "ordered", "topics": [b"orders"]}
        joined = client.control("group_join", **join)
        beat = {"group": "group", "member": MEMBER, "generation": joined["generation"]}
        kept = client.control("group_heartbeat", **beat, owned=[])["keep"]
        waiting = pool.submit(client.control, "group_heartbeat", **beat, owned=kept, wait_s=60.0)
        time.sleep(0.05)
        users.grants = []
        users.write()
        guarded.reload()
        with contextlib.suppress(NotAuthorized):  # it came later
            assert waiting.result(4)["keep"] == kept  # it could wait for 5 s, a part of a session
        with pytest.raises(NotAuthorized):
            client.control("group_heartbeat", **beat, owned=kept)


# ---- what is wrong ------------------------------------------------------------------------------


def test_a_file_that_is_wrong_changes_nothing(guarded, users, caplog):
    with logged_in(guarded) as alice, connect_as(guarded, None) as admin:
        users.path.write_text("version = 1\n[users.alice]\nnonsense = 1\n")
        for _ in range(2):
            with pytest.raises(SecurityFileError, match="line 3"):
                guarded.reload()
        with pytest.raises(SecurityFileError, match="line 3"):
            admin.control("reload")
        assert alice.write("orders", [b"m"])
        assert admin.control("security")["reload_failed_count"] == 3
        with logged_in(guarded, "bob", "other"):
            pass
    assert "all goes on as before" in caplog.text


def test_a_file_that_is_gone_changes_nothing(guarded, users):
    with logged_in(guarded) as alice:
        users.path.unlink()
        with pytest.raises(SecurityFileError):
            guarded.reload()
        assert alice.write("orders", [b"m"])


def test_who_does_not_administer_reloads_nothing(guarded):
    with logged_in(guarded) as alice, pytest.raises(NotAuthorized, match="administer"):
        alice.control("reload")


def test_a_node_without_users_has_nothing_to_reload(node):
    with pytest.raises(SecurityError, match="nothing to reload"):
        node.reload()


def test_while_a_disk_does_not_answer_others_are_and_who_asks_meanwhile_has_it_read_again(
    serve, users, monkeypatch
):
    token = users.token("bob", "ci")
    users.grant("bob", "authorize")
    users.write()
    node = serve(users=users.path, reload_interval=0)
    read, has_begun, goes_on = AccessFiles.read, threading.Event(), threading.Event()

    def read_slowly(files):
        found = read(files)
        has_begun.set()
        goes_on.wait(30)
        return found

    monkeypatch.setattr(AccessFiles, "read", read_slowly)
    asked = {"token": token.encode(), "operation": "read", "kind": "topic", "names": [b"orders"]}
    with connect_as(node, token) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(node.reload)
        try:
            assert has_begun.wait(10)
            assert client.control("authorize", **asked)["allowed"] == [True]
            users.remove("alice")
            users.write()
            second = pool.submit(node.reload)
        finally:
            goes_on.set()
        assert first.result(10)["users_removed"] == []
        assert second.result(10)["users_removed"] == ["alice"]


# ---- by itself ----------------------------------------------------------------------------------


def test_a_changed_file_is_gone_by_after_a_while(serve, users):
    node = serve(users=users.path, reload_interval=0.05)
    users.password("carol", "new")
    users.write()
    with connect_as(node, None) as admin:
        wait_until(lambda: admin.control("security")["reload_count"] == 1, 10)
        users.path.write_text("nonsense")
        wait_until(lambda: admin.control("security")["reload_failed_count"] == 1, 10)
        users.write()
        wait_until(lambda: admin.control("security")["reload_count"] == 2, 10)
    with logged_in(node, "carol", "new"):
        pass


def test_a_link_that_leads_elsewhere_is_a_change(serve, users, tmp_path):
    """So files are replaced together where they are mounted into a container."""
    link = tmp_path / "current"
    for name in ("old", "new"):
        if name == "new":
            users.password("carol", "new")
            users.write()
        (tmp_path / name).mkdir()
        (tmp_path / name / "users.toml").write_bytes(users.path.read_bytes())
        (tmp_path / name / "users.toml").chmod(0o600)
    link.symlink_to("old")
    node = serve(users=link / "users.toml", reload_interval=0.05)
    swapped = tmp_path / "swapped"
    swapped.symlink_to("new")
    swapped.replace(link)
    with connect_as(node, None) as admin:
        wait_until(lambda: admin.control("security")["reload_count"] == 1, 10)
    with logged_in(node, "carol", "new"):
        pass


def test_a_file_that_others_may_write_is_gone_by_once_they_may_no_more(serve, users):
    """As its refusal says: nobody writes it anew for that."""
    node = serve(users=users.path, reload_interval=0.05)
    users.password("carol", "new")
    with connect_as(node, None) as admin:
        users.write(mode=0o620)
        wait_until(lambda: admin.control("security")["reload_failed_count"], 10)
        users.path.chmod(0o600)
        wait_until(lambda: admin.control("security")["reload_count"] == 1, 10)
    with logged_in(node, "carol", "new"):
        pass


def test_a_file_that_nobody_touches_is_not_read_again(serve, users):
    node = serve(users=users.path, reload_interval=0.01)
    with connect_as(node, None) as admin:
        time.sleep(0.1)
        assert admin.control("security")["reload_count"] == 0


# ---- under load ---------------------------------------------------------------------------------

RELOADS_COUNT = 100
REVOKED_WITHIN_S = 3.9
"""A slice of what somebody waits is 2 s: a second one would be too long."""


class Busy:
    """Puts and reads as fast as it is answered, in a thread of its own."""

    def __init__(self, node, topic):
        self.failures = []
        self.rounds_count = 0
        self.slowest_s = 0.0
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(node, topic))
        self._thread.start()

    def _run(self, node, topic):
        try:
            with logged_in(node) as client:
                while not self._is_ending.is_set():
                    begin_s = time.monotonic()
                    pointer = client.write(topic, [b"m"] * 100)
                    assert client.read(topic, pointer - 1, 1) == [(pointer, b"m")]
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
                    self.rounds_count += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
            self.failures.append(error)

    def end(self):
        self._is_ending.set()
        self._thread.join()


@pytest.mark.slow
def test_a_hundred_reloads_disturb_nobody_but_who_is_revoked(serve, users):
    """Each second file is broken; each tenth ends the connection of somebody who waits."""
    for number in range(1000):
        users.users[f"user{number}"] = []
    users.write()
    node = serve(users=users.path, reload_interval=0)
    node.put("orders.quiet", b"m")
    busy = [Busy(node, topic) for topic in ("orders", "orders.1", "orders.2")]
    ended_s = []
    with ThreadPoolExecutor(1) as pool:
        for number in range(RELOADS_COUNT):
            if number % 2:
                users.path.write_text(f"nonsense {number}")
                with pytest.raises(SecurityFileError):
                    node.reload()
            elif number % 10:
                users.grants[1] = users.grants[1].replace('"g', f'"g{number}')
                users.write()
                node.reload()
            else:
                ended_s.append(_revoke(node, users, pool))
    for each in busy:
        each.end()
    assert [each.failures for each in busy] == [[], [], []]
    assert max(ended_s) < REVOKED_WITHIN_S, ended_s
    assert min(each.rounds_count for each in busy) > RELOADS_COUNT
    with connect_as(node, None) as admin:
        told = admin.control("security")
    half = RELOADS_COUNT // 2
    assert told["reload_failed_count"] == half
    assert told["revoked_count"] == len(ended_s)


def _revoke(node, users, pool):
    """Let somebody in who waits for a minute, then remove them; tell how long that took."""
    token = users.token("guest", "ticket")
    users.grant("guest", "read", topics="orders.quiet")
    users.write()
    node.reload()
    with connect_as(node, token) as guest:
        wanted = {"topic": "orders.quiet", "pointer": 2**55, "timeout_s": 60}
        waiting = pool.submit(guest.control, "wait", **wanted)
        time.sleep(0.05)  # mostly it waits by then
        users.remove("guest")
        users.grants.pop()
        users.write()
        begin_s = time.monotonic()
        node.reload()
        with pytest.raises((NotAuthorized, AuthenticationExpired, ConnectionClosed)):
            waiting.result(20)
        return time.monotonic() - begin_s
