r"""Turns a stream of bytes into batches of lines, byte for byte.

A line ends with "\n" and with nothing else, which is no part of it; "\r" is a byte like any other.
What follows the last "\n" is a line too, if it is not empty. A batch is what one read of the
stream gave, so that lines which trickle in are sent at once and a file is sent in large pieces.
"""

import os
import select
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

_CHUNK_BYTES = 256 * 1024


class LineBatches:
    """The lines of a descriptor, in batches; knows how far it came.

    The lines end early at a line of no bytes, which can be no message, and at Ctrl-C: used in the
    main thread as a context manager, the first Ctrl-C only ends the lines, so that what was sent
    can still be acknowledged; the second is as usual.

    Attributes:
        is_at_end: no more lines will come.
        sent_count: lines handed out.
        read_bytes: bytes taken from the descriptor.
        was_interrupted: Ctrl-C ended the lines.
        empty_line_number: the empty line that ended the lines, counted from 1; None without one.
    """

    def __init__(
        self, descriptor: int, *, skip_empty: bool = False, keep_ends: bool = False
    ) -> None:
        r"""Read a descriptor.

        Args:
            descriptor: what to read from.
            skip_empty: leave lines of no bytes out.
            keep_ends: leave the "\n" at each line; no line is empty then.
        """
        self.is_at_end = False
        self.sent_count = 0
        self.read_bytes = 0
        self.was_interrupted = False
        self.empty_line_number: int | None = None
        self._descriptor = descriptor
        self._skip_empty = skip_empty
        self._keep_ends = keep_ends
        self._unfinished: list[bytes] = []
        self._line_number = 0
        self._is_reading = False
        self._handler_before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._handler_before)

    def burst(self) -> Iterator[list[bytes]]:
        """Wait for input and hand out batches while more of it is there, or until the end."""
        while not self.is_at_end:
            chunk = self._read()
            if not chunk:
                self.is_at_end = True
                # An interrupted line is half a line, and no message.
                if self._unfinished and not self.was_interrupted:
                    yield from self._messages([b"".join(self._unfinished)], b"")
                return
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield from self._messages(b"".join([*self._unfinished, head]).split(b"\n"), b"\n")
                self._unfinished.clear()
            # Joined only when the line is complete: one of many pieces costs no more.
            if tail:
                self._unfinished.append(tail)
            if not select.select([self._descriptor], [], [], 0)[0]:
                return

    def _messages(self, lines: list[bytes], end: bytes) -> Iterator[list[bytes]]:
        """Hand out the lines of one piece as far as they can be messages: one batch, or none."""
        first_number = self._line_number + 1
        self._line_number += len(lines)
        if self._keep_ends:
            lines = [line + end for line in lines]
        elif b"" in lines and self._skip_empty:
            lines = [line for line in lines if line]
        elif b"" in lines:
            self.is_at_end = True
            self.empty_line_number = first_number + lines.index(b"")
            lines = lines[: lines.index(b"")]
        if lines:
            self.sent_count += len(lines)
            yield lines

    def _read(self) -> bytes:
        """Read what is there; nothing at the end or after an interrupt."""
        self._is_reading = True
        try:
            # Asked here, not before: an interrupt in between would be waited out by the read.
            chunk = b"" if self.was_interrupted else os.read(self._descriptor, _CHUNK_BYTES)
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
