from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.errors import RemoteProtocolError
from poe.protocol.records import POINTER_MAX, join_records, split_records, walk_records

POINTERS = st.integers(0, POINTER_MAX)
RECORDS = st.lists(st.tuples(POINTERS, st.binary(max_size=20)), max_size=40)
EQUAL_RECORDS = st.integers(0, 20).flatmap(
    lambda size: st.lists(st.tuples(POINTERS, st.binary(min_size=size, max_size=size)), max_size=40)
)


def record(pointer: int, message: bytes, size: int | None = None) -> bytes:
    length = 7 + len(message) if size is None else size
    return pack(">I", length) + pointer.to_bytes(7, "big") + message


def test_record_is_size_pointer_message():
    data = b"\0\0\0\x09\x04\xd5\xd1\xf6\xa1\xb2\xc3hi"
    assert split_records(memoryview(data)) == [(0x04D5D1F6A1B2C3, b"hi")]
    assert join_records([(0x04D5D1F6A1B2C3, b"hi")]) == data


def test_no_bytes_are_no_records():
    assert split_records(memoryview(b"")) == []


@given(st.one_of(RECORDS, EQUAL_RECORDS))
@example([(POINTER_MAX, b"\0\0"), (0, b"a\0")])
@example([(1, b"")])
def test_split_undoes_join(records):
    assert split_records(memoryview(join_records(records))) == records


@given(EQUAL_RECORDS)
def test_both_ways_to_split_agree(records):
    data = memoryview(join_records(records))
    assert walk_records(data) == split_records(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_split_exactly_or_refused(data):
    try:
        records = split_records(memoryview(data))
    except RemoteProtocolError:
        return
    assert join_records(records) == data


@given(RECORDS.filter(bool), st.data())
def test_records_cut_anywhere_but_between_them_are_refused(records, data):
    whole = join_records(records)
    ends = [len(join_records(records[:count])) for count in range(len(records) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    if cut in ends:
        assert split_records(memoryview(whole[:cut])) == records[: ends.index(cut)]
    else:
        with pytest.raises(RemoteProtocolError):
            split_records(memoryview(whole[:cut]))


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        record(1, b"abc")[:-1],
        record(1, b"abc") + b"\0",
        record(1, b"abc", 6),
        record(1, b"abc", 0),
        record(1, b"abc", 0xFFFFFFFF),
        record(1, b"abc", 11),
        record(1, b"abc") + record(2, b"abc", 9),
        record(1, b"abc") + record(2, b"abc", 6),
        record(1, b"abc") + record(2, b"abc", 0xFFFFFFFF),
    ],
)
def test_sizes_that_lie_are_refused(data):
    with pytest.raises(RemoteProtocolError):
        split_records(memoryview(data))


def test_messages_are_copies():
    data = bytearray(record(1, b"abc") * 2 + record(1, b"abcd"))
    records = split_records(memoryview(data))
    data[:] = b"\xff" * len(data)
    assert records == [(1, b"abc"), (1, b"abc"), (1, b"abcd")]
