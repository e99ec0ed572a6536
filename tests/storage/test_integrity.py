"""No changed byte is served as if it were whole, and none costs more than the batch around it.

All bits and cuts are tried by the scenarios `flips`, `swap` and `torn` of torture.
"""

import contextlib

import pytest
from xxhash import xxh3_64_intdigest

from poe.errors import CorruptRecord
from poe.storage import check_segments
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.record import encode_records
from poe.storage.formats.sum_file import SUMS, hash_of
from poe.storage.recovery.recovery import NO_STORE, read_sums, recover
from poe.storage.recovery.scrub import scrub
from poe.storage.segment.verification import Verification
from tests.storage.segments import (
    FOLDER,
    NOW,
    create,
    files_at,
    path_of,
    read_all,
    read_around,
    reopen,
    some_of,
)

BATCHES = [[b"first"], [b"a", b"bb", b"ccc"], [b"equal"] * 5, [b"y", b"z" * 9]]
STORED = [(NOW + n, m) for n, m in enumerate(message for batch in BATCHES for message in batch)]
FILES = ["data", "index", "sum"]
SEGMENT_PATH = f"{FOLDER}/{NOW}"


def closed(base):
    """A closed segment with an entry of the sums for each batch."""
    files = files_at(base)
    segment = create(files)
    for batch in BATCHES:
        segment.append(batch, NOW)
        segment.flush()
    segment.close()
    return files


def bounds():
    """The first number of each batch, and the number behind the last."""
    starts = [0]
    for batch in BATCHES:
        starts.append(starts[-1] + len(batch))
    return starts


def batch_at(offset):
    """The numbers of the records of the batch that a byte of the data is part of."""
    ends = [0]
    for _, message in STORED:
        ends.append(ends[-1] + 11 + len(message))
    starts = bounds()
    number = next(n for n in range(len(BATCHES)) if offset < ends[starts[n + 1]])
    return range(starts[number], starts[number + 1])


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_found_by_a_check(tmp_path, file):
    files = closed(tmp_path)
    path = path_of(tmp_path, file)
    whole = path.read_bytes()
    for bit in some_of(len(whole) * 8):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        [check] = check_segments(files)
        assert check.damage, bit
    path.write_bytes(whole)
    [check] = check_segments(files)
    assert not check.damage


def test_records_that_another_program_has_appended_are_noted(tmp_path):
    files = closed(tmp_path)
    size_bytes = path_of(tmp_path, "data").stat().st_size
    pointer = STORED[-1][0] + 1
    theirs, _ = encode_records([b"theirs"], pointer, 100)
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(theirs)
    with path_of(tmp_path, "index").open("ab") as index:
        index.write(pointer.to_bytes(7, "big") + size_bytes.to_bytes(5, "big"))
    [check] = check_segments(files)
    assert check.notes == ["17 bytes of another program have no checksums"]
    assert not check.damage


@pytest.mark.parametrize("limit", [1, 100])
def test_whatever_byte_of_the_data_is_changed_at_most_its_batch_is_lost(tmp_path, limit):
    files = closed(tmp_path)
    path = path_of(tmp_path, "data")
    whole = path.read_bytes()
    for offset in some_of(len(whole)):
        content = bytearray(whole)
        content[offset] ^= 0x10
        path.write_bytes(content)
        lost = batch_at(offset)
        expected = [record for n, record in enumerate(STORED) if n not in lost]
        # Opened twice: the first may have had to mark what is damaged.
        for _ in range(2):
            assert read_around(reopen(files), limit) == expected
        assert path.read_bytes() == content
        restore(tmp_path, files, whole)


def restore(base, files, data):
    """Make the segment anew, since marks stay."""
    for suffix in FILES:
        path_of(base, suffix).unlink()
    closed(base)
    assert path_of(base, "data").read_bytes() == data
    del files


@pytest.mark.parametrize("file", ["index", "sum"])
def test_whatever_byte_beside_the_data_is_changed_nothing_is_lost(tmp_path, file):
    files = closed(tmp_path)
    contents = {suffix: path_of(tmp_path, suffix).read_bytes() for suffix in FILES}
    for offset in some_of(len(contents[file])):
        content = bytearray(contents[file])
        content[offset] ^= 0x10
        for suffix in FILES:
            path_of(tmp_path, suffix).write_bytes(contents[suffix])
        path_of(tmp_path, file).write_bytes(content)
        assert read_around(reopen(files), 1) == STORED, offset
        assert read_around(reopen(files), 100) == STORED, offset


def test_with_an_early_entry_damaged_and_the_last_ones_gone_the_index_tells_what_was_stored(
    tmp_path,
):
    """Records behind the bridge over a damaged entry have no sums, but are in the index."""
    files = closed(tmp_path)
    path = path_of(tmp_path, "sum")
    whole = path.read_bytes()
    # The last batch has its entry, and the close one more.
    for end in range(len(whole) - 2 * SUMS.size_bytes + 1, len(whole)):
        content = bytearray(whole[:end])
        content[FILE_HEADER_BYTES + 20] ^= 0x10
        path.write_bytes(content)
        assert read_all(reopen(files)) == STORED, end


def test_sums_that_tell_of_an_end_far_behind_the_data_take_no_time(tmp_path):
    files = closed(tmp_path)
    data = files.open(path_of(tmp_path, "data").relative_to(tmp_path).as_posix(), "r")
    assert hash_of(data, 0, 1 << 63) == hash_of(data, 0, data.size())


def test_sums_that_tell_of_more_index_entries_than_there_are_make_no_file_larger(tmp_path):
    files = closed(tmp_path)
    path = path_of(tmp_path, "sum")
    entries = read_sums(files, SEGMENT_PATH, NO_STORE).entries
    # The hash is that of what such an index holds: nothing.
    last = entries[-1].entry._replace(record_count=2**32 - 1, index_hash=xxh3_64_intdigest(b""))
    forged, _ = SUMS.encode([last], entries[-2].chain)
    path.write_bytes(path.read_bytes()[: -SUMS.size_bytes] + forged)
    index_bytes = path_of(tmp_path, "index").read_bytes()
    with pytest.raises(CorruptRecord):
        Verification(files, SEGMENT_PATH, NO_STORE, is_once=True).open()
    with pytest.raises(CorruptRecord):
        list(scrub(files, SEGMENT_PATH))
    for _ in range(2):
        with contextlib.suppress(CorruptRecord):
            assert read_all(reopen(files)) == STORED
        assert path_of(tmp_path, "index").read_bytes() == index_bytes


def test_a_changed_byte_of_the_sums_header_is_mended_by_the_first_read(tmp_path):
    files = closed(tmp_path)
    path = path_of(tmp_path, "sum")
    whole = path.read_bytes()
    for offset in range(FILE_HEADER_BYTES):
        content = bytearray(whole)
        content[offset] ^= 0x10
        segment = reopen(files)
        path.write_bytes(content)
        assert read_around(segment, 100) == STORED, offset
        [check] = check_segments(files)
        assert not check.damage, offset


@pytest.mark.parametrize("file", FILES)
def test_wherever_a_file_is_cut_the_batches_before_are_there(tmp_path, file):
    files = closed(tmp_path)
    contents = {suffix: path_of(tmp_path, suffix).read_bytes() for suffix in FILES}
    ends = [0]
    for _, message in STORED:
        ends.append(ends[-1] + 11 + len(message))
    for size in some_of(len(contents[file])):
        for suffix in FILES:
            path_of(tmp_path, suffix).write_bytes(contents[suffix])
        path_of(tmp_path, file).write_bytes(contents[file][:size])
        expected = STORED
        if file == "data":
            expected = STORED[: max(n for n in bounds() if ends[n] <= size)]
        assert read_all(reopen(files)) == expected
        [check] = check_segments(files)
        assert not check.damage


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_segment_is_not_taken_for_one_s_own(tmp_path, file):
    """Swapped, each of the two serves nothing that it never stored."""
    files = closed(tmp_path)
    other = create(files, NOW + 1000)
    others = [(NOW + 1000 + n, b"other%d" % n) for n in range(len(STORED))]
    other.append([m for _, m in others], NOW)
    other.close()
    mine, theirs = path_of(tmp_path, file), path_of(tmp_path, file, NOW + 1000)
    content = mine.read_bytes()
    mine.write_bytes(theirs.read_bytes())
    theirs.write_bytes(content)
    for timestamp, stored in ((NOW, STORED), (NOW + 1000, others)):
        found = read_around(reopen(files, timestamp), 100)
        if file == "data":
            assert set(found) <= {*STORED, *others}
        else:
            assert found == stored


def test_a_segment_from_an_earlier_version_gets_sums_when_it_is_written_to(tmp_path):
    files = closed(tmp_path)
    path_of(tmp_path, "sum").unlink()
    segment = reopen(files)
    assert read_all(segment) == STORED
    assert not path_of(tmp_path, "sum").exists()
    segment.unseal()
    assert path_of(tmp_path, "sum").exists()
    segment.append([b"more"], 0)
    segment.close()
    expected = [*STORED, (NOW + len(STORED), b"more")]
    assert read_all(reopen(files)) == expected
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[11] ^= 1
    path_of(tmp_path, "data").write_bytes(content)
    with contextlib.suppress(CorruptRecord):
        reopen(files).next(0)
        pytest.fail("a changed byte was served")


def test_what_was_compared_once_is_not_read_again_to_be_compared(tmp_path, monkeypatch):
    segment = reopen(closed(tmp_path))
    assert read_all(segment) == STORED
    segment.hibernate()
    monkeypatch.setattr(Verification, "open", lambda _: pytest.fail("compared again"))
    assert read_all(segment) == STORED


@pytest.mark.parametrize("number", [2, 20, 38])
def test_who_looks_thoroughly_mends_an_index_that_a_killed_writer_has_left(tmp_path, number):
    files = files_at(tmp_path)
    segment = create(files)
    for count in range(40):
        segment.append([b"%d" % count], NOW)
        segment.hibernate()
    path = path_of(tmp_path, "index")
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[number * 12 + 11] ^= 1
    path.write_bytes(damaged)
    recover(files, SEGMENT_PATH, NO_STORE, is_thorough=True)
    assert path.read_bytes() == content
