r"""Turns a stream of bytes into batches of lines, byte for byte.

A line ends with "\n" and with nothing else, which is no part of it; "\r" is a byte like any other.
What follows the last "\n" is a line too, if it is not empty. A batch is what one `read` of the
stream gave, so that lines which trickle in are sent at once and a file is sent in large pieces.
"""

import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from poe.errors import EmptyLine

_CHUNK_BYTES = 256 * 1024


class LineBatches:
    """Iterates over the lines of a descriptor; knows how far it came.

    Always:

        sent_count == lines of all batches handed out

    Used in the main thread as a context manager, it takes Ctrl-C: the first ends the stream as if
    no more lines came, so that what was sent can still be acknowledged; the second is as usual.

    Raises:
        EmptyLine: from iteration, at a line of no bytes, unless `skip_empty`; lines before it in
            the same batch have been handed out.
    """

    def __init__(
        self, descriptor: int, *, skip_empty: bool = False, keep_ends: bool = False
    ) -> None:
        """Read a descriptor.

        Args:
            descriptor: what to read from.
            skip_empty: leave lines of no bytes out.
            keep_ends: leave the "\\n" at each line; no line is empty then.
        """
        self.sent_count = 0
        self.read_bytes = 0
        self.was_interrupted = False
        self._descriptor = descriptor
        self._skip_empty = skip_empty
        self._keep_ends = keep_ends
        self._line_number = 0
        self._is_reading = False
        self._handler_before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> "LineBatches":
        self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._handler_before)

    def __iter__(self) -> Iterator[list[bytes]]:
        """Hand out the lines, a batch for each piece that the stream gives."""
        rest: list[bytes] = []
        while chunk := self._read():
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                # Joined only when the line is complete: a line of many pieces costs no more.
                rest.append(tail)
                continue
            yield from self._checked(b"".join([*rest, head]).split(b"\n"), b"\n")
            rest = [tail] if tail else []
        # An interrupted line is half a line, and no message.
        if rest and not self.was_interrupted:
            yield from self._checked([b"".join(rest)], b"")

    def _checked(self, lines: list[bytes], end: bytes) -> Iterator[list[bytes]]:
        """Hand out the lines of one batch, as far as they may be messages."""
        first_number = self._line_number + 1
        self._line_number += len(lines)
        empty_number = None
        if self._keep_ends:
            lines = [line + end for line in lines]
        elif b"" in lines and self._skip_empty:
            lines = [line for line in lines if line]
        elif b"" in lines:
            empty_number = first_number + lines.index(b"")
            lines = lines[: lines.index(b"")]
        if lines:
            self.sent_count += len(lines)
            yield lines
        if empty_number is not None:
            raise EmptyLine(empty_number)

    def _read(self) -> bytes:
        """Read what is there; nothing at the end or after an interrupt."""
        if self.was_interrupted:
            return b""
        self._is_reading = True
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except KeyboardInterrupt:
            chunk = b""
        finally:
            self._is_reading = False
        self.read_bytes += len(chunk)
        return chunk

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        was_interrupted, self.was_interrupted = self.was_interrupted, True
        # Between reads a reply is being waited for, which must not be lost.
        if self._is_reading or was_interrupted:
            raise KeyboardInterrupt
