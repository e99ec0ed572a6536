"""A segment read by ranges: what a read finds, up to a pointer, with its entries."""

import os

import pytest

from poe.errors import CorruptRecord, ReadFailed
from poe.record import decode_entries
from poe.storage import POINTER_MAX, decode_records
from tests.storage.segments import NOW, create, path_of, read_all, reopen

MESSAGES = [b"a", b"bb", b"ccc", b"dddd", b"eeeee"]
STORED = [(NOW + 10 * n, message) for n, message in enumerate(MESSAGES)]


def filled(files, **options):
    """A writer whose pointers have gaps between them."""
    segment = create(files, **options)
    for pointer, message in STORED:
        assert segment.append([message], pointer) == pointer
    return segment


def read_range(segment, pointer, last=POINTER_MAX, **asked):
    """Read a range, check its entries and its span, and return the records."""
    asked = {"limit": 100, "bytes_max": 10_000, **asked}
    found = segment.read_range(pointer, last, **asked)
    span = segment.span(pointer, last, **asked)
    assert (found is None) == (span is None)
    if found is None:
        return []
    assert span[1:] == found.records[1:]
    records = decode_records(found.records.read())
    pointers, offsets = decode_entries(found.entries)
    assert pointers.tolist() == [pointer for pointer, _ in records]
    assert len(pointers) == span.record_count
    for offset, record in zip(offsets.tolist(), records, strict=True):
        content = found.records.file.read_at(11 + len(record[1]), offset)
        assert decode_records(content) == [record]
    return records


def check_all_ranges(segment):
    for pointer in (0, *(p + step for p, _ in STORED for step in (-1, 0, 1)), POINTER_MAX):
        for last in (0, *(p + step for p, _ in STORED for step in (-1, 0, 1)), POINTER_MAX):
            expected = [each for each in STORED if pointer < each[0] <= last]
            assert read_range(segment, pointer, last) == expected
            assert read_range(segment, pointer, last, limit=2) == expected[:2]
            assert read_range(segment, pointer, last, bytes_max=1) == expected[:1]
            assert read_range(segment, pointer, last, limit=0) == []


@pytest.mark.parametrize("ack", ["flushed", "memory", "fsync"])
def test_a_range_has_what_lies_between_its_pointers_while_entries_wait_and_afterwards(files, ack):
    segment = filled(files, ack=ack, buffer_count_max=3)
    check_all_ranges(segment)
    segment.flush()
    check_all_ranges(segment)
    segment.hibernate()
    check_all_ranges(segment)
    segment.close()
    check_all_ranges(reopen(files))


@pytest.mark.parametrize("flushed", range(6))
def test_entries_come_from_the_file_and_from_memory(files, flushed):
    segment = create(files)
    for number, (pointer, message) in enumerate(STORED):
        if number == flushed:
            segment.flush()
        segment.append([message] if number % 2 else [message] * 3, pointer)
    expected = read_all(segment)
    for start in range(len(expected)):
        before = expected[start - 1][0] if start else 0
        for stop in range(start, len(expected)):
            assert read_range(segment, before, expected[stop][0]) == expected[start : stop + 1]


def test_only_what_is_visible_is_found(files):
    segment = filled(files)
    visible = (3, sum(11 + len(message) for message in MESSAGES[:3]))
    assert read_range(segment, 0, visible=visible) == STORED[:3]
    assert read_range(segment, 0, STORED[1][0], visible=visible) == STORED[:2]
    assert read_range(segment, STORED[2][0], visible=visible) == []
    assert read_range(segment, 0, visible=(0, 0)) == []


def test_a_range_that_holds_nothing_wakes_nobody(files):
    segment = filled(files)
    segment.hibernate()
    last = STORED[-1][0]
    for pointer, end in ((last, POINTER_MAX), (5, 5), (last, 0)):
        assert read_range(segment, pointer, end) == []
    assert not segment.is_awake


def test_a_range_ends_before_damage_and_the_next_one_tells_of_it(tmp_path, files):
    segment = create(files)
    for message in (b"sound", b"damaged", b"sound, too"):
        segment.append([message] * 3, NOW)
        segment.flush()
    segment.close()
    data = path_of(tmp_path, "data")
    content = data.read_bytes()
    data.write_bytes(content.replace(b"damaged", b"DAMAGED", 1))
    opened = reopen(files)
    found = opened.read_range(0, POINTER_MAX, 100, 10_000)
    assert [m for _, m in decode_records(found.records.read())] == [b"sound"] * 3
    assert len(found.entries) == 3 * 12
    with pytest.raises(CorruptRecord) as caught:
        opened.read_range(NOW + 2, POINTER_MAX, 100, 10_000)
    assert (caught.value.pointer_low, caught.value.pointer) == (NOW + 3, NOW + 5)
    assert [m for _, m in read_range(opened, NOW + 5)] == [b"sound, too"] * 3


def test_damage_behind_the_range_is_nobodys_concern(tmp_path, files):
    segment = create(files)
    segment.append([b"sound"], NOW)
    segment.flush()
    segment.append([b"damaged"], NOW + 10)
    segment.close()
    data = path_of(tmp_path, "data")
    data.write_bytes(data.read_bytes().replace(b"damaged", b"DAMAGED"))
    opened = reopen(files)
    assert read_range(opened, 0, NOW + 9) == [(NOW, b"sound")]
    assert read_range(opened, NOW, NOW + 9) == []
    with pytest.raises(CorruptRecord):
        opened.read_range(NOW, NOW + 10, 100, 10_000)


@pytest.mark.parametrize("suffix", ["index", "sum"])
@pytest.mark.parametrize("is_span", [False, True])
def test_a_damaged_index_is_made_anew_before_it_is_believed(tmp_path, files, suffix, is_span):
    filled(files).close()
    path = path_of(tmp_path, suffix)
    content = bytearray(path.read_bytes())
    content[-20] ^= 4
    path.write_bytes(content)
    opened = reopen(files)
    if is_span:
        found = opened.span(0, STORED[3][0], 100, 10_000)
        assert (found.last_pointer, found.record_count) == (STORED[3][0], 4)
    check_all_ranges(opened)


def test_an_index_that_was_cut_while_it_is_read_is_an_error(tmp_path, files):
    segment = filled(files)
    segment.close()
    assert read_range(segment, 0) == STORED
    os.truncate(path_of(tmp_path, "index"), 30)
    with pytest.raises((ReadFailed, CorruptRecord)):
        segment.read_range(0, POINTER_MAX, 100, 10_000)
