"""Groups of the console: lag, pause, reset with a look before, delete; and pipelines."""

from typing import Any

import pytest

from poe.client import Consumer, Queue
from poe.errors import CallTimeout, ConnectionClosed, UnknownGroup
from poe.gateway.console.groups import get_groups, loss_of
from poe.protocol import DescribedTopic
from poe.protocol import socket as connect
from poe.topic_properties import TopicProperties
from tests.gateway.console.conftest import visit_of
from tests.waiting import wait_until


@pytest.fixture
def group(console, topic):
    """A group, called as its topic, behind two messages."""
    for each in (b"one", b"two"):
        console.node.put(topic, each)
    made = {"mode": "shared", "topics": [topic.encode()], "options": {}}
    with connect("127.0.0.1", console.node.address[1]) as connection:
        connection.control("group_create", group=topic, **made)
    return f"groups/{topic}"


def test_groups_tell_how_far_they_are_behind(console, group, topic):
    rows = {each["id"]: each for each in console.http.get("groups").json()["rows"]}
    assert rows[topic]["lag"] == 2
    assert rows[topic]["topics"] == [{"name": topic, "id": topic}]
    found = console.http.get(group).json()
    assert found["mode"] == "shared"
    assert found["units"][0]["messages"] == 2
    assert found["generation"].isdecimal()


def test_a_group_is_paused_and_goes_on(console, group):
    assert console.http.post(f"{group}/pause", json={}).status_code == 200
    assert console.http.get(group).json()["state"] == "paused"
    assert console.http.post(f"{group}/resume", json={}).status_code == 200
    assert console.http.get(group).json()["state"] == "ok"


def test_a_reset_is_looked_at_before_it_is_done(console, group):
    seen = console.http.post(f"{group}/reset", json={"to": "newest"}).json()["units"]
    assert [abs(each["messages"]) for each in seen] == [2]
    assert console.http.get(group).json()["units"][0]["messages"] == 2
    done = console.http.post(f"{group}/reset", json={"to": "newest", "dry": False})
    assert done.json()["units"] == seen
    assert console.http.get(group).json()["units"][0]["messages"] == 0


@pytest.mark.parametrize(
    "given", [{}, {"to": "there"}, {"to": 5}, {"to": "oldest", "dry": 1}, {"to": "oldest", "x": 1}]
)
def test_a_wrong_reset_is_told_and_moves_nothing(console, group, given):
    assert console.http.post(f"{group}/reset", json=given).status_code == 400
    assert console.http.get(group).json()["units"][0]["messages"] == 2


def test_a_group_is_deleted_only_by_its_typed_name(console, group, topic):
    assert console.http.request("DELETE", group, json={"name": "other"}).status_code == 400
    assert console.http.request("DELETE", group, json={"name": topic}).status_code == 200
    assert console.http.get(group).status_code == 404


def test_without_pipelines_there_are_none_and_none_is_stopped(console):
    assert console.http.get("pipelines").json() == {"rows": []}
    assert console.http.post("pipelines/nothing/stop", json={}).status_code >= 400


def test_groups_are_filtered_and_paged(console, group, topic):
    found = console.http.get("groups", params={"filter": topic.upper(), "limit": 1}).json()
    assert (found["total"], [each["id"] for each in found["rows"]]) == (1, [topic])
    assert console.http.get("groups", params={"filter": topic, "offset": 1}).json()["rows"] == []


def test_a_group_with_members_is_reset_only_by_force(console, group, topic):
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    with Queue(url, topic, group=topic) as queue:
        queue.get().ack()
        path = f"{group}/reset"
        assert console.http.post(path, json={"to": "oldest", "force": True}).json()["members"] == 1
        refused = console.http.post(path, json={"to": "oldest", "dry": False})
        assert refused.json()["error"]["name"] == "GroupActive"
        done = console.http.post(path, json={"to": "oldest", "dry": False, "force": True})
        assert done.status_code == 200


def test_a_group_of_consumers_is_told(console, topic):
    console.node.put_many(topic, [b"one", b"two"])
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    with Consumer(url, topic, group=topic) as consumer:
        assert len(list(consumer)) == 2
        found = console.http.get(f"groups/{topic}")
        assert found.status_code == 200, found.text
        assert (found.json()["mode"], found.json()["full"]) == ("ordered", None)
        assert [each["name"] for each in found.json()["units"]] == [topic]
        assert len(found.json()["members"]) == 1


@pytest.mark.slow
def test_a_group_has_a_history_of_how_far_it_was_behind(console, group):
    assert console.http.get(f"{group}/history").json()["times_s"] == []
    wait_until(lambda: console.http.get(f"{group}/history").json()["messages"][:1] == [2], 20)
    told = console.http.get(f"{group}/history").json()
    assert told["loss_s"] is None
    assert console.http.get("groups/nobody/history").status_code == 404


def test_what_a_group_will_lose_is_told(console, topic):
    console.node.create_topic(topic, max_age=3600.0)
    with Queue(f"poe://127.0.0.1:{console.node.address[1]}", topic, group=topic) as queue:
        console.node.put_many(topic, [b"one", b"two"])
        queue.get().ack()
        wait_until(
            lambda: console.http.get(f"groups/{topic}").json()["units"][0]["messages"] == 1, 10
        )
    told = console.http.get(f"groups/{topic}/history").json()
    assert told["keeps_s"] == 3600
    assert 3500 < told["loss_s"] <= 3600


class Keeper:
    """Answers as a node whose topics keep messages for 100 s."""

    async def config(self):
        return {"max_age": {"value": 100.0}}

    async def describe(self, topic):
        properties = TopicProperties(keep_unread=("billing",))
        return DescribedTopic(topic, b"", 0, 0, properties)


@pytest.mark.parametrize("broken", ["config", "describe"])
async def test_a_connection_that_is_lost_meanwhile_is_not_used_again(broken):
    keeper: Any = Keeper()

    async def lose(*_):
        raise ConnectionClosed

    setattr(keeper, broken, lose)
    with pytest.raises(ConnectionClosed):
        await loss_of(keeper, "audit", {b"orders": {"messages": 0}})


class Coordinator:
    """Answers as a node with four groups: one is refused, and one is silent."""

    def __init__(self):
        self.asked = []

    async def control(self, op, group=None):
        if op == "groups":
            return [{"group": name, "mode": "shared", "topics": []} for name in "abcd"]
        self.asked.append(group)
        if group == "b":
            raise UnknownGroup(group)
        if group == "c":
            raise CallTimeout(group, 10)
        return {b"orders": {"messages": 2, "seconds": 0.5}}


async def test_a_group_that_is_silent_holds_up_no_others_and_what_was_learnt_is_shown():
    coordinator: Any = Coordinator()
    told: Any = await get_groups(visit_of(coordinator))
    assert [each["lag"] for each in told["rows"]] == [2, None, None, None]
    assert all(each["error"] for each in told["rows"][1:])
    assert coordinator.asked == ["a", "b", "c"]


@pytest.mark.parametrize("position", [None, 1])
async def test_a_group_loses_the_oldest_message_that_it_has_not_read(position):
    """How long ago it has read the one before does not matter, nor whether it has read any."""
    unread = {"position": position, "newest": 2, "messages": 1, "seconds": 30.0}
    all_read = {"position": 2, "newest": 2, "messages": 0, "seconds": 0.0}
    units = {b"orders": unread, b"quiet": all_read}
    keeper: Any = Keeper()
    assert await loss_of(keeper, "audit", units) == {"keeps_s": 100.0, "loss_s": 70.0}
    assert await loss_of(keeper, "billing", units) == {"keeps_s": None, "loss_s": None}


def test_a_shadow_reads_again_and_disturbs_nobody(console, group, topic):
    for to, behind in (("oldest", 2), ("newest", 0), ("here", 2)):
        name = f"{topic}-{to}"
        made = console.http.post(f"{group}/shadow", json={"name": name, "to": to})
        assert made.status_code == 200, made.text
        assert console.http.get(f"groups/{name}").json()["units"][0]["messages"] == behind
    assert console.http.get(group).json()["units"][0]["messages"] == 2
    taken = console.http.post(f"{group}/shadow", json={"name": topic})
    assert taken.status_code == 409, taken.text


@pytest.mark.parametrize("given", [{}, {"name": ""}, {"name": "x", "to": "there"}, {"name": 5}])
def test_a_wrong_shadow_is_told(console, group, given):
    assert console.http.post(f"{group}/shadow", json=given).status_code == 400
