"""How a plain Thespian actor (no GenServer) receives on the loop base.

Thespian's own rules: a message whose handler raises is run again, three times in all, then comes
back to its sender as a `PoisonMessage`; an `ActorExitRequest` is delivered, then ends the actor and
its children; a `Thespian_StatusReq` is answered by the system.

Source: Thespian 4.0, `simpleSystemBase`; the same functional tests pass on both.
"""

import logging
import traceback
from typing import Any

from thespian.actors import (
    ActorExitRequest,
    ChildActorExited,
    PoisonMessage,
    Thespian_StatusReq,
)

from poe.actors.actor_cell import ActorCell
from poe.actors.address import LoopAddress
from poe.actors.call import Call
from poe.actors.message import Cast, ExitSignal
from poe.actors.reason import NORMAL, Reason, is_for_program, is_word
from poe.errors import MailboxFull

logger = logging.getLogger("Thespian")

RUNS_MAX = 3
"""Times that a message is tried before it counts as poison."""


_NO_MESSAGES = frozenset({Thespian_StatusReq, Call, Cast, ExitSignal})


class ThespianCell(ActorCell):
    """The place of one plain actor in its system, and the one who runs it."""

    __slots__ = ()

    def deliver(self, message: Any, sender: Any, run: int = 1) -> None:  # noqa: ANN401
        """Hand one message to the actor, for the `run`-th time."""
        kind = type(message)
        if self.instance is None:
            self.refuse(message, sender)
            return
        if kind in _NO_MESSAGES:
            self._receive_other(message, sender)
            return
        try:
            self.instance.receiveMessage(message, sender)
        except BaseException as error:
            if is_for_program(error):
                raise
            self._failed(message, sender, run, error)
        if kind is ActorExitRequest:
            if message.isRecursive:
                self.exit_children()
            self.end(NORMAL)

    def _receive_other(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Take what is meant for the system or for GenServers, which may know this actor."""
        if isinstance(message, Thespian_StatusReq):
            self.system.send_status(self, sender)
        elif isinstance(message, Cast):
            self.deliver(message.message, sender)
        elif isinstance(message, Call):
            message.fail(TypeError(f"{self.address} is no GenServer and answers no calls"))
        elif not is_word(message.reason, NORMAL):
            self.end(message.reason)

    def _failed(self, message: Any, sender: Any, run: int, error: BaseException) -> None:  # noqa: ANN401
        """Queue a failed message again, or give it back to its sender as poison."""
        logger.warning(
            "Failure of Actor %s during message processing (attempt %s)",
            self.address,
            run - 1,
            exc_info=(type(error), error, error.__traceback__),
        )
        if isinstance(message, ActorExitRequest):
            return
        if run < RUNS_MAX:
            self.queue.append((_Retry(self, run + 1), message, sender))
        elif sender is not None and not isinstance(message, PoisonMessage | ChildActorExited):
            poison = PoisonMessage(message, "".join(traceback.format_exception(error)))
            sender.cell.post(poison, self.address)

    def actor_send(self, target: LoopAddress, message: object) -> None:
        """Send a Thespian message; what the target has no room for comes back as `MailboxFull`."""
        cell = target.cell
        if cell.blocked_by is not None:
            try:
                cell.admit()
            except MailboxFull as full:
                self.post(full, target)
                return
        cell.queue.append((cell, message, self.address))


class _Retry:
    """Stands in a run-queue entry for the cell, so that the next run knows its number."""

    __slots__ = ("_run", "cell")

    def __init__(self, cell: ThespianCell, run: int) -> None:
        self.cell = cell
        self._run = run

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Run the message again, unless the actor has ended meanwhile."""
        self.cell.deliver(message, sender, self._run)

    def abort(self, reason: Reason) -> None:
        """End the actor, which was cut short."""
        self.cell.abort(reason)
