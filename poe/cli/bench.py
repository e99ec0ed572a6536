"""`poe bench`: turns a running server into a small table of rates, over one connection."""

import contextlib
import time
from collections.abc import Iterator
from itertools import repeat
from typing import Annotated

import typer

from poe.cli.argument import number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.output import write_line
from poe.protocol import Socket

_WRITE_CALLS = ((1, 2_000), (100, 1_000), (1_000, 200))
"""(messages per call, calls); the last row is pipelined as well."""
_MESSAGES_COUNT = 400_000
"""Messages that all rows together have written, less some."""
_READ_LIMITS = (1, 100, 1_000)
_READ_CALLS_MAX = 1_000


@asks_server
def bench(
    *,
    topic: Annotated[
        bytes,
        typer.Option(
            metavar="TOPIC",
            parser=topic_name,
            show_default="poe_bench",
            help="Topic to write to; what is written stays there.",
        ),
    ] = b"poe_bench",
    size: Annotated[
        int,
        typer.Option(
            metavar="INTEGER", parser=number("--size", int, 1, 60_000), help="Bytes per message."
        ),
    ] = 100,
    endpoint: Endpoint,
) -> None:
    """Measure a running server with one client in Python; about 500,000 messages are written.

    The client is the slower part of most rows: the project's `make bench` measures the server.
    """
    message = bytes(size)
    with endpoint.connect() as connection:
        newest = connection.write(topic, [message])
        write_line(f"{'request':<28}{'messages/s':>12}{'MB/s':>10}{'ms/call':>10}")
        for count, calls in _WRITE_CALLS:
            with _row(f"write, {count} per call", size, count * calls, calls):
                for _ in range(calls):
                    connection.write(topic, [message] * count)
        with _row(f"write, {count}, pipelined", size, count * calls, calls):
            for _ in connection.write_batches(topic, repeat([message] * count, calls)):
                pass
        for limit in _READ_LIMITS:
            calls = min(_READ_CALLS_MAX, _MESSAGES_COUNT // limit)
            with _row(f"read, {limit} per call", size, limit * calls, calls):
                _read(connection, topic, newest, limit, calls)


def _read(connection: Socket, topic: bytes, pointer: int, limit: int, calls: int) -> None:
    """Walk on from a pointer."""
    for _ in range(calls):
        pointer = connection.read(topic, pointer, limit)[-1][0]


@contextlib.contextmanager
def _row(label: str, size: int, count: int, calls: int) -> Iterator[None]:
    """Time the block and write its line of the table."""
    started_s = time.perf_counter()
    yield
    seconds = time.perf_counter() - started_s
    rate = count / seconds
    call_ms = seconds / calls * 1000
    write_line(f"{label:<28}{rate:>12,.0f}{rate * size / 1e6:>10,.1f}{call_ms:>10,.3f}")
