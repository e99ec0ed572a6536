"""`poe put`: turns arguments, or the lines of standard input, into messages on a topic."""

import contextlib
import os
import random
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from poe.cli.argument import topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import PartitionOption, asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.interrupt import Interrupt
from poe.cli.line_batches import LineBatches
from poe.cli.output import (
    OutputFailed,
    ReaderGone,
    counted,
    is_terminal,
    write_error,
    write_line,
)
from poe.cli.sentence import sentence_of
from poe.errors import PoeError, QueueExists
from poe.errors.delivery import OUTCOME_UNKNOWN
from poe.protocol import Socket
from poe.protocol.envelope import encode_all


@asks_server
def put(  # noqa: PLR0913 - a command line option each
    topic: Annotated[
        bytes,
        typer.Argument(
            metavar="TOPIC",
            help="Name of the topic; it is made when new.",
            parser=topic_name,
            autocompletion=complete_topic,
        ),
    ],
    messages: Annotated[
        list[str],
        typer.Argument(metavar="MESSAGE", help="Messages, or a single - for a message per line."),
    ],
    *,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Leave empty lines out; else one ends the input.")
    ] = False,
    keep_ends: Annotated[
        bool,
        typer.Option("--keep-ends", help="Keep the newline as part of each message; see above."),
    ] = False,
    partition: PartitionOption = None,
    is_queue: Annotated[
        bool,
        typer.Option(
            "--queue", help="At a node of a cluster: onto a queue, which is made where none is."
        ),
    ] = False,
    endpoint: Endpoint,
) -> ExitCode:
    r"""Append messages to a topic.

    With - each line of standard input is a message, byte for byte: a line ends with "\n" only, and
    a last line without it counts. `poe read` gives the same bytes back, but for two things that
    such messages cannot tell: it ends the last line with "\n" in any case, and an empty line ends
    the input, since no message is empty.

    Exactly the same bytes, whatever the input is, come back with these two:

        poe put TOPIC - --keep-ends < FILE

        poe read TOPIC --format raw | cmp - FILE

    Of a topic that has several partitions, all messages of a run go onto one, so that their order
    is kept: the one that was named, or any. Where the topic has envelopes, they get one without a
    key.

    Prints the number of messages and the last pointer. When it fails or is interrupted, it tells
    how many messages were acknowledged.
    """
    if is_queue:
        _make_queue(topic, endpoint)
    if messages != ["-"]:
        return _put_arguments(topic, messages, partition, endpoint)
    if sys.stdin is None:
        msg = "standard input is closed; pipe lines in, or give messages as arguments"
        raise typer.BadParameter(msg, param_hint="-")
    name, has_envelope = _target(topic, partition, endpoint)
    with endpoint.connect() as connection, Interrupt() as interrupt:
        lines = LineBatches(
            sys.stdin.fileno(), interrupt, skip_empty=skip_empty, keep_ends=keep_ends
        )
        wrap = encode_all if has_envelope else _as_they_are
        return _put_lines(connection, name, lines, interrupt, wrap)


def _make_queue(topic: bytes, endpoint: Endpoint) -> None:
    """Make a queue across nodes; not where the name is taken, nor at a node without a cluster.

    What is put onto its name then goes onto it.
    """
    with endpoint.connect() as connection:
        found = connection.find_topic(topic, is_queue=True)
        if found is not None and found.queue == {}:
            with contextlib.suppress(QueueExists):  # somebody else has just made it
                connection.control("queue_create", topic=topic)


def payloads_of(messages: list[str]) -> list[bytes]:
    """Return the messages of a command line as bytes."""
    for number, message in enumerate(messages, 1):
        if not message:
            msg = f"message {number} is empty; a message has 1 byte or more"
            raise typer.BadParameter(msg, param_hint="MESSAGE")
    return [os.fsencode(message) for message in messages]


def target_and_payloads(
    topic: bytes, messages: list[str], partition: int | None, endpoint: Endpoint
) -> tuple[bytes, list[bytes]]:
    """Return the topic to put the messages of a command line onto, and these as they are stored."""
    payloads = payloads_of(messages)
    name, has_envelope = _target(topic, partition, endpoint)
    return name, encode_all(payloads) if has_envelope else payloads


def _target(topic: bytes, partition: int | None, endpoint: Endpoint) -> tuple[bytes, bool]:
    """Return the topic to put onto, and whether messages are to be in envelopes."""
    parts = endpoint.partitions_of(topic)
    one = parts.one(partition)
    name = random.choice(parts.topics) if one is None else parts.topics[one]  # noqa: S311
    return name, parts.has_envelope


def _as_they_are(messages: list[bytes]) -> list[bytes]:
    return messages


def _put_arguments(
    topic: bytes, messages: list[str], partition: int | None, endpoint: Endpoint
) -> ExitCode:
    """Send the messages of the command line: all or none of them."""
    if "-" in messages:
        msg = "- must stand alone, and then reads the messages from standard input"
        raise typer.BadParameter(msg, param_hint="MESSAGE")
    topic, payloads = target_and_payloads(topic, messages, partition, endpoint)
    with endpoint.connect() as connection, Interrupt() as interrupt:
        try:
            pointer = connection.write(topic, payloads)
        except OUTCOME_UNKNOWN as error:
            told, code = sentence_of(error), ExitCode.of(error)
        except KeyboardInterrupt:
            told, code = interrupt.word, interrupt.exit_code
        else:
            return _report(len(payloads), pointer)
    write_error(f"{told}; nobody knows whether {counted(len(payloads), 'message')} got stored")
    return code


def _put_lines(
    connection: Socket,
    topic: bytes,
    lines: LineBatches,
    interrupt: Interrupt,
    wrap: Callable[[list[bytes]], list[bytes]],
) -> ExitCode:
    """Send all lines, wrapped, and tell what became of them."""
    acknowledged_count = pointer = 0
    sizes: deque[int] = deque()

    def burst() -> Iterator[list[bytes]]:
        for batch in lines.burst():
            sizes.append(len(batch))
            yield wrap(batch)

    error = ""
    with _progress() as show:
        try:
            # A burst ends when the input pauses: its replies are taken then, not when it goes on.
            while not lines.is_at_end:
                for last_pointer in connection.write_batches(topic, burst()):
                    pointer = last_pointer
                    acknowledged_count += sizes.popleft()
                    show(acknowledged_count, lines.read_bytes)
        except PoeError as raised:
            error = sentence_of(raised)
        except OSError as raised:
            error = f"cannot read standard input ({raised.strerror})"
        except KeyboardInterrupt:
            pass  # the second one, which ends the waiting for replies
    if not error and interrupt.number is not None:
        error = interrupt.word
    code = _end(lines, acknowledged_count, pointer, error)
    return code if interrupt.number is None else interrupt.exit_code


def _end(lines: LineBatches, acknowledged_count: int, pointer: int, error: str) -> ExitCode:
    """Report how the input ended."""
    code = ExitCode.OK
    if acknowledged_count or not error:
        code = _report(acknowledged_count, pointer)
    if lines.empty_line_number is not None and not error:
        error = (
            f"line {lines.empty_line_number} is empty, which no message can be, and nothing behind "
            "it was sent; use --skip-empty to leave empty lines out, --keep-ends to store them"
        )
    if not error:
        return code
    told = f"{error}; acknowledged messages: {acknowledged_count}"
    unsure_count = lines.sent_count - acknowledged_count
    if unsure_count:
        told += f", of {unsure_count} sent after them some may be stored"
    write_error(told)
    return ExitCode.FAILURE


def _report(count: int, pointer: int) -> ExitCode:
    """Tell on standard output what was stored; where that cannot be, on standard error."""
    told = f"{counted(count, 'message')}, last pointer {pointer}" if count else "0 messages"
    try:
        write_line(told)
    except ReaderGone:
        pass
    except OutputFailed as error:
        write_error(f"{error}; stored: {told}")
        return ExitCode.OUTPUT_FAILED
    return ExitCode.OK


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], object]]:
    """Show a progress bar on a terminal; what is given takes acknowledged count and bytes read."""
    # Not over what somebody types, either.
    if not is_terminal(sys.stderr) or is_terminal(sys.stdin):
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
    """Return how many bytes standard input has; None when only its end will tell."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
