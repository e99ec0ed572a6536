"""How long a peer may leave a frame unfinished, and how long it may say nothing at all.

Both are told to the connection as messages, `LATE` and `QUIET`. The timers are few, since each
costs more than receiving a small frame: one that is set runs on, and finds out when it rings what
to do.
"""

from enum import Enum
from typing import cast
from weakref import proxy

from poe.actors import GenServer, Timer

_SLOWEST_BYTES_PER_S = 16 * 1024
_QUIET_PARTS = 4
"""The idle time is counted in so many parts: none but the connection's own timer reads a clock."""


class InputAlarm(Enum):
    """What the timers tell; it arrives in `handle_info`."""

    LATE = "the time of an unfinished frame may be over"
    QUIET = "a part of the idle time has passed"
    TURN = "a second of receiving while others wait for room has passed"


LATE = InputAlarm.LATE
QUIET = InputAlarm.QUIET
TURN = InputAlarm.TURN


class InputDeadline:
    """Measures the patience that one connection has with its peer; times are in seconds.

    The connection sets `quiet_parts` to 0 when it receives, and `unfinished_since_s` to None when a
    frame is whole.
    """

    __slots__ = (
        "_actor",
        "_frame_timeout_s",
        "_idle_timeout_s",
        "_late_timer",
        "_quiet_timer",
        "quiet_parts",
        "unfinished_since_s",
    )

    def __init__(self, actor: GenServer, frame_timeout_s: float, idle_timeout_s: float) -> None:
        """Begin to count the idle time; 0 means that it does not count."""
        self._actor: GenServer = cast(
            "GenServer", proxy(actor)
        )  # it is a part of the actor, and ends with it
        self._frame_timeout_s = frame_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._late_timer: Timer | None = None
        self._quiet_timer: Timer | None = None
        self.unfinished_since_s: float | None = None
        self.quiet_parts = 0
        self._ring_quiet_later()

    def watch_frame(self) -> None:
        """Note since when a frame is unfinished.

        The timer runs on when the frame is finished and then finds nothing to do: large frames
        come in parts, and a timer for each would cost more than receiving them.
        """
        if self.unfinished_since_s is None:
            self.unfinished_since_s = self._actor.monotonic_s()
        if self._late_timer is None:
            self.look_again_after(self._frame_timeout_s)

    def look_again_after(self, delay_s: float) -> None:
        """Have the connection look at its unfinished frame after a while."""
        self._late_timer = self._actor.send_after(delay_s, LATE)

    def overdue_s(self, received_bytes: int) -> float | None:
        """Return how long a frame has been unfinished, if that is too long; looks again if not.

        Answers `LATE`. A frame of which so many bytes are there may take longer.
        """
        self._late_timer = None
        if self.unfinished_since_s is None:
            return None
        allowed_s = self._frame_timeout_s + received_bytes / _SLOWEST_BYTES_PER_S
        elapsed_s = self._actor.monotonic_s() - self.unfinished_since_s
        if elapsed_s < allowed_s:
            self.look_again_after(allowed_s - elapsed_s)
            return None
        return elapsed_s

    def is_idle(self) -> bool:
        """Return whether nothing came for the idle time, and count on. Answers `QUIET`."""
        self._ring_quiet_later()
        self.quiet_parts += 1
        return self.quiet_parts > _QUIET_PARTS

    def _ring_quiet_later(self) -> None:
        if self._idle_timeout_s:
            part_s = self._idle_timeout_s / _QUIET_PARTS
            self._quiet_timer = self._actor.send_after(part_s, QUIET)

    def cancel(self) -> None:
        """Stop counting for good."""
        for timer in (self._late_timer, self._quiet_timer):
            if timer is not None:
                timer.cancel()
