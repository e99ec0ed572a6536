"""Reading topics over HTTP: pages, single messages, and events for those who follow."""

import asyncio
import json
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from poe.client.url import parse_url
from poe.errors import ConsumerClosed
from poe.gateway.http import read
from poe.gateway.http.admission import Admission
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import GatewayOptions
from tests.gateway.http.front import Front
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EVENTS = {"Accept": "text/event-stream"}
RAW = {"Accept": "application/octet-stream"}


@contextmanager
def followed(front, url, **headers):
    """The events of a topic as (id, data), while they come."""
    with front.http.stream("GET", url, headers=EVENTS | headers) as reply:
        assert reply.status_code == 200
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        yield events_of(reply.iter_lines())


def events_of(lines):
    """Parse as a browser does: a blank line ends an event, and an event needs data."""
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        event |= {name: value} if name else {}
        if not line and "data" in event:
            yield event["id"], json.loads(event.pop("data"))


def test_a_page_says_where_the_next_one_begins(front, node, topic):
    pointers = [node.put(topic, b"%d" % i) for i in range(5)]
    url, values = f"/topics/{topic}", []
    page = front.http.get(url, params={"limit": 2}).json()
    while page["messages"]:
        values += [(each["pointer"], each["value"]) for each in page["messages"]]
        assert len(page["messages"]) <= 2
        page = front.http.get(url, params={"limit": 2, "pointer": page["next"]}).json()
    assert values == list(zip(pointers, "01234", strict=True))
    assert page["next"] == str(pointers[-1])


def test_without_a_limit_a_page_has_no_more_than_it_may(node, topic):
    node.put_many(topic, [b"%d" % number for number in range(5)])
    with Front(node, "--read-count-max", 3) as front:
        page = front.http.get(f"/topics/{topic}").json()
        assert [each["value"] for each in page["messages"]] == ["0", "1", "2"]
        joined = {"mode": "shared", "topics": [topic]}
        url = f"/groups/{topic}/members"
        member = front.http.post(url, json=joined).json()["member"]
        leased = front.http.post(f"{url}/{member}/lease").json()
        assert [each["value"] for each in leased["messages"]] == ["0", "1", "2"]


def test_the_newest_pointer_is_behind_all(front, node, topic):
    pointer = node.put(topic, b"a")
    page = front.http.get(f"/topics/{topic}?pointer=newest").json()
    assert page == {"messages": [], "next": str(pointer)}


def test_bytes_that_are_no_text_come_in_base64(front, node, topic):
    node.put(topic, b"\xff\x00")
    (message,) = front.http.get(f"/topics/{topic}").json()["messages"]
    assert message["value_base64"] == "/wA="
    assert "value" not in message


def test_a_message_comes_as_it_is_to_who_accepts_octets(front, node, topic):
    first, second = node.put(topic, b"\xff\n"), node.put(topic, b"b")
    reply = front.http.get(f"/topics/{topic}", headers=RAW)
    assert (reply.content, reply.headers["Poe-Pointer"]) == (b"\xff\n", str(first))
    reply = front.http.get(f"/topics/{topic}?pointer={reply.headers['Poe-Next']}", headers=RAW)
    assert (reply.content, reply.headers["Poe-Pointer"]) == (b"b", str(second))
    reply = front.http.get(f"/topics/{topic}?pointer={second}", headers=RAW)
    assert (reply.status_code, reply.content) == (204, b"")


def test_a_topic_that_there_is_not_is_told(front):
    for headers in ({}, RAW):
        reply = front.http.get("/topics/no_such_topic", headers=headers)
        assert reply.status_code == 404
        assert reply.json()["error"]["name"] == "UnknownTopic"


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=1001", "limit=x", "limit=%D9%A3", "limit=1e3", "pointer=x",
     "pointer=-5", "pointer=0:x", "pointer=" + "9" * 19, "pointer=%ff", "pionter=1", "pointer=1,2",
     "pointer=1&pointer=2", "limit=1&limit=1", "pointer=0:1,0:2", "pointer=0:" + "9" * 19],
)  # fmt: skip
def test_a_wrong_parameter_is_told(front, topic, query):
    reply = front.http.get(f"/topics/{topic}?{query}")
    assert reply.status_code == 400, reply.text
    assert "b'" not in reply.text


@pytest.mark.parametrize("query", ["", "?pointer=5", "?pointer=newest"])
def test_a_name_that_no_topic_can_have_is_told_and_shortened(front, query):
    reply = front.http.get("/topics/" + "a" * 60_000 + query)
    assert (reply.status_code, reply.json()["error"]["name"]) == (400, "InvalidTopicName")
    assert "a" * 60 in reply.text
    assert len(reply.text) < 500
    assert "a" * 1000 not in front.http.get("/metrics").text


def test_a_partition_that_the_topic_does_not_have_is_told(front, node, topic):
    node.put(topic, b"x")
    reply = front.http.get(f"/topics/{topic}?pointer=2:5")
    assert reply.status_code == 404
    said = reply.json()["error"]["message"]
    assert said == "the pointer names a partition that there is not; use partitions up to 0"


def test_what_is_accepted_and_not_served_is_told(front, topic):
    reply = front.http.get(f"/topics/{topic}", headers={"Accept": "image/png"})
    assert reply.status_code == 406


def test_a_follower_gets_what_is_there_and_what_comes(front, node, topic):
    first = node.put(topic, b"a")
    with followed(front, f"/topics/{topic}?pointer=oldest") as events:
        assert next(events) == (str(first), {"partition": 0, "pointer": first, "value": "a"})
        second = node.put(topic, b"b\n\nid: 5")
        assert next(events)[1]["value"] == "b\n\nid: 5"
    with followed(front, f"/topics/{topic}", **{"Last-Event-ID": str(first)}) as events:
        assert next(events)[0] == str(second)


def test_a_follower_begins_with_what_comes_unless_told_otherwise(front, node, topic):
    node.put(topic, b"a")
    with followed(front, f"/topics/{topic}") as events:
        # Whoever can see its answer has its place.
        pointer = node.put(topic, b"b")
        assert next(events)[0] == str(pointer)


def test_a_follower_knows_its_place_before_anything_has_come(front, node, topic):
    pointer = node.put(topic, b"a")
    with front.http.stream("GET", f"/topics/{topic}", headers=EVENTS) as reply:
        assert next(reply.iter_lines()) == f"id: {pointer}"


def test_a_post_of_what_was_read_is_the_same_message(node, topic):
    with Front(node, "--producer", "envelope=true") as front:
        records = [
            {"value": "text", "key": "k", "headers": {"a": "b"}},
            {"value_base64": "/w==", "key_base64": "/g==", "headers_base64": {"c": "/Q=="}},
            {"value": None, "key": "gone"},
        ]
        reply = front.http.post(f"/sync/{topic}", json={"records": records})
        assert reply.status_code == 200, reply.text
        messages = front.http.get(f"/topics/{topic}").json()["messages"]
        read = [
            {key: each[key] for key in each.keys() - {"partition", "pointer"}} for each in messages
        ]
        assert read == records


def test_a_topic_of_several_partitions_has_a_pointer_for_each(node, topic):
    with Front(
        node.address[1], "--producer", "partitions=2", "--producer", "strategy=custom"
    ) as front:
        for key in "abcdef":
            assert front.http.post(f"/sync/{topic}?key={key}", content=key).status_code == 200
        url, values = f"/topics/{topic}", []
        page = front.http.get(url).json()
        while page["messages"]:
            values += [each["value"] for each in page["messages"]]
            page = front.http.get(url, params={"pointer": page["next"]}).json()
        assert sorted(values) == list("abcdef")
        assert {each.split(":")[0] for each in page["next"].split(",")} == {"0", "1"}
        with followed(front, f"{url}?pointer=oldest") as events:
            seen = [next(events) for _ in values]
        assert sorted(each["value"] for _, each in seen) == list("abcdef")
        with followed(front, url, **{"Last-Event-ID": seen[3][0]}) as events:
            rest = [next(events)[1]["value"] for _ in range(2)]
        assert sorted(rest) == sorted(each["value"] for _, each in seen[4:])


def test_followers_that_come_at_once_are_no_more_than_allowed(node, topic):
    node.put(topic, b"a")
    head = f"GET /topics/{topic} HTTP/1.1\r\nHost: localhost\r\n"
    request = f"{head}Accept: text/event-stream\r\n\r\n"
    with Front(node, "--followers-max", 10) as front, ExitStack() as stack:
        connections = [stack.enter_context(front.connect()) for _ in range(60)]
        for each in connections:
            each.sendall(request.encode())
        told = [each.recv(12) for each in connections]
    assert told.count(b"HTTP/1.1 200") == 10
    assert told.count(b"HTTP/1.1 503") == 50


def test_followers_that_go_leave_no_connection_behind(node, topic):
    node.put(topic, b"a")

    def come_and_go(count):
        for _ in range(count):
            with followed(front, f"/topics/{topic}?pointer=oldest") as events:
                next(events)
        return len(list(Path(f"/proc/{front.process.pid}/fd").iterdir()))

    with Front(node) as front:
        before = come_and_go(1)
        wait_until(lambda: come_and_go(10) < before + 10)


def test_there_are_no_more_followers_than_allowed(node, topic):
    node.put(topic, b"a")
    with Front(node, "--followers-max", 1) as front:
        with followed(front, f"/topics/{topic}?pointer=oldest") as events:
            next(events)
            reply = front.http.get(f"/topics/{topic}", headers=EVENTS)
            assert reply.status_code == 503
            assert reply.headers["Retry-After"] == "1"

        # The one that has left makes room.
        def is_let_in():
            with front.http.stream("GET", f"/topics/{topic}", headers=EVENTS) as reply:
                return reply.status_code == 200

        wait_until(is_let_in, timeout_s=20)


class Reached(Brokers):
    """Some of which one can be reached."""

    async def check(self):
        pass


class Slow:
    """A consumer that is not closed before others are told to close, too."""

    def __init__(self, closing):
        self._closing = closing
        self._is_closed = asyncio.Event()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def position(self):
        return {0: 0}

    async def receive(self, timeout_s):
        del timeout_s
        await self._is_closed.wait()
        raise ConsumerClosed

    async def close(self):
        await self._closing.wait()
        self._is_closed.set()


async def test_followers_are_let_go_together(monkeypatch):
    """Of Kafka, to let one go takes a fifth of a second, and there may be hundreds."""
    count = 3
    closing = asyncio.Barrier(count)
    monkeypatch.setattr(read, "AsyncConsumer", lambda *_, **__: Slow(closing))
    brokers = Reached(parse_url("poe://h"), {}, 1.0)
    routes = read.ReadRoutes(GatewayOptions(), brokers, Admission(None, frozenset()))
    scope = {
        "type": "http",
        "method": "GET",
        "headers": [(b"accept", b"text/event-stream")],
        "query_string": b"",
        "path_params": {"topic": "t"},
    }
    replies = [await routes.get_messages(Request(scope)) for _ in range(count)]
    async with asyncio.timeout(20):
        await routes.stop()
        for reply in replies:
            assert isinstance(reply, StreamingResponse)
            assert [each async for each in reply.body_iterator] == [b"id: 0\n\n"]
