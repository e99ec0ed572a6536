"""Records are those of the original, however they are made."""

import random

import numpy as np
import pytest

from poe.storage.slab_log.record import (
    ROWS_COUNT_MIN,
    as_bytes,
    as_rows,
    count_within,
    decode,
    decode_checked,
    encode,
)
from tests.storage.slab_log.logs import messages, record

EVEN = [b"%07d" % number for number in range(ROWS_COUNT_MIN)]


def test_a_record_is_the_original_s_byte_by_byte():
    text = b"This is only a test."
    assert encode([text]) == bytes.fromhex("14000000 e17f218e") + text


@pytest.mark.parametrize("batch", [messages(50), [b""], [b"", b"x", b""], EVEN[:3]])
def test_a_list_makes_one_record_after_the_other(batch):
    assert encode(batch) == b"".join(map(record, batch))


def test_rows_make_the_same_records_as_a_list():
    rows = as_rows(EVEN)
    assert rows is not None
    assert bytes(encode(rows)) == b"".join(map(record, EVEN))


def test_a_part_of_rows_makes_its_records():
    rows = as_rows(EVEN)
    assert rows is not None
    assert bytes(encode(rows[3:9])) == b"".join(map(record, EVEN[3:9]))


def test_rows_are_a_copy():
    matrix = np.zeros((ROWS_COUNT_MIN, 5), np.uint8)
    rows = as_rows(matrix)
    assert rows is not None
    matrix[:] = 1
    assert not rows.any()


@pytest.mark.parametrize("batch", [EVEN[1:], [*EVEN, b"x"], [b""] * ROWS_COUNT_MIN])
def test_few_uneven_or_empty_messages_make_no_rows(batch):
    assert as_rows(batch) is None


@pytest.mark.parametrize("wrong", ["text", [1], None])
def test_what_holds_no_bytes_is_no_message(wrong):
    with pytest.raises(TypeError):
        as_rows([wrong] * ROWS_COUNT_MIN)


@pytest.mark.parametrize("shape", [(5, 3), (ROWS_COUNT_MIN, 3), (9,)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_matrix_that_is_none_of_bytes_is_refused(shape, dtype):
    matrix = np.zeros(shape, dtype)
    if dtype == np.uint8 and len(shape) == 2:
        assert (as_rows(matrix) is None) == (len(matrix) < ROWS_COUNT_MIN)
    else:
        with pytest.raises(TypeError, match="one message a row"):
            as_rows(matrix)


def test_what_can_change_is_copied():
    content = bytearray(b"before")
    copies = as_bytes(content), as_bytes(memoryview(content))
    content[:] = b"after!"
    assert copies == (b"before", b"before")


@pytest.mark.parametrize("batch", [messages(50), EVEN, [b""] * 5, [b"", b"16 bytes of text"]])
def test_records_come_apart_again(batch):
    data = bytes(encode(batch))
    for window in (decode(data, 100, len(batch)), decode_checked(data, 100)):
        assert window.messages == batch
        assert len(window.addresses) == len(batch) + 1
        assert window.addresses[0] == 100
        assert window.end == 100 + len(data)


def test_mixed_sizes_that_add_up_to_even_ones_come_apart():
    batch = [b"a" * 4, b"b" * 6, b"c" * 5]
    assert decode(bytes(encode(batch)), 0, 3).messages == batch


def test_a_cut_or_changed_record_ends_the_window():
    batch = messages(9)
    data = bytes(encode(batch))
    last = len(data) - len(record(batch[-1]))
    for end in range(last, len(data)):
        assert decode_checked(data[:end], 0).messages == batch[:-1]
    for at in range(last, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        assert decode_checked(bytes(changed), 0).messages == batch[:-1]


@pytest.mark.parametrize("first", [0, 5, 40])
@pytest.mark.parametrize("room_bytes", [0, 1, 7, 8, 100, 1000, 100_000])
def test_a_slab_is_full_with_the_record_that_exceeds_it(first, room_bytes):
    seed = random.randrange(2**32)
    print("seed", seed)
    batch = messages(60, random.Random(seed).randrange(1000))
    count = count_within(batch, first, room_bytes)
    sizes = [len(record(each)) for each in batch[first:]]
    expected = next((n for n in range(1, len(sizes)) if sum(sizes[:n]) > room_bytes), len(sizes))
    assert count == expected


@pytest.mark.parametrize("room_bytes", [0, 14, 15, 16, 29, 30, 100_000])
def test_rows_fill_a_slab_like_a_list(room_bytes):
    rows = as_rows(EVEN)
    assert rows is not None
    assert count_within(rows, 7, room_bytes) == count_within(EVEN, 7, room_bytes)
