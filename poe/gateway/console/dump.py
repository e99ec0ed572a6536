"""Dumps of messages: as lines of JSON, each of which can be posted again, or as Parquet."""

import io
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from poe.errors import RequestRefused, UnknownTopic
from poe.gateway.console.level import Level
from poe.gateway.console.look import Look
from poe.gateway.console.reading import Pair, read
from poe.gateway.console.visit import Row, Visit
from poe.gateway.http.record import record_of
from poe.gateway.http.reply import as_json
from poe.protocol import envelope
from poe.record import POINTER_MAX

_PIECE_COUNT: Final = 1000


async def get_dump(visit: Visit) -> Response:
    """Return messages of a range as a file."""
    topic = visit.name("topic")
    after = visit.number("after", 0, 0, POINTER_MAX)
    last = visit.number("last", POINTER_MAX, 0, POINTER_MAX)
    limit = visit.number("limit", 100_000, 1, 10_000_000)
    form = visit.choice("as", "jsonl", "parquet")
    write = _parquet if form == "parquet" else _lines
    if form == "parquet":
        _parquet_library()
    async with visit.node() as connection:
        is_enveloped = (await connection.describe(topic)).properties.envelope
    pieces = await _begun(_pieces(visit.look, topic, after, last, limit))
    headers = {"Content-Disposition": f'attachment; filename="messages.{form}"'}
    media_type = "application/x-ndjson" if form == "jsonl" else "application/vnd.apache.parquet"
    content = write(pieces, is_enveloped=is_enveloped)
    return StreamingResponse(content, headers=headers, media_type=media_type)


async def _begun(pieces: AsyncGenerator[list[Pair]]) -> AsyncGenerator[list[Pair]]:
    """Wait for the first piece: once something is sent, it cannot be told any more what is wrong.

    Raises:
        PoeError: it cannot be read.
    """
    first: list[Pair] = []
    with suppress(UnknownTopic):  # nothing was put onto it yet
        first = await anext(pieces, first)

    async def whole() -> AsyncGenerator[list[Pair]]:
        async with aclosing(pieces):
            if first:
                yield first
            async for each in pieces:
                yield each

    return whole()


async def _pieces(
    look: Look, topic: bytes, after: int, last: int, limit: int
) -> AsyncGenerator[list[Pair]]:
    async with look.node() as connection:
        while limit > 0:
            pairs = await read(connection, topic, after, min(limit, _PIECE_COUNT), last)
            if not pairs:
                return
            yield pairs
            after, limit = pairs[-1][0], limit - len(pairs)


async def _lines(
    pieces: AsyncGenerator[list[Pair]], *, is_enveloped: bool
) -> AsyncGenerator[bytes]:
    async for pairs in pieces:
        yield b"".join(
            as_json({"pointer": str(pointer), **_record(message, is_enveloped=is_enveloped)})
            + b"\n"
            for pointer, message in pairs
        )


def _record(message: bytes, *, is_enveloped: bool) -> dict[str, Any]:
    return record_of(*_opened(message, is_enveloped=is_enveloped))


def _opened(message: bytes, *, is_enveloped: bool) -> envelope.Enveloped:
    return envelope.opened(message) if is_enveloped else envelope.Enveloped(None, message, None)


async def _parquet(
    pieces: AsyncGenerator[list[Pair]], *, is_enveloped: bool
) -> AsyncGenerator[bytes]:
    """Yield a file of columns pointer, timestamp, key, value and headers."""
    pa, pq = _parquet_library()
    columns = {
        "pointer": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.map_(pa.string(), pa.binary()),
    }
    schema = pa.schema(list(columns.items()))
    sink = _Sink()
    with pq.ParquetWriter(sink, schema) as writer:
        async for pairs in pieces:
            opened = [_opened(message, is_enveloped=is_enveloped) for _, message in pairs]
            pointers = [pointer for pointer, _ in pairs]
            headers = [list((each.headers or {}).items()) for each in opened]
            values = [each.value for each in opened]
            keys = [each.key for each in opened]
            lists = (pointers, pointers, keys, values, headers)
            writer.write_table(pa.table(dict(zip(columns, lists, strict=True)), schema=schema))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Holds what was written until it is taken, and knows how much that was in all."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _parquet_library() -> tuple[Any, Any]:
    """Return pyarrow and its writer, loaded only where somebody wants them.

    Raises:
        RequestRefused: it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        why = "Parquet needs pyarrow beside the gateway; use: pip install '.[spark]' in a checkout"
        raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, why) from error
    return pa, pq


ROWS: Final = (Row("/messages/{topic}/dump", {"GET": Level.READ}, get_dump),)
