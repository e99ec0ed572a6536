from bisect import bisect_right
from operator import itemgetter
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from poe.errors import CorruptRecord
from poe.protocol.records import join_records, split_records, walk_records
from poe.record import POINTER_MAX

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
def test_of_records_cut_anywhere_all_that_can_be_trusted_are_told(records, data):
    """The last whole one cannot, if something other than a record follows it."""
    whole = join_records(records)
    ends = [len(join_records(records[:count])) for count in range(len(records) + 1)]
    cut = data.draw(st.integers(0, len(whole) - 1))
    whole_count = bisect_right(ends, cut) - 1
    if cut in ends:
        assert split_records(memoryview(whole[:cut])) == records[:whole_count]
    elif whole_count > 1:
        assert split_records(memoryview(whole[:cut])) == records[: whole_count - 1]
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
def test_of_what_lies_before_damage_only_the_last_record_is_not_trusted(damaged, behind):
    data = record(1, b"abc") + record(2, b"abc") + damaged + behind
    assert split_records(memoryview(data)) == [(1, b"abc")]


@pytest.mark.parametrize("damage", ["pointer", "size"])
def test_a_record_whose_own_damage_shows_in_the_next_one_is_not_told(damage):
    good = [record(number, b"message %d" % number) for number in range(1, 9)]
    wrong = record(1 << 50, b"message 4") if damage == "pointer" else record(4, b"message 4", 13)
    data = b"".join([*good[:3], wrong, *good[4:]])
    assert split_records(memoryview(data)) == [(n, b"message %d" % n) for n in (1, 2, 3)]


def test_messages_are_copies():
    data = bytearray(record(1, b"abc") + record(2, b"abc") + record(3, b"abcd"))
    records = split_records(memoryview(data))
    data[:] = b"\xff" * len(data)
    assert records == [(1, b"abc"), (2, b"abc"), (3, b"abcd")]
