"""A segment stores batches, serves what follows a pointer, sleeps, wakes and goes."""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from poe.errors import (
    CorruptRecord,
    InvalidMessage,
    OptionError,
    PointerOutOfRange,
    ReadFailed,
    SegmentSealed,
)
from poe.storage import POINTER_MAX, SegmentOptions, decode_records
from tests.storage.segments import NOW, create, names_in, path_of, read_all, reopen


def open_files(folder: Path) -> list[str]:
    """Return what this process has open below a folder, removed files too.

    Threads that other tests have left open and close descriptors of their own meanwhile.
    """
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.append(str(link.readlink()))
    return sorted(path for path in found if path.startswith(f"{folder}/"))


def test_a_closed_segment_has_the_bytes_of_the_original_and_sums_beside_them(tmp_path, files):
    segment = create(files)
    segment.append([b"hello"], NOW + 5)
    segment.append([b"a", b"bc"], NOW + 9)
    segment.close()
    pointers = [p.to_bytes(7, "big") for p in (NOW + 5, NOW + 9, NOW + 10)]
    assert path_of(tmp_path, "data").read_bytes() == (
        b"\0\0\0\x0c" + pointers[0] + b"hello"
        b"\0\0\0\x08" + pointers[1] + b"a"
        b"\0\0\0\x09" + pointers[2] + b"bc"
    )
    assert path_of(tmp_path, "index").read_bytes() == (
        pointers[0] + b"\0\0\0\0\0" + pointers[1] + b"\0\0\0\0\x10" + pointers[2] + b"\0\0\0\0\x1c"
    )
    assert sorted(names_in(tmp_path / "topics/t")) == [
        f"{NOW}_data",
        f"{NOW}_index",
        f"{NOW}_sum",
    ]


def test_a_writer_has_a_lock_file_and_private_modes(tmp_path, files):
    create(files)
    for suffix in ("data", "index", "lock", "sum"):
        assert path_of(tmp_path, suffix).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "topics/t").stat().st_mode & 0o777 == 0o700


def test_pointers_follow_the_clock_and_rise_when_it_does_not(files):
    segment = create(files)
    assert segment.append([b"a"], NOW + 100) == NOW + 100
    assert segment.append([b"a"], NOW + 100) == NOW + 101
    assert segment.append([b"a", b"b", b"c"], NOW - 10**12) == NOW + 104
    assert segment.append([b"a"], 0) == NOW + 105
    assert segment.append([b"a"] * 100, NOW + 200) == NOW + 299
    assert (segment.pointer_low, segment.pointer_high) == (NOW + 100, NOW + 299)


def test_no_pointer_is_less_than_the_timestamp(files):
    assert create(files).append([b"a"], 7) == NOW


def test_pointers_beyond_56_bits_are_refused_and_change_nothing(files):
    segment = create(files)
    assert segment.append([b"a"], POINTER_MAX - 1) == POINTER_MAX - 1
    for messages in ([b"a", b"b"], [b"a"] * 50):
        with pytest.raises(PointerOutOfRange):
            segment.append(messages, POINTER_MAX - 1)
    assert segment.append([b"z"], 0) == POINTER_MAX
    with pytest.raises(PointerOutOfRange):
        segment.append([b"a"], 0)
    assert read_all(segment) == [(POINTER_MAX - 1, b"a"), (POINTER_MAX, b"z")]
    assert segment.next(POINTER_MAX) is None


def test_a_refused_batch_stores_none_of_its_messages(files):
    segment = create(files, message_max=10)
    segment.append([b"first"], NOW)
    for messages in ([b"a", b""], [b"a", b"x" * 11], [b""], [b"x" * 11], []):
        with pytest.raises(InvalidMessage):
            segment.append(messages, NOW)
    segment.append([b"second"], NOW)
    assert read_all(segment) == [(NOW, b"first"), (NOW + 1, b"second")]


@pytest.mark.parametrize("ack", ["flushed", "memory", "fsync"])
def test_all_forms_of_messages_are_stored_in_order(files, ack):
    segment = create(files, ack=ack, buffer_count_max=7)
    rows = np.frombuffer(b"____abc____def", np.uint8).reshape(2, 7)[:, 4:]
    for messages in (rows, rows[:1], [b"x"], [memoryview(b"yy"), b"z"], [b"eq"] * 20):
        segment.append(messages, NOW)
    stored = [m for _, m in read_all(segment)]
    assert stored == [b"abc", b"def", b"abc", b"x", b"yy", b"z", *[b"eq"] * 20]


def test_a_read_takes_what_follows_the_pointer_up_to_its_limit(files):
    segment = create(files)
    segment.append([b"a", b"bb", b"ccc", b"dddd"], NOW)
    for pointer, limit, expected in [
        (0, 2, [b"a", b"bb"]),
        (0, 1, [b"a"]),
        (0, 2**32 - 1, [b"a", b"bb", b"ccc", b"dddd"]),
        (NOW - 1, 1, [b"a"]),
        (NOW, 1, [b"bb"]),
        (NOW + 1, 100, [b"ccc", b"dddd"]),
        (NOW + 2, 1, [b"dddd"]),
    ]:
        found = segment.read(pointer, limit, 10**6)
        assert [m for _, m in decode_records(found.read())] == expected
        assert found.record_count == len(expected)
        assert found.length == sum(11 + len(m) for m in expected)


@pytest.mark.parametrize("pointer", [NOW + 3, NOW + 4, POINTER_MAX])
def test_nothing_follows_the_last_pointer_or_any_greater(files, pointer):
    segment = create(files)
    segment.append([b"a", b"bb", b"ccc", b"dddd"], NOW)
    assert segment.read(pointer, 10, 10**6) is None
    assert segment.next(pointer) is None


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_reads_nothing(files, limit):
    segment = create(files)
    segment.append([b"a"], NOW)
    assert segment.read(0, limit, 10**6) is None


@pytest.mark.parametrize("pointer", [-1, POINTER_MAX + 1, 2**64])
def test_what_is_no_pointer_is_refused(files, pointer):
    segment = create(files)
    with pytest.raises(PointerOutOfRange):
        segment.read(pointer, 1, 1)
    with pytest.raises(PointerOutOfRange):
        segment.next(pointer)


def test_pointers_between_messages_lead_to_the_next_one(files):
    segment = create(files)
    for step in range(1, 6):
        segment.append([b"m%d" % step], NOW + 10 * step)
    for pointer in range(NOW, NOW + 50):
        step = (pointer - NOW) // 10 + 1
        assert segment.next(pointer) == (NOW + 10 * step, b"m%d" % step)


def test_a_read_keeps_to_its_bytes_but_gives_one_record_at_least(files):
    segment = create(files)
    segment.append([b"x" * 9] * 10, NOW)
    counts = [segment.read(0, 8, size).record_count for size in (0, 1, 19, 20, 39, 40, 41, 159)]
    assert counts == [1, 1, 1, 1, 1, 2, 2, 7]
    assert segment.read(0, 8, 160).record_count == 8
    assert segment.read(0, 100, 199).record_count == 9
    assert segment.read(0, 100, 200).record_count == 10
    assert segment.read(NOW + 8, 100, 1).record_count == 1


def test_an_empty_segment_reads_as_nothing_and_wakes_for_nobody(files):
    segment = create(files)
    assert segment.read(0, 10, 100) is None
    assert segment.next(0) is None
    assert (segment.count, segment.pointer_low, segment.pointer_high) == (0, None, None)
    assert not segment.is_awake


def test_a_reader_at_the_end_wakes_nobody(files):
    segment = create(files)
    last = segment.append([b"a"], NOW)
    segment.hibernate()
    assert segment.read(last, 10, 100) is None
    assert segment.next(last) is None
    assert (segment.pointer_high, segment.size_bytes, segment.count) == (NOW, 12, 1)
    assert not segment.is_awake


@pytest.mark.slow
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_hibernating_segment_holds_no_descriptor_and_wakes_by_itself(tmp_path, files, is_sealed):
    segment = create(files)
    for round_number in range(1000):
        if not is_sealed:
            segment.append([b"m%d" % round_number], NOW)
        elif round_number == 0:
            segment.append([b"a", b"b"], NOW)
            segment.seal()
        assert segment.next(0) is not None
        assert segment.is_awake
        assert open_files(tmp_path)
        segment.hibernate()
        assert not open_files(tmp_path)
    assert len(read_all(segment)) == (2 if is_sealed else 1000)


def test_a_hibernating_segment_takes_little_memory(files):
    segment = create(files)
    for number in range(1000):
        segment.append([b"message %d" % number], NOW)
    read_all(segment)
    segment.hibernate()
    owners = (segment, segment.durability)
    shared = {"_files", "options", "durability"}
    parts = {
        id(part): part
        for owner in owners
        for part in (getattr(owner, name) for name in type(owner).__slots__ if name not in shared)
    }
    assert sum(map(sys.getsizeof, [*owners, *parts.values()])) < 1056


def test_a_slice_survives_hibernation_sealing_and_removal(tmp_path, files):
    segment = create(files)
    segment.append([b"a", b"b"], NOW)
    found = segment.read(0, 10, 1000)
    expected = found.read()
    segment.hibernate()
    assert found.read() == expected
    segment.close()
    segment.destroy()
    assert names_in(tmp_path / "topics/t") == []
    assert os.pread(found.file.fileno(), found.length, found.offset) == expected
    assert open_files(tmp_path)
    del found
    assert not open_files(tmp_path)


def test_a_sealed_segment_takes_no_more_but_can_be_unsealed(tmp_path, files):
    segment = create(files)
    segment.append([b"a"], NOW)
    segment.seal()
    segment.seal()
    assert not segment.is_writer
    with pytest.raises(SegmentSealed):
        segment.append([b"b"], NOW)
    assert read_all(segment) == [(NOW, b"a")]
    segment.unseal()
    segment.unseal()
    assert path_of(tmp_path, "lock").exists()
    segment.append([b"b"], 0)
    assert read_all(segment) == [(NOW, b"a"), (NOW + 1, b"b")]


def test_a_destroyed_segment_is_an_empty_reader(files):
    segment = create(files)
    segment.append([b"a"], NOW)
    segment.destroy()
    assert segment.next(0) is None
    assert segment.read(0, 1, 1) is None
    with pytest.raises(SegmentSealed):
        segment.append([b"a"], NOW)


def test_making_a_segment_that_is_there_harms_nothing(tmp_path, files):
    segment = create(files)
    segment.append([b"a"], NOW)
    with pytest.raises(Exception, match="exists"):
        create(files)
    segment.append([b"b"], NOW)
    assert path_of(tmp_path, "lock").exists()
    assert [m for _, m in read_all(reopen(files))] == [b"a", b"b"]


def test_with_ack_memory_messages_wait_until_there_are_enough(tmp_path, files):
    segment = create(files, ack="memory", buffer_count_max=3)
    segment.append([b"a"], NOW)
    segment.append([b"b"], NOW)
    assert path_of(tmp_path, "data").stat().st_size == 0
    segment.append([b"c"], NOW)
    assert path_of(tmp_path, "data").stat().st_size == 36
    segment.append([b"d"], NOW)
    segment.flush()
    assert path_of(tmp_path, "data").stat().st_size == 48
    segment.append([b"e"] * 5, NOW)
    assert path_of(tmp_path, "data").stat().st_size == 48 + 60
    segment.append([b"f"], NOW)
    assert segment.next(NOW + 8) == (NOW + 9, b"f")
    segment.append([b"g"], NOW)
    segment.hibernate()
    assert len(read_all(segment)) == 11


def test_with_ack_memory_a_crash_loses_only_what_waited(files):
    segment = create(files, ack="memory", buffer_count_max=3)
    for number in range(8):
        segment.append([b"%d" % number], NOW)
    del segment
    assert [m for _, m in read_all(reopen(files))] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_sync_works_in_every_state(files):
    segment = create(files, ack="fsync")
    segment.append([b"a"], NOW)
    segment.sync()
    segment.hibernate()
    segment.sync()
    segment.close()
    segment.sync()
    assert read_all(segment) == [(NOW, b"a")]


def test_a_vanished_file_is_an_error_that_names_it(tmp_path, files):
    segment = create(files)
    segment.append([b"a"], NOW)
    segment.close()
    path_of(tmp_path, "data").unlink()
    with pytest.raises(ReadFailed, match=str(NOW)):
        segment.next(0)


@pytest.mark.parametrize("damage", ["data", "pointer in index", "offset in index"])
def test_damage_is_reported_and_never_served_as_a_message(tmp_path, files, damage):
    segment = create(files)
    segment.append([b"aaaa", b"bbbb", b"cccc"], NOW)
    segment.close()
    suffix, at = {"data": ("data", 15), "pointer in index": ("index", 18)}.get(
        damage, ("index", 20)
    )
    path = path_of(tmp_path, suffix)
    content = bytearray(path.read_bytes())
    content[at] ^= 2
    path.write_bytes(content)
    with pytest.raises(CorruptRecord):
        segment.next(NOW)


def test_a_consumer_that_meets_damage_is_told_where_to_go_on(tmp_path, files):
    segment = create(files)
    segment.append([b"aaaa", b"bbbb", b"cccc", b"dddd"], NOW)
    segment.close()
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[15:30] = b"\xff" * 15
    path_of(tmp_path, "data").write_bytes(content)
    with pytest.raises(CorruptRecord) as caught:
        segment.read(NOW, 100, 1000)
    assert (caught.value.offset, caught.value.pointer) == (15, NOW + 1)
    assert str(NOW + 1) in str(caught.value)
    found = segment.read(caught.value.pointer, 100, 1000)
    assert (found.offset, found.record_count) == (30, 2)


def test_damage_is_found_by_who_reads_one_message_at_a_time(tmp_path, files):
    segment = create(files)
    segment.append([b"aaaa", b"bbbb", b"cccc"], NOW)
    segment.close()
    content = bytearray(path_of(tmp_path, "data").read_bytes())
    content[15:30] = b"\xff" * 15
    path_of(tmp_path, "data").write_bytes(content)
    assert segment.read(0, 1, 1000).last_pointer == NOW
    with pytest.raises(CorruptRecord):
        segment.read(NOW, 1, 1000)


def test_an_impossible_offset_in_the_index_is_no_slice(tmp_path, files):
    segment = create(files)
    segment.append([b"aaaa", b"bbbb", b"cccc"], NOW)
    segment.close()
    content = bytearray(path_of(tmp_path, "index").read_bytes())
    content[19] = 0xFF
    path_of(tmp_path, "index").write_bytes(content)
    with pytest.raises(CorruptRecord):
        segment.read(NOW, 1, 100)
    with pytest.raises(CorruptRecord):
        segment.read(0, 1, 100)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_max", 0),
        ("message_max", 2**32 - 7),
        ("buffer_count_max", 0),
        ("ack", "maybe"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(key, value):
    with pytest.raises(OptionError) as caught:
        SegmentOptions(**{key: value})
    assert (caught.value.key, caught.value.value) == (key, value)
