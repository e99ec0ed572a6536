"""An alarm of an actor that is moved forward, and never back, until it has rung."""

import math
from collections.abc import Callable
from typing import Final, cast
from weakref import proxy

from poe.actors.gen_server import GenServer
from poe.actors.server_cell import cell_of_actor
from poe.actors.timer_queue import Timer

_LATE_S: Final = 0.5
"""An alarm that is later was held up, and its actor had not just something else to do."""


class AlarmClock:
    """Sends its actor one message at the earliest time that it was set to."""

    __slots__ = ("_actor", "_due_s", "_message", "_monotonic_s", "_timer")

    def __init__(self, actor: GenServer, message: object) -> None:
        """Belong to an actor, which it sends `message`; whoever takes that calls `rang`."""
        self._actor = cast("GenServer", proxy(actor))  # it is a part of the actor
        self._message = message
        # Some ask it again and again, and the actor would ask for it each time.
        self._monotonic_s: Callable[[], float] = cell_of_actor(actor).run_queue.monotonic_s
        self._timer: Timer | None = None
        self._due_s = math.inf

    def rings_within(self, wait_s: float) -> bool:
        """Return whether it rings in so long at the latest, as it is set now."""
        return self._due_s <= self._monotonic_s() + wait_s

    def take_lateness(self) -> bool:
        """Return whether it should have rung a while ago; it counts as due just now from then on.

        Its actor was held up then, with all its node maybe, and has heard nobody meanwhile. The
        message is still to come.
        """
        now_s = self._monotonic_s()
        is_late = self._due_s <= now_s - _LATE_S
        if is_late:
            self._due_s = now_s
        return is_late

    def ring_after(self, wait_s: float) -> None:
        """Ring after so long, unless it does so before."""
        if self.rings_within(wait_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = self._monotonic_s() + wait_s
        self._timer = self._actor.send_after(wait_s, self._message)

    def rang(self) -> None:
        """Note that the message has come: the next time is another alarm."""
        self._timer, self._due_s = None, math.inf
