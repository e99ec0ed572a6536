"""Lets many who have much to do take turns, so that the event loop looks at everybody else between.

A loop calls all that is ready before it looks again: 500 peers that each take a mebibyte of a large
reply would keep somebody with a small request waiting for a second.
"""

import time
from collections import deque
from collections.abc import Callable

_ROUND_S = 0.001


class Turns:
    """Calls what was added in order, about a millisecond of it in each round of the event loop.

    Belongs to the loop's thread.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Begin with nobody in line; `call_soon` is the loop's."""
        self._call_soon = call_soon
        self._line: deque[Callable[[], object]] = deque()

    def add(self, turn: Callable[[], object]) -> None:
        """Call `turn` when it is its time."""
        self._line.append(turn)
        if len(self._line) == 1:
            self._call_soon(self._serve)

    def _serve(self) -> None:
        line, self._line = self._line, deque()
        end_s = time.monotonic() + _ROUND_S
        while line:
            line.popleft()()
            if time.monotonic() >= end_s:
                break
        line.extend(self._line)
        self._line = line
        if line:
            self._call_soon(self._serve)
