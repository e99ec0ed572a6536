"""Writes to the standard streams, and says so when they cannot take it.

A reader that has gone, as in `poe read t | head`, is the usual end of a pipe and no failure.
"""

import contextlib
import errno
import os
import select
import sys
from io import TextIOWrapper, UnsupportedOperation
from typing import TextIO

_CLOSED = "it is closed"


class OutputFailed(Exception):
    """Standard output cannot be written: closed, or its disk is full."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write to standard output ({reason})")


class ReaderGone(OutputFailed):
    """Nobody reads standard output any more, and nobody is to be told."""


def write_bytes(data: bytes) -> None:
    """Write bytes as they are, and let them go at once.

    Raises:
        OutputFailed: a part of the bytes may have been written.
    """
    if sys.stdout is None:
        raise OutputFailed(_CLOSED)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        discard(sys.stdout)
        kind = ReaderGone if isinstance(error, BrokenPipeError) else OutputFailed
        raise kind(error.strerror or str(error)) from error


def check_reader() -> None:
    """Look whether anybody reads standard output; who writes nothing would not hear of it.

    Raises:
        ReaderGone: nobody does any more.
    """
    if is_reader_gone(sys.stdout):
        discard(sys.stdout)
        raise ReaderGone(os.strerror(errno.EPIPE))


def is_reader_gone(stream: TextIO | None) -> bool:
    """Return whether nobody reads a stream any more that had somebody to read it."""
    if stream is None:
        return False
    try:
        descriptor = stream.fileno()
    except UnsupportedOperation:  # what a program has put in its place
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # an error is told in any case
    return any(found & select.POLLERR for _, found in poll.poll(0))


def wait_writable() -> None:
    """Wait until standard output takes `PIPE_BUF` bytes at once, if it has anybody to wait for."""
    if sys.stdout is not None:
        select.select([], [sys.stdout.fileno()], [])


def write_line(text: str) -> None:
    """Write a line of text.

    Raises:
        OutputFailed: as `write_bytes`.
    """
    write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")


def write_error(text: str) -> None:
    """Write a sentence to standard error, under the program's name, if there is one to write to."""
    if sys.stderr is None:
        return  # print() would take standard output, where it does not belong
    try:
        print(f"poe: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the one place that does
    except OSError:
        discard(sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person looks at the stream; a closed one is None."""
    return stream is not None and stream.isatty()


def discard(stream: TextIO | None) -> None:
    """Drop what the stream still holds, which Python would try to write once more at exit."""
    if stream is not None:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def escape_what_has_no_character() -> None:
    """Have standard output escape what its encoding has not, as standard error does.

    Ours is UTF-8 in any locale; typer writes its help as the locale says.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def occupy_closed_descriptors() -> None:
    """Put nothing in the place of standard streams that are closed.

    The first socket or file would take their number, and be written to by whoever means the stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def counted(count: int, noun: str) -> str:
    """Return a number of things as text: `1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
