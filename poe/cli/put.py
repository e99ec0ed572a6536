"""`poe put`: turns arguments, or the lines of standard input, into messages on a topic."""

import contextlib
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from poe.cli.address import DEFAULT_HOST, DEFAULT_PORT, HostOption, PortOption, connect
from poe.cli.exit_code import ExitCode
from poe.cli.line_batches import LineBatches
from poe.cli.output import write_error, write_line
from poe.errors import PoeError
from poe.protocol import Socket


def put(  # noqa: PLR0913 - a command line option each
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic; it is made when new.")
    ],
    messages: Annotated[
        list[str],
        typer.Argument(metavar="MESSAGE...|-", help="Messages, or - for a message per line."),
    ],
    *,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Leave empty lines out; else one ends the input.")
    ] = False,
    keep_ends: Annotated[
        bool,
        typer.Option("--keep-ends", help="Keep the newline as part of each message; see `read`."),
    ] = False,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
) -> ExitCode:
    r"""Append messages to a topic.

    With - each line of standard input is a message, byte for byte: a line ends with "\n" only, and
    a last line without it counts. `poe read` gives the same bytes back; where the last "\n" is
    missing, with `--format joined`. For any input at all (empty lines, binary data) use
    `put --keep-ends` and `read --format raw`.

    Prints the number of messages and the last pointer. When it fails, or after Ctrl-C, it tells how
    many lines were acknowledged.
    """
    with connect(host, port) as connection:
        if messages == ["-"]:
            lines = LineBatches(sys.stdin.fileno(), skip_empty=skip_empty, keep_ends=keep_ends)
            return _put_lines(connection, topic, lines)
        payloads = [os.fsencode(message) for message in messages]
        _report(len(payloads), connection.write(topic, payloads))
    return ExitCode.OK


def _put_lines(connection: Socket, topic: str, lines: LineBatches) -> ExitCode:
    """Send all lines and tell what became of them."""
    acknowledged_count = pointer = 0
    sizes: deque[int] = deque()

    def burst() -> Iterator[list[bytes]]:
        for batch in lines.burst():
            sizes.append(len(batch))
            yield batch

    error = ""
    with lines, _progress() as show:
        try:
            # A burst ends when the input pauses: its replies are taken then, not when it goes on.
            while not lines.is_at_end:
                for last_pointer in connection.write_batches(topic, burst()):
                    pointer = last_pointer
                    acknowledged_count += sizes.popleft()
                    show(acknowledged_count, lines.read_bytes)
        except PoeError as raised:
            error = str(raised)
        except KeyboardInterrupt:
            lines.was_interrupted = True
    return _end(lines, acknowledged_count, pointer, error)


def _end(lines: LineBatches, acknowledged_count: int, pointer: int, error: str) -> ExitCode:
    """Report how the input ended."""
    if acknowledged_count or not error:
        _report(acknowledged_count, pointer)
    unsure_count = lines.sent_count - acknowledged_count
    if lines.empty_line_number is not None and not error:
        error = f"line {lines.empty_line_number} is empty; use --skip-empty or --keep-ends"
    if lines.was_interrupted:
        error = error or "interrupted"
    if not error:
        return ExitCode.OK
    told = f"{error}; acknowledged messages: {acknowledged_count}"
    if unsure_count:
        told += f", of {unsure_count} sent after them some may be stored"
    write_error(told)
    return ExitCode.INTERRUPTED if lines.was_interrupted else ExitCode.FAILURE


def _report(count: int, pointer: int) -> None:
    noun = "message" if count == 1 else "messages"
    write_line(f"{count} {noun}, last pointer {pointer}" if count else "0 messages")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], object]]:
    """Show a progress bar on a terminal; what is given takes acknowledged count and bytes read."""
    if not sys.stderr.isatty():
        yield lambda _count, _bytes: None
        return
    from rich.console import Console  # noqa: PLC0415 - for people only; a pipe need not load it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[count]:,} acknowledged"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("put", total=_input_bytes(), count=0)
        yield lambda count, read_bytes: bar.update(task, completed=read_bytes, count=count)


def _input_bytes() -> int | None:
    """Tell how many bytes standard input has; None when only its end will tell."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
