"""Which messages of a run of records contain some bytes, or match a regular expression; pure.

In linear time, whatever the pattern is: bytes are looked for in all records at once, and regular
expressions are those of RE2, which has no others. Without it (extra `mapping`) there is no search
by them: Python's own can be made to take years by a pattern of twenty characters.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from poe.errors import InvalidPattern
from poe.protocol import IndexedRecords
from poe.protocol.scan import Match
from poe.record import RECORD_HEADER_BYTES

PATTERN_MAX: Final = 1000
"""Bytes of what is looked for."""
PREVIEW_MAX: Final = 2048
"""Bytes of a message that are shown of it."""
_BEFORE_BYTES: Final = 256
"""Of these, bytes before the match, where that is further behind."""
_MEMORY_MAX: Final = 4 * 1024 * 1024
_NO_RE2: Final = (
    "this node has no RE2; install the extra poe-queue[mapping]: pip install '.[mapping]' in a "
    "checkout, or search for text"
)


class Matcher(Protocol):
    """Finds messages."""

    def find(self, records: IndexedRecords) -> Iterator[Match]:
        """Yield the messages that match, oldest first, each once."""
        ...


class Contains(NamedTuple):
    """Messages that contain some bytes."""

    wanted: bytes

    def find(self, records: IndexedRecords) -> Iterator[Match]:
        """Look through all records at once: one call skips those without."""
        data, starts, wanted = bytes(records.data), records.starts, self.wanted
        at = data.find(wanted)
        while at >= 0:
            number = int(np.searchsorted(starts, at, side="right")) - 1
            begin, end = int(starts[number]) + RECORD_HEADER_BYTES, int(starts[number + 1])
            if begin <= at and at + len(wanted) <= end:
                yield _match(records, data, number, at)
                at = data.find(wanted, end)
            else:  # it begins in a header, or ends in the next one
                at = data.find(wanted, at + 1)


class Matches:
    """Messages that a regular expression matches somewhere.

    Raises:
        InvalidPattern: on construction; it is none, or there is no RE2.
    """

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str) -> None:
        try:
            import re2  # noqa: PLC0415 - an extra, and for those who search
        except ImportError as error:
            raise InvalidPattern(pattern, _NO_RE2) from error
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY_MAX
        try:
            # As bytes: a match is told by where it is in the message.
            self._pattern: Any = re2.compile(pattern.encode(), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidPattern(pattern, _reason(error)) from error

    def find(self, records: IndexedRecords) -> Iterator[Match]:
        """Look at one message after the other."""
        data, starts = bytes(records.data), records.starts.tolist()
        search = self._pattern.search
        for number in range(len(records)):
            begin, end = starts[number] + RECORD_HEADER_BYTES, starts[number + 1]
            found = search(data[begin:end])
            if found is not None:
                yield _match(records, data, number, begin + found.start())


def _reason(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)


def _match(records: IndexedRecords, data: bytes, number: int, at: int) -> Match:
    begin = int(records.starts[number]) + RECORD_HEADER_BYTES
    end = int(records.starts[number + 1])
    match_at = at - begin
    preview_at = 0
    if match_at > PREVIEW_MAX - _BEFORE_BYTES:
        preview_at = match_at - _BEFORE_BYTES
    preview = data[begin + preview_at : min(begin + preview_at + PREVIEW_MAX, end)]
    ordinal = records.ordinal + number
    pointer = int(records.pointers[number])
    return Match(pointer, ordinal, end - begin, preview, preview_at, match_at)
