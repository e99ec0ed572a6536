"""Posts to a real gateway in front of a real node: what is taken, and what the client is told."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote_to_bytes

import pytest

from poe.client import Consumer, Received
from poe.errors import RequestRefused
from poe.gateway.http.later import parts_for_later
from poe.protocol.control import CONTROL_COUNT_MAX
from tests.client.consumers import url
from tests.gateway.http.front import stored
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}


def test_sync_is_answered_when_the_broker_has_it_with_its_pointer(front, node, topic):
    reply = front.http.post(f"/sync/{topic}", content=b'{"a": 1}', headers=JSON)
    assert reply.status_code == 200
    ((pointer, message),) = [node.next(topic, 0)]
    assert message == b'{"a": 1}'
    assert reply.json() == {
        "delivered": 1,
        "deliveries": [{"partition": 0, "pointer": pointer, "count": 1}],
    }


@pytest.mark.parametrize("path", ["async", "batch/async", "batch/sync"])
def test_what_is_accepted_arrives(front, node, topic, path):
    reply = front.http.post(f"/{path}/{topic}", content=b"m")
    assert reply.status_code == 202
    assert reply.json()["accepted"] == 1
    front.http.post(f"/sync/{topic}", content=b"last")
    assert stored(node, topic) == [b"m", b"last"]


def test_batch_sync_tells_how_much_waits(front, topic):
    front.http.post(f"/sync/{topic}", content=b"m")
    reply = front.http.post(f"/batch/sync/{topic}", content=b"m")
    assert reply.json()["buffered"] == [{"partition": 0, "buffered_count": 1}]


@pytest.mark.parametrize("path", ["async", "batch/async", "sync", "batch/sync"])
def test_what_is_put_for_later_comes_later(front, node, topic, path):
    soon = datetime.now(UTC) + timedelta(seconds=0.4)
    reply = front.http.post(f"/{path}/{topic}", content=b"at", params={"at": soon.isoformat()})
    assert (reply.status_code, reply.json()["accepted"]) == (202, 1)
    assert abs(reply.json()["due_us"] - soon.timestamp() * 1e6) < 10
    front.http.post(f"/{path}/{topic}", content=b"delayed", params={"delay_s": 0.2})
    front.http.post(f"/sync/{topic}", content=b"now")
    wait_until(lambda: len(stored(node, topic)) == 3)
    assert stored(node, topic) == [b"now", b"delayed", b"at"]


@pytest.mark.parametrize("path", ["sync", "queues"])
@pytest.mark.parametrize(("count", "size"), [(5000, "4"), (200, "1000")])
def test_much_comes_later_too(front, node, path, count, size):
    topic = f"much_{path}_{count}"
    values = [format(number, f"0{size}") for number in range(count)]
    posted = {"records": [{"value": each} for each in values]}
    reply = front.http.post(f"/{path}/{topic}?delay_s=0.01", json=posted)
    assert (reply.status_code, reply.json()["accepted"]) == (202, count)
    wait_until(lambda: len(stored(node, topic)) == count)
    assert stored(node, topic) == [each.encode() for each in values]


def test_what_is_much_is_kept_in_parts_that_a_broker_takes():
    small, large = [b"1"] * (CONTROL_COUNT_MAX + 1), [bytes(100_000)] * 5
    assert [len(part) for part in parts_for_later(small)] == [CONTROL_COUNT_MAX, 1]
    assert [len(part) for part in parts_for_later(large)] == [2, 2, 1]
    with pytest.raises(RequestRefused, match="a message of 300000 bytes cannot be kept for later"):
        parts_for_later([b"small", bytes(300_000)])


def test_what_comes_later_is_as_the_topic_has_it(front, node, topic):
    node.create_topic(topic, partitions=3, envelope=True)
    records = [{"key": "a", "value": "1"}, {"value": None}, {"key": "b", "value": "2"}]
    body = json.dumps({"records": records}).encode()
    reply = front.http.post(f"/sync/{topic}?delay_s=0.01", content=body, headers=JSON)
    assert reply.json()["accepted"] == 3
    with Consumer(url(node), topic) as reader:
        found: list[Received] = []

        def have_all():
            found.extend(reader.receive())
            return len(found) == 3

        wait_until(have_all)
    assert sorted((each.key or b"", each.value or b"") for each in found) == [
        (b"", b""),
        (b"a", b"1"),
        (b"b", b"2"),
    ]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("delay_s=soon", "delay_s is 'soon'; give 0 to"),
        ("delay_s=-1", "give 0 to"),
        ("delay_s=nan", "give 0 to"),
        ("delay_s=1e10", "give 0 to"),
        ("delay_s=1&delay_s=2", "given twice"),
        ("delay_s=1&at=2026-07-01T12:00:00Z", "give one"),
        ("at=noon", "give a time with its zone"),
        ("at=2026-07-01T12:00:00", "give a time with its zone"),
        ("at=9999-07-01T12:00:00Z", "from 1970 to 4253"),
        ("at=0001-01-01T00:00:00%2B10:00", "from 1970 to 4253"),
        ("delay=1", "there are key, delay_s and at"),
    ],
)
def test_what_is_no_time_is_refused(front, node, topic, query, why):
    refused = front.http.post(f"/sync/{topic}?{query}", content=b"m")
    assert refused.status_code == 400
    assert why in refused.json()["error"]["message"]
    assert topic.encode() not in node.topics()


def test_what_a_topic_does_not_take_is_refused_for_later_too(front, topic):
    body = b'{"records": [{"value": null}]}'
    refused = front.http.post(f"/sync/{topic}?delay_s=1", content=body, headers=JSON)
    assert (refused.status_code, refused.json()["error"]["name"]) == (400, "InvalidPayload")
    refused = front.http.post("/sync/poe.groups?delay_s=1", content=b"m")
    assert (refused.status_code, refused.json()["error"]["name"]) == (403, "ReservedTopic")


@pytest.mark.parametrize(("kind", "body"), [("json", b'{"records": []}'), ("x-ndjson", b"\n \n")])
def test_a_body_without_a_message_is_told(front, topic, kind, body):
    headers = {"Content-Type": f"application/{kind}"}
    refused = front.http.post(f"/sync/{topic}", content=body, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "there is no message in the body; send 1 or more"


def test_every_kind_of_body_arrives(front, node, topic):
    bodies = [
        ("application/x-www-form-urlencoded", b"hello=a+b&x=%FF", [b"a b", b"\xff"]),
        ("application/x-ndjson", b"[1]\n[2]\n", [b"[1]", b"[2]"]),
        ("application/json", json.dumps({"records": [{"value": "é"}]}).encode(), ["é".encode()]),
        ("application/octet-stream", b"\x00\xff", [b"\x00\xff"]),
    ]
    expected = []
    for kind, body, messages in bodies:
        reply = front.http.post(f"/sync/{topic}", content=body, headers={"Content-Type": kind})
        assert reply.status_code == 200, reply.text
        assert reply.json()["delivered"] == len(messages)
        expected += messages
    assert stored(node, topic) == expected


def test_a_request_is_taken_whole_or_not_at_all(front, node, topic):
    headers = {"Content-Type": "application/x-ndjson"}
    reply = front.http.post(f"/sync/{topic}", content=b"1\n2\n{", headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["name"] == "RequestRefused"
    assert "message 3" in reply.json()["error"]["message"]
    assert stored(node, topic) == []


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b'"\xff"', 400),
        ("application/octet-stream", b"", 400),
        ("application/x-www-form-urlencoded", b"", 400),
        ("application/x-ndjson", b"\n\n", 400),
        ("application/json", b'{"records": []}', 400),
        ("image/png", b"x", 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        (b"\xff\xfe", b"x", 415),
    ],
)
def test_what_is_wrong_is_told_and_not_taken(front, node, kind, body, status):
    for path in ("async", "sync", "batch/async", "batch/sync"):
        reply = front.http.post(f"/{path}/wrong", content=body, headers={"Content-Type": kind})
        assert reply.status_code == status, reply.text
        assert reply.json()["error"]["message"]
    assert stored(node, "wrong") == []


def test_an_encoding_is_refused_rather_than_stored(front, node, topic):
    reply = front.http.post(f"/sync/{topic}", content=b"x", headers={"Content-Encoding": "br"})
    assert reply.status_code == 415
    assert stored(node, topic) == []


def test_a_parameter_that_there_is_not_is_refused(front, topic):
    reply = front.http.post(f"/sync/{topic}?kye=a", content=b"x")
    assert reply.status_code == 400
    assert "kye" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("escaped", "topic"),
    [
        ("a%2Fb", b"a/b"),
        ("%ff%fe", b"\xff\xfe"),
        ("%2e%2e", b".."),
        ("%2Fetc%2Fpasswd", b"/etc/passwd"),
        ("%0a%00", b"\n\0"),
        ("a+b", b"a+b"),
        ("%C3%A9", "é".encode()),
        ("100%25", b"100%"),
        ("a:b@c;d,e", b"a:b@c;d,e"),
    ],
)
def test_a_topic_may_be_any_bytes(front, node, escaped, topic):
    assert front.http.post(f"/sync/{escaped}", content=b"x").status_code == 200
    assert stored(node, topic) == [b"x"]
    urls = [each["url"] for each in front.http.get("/topics").json()["topics"]]
    (url,) = [each for each in urls if unquote_to_bytes(each) == b"/topics/" + topic]
    assert front.http.get(url).json()["messages"][0]["value"] == "x"


def test_a_topic_that_the_broker_refuses_is_told_even_by_async(front):
    reply = front.http.post("/async/" + "%ff" * 200, content=b"x")
    assert reply.status_code == 400
    assert reply.json()["error"]["name"] == "InvalidTopicName"


@pytest.mark.parametrize("path", ["/async/", "/async", "/nothing", "/async/a/b", "/", "//async/t"])
def test_a_path_that_leads_nowhere_is_told_in_json(front, path):
    reply = front.http.post(path, content=b"x")
    assert reply.status_code == 404
    assert reply.json()["error"]["name"] == "RequestRefused"


def test_a_slash_at_the_end_is_kafboy_s_and_means_nothing(front, node, topic):
    assert front.http.post(f"/sync/{topic}/", content=b"x").status_code == 200
    assert stored(node, topic) == [b"x"]


def test_another_method_is_refused_with_the_one_that_is_allowed(front, topic):
    reply = front.http.get(f"/async/{topic}")
    assert reply.status_code == 405
    assert reply.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("key=a&key=b", []),
        ("key=a&key=a", []),
        ("key=a", [("Poe-Key", "a")]),
        ("", [("Poe-Key", "a"), ("Poe-Key", "b")]),
    ],
)
def test_a_request_has_one_key(front, node, topic, query, headers):
    reply = front.http.post(f"/sync/{topic}?{query}", content=b"x", headers=headers)
    assert reply.status_code == 400
    assert "give" in reply.json()["error"]["message"]
    assert stored(node, topic) == []


@pytest.mark.parametrize("what", ["key", "headers"])
def test_what_is_for_all_messages_counts_in_each_of_them(front, node, topic, what):
    """Else 60 KiB of headers would become gigabytes in ten thousand messages of one byte."""
    headers = {"Content-Type": "application/x-ndjson"}
    if what == "key":
        headers["Poe-Key"] = "k" * 60_000
    else:
        headers |= {f"Poe-Header-{number}": "x" * 900 for number in range(60)}
    reply = front.http.post(f"/sync/{topic}", content=b"1\n" * 10_000, headers=headers)
    assert reply.status_code == 413, reply.text
    assert "fewer" in reply.json()["error"]["message"]
    assert stored(node, topic) == []
    few = front.http.post(f"/sync/{topic}", content=b"1\n" * 100, headers=headers)
    assert few.status_code == 200, few.text
