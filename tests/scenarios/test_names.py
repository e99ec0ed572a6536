"""Topics with names that are no folder names, through every client, where they are escaped."""

import pytest

from poe import Node
from poe.errors import InvalidTopicName, TopicFailed
from tests.scenarios.clients import CLIENTS, RawClient
from tests.scenarios.test_arguments import HOSTILE_TOPICS

TOPICS = sorted(topic for topic in HOSTILE_TOPICS if len(topic) < 256)


@pytest.fixture
def escaping(tmp_path):
    with Node(dir=tmp_path / "base" / "data", port=0, names="escape") as node:
        yield node


@pytest.mark.parametrize("kind", CLIENTS)
def test_topics_with_any_name_are_stored_told_and_found_again(escaping, tmp_path, kind):
    client = CLIENTS[kind](escaping.address)
    for topic in TOPICS:
        pointer = client.write(topic, [topic, b"more"])
        assert client.read(topic, pointer - 1, 1) == [(pointer, b"more")]
    assert client.control("topics") == TOPICS
    assert sorted(client.control("status")) == TOPICS
    client.close()
    escaping.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["base"]
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["data"]
    escaping.start()
    assert escaping.topics() == TOPICS
    for topic in TOPICS:
        assert escaping.next(topic, 0)[1] == topic


@pytest.mark.parametrize("topic", [b"x" * 256, b"/" * 86, b"x" * 5000])
def test_a_name_that_is_too_long_is_refused_by_its_length(escaping, topic):
    with RawClient(escaping.address) as raw:
        for refused in (
            lambda: raw.write(topic, [b"x"]),
            lambda: raw.control("create", topic=topic),
            lambda: raw.control("wait", topic=topic, pointer=0, timeout_s=60),
        ):
            with pytest.raises(InvalidTopicName, match="1 to 255 bytes"):
                refused()
        assert raw.read(topic, 0, 1) == []
    assert escaping.topics() == []


def test_news_of_a_name_that_no_topic_can_have_are_not_waited_for(node, raw):
    with pytest.raises(InvalidTopicName, match="names to escape"):
        raw.control("wait", topic=b"a/b", pointer=0, timeout_s=60)
    raw.control("wait", topic=b"later", pointer=0, timeout_s=0)


def test_a_strict_node_tells_who_asks_for_a_topic_that_needs_escape(escaping):
    escaping.put(b"a b", b"kept")
    base = escaping.config.dir
    escaping.stop()
    with Node(dir=base, port=0) as strict, RawClient(strict.address) as raw:
        assert strict.topics() == [b"a b"]
        for refused in (lambda: raw.read(b"a b", 0, 1), lambda: raw.write(b"a b", [b"x"])):
            with pytest.raises(TopicFailed, match="option names to escape"):
                refused()
        assert raw.control("status") == {b"a b": []}
        assert strict.put(b"other", b"x")
    escaping.start()
    assert escaping.next(b"a b", 0)[1] == b"kept"
    assert escaping.next(b"other", 0)[1] == b"x"


def test_the_tree_and_the_status_break_no_line(escaping, capsys):
    escaping.put(b"a\nb\x1b[2J", b"x")
    rows = escaping.control("tree", all=True)
    assert r"w a\nb\x1b[2J" in [row["role"] for row in rows]
    escaping.print_status()
    assert capsys.readouterr().out == "a\\nb\\x1b[2J\t:w\n"
