"""A gateway that asks for tokens, as clients meet it, in front of a node with users."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from poe import Node
from poe.security.token import make_token
from tests.broker.users_file import UsersFile
from tests.gateway.http.front import TIMEOUT_S, Front
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MEMBER = "0123456789abcdef0123456789abcdef"
EVERYTHING = {"prefixes": "", "group_prefixes": ""}
REVOKED_WITHIN_S = 15.0
"""An answer of the broker holds for 5 s; the rest is for a machine on which much else runs."""


class House:
    """A node with users, and the gateway in front of it."""

    def __init__(self, folder, *options):
        self.users = UsersFile(folder / "users.toml")
        self.users.grant("gateway", "authorize")
        self.users.grant("gateway", "read write create delete describe", **EVERYTHING)
        self.users.grant("alice", "read write create", prefixes="alice. shared", groups="workers")
        self.users.grant("bob", "write", topics="shared absent")
        self.tokens = {
            name: self.users.token(name, name) for name in ("gateway", "alice", "bob", "carol")
        }
        self.tokens["late"] = self.users.token("alice", "late", time.time() - 1)
        self.users.write()
        token_file = folder / "gateway.token"
        token_file.write_text(self.tokens["gateway"] + "\n")
        token_file.chmod(0o600)
        self.node = Node(dir=folder / "node", port=0, users=self.users.path, reload_interval=0)
        self._options = "--authentication", "bearer", "--token-file", token_file, *options

    def __enter__(self):
        self.node.start()
        self.front = Front(self.node, *self._options)
        return self

    def __exit__(self, *_):
        self.front.__exit__()
        self.node.stop()

    def as_user(self, name):
        """A client with somebody's token, or with none."""
        token = self.tokens.get(name)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.front.port}"
        return httpx.Client(base_url=url, timeout=TIMEOUT_S, headers=headers)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    with House(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(scope="module")
def alice(house):
    with house.as_user("alice") as client:
        yield client


@pytest.fixture(scope="module")
def bob(house):
    with house.as_user("bob") as client:
        yield client


def error_of(reply):
    return reply.json()["error"]


def test_whoever_may_puts_and_reads(alice):
    assert alice.post("/sync/alice.orders", content=b"x").status_code == 200
    assert alice.post("/async/alice.orders", content=b"y").status_code == 202
    assert alice.get("/topics/alice.orders").json()["messages"][0]["value"] == "x"
    assert alice.get("/topics/alice.orders/properties").status_code == 200
    made = alice.put("/topics/alice.parts/properties", json={"partitions": 2})
    assert made.status_code == 201
    assert alice.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", ["nobody", "late", "foreign"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/sync/alice.orders"), ("GET", "/topics"), ("GET", "/nothing"), ("GET", "/metrics")],
)
def test_whoever_is_not_known_is_401_everywhere(house, name, method, path):
    house.tokens["foreign"] = make_token("alice")[0]
    with house.as_user(name) as client:
        reply = client.request(method, path)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == 'Bearer realm="poe"'
    assert error_of(reply)["message"] == "authentication failed"


def test_the_health_of_the_gateway_is_open(house):
    with house.as_user("nobody") as client:
        assert client.get("/healthz").status_code == 200
        assert client.post("/healthz").status_code == 405


def test_a_refusal_does_not_tell_what_there_is(house, bob):
    house.node.put("hidden", b"x")
    replies = [bob.get(f"/topics/{name}") for name in ("hidden", "hiddem")]
    assert [each.status_code for each in replies] == [403, 403]
    assert replies[0].text.replace("hidden", "hiddem") == replies[1].text


def test_whoever_may_not_make_topics_puts_onto_those_that_there_are(house, alice, bob):
    refused = bob.post("/async/absent", content=b"x")
    assert refused.status_code == 403
    assert "create topic 'absent'" in error_of(refused)["message"]
    assert bob.post("/async/absent?delay_s=1", content=b"x").status_code == 403
    assert b"absent" not in house.node.topics()
    alice.post("/sync/shared", content=b"x")
    assert bob.post("/sync/shared", content=b"y").status_code == 200


def test_lists_hold_what_may_be_described(house, alice, bob):
    house.node.put("hidden", b"x")
    alice.post("/sync/shared", content=b"x")
    names = {each["name"] for each in alice.get("/topics").json()["topics"]}
    assert "shared" in names
    assert "hidden" not in names
    assert [each["name"] for each in bob.get("/topics").json()["topics"]] == ["shared"]


def test_what_counts_all_topics_is_for_those_who_may_describe_all(house, alice):
    assert alice.get("/metrics").status_code == 403
    with house.as_user("gateway") as client:
        assert client.get("/metrics").status_code == 200


def test_a_group_is_joined_by_those_who_may_read_it_and_its_topics(house, alice, bob):
    alice.post("/sync/shared", content=b"x")
    wanted = {"member": MEMBER, "mode": "shared", "topics": ["shared"]}
    refused = bob.post("/groups/workers/members", json=wanted)
    assert (refused.status_code, error_of(refused)["name"]) == (403, "NotAuthorized")
    refused = alice.post("/groups/workers/members", json={**wanted, "topics": ["hidden"]})
    assert refused.status_code == 403
    assert "read topic 'hidden'" in error_of(refused)["message"]
    assert alice.post("/groups/workers/members", json=wanted).status_code == 200
    leased = alice.post(f"/groups/workers/members/{MEMBER}/lease", json={}).json()
    assert leased["messages"][0]["value"] == "x"
    assert [each["group"] for each in alice.get("/groups").json()["groups"]] == ["workers"]
    assert bob.get("/groups").json()["groups"] == []
    assert alice.delete("/groups/workers").status_code == 403


def test_a_group_of_topics_that_may_not_be_read_is_none(house, alice):
    with house.as_user("gateway") as client:
        client.put("/groups/secret", json={"mode": "shared", "topics": ["hidden"]})
    house.users.grant("alice", "read", groups="secret")
    house.users.write()
    house.node.reload()
    wait_until(lambda: alice.get("/groups/secret").status_code == 200, timeout_s=TIMEOUT_S)
    joined = alice.post("/groups/secret/members", json={})
    assert joined.status_code == 403
    assert "read topic 'hidden'" in error_of(joined)["message"]


def test_a_group_is_made_by_those_who_may(house):
    with house.as_user("carol") as carol:
        house.users.grant("carol", "read", groups="carols", topics="shared")
        house.users.write()
        house.node.reload()
        wanted = {"mode": "shared", "topics": ["shared"]}
        wait_until(lambda: carol.get("/groups/carols").status_code == 404, timeout_s=TIMEOUT_S)
        refused = carol.post("/groups/carols/members", json=wanted)
        assert refused.status_code == 403
        assert "create group 'carols'" in error_of(refused)["message"]


def test_an_option_that_is_no_text_is_the_clients_fault(alice):
    """What a topic for dead letters needs is looked at before the broker is asked."""
    options = b'"options": {"dead_letter_topic": "\\ud800"}'
    body = b'{"mode": "shared", "topics": ["shared"], %b}' % options
    refused = alice.post("/groups/workers/members", content=body)
    assert refused.status_code == 400, refused.text
    assert "options.dead_letter_topic" in refused.json()["error"]["message"]


def test_a_new_grant_and_a_revoked_token_count_within_seconds(tmp_path):
    with House(tmp_path) as house, house.as_user("bob") as bob, house.as_user("alice") as alice:
        assert bob.get("/topics/shared").status_code == 403
        assert alice.post("/sync/shared", content=b"x").status_code == 200
        house.users.grant("bob", "read", topics="shared")
        house.users.remove("alice")
        house.users.write()
        house.node.reload()
        began_s = time.monotonic()
        wait_until(lambda: bob.get("/topics/shared").status_code == 200, timeout_s=TIMEOUT_S)
        wait_until(
            lambda: alice.post("/sync/shared", content=b"x").status_code == 401,
            timeout_s=TIMEOUT_S,
        )
        assert time.monotonic() - began_s < REVOKED_WITHIN_S


def test_a_follower_ends_when_it_may_read_no_longer(tmp_path):
    with House(tmp_path) as house, house.as_user("alice") as alice:
        alice.post("/sync/shared", content=b"x")
        headers = {"Accept": "text/event-stream"}
        with alice.stream("GET", "/topics/shared?pointer=oldest", headers=headers) as reply:
            lines = reply.iter_lines()
            assert next(lines).startswith("id: ")
            house.users.remove("alice")
            house.users.write()
            house.node.reload()
            began_s = time.monotonic()
            told = list(lines)
            assert time.monotonic() - began_s < REVOKED_WITHIN_S
    assert told[-3] == "event: error"
    assert "authentication failed" in told[-2]


def lose_user(users):
    users.remove("alice")


def lose_topic(users):
    users.grants.pop(2)
    users.grant("alice", "read write create", prefixes="alice.", groups="workers")


@pytest.mark.parametrize(("lose", "status"), [(lose_user, 401), (lose_topic, 403)])
def test_whoever_waits_for_messages_of_a_group_is_let_go_when_it_may_not(tmp_path, lose, status):
    with House(tmp_path) as house, house.as_user("alice") as alice:
        alice.post("/sync/shared", content=b"x")
        wanted = {"member": MEMBER, "mode": "shared", "topics": ["shared"]}
        house.users.grant("alice", "create", groups="workers")
        house.users.write()
        house.node.reload()
        alice.post("/groups/workers/members", json=wanted)
        path = f"/groups/workers/members/{MEMBER}/lease"
        assert alice.post(path, json={}).json()["messages"] != []
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(alice.post, path, json={"wait_s": 60})
            time.sleep(0.2)
            lose(house.users)
            house.users.write()
            house.node.reload()
            began_s = time.monotonic()
            assert waiting.result(TIMEOUT_S).status_code == status
            assert time.monotonic() - began_s < REVOKED_WITHIN_S


def test_without_the_broker_nobody_is_refused_but_told_to_retry(tmp_path):
    with House(tmp_path, "--connect-timeout-s", 0.5) as house, house.as_user("bob") as bob:
        port = house.node.address[1]
        house.node.stop()
        reply = bob.get("/topics/shared")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        with house.as_user("nobody") as client:
            assert client.get("/topics/shared").status_code == 401  # nobody needs to be asked
        folder, path = house.node.config.dir, house.users.path
        house.node = Node(dir=folder, port=port, users=path, reload_interval=0)
        house.node.start()
        wait_until(lambda: bob.get("/topics/shared").status_code == 403, timeout_s=TIMEOUT_S)


@pytest.mark.alone
def test_thousands_of_wrong_tokens_disturb_nobody(house, alice):
    alice.post("/sync/shared", content=b"x")
    tokens = [make_token("alice")[0] for _ in range(4_000)]
    before_kib = memory_kib(house.front)
    times_s, is_over = [], threading.Event()

    def good():
        while not is_over.is_set():
            began_s = time.perf_counter()
            assert alice.post("/async/shared", content=b"x").status_code == 202
            times_s.append(time.perf_counter() - began_s)
            time.sleep(0.01)

    def bad(some):
        with house.as_user("nobody") as client:
            for token in some:
                headers = {"Authorization": f"Bearer {token}"}
                assert client.get("/topics/shared", headers=headers).status_code == 401

    with ThreadPoolExecutor(5) as pool:
        watching = pool.submit(good)
        attacks = [pool.submit(bad, tokens[number::4]) for number in range(4)]
        for each in attacks:
            each.result()
        is_over.set()
        watching.result()
    assert memory_kib(house.front) - before_kib < 4_000
    times_s.sort()
    assert times_s[len(times_s) * 95 // 100] < 0.25


def memory_kib(front):
    lines = Path(f"/proc/{front.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_what_is_beyond_a_quota_comes_later(tmp_path):
    house = House(tmp_path)
    house.users.quota("alice", write_bytes_s=20_000)
    house.users.write()
    with house, house.as_user("alice") as alice, house.as_user("bob") as bob:
        alice.post("/sync/shared", content=b"x")
        statuses = []

        def is_throttled():
            statuses.append(alice.post("/sync/shared", content=b"x" * 50_000))
            return statuses[-1].status_code == 429

        wait_until(is_throttled, timeout_s=TIMEOUT_S)
        assert {each.status_code for each in statuses[:-1]} == {200}
        assert int(statuses[-1].headers["retry-after"]) >= 1
        assert "quota of alice" in error_of(statuses[-1])["message"]
        assert bob.post("/sync/shared", content=b"x").status_code == 200


def test_no_token_is_told_anywhere(tmp_path):
    house = House(tmp_path, "--log-level", "debug")
    with house, house.as_user("alice") as alice, house.as_user("gateway") as gateway:
        wrong = make_token("alice")[0]
        texts = []
        for token in (house.tokens["alice"], wrong):
            headers = {"Authorization": f"Bearer {token}"}
            for method, path in (
                ("POST", "/sync/shared"),
                ("POST", "/sync/hidden"),
                ("GET", f"/topics/shared?access_token={token}"),
                ("GET", f"/topics/{token}"),
                ("GET", f"/{token}"),
                ("GET", "/topics/shared?pointer=x"),
            ):
                reply = alice.request(method, path, headers=headers, content=b"x")
                texts += [] if token in path else [reply.text, str(reply.headers)]
        texts.append(gateway.get("/metrics").text)
        _, stdout, stderr = house.front.end()
        texts += [stdout.decode(), stderr.decode()]
    # What lies before the checksum.
    secrets = [each.rpartition("_")[0][-43:] for each in (*house.tokens.values(), wrong)]
    assert [each for each in secrets if any(each in text for text in texts)] == []


def test_an_edit_hook_sees_no_token_and_leads_only_where_the_client_may(tmp_path):
    options = "--edit", "tests.gateway.http.edits:redirect"
    with House(tmp_path, *options) as house, house.as_user("alice") as alice:
        assert alice.post("/sync/shared", content=b"headers").text == "no authorization"
        assert alice.post("/sync/shared", content=b"to alice.other").status_code == 200
        refused = alice.post("/sync/shared", content=b"to hidden")
        assert refused.status_code == 403
        assert "write topic 'hidden'" in error_of(refused)["message"]


@pytest.mark.parametrize("what", ["no grant", "wrong token"])
def test_what_the_gateway_may_not_is_no_fault_of_the_clients(tmp_path, what):
    house = House(tmp_path)
    if what == "no grant":
        house.users.grants = house.users.grants[1:]
        house.users.write()
    else:
        (tmp_path / "gateway.token").write_text(make_token("gateway")[0])
    with house, house.as_user("alice") as alice:
        assert alice.post("/sync/shared", content=b"x").status_code == 503
        _, _, told = house.front.end()
    assert b"cannot find out who may do what" in told


def test_what_the_gateway_has_no_grant_for_is_502(tmp_path):
    house = House(tmp_path)
    del house.users.grants[1]
    house.users.write()
    with house, house.as_user("alice") as alice:
        reply = alice.get("/topics/shared")
        assert reply.status_code == 502
        assert "its log tells more" in error_of(reply)["message"]
        _, _, told = house.front.end()
    assert b"the broker refuses this gateway: not authorized" in told


def test_by_https_it_is_the_same(tmp_path, certificates):
    with House(tmp_path) as house, contextlib.ExitStack() as stack:
        token_file = tmp_path / "gateway.token"
        options = "--authentication", "bearer", "--token-file", token_file
        front = stack.enter_context(Front(house.node, *options, tls=certificates))
        assert front.http.get("/topics").status_code == 401
        headers = {"Authorization": f"Bearer {house.tokens['alice']}"}
        posted = front.http.post("/sync/shared", content=b"x", headers=headers)
        assert posted.status_code == 200
