"""A segment becomes Parquet: a file for each date, row groups that tell what they hold."""

import contextlib
import errno
import random
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra poe-queue[spark]")
pa = pytest.importorskip("pyarrow", reason="needs the extra poe-queue[spark]")

import pyarrow.parquet as pq  # noqa: E402

from poe.errors import StorageFull  # noqa: E402
from poe.spark.archive_writer import date_of, row_groups, write_segment  # noqa: E402
from poe.storage import Archive  # noqa: E402
from tests.small_disk import DISK_BYTES, small_disk  # noqa: E402
from tests.storage.faulty_files import FaultyFiles  # noqa: E402

pytestmark = pytest.mark.spark

DAY_US = 24 * 3600 * 1_000_000
MIDNIGHT = 20_000 * DAY_US  # 2024-10-04
TIMESTAMP = MIDNIGHT - DAY_US


def batch(pointers, size=10):
    return pa.record_batch(
        {
            "topic": pa.array(["t"] * len(pointers)),
            "pointer": pa.array(pointers, pa.int64()),
            "timestamp": pa.array(pointers, pa.timestamp("us", tz="UTC")),
            "message": pa.array([b"%d" % (pointer % 10) * size for pointer in pointers]),
            "ordinal": pa.array(range(len(pointers)), pa.int64()),
        }
    )


@pytest.fixture
def archive(tmp_path):
    made = Archive.at(tmp_path / "archive")
    made.begin()
    return made


def groups_of(batches):
    return [(day, table.column("pointer").to_pylist()) for day, table in row_groups(batches)]


def test_a_midnight_ends_a_row_group_wherever_it_lies():
    days = [MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 3 * DAY_US]
    expected = [(19_999, days[:1]), (20_000, days[1:3]), (20_003, days[3:])]
    assert groups_of([batch(days)]) == expected
    assert groups_of([batch([each]) for each in days]) == expected
    assert groups_of([batch(days[:2]), batch([]), batch(days[2:])]) == expected


def test_a_row_group_ends_at_eight_mebibytes():
    million = [batch([MIDNIGHT + n], 1 << 20) for n in range(20)]
    assert [len(pointers) for _, pointers in groups_of(million)] == [8, 8, 4]


def test_of_no_messages_there_is_no_row_group():
    assert groups_of([]) == groups_of([batch([])]) == []


def test_a_segment_is_read_back_from_its_files_as_it_was(archive, tmp_path):
    pointers = [MIDNIGHT - 5, MIDNIGHT - 3, MIDNIGHT, MIDNIGHT + 7]
    manifest = write_segment(archive, b"t", TIMESTAMP, [batch(pointers)])
    assert archive.manifest(b"t", TIMESTAMP) == manifest
    assert (manifest.first, manifest.last) == (pointers[0], pointers[-1])
    assert (manifest.count, manifest.size_bytes) == (4, 40)
    assert [file.path for file in manifest.files] == [
        f"date={date_of(day)}/{TIMESTAMP}.parquet" for day in (19_999, 20_000)
    ]
    found = [pq.read_table(tmp_path / "archive/topic=t" / each.path) for each in manifest.files]
    columns = pa.concat_tables(found).select(["pointer", "timestamp", "message", "ordinal"])
    assert columns.equals(pa.table(batch(pointers)).drop(["topic"]).cast(columns.schema))


def test_each_row_group_can_be_found_by_its_pointers(archive, tmp_path):
    batches = [batch([MIDNIGHT + n], 5 << 20) for n in range(5)]
    [file] = write_segment(archive, b"t", TIMESTAMP, batches).files
    parquet = pq.ParquetFile(tmp_path / "archive/topic=t" / file.path)
    told = [(each.first, each.last, each.count) for each in file.groups]
    statistics = [
        parquet.metadata.row_group(number).column(0).statistics
        for number in range(parquet.num_row_groups)
    ]
    assert told == [(each.min, each.max, each.num_values) for each in statistics]
    assert len(told) == 3


def test_what_an_archiver_that_was_killed_had_named_is_replaced(archive, tmp_path):
    write_segment(archive, b"t", TIMESTAMP, [batch([MIDNIGHT, MIDNIGHT + 1])])
    [manifest] = (tmp_path / "archive").glob("topic=t/_manifest/*")
    manifest.unlink()
    write_segment(archive, b"t", TIMESTAMP, [batch([MIDNIGHT, MIDNIGHT + 1, MIDNIGHT + 2])])
    [file] = (tmp_path / "archive").glob("topic=t/date=*/*")
    assert pq.read_metadata(file).num_rows == 3
    assert not list((tmp_path / "archive/_new").iterdir())


def test_what_an_archive_has_no_room_for_leaves_its_room_to_others(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        archive = Archive.at(disk.folder)
        archive.begin()
        large = random.Random(1).randbytes(2 * DISK_BYTES)
        messages = pa.array([large[at : at + 1000] for at in range(0, len(large), 1000)])
        numbers = pa.array(range(MIDNIGHT, MIDNIGHT + len(messages)), pa.int64())
        columns = [numbers, numbers.cast(pa.timestamp("us", tz="UTC")), messages, numbers]
        batches = [pa.record_batch(columns, ["pointer", "timestamp", "message", "ordinal"])]
        with pytest.raises(OSError, match="No space left"):
            write_segment(archive, b"t", TIMESTAMP, batches)
        assert not list((disk.folder / "_new").iterdir())
        write_segment(archive, b"t", TIMESTAMP, [batch([MIDNIGHT])])


@pytest.mark.parametrize("is_there", [False, True])
def test_what_has_no_manifest_leaves_its_room_to_others_whatever_fails(archive, is_there):
    if is_there:
        write_segment(archive, b"t", TIMESTAMP, [batch([MIDNIGHT])])
    before = archive.manifest(b"t", TIMESTAMP)
    two_days = [batch([MIDNIGHT, MIDNIGHT + DAY_US])]
    for nth in count():
        files = FaultyFiles(archive.files)
        files.fail(nth, errno.ENOSPC, "open", "write_at", "sync", "rename")
        with contextlib.suppress(StorageFull):
            write_segment(Archive(files), b"t", TIMESTAMP, two_days)
        if not files.failed_count:
            break
        manifest = archive.manifest(b"t", TIMESTAMP)
        named = set() if manifest is None else {each.path for each in manifest.files}
        folder = Path(archive.files.base) / "topic=t"
        assert {str(each.relative_to(folder)) for each in folder.glob("date=*/*")} == named
        assert manifest == before
    assert nth > 5
