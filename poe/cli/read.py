"""`poe read`: turns the records behind a pointer into bytes on standard output."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count, pairwise
from select import PIPE_BUF
from typing import Annotated, TypeAlias

import typer

from poe.cli.address import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    HostOption,
    PortOption,
    complete_topic,
    connect,
)
from poe.cli.argument import choice, number, topic_name
from poe.cli.exit_code import ExitCode
from poe.cli.interrupt import Interrupt
from poe.cli.output import (
    OutputFailed,
    ReaderGone,
    counted,
    is_terminal,
    wait_writable,
    write_bytes,
    write_error,
)
from poe.cli.sentence import sentence_of
from poe.errors import CorruptRecord, PoeError, UnknownTopic
from poe.protocol import FOLLOW_WAIT_S, Socket
from poe.record import POINTER_MAX, RECORD_HEADER_BYTES

Row: TypeAlias = tuple[int, bytes, int]
"""Pointer, message and ordinal, which is 0 where nobody asks for it."""

_BATCH_COUNT = 1000


class Format(StrEnum):
    """What stands between the messages."""

    LINES = "lines"
    JOINED = "joined"
    RAW = "raw"
    JSON = "json"


class Start(StrEnum):
    """Where to begin without a pointer."""

    EARLIEST = "earliest"
    LATEST = "latest"


_TopicArgument = Annotated[
    bytes,
    typer.Argument(
        metavar="TOPIC",
        help="Name of the topic.",
        parser=topic_name,
        autocompletion=complete_topic,
    ),
]


def read(  # noqa: PLR0913 - a command line option each
    topic: _TopicArgument,
    *,
    pointer: Annotated[
        int | None,
        typer.Option(
            metavar="POINTER",
            parser=number("--pointer", int, 0, POINTER_MAX),
            help="Read what follows this pointer.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        Start | None,
        typer.Option(
            "--from",
            metavar="|".join(Start),
            parser=choice("--from", Start),
            help="Where to begin when no pointer is given.",
            show_default=Start.EARLIEST,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="INTEGER",
            parser=number("--limit", int, 0),
            help="Messages to read at most.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")
    ] = False,
    with_pointers: Annotated[
        bool, typer.Option("--with-pointers", help="Write POINTER and a tab before each line.")
    ] = False,
    output_format: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="|".join(Format),
            parser=choice("--format", Format),
            help="How messages are written, see above.",
        ),
    ] = Format.LINES,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
) -> ExitCode:
    r"""Write the messages of a topic, oldest first.

    Formats: `lines` ends each message with "\n"; `joined` writes "\n" between messages but not
    after the last; `raw` writes nothing but the messages; `json` writes an object per line with
    ordinal, pointer and message, or message_base64 where the message is not UTF-8.

    When it is interrupted or fails, it tells the pointer to continue from.
    """
    if with_pointers and output_format in {Format.RAW, Format.JOINED}:
        msg = "pointers need --format lines or json"
        raise typer.BadParameter(msg, param_hint="--with-pointers")
    if pointer is not None and start is not None:
        msg = "--pointer says where to begin already; leave one of them out"
        raise typer.BadParameter(msg, param_hint="--from")
    encode = _encoder(output_format, with_pointers=with_pointers)
    with connect(host, port) as connection:
        if not follow:
            _check_known(connection, topic)
        if pointer is None:
            pointer = _newest_pointer(connection, topic) if start is Start.LATEST else 0
        read_some = _read_numbered if output_format is Format.JSON else _read_plain
        batches = _batches(connection, read_some, topic, pointer, limit, follow=follow)
        return _copy(batches if follow else _with_progress(batches), pointer, encode)


def _copy(
    batches: Iterator[list[Row]], pointer: int, encode: Callable[[list[Row], bool], bytes]
) -> ExitCode:
    """Write all batches that follow a pointer; tell where to continue when it ends early."""
    is_first = True
    under_way_count = 0
    with Interrupt() as interrupt:
        try:
            for records in batches:
                content = encode(records, is_first)
                wait_writable()
                under_way_count = len(records)
                # So much goes at once. More may wait for its reader, and must not be held then.
                interrupt.is_held = len(content) <= PIPE_BUF
                write_bytes(content)
                pointer, is_first, under_way_count = records[-1][0], False, 0
                interrupt.release()
        except ReaderGone:
            return ExitCode.OK
        except OutputFailed as error:
            told, code = str(error), ExitCode.OUTPUT_FAILED
        except PoeError as error:
            told, code = sentence_of(error), ExitCode.of(error)
            if isinstance(error, CorruptRecord) and error.pointer is not None:
                pointer = error.pointer  # in front of it, reading would end there again
        except KeyboardInterrupt:
            told, code = interrupt.word, interrupt.exit_code
        else:
            return ExitCode.OK
    told += f"; continue with --pointer {pointer}"
    if under_way_count:
        told += f", of the next {counted(under_way_count, 'message')} some may be written already"
    write_error(told)
    return code


def _with_progress(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Show on a terminal how much was read, while the messages themselves go somewhere else."""
    if is_terminal(sys.stdout) or not is_terminal(sys.stderr):
        yield from batches
        return
    # For people only; a pipe need not load it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = TextColumn("{task.completed:,.0f} messages"), TextColumn("{task.fields[told]}")
    size_bytes = 0
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task("", total=None, told="")
        for records in batches:
            size_bytes += sum(len(record[1]) for record in records)
            told = f"{size_bytes / 1e6:,.1f} MB"
            progress.update(task, advance=len(records), told=told)
            yield records


def _read_numbered(connection: Socket, topic: bytes, pointer: int, limit: int) -> list[Row]:
    """Read records that follow a pointer, with their ordinals."""
    found = connection.read_range(topic, pointer, POINTER_MAX, limit)
    data = bytes(found.data)
    bounds = pairwise(found.starts.tolist())
    messages = (data[start + RECORD_HEADER_BYTES : end] for start, end in bounds)
    return list(zip(found.pointers.tolist(), messages, count(found.ordinal), strict=False))


def _read_plain(connection: Socket, topic: bytes, pointer: int, limit: int) -> list[Row]:
    """Read records that follow a pointer."""
    return [(*record, 0) for record in connection.read(topic, pointer, limit)]


def _batches(  # noqa: PLR0913 - a topic, how it is read, and from where to where
    connection: Socket,
    read_some: Callable[[Socket, bytes, int, int], list[Row]],
    topic: bytes,
    pointer: int,
    limit: int | None,
    *,
    follow: bool,
) -> Iterator[list[Row]]:
    """Read records that follow a pointer until there are no more, or for ever."""
    while limit is None or limit > 0:
        records = read_some(connection, topic, pointer, min(_BATCH_COUNT, limit or _BATCH_COUNT))
        if records:
            yield records
            pointer = records[-1][0]
            limit = None if limit is None else limit - len(records)
        elif follow:
            connection.wait(topic, pointer, FOLLOW_WAIT_S)
        else:
            return


def _check_known(connection: Socket, topic: bytes) -> None:
    """Tell a mistyped topic from one with nothing behind the pointer; the protocol does not.

    Raises:
        UnknownTopic: nothing was ever put onto it.
    """
    if topic not in connection.topics():
        raise UnknownTopic(topic)


def _newest_pointer(connection: Socket, topic: bytes) -> int:
    """Return the pointer of the last message, 0 without one."""
    try:
        segments = connection.control("segments", topic=topic)
    except UnknownTopic:
        return 0
    return max((segment["pointer_high"] or 0 for segment in segments), default=0)


def _encoder(output_format: Format, *, with_pointers: bool) -> Callable[[list[Row], bool], bytes]:
    """Return what turns a batch into bytes; it is told whether the batch is the first."""
    match output_format:
        case Format.JSON:
            return lambda records, _: b"".join(map(_as_json, records))
        case Format.LINES if with_pointers:
            return lambda records, _: b"".join(b"%d\t%b\n" % record[:2] for record in records)
        case Format.LINES:
            return lambda records, _: b"".join(b"%b\n" % record[1] for record in records)
        case Format.RAW:
            return lambda records, _: b"".join(record[1] for record in records)
        case Format.JOINED:
            return _join


def _join(records: list[Row], is_first: bool) -> bytes:  # noqa: FBT001 - as `_encoder` says
    joined = b"\n".join(record[1] for record in records)
    return joined if is_first else b"\n" + joined


def _as_json(record: Row) -> bytes:
    pointer, message, ordinal = record
    content: dict[str, object] = {"ordinal": ordinal, "pointer": pointer}
    try:
        content["message"] = message.decode()
    except UnicodeDecodeError:
        content["message_base64"] = b64encode(message).decode()
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"
