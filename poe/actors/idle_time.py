"""What a GenServer does until its next message: wait for a time-out, or hibernate.

A time-out is a message to the actor itself if no other one comes first. While it runs it stands
before the actor, as its cell's way in, so that an actor without one pays nothing. Any message
ends it; a request of the runtime itself starts it over; it never fires while the actor is
suspended.

Source: OTP `gen_server`, time-out and `hibernate` in a callback's result; `spec/otp.md` §2.3.
"""

from typing import TYPE_CHECKING, Any

from poe.actors.call import Call
from poe.actors.message import (
    HIBERNATE,
    REPLY,
    TIMED_OUT,
    ExitSignal,
    IdleTimeout,
    SystemRequest,
)
from poe.actors.reason import Reason

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer
    from poe.actors.timer_queue import Timer


def become_idle(actor: "GenServer", then: object) -> None:
    """Do what a callback's result asks for until the next message, if it asks for something."""
    if type(then) is IdleTimeout:
        IdleTime(actor, then.after_s).start()
    elif then is HIBERNATE:
        # With messages waiting it would wake at once.
        actor._mailbox = actor._mailbox or None  # noqa: SLF001 - part of the runtime
        actor._unanswered = actor._unanswered or None  # noqa: SLF001


class IdleTime:
    """One idle time of one actor, from the end of a callback to the next message.

    `actor._idle_time` is this object exactly as long as it runs.
    """

    __slots__ = ("_actor", "_after_s", "_timer")

    def __init__(self, actor: "GenServer", after_s: float) -> None:
        self._actor = actor
        self._after_s = after_s
        self._timer: Timer | None = None

    def start(self) -> None:
        """Stand before the actor until a message comes or the time is up."""
        actor = self._actor
        if actor._idle_time is not None:  # noqa: SLF001
            actor._idle_time.end()  # noqa: SLF001
        actor._idle_time = self  # noqa: SLF001
        cell = actor._myRef  # noqa: SLF001
        cell.deliver = self.deliver
        if self._after_s > 0:
            self._timer = cell.system.add_timer(self._after_s, self._queue_time_up)
        else:
            self._queue_time_up()

    def end(self) -> None:
        """Let messages go to the actor directly again."""
        actor = self._actor
        if self._timer is not None:
            self._timer.cancel()
        actor._idle_time = None  # noqa: SLF001
        actor._myRef.deliver = actor.receiveMessage  # noqa: SLF001

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Receive for the actor; what is a message to it ends the idle time."""
        actor = self._actor
        if type(message) is Call and type(message.request) is SystemRequest:
            IdleTime(actor, self._after_s).start()
        elif sender is not REPLY and not self._is_unseen(message):
            self.end()
        actor.receiveMessage(message, sender)

    def _is_unseen(self, message: object) -> bool:
        """Tell whether the actor sees nothing of a message: it ignores it, ends or is suspended."""
        actor = self._actor
        is_signal = type(message) is ExitSignal and not actor.trap_exits
        return is_signal or actor._is_suspended  # noqa: SLF001

    def abort(self, reason: Reason) -> None:
        """End the actor, which was cut short when it was told."""
        self._actor._myRef.abort(reason)  # noqa: SLF001

    def _queue_time_up(self) -> None:
        """Let the end of the time wait its turn: messages that are on their way come first."""
        self._actor._myRef.queue.append((TimeUp(self), None, None))  # noqa: SLF001

    def tell_time_up(self) -> None:
        """Tell the actor, unless something came first."""
        actor = self._actor
        if actor._idle_time is self and not actor._is_suspended:  # noqa: SLF001
            self.end()
            actor.receiveMessage(TIMED_OUT, None)


class TimeUp:
    """Stands for the actor in a run-queue entry, so that no message of this kind exists."""

    __slots__ = ("_idle_time",)

    def __init__(self, idle_time: IdleTime) -> None:
        self._idle_time = idle_time

    def deliver(self, message: object, sender: object) -> None:
        """Tell the idle time."""
        del message, sender
        self._idle_time.tell_time_up()

    def abort(self, reason: Reason) -> None:
        """End the actor, which was cut short."""
        self._idle_time.abort(reason)
