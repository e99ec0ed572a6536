"""Turns log records into lines on stderr that no topic name or path can break.

Poe logs no payloads; what remains of foreign text (names, reasons) has its control characters
escaped, so that nobody can forge a line or speak to the terminal.
"""

import logging
import re
import sys

from poe.errors import OptionError

LEVELS = ("debug", "info", "warning", "error", "critical")

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class LineFormatter(logging.Formatter):
    """Formats a record as one line; a traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape control characters of the message; the traceback is added after this."""
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], line)


def start_logging(level: str) -> None:
    """Send all logs of at least `level` to stderr.

    Raises:
        OptionError: there is no such level.
    """
    if level.lower() not in LEVELS:
        raise OptionError("--log-level", level, "one of " + ", ".join(LEVELS))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
