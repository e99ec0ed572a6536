"""Hibernation by itself: an actor that had nothing to do for some time keeps its state alone.

Source: OTP gen_server, option `hibernate_after`.
"""

from typing import Any

from poe.actors.message import HIBERNATE
from poe.actors.server_cell import ServerCell


class HibernateAfter:
    """Observes one actor for its whole life.

    One timer serves any number of messages: when it fires too early it is set again.
    """

    __slots__ = ("_after_s", "_cell", "_is_set", "_last_s")

    def __init__(self, cell: ServerCell, after_s: float) -> None:
        self._cell = cell
        self._after_s = after_s
        self._last_s = 0.0
        self._is_set = False

    def see(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Note when a message came, or a reply that the actor awaits."""
        del message, sender
        self._last_s = self._cell.run_queue.monotonic_s()
        if not self._is_set and self._cell.instance is not None:
            self._is_set = True
            self._cell.own().add_timer(self._after_s, self._look)

    def _look(self) -> None:
        cell = self._cell
        self._is_set = False
        if cell.is_busy:
            return  # what it awaits comes by here, too
        left_s = self._last_s + self._after_s - cell.run_queue.monotonic_s()
        if left_s <= 0:
            cell.become_idle(HIBERNATE)
        else:
            self._is_set = True
            cell.own().add_timer(left_s, self._look)
