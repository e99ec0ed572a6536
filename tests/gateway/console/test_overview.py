"""The overview: what is behind, how long the disk lasts, what was done."""

import asyncio
import time
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest

from poe.errors import ConnectionClosed, TopicFailed
from poe.gateway.console.history import TOTALS, History
from poe.gateway.console.lags import Lags, behind, of_topic
from poe.gateway.console.overview import disk_of, overview_of, recent_of
from poe.protocol import DescribedTopic
from poe.protocol import socket as connect
from poe.protocol.node_event import EventPage
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("free", "min_free", "rate", "full_s"),
    [(1000, 200, 8.0, 100.0), (100, 200, 8.0, 0.0), (None, 200, 8.0, None), (1000, 200, 0, None)],
)
def test_the_disk_lasts_so_long(free, min_free, rate, full_s):
    assert disk_of(free, min_free, rate)["full_s"] == full_s


def lag(messages, seconds=0.0):
    return {"messages": messages, "seconds": seconds, "position": 1, "newest": 2}


def test_those_who_are_behind_most_come_first():
    lags = {"a": {b"t": lag(1)}, "b": {b"t": lag(5, 2.0), b"u": lag(2)}, "c": {b"t": lag(0)}}
    assert behind(lags) == [
        {"group": "b", "messages": 7, "seconds": 2.0},
        {"group": "a", "messages": 1, "seconds": 0.0},
    ]
    assert [row["group"] for row in of_topic(lags, [b"u"])] == ["b"]


class Node:
    """Answers about groups, and counts how often; some groups have another answer, or none."""

    def __init__(self, groups, answers=None, modes=None):
        self.groups = groups
        self.answers = answers or {}
        self.modes = modes or {}
        self.count = 0

    async def control(self, op, **arguments):
        self.count += 1
        if op == "groups":
            modes = self.modes
            return [{"group": each, "mode": modes.get(each, "shared")} for each in self.groups]
        if arguments["group"] in self.answers:
            await self.answers[arguments["group"]]()
        return {arguments["group"].encode(): lag(1)}

    async def asked(self, lags):
        return await lags.ask(lambda: nullcontext(self))


async def nobody(*_):
    """Is asked by no test."""
    raise AssertionError


async def nothing_happens():
    """Stand for a group whose nodes are down."""
    await asyncio.Event().wait()


async def test_lags_are_asked_for_once_in_a_while_and_of_so_many():
    now_s = 0.0
    lags, node = Lags(lambda: now_s), Node([f"{each:02}" for each in range(60)])
    found = await node.asked(lags)
    assert (len(found), lags.is_whole) == (50, False)
    assert await node.asked(lags) is found
    assert node.count == 51
    now_s = 5.0
    await node.asked(lags)
    assert node.count == 102


async def test_a_group_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr("poe.gateway.console.lags._TIME_S", 0.05)
    lags = Lags()
    node = Node(["a", "b", "c"], {"b": nothing_happens})
    assert list(await node.asked(lags)) == ["a"]
    assert lags.is_whole is False


async def test_whether_all_were_asked_is_told_of_the_groups_that_are_shown():
    """Also while they are asked for anew, and when that fails."""
    now_s, told = 0.0, []
    lags, node = Lags(lambda: now_s), Node(["a"])
    found = await node.asked(lags)

    async def lose():
        told.append(lags.is_whole)
        raise ConnectionClosed

    node.answers = {"a": lose}
    now_s = 5.0
    with pytest.raises(ConnectionClosed):
        await node.asked(lags)
    assert [*told, lags.is_whole] == [True, True]
    assert list(found) == ["a"]


class Overseen:
    """Stands for who looks, while another page asks for groups of which some do not answer."""

    def __init__(self):
        self.lags = Lags()
        self.history = History(nobody, nobody)

    async def counters(self):
        return {"node": {}, "topics": {}}

    def node(self):
        return nullcontext(self)

    async def control(self, op):
        if op == "health":
            self.lags.is_whole = False
            return {}
        return []


async def test_the_overview_tells_whether_all_of_the_groups_that_it_shows_were_asked():
    overseen: Any = Overseen()
    assert (await overview_of(overseen))["is_behind_whole"] is True


class Counted(Overseen):
    """A node that its administrator looks at, one topic of which was deleted."""

    node_told: ClassVar = {"started_us": 1, "newest_event": 0}

    def __init__(self):
        super().__init__()
        row = dict.fromkeys(TOTALS, 5)
        self.history.take({"node": self.node_told, "topics": {b"gone": row, b"there": row}})
        self.history.take({"node": self.node_told, "topics": {b"there": row}})

    async def counters(self):
        return self.history.told

    async def events(self, _after):
        return EventPage([], 0, 0)

    async def config(self):
        return {}


async def test_what_was_put_since_the_start_does_not_become_less_when_a_topic_is_deleted():
    counted: Any = Counted()
    assert (await overview_of(counted))["totals"] == dict.fromkeys(TOTALS, 10)


async def test_a_group_that_nobody_can_be_asked_for_is_not_asked_for():
    lags, node = Lags(), Node(["a", "b"], {"a": nothing_happens}, {"a": "unreached"})
    assert list(await node.asked(lags)) == ["b"]
    assert lags.is_whole is False


async def test_what_a_connection_has_told_before_it_was_lost_is_not_taken_for_all():
    async def lost():
        raise ConnectionClosed

    lags, node = Lags(lambda: 0.0), Node(["a", "b"], {"b": lost})
    with pytest.raises(ConnectionClosed):
        await node.asked(lags)
    node.answers = {}
    assert list(await node.asked(lags)) == ["a", "b"]


class Described:
    """Answers about topics: one is out of service, and one was made just now."""

    async def events(self, _after):
        return EventPage([], 0, 0)

    async def find_topic(self, topic):
        if topic == b"bad":
            raise TopicFailed(topic, "its folder cannot be read")
        return DescribedTopic(topic, b"", time.time_ns() // 1000, 0)


async def test_a_topic_that_is_out_of_service_takes_nothing_else_from_the_overview():
    described: Any = Described()
    rows = await recent_of(described, 0, [b"bad", b"good"])
    assert [each["child"] for each in rows] == ["good"]


def test_it_tells_the_disk_and_who_is_behind(console, topic):
    console.node.put_many(topic, [b"one", b"two"])
    with connect("127.0.0.1", console.node.address[1]) as connection:
        made = {"mode": "shared", "topics": [topic.encode()], "options": {}}
        connection.control("group_create", group=f"00-{topic}", **made)
    found = {}

    def is_behind():
        nonlocal found
        found = console.http.get("overview").json()
        return f"00-{topic}" in {row["id"] for row in found["behind"]}

    wait_until(is_behind, 20)
    assert found["disk"]["free"] > found["disk"]["min_free"] > 0
    listed = console.http.get("topics", params={"filter": topic}).json()["rows"]
    assert [(row["roles"], [each["name"] for each in row["groups"]]) for row in listed] == [
        ("1 w", [f"00-{topic}"])
    ]


def test_what_is_done_with_the_console_is_told_with_who_and_what(console, topic):
    console.http.post("topics", json={"name": topic})
    (deed,) = [row for row in console.http.get("deeds").json()["rows"] if row["target"] == topic]
    assert (deed["user"], deed["address"], deed["action"]) == (None, "127.0.0.1", "creates topic")
    events = console.node.control("events", after=0, limit=1000)["events"]
    assert [each["who"] for each in events if each["child"] == topic] != []
