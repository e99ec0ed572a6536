"""The index has the bytes of the original and finds what a list would find."""

import errno
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import ReadFailed, StorageFull
from poe.record import POINTER_MAX
from poe.storage.formats.record import OFFSET_MAX, decode_entry, encode_entries
from poe.storage.segment.record_reader import Index
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import files_at

PATH = "topics/t/1_index"


def numbers(values):
    return np.array(values, np.uint64)


def new_index(files):
    return Index(files.open(PATH, "w+"), PATH, 0)


def add_one(index, pointer, offset):
    index.add((pointer, offset, 1, 20))


def add(index, pointers, offsets):
    index.add(encode_entries(numbers(pointers), numbers(offsets)))


def test_an_entry_is_pointer_then_offset():
    entry = encode_entries(numbers([0x01020304050607]), numbers([0x08090A0B0C]))
    assert entry == bytes(range(1, 13))
    assert decode_entry(entry) == (0x01020304050607, 0x08090A0B0C)


def test_entries_use_all_their_bits(tmp_path):
    assert encode_entries(numbers([POINTER_MAX]), numbers([OFFSET_MAX])) == b"\xff" * 12
    index = new_index(files_at(tmp_path))
    add_one(index, POINTER_MAX - 1, OFFSET_MAX - 1)
    add(index, [POINTER_MAX], [OFFSET_MAX])
    assert index.entry(0) == (POINTER_MAX - 1, OFFSET_MAX - 1)
    assert index.entry(1) == (POINTER_MAX, OFFSET_MAX)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.integers(1, 3)), max_size=30),
    st.lists(st.integers(0, 300), max_size=30),
)
def test_entries_and_searches_agree_with_a_list(tmp_path_factory, steps, wanted):
    index = new_index(files_at(tmp_path_factory.mktemp("index")))
    model: list[tuple[int, int]] = []
    for gap, is_flushed, count in steps:
        first = (model[-1][0] if model else 0) + gap
        added = [(first + i, (len(model) + i) * 20) for i in range(count)]
        if count % 2:
            index.add((*added[0], count, 20))
        else:
            add(index, [p for p, _ in added], [o for _, o in added])
        model += added
        if is_flushed:
            index.flush()
        for pointer in wanted:
            number = sum(p <= pointer for p, _ in model)
            found = (number, model[number][1]) if number < len(model) else None
            assert index.search(pointer) == found
            assert index.hinted(pointer) in {None, found}
            if 0 < number < len(model):
                assert index.boundary(number) == (model[number - 1][0], model[number][1])
                index.hint(model[number - 1][0], number, model[number][1])
        assert [index.entry(i) for i in range(index.count)] == model


@pytest.mark.parametrize("counts", [[3], [4, 4, 4], [2, 3, 2], [1], [1, 1], [1, 2]])
def test_runs_are_encoded_as_their_entries_one_by_one(tmp_path, counts):
    files = files_at(tmp_path)
    index, plain = new_index(files), []
    offset = 2**32 - 50
    for start, count in enumerate(counts):
        pointer = POINTER_MAX - 1000 + 100 * start
        index.add((pointer, offset, count, 20))
        plain += [(pointer + number, offset + 20 * number) for number in range(count)]
        offset += 20 * count
    index.flush()
    content = files.open(PATH, "r").read_at(1000, 0)
    assert content == encode_entries(*(numbers(column) for column in zip(*plain, strict=True)))
    assert [index.entry(number) for number in range(len(plain))] == plain


def test_hints_of_many_consumers_take_bounded_memory(tmp_path):
    index = new_index(files_at(tmp_path))
    count = 5_000
    add(index, range(1, count + 1), range(count))
    index.flush()
    tracemalloc.start()
    for pointer in range(1, count + 1):
        index.hint(pointer + 1_000_000, pointer, pointer - 1)
        index.hint(pointer, pointer, pointer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024
    assert [index.search(pointer) for pointer in range(1, count)] == [
        (pointer, pointer) for pointer in range(1, count)
    ]


def test_flushed_entries_are_twelve_bytes_each_and_take_no_heap(tmp_path):
    files = files_at(tmp_path)
    index = new_index(files)
    for number in range(1, 10_001):
        add_one(index, number, number * 20)
    index.flush()
    assert files.size(PATH) == 120_000
    assert index.entry(9_999) == (10_000, 200_000)


def test_a_failing_flush_keeps_all_entries_for_the_next(tmp_path):
    files = FaultyFiles(files_at(tmp_path))
    index = new_index(files)
    add(index, range(1, 101), range(100))
    files.fail(0, errno.ENOSPC, "write_at")
    with pytest.raises(StorageFull):
        index.flush()
    assert index.entry(99) == (100, 99)
    add_one(index, 101, 100)
    index.flush()
    assert files.size(PATH) == 101 * 12
    assert [index.entry(i)[0] for i in range(101)] == list(range(1, 102))


def test_an_index_file_that_became_too_short_is_reported(tmp_path):
    files = files_at(tmp_path)
    index = Index(files.open(PATH, "w+"), PATH, 5)
    with pytest.raises(ReadFailed):
        index.entry(0)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no /proc to look into")
def test_what_a_consumer_walked_through_does_not_stay_in_the_process(tmp_path):
    index = new_index(files_at(tmp_path))
    count = 500_000
    add(index, range(1, count + 1), range(count))
    index.flush()
    for number in range(100, count, 100):
        pointer, offset = index.boundary(number)
        index.hint(pointer, number, offset)
    assert resident_bytes(tmp_path / PATH) < count * 12 / 4
    assert index.search(count - 1) == (count - 1, count - 1)


def resident_bytes(path):
    """Tell how much of a mapped file the process holds; the kernel names each mapping's file."""
    _, *mappings = Path("/proc/self/smaps").read_text().split(f"{path.resolve()}\n")
    assert mappings
    sizes = [re.findall(r"^Rss: +(\d+) kB", text, re.MULTILINE)[0] for text in mappings]
    return sum(map(int, sizes)) * 1024
