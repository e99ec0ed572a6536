"""Topic names are their own folder names, or refused."""

import pytest

from poe.errors import InvalidTopicName
from poe.storage import check_topic
from poe.storage.topic_name import is_topic_folder


@pytest.mark.parametrize("topic", [b"t", b"the_topic", b"A-z.0_9", b"-", b"1..2", b"x" * 200])
def test_an_allowed_topic_is_its_own_folder_name(topic):
    assert check_topic(topic) == topic.decode()
    assert is_topic_folder(topic.decode())


@pytest.mark.parametrize(
    "topic",
    [
        b"",
        b".",
        b"..",
        b".hidden",
        b"../x",
        b"a/b",
        b"/",
        b"a\0b",
        b"a\n",
        b"\n",
        b"a b",
        b"\x80",
        "ä".encode(),
        b"%2e",
        b"a\\b",
        b"x" * 201,
        b"x" * 100_000,
    ],
)
def test_any_other_topic_is_refused(topic):
    with pytest.raises(InvalidTopicName) as caught:
        check_topic(topic)
    assert caught.value.topic == topic
    assert len(str(caught.value)) < 400


def test_folder_names_that_are_not_utf8_are_no_topics():
    assert not is_topic_folder("a\udcff")
    assert not is_topic_folder("lost+found")
