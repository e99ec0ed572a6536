"""Turns log records into lines on stderr that no topic name or path can break.

Poe logs no payloads; what remains of foreign text (names, reasons) has its control characters
escaped, so that nobody can forge a line or speak to the terminal.
"""

import logging
import re
import select
import sys
import time
from io import UnsupportedOperation
from typing import TextIO

from poe.errors import OptionError

LEVELS = ("debug", "info", "warning", "error", "critical")

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PIECE = 1024
"""Characters: in UTF-8 no more than the 4096 bytes that a pipe with room takes at once."""
_PATIENCE_S = 1.0
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class LineFormatter(logging.Formatter):
    """Formats a record as one line; a traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape control characters of the message; the traceback is added after this."""
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], line)


class PatientHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream whose reader may stop reading: a pipe, or a terminal after Ctrl-S.

    Whoever logs would wait for that reader, and with the event loop all clients, for ever. A line
    waits a second; then lines are left out until there is room again, and how many is told. Only
    where several processes write into one pipe may another one take the last of its room meanwhile.
    """

    def __init__(self, stream: TextIO, patience_s: float = _PATIENCE_S) -> None:
        """Write to `stream`, each line after `patience_s` at most."""
        super().__init__(stream)
        self._patience_s = patience_s
        self._left_out_count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it among those that nobody takes."""
        try:
            text = self.format(record) + self.terminator
            if self._left_out_count:
                text = f"{self._left_out()}{self.terminator}{text}"
            if self._write(text):
                self._left_out_count = 0
            else:
                self._left_out_count += 1
        except Exception:  # noqa: BLE001 - as `logging` does it: a log breaks nobody
            self.handleError(record)

    def _left_out(self) -> str:
        # A line may have been cut off.
        return f"\nlines left out, which nobody has read: {self._left_out_count}"

    def _write(self, text: str) -> bool:
        """Return whether there was room for all of it."""
        deadline_s = time.monotonic() + (0 if self._left_out_count else self._patience_s)
        for start in range(0, len(text), _PIECE):
            if not self._has_room(deadline_s):
                return False
            self.stream.write(text[start : start + _PIECE])
            self.stream.flush()
        return True

    def _has_room(self, deadline_s: float) -> bool:
        try:
            descriptor = self.stream.fileno()
        except UnsupportedOperation:  # what a program has put in its place
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return bool(poll.poll(max(0, deadline_s - time.monotonic()) * 1000))


def start_logging(level: str) -> None:
    """Send all logs of at least `level` to stderr.

    Raises:
        OptionError: there is no such level.
    """
    if level.lower() not in LEVELS:
        raise OptionError("--log-level", level, "one of " + ", ".join(LEVELS))
    handler = PatientHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
