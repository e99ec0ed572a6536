"""A folder is read as it lies, beside its server: what both files hold, and nothing else."""

import os
from itertools import pairwise

import numpy as np
import pytest

from poe.errors import CorruptRecord, OptionError
from poe.record import ENTRY_BYTES
from poe.storage import POINTER_MAX, SharedFolder
from tests.storage.segments import FOLDER, NOW, create, path_of

TOPIC = b"t"
ALL = 2**32 - 1


@pytest.fixture
def folder(tmp_path, files):
    return SharedFolder.at(tmp_path)


def messages_of(records):
    starts = records.starts.tolist()
    return [bytes(records.data[begin + 11 : end]) for begin, end in pairwise(starts)]


def read_all(folder, after=0, last=POINTER_MAX, timestamp=NOW):
    """Read a segment, and check that the pointers alone give the same."""
    pointers, messages = [], []
    for records in folder.read(TOPIC, timestamp, after, last):
        pointers += records.pointers.tolist()
        messages += messages_of(records)
    alone = folder.read(TOPIC, timestamp, after, last, with_data=False)
    assert [pointer for records in alone for pointer in records.pointers.tolist()] == pointers
    return list(zip(pointers, messages, strict=True))


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


def test_a_closed_segment_is_read_whole_and_from_pointer_to_pointer(files, folder):
    segment = create(files)
    for number in range(10):
        segment.append([b"%d" % number * (number + 1)], NOW + number)
    segment.close()
    whole = read_all(folder)
    assert [message for _, message in whole] == [b"%d" % n * (n + 1) for n in range(10)]
    assert read_all(folder, after=NOW + 2, last=NOW + 5) == whole[3:6]
    assert read_all(folder, after=NOW + 9) == []
    assert folder.segments(TOPIC) == [(NOW, NOW, NOW + 9, 10, 165)]
    assert folder.topics() == [TOPIC]


def test_a_segment_larger_than_a_chunk_is_read_in_several(files, folder):
    segment = create(files)
    rows = np.arange(9 * 1024 * 1024, dtype=np.uint8).reshape(-1, 1024)
    segment.append(rows, NOW)
    segment.close()
    chunks = list(folder.read(TOPIC, NOW, 0, POINTER_MAX))
    assert len(chunks) >= 3
    assert b"".join(b"".join(messages_of(chunk)) for chunk in chunks) == rows.tobytes()


def test_of_a_segment_that_is_being_written_what_both_files_hold_is_read(tmp_path, files, folder):
    segment = create(files)
    segment.append([b"a", b"bb", b"ccc"], NOW)
    segment.flush()
    expected = [(NOW, b"a"), (NOW + 1, b"bb"), (NOW + 2, b"ccc")]
    assert read_all(folder) == expected
    segment.append([b"dddd"], NOW + 3)
    assert read_all(folder) == expected, "its entry waits in memory"
    path = path_of(tmp_path, "data")
    os.truncate(path, path.stat().st_size - 20)
    assert read_all(folder) == expected[:2], "half of the third is there"
    assert folder.segments(TOPIC) == [(NOW, NOW, NOW + 1, 2, 25)]


def test_a_new_segment_without_messages_is_no_damage(files, folder):
    create(files)
    assert folder.segments(TOPIC) == [(NOW, NOW, NOW - 1, 0, 0)]
    assert read_all(folder) == []


def test_an_index_that_a_power_cut_has_torn_is_an_error(tmp_path, files, folder):
    segment = create(files)
    segment.append([b"x" * 50] * 100, NOW)
    segment.flush()
    path = path_of(tmp_path, "index")
    content = path.read_bytes()
    path.write_bytes(content[: 40 * ENTRY_BYTES] + bytes(ENTRY_BYTES) + content[41 * ENTRY_BYTES :])
    with pytest.raises(CorruptRecord):
        read_all(folder)


@pytest.mark.parametrize("at", [0, 5, 11, 300, -1])
def test_a_changed_byte_of_a_closed_segment_is_an_error(tmp_path, files, folder, at):
    segment = create(files)
    segment.append([b"x" * 50] * 100, NOW)
    segment.close()
    flip(path_of(tmp_path, "data"), at)
    with pytest.raises(CorruptRecord):
        read_all(folder)


def test_without_sums_headers_are_compared_with_the_index(tmp_path, files, folder):
    segment = create(files)
    segment.append([b"x" * 50] * 100, NOW)
    segment.close()
    path_of(tmp_path, "sum").unlink()
    assert len(read_all(folder)) == 100
    flip(path_of(tmp_path, "data"), 61 * 70 + 8)
    with pytest.raises(CorruptRecord, match="offset 4270 "):
        read_all(folder)


def test_a_closed_segment_whose_index_is_lost_or_cut_is_an_error(tmp_path, files, folder):
    segment = create(files)
    segment.append([b"x"] * 5, NOW)
    segment.close()
    path = path_of(tmp_path, "index")
    os.truncate(path, 3 * ENTRY_BYTES + 1)
    with pytest.raises(CorruptRecord):
        folder.segments(TOPIC)
    os.truncate(path, 3 * ENTRY_BYTES)
    with pytest.raises(CorruptRecord):
        read_all(folder)
    path.unlink()
    with pytest.raises(CorruptRecord):
        folder.segments(TOPIC)


def test_a_segment_that_is_deleted_while_it_is_read_ends_early(files, folder):
    segment = create(files)
    segment.append([b"x"], NOW)
    segment.close()
    assert len(folder.segments(TOPIC)) == 1
    segment.destroy()
    assert read_all(folder) == []
    assert folder.span(TOPIC, NOW, 0, POINTER_MAX, ALL, ALL) is None
    assert folder.segments(TOPIC) == []


def test_a_span_keeps_its_limits_but_covers_one_record_always(files, folder):
    segment = create(files)
    segment.append([b"x" * 9] * 10, NOW)
    segment.close()

    def span(*asked):
        found = folder.span(*asked)
        return found.last_pointer, found.record_count, found.length

    assert span(TOPIC, NOW, 0, POINTER_MAX, ALL, ALL) == (NOW + 9, 10, 200)
    assert span(TOPIC, NOW, 0, NOW + 4, ALL, ALL) == (NOW + 4, 5, 100)
    assert span(TOPIC, NOW, NOW + 1, POINTER_MAX, 3, ALL) == (NOW + 4, 3, 60)
    assert span(TOPIC, NOW, NOW + 1, POINTER_MAX, ALL, 59) == (NOW + 3, 2, 40)
    assert span(TOPIC, NOW, NOW + 1, POINTER_MAX, ALL, 1) == (NOW + 2, 1, 20)
    assert folder.span(TOPIC, NOW, NOW + 9, POINTER_MAX, ALL, ALL) is None


def test_segments_that_hold_nothing_behind_a_pointer_are_not_looked_at(tmp_path, files, folder):
    for timestamp in (NOW, NOW + 10, NOW + 20):
        segment = create(files, timestamp)
        segment.append([b"x"], timestamp)
        segment.close()
    path_of(tmp_path, "index", NOW).unlink()
    found = folder.segments(TOPIC, after=NOW + 9)
    assert [each.record_count for each in found] == [0, 1, 1]
    with pytest.raises(CorruptRecord):
        folder.segments(TOPIC, after=NOW + 8)


def test_nothing_is_changed_by_reading(tmp_path, files, folder):
    segment = create(files)
    segment.append([b"x"] * 3, NOW)
    segment.close()
    before = {
        path.name: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (tmp_path / FOLDER).iterdir()
    }
    read_all(folder)
    after = {
        path.name: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (tmp_path / FOLDER).iterdir()
    }
    assert after == before


def test_a_folder_that_is_no_servers_is_refused(tmp_path):
    with pytest.raises(OptionError, match="topics/"):
        SharedFolder.at(tmp_path / "nowhere")


def test_an_unknown_topic_has_no_segments(folder):
    assert folder.segments(b"other") == []
    assert list(folder.read(b"other", NOW, 0, POINTER_MAX)) == []
