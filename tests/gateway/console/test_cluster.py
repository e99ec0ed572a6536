"""The page of the cluster: of real nodes, whose fabrics are in one process."""

import json
from contextlib import nullcontext
from typing import Any

import pytest

from poe.errors import ConnectionClosed
from poe.gateway.console.cluster import VIEWS
from poe.protocol import socket as connect
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.gateway.console.conftest import Shown
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Two nodes of a cluster, one with a console in front of it."""
    links, folder = Links(), tmp_path_factory.mktemp("cluster")
    with (
        LinkedNode(links, folder / "a", "alpha", port=0, zone="north") as alpha,
        LinkedNode(links, folder / "b", "beta") as beta,
        Shown(alpha, "--destructive") as console,
    ):
        yield links, alpha, beta, console


def state_of(http):
    with http.stream("GET", "stream", params={"view": "cluster"}) as reply:
        line = next(each for each in reply.iter_lines() if each.startswith("data: "))
    return json.loads(line[6:])


def test_the_view_has_nodes_queues_and_what_there_is_of_a_log(shown):
    _, alpha, _, console = shown
    wait_until(lambda: state_of(console.http)["live"] == 2)
    with connect("127.0.0.1", alpha.address[1]) as connection:
        connection.control("queue_create", topic=b"jobs", options={"copies": 2})
    state = state_of(console.http)
    assert (state["cluster"], state["name"], state["zone"]) == ("test", "alpha", "north")
    assert {each["name"]: each["liveness"] for each in state["nodes"]} == {
        "alpha": "me",
        "beta": "live",
    }
    [queue] = [each for each in state["queues"] if each["name"] == "jobs"]
    assert (queue["copies"], queue["messages"], queue["groups"]) == (2, 0, [])
    assert state["log"]["engine"] is None
    assert state["log"]["why"]


def test_nothing_came_twice_and_copies_cannot_be_compared_without_a_log(shown):
    console = shown[-1]
    assert console.http.get("cluster/report").json() == {"rows": [], "total": 0}
    reply = console.http.post("cluster/verify", json={})
    assert reply.status_code >= 400
    assert reply.json()["error"]["message"]


def test_a_node_that_is_down_is_forgotten_and_one_that_lives_is_not(shown):
    links, alpha, beta, console = shown
    wait_until(lambda: state_of(console.http)["live"] == 2)
    [node] = [each["id"] for each in state_of(console.http)["nodes"] if each["name"] == "beta"]
    assert console.http.post("cluster/forget", json={"node": node}).status_code == 409
    assert console.http.post("cluster/forget", json={"node": "nobody"}).status_code == 404
    links.cut(alpha.me.ref, beta.me.ref)
    wait_until(lambda: state_of(console.http)["live"] == 1)
    assert console.http.post("cluster/forget", json={"node": node}).status_code == 200
    rows = {each["name"]: each["state"] for each in state_of(console.http)["nodes"]}
    assert rows["beta"] != "joined"


class Alone:
    """Stands for a node in no cluster, which is away from the third look on."""

    def __init__(self):
        self.looks = self.counted = 0

    def node(self):
        self.looks += 1
        if self.looks > 2:
            raise ConnectionClosed
        return nullcontext()

    async def counters(self):
        self.counted += 1
        return {"node": {"is_in_cluster": False}, "topics": {}}


async def test_the_page_does_not_ask_for_all_topics_each_second(monkeypatch):
    monkeypatch.setattr("poe.gateway.console.cluster._LOOK_S", 0)
    alone: Any = Alone()
    states = VIEWS["cluster"].states(alone, "")
    assert await anext(states) == {"is_in_cluster": False, "is_told": True}
    with pytest.raises(ConnectionClosed):
        await anext(states)
    assert (alone.looks, alone.counted) == (3, 1)


@pytest.mark.slow
def test_a_node_that_is_in_no_cluster_says_so(console):
    assert state_of(console.http) == {"is_in_cluster": False, "is_told": True}
