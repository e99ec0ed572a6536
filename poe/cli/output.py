"""Writes to standard output, as bytes or text, and ends quietly when nobody reads it any more."""

import contextlib
import os
import sys
from collections.abc import Iterator


def write_bytes(data: bytes) -> None:
    """Write bytes as they are, and let them go at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_line(text: str) -> None:
    """Write a line of text."""
    write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")


def write_error(text: str) -> None:
    """Write a sentence to standard error, under the program's name."""
    print(f"poe: {text}", file=sys.stderr)  # noqa: T201 - the one place that does


@contextlib.contextmanager
def ending_with_reader() -> Iterator[None]:
    """End the block when the reader of standard output is gone, as in `poe read t | head`."""
    try:
        yield
    except BrokenPipeError:
        # Python flushes at exit, too, and would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
