"""Requests that are well formed but ask for odd things, through every client."""

import pytest

from poe import Node
from poe.errors import (
    InvalidMessage,
    InvalidTopicName,
    LocalProtocolError,
    PoeError,
    PointerOutOfRange,
    RemoteProtocolError,
    UnknownTopic,
)
from poe.protocol import ControlRequest, ErrorReply, PointerRequest, PutRequest
from tests.scenarios.clients import RawClient
from tests.scenarios.conftest import TOPIC

HOSTILE_TOPICS = [
    b".",
    b"..",
    b"../evil",
    b"../../../../tmp/evil",
    b"/etc/evil",
    b"a/b",
    b"a\\b",
    b".hidden",
    b"a\0b",
    b"a\nb",
    b"a\n",
    b" ",
    b"CON:",
    b"%2e%2e%2fevil",
    b"\xff\xfe",
    "ünïcode".encode(),
    b"x" * 201,
    b"x" * 5000,
    b"*",
    b"$(touch evil)",
]
GOOD_TOPICS = [
    b"-",
    b"_",
    b"a.b",
    b"x" * 200,
    b"-rf",
    b"..."[1:].replace(b".", b"_"),
    b"con",
    b"0_data",
]


def texts(records):
    return [message for _, message in records]


def test_limit_0_gets_an_empty_reply(client):
    assert client.read(TOPIC, 0, 0) == []


def test_limit_1_gets_one_message(client):
    assert texts(client.read(TOPIC, 0, 1)) == [b"1"]


@pytest.mark.parametrize("limit", [3, 4, 2**31, 2**32 - 1])
def test_a_limit_beyond_what_there_is_gets_all(client, limit):
    assert texts(client.read(TOPIC, 0, limit)) == [b"1", b"2", b"3"]


def test_the_largest_pointer_finds_nothing(client):
    assert client.read(TOPIC, 2**56 - 1, 10) == []


def test_a_pointer_between_messages_finds_the_later_one(client):
    first = client.read(TOPIC, 0, 1)[0][0]
    assert texts(client.read(TOPIC, first - 1, 10)) == [b"1", b"2", b"3"]
    assert texts(client.read(TOPIC, first, 10)) == [b"2", b"3"]


@pytest.mark.parametrize("pointer", [-1, 2**56, 2**64])
def test_a_pointer_beyond_56_bits_is_refused_before_it_is_sent(client, pointer):
    with pytest.raises(PointerOutOfRange):
        client.read(TOPIC, pointer, 1)
    assert client.read(TOPIC, 0, 1)


@pytest.mark.parametrize("limit", [-1, 2**32])
def test_a_limit_beyond_32_bits_is_refused_before_it_is_sent(client, limit):
    with pytest.raises(LocalProtocolError):
        client.read(TOPIC, 0, limit)
    assert client.read(TOPIC, 0, 1)


def test_an_unknown_topic_reads_as_empty_and_does_not_come_into_being(client, node):
    assert client.read(b"unknown", 0, 10) == []
    assert node.topics() == [TOPIC]


def test_empty_topics_and_messages_are_refused_before_they_are_sent(client, node):
    for topic, messages in ((b"", [b"x"]), (TOPIC, []), (TOPIC, [b""]), (TOPIC, [b"x", b""])):
        with pytest.raises(LocalProtocolError):
            client.write(topic, messages)
    with pytest.raises(LocalProtocolError):
        client.read(b"", 0, 1)
    assert texts(client.read(TOPIC, 0, 10)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("topic", HOSTILE_TOPICS, ids=lambda topic: repr(topic[:20]))
def test_a_hostile_topic_name_gets_an_error_and_the_connection_stays(client, node, topic):
    before = everything_around(node)
    with pytest.raises(InvalidTopicName):
        client.write(topic, [b"x"])
    with pytest.raises(InvalidTopicName):
        client.control("create", topic=topic)
    assert client.read(topic, 0, 10) == []
    assert texts(client.read(TOPIC, 0, 10)) == [b"1", b"2", b"3"]
    assert node.topics() == [TOPIC]
    assert everything_around(node) == before


def everything_around(node):
    """Tell all paths in the folder that holds the node's base folder.

    But for `store.bound`, which a thread makes when something is put.
    """
    found = node.config.dir.parent.rglob("*")
    return sorted(path for path in found if not path.name.startswith("store.bound"))


@pytest.mark.parametrize("topic", GOOD_TOPICS, ids=lambda topic: repr(topic[:20]))
def test_a_strange_but_safe_topic_name_works(client, topic):
    client.write(topic, [b"x", b"y"])
    assert texts(client.read(topic, 0, 10)) == [b"x", b"y"]


def test_topics_that_differ_in_case_are_two(client):
    client.write(b"Case", [b"1"])
    client.write(b"case", [b"2"])
    assert texts(client.read(b"Case", 0, 10)) == [b"1"]
    assert texts(client.read(b"case", 0, 10)) == [b"2"]


def test_a_message_beyond_message_max_is_refused_and_nothing_of_its_batch_is_stored(tmp_path):
    with (
        Node(dir=tmp_path / "data", port=0, message_max=100) as node,
        RawClient(node.address) as raw,
    ):
        with pytest.raises(InvalidMessage, match="message_max"):
            raw.write(TOPIC, [b"ok", b"x" * 101])
        assert raw.read(TOPIC, 0, 10) == []
        raw.write(TOPIC, [b"x" * 100])
        assert len(raw.read(TOPIC, 0, 10)) == 1


@pytest.mark.parametrize("size", [1, 11, 65_535, 65_536, 65_537, 500_000])
def test_messages_of_all_sizes_come_back(client, size):
    message = bytes(number % 251 for number in range(size))
    client.write(b"sizes", [b"before", message, b"after"])
    records: list[tuple[int, bytes]] = []
    while found := client.read(b"sizes", records[-1][0] if records else 0, 100):
        records += found
    assert texts(records) == [b"before", message, b"after"]


# ---- control requests ---------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["", "nothing", "x" * 10_000, "__class__", "put"])
def test_an_unknown_op_gets_an_error_that_names_the_known_ones(node, op):
    with RawClient(node.address) as raw, pytest.raises(RemoteProtocolError):
        raw.control(op)


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("create", {}),
        ("create", {"topic": 7}),
        ("create", {"topic": None}),
        ("create", {"topic": ""}),
        ("create", {"topic": ["a"]}),
        ("last_put", {}),
        ("last_put", {"topic": b"t"}),
        ("last_put", {"topic": b"t", "producer": "p" * 16}),
        ("last_put", {"topic": b"t", "producer": b"p" * 17}),
        ("last_put", {"producer": b"p" * 16}),
        ("segments", {}),
        ("segments", {"topic": b""}),
        ("wait", {}),
        ("wait", {"topic": b"t"}),
        ("wait", {"topic": b"t", "pointer": -1, "timeout_s": 0}),
        ("wait", {"topic": b"t", "pointer": 2**56, "timeout_s": 0}),
        ("wait", {"topic": b"t", "pointer": "0", "timeout_s": 0}),
        ("wait", {"topic": b"t", "pointer": True, "timeout_s": 0}),
        ("wait", {"topic": b"t", "pointer": 0, "timeout_s": -1}),
        ("wait", {"topic": b"t", "pointer": 0, "timeout_s": 1e9}),
        ("wait", {"topic": b"t", "pointer": 0, "timeout_s": float("nan")}),
        ("wait", {"topic": b"t", "pointer": 0, "timeout_s": float("inf")}),
        ("wait", {"topic": b"t", "pointer": 0, "timeout_s": {}}),
        ("span", {"topic": b"t", "pointer": 0, "last": 1, "limit": 1}),
        ("span", {"topic": b"t", "pointer": 0, "last": 1.0, "limit": 1, "bytes_max": 1}),
        ("span", {"topic": b"t", "pointer": 0, "last": 1, "limit": 2**32, "bytes_max": 1}),
        ("span", {"topic": b"t", "pointer": -1, "last": 1, "limit": 1, "bytes_max": 1}),
        ("trim", {"topic": b"t"}),
        ("trim", {"topic": b"t", "pointer": 2**56}),
        ("trim", {"topic": b"never put onto", "pointer": 1}),
        ("delete", {}),
        ("delete", {"topic": b""}),
        ("delete", {"topic": b"never put onto"}),
    ],
)
def test_wrong_arguments_get_an_error_and_the_connection_stays(client, op, arguments):
    with pytest.raises(PoeError):
        client.control(op, **arguments)
    assert client.control("health")["status"] == "ok"


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("segments", {"topic": [b"x"] * 10_000}),
        ("last_put", {"topic": b"t", "producer": b"\xff" * 100_000}),
        ("wait", {"topic": b"t", "pointer": "x" * 100_000, "timeout_s": 0}),
        ("tree", {"all": {str(number): 0 for number in range(10_000)}}),
        ("pipeline_stop", {"name": "x" * 100_000}),
    ],
)
def test_an_error_shows_the_beginning_of_a_large_argument_alone(client, op, arguments):
    with pytest.raises(PoeError) as caught:
        client.control(op, **arguments)
    assert len(str(caught.value)) < 2000


def test_segments_of_an_unknown_topic_get_an_error(client):
    with pytest.raises(UnknownTopic):
        client.control("segments", topic=b"unknown")
    assert client.control("topics") == [TOPIC]


def test_arguments_that_nobody_asked_for_are_ignored(client):
    assert client.control("topics", x=1, y=[1, 2], z={"a": b"b"}) == [TOPIC]


def test_every_op_answers(client):
    assert client.control("topics") == [TOPIC]
    assert [role for _, role in client.control("status")[TOPIC]] == ["w"]
    segment = client.control("info")[TOPIC][0]
    assert (segment["count"], segment["role"]) == (3, "w")
    assert client.control("segments", topic=TOPIC) == [segment]
    assert client.control("sync") is None
    assert client.control("create", topic=b"new") is True
    assert client.control("topics") == [b"new", TOPIC]
    assert client.control("wait", topic=TOPIC, pointer=0, timeout_s=0) is True
    assert client.control("wait", topic=b"new", pointer=0, timeout_s=0) is False


def test_an_error_repeats_the_id_of_its_request(raw):
    raw.send(ControlRequest("segments", 2**64 - 1, {"topic": b"unknown"}).encode())
    _, body = raw.frame()
    assert ErrorReply.decode(memoryview(body)).id == 2**64 - 1


def test_refusals_keep_their_place_among_replies(raw):
    raw.send(
        PutRequest(b"../evil", [b"x"]).encode()
        + PointerRequest(TOPIC, 0, 1).encode()
        + PutRequest(b"a/b", [b"x"]).encode()
        + PutRequest(TOPIC, [b"4"]).encode()
    )
    types = [raw.frame()[0] for _ in range(4)]
    assert types == [18, 1, 18, 3]
