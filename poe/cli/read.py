"""`poe read`: turns the records behind a pointer into bytes on standard output."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import count
from select import PIPE_BUF
from typing import Annotated, TypeAlias

import typer

from poe.cli.argument import choice, number, topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import PartitionOption, asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.interrupt import Interrupt
from poe.cli.output import (
    OutputFailed,
    ReaderGone,
    check_reader,
    counted,
    is_terminal,
    wait_writable,
    write_bytes,
    write_error,
)
from poe.cli.sentence import sentence_of
from poe.errors import CorruptRecord, NotATopic, PoeError, UnknownTopic
from poe.protocol import Socket
from poe.protocol.envelope import opened
from poe.record import POINTER_MAX

Row: TypeAlias = tuple[int, bytes, int]
"""Pointer, message and ordinal, which is 0 where nobody asks for it."""

_BATCH_COUNT = 1000
_FOLLOW_WAIT_S = 5.0
"""So long it may go unnoticed that the reader of a quiet topic has gone."""


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


@asks_server
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
    partition: PartitionOption = None,
    endpoint: Endpoint,
) -> ExitCode:
    r"""Write the messages of a topic, oldest first; one partition after the other.

    Formats: `lines` ends each message with "\n"; `joined` writes "\n" between messages but not
    after the last; `raw` writes nothing but the messages; `json` writes an object per line with
    ordinal, pointer and message, or message_base64 where the message is not UTF-8; also partition,
    key and headers, where the topic has them.

    When it is interrupted or fails, it tells the pointer to continue from.
    """
    if with_pointers and output_format in {Format.RAW, Format.JOINED}:
        msg = "pointers need --format lines or json"
        raise typer.BadParameter(msg, param_hint="--with-pointers")
    if pointer is not None and start is not None:
        msg = "--pointer says where to begin already; leave one of them out"
        raise typer.BadParameter(msg, param_hint="--from")
    parts = endpoint.partitions_of(topic)
    if parts.is_queue:
        raise NotATopic(topic)
    one = parts.one(partition)
    if one is None and (follow or pointer is not None):
        msg = f"the topic has {len(parts.topics)} partitions; name one by --partition"
        raise typer.BadParameter(msg, param_hint="--follow" if follow else "--pointer")
    code, count_left, is_first = ExitCode.OK, limit, True
    with endpoint.connect() as connection:
        if not (follow or parts.is_known):
            _check_known(connection, topic)
        for number in range(len(parts.topics)) if one is None else [one]:
            name = parts.topics[number]
            begin = pointer or 0
            if pointer is None and start is Start.LATEST:
                begin = _newest_pointer(connection, name)
            read_some = _read_numbered if output_format is Format.JSON else _read_plain
            batches = _batches(connection, read_some, name, begin, count_left, follow=follow)
            encode = _encoder(
                output_format,
                with_pointers=with_pointers,
                partition=number if len(parts.topics) > 1 else None,
                has_envelope=parts.has_envelope,
            )
            copied = _Copied(number if len(parts.topics) > 1 else None, begin, is_first=is_first)
            code = copied.write(batches if follow else _with_progress(batches), encode)
            count_left = None if count_left is None else count_left - copied.count
            is_first = is_first and not copied.count
            if code is not ExitCode.OK:
                break
    return code


class _Copied:
    """How far one partition was written to standard output."""

    def __init__(self, partition: int | None, pointer: int, *, is_first: bool) -> None:
        self._partition = partition
        self._pointer = pointer
        self._is_first = is_first
        self.count = 0

    def write(
        self, batches: Iterator[list[Row]], encode: Callable[[list[Row], bool], bytes]
    ) -> ExitCode:
        """Write all batches that follow its pointer; tell where to continue when it ends early."""
        under_way_count = 0
        with Interrupt() as interrupt:
            try:
                for records in batches:
                    content = encode(records, self._is_first)
                    wait_writable()
                    under_way_count = len(records)
                    # So much goes at once. More may wait for its reader, and must not be held then.
                    interrupt.is_held = len(content) <= PIPE_BUF
                    write_bytes(content)
                    self._pointer, self._is_first, under_way_count = records[-1][0], False, 0
                    self.count += len(records)
                    interrupt.release()
            except ReaderGone:
                return ExitCode.OK
            except OutputFailed as error:
                told, code = str(error), ExitCode.OUTPUT_FAILED
            except PoeError as error:
                told, code = sentence_of(error), ExitCode.of(error)
                if isinstance(error, CorruptRecord) and error.pointer is not None:
                    # In front of it, reading would end there again.
                    self._pointer = error.pointer
            except KeyboardInterrupt:
                told, code = interrupt.word, interrupt.exit_code
            else:
                return ExitCode.OK
        which = "" if self._partition is None else f"--partition {self._partition} "
        told += f"; continue with {which}--pointer {self._pointer}"
        if under_way_count:
            messages = counted(under_way_count, "message")
            told += f", of the next {messages} some may be written already"
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
    numbers = zip(found.pairs(), count(found.ordinal), strict=False)
    return [(*record, number) for record, number in numbers]


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
            check_reader()
            connection.wait(topic, pointer, _FOLLOW_WAIT_S)
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


def _encoder(
    output_format: Format, *, with_pointers: bool, partition: int | None, has_envelope: bool
) -> Callable[[list[Row], bool], bytes]:
    """Return what turns a batch into bytes; it is told whether the batch is the first.

    Of what is in envelopes only JSON tells more than the values.
    """
    if output_format is Format.JSON:
        encode_row = partial(_as_json, partition=partition, has_envelope=has_envelope)
        return lambda records, _: b"".join(map(encode_row, records))
    encode = _plain_encoder(output_format, with_pointers=with_pointers)
    if not has_envelope:
        return encode
    return lambda records, is_first: encode([_unwrapped(each) for each in records], is_first)


def _plain_encoder(
    output_format: Format, *, with_pointers: bool
) -> Callable[[list[Row], bool], bytes]:
    if output_format is Format.JOINED:
        return _join
    if output_format is Format.RAW:
        return lambda records, _: b"".join(record[1] for record in records)
    if with_pointers:
        return lambda records, _: b"".join(b"%d\t%b\n" % record[:2] for record in records)
    return lambda records, _: b"".join(b"%b\n" % record[1] for record in records)


def _unwrapped(record: Row) -> Row:
    pointer, message, ordinal = record
    return pointer, opened(message).value or b"", ordinal


def _join(records: list[Row], is_first: bool) -> bytes:  # noqa: FBT001 - as `_encoder` says
    joined = b"\n".join(record[1] for record in records)
    return joined if is_first else b"\n" + joined


def _as_json(record: Row, *, partition: int | None, has_envelope: bool) -> bytes:
    pointer, message, ordinal = record
    content: dict[str, object] = {} if partition is None else {"partition": partition}
    content |= {"ordinal": ordinal, "pointer": pointer}
    if has_envelope:
        found = opened(message)
        content |= {} if found.key is None else _text("key", found.key)
        headers = {name: _text("value", value) for name, value in (found.headers or {}).items()}
        content |= {"headers": headers} if headers else {}
        content |= {"message": None} if found.value is None else _text("message", found.value)
    else:
        content |= _text("message", message)
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"


def _text(name: str, value: bytes) -> dict[str, str]:
    """Return bytes as a member: text where they are UTF-8, else `name_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
