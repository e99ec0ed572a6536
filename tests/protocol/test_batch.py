from itertools import pairwise
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import LocalProtocolError, RemoteProtocolError
from poe.protocol import put as module
from poe.protocol.put import BATCH_COUNT_MAX, JoinedBatch, join_batch, split_batch

SIZE_MAX = 1 << 20
MESSAGES = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=60)
EQUAL_MESSAGES = st.integers(1, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=60)
)


def split(data: bytes | memoryview) -> list[bytes]:
    return [bytes(message) for message in split_batch(memoryview(data))]


def entry(message: bytes, length: int | None = None) -> bytes:
    return pack(">I", len(message) if length is None else length) + message


def test_batch_is_length_and_message_of_each():
    assert join_batch([b"a", b"bcd"], SIZE_MAX) == b"\0\0\0\x01a\0\0\0\x03bcd"
    assert join_batch([b"ab", b"cd"], SIZE_MAX) == b"\0\0\0\x02ab\0\0\0\x02cd"


@given(st.one_of(MESSAGES, EQUAL_MESSAGES))
def test_split_undoes_join(messages):
    assert split(join_batch(messages, SIZE_MAX)) == messages


@given(MESSAGES)
def test_batch_that_is_joined_already_is_taken_as_it_is(messages):
    data = join_batch(messages, SIZE_MAX)
    batch = JoinedBatch(data, len(messages))
    assert join_batch(batch, SIZE_MAX) is data
    assert [bytes(message) for message in batch] == messages
    assert bytes(batch[0]) == messages[0]


def test_batch_that_is_joined_already_keeps_the_limits():
    with pytest.raises(LocalProtocolError, match="at most 4 fit"):
        join_batch(JoinedBatch(entry(b"m"), 1), 4)
    with pytest.raises(LocalProtocolError, match="use at most"):
        join_batch(JoinedBatch(entry(b"m"), BATCH_COUNT_MAX + 1), SIZE_MAX)


@given(EQUAL_MESSAGES)
def test_equal_sizes_become_rows_of_one_view(messages):
    data = join_batch(messages, SIZE_MAX)
    rows = split_batch(memoryview(data))
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (len(messages), len(messages[0]))
    assert not rows.flags.owndata


@given(st.one_of(MESSAGES, EQUAL_MESSAGES))
def test_both_ways_to_split_agree(messages):
    view = memoryview(join_batch(messages, SIZE_MAX))
    assert [bytes(each) for each in module.walk_batch(view)] == split(view)


@given(st.binary(max_size=80))
def test_any_bytes_are_split_exactly_or_refused(data):
    try:
        messages = split(data)
    except RemoteProtocolError:
        return
    assert messages
    assert all(messages)
    assert b"".join(map(entry, messages)) == data


@given(MESSAGES, st.data())
def test_a_batch_cut_anywhere_but_between_messages_is_refused(messages, data):
    whole = join_batch(messages, SIZE_MAX)
    ends = [len(join_batch(messages[:count], SIZE_MAX)) for count in range(1, len(messages) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut in ends:
        assert split(whole[:cut]) == messages[: ends.index(cut) + 1]
    else:
        with pytest.raises(RemoteProtocolError):
            split(whole[:cut])


def test_first_length_that_divides_the_batch_is_not_believed_alone():
    # Two messages of 3 and 5 bytes: the size is twice that of a first message of 4.
    data = entry(b"abc") + entry(b"defgh")
    assert split(data) == [b"abc", b"defgh"]
    other = entry(b"abcd") + entry(b"e", 1) + b"xyz"
    with pytest.raises(RemoteProtocolError):
        split(other)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no message"),
        (b"\0\0\0", "no message"),
        (entry(b""), "message 0 .* is empty"),
        (entry(b"") * 3, "message 0 .* is empty"),
        (entry(b"a") + entry(b""), "message 1 .* is empty"),
        (entry(b"a") + entry(b"") + entry(b"bc"), "message 1 .* is empty"),
        (entry(b"abc", 4), "add up to 8 bytes, but 7"),
        (entry(b"abc", 2), "ends with 1 bytes"),
        (entry(b"abc") + entry(b"abc", 4), "add up to 15 bytes, but 14"),
        (entry(b"abc") + entry(b"abc", 2), "ends with 1 bytes"),
        (entry(b"abc", 0xFFFFFFFF), "add up to 4294967299 bytes"),
        (entry(b"abc") + entry(b"abc", 0xFFFFFFFF), "but 14 were sent"),
        (entry(b"abc") + b"\0\0\0", "ends with 3 bytes"),
    ],
)
def test_lengths_that_lie_are_refused(data, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        split(data)


@pytest.mark.parametrize("last", [b"a", b"bb"])
def test_more_messages_than_the_limit_are_refused(monkeypatch, last):
    monkeypatch.setattr(module, "BATCH_COUNT_MAX", 4)
    three, four = [b"a"] * 3 + [last], [b"a"] * 4 + [last]
    data = b"".join(map(entry, three))
    assert split(data) == three == split(join_batch(three, SIZE_MAX))
    with pytest.raises(RemoteProtocolError, match="put request of 5 messages is refused"):
        split(b"".join(map(entry, four)))
    with pytest.raises(LocalProtocolError, match="put request of 5 messages is refused"):
        join_batch(four, SIZE_MAX)


def test_a_batch_of_the_largest_count_is_taken():
    rows = split_batch(memoryview(entry(b"a") * BATCH_COUNT_MAX))
    assert len(rows) == BATCH_COUNT_MAX


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        (b"lone", "messages is one bytes; put it into a list"),
        ("lone", "messages is one str"),
        (bytearray(b"lone"), "messages is one bytearray"),
        ([b"a", b"", b"b"], r"messages\[1\] is empty"),
        ([b""], r"messages\[0\] is empty"),
        (["text"], r"messages\[0\] is of type str; use bytes"),
        ([b"a", "bc"], r"messages\[1\] is of type str"),
        ([1, 2], r"messages\[0\] is of type int"),
        (iter([b"a", 2]), r"messages\[1\] is of type int"),
        (7, "messages is of type int; use a list of bytes"),
        (memoryview(b""), "messages is one memoryview"),
        ([memoryview(b"abcd").cast("H")], "one-byte items"),
    ],
)
def test_what_cannot_be_joined_is_said_clearly(messages, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        join_batch(messages, SIZE_MAX)


def test_batch_beyond_the_frame_says_to_split():
    assert len(join_batch([b"12345", b"1234"], 17)) == 17
    with pytest.raises(LocalProtocolError, match=r"batch of 17 bytes, at most 16 .* split"):
        join_batch([b"12345", b"1234"], 16)


def test_any_bytes_likes_and_rows_are_joined():
    rows = np.frombuffer(b"abcdef", np.uint8).reshape(3, 2)
    assert split(join_batch(rows, SIZE_MAX)) == [b"ab", b"cd", b"ef"]
    mixed = (memoryview(bytearray(b"a")), memoryview(b"bc"), b"d")
    assert split(join_batch(mixed, SIZE_MAX)) == [b"a", b"bc", b"d"]
    assert split(join_batch(iter([b"a", b"b"]), SIZE_MAX)) == [b"a", b"b"]


@given(EQUAL_MESSAGES)
def test_rows_keep_the_messages_apart(messages):
    rows = split_batch(memoryview(join_batch(messages, SIZE_MAX)))
    assert all(bytes(row) == message for row, message in zip(rows, messages, strict=True))
    assert all(first.base is second.base for first, second in pairwise(rows))
