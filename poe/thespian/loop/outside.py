"""How application threads hear from actors through Thespian's `ask`, `tell` and `listen`.

Each mailbox is the receiving end of one external requester: the actor system itself has one, and
every `private()` context has its own, so that threads do not take each other's answers.
"""

import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from thespian.system import isInternalActorSystemMessage

from poe.actors.actor_cell import LoopAddress
from poe.actors.actor_table import ActorTable
from poe.actors.call import Call
from poe.actors.message import Cast, DownSignal, ExitSignal
from poe.actors.reason import NORMAL


class OutsideMailbox:
    """Messages for one application thread; filled under the system's lock, waited for outside."""

    def __init__(self) -> None:
        # Made in C: a lock that Ctrl-C leaves behind would keep all actors waiting.
        self._messages: SimpleQueue[Any] = SimpleQueue()

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Keep a message until the thread asks for it; internal ones are dropped.

        A GenServer may have the address by way of a plain actor.
        """
        del sender
        if isinstance(message, Cast):
            message = message.message
        if isinstance(message, Call):
            message.fail(TypeError("an application's thread answers no calls; cast to it"))
            return
        if isinstance(message, ExitSignal | DownSignal) or isInternalActorSystemMessage(message):
            return
        self._messages.put(message)

    def take(self, timeout_s: float | None) -> Any:  # noqa: ANN401
        """Return the oldest message, or None when none has come within `timeout_s`."""
        try:
            return self._messages.get(timeout=timeout_s)
        except Empty:
            return None


class OutsideContext:
    """What `ActorSystem` and its `private()` contexts speak to: one mailbox and its address."""

    def __init__(self, actors: ActorTable, label: str, create: Callable[..., LoopAddress]) -> None:
        """Make the mailbox; `create` makes top-level actors."""
        self._run_queue = actors.run_queue
        self._create = create
        self._mailbox = OutsideMailbox()
        self._cell = actors.new_outside_cell(label, self._mailbox)

    @property
    def address(self) -> LoopAddress:
        """Return the address that answers are sent to."""
        return self._cell.address

    def tell(self, actor: Any, message: object) -> None:  # noqa: ANN401 - a Thespian address
        """Send a message and let the actors run.

        Raises:
            MailboxFull: too many wait for the actor already.
        """
        self._run_queue.send_from_outside(actor.cell, message, self._cell.address)

    def ask(self, actor: Any, message: object, timeout: Any) -> Any:  # noqa: ANN401
        """Send a message and wait for the next answer from any actor."""
        self.tell(actor, message)
        return self.listen(timeout)

    def listen(self, timeout: Any) -> Any:  # noqa: ANN401 - timedelta, seconds or None
        """Wait for a message: for `timeout`, or without one as long as anything can still come."""
        timeout_s = to_seconds(timeout)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._mailbox.take(0)
            if message is not None:
                return message
            if deadline_s is None and self._run_queue.is_quiet():
                return self._mailbox.take(0)  # it may have come before all was quiet
            remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
            if remaining_s is not None and remaining_s <= 0:
                return None
            # Without a deadline the wait is cut into slices: whatever could still have sent an
            # answer may have ended without one.
            message = self._mailbox.take(0.1 if remaining_s is None else remaining_s)
            if message is not None:
                return message

    def newPrimaryActor(self, *args: Any) -> Any:  # noqa: ANN401, N802 - Thespian's name
        """Create a top-level actor; it belongs to the system, not to this context."""
        return self._create(*args)

    def exit_context(self) -> None:
        """End a `private()` context."""
        self._run_queue.run_outside(partial(self._cell.end, NORMAL))


def to_seconds(period: Any) -> float | None:  # noqa: ANN401
    """Turn Thespian's way to give a period (timedelta, number, None) into seconds."""
    if period is None:
        return None
    return float(period.total_seconds() if hasattr(period, "total_seconds") else period)
