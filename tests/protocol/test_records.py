from bisect import bisect_right
from operator import itemgetter
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.errors import CorruptRecord
from poe.protocol.records import POINTER_MAX, join_records, split_records, walk_records

POINTERS = st.integers(0, POINTER_MAX)


def rising(messages):
    """Give messages rising pointers."""
    pointers = st.lists(POINTERS, min_size=len(messages), max_size=len(messages), unique=True)
    return pointers.map(lambda found: list(zip(sorted(found), messages, strict=True)))


RECORDS = st.lists(st.binary(max_size=20), max_size=40).flatmap(rising)
EQUAL_RECORDS = (
    st.integers(0, 20)
    .flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=40))
    .flatmap(rising)
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
@example([(0, b"a\0"), (POINTER_MAX, b"\0\0")])
@example([(1, b"")])
def test_split_undoes_join(records):
    assert split_records(memoryview(join_records(records))) == records


@given(EQUAL_RECORDS)
def test_both_ways_to_split_agree(records):
    data = memoryview(join_records(records))
    assert walk_records(data) == split_records(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_split_up_to_the_first_damage_or_refused(data):
    try:
        records = split_records(memoryview(data))
    except CorruptRecord:
        return
    assert data.startswith(join_records(records))
    assert records == sorted(records, key=itemgetter(0))


@given(RECORDS.filter(bool), st.data())
def test_of_records_cut_anywhere_the_whole_ones_are_told(records, data):
    whole = join_records(records)
    ends = [len(join_records(records[:count])) for count in range(len(records) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    whole_count = bisect_right(ends, cut) - 1
    if whole_count or not cut:
        assert split_records(memoryview(whole[:cut])) == records[:whole_count]
    else:
        with pytest.raises(CorruptRecord):
            split_records(memoryview(whole[:cut]))


DAMAGED = [
    b"\0",
    record(1, b"abc")[:-1],
    record(3, b"abc", 6),
    record(3, b"abc", 0),
    record(3, b"abc", 0xFFFFFFFF),
    bytes(14),
]


@pytest.mark.parametrize("damaged", [*DAMAGED, record(3, b"abc", 11)])
def test_a_damaged_first_record_is_refused(damaged):
    with pytest.raises(CorruptRecord, match="poe check"):
        split_records(memoryview(damaged))


@pytest.mark.parametrize("damaged", [*DAMAGED, record(2, b"abc"), record(1, b"abc")])
@pytest.mark.parametrize("behind", [b"", record(9, b"abc") * 9, record(9, b"abcd")])
def test_damage_behind_good_records_takes_nothing_from_them(damaged, behind):
    data = record(1, b"abc") + record(2, b"abc") + damaged + behind
    assert split_records(memoryview(data)) == [(1, b"abc"), (2, b"abc")]


def test_messages_are_copies():
    data = bytearray(record(1, b"abc") + record(2, b"abc") + record(3, b"abcd"))
    records = split_records(memoryview(data))
    data[:] = b"\xff" * len(data)
    assert records == [(1, b"abc"), (2, b"abc"), (3, b"abcd")]
