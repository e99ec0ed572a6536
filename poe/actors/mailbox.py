"""The messages that wait while an actor is busy or suspended: in order, and bounded in count.

An actor makes its mailbox when the first message has to wait; an idle actor has none.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from poe.actors.call import Call
from poe.actors.message import Down, ExitSignal, SystemRequest
from poe.errors import ActorDead, MailboxFull

if TYPE_CHECKING:
    from poe.actors.actor_cell import ActorCell

logger = logging.getLogger("poe.actors")

_SIGNALS = frozenset({ExitSignal, Down})
"""Never refused: they have a bound of their own, one for each link and monitor, and a lost one
would leave a supervisor waiting for a child that is long gone."""


class Mailbox(deque[tuple[Any, Any]]):
    """Pairs of message and sender; at most `mailbox_max` of them besides signals."""

    def __init__(self, cell: "ActorCell", mailbox_max: int) -> None:
        super().__init__()
        self._cell = cell
        self._mailbox_max = mailbox_max

    def put(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Keep a message, or tell its sender that there is no room."""
        kind = type(message)
        is_system = kind is Call and type(message.request) is SystemRequest
        if len(self) < self._mailbox_max or is_system or kind in _SIGNALS:
            self.append((message, sender))
        else:
            self._refuse(message, sender)

    def _refuse(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        full = MailboxFull(self._cell.address, self._mailbox_max)
        if type(message) is Call:
            message.fail(full)
            return
        logger.error("%s refused a message: mailbox_max of %d", full.ref, full.mailbox_max)
        # Two full actors would otherwise tell each other for ever.
        if sender is not None and type(message) is not MailboxFull:
            self._cell.actor_send(sender, full)

    def take(self, matches: Callable[[Any], bool]) -> list[Any]:
        """Remove the matching messages and return them."""
        taken = [message for message, _ in self if matches(message)]
        if taken:
            kept = [entry for entry in self if not matches(entry[0])]
            self.clear()
            self.extend(kept)
        return taken

    def give_up(self, dead: ActorDead) -> None:
        """Fail the calls because the actor has ended; the rest are dead letters."""
        while self:
            message, sender = self.popleft()
            if type(message) is Call:
                message.fail(dead)
            else:
                self._cell.deliver(message, sender)
