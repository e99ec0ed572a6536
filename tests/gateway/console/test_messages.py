"""Messages of the console: pages, one message, search, produce, dump, a tail, and one time."""

import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from poe.errors import CallTimeout, ConnectionClosed, RequestRefused
from poe.gateway.console import reading
from poe.gateway.console.messages import get_messages, get_search, post_again
from poe.node import Node
from poe.protocol import DescribedPartition, DescribedTopic, envelope
from poe.protocol.scan import Match, Scanned
from poe.record import POINTER_MAX
from poe.topic_properties import TopicProperties
from tests.gateway.console.conftest import Shown, visit_of


def put(console, topic, *messages):
    for each in messages:
        console.node.put(topic, each)


def rows(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["rows"]


def previews(reply):
    return [each["preview"] for each in rows(reply)]


@pytest.fixture
def hundred(console, topic):
    """A topic of a hundred messages."""
    put(console, topic, *(b"message %02d" % number for number in range(100)))
    return f"messages/{topic}"


def test_the_newest_are_shown_first_and_one_can_go_back_and_forth(console, hundred):
    newest = rows(console.http.get(hundred, params={"limit": 10}))
    assert [each["preview"] for each in newest] == [f"message {each}" for each in range(90, 100)]
    before = {"place": "before", "at": newest[0]["pointer"], "limit": 10}
    older = rows(console.http.get(hundred, params=before))
    assert [each["preview"] for each in older] == [f"message {each}" for each in range(80, 90)]
    after = {"place": "after", "at": older[-1]["pointer"], "limit": 10}
    assert rows(console.http.get(hundred, params=after)) == newest


def test_the_oldest_have_none_before_them(console, hundred):
    oldest = rows(console.http.get(hundred, params={"place": "oldest", "limit": 3}))
    assert [each["preview"] for each in oldest] == ["message 00", "message 01", "message 02"]
    before = {"place": "before", "at": oldest[0]["pointer"]}
    assert rows(console.http.get(hundred, params=before)) == []


def test_a_topic_without_messages_is_an_empty_page(console, topic):
    console.http.post("topics", json={"name": topic})
    assert rows(console.http.get(f"messages/{topic}")) == []


class Partial:
    """Answers of a partition, and does not of the topic that it is of."""

    async def describe(self, topic):
        if topic != b"orders-0":
            raise CallTimeout(topic, 10)
        part = DescribedPartition(topic, None, None, 0, 0, 0)
        return DescribedTopic(topic, b"", 0, 0, partitions=(part,))


async def test_a_connection_behind_an_answer_that_is_awaited_no_more_is_not_used_again():
    partial: Any = Partial()
    with pytest.raises(CallTimeout):
        await get_messages(visit_of(partial, topic="orders-0"))


def test_a_topic_that_there_is_not_is_told(console, topic):
    reply = console.http.get(f"messages/{topic}")
    assert reply.status_code == 404
    assert reply.json()["error"]["name"] == "UnknownTopic"


def test_of_large_messages_only_previews_come_and_the_newest_is_there(console, topic):
    put(console, topic, *(b"%d" % number * (5 << 20) for number in range(4)))
    reply = console.http.get(f"messages/{topic}")
    assert len(reply.content) < 20_000
    newest = rows(reply)[-1]
    assert newest["bytes"] == 5 << 20
    assert newest["preview"] == "3" * 2048
    whole = console.http.get(f"messages/{topic}/value", params={"pointer": newest["pointer"]})
    assert whole.json()["is_cut"]
    assert len(whole.json()["text"]) == 1 << 20
    raw = console.http.get(f"messages/{topic}/raw", params={"pointer": newest["pointer"]})
    assert raw.content == b"3" * (5 << 20)
    assert raw.headers["content-disposition"].startswith("attachment")
    assert raw.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("message", "form", "shown"),
    [
        (b"plain", "text", "plain"),
        ("ä".encode() * 2000, "text", "ä" * 1024),
        (b"\xff\x00", "hex", "ff 00"),
        (b"a\x00b", "hex", "61 00 62"),
        (b"<img src=x onerror=alert(1)>", "text", "<img src=x onerror=alert(1)>"),
    ],
)
def test_a_preview_is_text_where_it_is_some(console, topic, message, form, shown):
    put(console, topic, message)
    (row,) = rows(console.http.get(f"messages/{topic}"))
    assert (row["form"], row["preview"]) == (form, shown)


@pytest.mark.parametrize(
    ("form", "shown"),
    [("auto", "83 a1 61"), ("hex", "83 a1 61"), ("msgpack", "{'a': 1"), ("envelope", "83 a1 61")],
)
def test_a_message_is_decoded_as_was_asked(console, topic, form, shown):
    put(console, topic, b"\x83\xa1a\x01\xa1b\x02\xa1c\xc4\x01\xff")
    (row,) = rows(console.http.get(f"messages/{topic}"))
    found = console.http.get(
        f"messages/{topic}/value", params={"pointer": row["pointer"], "as": form}
    ).json()
    assert found["text"].startswith(shown)
    assert ("error" in found) == (form == "envelope")


def opened(console, topic, pointer, **asked):
    reply = console.http.get(f"messages/{topic}/value", params={"pointer": pointer, **asked})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_large_message_with_an_envelope_is_shown_as_one(console, topic):
    console.node.create_topic(topic, envelope=True)
    put(console, topic, envelope.encode(b"key", b"v" * (2 << 20), {"h": b"x"}))
    (row,) = rows(console.http.get(f"messages/{topic}"))
    found = opened(console, topic, row["pointer"])
    assert "error" not in found
    assert (found["key"], found["headers"], found["is_cut"]) == ("key", {"h": "x"}, True)
    assert found["text"] == "v" * (1 << 20)


@pytest.mark.parametrize(
    ("message", "is_exact"),
    [
        (envelope.encode(b"key", b"value", {"h": b"x"}), True),
        (envelope.encode(b"", b""), True),
        (envelope.encode(b"\xff", b"value"), False),
        (envelope.encode(b"key", b"\xff"), False),
        (envelope.encode(b"key", b"value", {"h": b"\xff"}), False),
        (envelope.encode(b"key", None), False),
        (b"no envelope", False),
    ],
)
def test_only_what_is_shown_as_it_is_can_be_put_again_as_it_is_shown(
    console, topic, message, is_exact
):
    console.node.create_topic(topic, envelope=True)
    put(console, topic, message)
    (row,) = rows(console.http.get(f"messages/{topic}"))
    assert opened(console, topic, row["pointer"])["is_exact"] is is_exact


def test_bytes_that_are_shown_as_text_are_not_what_is_shown(console, topic):
    put(console, topic, b"a\xff")
    (row,) = rows(console.http.get(f"messages/{topic}"))
    found = opened(console, topic, row["pointer"], **{"as": "text"})
    assert (found["text"], found["is_exact"]) == ("a\ufffd", False)


@pytest.mark.parametrize("message", [b"\x81\x90\xc0", b"\x91" * 1020 + b"\xc0"])
def test_what_msgpack_has_and_python_has_not_is_shown_as_bytes(console, topic, message):
    put(console, topic, message)
    (row,) = rows(console.http.get(f"messages/{topic}"))
    asked = {"pointer": row["pointer"], "as": "msgpack"}
    reply = console.http.get(f"messages/{topic}/value", params=asked)
    assert reply.status_code == 200, reply.text
    assert reply.json()["text"] == message.hex(" ")
    assert "cannot be shown as msgpack" in reply.json()["error"]


def test_a_pointer_without_a_message_is_told(console, hundred):
    reply = console.http.get(f"{hundred}/value", params={"pointer": 5})
    assert reply.status_code == 404
    assert "trimmed" in reply.json()["error"]["message"]


def test_a_search_says_how_far_it_has_looked(console, hundred):
    found = console.http.get(f"{hundred}/search", params={"text": "message 4"}).json()
    assert [each["preview"] for each in found["rows"]] == [f"message 4{each}" for each in range(10)]
    assert found["is_end"]
    assert int(found["looked_until"]) >= int(found["rows"][-1]["pointer"])
    later = {"text": "message", "after": found["rows"][-1]["pointer"]}
    assert previews(console.http.get(f"{hundred}/search", params=later))[0] == "message 50"


def test_a_search_may_be_a_regular_expression_and_a_wrong_one_is_told(console, hundred):
    asked = {"text": "[1-2]7$", "kind": "regex"}
    assert previews(console.http.get(f"{hundred}/search", params=asked)) == [
        "message 17",
        "message 27",
    ]
    reply = console.http.get(f"{hundred}/search", params={"text": "(", "kind": "regex"})
    assert reply.status_code in {400, 422, 502}
    assert console.http.get(f"{hundred}/search").status_code == 400
    too_long = console.http.get(f"{hundred}/search", params={"text": "x" * 1001})
    assert too_long.status_code == 400
    assert "longer than 1000 bytes" in too_long.json()["error"]["message"]


def test_what_is_found_on_a_topic_with_envelopes_is_shown_with_its_key(console, topic):
    console.node.create_topic(topic, envelope=True)
    texts = "a needle", "ä" * 5000 + " a needle", "a needle, and " + "y" * 5000
    put(console, topic, *(envelope.encode(b"key", each.encode()) for each in texts))
    found = rows(console.http.get(f"messages/{topic}/search", params={"text": "needle"}))
    assert [(each["form"], each["key"]) for each in found] == [("text", "key")] * 3
    assert all("a needle" in each["preview"] for each in found)
    assert found[0]["preview"] == "a needle"


@pytest.mark.parametrize("key", [None, b"".join(b"%d " % each for each in range(1000))])
def test_a_value_is_shown_from_where_it_matches_also_where_the_key_has_the_same_bytes(key):
    value = b"".join(b"%d " % each for each in range(1000))
    message = envelope.encode(key, value, {"like": value})
    begin = message.index(value, len(key or b""))
    told = reading.row(1, message, is_enveloped=True, at=begin + 1000)
    assert told["preview"].encode() == value[1000 : 1000 + reading.PREVIEW_BYTES]


class Trimmed:
    """Answers of a message that was there just now."""

    async def describe(self, topic):
        return DescribedTopic(topic, b"", 0, 0, TopicProperties(envelope=True))

    async def scan(self, *_, **__):
        match = Match(5, 0, 10_000, b"and a needle", 5000, 5006)
        return Scanned([match], 5, 10_000, is_end=True)

    async def read_range(self, *_):
        return SimpleNamespace(pairs=list)


async def test_what_was_trimmed_since_it_was_found_is_shown_as_far_as_it_was_told():
    trimmed: Any = Trimmed()
    told: Any = await get_search(visit_of(trimmed, b"text=needle", topic="orders"))
    assert [each["preview"] for each in told["rows"]] == ["and a needle"]


@pytest.mark.parametrize("before", ["", "x"])
def test_what_is_found_behind_many_letters_of_two_bytes_is_shown_as_text(console, topic, before):
    put(console, topic, (before + "ä" * 5000 + " a needle").encode())
    (found,) = rows(console.http.get(f"messages/{topic}/search", params={"text": "needle"}))
    assert (found["form"], found["preview"][-8:]) == ("text", "a needle")


def test_a_message_is_put_and_shown(console, topic):
    reply = console.http.post(f"messages/{topic}", json={"value": "from here"})
    assert reply.status_code == 200
    (row,) = rows(console.http.get(f"messages/{topic}"))
    assert (row["preview"], row["pointer"]) == ("from here", reply.json()["pointer"])


def test_keys_and_headers_go_onto_topics_with_envelopes_alone(console, topic):
    refused = console.http.post(f"messages/{topic}", json={"value": "x", "key": "k"})
    assert refused.status_code == 400
    made = {"name": topic, "properties": {"envelope": True}}
    assert console.http.post("topics", json=made).status_code == 200
    given = {"value": "x", "key": "k", "headers": {"a": "b"}}
    pointer = console.http.post(f"messages/{topic}", json=given).json()["pointer"]
    found = console.http.get(f"messages/{topic}/value", params={"pointer": pointer}).json()
    assert (found["key"], found["text"], found["headers"]) == ("k", "x", {"a": "b"})
    assert rows(console.http.get(f"messages/{topic}"))[0]["key"] == "k"


@pytest.mark.parametrize(
    "given",
    [{}, {"value": 1}, {"value": "x", "value_base64": "eA=="}, {"value_base64": "?"}, {"x": 1}],
)
def test_a_wrong_message_is_refused_and_nothing_is_put(console, topic, given):
    reply = console.http.post(f"messages/{topic}", json=given)
    assert reply.status_code == 400
    assert console.http.get(f"messages/{topic}").status_code == 404


def test_a_dump_is_lines_that_can_be_posted_again(console, hundred):
    reply = console.http.get(f"{hundred}/dump")
    lines = [json.loads(each) for each in reply.text.splitlines()]
    assert [each["value"] for each in lines] == [f"message {each:02}" for each in range(100)]
    part = {"after": lines[9]["pointer"], "last": lines[19]["pointer"], "limit": 5}
    found = console.http.get(f"{hundred}/dump", params=part).text.splitlines()
    assert [json.loads(each) for each in found] == lines[10:15]


def test_a_dump_of_no_message_is_empty_and_one_that_cannot_be_read_is_told(console, topic):
    console.node.create_topic(topic)
    assert console.http.get(f"messages/{topic}/dump").content == b""
    console.node.create_topic(f"{topic}-parts", partitions=2)
    reply = console.http.get(f"messages/{topic}-parts/dump")
    assert (reply.status_code, reply.json()["error"]["name"]) == (409, "PropertyMismatch")


@contextmanager
def tail(console, topic, **headers):
    """Yield states of a tail, and the ids of their events."""
    asked = {"params": {"view": f"tail:{topic}"}, "headers": headers}
    with console.http.stream("GET", "stream", **asked) as reply:
        yield _events(reply.iter_lines())


def _events(lines):
    data = None
    for line in lines:
        if line.startswith("data: "):
            data = json.loads(line[6:])
        elif line.startswith("id: "):
            yield data, line[4:]


def texts(state):
    return [each["preview"] for each in state["rows"]]


def test_a_tail_shows_what_is_put_from_now_on(console, topic):
    put(console, topic, b"old")
    with tail(console, topic) as events:
        assert next(events)[0] == {"rows": [], "skipped": 0}  # it has begun
        put(console, topic, b"new 1", b"new 2")
        found: list[str] = []
        while len(found) < 2:
            found += texts(next(events)[0])
        assert found == ["new 1", "new 2"]


def test_a_tail_that_was_cut_off_goes_on_where_it_was(console, topic):
    put(console, topic, b"old")
    with tail(console, topic) as events:
        next(events)
        put(console, topic, b"seen")
        state, at = next(events)
        assert texts(state) == ["seen"]
    put(console, topic, b"meanwhile")
    with tail(console, topic, **{"last-event-id": at}) as events:
        assert texts(next(events)[0]) == ["meanwhile"]
    asked = [("view", f"tail:{topic}"), ("view", "overview"), ("resume", at)]
    with console.http.stream("GET", "stream", params=asked) as reply:  # a tab with more views now
        assert texts(next(_events(reply.iter_lines()))[0]) == ["meanwhile"]
    with tail(console, f"{topic}", **{"last-event-id": "tail:other=5&x"}) as events:
        assert texts(next(events)[0]) == []


@pytest.mark.slow
def test_a_tail_has_no_gap_where_the_node_was_away(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        assert node.address is not None
        port = node.address[1]
        node.put("t", b"old")
        with Shown(node) as console, tail(console, "t") as events:
            next(events)
            node.put("t", b"before")
            assert texts(next(events)[0]) == ["before"]
            node.stop()
            with Node(dir=tmp_path, port=port) as again:
                again.put_many("t", [b"at once", b"and more"])
                found: list[str] = []
                while len(found) < 2:
                    state = next(events)[0]  # or why the node does not answer
                    found += texts(state) if "rows" in state else []
                assert found == ["at once", "and more"]


def test_all_topics_are_seen_as_they_were_at_one_time(console, topic):
    put(console, topic, b"first", b"second")
    first, second = rows(console.http.get(f"messages/{topic}"))
    for at, shown in (
        (int(first["pointer"]) - 1, None),
        (first["pointer"], "first"),
        (int(second["pointer"]) - 1, "first"),
        (second["pointer"], "second"),
    ):
        asked = {"time_us": at, "filter": topic}
        (row,) = rows(console.http.get("instant", params=asked))
        assert row["name"] == topic
        assert (row["last"] and row["last"]["preview"]) == shown


def test_one_of_several_partitions_is_looked_at_and_the_others_are_told(console, topic):
    console.node.create_topic(topic, partitions=2)
    put(console, f"{topic}-0", b"in the first")
    put(console, f"{topic}-1", b"in the second")
    for number, shown in enumerate(("in the first", "in the second")):
        told = console.http.get(f"messages/{topic}-{number}").json()
        assert [each["preview"] for each in told["rows"]] == [shown]
        assert [each["id"] for each in told["partitions"]] == [f"{topic}-0", f"{topic}-1"]
    first = console.http.get(f"messages/{topic}")
    assert previews(first) == ["in the first"]
    assert first.json()["id"] == f"{topic}-0"
    (row,) = rows(console.http.get("instant", params={"filter": topic}))
    assert (row["last"]["preview"], row["partition"]) == ("in the first", f"{topic}-0")


def test_a_topic_whose_name_ends_in_a_number_is_no_partition(console, topic):
    put(console, topic, b"x")
    put(console, f"{topic}-1", b"y")
    told = console.http.get(f"messages/{topic}-1").json()
    assert [each["id"] for each in told["partitions"]] == [f"{topic}-1"]


def test_a_dump_as_parquet_holds_each_message(console, topic, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra spark")
    console.node.create_topic(topic, envelope=True)
    for number in range(3):
        given = {"value": f"v{number}", "key": f"k{number}", "headers": {"h": "x"}}
        console.http.post(f"messages/{topic}", json=given)
    reply = console.http.get(f"messages/{topic}/dump", params={"as": "parquet"})
    assert reply.headers["content-type"] == "application/vnd.apache.parquet"
    path = tmp_path / "dump.parquet"
    path.write_bytes(reply.content)
    rows = pq.read_table(path).to_pylist()
    assert [(each["key"], each["value"]) for each in rows] == [
        (b"k0", b"v0"), (b"k1", b"v1"), (b"k2", b"v2")
    ]  # fmt: skip
    assert rows[0]["headers"] == [("h", b"x")]
    assert rows[0]["timestamp"].timestamp() * 1e6 == pytest.approx(rows[0]["pointer"], abs=1)


def test_a_dump_of_many_pieces_is_one_file(console, topic, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra spark")
    console.node.put_many(topic, [b"%d" % each for each in range(2500)])
    reply = console.http.get(f"messages/{topic}/dump", params={"as": "parquet"})
    path = tmp_path / "dump.parquet"
    path.write_bytes(reply.content)
    assert [int(each) for each in pq.read_table(path)["value"].to_pylist()] == list(range(2500))


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("json", '{"amount": {"gt": 97}}', [98, 99]),
        ("json", '{"user": {"id": ["u3", "u5"]}}', [3, 5]),
        ("cel", "body.amount > 97 && body.user.id.startsWith('u')", [98, 99]),
        ("json", '{"nothing": 1}', []),
    ],
)
def test_messages_are_found_by_their_fields(console, topic, kind, text, found):
    documents = [{"amount": each, "user": {"id": f"u{each}"}} for each in range(100)]
    put(console, topic, b"no json", *(json.dumps(each).encode() for each in documents))
    asked = {"kind": kind, "text": text}
    reply = console.http.get(f"messages/{topic}/search", params=asked)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert [json.loads(each["preview"])["amount"] for each in told["rows"]] == found
    assert told["is_end"] is True


def test_a_filter_that_fails_at_messages_tells_so(console, topic):
    put(console, topic, b'{"a": 1}', b'{"b": 1}')
    asked = {"kind": "cel", "text": "body.a == 1"}
    told = console.http.get(f"messages/{topic}/search", params=asked).json()
    assert (len(told["rows"]), told["failed"]) == (1, 1)
    assert "a" in told["reason"]


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("json", "{", "is no JSON"),
        ("json", '{"a": {"gt": true}}', "use a number or a text"),
        ("cel", "body.a ==", "at character"),
        ("cel", "1 + 1", "use what is true or false"),
        ("sql", "select", "give text or regex or json or cel"),
    ],
)
def test_what_is_no_filter_is_told(console, topic, kind, text, why):
    put(console, topic, b"{}")
    asked = {"kind": kind, "text": text}
    reply = console.http.get(f"messages/{topic}/search", params=asked)
    assert reply.status_code in {400, 422}
    assert why in reply.json()["error"]["message"]


def test_a_histogram_counts_messages_by_time(console, hundred):
    told = console.http.get(f"{hundred}/histogram").json()
    assert sum(told["counts"]) == 100
    assert len(told["times_us"]) == len(told["counts"]) + 1
    first = console.http.get(hundred, params={"place": "oldest", "limit": 1}).json()["rows"][0]
    part = {"after": int(first["pointer"]) - 1, "last": first["pointer"]}
    assert console.http.get(f"{hundred}/histogram", params=part).json()["counts"] == [1]


def test_messages_of_a_range_are_put_again_after_a_look(console, hundred, topic):
    shown = console.http.get(hundred, params={"place": "oldest"}).json()["rows"]
    given = {"after": shown[9]["pointer"], "last": shown[19]["pointer"], "to": f"{topic}-copy"}
    assert console.http.post(f"{hundred}/again", json={**given, "dry": True}).json() == {
        "messages": 10
    }
    assert f"{topic}-copy".encode() not in console.node.topics()
    done = console.http.post(f"{hundred}/again", json={**given, "dry": False})
    assert done.json() == {"messages": 10}
    copied = console.http.get(f"messages/{topic}-copy", params={"place": "oldest"})
    assert [each["preview"] for each in rows(copied)] == [each["preview"] for each in shown[10:20]]


class RunningFull:
    """A topic of 600 messages, beside one that takes no more than the first 500."""

    written = 0

    async def ordinal(self, _topic, pointer):
        return min(pointer, 600)

    async def describe(self, topic):
        return DescribedTopic(topic, b"", 0, 0)

    find_topic = describe

    async def read_range(self, _topic, after, _last, limit, _size):
        pairs = [(after + number, b"x") for number in range(1, limit + 1)]
        return SimpleNamespace(pairs=lambda: pairs)

    async def write(self, _topic, messages):
        if self.written:
            raise ConnectionClosed
        self.written += len(messages)


async def test_how_much_was_put_again_is_told_where_the_rest_is_refused():
    """Whoever asked for all of it once more would have the first ones twice."""

    async def body():
        return {"after": "0", "last": "600", "to": "full", "dry": False}

    visit: Any = visit_of(RunningFull(), topic="orders")
    visit.body, visit.record = body, lambda *_: None
    with pytest.raises(RequestRefused, match=r"500 of 600 .* up to pointer 500; then:") as refused:
        await post_again(visit)
    assert refused.value.status == 504


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"after": 1, "last": "2"},
        {"after": "1", "last": "2", "to": "", "dry": True},
        {"after": "1", "last": "9" * 5000, "to": "x", "dry": True},
        {"after": "1", "last": "2", "to": "\ud800", "dry": True},
    ],
)
def test_a_wrong_range_is_told(console, hundred, given):
    body, kind = json.dumps(given), {"Content-Type": "application/json"}
    reply = console.http.post(f"{hundred}/again", content=body, headers=kind)
    assert reply.status_code == 400


def test_a_range_is_not_put_onto_a_topic_of_another_kind(console, hundred, topic):
    console.node.create_topic(f"{topic}-enveloped", envelope=True)
    given = {"after": "0", "last": str(POINTER_MAX), "to": f"{topic}-enveloped", "dry": True}
    assert console.http.post(f"{hundred}/again", json=given).status_code == 409


def test_a_text_is_followed_through_all_topics(console, topic):
    console.node.create_topic(f"{topic}-b", envelope=True)
    put(console, topic, f"needle of {topic}".encode(), b"hay")
    given = {"value": "x", "key": f"needle of {topic}", "headers": {"poe-origin": f"{topic}/7"}}
    assert console.http.post(f"messages/{topic}-b", json=given).status_code == 200
    told = console.http.get("follow", params={"text": f"needle of {topic}"}).json()
    assert [each["topic"]["id"] for each in told["rows"]] == [topic, f"{topic}-b"]
    assert [each["origin"] for each in told["rows"]] == ["", f"{topic}/7"]
    assert told["is_whole"] is True
    past = {"text": f"needle of {topic}", "at": 1_000_000}
    assert console.http.get("follow", params=past).json()["rows"] == []
    assert console.http.get("follow", params={"text": "x" * 1001}).status_code == 400
    assert console.http.get("follow", params={"text": ""}).status_code == 400
