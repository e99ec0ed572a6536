"""What a GenServer does until its next message: wait for a time-out.

A time-out is a message to the actor itself if no other one comes first. While it runs it observes
the actor, so that an actor without one pays nothing. Any message ends it; a request of the runtime
itself starts it over; it never fires while the actor is suspended.

Source: OTP `gen_server`, time-out and `hibernate` in a callback's result; `spec/otp.md` §2.3.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from poe.actors.call import Call, Owner
from poe.actors.message import REPLY, TIMED_OUT, Entry, ExitSignal, SystemRequest
from poe.actors.reason import Reason
from poe.actors.timer_queue import Timer


class Idler(Protocol):
    """An actor as its idle time knows it."""

    queue: deque[Entry]
    blocked_by: object
    instance: Any

    @property
    def observers(self) -> Iterable[object] | None:
        """Return those who see each message before the actor does."""

    @property
    def is_suspended(self) -> bool:
        """Return whether messages wait until the actor is resumed."""
        ...

    def is_void(self, message: object) -> bool:
        """Return whether nothing comes of a notice or a signal."""
        ...

    def observe_by(self, observer: Any) -> None:  # noqa: ANN401 - with a `see`
        """Show each message to an observer from now on."""

    def observe_no_more(self, observer: Any) -> None:  # noqa: ANN401
        """Undo `observe_by`."""

    def own(self) -> Owner:
        """Return what ends with the actor."""
        ...

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Take one message."""

    def abort(self, reason: Reason) -> None:
        """End the actor wherever it stands."""


class IdleTime:
    """One idle time of one actor, from the end of a callback to the next message.

    It is among the observers of its cell exactly as long as it runs; there is one at most.
    """

    __slots__ = ("_after_s", "_timer", "cell")

    def __init__(self, cell: Idler, after_s: float) -> None:
        self.cell = cell
        self._after_s = after_s
        self._timer: Timer | None = None

    def start(self) -> None:
        """Wait until a message comes or the time is up."""
        cell = self.cell
        for observer in cell.observers or ():
            if type(observer) is IdleTime:
                observer.end()
        cell.observe_by(self)
        if self._after_s > 0:
            self._timer = cell.own().add_timer(self._after_s, self._queue_time_up)
        else:
            self._queue_time_up()

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self.cell.observe_no_more(self)

    def see(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Look at a message; one to the actor ends the idle time."""
        if type(message) is Call and type(message.request) is SystemRequest:
            IdleTime(self.cell, self._after_s).start()
        elif sender is not REPLY and not self._is_unseen(message):
            self.end()

    def _is_unseen(self, message: object) -> bool:
        """Return whether the actor sees none of a message: it ignores it, ends or is suspended."""
        cell = self.cell
        is_signal = type(message) is ExitSignal and not cell.instance.trap_exits
        return is_signal or cell.is_suspended or cell.is_void(message)

    def _queue_time_up(self) -> None:
        """Let the end of the time wait its turn: messages that are on their way come first."""
        self.cell.queue.append((TimeUp(self), None, None))

    def tell_time_up(self) -> None:
        """Tell the actor, unless something came first."""
        cell = self.cell
        if self in (cell.observers or ()) and cell.blocked_by is None:
            self.end()
            cell.deliver(TIMED_OUT, None)


class TimeUp:
    """Stands for the actor in a run-queue entry, so that no message of this kind exists."""

    __slots__ = ("_idle_time",)

    def __init__(self, idle_time: IdleTime) -> None:
        self._idle_time = idle_time

    @property
    def cell(self) -> Idler:
        """Return the actor's cell."""
        return self._idle_time.cell

    def deliver(self, message: object, sender: object) -> None:
        """Tell the idle time."""
        del message, sender
        self._idle_time.tell_time_up()

    def abort(self, reason: Reason) -> None:
        """End the actor, which was cut short when it was told."""
        self.cell.abort(reason)
