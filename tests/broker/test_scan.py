"""Searches in a topic: what they find, how far they look, and what bounds them."""

import errno
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe import Node
from poe.broker.requests.matcher import PREVIEW_MAX, Contains, Matches
from poe.errors import InvalidPattern, ReadFailed, RemoteProtocolError
from poe.protocol import IndexedRecords
from poe.record import encode_header
from poe.storage import FileSlice, decode_records
from tests.broker.nodes import connect

SMALL = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=12)


def indexed(messages: list[bytes], base: int = 0) -> IndexedRecords:
    """The records of messages, as an appendix server finds them."""
    entries, data = b"", b""
    for pointer, message in enumerate(messages, 1):
        entries += (pointer << 40 | len(data)).to_bytes(12, "big")
        data += encode_header(len(message), pointer) + message
    assert [each for _, each in decode_records(data)] == messages
    return IndexedRecords.of(entries, memoryview(data), base)


@given(SMALL, st.binary(min_size=1, max_size=3))
def test_bytes_are_found_as_the_obvious_loop_finds_them(messages, wanted):
    found = [(each.ordinal, each.match_at) for each in Contains(wanted).find(indexed(messages, 5))]
    expected = [(n + 5, m.find(wanted)) for n, m in enumerate(messages) if wanted in m]
    assert found == expected


@given(st.lists(st.sampled_from([b"\0\0\0\x08", b"\0" * 7, b"\0\x01a", b"a\0\0"]), min_size=1))
def test_what_headers_hold_is_not_found(messages):
    for wanted in (b"\0\0", b"\0\0\0\x08", b"\0\x01", b"a\0\0\0"):
        found = [each.ordinal for each in Contains(wanted).find(indexed(messages))]
        assert found == [number for number, each in enumerate(messages) if wanted in each]


def test_the_preview_of_a_long_message_has_the_match():
    message = b"a" * 100_000 + b"needle" + b"b" * 100_000
    (found,) = Contains(b"needle").find(indexed([message]))
    assert found.size_bytes == len(message)
    assert found.match_at == 100_000
    assert len(found.preview) == PREVIEW_MAX
    assert message[found.preview_at :].startswith(found.preview)
    assert b"needle" in found.preview


@given(SMALL, st.sampled_from([rb"a+b", rb"^\x00", rb"[a-c]{2}", rb"(x|y)z?$", rb"."]))
def test_regular_expressions_find_what_pythons_find(messages, pattern):
    pytest.importorskip("re2")
    found = [each.ordinal for each in Matches(pattern.decode()).find(indexed(messages))]
    expected = re.compile(pattern)
    # RE2 takes a pattern as text of UTF-8, of which `.` is a whole character.
    plain = all(max(each) < 128 for each in messages)
    if plain:
        assert found == [n for n, each in enumerate(messages) if expected.search(each)]


def test_a_pattern_that_would_blow_up_is_searched_in_linear_time():
    pytest.importorskip("re2")
    assert list(Matches("(a|a)*(a|a)*$x").find(indexed([b"a" * 100_000]))) == []


@pytest.mark.parametrize("pattern", ["(", "a{1000000}", r"(a)\1", "(?=a)"])
def test_patterns_that_are_none_are_refused_with_the_reason(pattern):
    pytest.importorskip("re2")
    with pytest.raises(InvalidPattern, match="cannot search by regular expression"):
        Matches(pattern)


def test_without_re2_regular_expressions_are_refused_with_the_cure(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    with pytest.raises(
        InvalidPattern, match=r"pip install '\.\[mapping\]' in a checkout, or search"
    ):
        Matches("a")


@pytest.fixture
def node(tmp_path):
    with Node(dir=tmp_path, port=0, count_limit=1000, check_interval=0.05) as node:
        yield node


def test_a_search_goes_on_where_the_last_call_ended(node):
    node.put_many("t", [b"message %d" % number for number in range(2000)])
    with connect(node) as client:
        after, found, calls = 0, [], 0
        while True:
            page = client.scan("t", after, contains=b"99", matches_max=3, bytes_max=10_000)
            found += [each.ordinal for each in page.matches]
            calls += 1
            after = page.looked_up_to
            assert page.looked_bytes <= 10_000
            if page.is_end:
                break
        assert found == [number for number in range(2000) if "99" in str(number)]
        assert calls > 4


def test_a_search_keeps_to_its_range_and_tells_pointers_and_ordinals(node):
    pointers = [node.put("t", b"m%d" % number) for number in range(10)]
    found = node.scan("t", pointers[2], contains="m", last=pointers[5])
    assert [each.pointer for each in found.matches] == pointers[3:6]
    assert [each.ordinal for each in found.matches] == [3, 4, 5]
    assert (found.is_end, found.looked_up_to) == (True, pointers[5])
    assert node.scan("t", pointers[-1], contains="m").looked_bytes == 0


def test_one_message_that_is_larger_than_a_piece_is_searched_whole(node):
    node.put("t", b"x" * 3_000_000 + b"end")
    found = node.scan("t", contains=b"end", bytes_max=1000)
    assert [each.match_at for each in found.matches] == [3_000_000]


def test_through_segments(node):
    for start in range(0, 5000, 500):
        node.put_many("t", [b"%d" % number for number in range(start, start + 500)])
        node.sync()
    assert [each.ordinal for each in node.scan("t", contains="4999").matches] == [4999]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "just one"),
        ({"contains": b"a", "regex": "a"}, "just one"),
        ({"contains": b""}, "1 to 1000"),
        ({"contains": b"a" * 1001}, "1 to 1000"),
        ({"regex": b"bytes"}, "1 to 1000"),
        ({"contains": 5}, "1 to 1000"),
        ({"contains": b"a", "bytes_max": 10**12}, "bytes_max"),
        ({"contains": b"a", "matches_max": -1}, "matches_max"),
        ({"contains": b"a", "after": -1}, "after"),
    ],
)
def test_wrong_arguments_are_refused(node, arguments, told):
    node.put("t", b"m")
    with pytest.raises(RemoteProtocolError, match=told):
        node.control("scan", topic=b"t", **arguments)


def test_others_are_served_while_one_searches(node):
    node.put_many("t", [b"x" * 1000] * 20_000)
    found = node.scan("t", contains="nothing", bytes_max=64 << 20)
    assert found.looked_bytes == 20_000 * 1011


def test_a_disk_that_does_not_give_what_is_searched_is_told(node, monkeypatch):
    """The connection ended instead, and in the node's own process the actor that had asked."""

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    node.put(b"t", b"needle")
    with connect(node) as client:
        assert client.scan(b"t", contains=b"needle").matches
        monkeypatch.setattr(FileSlice, "read", fail)
        for scan in (client.scan, node.scan):
            with pytest.raises(ReadFailed, match="records of topic b't'"):
                scan(b"t", contains=b"needle")
