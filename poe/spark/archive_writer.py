"""Turn the messages of one segment into Parquet files, one for each date, and a manifest.

A row group is closed at a midnight (UTC) or at 8 MiB of messages, so that memory holds no more and
a reader can take a part of a file.
"""

import contextlib
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from poe.storage import Archive, ArchivedFile, Manifest, RowGroup
from poe.storage.archive import NEW_FOLDER, file_path

SCHEMA = pa.schema(
    [
        pa.field("pointer", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("message", pa.binary(), nullable=False),
        pa.field("ordinal", pa.int64()),
    ]
)
_GROUP_BYTES = 8 << 20
_DAY_US = 24 * 3600 * 1_000_000
_EPOCH = date(1970, 1, 1)


def write_segment(  # noqa: PLR0913 - a segment, and what is known of it
    archive: Archive,
    topic: bytes,
    timestamp: int,
    batches: Iterable[pa.RecordBatch],
    *,
    envelope: bool = False,
    before: Manifest | None = None,
) -> Manifest:
    """Archive one segment, or the rest of it.

    Args:
        archive: where to.
        topic: name of the topic.
        timestamp: of the segment.
        batches: all its messages, with the columns of `SCHEMA` and maybe others, one or more.
        envelope: whether they are in envelopes.
        before: what the archive has of the segment, and keeps; the messages follow that. None: they
            take its place.

    Raises:
        StorageFull, WriteFailed: no manifest was made, or the one before is still there.
        OSError: Parquet reports a failure of the disk; likewise.
    """
    new: list[str] = []
    try:
        files = _write_files(archive, timestamp, batches, new, before)
        manifest = Manifest.of((*(before.files if before else ()), *files), envelope=envelope)
        archive.publish(topic, timestamp, manifest, new)
    except BaseException:
        # On a full disk the others would find no room either.
        for path in new:
            with contextlib.suppress(OSError):
                archive.files.unlink(path)
        raise
    return manifest


def _write_files(
    archive: Archive,
    timestamp: int,
    batches: Iterable[pa.RecordBatch],
    new: list[str],
    before: Manifest | None,
) -> Iterator[ArchivedFile]:
    """Write a file for each date, and tell where it belongs; `new` gets where it is for now."""
    after = 0 if before is None else before.last
    for day, groups in groupby(row_groups(batches), itemgetter(0)):
        new.append(f"{NEW_FOLDER}/{uuid4().hex}.parquet")
        # What repeats is found by the compression, and a dictionary of messages is of no use.
        with pq.ParquetWriter(
            f"{archive.files.base}/{new[-1]}",
            SCHEMA,
            compression="zstd",
            use_dictionary=False,
            write_statistics=["pointer", "timestamp"],
            column_encoding=dict.fromkeys(
                ("pointer", "timestamp", "ordinal"), "DELTA_BINARY_PACKED"
            ),
        ) as writer:
            written = tuple(_write(writer, group) for _, group in groups)
        yield ArchivedFile(file_path(date_of(day), timestamp, after), written)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the row groups to write, each with its day since the epoch."""
    waiting: list[pa.RecordBatch] = []
    waiting_day = waiting_bytes = 0
    for batch in batches:
        for day, part in _days(batch.select(SCHEMA.names)):
            if waiting and (day != waiting_day or waiting_bytes >= _GROUP_BYTES):
                yield waiting_day, pa.Table.from_batches(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(part)
            waiting_day = day
            waiting_bytes += _message_bytes(part)
    if waiting:
        yield waiting_day, pa.Table.from_batches(waiting)


def date_of(day: int) -> str:
    """Write a day since the epoch as a date."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def _days(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield what a batch has of each day."""
    if not batch.num_rows:
        return
    pointers = batch.column("pointer").to_numpy()
    first_day, last_day = int(pointers[0]) // _DAY_US, int(pointers[-1]) // _DAY_US
    midnights = np.searchsorted(pointers, np.arange(first_day + 1, last_day + 1) * _DAY_US)
    bounds = [0, *midnights.tolist(), batch.num_rows]
    for day, (start, end) in enumerate(pairwise(bounds), first_day):
        if start < end:
            yield day, batch.slice(start, end - start)


def _write(writer: pq.ParquetWriter, group: pa.Table) -> RowGroup:
    writer.write_table(group.cast(SCHEMA), row_group_size=group.num_rows)
    pointers = group.column("pointer")
    return RowGroup(
        pointers[0].as_py(), pointers[-1].as_py(), group.num_rows, _message_bytes(group)
    )


def _message_bytes(rows: pa.RecordBatch | pa.Table) -> int:
    return int(pc.sum(pc.binary_length(rows.column("message"))).as_py())
