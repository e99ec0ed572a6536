"""What topics have is told, made and changed over HTTP."""

import pytest

from poe.node import Node
from tests.gateway.http.front import Front

pytestmark = pytest.mark.slow


def test_a_topic_goes_through_its_life(front, node, topic):
    path = f"/topics/{topic}/properties"
    assert front.http.get(path).status_code == 404
    made = front.http.put(path, json={"partitions": 2, "envelope": True, "keep_unread": ["g"]})
    assert made.status_code == 201
    assert made.json()["properties"]["keep_unread"] == ["g"]
    posted = front.http.post(f"/sync/{topic}", json={"records": [{"key": "k", "value": "v"}]})
    assert posted.status_code == 200
    altered = front.http.patch(path, json={"partitions": 3, "max_age": "none"}).json()
    assert altered["version"] == 2
    told = front.http.get(path).json()
    assert told == altered
    assert told["id"] == made.json()["id"]
    assert [each["topic"] for each in told["partitions"]] == [f"{topic}-{n}" for n in range(3)]
    assert sum(each["messages"] for each in told["partitions"]) == 1
    [message] = front.http.get(f"/topics/{topic}").json()["messages"]
    assert (message["key"], message["value"]) == ("k", "v")
    names = [each.get("name") for each in front.http.get("/topics").json()["topics"]]
    assert topic in names
    assert f"{topic}-1" not in names


@pytest.mark.parametrize("opened", [b'{"partitions": ', b'{"keep_unread": ', b'{"max_age": '])
def test_what_can_just_be_read_is_told_in_few_words(front, topic, opened):
    """Clients nest as deep as Python reads, which may be deeper than it writes."""
    for depth in range(900, 1000):
        content = opened + b"[" * depth + b"]" * depth + b"}"
        reply = front.http.put(f"/topics/{topic}/properties", content=content)
        assert (reply.status_code, depth) == (400, depth)
    content = opened + b'"%b"}' % (b"a" * 100_000)
    reply = front.http.put(f"/topics/{topic}/properties", content=content)
    assert reply.status_code == 400
    assert len(reply.text) < 5000
    reply = front.http.put(f"/topics/{topic}/properties", json={"a" * 100_000: 1})
    assert len(reply.text) < 5000


@pytest.mark.parametrize(
    ("method", "content", "status"),
    [
        ("PUT", b"{}", 409),
        ("PUT", b'{"partitions": 0}', 400),
        ("PUT", b'{"colour": 1}', 400),
        ("PUT", b'{"self": 1}', 400),
        ("PATCH", b'{"topic": "t"}', 400),
        ("PUT", b"[]", 400),
        ("PUT", b"{", 400),
        ("PUT", b"[" * 100_000, 400),
        ("PATCH", b'{"partitions": 1}', 409),
        ("PATCH", b'{"envelope": true}', 409),
        ("PATCH", b'{"ack": "never"}', 400),
        ("DELETE", b"", 405),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(front, topic, method, content, status):
    path = f"/topics/{topic}/properties"
    before = front.http.put(path, json={"partitions": 2}).json()
    assert front.http.request(method, path, content=content).status_code == status
    assert front.http.get(path).json() == before


def test_names_that_nobody_may_use_are_refused(front):
    assert front.http.put("/topics/poe.groups/properties").status_code == 403
    assert front.http.patch("/topics/nobody-has-made-it/properties").status_code == 404


def test_an_option_of_the_gateway_that_contradicts_the_topic_is_a_conflict(node, topic):
    node.create_topic(topic, partitions=3)
    with Front(node, "--producer", f"partitions={{{topic}=2}}") as front:
        refused = front.http.post(f"/sync/{topic}", content=b"x")
        assert refused.status_code == 409
        assert "is 3, and 2 was asked for" in refused.json()["error"]["message"]
        assert front.http.get(f"/topics/{topic}").status_code == 409


def test_what_a_node_refuses_no_other_one_is_asked_for(node, topic, tmp_path):
    node.create_topic(topic, partitions=2)
    with Node(dir=tmp_path, port=0) as other:
        assert node.address is not None
        assert other.address is not None
        url = f"poe://127.0.0.1:{node.address[1]},127.0.0.1:{other.address[1]}"
        with Front(url) as front:
            path = f"/topics/{topic}/properties"
            assert front.http.put(path, json={"partitions": 3}).status_code == 409
            assert front.http.patch("/topics/nobody/properties").status_code == 404
        assert other.topics() == []
