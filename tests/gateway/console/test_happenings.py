"""The tree, events, options and connections of the console, and the support bundle."""

import io
import json
import zipfile

import pytest


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
