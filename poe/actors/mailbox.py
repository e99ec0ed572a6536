"""The messages that wait while an actor is busy or suspended: in order, and bounded in count.

An actor makes its mailbox when the first message has to wait; an idle actor has none.
"""

from collections import deque
from typing import Any

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call
from poe.actors.message import DownSignal, ExitSignal, SystemRequest
from poe.errors import ActorDead, MailboxFull

_SIGNALS = frozenset({ExitSignal, DownSignal})


class Mailbox(deque[tuple[Any, Any]]):
    """Pairs of message and sender that wait.

    Who sends a cast or a message to an actor that is blocked asks `admit` first, and a call is
    refused when it arrives, so that `mailbox_max` of them wait at most, besides what the runtime
    itself sends: signals and timers have a bound of their own, and a lost one would leave a
    supervisor waiting for a child that is long gone. What was on its way before the actor was
    blocked was sent to one that lets nothing wait, and is kept, too.
    """

    def __init__(self, cell: ActorCell, mailbox_max: int) -> None:
        super().__init__()
        self._cell = cell
        self._mailbox_max = mailbox_max
        self.coming_count = 0
        """Messages that were admitted and have not arrived."""

    def admit(self) -> None:
        """Expect one more message.

        Raises:
            MailboxFull: there is no room.
        """
        if len(self) + self.coming_count >= self._mailbox_max:
            raise MailboxFull(self._cell.address, self._mailbox_max)
        self.coming_count += 1

    def put(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Keep a message; a call for which there is no room fails."""
        kind = type(message)
        if kind is Call:
            is_system = type(message.request) is SystemRequest
            if len(self) >= self._mailbox_max and not is_system:
                message.fail(MailboxFull(self._cell.address, self._mailbox_max))
                return
        elif self.coming_count and kind not in _SIGNALS:
            self.coming_count -= 1
        self.append((message, sender))

    def give_up(self, dead: ActorDead) -> None:
        """Fail the calls because the actor has ended; the rest are dead letters."""
        while self:
            message, sender = self.popleft()
            if type(message) is Call:
                message.fail(dead)
            else:
                self._cell.deliver(message, sender)
