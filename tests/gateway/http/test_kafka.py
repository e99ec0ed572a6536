"""The gateway in front of Kafka: librdkafka's mock cluster, in this process."""

import pytest

from tests.gateway.http.front import Front
from tests.waiting import wait_until

pytest.importorskip("confluent_kafka", reason="needs the extra kafka")

from poe.testing.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(scope="module")
def cluster():
    with KafkaCluster() as cluster:
        cluster.create_topic("orders", 1)
        yield cluster


@pytest.fixture(scope="module")
def kafka_front(cluster):
    with Front(cluster.url) as front:
        yield front


def page_of(front, topic, count):
    """All of a topic's messages, once there are so many, and what follows; a page may have fewer.

    librdkafka hands out what has arrived, which need not be all that is there.
    """
    messages, following = [], "oldest"

    def has_all():
        nonlocal following
        page = front.http.get(f"/topics/{topic}", params={"pointer": following}).json()
        messages.extend(page["messages"])
        following = page["next"]
        return len(messages) >= count

    wait_until(has_all, timeout_s=20)
    return messages, following


def test_records_come_back_with_keys_headers_and_tombstones(kafka_front):
    records = [
        {"value": "paid", "key": "42", "headers": {"trace": "abc"}},
        {"value": None, "key": "41"},
        {"value": "", "key": "40"},
    ]
    reply = kafka_front.http.post("/sync/orders", json={"records": records})
    assert reply.status_code == 200, reply.text
    assert reply.json()["delivered"] == 3
    messages, following = page_of(kafka_front, "orders", 3)
    places = [{key: each.pop(key) for key in ("partition", "pointer")} for each in messages]
    assert messages == records
    assert places == [{"partition": 0, "pointer": i} for i in range(3)]
    again = kafka_front.http.get("/topics/orders", params={"pointer": following}).json()
    assert again == {"messages": [], "next": following}


def test_a_message_that_kafka_does_not_take_is_too_large_and_the_limit_is_named(kafka_front):
    """What the gateway lets through, `body_max`, is more than librdkafka does."""
    reply = kafka_front.http.post("/sync/orders", content=b"x" * 1_020_000)
    assert reply.status_code == 413, reply.text
    assert "message.max.bytes" in reply.json()["error"]["message"]


def test_the_key_and_the_headers_of_a_request_are_the_message_s(kafka_front):
    headers = {"Poe-Header-Trace": "abc"}
    reply = kafka_front.http.post("/sync/keyed?key=%FF", content=b"v", headers=headers)
    assert reply.status_code == 200, reply.text
    ((message,), _) = page_of(kafka_front, "keyed", 1)
    assert message["key_base64"] == "/w=="
    assert message["headers"] == {"trace": "abc"}


def test_topics_and_readiness_are_the_cluster_s(cluster, kafka_front):
    urls = [each["url"] for each in kafka_front.http.get("/topics").json()["topics"]]
    assert "/topics/orders" in urls
    assert kafka_front.http.get("/readyz").status_code == 200
    for name in ("%FF", "a%2Fb", "a" * 60_000):
        replies = (
            kafka_front.http.post(f"/sync/{name}", content=b"x"),
            kafka_front.http.get(f"/topics/{name}"),
        )
        for reply in replies:
            assert reply.status_code == 400, reply.text
            assert "is no name for Kafka" in reply.text
            assert len(reply.text) < 500


def test_settings_that_are_not_a_reader_s_cost_no_line_for_each_read(cluster):
    settings = 'kafka={"compression.type"="lz4", "fetch.min.bytes"=1}'
    with Front(cluster.url, "--producer", settings) as front:
        assert front.http.post("/sync/set", content=b"x").status_code == 200
        assert front.http.get("/topics/set").status_code == 200
        assert front.http.get("/readyz").status_code == 200
        log = front.end()[2].decode()
    assert "SIGTERM: stopping" in log
    assert "will be ignored by this" not in log


def test_a_follower_of_kafka_goes_on_where_it_was(kafka_front):
    url = "/topics/followed"
    kafka_front.http.post("/sync/followed?key=a", content=b"1")
    accept = {"Accept": "text/event-stream"}
    with kafka_front.http.stream("GET", f"{url}?pointer=oldest", headers=accept) as reply:
        lines = (each for each in reply.iter_lines() if each)
        begin = next(lines)
        place, data = next(lines), next(lines)
    assert '"value":"1"' in data
    kafka_front.http.post("/sync/followed?key=a", content=b"2")
    accept |= {"Last-Event-ID": place.removeprefix("id: ")}
    with kafka_front.http.stream("GET", url, headers=accept) as reply:
        lines = (each for each in reply.iter_lines() if each)
        assert next(lines) == place != begin
        assert '"value":"2"' in list(zip(lines, range(2), strict=False))[1][0]
