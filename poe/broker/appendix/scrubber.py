"""The scrubber: the actor that re-reads closed segments, so that damage is found before it is read.

Disks forget. Once a day every closed segment is compared with its checksums, in pieces so small and
so far apart that nobody waits for them. It asks no appendix server, and wakes none: it reads the
files itself. What it finds is logged; a reader is told of it by the read itself.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from poe.actors import GenServer
from poe.broker.appendix.counters import ScrubCount
from poe.errors import NoDescriptors, StorageError
from poe.option import Range, check_options
from poe.storage import Store

logger = logging.getLogger("poe.broker")

_TICK = object()
_ROUND = object()
_TICK_S = 0.1
_FIRST_ROUND_S = 60.0
"""Pause before the first round: what a start has to do comes first."""
_ROUNDS_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubberOptions:
    """How fast closed segments are re-read.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    scrub_rate: Annotated[int, Range(0, 2**40 - 1, unit="bytes per second")] = 4 * 1024 * 1024
    """Bytes per second; 0 leaves damage to be found by who reads it."""

    def __post_init__(self) -> None:
        """Reject what is not allowed."""
        check_options(self)


class Scrubber(GenServer):
    """Compares all closed segments of a store with their sums, again and again."""

    def init(self, store: Store, options: ScrubberOptions, count: ScrubCount) -> None:
        """Begin a first round after a while."""
        self._store = store
        self._count = count
        self._rate = options.scrub_rate
        self._paths: list[str] = []
        self._path = ""
        self._pieces: Iterator[int] | None = None
        self._found_count = 0
        if self._rate:
            self.send_after(_FIRST_ROUND_S, _ROUND)

    def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take its own timers."""
        if message is _ROUND:
            self.send_after(_ROUNDS_S, _ROUND)
            # A round that takes longer than a day goes on, and the next begins where it ends.
            if not self._paths and self._pieces is None:
                self._paths = self._store.closed_segments()[::-1]
                self.send_after(_TICK_S, _TICK)
        elif message is _TICK:
            self._work(self._rate * _TICK_S)
        else:
            super().handle_info(message)

    def _work(self, budget_bytes: float) -> None:
        """Compare pieces worth the budget; a piece that exceeds it lengthens the pause."""
        read_bytes = 0
        while read_bytes < budget_bytes:
            if self._pieces is None:
                if not self._paths:
                    logger.info("all closed segments were compared, %d damaged", self._found_count)
                    self._found_count = 0
                    self._count.ended_us = time.time_ns() // 1000
                    return
                self._path = self._paths.pop()
                self._pieces = self._store.scrub(self._path)
            try:
                piece_bytes = next(self._pieces, None)
            except NoDescriptors:
                # That says nothing of the segment: it is the next to be compared.
                self._paths.append(self._path)
                self._pieces = None
                break
            except StorageError as error:
                self._found_count += 1
                self._count.damaged += 1
                logger.error("segment %s: %s", self._path, error)
                piece_bytes = None
            if piece_bytes is None:
                self._pieces = None
                self._count.compared += 1
                self._count.left = len(self._paths)
            read_bytes += piece_bytes or 0
        self.send_after(_TICK_S * max(1.0, read_bytes / budget_bytes), _TICK)
