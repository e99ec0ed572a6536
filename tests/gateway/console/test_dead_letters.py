"""Dead letters in the console: seen, put back, let go."""

from typing import Any

import pytest

from poe.client import Queue
from poe.errors import CallTimeout
from poe.gateway.console.dead_letters import get_dead
from poe.protocol import envelope
from tests.gateway.console.conftest import visit_of
from tests.waiting import wait_until

TRIES = {"attempts_max": 1}


@pytest.fixture
def group(topic):
    return f"of_{topic}"


@pytest.fixture
def queue(console, topic, group):
    """A queue whose group has given up two messages."""
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    console.node.put_many(topic, [b"one", b"two"])
    with Queue(url, topic, group=group, group_options=TRIES) as queue:
        for reason in ("no way", "broken"):
            queue.get().dead(reason)
        wait_until(lambda: len(letters(console, group)) == 2)
        yield queue


def letters(console, group, **query):
    reply = console.http.get(f"groups/{group}/dead", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()["rows"]


class Silent:
    """Answers which groups there are, and nothing of any of them."""

    async def control(self, op, group=None):
        if op == "groups":
            return [{"group": "billing", "mode": "shared", "topics": []}]
        raise CallTimeout(group, 10)

    async def find_topic(self, topic):
        raise CallTimeout(topic, 10)


async def test_a_connection_behind_an_answer_that_is_awaited_no_more_is_not_used_again():
    silent: Any = Silent()
    with pytest.raises(CallTimeout):
        await get_dead(visit_of(silent))


def test_they_tell_where_they_were_and_why(console, queue, topic, group):
    found = [
        (each["topic"]["id"], each["reason"], each["preview"]) for each in letters(console, group)
    ]
    assert found == [(topic, "no way", "one"), (topic, "broken", "two")]
    assert [each["preview"] for each in letters(console, group, filter="BROKEN")] == ["two"]
    assert console.http.get(f"groups/{group}/dead").json()["open"] == 2


def test_one_is_put_back(console, queue, group):
    first = letters(console, group)[0]["pointer"]
    reply = console.http.post(f"groups/{group}/dead/redrive", json={"pointer": first})
    assert reply.json() == {"messages": 1}
    with queue.get() as job:
        assert job.value == b"one"
    assert [each["preview"] for each in letters(console, group)] == ["two"]


def test_those_of_a_reason_are_put_back_and_the_others_stay(console, queue, group):
    told = console.http.get(f"groups/{group}/dead").json()
    assert {each["reason"]: each["messages"] for each in told["reasons"]} == {
        "no way": 1,
        "broken": 1,
    }
    path = f"groups/{group}/dead/redrive"
    assert console.http.post(path, json={"reason": "BROK"}).json() == {"messages": 1}
    with queue.get() as job:
        assert job.value == b"two"
    assert [each["reason"] for each in letters(console, group)] == ["no way"]
    assert console.http.post(path, json={}).json() == {"messages": 1}


def test_those_of_a_reason_are_discarded(console, queue, group):
    path = f"groups/{group}/dead/discard"
    given = {"name": group, "reason": "no way"}
    assert console.http.post(path, json=given).json() == {"messages": 1}
    assert [each["reason"] for each in letters(console, group)] == ["broken"]


def test_groups_with_letters_are_listed_with_their_reasons(console, queue, group):
    rows = console.http.get("dead", params={"filter": group}).json()["rows"]
    assert [(row["name"], row["open"]) for row in rows] == [(group, 2)]
    assert {each["reason"] for each in rows[0]["reasons"]} == {"no way", "broken"}
    console.http.post(f"groups/{group}/dead/redrive", json={})
    assert console.http.get("dead", params={"filter": group}).json()["rows"] == []


def test_a_letter_is_compared_with_the_last_good_message_of_its_key(console, topic, group):
    console.node.create_topic(topic, envelope=True)
    for key, value in (("a", "good"), ("b", "other"), ("a", "bad")):
        given = {"key": key, "value": value}
        assert console.http.post(f"messages/{topic}", json=given).status_code == 200
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    with Queue(url, topic, group=group, group_options=TRIES) as queue:
        for job in (queue.get(), queue.get(), queue.get()):
            job.dead("no") if job.value == b"bad" else job.ack()
        wait_until(lambda: len(letters(console, group)) == 1)
    pointer = letters(console, group)[0]["pointer"]
    told = console.http.get(f"groups/{group}/dead/good", params={"pointer": pointer}).json()
    assert "bad" in told["letter"]["preview"]
    assert "good" in told["good"]["preview"]


def test_all_are_put_back_once(console, queue, group):
    path = f"groups/{group}/dead/redrive"
    assert console.http.post(path, json={}).json() == {"messages": 2}
    assert letters(console, group) == []
    assert console.http.post(path, json={}).json() == {"messages": 0}
    values = []
    for _ in range(2):
        with queue.get() as job:
            values.append(job.value)
    assert values == [b"one", b"two"]


def test_letters_of_topics_from_which_the_group_takes_nothing_are_told(console, queue, group):
    for _ in range(2):
        letter = envelope.encode(None, b"forged", {"poe.topic": b"other"})
        console.node.put(f"{group}.dead", letter)
    reply = console.http.post(f"groups/{group}/dead/redrive", json={})
    assert reply.json() == {"messages": 2, "passed": 2}


def test_they_may_lie_in_one_of_several_partitions(console, topic, group):
    console.node.create_topic(f"{group}.dead", partitions=2)
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    console.node.put_many(topic, [b"one", b"two"])
    with Queue(url, topic, group=group, group_options=TRIES) as queue:
        queue.get().dead("no way")
        queue.get().ack()
        wait_until(lambda: len(letters(console, group)) == 1)
        (pointer,) = [each["pointer"] for each in letters(console, group)]
        reply = console.http.post(f"groups/{group}/dead/redrive", json={"pointer": pointer})
        assert reply.json() == {"messages": 1}
        with queue.get() as job:
            assert job.value == b"one"


def test_they_are_discarded_by_the_typed_name_of_the_group(console, queue, group):
    path = f"groups/{group}/dead/discard"
    assert console.http.post(path, json={"name": "other"}).status_code == 400
    assert len(letters(console, group)) == 2
    assert console.http.post(path, json={"name": group}).json() == {"messages": 2}
    assert letters(console, group) == []
    assert console.http.post(f"groups/{group}/dead/redrive", json={}).json() == {"messages": 0}


def test_a_group_without_letters_has_none(console, topic, group):
    console.node.put(topic, b"x")
    url = f"poe://127.0.0.1:{console.node.address[1]}"
    with Queue(url, topic, group=group) as queue:
        queue.get().ack()
    assert letters(console, group) == []
    assert console.http.post(f"groups/{group}/dead/redrive", json={}).json() == {"messages": 0}


def test_a_letter_without_a_message_is_not_put_back_but_let_go(console, queue, group):
    headers = {"poe.reason": b"too late", "poe.gone": b"1"}
    console.node.put(f"{group}.dead", envelope.encode(None, None, headers))
    (pointer,) = [each["pointer"] for each in letters(console, group, filter="too late")]
    path = f"groups/{group}/dead"
    refused = console.http.post(f"{path}/redrive", json={"pointer": pointer})
    assert (refused.status_code, refused.json()["error"]["name"]) == (409, "RequestRefused")
    done = console.http.post(f"{path}/discard", json={"pointer": pointer, "name": group})
    assert (done.status_code, done.json()) == (200, {"messages": 1})
    assert {each["reason"] for each in letters(console, group)} == {"no way", "broken"}


@pytest.mark.parametrize(
    "given", [{"pointer": 5}, {"pointer": "x"}, {"pointer": "9" * 30}, {"x": 1}]
)
def test_what_is_no_letter_is_told(console, queue, group, given):
    assert console.http.post(f"groups/{group}/dead/redrive", json=given).status_code == 400
    assert len(letters(console, group)) == 2


def test_a_letter_that_is_not_there_is_told(console, queue, group):
    reply = console.http.post(f"groups/{group}/dead/redrive", json={"pointer": "5"})
    assert reply.status_code == 404
    assert console.http.get("groups/nobody/dead").status_code == 404
