"""Hibernation by itself: an actor that had nothing to do for some time keeps its state alone.

Source: OTP gen_server, option `hibernate_after`.
"""

from typing import TYPE_CHECKING, Any

from poe.actors.idle_time import become_idle
from poe.actors.message import HIBERNATE

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer
    from poe.actors.timer_queue import Timer


class HibernateAfter:
    """Stands before one actor for its whole life, as its way in.

    One timer serves any number of messages: when it fires too early it is set again.
    """

    def __init__(self, actor: "GenServer", after_s: float) -> None:
        self._actor = actor
        self._after_s = after_s
        self._last_s = 0.0
        self._timer: Timer | None = None
        self._receive = actor.receiveMessage
        actor.receiveMessage = self.deliver  # type: ignore[method-assign]  # shadows the method

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Hand a message on, and note when the actor was done with it."""
        self._receive(message, sender)
        system = self._actor._myRef.system  # noqa: SLF001 - part of the runtime
        self._last_s = system.monotonic_s()
        if self._timer is None:
            self._timer = system.add_timer(self._after_s, self._look)

    def _look(self) -> None:
        actor = self._actor
        cell = actor._myRef  # noqa: SLF001
        self._timer = None
        if cell.instance is None:
            return
        left_s = self._last_s + self._after_s - cell.system.monotonic_s()
        if left_s <= 0 and actor._coroutine is None:  # noqa: SLF001
            become_idle(actor, HIBERNATE)
        else:
            self._timer = cell.system.add_timer(max(left_s, self._after_s / 10), self._look)
