"""Whatever a crash leaves, every acknowledged batch is there and no half one, without a hand."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from poe.errors import ReadFailed, SegmentLocked, WriteFailed
from poe.storage import RealFiles, check_segments
from poe.storage.formats.record import encode_records
from tests.storage.faulty_files import FaultyFile, FaultyFiles
from tests.storage.segments import (
    NOW,
    create,
    files_at,
    names_in,
    path_of,
    read_all,
    reopen,
    some_of,
    wait_for_line,
)

BATCHES = [[b"first"], [b"a", b"bb", b"ccc"], [b"equal"] * 12, [b"x" * 30], [b"y", b"z" * 9]]
STORED = [
    (NOW + number, message)
    for number, message in enumerate(message for batch in BATCHES for message in batch)
]
ENDS = [sum(11 + len(m) for _, m in STORED[:count]) for count in range(len(STORED) + 1)]


def filled(files, *, is_flushed_each_time=False, **options):
    segment = create(files, **options)
    for batch in BATCHES:
        segment.append(batch, NOW)
        if is_flushed_each_time:
            segment.flush()
    return segment


def count_up_to(offset):
    return sum(end <= offset for end in ENDS) - 1


def quarantined(tmp_path):
    return [path.read_bytes() for path in (tmp_path / "quarantine").glob("*")]


def assert_clean(tmp_path, stored):
    """Check that the files are those of a clean close of the records."""
    assert path_of(tmp_path, "data").stat().st_size == ENDS[len(stored)]
    assert path_of(tmp_path, "index").read_bytes() == b"".join(
        pointer.to_bytes(7, "big") + ENDS[number].to_bytes(5, "big")
        for number, (pointer, _) in enumerate(stored)
    )
    assert set(names_in(tmp_path / "topics/t")) == {
        f"{NOW}_data",
        f"{NOW}_index",
        f"{NOW}_sum",
    }
    [check] = check_segments(RealFiles.at(tmp_path))
    assert not check.damage


def test_a_segment_closed_cleanly_is_opened_as_it_is(tmp_path, files):
    filled(files).close()
    segment = reopen(files)
    assert (segment.count, segment.size_bytes) == (len(STORED), ENDS[-1])
    assert (segment.pointer_low, segment.pointer_high) == (NOW, STORED[-1][0])
    assert not segment.is_writer
    assert not segment.is_awake
    assert read_all(segment) == STORED
    assert_clean(tmp_path, STORED)


@pytest.mark.parametrize("is_index_flushed", [False, True])
def test_after_a_crash_every_batch_is_there(tmp_path, files, is_index_flushed):
    segment = filled(files)
    if is_index_flushed:
        segment.flush()
    del segment
    assert read_all(reopen(RealFiles.at(tmp_path))) == STORED
    assert_clean(tmp_path, STORED)


def test_after_a_crash_a_half_written_batch_is_gone(tmp_path, files):
    segment = filled(files)
    # A whole record of an unfinished batch, and a part of its second one.
    torn = bytes(encode_records([b"half", b"batch"], NOW + 100, 100)[0])[:-2]
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(torn)
    del segment
    recovered = reopen(files)
    assert read_all(recovered) == STORED
    assert_clean(tmp_path, STORED)
    recovered.unseal()
    recovered.append([b"goes on"], 0)
    assert read_all(recovered) == [*STORED, (NOW + len(STORED), b"goes on")]


@pytest.mark.parametrize("recovery", ["point-in-time", "strict", "salvage"])
def test_after_a_reboot_what_has_no_sums_is_put_away_or_salvaged(tmp_path, files, recovery):
    segment = filled(files)
    segment.flush()
    more = bytes(encode_records([b"half", b"batch"], NOW + 100, 100)[0])
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(more[:-2])
    del segment
    recovered = reopen(FaultyFiles(files, boot_id="another boot"), recovery=recovery)
    if recovery == "salvage":
        assert read_all(recovered) == [*STORED, (NOW + 100, b"half")]
        assert quarantined(tmp_path) == [more[15:-2]]
    else:
        assert read_all(recovered) == STORED
        assert quarantined(tmp_path) == [more[:-2]]
        assert_clean(tmp_path, STORED)


def test_after_a_reboot_data_is_cut_behind_the_last_sums_that_fit(tmp_path):
    """Wherever the data was torn, and whatever was written behind that place."""
    for size in some_of(ENDS[-1]):
        base = tmp_path / str(size)
        files = files_at(base)
        segment = create(files)
        for batch in BATCHES:
            segment.append(batch, NOW)
            segment.flush()
        del segment
        content = path_of(base, "data").read_bytes()
        path_of(base, "data").write_bytes(content[:size] + b"\0" + content[size + 1 :])
        kept = [0]
        for batch in BATCHES:
            kept.append(kept[-1] + len(batch))
        is_same = content[size] == 0
        count = len(STORED) if is_same else max(n for n in kept if ENDS[n] <= size)
        recovered = reopen(FaultyFiles(files, boot_id="another boot"))
        assert read_all(recovered) == STORED[:count]
        assert_clean(base, STORED[:count])


def test_after_a_reboot_a_flushed_offset_that_is_too_small_loses_nothing(files):
    segment = filled(files)
    segment.flush()
    files.open(f"topics/t/{NOW}_lock", "r+").write_at(bytes(8), 64)
    del segment
    assert read_all(reopen(FaultyFiles(files, boot_id="another boot"))) == STORED


@pytest.mark.parametrize("boot_id", [None, "another boot"])
@pytest.mark.parametrize("zeros", [1, 11, 12, 4096])
def test_zeros_at_the_end_are_cut(tmp_path, files, boot_id, zeros):
    segment = filled(files)
    segment.flush()
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(bytes(zeros))
    del segment
    assert read_all(reopen(FaultyFiles(files, boot_id=boot_id))) == STORED
    assert_clean(tmp_path, STORED)
    assert quarantined(tmp_path) == []


@pytest.mark.parametrize("state", ["closed", "crashed", "crashed, sums flushed"])
def test_data_cut_at_any_byte_keeps_what_is_known_to_be_true_before_it(tmp_path, state):
    """Whole records where there are no sums yet, else what whole entries of them cover."""
    summed = [0]
    for batch in BATCHES:
        summed.append(summed[-1] + len(batch))
    for size in range(ENDS[-4], ENDS[-1]):
        base = tmp_path / str(size)
        files = files_at(base)
        segment = filled(files, is_flushed_each_time=state != "crashed")
        if state == "closed":
            segment.close()
        del segment
        os.truncate(path_of(base, "data"), size)
        count = count_up_to(size)
        if state != "crashed":
            count = max(each for each in summed if each <= count)
        expected = STORED[:count]
        assert read_all(reopen(files)) == expected
        assert_clean(base, expected)
        assert read_all(reopen(files)) == expected


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("tail", [b"", b"\0" * 12, b"\xff" * 7])
def test_an_index_torn_at_any_byte_is_made_whole(tmp_path, is_closed, tail):
    index_bytes = len(STORED) * 12
    for size in range(index_bytes - 37, index_bytes + 1):
        base = tmp_path / str(size)
        files = files_at(base)
        segment = filled(files)
        segment.close() if is_closed else segment.flush()
        del segment
        os.truncate(path_of(base, "index"), size)
        with path_of(base, "index").open("ab") as index:
            index.write(tail)
        assert read_all(reopen(files)) == STORED
        assert_clean(base, STORED)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 12 * len(STORED), b"garbage" * 36])
def test_a_missing_or_senseless_index_is_made_from_the_data(tmp_path, files, is_closed, content):
    segment = filled(files)
    segment.close() if is_closed else segment.flush()
    del segment
    if content is None:
        path_of(tmp_path, "index").unlink()
    else:
        path_of(tmp_path, "index").write_bytes(content)
    assert read_all(reopen(files)) == STORED
    assert_clean(tmp_path, STORED)


def test_after_a_reboot_damage_inside_the_index_is_found(tmp_path, files):
    segment = filled(files)
    segment.flush()
    del segment
    content = bytearray(path_of(tmp_path, "index").read_bytes())
    content[60:84] = bytes(24)
    path_of(tmp_path, "index").write_bytes(content)
    assert read_all(reopen(FaultyFiles(files, boot_id="another boot"))) == STORED
    assert_clean(tmp_path, STORED)


@pytest.mark.parametrize("end", ["closed", "died", "no end: other bytes"])
def test_data_that_the_original_appended_is_kept(tmp_path, files, end):
    """Closed, its index is complete; when it died, its lock is there."""
    filled(files).close()
    more, _ = encode_records([b"of the", b"original"], NOW + 100, 100)
    with path_of(tmp_path, "data").open("ab") as data:
        data.write(more)
    if end == "closed":
        with path_of(tmp_path, "index").open("ab") as index:
            for number, offset in ((NOW + 100, ENDS[-1]), (NOW + 101, ENDS[-1] + 17)):
                index.write(number.to_bytes(7, "big") + offset.to_bytes(5, "big"))
    elif end == "died":
        path_of(tmp_path, "lock").touch()
    appended = [(NOW + 100, b"of the"), (NOW + 101, b"original")]
    recovered = reopen(files)
    if end in {"closed", "died"}:
        assert read_all(recovered) == STORED + appended
        assert not recovered.damage
    else:
        assert read_all(recovered) == STORED
        assert recovered.damage
        assert quarantined(tmp_path) == [bytes(more)]


@pytest.mark.parametrize("lock", [b"", b"something else", b"poe-lock", b"\0" * 72])
def test_a_stale_lock_of_another_program_is_taken_over(tmp_path, files, lock):
    filled(files).close()
    path_of(tmp_path, "lock").write_bytes(lock)
    assert read_all(reopen(files)) == STORED
    assert_clean(tmp_path, STORED)


def test_a_lock_held_open_by_another_program_is_respected(tmp_path, files):
    filled(files).close()
    path_of(tmp_path, "lock").touch()
    program = f"file = open({str(path_of(tmp_path, 'lock'))!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as original:
        wait_for_line(original)
        with pytest.raises(SegmentLocked, match=str(NOW)):
            reopen(files)
        assert path_of(tmp_path, "lock").exists()
        original.communicate(b"\n")
    assert read_all(reopen(files)) == STORED


@pytest.mark.parametrize("suffixes", [["index"], ["lock"], ["index", "lock"]])
def test_what_has_no_data_file_is_removed(tmp_path, files, suffixes):
    for suffix in suffixes:
        path_of(tmp_path, suffix).write_bytes(b"x" * 24)
    assert reopen(files) is None
    assert names_in(tmp_path / "topics/t") == []


class Died(Exception):
    """The process is no more."""


class DyingFiles(FaultyFiles):
    """Dies in the write of a certain byte."""

    def __init__(self, files, bytes_left):
        super().__init__(files)
        self.bytes_left = bytes_left

    def open(self, path, mode):
        return DyingFile(self, self.real.open(path, mode))


class DyingFile(FaultyFile):
    layer: DyingFiles

    def write_at(self, data, offset):
        self.file.write_at(data[: self.layer.bytes_left], offset)
        self.layer.bytes_left -= len(data)
        if self.layer.bytes_left < 0:
            raise Died


def test_dying_at_any_byte_of_a_new_lock_loses_nothing(files):
    filled(files).close()
    lock_bytes = 72
    for bytes_left in range(lock_bytes):
        with pytest.raises(Died):
            reopen(DyingFiles(files, bytes_left)).unseal()
        assert read_all(reopen(files)) == STORED, bytes_left


def test_an_empty_segment_left_by_a_crash_is_fine(tmp_path, files):
    create(files)
    recovered = reopen(files)
    assert (recovered.count, recovered.pointer_high) == (0, None)
    recovered.unseal()
    assert recovered.append([b"a"], 0) == NOW
    path_of(tmp_path, "index").unlink()
    assert read_all(reopen(files)) == [(NOW, b"a")]


@pytest.mark.parametrize("boot_id", [None, "another boot"])
def test_dying_anywhere_in_recovery_and_recovering_again_gives_the_same(tmp_path, boot_id):
    nth = 0
    while True:
        base = tmp_path / str(nth)
        layer = FaultyFiles(files_at(base), boot_id)
        segment = filled(layer)
        segment.flush()
        del segment
        with path_of(base, "data").open("ab") as data:
            data.write(b"\0\0\0\x20torn")
        content = path_of(base, "index").read_bytes()
        path_of(base, "index").write_bytes(b"\xff" * 12 + content[12:])
        layer.fail(nth, 5, is_for_ever=True)
        with contextlib.suppress(ReadFailed, WriteFailed):
            reopen(layer)
        is_over = layer.failed_count == 0
        layer.heal()
        assert read_all(reopen(layer)) == STORED
        (base / f"topics/t/{NOW}_index_new").unlink(missing_ok=True)
        assert_clean(base, STORED)
        if is_over:
            break
        nth += 1
    assert nth > 10


def test_kill_9_loses_no_batch_that_append_returned_for(tmp_path):
    files = files_at(tmp_path)
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.storage.segments import NOW, create, files_at
        segment = create(files_at(Path({str(tmp_path)!r})))
        number = 0
        while True:
            last = segment.append([b"%d" % (number + i) for i in range(20)], NOW)
            number += 20
            print(last, flush=True)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as writer:
        for _ in range(400):
            acknowledged = int(wait_for_line(writer))
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split(b"\n")
    # The last line may be half written.
    acknowledged = int(rest[-2]) if len(rest) > 1 else acknowledged
    stored = read_all(reopen(files))
    assert stored[-1][0] >= acknowledged
    assert len(stored) % 20 == 0
    assert stored == [(NOW + number, b"%d" % number) for number in range(len(stored))]


@pytest.mark.slow
def test_a_thousand_closed_segments_open_within_half_a_second(files):
    """Of a processor's time: what else the machine does is no fault of theirs."""
    for number in range(1000):
        segment = create(files, NOW + number * 100)
        segment.append([b"x" * 50] * 20, 0)
        segment.close()
    start = time.process_time()
    segments = [reopen(files, NOW + number * 100) for number in range(1000)]
    assert time.process_time() - start < 0.5
    assert sum(segment.count for segment in segments) == 20_000
