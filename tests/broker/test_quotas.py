"""How much a principal may do, over all its connections: who does more is served later."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from poe.broker.access.meter import Meter
from poe.protocol import ControlRequest
from poe.security.users import Quota
from tests.broker.nodes import connect
from tests.broker.users_file import UsersFile, connect_as, log_in
from tests.scenarios.clients import RawClient


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    ("quota", "use"),
    [
        ({"requests_s": 10}, lambda meter: [meter.asked() for _ in range(30)]),
        ({"requests_s": 10}, lambda meter: meter.asked(30)),
        ({"write_bytes_s": 1000}, lambda meter: meter.wrote(3000)),
        ({"read_bytes_s": 1000}, lambda meter: meter.read(3000)),
        ({"read_bytes_s": 1000, "requests_s": 1}, lambda meter: meter.read(3000)),
    ],
)
def test_what_was_used_beyond_a_second_is_owed(clock, quota, use):
    meter = Meter("alice", Quota(**quota), clock)
    use(meter)
    assert meter.owed_s() == pytest.approx(2)
    clock.now_s += 2
    assert meter.owed_s() == 0


def test_what_has_no_limit_is_never_owed(clock):
    meter = Meter("alice", Quota(requests_s=10), clock)
    meter.wrote(10**9)
    meter.read(10**9)
    assert meter.owed_s() == 0


def test_who_is_throttled_is_told_once_a_minute(clock, caplog):
    meter = Meter("alice", Quota(requests_s=10), clock)
    with caplog.at_level(logging.INFO, "poe.audit"):
        for _ in range(61):
            meter.throttled(0.5)
            clock.now_s += 1
    told = [json.loads(each.message) for each in caplog.records]
    assert [(each["event"], each["principal"], each["throttled_s"]) for each in told] == [
        ("throttled", "alice", 0.5),
        ("throttled", "alice", 30.5),
    ]


# ---- at a node ----------------------------------------------------------------------------------


@pytest.fixture
def users(tmp_path) -> UsersFile:
    users = UsersFile(tmp_path / "users.toml")
    users.password("alice", "secret")
    users.password("bob", "other")
    users.grant("alice bob", "read write create", prefixes="")
    return users


def seconds(action):
    begin_s = time.monotonic()
    action()
    return time.monotonic() - begin_s


def put_later(client):
    client.control("queue_put", topic="t", messages=[bytes(50_000)], due_us=2**55)


def copy(client, sequence):
    [(pointer, _)] = client.read("t", 0, 1)
    put = {"producer": bytes(16), "epoch": 0, "sequence": sequence}
    client.control("copy", source="t", pointer=pointer - 1, last=pointer, topic="u", **put)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "use"),
    [
        ({"requests_s": 20}, lambda client: [client.control("topics") for _ in range(31)]),
        (
            {"write_bytes_s": 100_000},
            lambda client: [client.write("t", [bytes(50_000)]) for _ in range(4)],
        ),
        (
            {"read_bytes_s": 100_000},
            lambda client: [client.read("t", 0, 1) for _ in range(4)],
        ),
        (
            {"write_bytes_s": 100_000},
            lambda client: [put_later(client) for _ in range(4)],
        ),
        (
            {"write_bytes_s": 100_000},
            lambda client: [copy(client, number) for number in range(4)],
        ),
    ],
    ids=["requests", "writes", "reads", "delayed", "copies"],
)
def test_who_uses_too_much_is_served_later_and_nobody_else(serve, users, limits, use):
    users.quota("alice", **limits)
    users.write()
    node = serve(users=users.path)
    with connect(node) as alice, connect(node) as bob:
        log_in(alice, "alice", "secret")
        log_in(bob, "bob", "other")
        bob.write("t", [bytes(50_000)])
        use(bob)  # at once: the node tells below that nobody else was throttled
        assert 0.4 < seconds(lambda: use(alice)) < 5
    with connect_as(node, None) as admin:
        told = admin.control("security")["throttled_s"]
        assert told.keys() == {"alice"}
        assert 0.4 < told["alice"] < 5


@pytest.mark.slow
def test_proving_anew_who_one_is_counts_as_other_requests_do(serve, users):
    users.quota("alice", requests_s=20)
    users.write()
    with connect(serve(users=users.path)) as client:
        log_in(client, "alice", "secret")
        assert seconds(lambda: [log_in(client, "alice", "secret") for _ in range(16)]) > 0.4


@pytest.mark.slow
def test_who_says_that_nothing_more_comes_waits_for_what_has_come_as_others_do(serve, users):
    """All of it was served at once, as to a client that is gone: there was no quota."""
    token = users.token("alice", "ci")
    users.quota("alice", requests_s=10)
    users.write()
    node = serve(users=users.path)
    requests = [ControlRequest("auth", 0, {"mechanism": "BEARER", "data": token.encode()})]
    requests += [ControlRequest("topics", number, {}) for number in range(1, 21)]
    with RawClient(node.address) as alice:
        alice.send(b"".join(each.encode() for each in requests))
        alice.end()
        assert [alice.frame() is None for _ in requests] == [False] * len(requests)
        alice.assert_closed()
    with connect_as(node, None) as admin:
        assert admin.control("security")["throttled_s"]["alice"] > 0


def test_another_quota_ends_the_wait_for_what_was_owed_by_the_old_one(serve, users):
    users.quota("alice", read_bytes_s=1000)  # answers to who logs in count, too
    users.write()
    node = serve(users=users.path, reload_interval=0)
    with connect(node) as alice, ThreadPoolExecutor(1) as pool:
        log_in(alice, "alice", "secret")
        alice.write("t", [bytes(50_000)])
        alice.read("t", 0, 1)
        waiting = pool.submit(alice.control, "topics")
        users.users["alice"].pop()
        users.write()
        node.reload()
        assert waiting.result(10) == [b"t"]


@pytest.mark.slow
def test_all_connections_of_a_principal_share_its_quota(serve, users):
    users.quota("alice", requests_s=20)
    users.write()
    node = serve(users=users.path)
    clients = [connect(node) for _ in range(4)]
    try:
        for client in clients:
            log_in(client, "alice", "secret")
        assert seconds(lambda: [each.control("topics") for each in clients * 8]) > 0.4
    finally:
        for client in clients:
            client.close()


def test_what_others_use_on_behalf_of_a_principal_counts(serve, users):
    token = users.token("alice", "ci")
    gateway = users.token("gateway", "gate")
    users.quota("alice", requests_s=10)
    users.grant("gateway", "authorize")
    users.write()
    node = serve(users=users.path)
    question = {"operation": "read", "kind": "topic", "names": [b"t"], "token": token.encode()}
    with connect_as(node, gateway) as client:
        told = client.control("authorize", **question, requests=1)
        assert (told["principal"], told["allowed"], told["delay_s"]) == ("alice", [True], 0.0)
        assert client.control("authorize", **question, requests=30)["delay_s"] > 1
