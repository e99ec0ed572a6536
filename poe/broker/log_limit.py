"""Keeps the log of the broker short, whatever clients do and however long a disk stays full.

Of lines alike, made from one format, a few are let through in each period; the first line of a
later period tells how many were left out. Each counts by itself, so that a flood of one kind hides
no line of another. There are as many kinds as there are calls of a logger: nobody can add to them.
A line that tells of a lasting state is logged with `extra=ONCE_A_MINUTE`.
"""

import logging
import threading
from typing import Any, Final

LINES_MAX = 10
"""Lines alike in one period."""
PERIOD_S = 1.0

ONCE_A_MINUTE: Final[dict[str, Any]] = {"lines_max": 1, "period_s": 60.0}
"""For a state that many actors meet again and again, and that one line a minute tells of."""


class LogLimit(logging.Filter):
    """Lets `LINES_MAX` lines alike through in `PERIOD_S`, if they do not say otherwise.

    Any thread may log.

    Invariant: of each kind, lines let through + lines left out == lines logged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is let through; add to it what was left out before."""
        with self._lock:
            kind = self._kinds.get(str(record.msg))
            if kind is None:
                lines_max = getattr(record, "lines_max", LINES_MAX)
                kind = _Kind(lines_max, getattr(record, "period_s", PERIOD_S))
                self._kinds[str(record.msg)] = kind
            left_out = kind.count(record.created)
        if left_out is None:
            return False
        if left_out:
            record.msg = f"{record.msg} ({left_out} lines alike were left out before)"
        return True


class _Kind:
    """The lines of one format: since when they are counted, and how many came since."""

    __slots__ = ("_lines", "_lines_max", "_period_s", "_since_s")

    def __init__(self, lines_max: int, period_s: float) -> None:
        self._lines_max = lines_max
        self._period_s = period_s
        self._since_s = 0.0
        self._lines = 0

    def count(self, now_s: float) -> int | None:
        """Count one more line; None to leave it out, else how many were left out before it."""
        # Not only later: the wall clock may be set back, and must not silence anything for hours.
        if not 0 <= now_s - self._since_s < self._period_s:
            left_out = max(0, self._lines - self._lines_max)
            self._since_s, self._lines = now_s, 1
            return left_out
        self._lines += 1
        return 0 if self._lines <= self._lines_max else None
