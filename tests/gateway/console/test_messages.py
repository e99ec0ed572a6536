"""Messages of the console: pages, one message, search, produce, dump, a tail, and one time."""

import itertools
import json
import threading

import pytest


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


def test_a_tail_shows_what_is_put_from_now_on(console, topic):
    put(console, topic, b"old")
    has_seen = threading.Event()

    def go_on():
        # Whether the tail has begun is not told; so one goes on until it has shown some.
        for number in itertools.count():
            put(console, topic, b"new %d" % number)
            if has_seen.wait(0.02):
                return

    putting = threading.Thread(target=go_on)
    putting.start()
    try:
        with console.http.stream("GET", "stream", params={"view": f"tail:{topic}"}) as reply:
            states = (json.loads(each[6:]) for each in reply.iter_lines() if each[:5] == "data:")
            found = [next(states), next(states)]
    finally:
        has_seen.set()
        putting.join()
    shown = [each["preview"] for state in found for each in state["rows"]]
    first = int(shown[0].removeprefix("new "))
    assert shown == [f"new {first + each}" for each in range(len(shown))]


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
