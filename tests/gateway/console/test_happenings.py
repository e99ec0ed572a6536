"""The tree, events, options and connections of the console, and the support bundle."""

import asyncio
import io
import json
import zipfile
from contextlib import nullcontext
from typing import Any

import pytest

from poe.gateway.console.happenings import VIEWS
from poe.protocol.node_event import EventPage, NodeEvent


def test_the_tree_is_that_of_the_node(console):
    rows = console.http.get("tree").json()["rows"]
    assert rows[0]["name"] == "poe_sup"
    assert {"appendix_sup"} <= {each["id"] for each in rows}


def test_options_tell_where_they_come_from(console):
    rows = {each["name"]: each for each in console.http.get("config").json()["rows"]}
    assert rows["names"] == {"name": "names", "value": "escape", "from": "argument"}
    assert rows["copies"]["from"] == "default"


def test_the_console_is_among_the_connections(console):
    rows = console.http.get("connections").json()["rows"]
    assert rows
    assert all(each["since_us"].isdecimal() for each in rows)


class Busy:
    """Stands for a node in which something happens all the time, and for the way to it."""

    def __init__(self):
        self.count = 0

    def node(self):
        return nullcontext(self)

    async def events(self, after, *, limit=1, wait_s=0.0):
        del limit, wait_s
        self.count += 1
        event = NodeEvent(seq=after + 1, time_us=0, kind="started")
        return EventPage([event], after + 1, 1)

    async def control(self, _op, **_arguments):
        self.count += 1
        return [{"id": self.count}]


@pytest.mark.parametrize("view", ["events", "tree"])
async def test_a_node_in_which_much_happens_is_asked_now_and_then(view, monkeypatch):
    monkeypatch.setattr("poe.gateway.console.happenings._PAUSE_S", 3600)
    look: Any = Busy()
    states = VIEWS[view].states(look, "")
    await anext(states)
    count = look.count
    second = asyncio.ensure_future(anext(states))
    for _ in range(100):
        await asyncio.sleep(0)
    assert look.count == count
    second.cancel()


def test_an_event_that_there_was_not_has_no_why(console):
    reply = console.http.get("why", params={"seq": 999_999})
    assert reply.status_code == 404
    assert "not known" in reply.json()["error"]["message"]


@pytest.mark.parametrize("view", ["events", "tree"])
def test_a_view_begins_with_its_whole_state(console, view):
    with console.http.stream("GET", "stream", params={"view": view}) as reply:
        state = next(each for each in reply.iter_lines() if each.startswith("data: "))
    assert {"events", "rows"} & json.loads(state[6:]).keys()


def test_a_bundle_holds_what_helps_and_no_message(console, topic):
    console.node.put(topic, b"a secret thing")
    reply = console.http.get("bundle")
    assert reply.headers["content-disposition"].startswith("attachment")
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        names = set(archive.namelist())
        text = b"".join(archive.read(each) for each in names)
    assert names == {
        "overview.json",
        "config.json",
        "connections.json",
        "tree.json",
        "events.json",
    }
    assert b"a secret thing" not in text
