"""How a plain Thespian actor (no GenServer) receives on the loop base.

Thespian's own rules: a message whose handler raises is run again, three times in all, then comes
back to its sender as a `PoisonMessage`; an `ActorExitRequest` is delivered, then ends the actor and
its children; a `Thespian_StatusReq` is answered by the system.

Source: Thespian 4.0, `simpleSystemBase`; the same functional tests pass on both.
"""

import logging
import traceback
from typing import TYPE_CHECKING, Any

from thespian.actors import (
    ActorExitRequest,
    ChildActorExited,
    PoisonMessage,
    Thespian_StatusReq,
)

from poe.actors.call import Call
from poe.actors.message import Cast, ExitSignal
from poe.actors.reason import CRASHES, NORMAL, is_word

if TYPE_CHECKING:
    from poe.actors.actor_cell import ActorCell

logger = logging.getLogger("Thespian")

RUNS_MAX = 3
"""Times that a message is tried before it counts as poison."""


_NO_MESSAGES = frozenset({Thespian_StatusReq, Call, Cast, ExitSignal})


class ThespianDelivery:
    """Receives for one plain actor; `deliver` is its cell's way in."""

    __slots__ = ("_cell",)

    def __init__(self, cell: "ActorCell") -> None:
        self._cell = cell

    def deliver(self, message: Any, sender: Any, run: int = 1) -> None:  # noqa: ANN401
        """Hand one message to the actor, for the `run`-th time."""
        cell = self._cell
        kind = type(message)
        if kind in _NO_MESSAGES:
            self._receive_other(message, sender)
            return
        try:
            cell.instance.receiveMessage(message, sender)  # type: ignore[union-attr]  # it lives
        except CRASHES as error:
            self._failed(message, sender, run, error)
        if kind is ActorExitRequest:
            self._exit(message)

    def _receive_other(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Take what is meant for the system or for GenServers, which may know this actor."""
        cell = self._cell
        if isinstance(message, Thespian_StatusReq):
            cell.system.send_status(cell, sender)
        elif isinstance(message, Cast):
            self.deliver(message.message, sender)
        elif isinstance(message, Call):
            message.fail(TypeError(f"{cell.address} is no GenServer and answers no calls"))
        elif not is_word(message.reason, NORMAL):
            cell.end(message.reason)

    def _failed(self, message: Any, sender: Any, run: int, error: BaseException) -> None:  # noqa: ANN401
        """Queue a failed message again, or give it back to its sender as poison."""
        cell = self._cell
        logger.warning(
            "Failure of Actor %s during message processing (attempt %s)",
            cell.address,
            run - 1,
            exc_info=(type(error), error, error.__traceback__),
        )
        if isinstance(message, ActorExitRequest):
            return
        if run < RUNS_MAX:
            cell.queue.append((_Retry(self, run + 1), message, sender))
        elif sender is not None and not isinstance(message, PoisonMessage | ChildActorExited):
            poison = PoisonMessage(message, "".join(traceback.format_exception(error)))
            sender.cell.post(poison, cell.address)

    def _exit(self, request: Any) -> None:  # noqa: ANN401
        cell = self._cell
        if request.isRecursive:
            cell.exit_children()
        cell.end(NORMAL)


class _Retry:
    """Stands in a run-queue entry for the cell, so that the next run knows its number."""

    __slots__ = ("_delivery", "_run")

    def __init__(self, delivery: ThespianDelivery, run: int) -> None:
        self._delivery = delivery
        self._run = run

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Run the message again, unless the actor has ended meanwhile."""
        cell = self._delivery._cell  # noqa: SLF001 - two halves of one mechanism
        if cell.instance is None:
            cell.deliver(message, sender)
        else:
            self._delivery.deliver(message, sender, self._run)
