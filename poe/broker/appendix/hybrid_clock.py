"""A clock that tells the time of day, and does not jump when somebody sets the machine's.

Pointers are times: a clock that is set ten years ahead for a moment would make all later pointers
ten years too large. Strategy: the wall clock is read once, at the start; from then on the monotonic
clock counts, and drifts towards the wall clock by a tenth of the time that passes. A difference of
more than a minute is no drift but a mistake, or its correction: it is told in the log, and not
followed before the next start.
"""

import logging
import time
from collections.abc import Callable

from poe.broker.log_limit import ONCE_A_MINUTE

logger = logging.getLogger("poe.broker")

JUMP_S = 60.0
"""A difference of clocks that is worth an alarm."""

_LOOK_EVERY_NS = 500_000_000
_SLEW_PART = 10


class HybridClock:
    """The time of day in microseconds since the epoch; one thread at a time may ask.

    Always, whatever the wall clock does: of two answers the later one is not less, and they differ
    by 9/10 to 11/10 of the time between.
    """

    __slots__ = ("_look_at_ns", "_monotonic_ns", "_offset_ns", "_wall_ns")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        now_ns = monotonic_ns()
        self._offset_ns = wall_ns() - now_ns
        self._look_at_ns = now_ns + _LOOK_EVERY_NS

    def now_us(self) -> int:
        """Return the microseconds since the epoch."""
        now_ns = self._monotonic_ns()
        if now_ns >= self._look_at_ns:
            self._follow(now_ns)
        return (now_ns + self._offset_ns) // 1000

    def _follow(self, now_ns: int) -> None:
        """Drift towards the wall clock, if it can be believed."""
        passed_ns = now_ns - self._look_at_ns + _LOOK_EVERY_NS
        self._look_at_ns = now_ns + _LOOK_EVERY_NS
        ahead_ns = self._wall_ns() - now_ns - self._offset_ns
        if abs(ahead_ns) > JUMP_S * 1e9:
            logger.error(
                "the machine's clock is %.0f s from where it should be since the start; "
                "messages go on in the old time until the next start",
                ahead_ns / 1e9,
                extra=ONCE_A_MINUTE,
            )
            return
        step_ns = passed_ns // _SLEW_PART
        self._offset_ns += max(-step_ns, min(step_ns, ahead_ns))


class JumpWatch:
    """Tells whether the time may have jumped, so that nothing is deleted in haste.

    It is distrusted from a jump on, or from a start that comes long after the last message, until
    `trust` is called.
    """

    __slots__ = ("_is_distrusted", "_last")

    def __init__(self, newest_us: int, now_us: int) -> None:
        """Begin at a start, with the time of the last message, 0 where there is none."""
        self._is_distrusted = newest_us > 0 and now_us - newest_us > JUMP_S * 1e6
        self._last: tuple[int, float] | None = None

    def has_jumped(self, now_us: int, monotonic_s: float) -> bool:
        """Compare what two clocks say since the last time."""
        if self._last is not None:
            last_us, last_s = self._last
            jump_s = (now_us - last_us) / 1e6 - (monotonic_s - last_s)
            if abs(jump_s) > JUMP_S:
                logger.error("the clock has jumped by %.0f s", jump_s)
                self._is_distrusted = True
        self._last = (now_us, monotonic_s)
        return self._is_distrusted

    def trust(self) -> None:
        """Go on as if nothing had been."""
        self._is_distrusted = False
