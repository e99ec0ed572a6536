r"""Turns a stream of bytes into batches of lines, byte for byte.

A line ends with "\n" and with nothing else, which is no part of it; "\r" is a byte like any other.
What follows the last "\n" is a line too, if it is not empty. A batch is what one read of the
stream gave, so that lines which trickle in are sent at once and a file is sent in large pieces.
"""

import os
import select
from collections.abc import Iterator

from poe.cli.interrupt import Interrupt
from poe.protocol.frames import FRAME_MAX

_CHUNK_BYTES = 256 * 1024


class LineBatches:
    """The lines of a descriptor, in batches; knows how far it came.

    The lines end early at a line of no bytes, which can be no message, and at an interrupt, which
    is raised nowhere but while it waits for input: what was sent can still be acknowledged.

    Attributes:
        is_at_end: no more lines will come.
        sent_count: lines handed out.
        read_bytes: bytes taken from the descriptor.
        empty_line_number: the empty line that ended the lines, counted from 1; None without one.
    """

    def __init__(
        self,
        descriptor: int,
        interrupt: Interrupt,
        *,
        skip_empty: bool = False,
        keep_ends: bool = False,
    ) -> None:
        r"""Read a descriptor.

        Args:
            descriptor: what to read from.
            interrupt: what may end the lines; it is held from now on, but for the waiting.
            skip_empty: leave lines of no bytes out.
            keep_ends: leave the "\n" at each line; no line is empty then.
        """
        self.is_at_end = False
        self.sent_count = 0
        self.read_bytes = 0
        self.empty_line_number: int | None = None
        self._descriptor = descriptor
        self._interrupt = interrupt
        self._interrupt.is_held = True
        self._skip_empty = skip_empty
        self._keep_ends = keep_ends
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0
        self._line_number = 0

    def burst(self) -> Iterator[list[bytes]]:
        """Wait for input and hand out batches while more of it is there, or until the end."""
        while not self.is_at_end:
            chunk = self._read()
            if not chunk:
                self.is_at_end = True
                # An interrupted line is half a line, and no message.
                if self._unfinished and self._interrupt.number is None:
                    yield from self._messages([b"".join(self._unfinished)], b"")
                return
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield from self._messages(b"".join([*self._unfinished, head]).split(b"\n"), b"\n")
                self._unfinished.clear()
                self._unfinished_bytes = 0
            # Joined only when the line is complete: one of many pieces costs no more.
            if tail:
                self._unfinished.append(tail)
                self._unfinished_bytes += len(tail)
            if self._unfinished_bytes > FRAME_MAX:
                # No request holds it: it is refused before more of it fills the memory.
                self.is_at_end = True
                yield from self._messages([b"".join(self._unfinished)], b"")
                return
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
        self._interrupt.is_held = False
        try:
            # Asked here, not before: an interrupt in between would be waited out by the read.
            ended = self._interrupt.number is not None
            chunk = b"" if ended else os.read(self._descriptor, _CHUNK_BYTES)
        except KeyboardInterrupt:
            chunk = b""
        finally:
            self._interrupt.is_held = True
        self.read_bytes += len(chunk)
        return chunk
