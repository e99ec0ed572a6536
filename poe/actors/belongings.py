"""What an actor has of others, and what waits for it or works for it; all that ends with it.

Nothing of an actor that has ended may stay behind in those who live: a timer that rings for nobody,
a monitor whose notice nobody gets, a call whose reply nobody awaits.
"""

from collections.abc import Callable
from typing import Any, Protocol

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call
from poe.actors.message import DownSignal, Monitor
from poe.actors.timer_queue import Timer


class Pending(Protocol):
    """A timer, a call or a work of an actor; it takes itself out of `owner` when it is done."""

    owner: dict[Any, Any] | None

    def cancel(self) -> None:
        """Give it up."""


class Belongings(dict[Monitor | Pending, DownSignal | None]):
    """The pending timers, calls and works of one actor, and its monitors of others.

    A monitor maps to the notice that has come of it and waits in the mailbox, anything else to
    None. What is done takes itself out. Made for an actor with the first that it has.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: ActorCell) -> None:
        super().__init__()
        self._cell = cell

    def add_timer(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Run `action` after `delay_s`, unless the actor has ended by then.

        Raises:
            ValueError: the delay is negative or has no end, or is no number.
        """
        timer = self._cell.run_queue.add_timer(delay_s, action)
        timer.owner = self
        self[timer] = None
        return timer

    def add_call(self, call: Call) -> None:
        """Give a call up if the actor, which made it, ends before the reply, or has ended."""
        if self._cell.instance is None:
            call.cancel()
            return
        call.owner = self
        self[call] = None

    def add_work(self, work: Pending) -> None:
        """Cancel work that the actor has begun if that ends before it is done."""
        work.owner = self
        self[work] = None

    def add_monitor(self, other: ActorCell, name: str | None = None) -> Monitor:
        """Ask for one `Down` when `other` ends; at once when it is dead."""
        monitor = Monitor(other.address, name)
        self[monitor] = None
        other.accept_monitor(monitor, self._cell)
        return monitor

    def drop_monitor(self, monitor: Monitor) -> None:
        """Take a monitor of this actor back; its `Down`, if that is on its way, is dropped."""
        if monitor in self:
            del self[monitor]
            monitor.ref.cell.drop_monitor(monitor)

    def take_down(self, monitor: Monitor) -> DownSignal | None:
        """Return the notice of a monitor that has come already; it comes no second time."""
        down = self.get(monitor)
        if down is not None:
            del self[monitor]
        return down

    def release(self) -> None:
        """End them all, because the actor ends."""
        for belonging in list(self):
            if isinstance(belonging, Monitor):
                belonging.ref.cell.drop_monitor(belonging)
            else:
                belonging.cancel()
