"""Records have the bytes of the original, however they were encoded."""

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import CorruptRecord, InvalidMessage
from poe.storage import POINTER_MAX, decode_records
from poe.storage.formats.record import encode_record, encode_records

POINTER = 0x01020304050607
MESSAGES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=40)
EQUAL_MESSAGES = st.integers(1, 300).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=30)
)


def plainly_encoded(messages, first_pointer):
    """Encode as the format is written down, a message at a time."""
    return b"".join(
        (len(m) + 7).to_bytes(4, "big") + (first_pointer + i).to_bytes(7, "big") + m
        for i, m in enumerate(messages)
    )


def test_a_record_is_size_then_pointer_then_message():
    expected = b"\x00\x00\x00\x0c" + b"\x01\x02\x03\x04\x05\x06\x07" + b"hello"
    assert encode_record(b"hello", POINTER, 100) == expected
    assert bytes(encode_records([b"hello"], POINTER, 100)[0]) == expected


@given(MESSAGES | EQUAL_MESSAGES, st.integers(1, POINTER_MAX - 100))
def test_a_batch_has_the_bytes_of_its_messages_encoded_one_by_one(messages, first):
    data, starts = encode_records(messages, first, 1000)
    assert bytes(data) == plainly_encoded(messages, first)
    if starts is None:
        assert len(set(map(len, messages))) == 1
    else:
        expected = [sum(len(m) + 11 for m in messages[:i]) for i in range(len(messages))]
        assert starts.tolist() == expected
    views = [memoryview(message) for message in messages]
    assert bytes(encode_records(views, first, 1000)[0]) == plainly_encoded(messages, first)


def test_each_thread_encodes_into_memory_of_its_own():
    mine = encode_records([b"mine"] * 20, 1, 1000)[0]
    other = threading.Thread(target=encode_records, args=([b"else"] * 20, 50, 1000))
    other.start()
    other.join()
    assert bytes(mine) == plainly_encoded([b"mine"] * 20, 1)


@given(EQUAL_MESSAGES)
def test_a_matrix_cut_from_a_frame_gives_the_same_bytes_as_a_list(messages):
    frame = b"".join(len(m).to_bytes(4, "big") + m for m in messages)
    rows = np.frombuffer(frame, np.uint8).reshape(len(messages), -1)[:, 4:]
    assert bytes(encode_records(rows, 9, 1000)[0]) == plainly_encoded(messages, 9)


def test_sizes_and_pointers_use_all_their_bytes():
    message = b"x" * 0x10203
    rows = np.frombuffer(message * 2, np.uint8).reshape(2, -1)
    for messages in (rows, [message, message], [message, b"y"]):
        data = bytes(encode_records(messages, POINTER_MAX - 1, 1 << 24)[0])
        assert data[:11] == b"\x00\x01\x02\x0a" + b"\xff" * 6 + b"\xfe"
        assert data[len(message) + 15 :][:7] == b"\xff" * 7


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [b""],
        [b"a", b""],
        [b""] * 20,
        [b"x" * 11],
        [b"a", b"x" * 11],
        [b"x" * 11] * 20,
        np.empty((0, 5), np.uint8),
        np.empty((5, 0), np.uint8),
        np.zeros((2, 11), np.uint8),
    ],
)
def test_a_batch_with_an_empty_or_too_large_message_is_refused(messages):
    with pytest.raises(InvalidMessage) as caught:
        encode_records(messages, 1, 10)
    assert caught.value.message_max == 10
    assert caught.value.size_bytes in (0, 11)


@pytest.mark.parametrize("message", [b"", b"x" * 11])
def test_a_single_empty_or_too_large_message_is_refused(message):
    with pytest.raises(InvalidMessage):
        encode_record(message, 1, 10)


@given(MESSAGES)
def test_decoding_gives_back_what_was_encoded(messages):
    data = bytes(encode_records(messages, 5, 1000)[0])
    assert decode_records(data) == [(5 + i, m) for i, m in enumerate(messages)]


@pytest.mark.parametrize(
    "tail",
    [b"\0", b"\0" * 11, b"\0\0\0\6" + b"\0" * 7, b"\0\0\0\x09" + b"\0" * 7 + b"x", b"\xff" * 20],
)
def test_decoding_refuses_bytes_that_are_no_whole_records(tail):
    good = encode_record(b"hello", 5, 1000)
    with pytest.raises(CorruptRecord) as caught:
        decode_records(good + tail)
    assert caught.value.offset == len(good)


@pytest.mark.slow
def test_large_batches_of_tiny_messages_keep_no_memory():
    tracemalloc.start()
    for count in range(130_000, 130_040):
        encode_records([b"x"] * count, 1, 1000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4 * 1024 * 1024
