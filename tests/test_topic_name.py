"""Topic names are their own folder names, or escaped, or refused."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.errors import InvalidTopicName
from poe.topic_name import folder_name, original_topic_of, topic_in, topic_of, topic_text

PLAIN = [b"t", b"the_topic", b"A-z.0_9", b"-", b"1..2", b"x" * 200]
ODD = {
    b".": "%2E",
    b"..": "%2E.",
    b".hidden": "%2Ehidden",
    b"../x": "%2E.%2Fx",
    b"a/b": "a%2Fb",
    b"/": "%2F",
    b"a\0b": "a%00b",
    b"a\n": "a%0A",
    b"\n": "%0A",
    b"a b": "a%20b",
    b"\x80": "%80",
    "ä".encode(): "%C3%A4",
    b"%2e": "%252e",
    b"%2E": "%252E",
    b"%": "%25",
    b"a\\b": "a%5Cb",
    b"x" * 201: "x" * 201,
    b"x" * 255: "x" * 255,
    b"/" * 85: "%2F" * 85,
}
TOO_LONG = [b"x" * 256, b"/" * 86, b"." + b"x" * 253, b"x" * 100_000]
TOPICS = st.one_of(
    st.binary(min_size=1, max_size=90),
    st.text("./%2EeFfaä\0\n \\~", min_size=1, max_size=90).map(str.encode),
)


@pytest.mark.parametrize("names", ["strict", "escape"])
@pytest.mark.parametrize("topic", PLAIN)
def test_a_plain_topic_is_its_own_folder_name(topic, names):
    assert folder_name(topic, names) == topic.decode()
    assert topic_of(topic.decode()) == topic


@pytest.mark.parametrize("topic", [b"", *ODD, *TOO_LONG])
def test_any_other_topic_is_refused(topic):
    with pytest.raises(InvalidTopicName, match="names to escape") as caught:
        folder_name(topic)
    assert caught.value.topic == topic
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("topic", ODD)
def test_any_other_topic_is_escaped_on_request(topic):
    assert folder_name(topic, "escape") == ODD[topic]


@pytest.mark.parametrize("topic", [b"", *TOO_LONG])
def test_what_is_too_long_once_it_is_escaped_is_refused(topic):
    with pytest.raises(InvalidTopicName, match="1 to 255 bytes") as caught:
        folder_name(topic, "escape")
    assert caught.value.names == "escape"
    assert len(str(caught.value)) < 400


@given(TOPICS)
@example(b".")
@example(b"..")
@example(b"\xff" * 85)
def test_a_name_becomes_a_folder_and_the_folder_the_name_again(topic):
    try:
        folder = folder_name(topic, "escape")
    except InvalidTopicName:
        assert len(topic) * 3 > 255
        return
    assert topic_of(folder) == topic_in(folder) == topic
    assert original_topic_of(folder) is None
    assert folder.isascii()
    assert 1 <= len(folder) <= 255
    assert os.path.normpath(f"/topics/{folder}") == f"/topics/{folder}"
    assert "/" not in folder
    assert "\0" not in folder
    assert folder[0] != "."


@given(st.text("%0257EeFfax.+ \n", min_size=1, max_size=12))
@example("%2e")
@example("%41")
@example("a%2")
@example("%2E%2E")
def test_only_the_folder_that_is_made_for_a_topic_is_the_topic_s(folder):
    topic = topic_of(folder)
    assert topic is None or folder_name(topic, "escape") == folder


@pytest.mark.parametrize(
    ("folder", "topic"),
    [
        ("ä".encode().decode("latin-1"), "ä".encode()),
        ("日本".encode().decode("latin-1"), "日本".encode()),
        ("a b", b"a b"),
        ("100%", b"100%"),
        ("a%2fb", b"a%2fb"),
        ("ä", None),  # encoded once: the byte E4, or "ä" written with another locale
        ("日", None),
        (os.fsdecode(b"\xff"), None),
        (".hidden", None),
        ("plain", None),
        ("a%20b", None),
        ("ä".encode().decode("latin-1") * 63, "ä".encode() * 63),
    ],
)
def test_a_folder_of_the_original_is_known_where_it_can_be_of_one_topic_only(folder, topic):
    assert original_topic_of(folder) == topic


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (b"orders", "orders"),
        ("bücher & mehr".encode(), "bücher & mehr"),
        (b"a\nb\x1b[2J", r"a\nb\x1b[2J"),
        (b"\xff", r"\xff"),
        (rb"\xff", r"\\xff"),
        ("\u202e\x9b".encode(), r"\u202e\x9b"),
    ],
)
def test_a_topic_for_people_breaks_no_line(topic, text):
    assert topic_text(topic) == text
