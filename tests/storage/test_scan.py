"""The scan finds records exactly up to the first that is none."""

import random
from itertools import accumulate

import pytest

from poe.storage.formats.record import encode_record, encode_records
from poe.storage.recovery.scan import scan_records
from tests.storage.segments import files_at


def written(tmp_path, data):
    file = files_at(tmp_path).open("topics/t/1_data", "w+")
    file.write_at(data, 0)
    return file


def sizes_of(kind: str) -> list[int]:
    dice = random.Random(7)
    return {
        "equal": [30] * 3000,
        "mixed": [dice.randrange(1, 400) for _ in range(1000)],
        "runs": [size for size in range(1, 60) for _ in range(dice.randrange(1, 120))],
        "larger than a chunk": [2_000_000, 5, 5, 1_048_576 - 11, 1_048_576, 3] * 2,
    }[kind]


@pytest.mark.parametrize("kind", ["equal", "mixed", "runs", "larger than a chunk"])
def test_every_record_of_good_data_is_found(tmp_path, kind):
    sizes = sizes_of(kind)
    data = encode_records([bytes(size) for size in sizes], 100, 1 << 24)[0]
    places = scan_records(written(tmp_path, data), 0, len(data), 99)
    assert places.pointers == list(range(100, 100 + len(sizes)))
    assert places.offsets == [0, *accumulate(size + 11 for size in sizes[:-1])]
    assert (places.end, places.last_pointer) == (len(data), 99 + len(sizes))


@pytest.mark.parametrize("number", [0, 1, 8, 9, 10, 72, 73, 300, 2998, 2999])
@pytest.mark.parametrize("damage", ["zeros", "pointer", "size", "too small", "too large", "end"])
def test_the_scan_ends_at_the_first_record_that_is_none(tmp_path, number, damage):
    records, _ = encode_records([bytes(30)] * 3000, 100, 1000)
    start = number * 41
    data, end = bytearray(records), len(records)
    if damage == "zeros":
        data[start:] = bytes(end - start)
    elif damage == "pointer":
        data[start + 4 : start + 11] = (99 + number).to_bytes(7, "big")
    elif damage == "size":
        # The header that this size leads to is none; so the record itself is still good.
        data[start : start + 4] = (36).to_bytes(4, "big")
        number, start = number + 1, start + 40
    elif damage == "too small":
        data[start : start + 4] = (6).to_bytes(4, "big")
    elif damage == "too large":
        data[start : start + 4] = b"\xff\xff\xff\xff"
    else:
        end = start + 40
    places = scan_records(written(tmp_path, data), 0, end, 99)
    assert (len(places.pointers), places.end) == (number, start)


def test_the_scan_may_start_behind_records_and_demands_greater_pointers(tmp_path):
    data, _ = encode_records([b"abc"] * 20, 100, 1000)
    file = written(tmp_path, data)
    places = scan_records(file, 14, 20 * 14, 100)
    assert places.pointers == list(range(101, 120))
    assert scan_records(file, 14, 20 * 14, 101).pointers == []


def test_an_empty_message_of_the_original_is_a_record(tmp_path):
    data = b"\0\0\0\7" + (5).to_bytes(7, "big") + encode_record(b"x", 6, 10)
    assert scan_records(written(tmp_path, data), 0, len(data), 0).pointers == [5, 6]


def test_a_file_shorter_than_said_ends_the_scan(tmp_path):
    data = encode_record(b"x", 6, 10)
    assert scan_records(written(tmp_path, data), 0, len(data) + 100, 0).end == len(data)
