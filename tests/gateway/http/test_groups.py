"""Groups over HTTP: members that share work, members that own units, and who looks after them."""

import asyncio
import json
import socket
import threading
import time
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request

from poe.broker.groups.state import GroupState
from poe.gateway.http.admission import Admission
from poe.gateway.http.groups import GroupRoutes
from poe.gateway.http.inflow import Inflow
from poe.gateway.http.options import GatewayOptions
from poe.gateway.http.parts import GatewayParts
from poe.protocol import envelope
from tests.gateway.http.front import TIMEOUT_S, Front
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOBODY = "00" * 16


class Group:
    """A group of a test, over HTTP."""

    def __init__(self, front, name, topic):
        self.http = front.http
        self.url = f"/groups/{name}"
        self.topic = topic

    def join(self, mode="shared", **more):
        body = {"mode": mode, "topics": [self.topic], **more}
        reply = self.http.post(f"{self.url}/members", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def ask(self, member, what, **body):
        reply = self.http.post(f"{self.url}/members/{member}/{what}", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def refused(self, member, what, **body):
        reply = self.http.post(f"{self.url}/members/{member}/{what}", json=body)
        return reply.status_code, reply.json()["error"]["name"]

    def describe(self):
        return self.http.get(self.url).json()


@pytest.fixture
def group(front, topic):
    return Group(front, f"g{topic}", topic)


def values_of(told):
    return [each["value"] for each in told["messages"]]


def test_a_message_is_leased_worked_on_and_acknowledged(group, node, topic):
    pointers = [node.put(topic, b"%d" % number) for number in range(5)]
    member = group.join()["member"]
    told = group.ask(member, "lease", limit=2)
    assert values_of(told) == ["0", "1"]
    assert [each["pointer"] for each in told["messages"]] == pointers[:2]
    assert (told["attempts"], told["lost"], told["unit"]) == (0, [], topic)
    told = group.ask(member, "lease", limit=2, done=[{"lease": told["lease"]}])
    assert values_of(told) == ["2", "3"]
    first, second = told["messages"]
    part = {"after": first["after"], "last": first["pointer"]}
    rest = {"lease": told["lease"], "after": second["after"], "last": second["pointer"]}
    answer = group.ask(
        member,
        "acknowledge",
        done=[{"lease": told["lease"], "ranges": [part]}],
        failed=[{**rest, "verdict": "release", "reason": "later"}],
    )
    assert answer == {"lost": []}
    assert values_of(group.ask(member, "lease")) == ["3"]
    assert group.describe()["units"][0]["floor"] == pointers[2]


def test_a_poll_ends_when_something_comes_or_its_time_is_over(group, node, topic):
    node.put(topic, b"0")
    member = group.join()["member"]
    told = group.ask(member, "lease")
    assert group.ask(member, "lease", wait_s=0.05) == {"lease": None, "lost": [], "messages": []}
    answers = []
    poll = threading.Thread(target=lambda: answers.append(group.ask(member, "lease", wait_s=20)))
    poll.start()
    node.put(topic, b"1")
    poll.join()
    assert values_of(answers[0]) == ["1"]
    assert answers[0]["lease"] != told["lease"]


def test_who_goes_away_while_it_waits_takes_nothing_along(group, node, front, topic):
    member = group.join(options={"session_s": 60})["member"]
    body = b'{"wait_s": 30}'
    with front.connect() as connection:
        path = f"{group.url}/members/{member}/lease"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        time.sleep(1)
        connection.shutdown(socket.SHUT_RDWR)
    other = group.join()["member"]
    time.sleep(1)
    node.put(topic, b"0")
    assert values_of(group.ask(other, "lease", wait_s=10)) == ["0"]


def test_a_lease_that_is_not_held_is_gone(group, node, topic):
    node.put(topic, b"0")
    member = group.join()["member"]
    held = group.ask(member, "lease")["lease"]
    assert group.ask(member, "extend", leases=[held], seconds=60) == {"lost": []}
    assert group.ask(member, "acknowledge", done=[{"lease": held}]) == {"lost": []}
    late = group.refused(member, "acknowledge", done=[{"lease": held}])
    assert late == (410, "LeaseLost")
    assert group.refused(member, "extend", leases=[held], seconds=60) == (410, "LeaseLost")
    never = {"lease": "12345", "after": 1, "last": 2}
    assert group.refused(member, "acknowledge", failed=[never]) == (410, "LeaseLost")


def test_more_than_the_lease_cannot_be_acknowledged(group, node, topic):
    node.put(topic, b"0")
    member = group.join()["member"]
    told = group.ask(member, "lease")
    beyond = {"after": told["after"], "last": told["last"] + 1}
    refused = group.refused(
        member, "acknowledge", done=[{"lease": told["lease"], "ranges": [beyond]}]
    )
    assert refused == (400, "RangeNotLeased")


def test_a_group_that_is_full_says_when_to_come_again(group, node, topic):
    for number in range(2):
        node.put(topic, b"%d" % number)
    member = group.join(options={"leases_max": 1})["member"]
    group.ask(member, "lease", limit=1)
    reply = group.http.post(f"{group.url}/members/{member}/lease", json={"limit": 1})
    assert reply.status_code == 429, reply.text
    assert reply.headers["Retry-After"] == "1"
    assert group.describe()["state"] == "full"


def test_messages_in_envelopes_have_keys_and_headers(group, node, topic):
    node.create_topic(topic, envelope=True)
    node.put(topic, envelope.encode(b"key", b"\xff", {"a": b"1"}))
    member = group.join()["member"]
    [message] = group.ask(member, "lease")["messages"]
    told = {name: message[name] for name in ("key", "value_base64", "headers")}
    assert told == {"key": "key", "value_base64": "/w==", "headers": {"a": "1"}}


def test_a_member_reads_the_units_that_it_owns_and_commits(group, node, topic):
    node.create_topic(topic, partitions=2)
    for number in range(4):
        node.put(f"{topic}-{number % 2}", b"%d" % number)
    joined = group.join(mode="ordered")
    member, generation = joined["member"], joined["generation"]
    assert joined["units"] == [f"{topic}-0", f"{topic}-1"]
    found: list[str] = []
    places: list[dict[str, object]] = []
    for _ in range(3):
        told = group.ask(member, "read", generation=generation, units=places)
        generation, places = told["generation"], told["units"]
        found += values_of(told)
    assert sorted(found) == ["0", "1", "2", "3"]
    assert told["messages"] == []
    positions = [{**each, "data": "mine"} for each in places]
    taken = group.ask(member, "commit", generation=generation, positions=positions)
    assert sorted(map(str, taken["units"])) == sorted(map(str, places))
    known = group.http.get(f"{group.url}/positions").json()["units"]
    assert known == sorted(positions, key=lambda each: str(each["unit"]))
    lag = group.http.get(f"{group.url}/lag").json()["units"]
    assert [(each["unit"], each["messages"]) for each in lag] == [
        (f"{topic}-0", 0),
        (f"{topic}-1", 0),
    ]


def test_a_read_waits_for_what_comes(group, node, topic):
    joined = group.join(mode="ordered")
    answers = []
    asked = {"generation": joined["generation"], "wait_s": 20}
    poll = threading.Thread(
        target=lambda: answers.append(group.ask(joined["member"], "read", **asked))
    )
    poll.start()
    node.put(topic, b"news")
    poll.join()
    assert values_of(answers[0]) == ["news"]


@pytest.mark.parametrize("wait_s", [0, 60])
def test_who_reads_in_a_group_of_mode_shared_is_told(group, wait_s):
    member = group.join()["member"]
    told = group.http.post(f"{group.url}/members/{member}/read", json={"wait_s": wait_s})
    assert (told.status_code, told.json()["error"]["name"]) == (409, "GroupMismatch")
    assert "is of mode 'shared'" in told.json()["error"]["message"]


def test_a_second_member_gets_what_the_first_gives_up(group, node, topic):
    node.create_topic(topic, partitions=2)
    first = group.join(mode="ordered")
    second = group.join(mode="ordered")
    beat = {"generation": first["generation"], "owned": first["units"]}
    wait_until(lambda: group.ask(first["member"], "heartbeat", **beat)["revoke"])
    told = group.ask(first["member"], "heartbeat", **beat)
    group.ask(first["member"], "heartbeat", generation=told["generation"], owned=told["keep"])
    other = group.ask(second["member"], "heartbeat", generation=second["generation"])
    assert sorted(told["keep"] + other["keep"]) == [f"{topic}-0", f"{topic}-1"]


def test_a_member_that_waits_is_told_at_once_what_it_is_to_give_up(node, topic, monkeypatch):
    """Not by its next heartbeat either: that is due after longer than the test waits."""
    heard = []
    heartbeat = GroupState.heartbeat

    def noted(self, *arguments, **more):
        heard.append(self.definition.name)
        return heartbeat(self, *arguments, **more)

    monkeypatch.setattr(GroupState, "heartbeat", noted)
    node.create_topic(topic, partitions=2)
    with Front(node, "--read-timeout-s", 120) as front:
        group = Group(front, f"g{topic}", topic)
        first = group.join(mode="ordered", options={"session_s": 300})
        answers = []
        asked = {"generation": first["generation"], "wait_s": 60}
        poll = threading.Thread(
            target=lambda: answers.append(group.ask(first["member"], "read", **asked))
        )
        poll.start()
        # The second one is that which waits.
        wait_until(lambda: heard.count(f"g{topic}") >= 2, TIMEOUT_S)
        group.join(mode="ordered")
        poll.join(TIMEOUT_S)
    [told] = answers
    units = [each["unit"] for each in told["units"]]
    assert sorted(units + told["revoke"]) == [f"{topic}-0", f"{topic}-1"]
    assert (len(units), told["messages"]) == (1, [])


class Asked:
    """A broker with a group, for which nothing comes; it tells what it is given to tell."""

    def __init__(self, *told):
        self.told = list(told)
        self.heard = []

    @asynccontextmanager
    async def connection(self, timeout_s):
        del timeout_s
        yield self

    async def control(self, op, **arguments):
        if op == "group_positions":
            return {}
        assert op == "group_heartbeat"
        self.heard.append((arguments["generation"], arguments["owned"]))
        keep, revoke = self.told.pop(0)
        return {"generation": 5, "keep": keep, "revoke": revoke}

    async def span(self, *_):
        return None

    async def wait(self, *_):
        await asyncio.Event().wait()


async def read_of(broker):
    """What a read comes to that waits for a minute."""
    options = GatewayOptions()
    parts = GatewayParts(options, broker, Inflow(options), Admission(None, frozenset()))
    body = b'{"generation": 4, "wait_s": 60}'

    async def receive():
        nonlocal body
        if body:
            part, body = body, b""
            return {"type": "http.request", "body": part}
        return await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "POST",
        "headers": [],
        "query_string": b"",
        "path_params": {"group": "g", "member": NOBODY},
    }
    async with asyncio.timeout(20):
        reply = await GroupRoutes(parts).post_read(Request(scope, receive))
    return json.loads(bytes(reply.body))


async def test_a_member_that_waits_is_heard_of_meanwhile():
    broker = Asked(*[([b"t"], [])] * 4, ([], [b"t"]))
    told = await read_of(broker)
    assert told == {"generation": 5, "units": [], "revoke": ["t"], "messages": []}
    assert broker.heard == [(4, []), *[(5, [b"t"])] * 4]


async def test_a_member_without_units_waits_for_some():
    broker = Asked(*[([], [])] * 3, ([b"t"], []))
    told = await read_of(broker)
    assert told == {"generation": 5, "units": [], "revoke": [], "messages": []}
    assert len(broker.heard) == 4


def test_who_left_is_fenced(group, node, topic):
    member = group.join()["member"]
    assert group.http.delete(f"{group.url}/members/{member}").json() == {}
    assert group.refused(member, "lease") == (409, "GroupFenced")
    assert group.refused(member, "heartbeat") == (409, "GroupFenced")


def test_a_group_is_made_listed_described_paused_and_deleted(group, node, topic):
    node.put(topic, b"0")
    made = group.http.put(group.url, json={"mode": "shared", "topics": [topic]})
    assert (made.status_code, made.json()["topics"]) == (201, [topic])
    again = group.http.put(group.url, json={"mode": "shared", "topics": [topic]})
    assert (again.status_code, again.json()["error"]["name"]) == (409, "GroupMismatch")
    name = group.url.rpartition("/")[2]
    listed = {"group": name, "mode": "shared", "topics": [topic]}
    assert listed in group.http.get("/groups").json()["groups"]
    member = group.join()["member"]
    assert [each["id"] for each in group.describe()["members"]] == [member]
    assert group.http.post(f"{group.url}/pause").json() == {}
    assert group.refused(member, "lease") == (503, "GroupPaused")
    assert group.http.post(f"{group.url}/resume").json() == {}
    assert values_of(group.ask(member, "lease")) == ["0"]
    refused = group.http.delete(group.url)
    assert (refused.status_code, refused.json()["error"]["name"]) == (409, "GroupActive")
    assert group.http.delete(f"{group.url}?force=true").json() == {}
    assert group.http.get(group.url).status_code == 404


def test_a_reset_tells_first_what_it_would_do(group, node, topic):
    pointers = [node.put(topic, b"%d" % number) for number in range(3)]
    group.http.put(group.url, json={"mode": "ordered", "topics": [topic]})
    url = f"{group.url}/reset"
    expected = {"unit": topic, "old": None, "new": pointers[-1], "messages": 3}
    assert group.http.post(url, json={"to": "newest", "dry": True}).json()["units"] == [expected]
    assert group.http.get(f"{group.url}/positions").json()["units"][0]["pointer"] is None
    assert group.http.post(url, json={"time_us": pointers[1]}).json()["units"][0]["messages"] == 1
    there = {"positions": [{"unit": topic, "pointer": pointers[0]}]}
    assert group.http.post(url, json=there).json()["units"][0]["messages"] == 0
    wrong = group.http.post(url, json={"to": "nowhere"})
    assert (wrong.status_code, "oldest or newest" in wrong.text) == (400, True)
    group.join(mode="ordered")
    assert group.http.post(url, json=there).status_code == 409
    assert group.http.post(url, json={**there, "force": True}).status_code == 200


def test_units_of_any_name_are_percent_encoded(group, front, node, topic):
    strange = topic.encode() + b"/\xff %"
    node.put(strange, b"0")
    group.topic = topic + "%2F%FF%20%25"
    member = group.join()["member"]
    assert group.ask(member, "lease")["unit"] == group.topic


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[]", "object"),
        (b'{"limit": 0}', "limit"),
        (b'{"limit": 1e9}', "limit"),
        (b'{"limit": true}', "limit"),
        (b'{"wait_s": 61}', "wait_s"),
        (b'{"wait_s": 1e999}', "wait_s"),
        (b'{"no": 1}', "no"),
        (b'{"done": 1}', "done"),
        (b'{"done": [{"lease": 1}]}', "lease"),
        (b'{"done": [{"lease": "1", "ranges": [{"after": 2, "last": 1}]}]}', "range"),
        (b'{"failed": [{"lease": "1"}]}', "failed"),
        (b'{"failed": [{"lease": "1", "after": 1, "last": 2, "verdict": "no"}]}', "verdict"),
        (b'{"failed": [{"lease": "1", "after": 1, "last": 2, "delay_s": -1}]}', "delay_s"),
        (b"{", "JSON"),
    ],
)
def test_what_is_wrong_is_named(front, body, why):
    url = f"/groups/no_such_group/members/{NOBODY}/lease"
    reply = front.http.post(url, content=body)
    assert reply.status_code == 400, reply.text
    assert why in reply.json()["error"]["message"]


def test_half_of_a_surrogate_pair_is_no_name(front):
    body = b'{"topics": ["\\ud800"], "mode": "shared"}'
    reply = front.http.post("/groups/no_such_group/members", content=body)
    assert reply.status_code == 400, reply.text
    assert "topics[0]" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/groups/no_such_group", 404),
        ("GET", "/groups/no_such_group/lag", 404),
        ("POST", f"/groups/no_such_group/members/{NOBODY}/lease", 404),
        ("POST", "/groups/no_such_group/members/xyz/lease", 400),
        ("POST", f"/groups/no_such_group/members/{NOBODY.upper()}a/lease", 400),
        ("GET", "/groups/.hidden", 400),
        ("GET", "/groups/%FF", 400),
        ("GET", "/groups/a%2Fb", 400),
        ("GET", "/groups?no=1", 400),
        ("DELETE", "/groups/no_such_group?force=maybe", 400),
        ("PATCH", "/groups/no_such_group", 405),
    ],
)
def test_names_and_members_that_there_are_not_are_told(front, method, url, status):
    reply = front.http.request(method, url)
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["name"]


def test_options_of_a_group_are_checked(front, topic):
    for options in ({"lease_s": 0}, {"no": 1}, {"lease_s": "x"}):
        body = {"mode": "shared", "topics": [topic], "options": options}
        reply = front.http.put(f"/groups/g{topic}", json=body)
        assert reply.status_code == 400, reply.text
    reply = front.http.put(f"/groups/g{topic}", json={"mode": "both", "topics": [topic]})
    assert reply.status_code == 400, reply.text


def test_who_waits_is_let_go_when_the_gateway_stops(node, topic):
    with Front(node) as front:
        group = Group(front, f"g{topic}", topic)
        member = group.join()["member"]
        answers = []
        poll = threading.Thread(
            target=lambda: answers.append(group.refused(member, "lease", wait_s=60))
        )
        poll.start()
        time.sleep(1)
        front.end()
        poll.join()
    assert answers == [(503, "RequestRefused")]
