"""Lets many who have much to do take turns, so that the event loop looks at everybody else between.

A loop calls all that is ready before it looks again: 500 peers that each take a mebibyte of a large
reply would keep somebody with a small request waiting for a second.
"""

import time
from collections import deque
from collections.abc import Callable


class Turns:
    """Calls what was added in order, a little of it in each round of the event loop.

    A round ends with the turn in which its time is over: `round_s`, or a `share` of what everything
    else has taken since the last one, if that is more. Belongs to the loop's thread.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        round_s: float,
        share: float = 0.0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nobody in line; `call_soon` is the loop's."""
        self._call_soon = call_soon
        self._round_s = round_s
        self._share = share
        self._monotonic_s = monotonic_s
        self._line: deque[Callable[[], object]] = deque()
        self._is_due = False
        """Whether the loop was told to call the next round."""
        self._waiting_since_s = 0.0

    def add(self, turn: Callable[[], object]) -> None:
        """Call `turn` when it is its time."""
        self._line.append(turn)
        if not self._is_due:
            self._begin_wait(self._monotonic_s())

    def _begin_wait(self, now_s: float) -> None:
        self._waiting_since_s = now_s
        self._is_due = True
        self._call_soon(self._serve)

    def _serve(self) -> None:
        line, now_s = self._line, self._monotonic_s()
        end_s = now_s + max(self._round_s, self._share * (now_s - self._waiting_since_s))
        try:
            # Who comes again in its turn waits for another round: `add` asks for no second one, by
            # which two would follow each other without a look at anybody else.
            for _ in range(len(line)):
                line.popleft()()
                now_s = self._monotonic_s()
                if now_s >= end_s:
                    break
        finally:
            self._is_due = False
            if line:
                self._begin_wait(now_s)
