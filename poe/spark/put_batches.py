"""Turn rows in Arrow batches into put batches, one topic each, in the order of the rows.

Strategy: rows are gathered to the size of a put, grouped by topic, and joined by Arrow's own
kernels; nothing here loops over messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from poe.errors import RowsRefused
from poe.protocol import JoinedBatch

PUT_COUNT = 32_768
PUT_BYTES = 4 * 1024 * 1024
"""Rows are gathered to one of these, and cut at twice as much: Arrow batches are seldom even."""

_LENGTH_SIZE = 4
_NOTHING = pa.scalar(b"", pa.large_binary())
_TOPIC, _MESSAGE, _KEY, _HEADERS = "topic", "message", "key", "headers"
_OF_AN_ENVELOPE = (_KEY, _HEADERS)
_NUMBER = "number"
"""Column that is added here: which row of the partition it is."""
_TEXT = (BinaryType, StringType)
"""Text is stored as UTF-8."""
_OF_A_READ = {
    *(_TOPIC, _MESSAGE, "pointer", "timestamp", "ordinal", "segment", "partition"),
    *_OF_AN_ENVELOPE,
}
"""Columns that a read of topics has. What it tells of a message is made anew by a write."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse columns that cannot be put onto a topic.

    Raises:
        RowsRefused: the column `message` is missing, no topic is named, a column has a type that
            cannot be stored, or there is one that would be lost.
    """
    kinds: dict[str, DataType] = {field.name: field.dataType for field in schema}
    needed = (_MESSAGE,) if topic is not None else (_MESSAGE, _TOPIC)
    for name in needed:
        if name not in kinds:
            way_out = "" if name == _MESSAGE else ", or use option('topic', …)"
            msg = f"there is no column {name!r}, only {', '.join(kinds)}; select one as it{way_out}"
            raise RowsRefused(msg)
    for name in (_MESSAGE, _KEY):
        if name in kinds and not isinstance(kinds[name], _TEXT):
            told = kinds[name].simpleString()
            msg = f"column {name!r} is of type {told}; cast it to binary or string"
            raise RowsRefused(msg)
    if _HEADERS in kinds and not _are_headers(kinds[_HEADERS]):
        told = kinds[_HEADERS].simpleString()
        msg = f"column 'headers' is of type {told}; cast it to map<string,binary>"
        raise RowsRefused(msg)
    if topic is None and not isinstance(kinds[_TOPIC], StringType):
        msg = f"column 'topic' is of type {kinds[_TOPIC].simpleString()}; cast it to string"
        raise RowsRefused(msg)
    lost = [name for name in kinds if name not in _OF_A_READ]
    if lost:
        msg = (
            f"column {lost[0]!r} would be lost, only 'message' is stored; drop it, or put it into "
            "the message as in select(to_json(struct('*')).alias('message'))"
        )
        raise RowsRefused(msg)


def _are_headers(kind: DataType) -> bool:
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, _TEXT)
    )


class Keyed(NamedTuple):
    """Messages with keys or headers, which only a topic with envelopes can have."""

    values: list[bytes | None]
    """None is a tombstone."""

    keys: list[bytes | None]
    headers: list[Mapping[str, bytes]]


Batch: TypeAlias = JoinedBatch | Keyed


def put_batches(
    batches: Iterable[pa.RecordBatch], topic: str | None
) -> Iterator[tuple[bytes, Batch]]:
    """Yield (topic, batch); all rows go to `topic`, or each to what its column `topic` says.

    Raises:
        RowsRefused: a message or a topic is null or empty, or a header is null; earlier rows were
            yielded.
    """
    row_count = 0
    for gathered in _gathered(batches):
        numbers = np.arange(row_count, row_count + gathered.num_rows)
        row_count += gathered.num_rows
        rows = gathered.append_column(_NUMBER, pa.array(numbers))
        if topic is None:
            _check_each(_as_binary(rows, _TOPIC), _TOPIC, rows)
        keyed, plain = _by_need(rows, topic)
        if keyed.num_rows:
            yield from _keyed(keyed, topic)
        if not plain.num_rows:
            continue
        messages = _as_binary(plain, _MESSAGE)
        _check_each(messages, _MESSAGE, plain)
        if topic is not None:
            yield from _cut(topic.encode(), messages)
        else:
            for name, group in _by_topic(_as_binary(plain, _TOPIC), messages):
                yield from _cut(name, group)


def _by_need(rows: pa.Table, topic: str | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows of topics of which one has a key or headers, and the others.

    A read of a topic without them has the columns, too.
    """
    columns = [rows.column(name) for name in _OF_AN_ENVELOPE if name in rows.column_names]
    if all(column.null_count == rows.num_rows for column in columns):
        return rows.slice(0, 0), rows
    if topic is not None:
        return rows, rows.slice(0, 0)
    have = reduce(pc.or_, [column.is_valid() for column in columns])
    topics = rows.column(_TOPIC)
    are_of_these = pc.is_in(topics, topics.filter(have))
    return rows.filter(are_of_these), rows.filter(pc.invert(are_of_these))


def _keyed(rows: pa.Table, topic: str | None) -> Iterator[tuple[bytes, Keyed]]:
    """Yield messages with keys and headers, topic by topic, cut where a put is full."""
    if topic is None:
        names = _as_binary(rows, _TOPIC).to_pylist()
    else:
        names = [topic.encode()] * rows.num_rows
    nothing = [None] * rows.num_rows
    columns = [
        rows.column(name).to_pylist() if name in rows.column_names else nothing
        for name in (_NUMBER, _MESSAGE, *_OF_AN_ENVELOPE)
    ]
    groups: dict[bytes, Keyed] = {}
    sizes: dict[bytes, int] = {}
    for name, row, message, key_told, headers in zip(names, *columns, strict=True):
        group = groups.setdefault(name, Keyed([], [], []))
        value, key, found = _bytes(message), _bytes(key_told), _header_bytes(headers or [], row)
        group.values.append(value)
        group.keys.append(key)
        group.headers.append(found)
        in_headers = sum(map(len, [*found, *found.values()]))
        sizes[name] = sizes.get(name, 0) + len(value or b"") + len(key or b"") + in_headers
        if sizes[name] >= PUT_BYTES or len(group.values) >= PUT_COUNT:
            yield name, groups.pop(name)
            sizes[name] = 0
    yield from groups.items()


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _header_bytes(headers: list[tuple[str, bytes | str | None]], row: int) -> dict[str, bytes]:
    found = {}
    for name, value in headers:
        if value is None:
            msg = (
                f"row {row} of the partition has no value for header {name!r}, which no topic can "
                "store; leave it out with map_filter(headers, (name, value) -> value IS NOT NULL)"
            )
            raise RowsRefused(msg)
        found[name] = value.encode() if isinstance(value, str) else value
    return found


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches, so that each put is worth its way."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= PUT_COUNT or size >= PUT_BYTES:
            yield pa.Table.from_batches(held)
            held = []
            count = size = 0
    if count:
        yield pa.Table.from_batches(held)


def _as_binary(rows: pa.Table, name: str) -> pa.LargeBinaryArray:
    # 64-bit offsets: rows that were gathered may exceed 2 GiB where their messages are large.
    return pc.cast(rows.column(name), pa.large_binary()).combine_chunks()


def _check_each(values: pa.LargeBinaryArray, name: str, rows: pa.Table) -> None:
    sizes = pc.fill_null(pc.binary_length(values), 0)
    place = pc.index(sizes, 0).as_py()
    if place >= 0:
        number, is_null = rows.column(_NUMBER)[place], not values[place].is_valid
        msg = (
            f"row {number} of the partition has {'no' if is_null else 'an empty'} "
            f"{name}, which no topic can store; drop such rows with where(length({name}) > 0)"
        )
        raise RowsRefused(msg)


def _by_topic(
    topics: pa.LargeBinaryArray, messages: pa.LargeBinaryArray
) -> Iterator[tuple[bytes, pa.LargeBinaryArray]]:
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], messages
        return
    indices = encoded.indices.to_numpy()
    grouped = messages.take(pa.array(np.argsort(indices, kind="stable")))
    start = 0
    for name, count in zip(names, np.bincount(indices).tolist(), strict=True):
        yield name, grouped.slice(start, count)
        start += count


def _cut(topic: bytes, messages: pa.LargeBinaryArray) -> Iterator[tuple[bytes, JoinedBatch]]:
    """Join messages with their lengths, and cut them where a put is full."""
    sizes = pc.binary_length(messages).to_numpy().astype(">u4")
    lengths = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_LENGTH_SIZE), len(sizes), [None, pa.py_buffer(sizes)]
    )
    joined = pc.binary_join_element_wise(lengths.cast(messages.type), messages, _NOTHING)
    _, bounds_buffer, data = joined.buffers()
    bounds = np.frombuffer(bounds_buffer, np.int64)[joined.offset :][: len(sizes) + 1]
    start = 0
    while start < len(sizes):
        stop = int(np.searchsorted(bounds, bounds[start] + 2 * PUT_BYTES, "right")) - 1
        stop = min(max(stop, start + 1), start + 2 * PUT_COUNT)
        begin, end = int(bounds[start]), int(bounds[stop])
        yield topic, JoinedBatch(data.slice(begin, end - begin).to_pybytes(), stop - start)
        start = stop
