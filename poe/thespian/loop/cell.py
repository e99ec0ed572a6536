"""How a plain Thespian actor (no GenServer) receives on our loop.

Thespian's own rules: a message whose handler raises is run again, three times in all, then comes
back to its sender as a `PoisonMessage`; an `ActorExitRequest` is delivered, then ends the actor and
its children; a `Thespian_StatusReq` is answered by the system.

Source: Thespian 4.0, `simpleSystemBase`; the same functional tests pass on both.
"""

import logging
import traceback
from typing import Any, Protocol

from thespian.actors import (
    ActorExitRequest,
    ChildActorExited,
    PoisonMessage,
    Thespian_StatusReq,
)

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.call import Call
from poe.actors.message import Cast, ExitSignal
from poe.actors.reason import NORMAL, Reason, is_for_program, is_word
from poe.errors import MailboxFull

logger = logging.getLogger("Thespian")

RUNS_MAX = 3
"""Times that a message is tried before it counts as poison."""


_NO_MESSAGES = frozenset({Thespian_StatusReq, Call, Cast, ExitSignal})


class Base(Protocol):
    """Thespian's system base, as its actors need it."""

    def create_child(
        self,
        parent: "ThespianCell",
        actor_class: Any,  # noqa: ANN401 - as Thespian has it
        requirements: Any,  # noqa: ANN401
        global_name: str | None,
        source_hash: str | None,
    ) -> LoopAddress:
        """Create an actor for another actor."""
        ...

    def wakeup_after(self, cell: "ThespianCell", period: Any, payload: object) -> None:  # noqa: ANN401
        """Deliver a `WakeupMessage` to an actor later."""

    def set_dead_letter_handler(self, cell: ActorCell, *, enabled: bool) -> None:
        """Register or unregister the receiver of dead letters."""

    def tell_status(self, cell: ActorCell, asker: LoopAddress) -> None:
        """Answer a status request for an actor."""

    def registerSourceAuthority(self, address: LoopAddress) -> None:  # noqa: N802 - Thespian's name
        """Make an actor the one that validates loaded sources."""

    def registerSourceNotifications(  # noqa: N802
        self,
        address: LoopAddress,
        enable: bool,  # noqa: FBT001
    ) -> None:
        """Tell an actor of loaded and unloaded sources, or stop doing so."""

    def update_capability(self, name: str, value: object) -> None:
        """Change a capability of the actor system."""

    def loadActorSource(self, source: Any) -> str:  # noqa: ANN401, N802
        """Load a zip file of actor sources and return its hash."""
        ...

    def unloadActorSource(self, source_hash: str) -> None:  # noqa: N802
        """Forget a loaded source."""

    def shutdown_soon(self) -> None:
        """Shut the system down as soon as no actor runs."""


class ThespianCell(ActorCell):
    """The place of one plain actor in its system, the one who runs it, and its `_myRef`.

    That is the object through which an `Actor` sends, creates children and sets wake-ups.
    """

    __slots__ = ("base", "children", "globalName", "source_hash")

    def __init__(self, base: Base, source_hash: str | None, *args: Any) -> None:  # noqa: ANN401 - those of `ActorCell`
        super().__init__(*args)
        self.base = base
        self.source_hash = source_hash
        self.children: dict[ActorCell, None] = {}
        self.globalName: str | None = None

    def house(self, actor: Any) -> None:  # noqa: ANN401 - Thespian is untyped
        """Let an actor know its cell."""
        actor._myRef = self  # noqa: SLF001 - Thespian's own hook

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
                for child in list(self.children):
                    child.post(ActorExitRequest(), self.address)
            self.end(NORMAL)

    def _receive_other(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Take what is meant for the system or for GenServers, which may know this actor."""
        if isinstance(message, Thespian_StatusReq):
            self.base.tell_status(self, sender)
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

    # ---- Thespian's `_myRef` interface ------------------------------------------------------

    def createActor(  # noqa: N802 - Thespian's name
        self,
        actor_class: Any,  # noqa: ANN401
        requirements: Any = None,  # noqa: ANN401
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> LoopAddress:
        """Create a child actor, as `Actor.createActor` does."""
        return self.base.create_child(
            self, actor_class, requirements, global_name, source_hash or self.source_hash
        )

    def wakeupAfter(self, period: Any, payload: object = None) -> None:  # noqa: ANN401, N802
        """Deliver a `WakeupMessage` after `period` (a timedelta or seconds)."""
        self.base.wakeup_after(self, period, payload)

    def handleDeadLetters(self, address: LoopAddress, enable: bool) -> None:  # noqa: FBT001, N802
        """Register or unregister this actor as the receiver of dead letters."""
        self.base.set_dead_letter_handler(address.cell, enabled=enable)

    def registerSourceAuthority(self, address: LoopAddress) -> None:  # noqa: N802
        """Make this actor the one that validates loaded sources."""
        self.base.registerSourceAuthority(address)

    def notifyOnSourceAvailability(  # noqa: N802
        self,
        address: LoopAddress,
        enable: bool,  # noqa: FBT001
    ) -> None:
        """Tell this actor of loaded and unloaded sources, or stop doing so."""
        self.base.registerSourceNotifications(address, enable)

    def notifyOnSystemRegistrationChanges(  # noqa: N802
        self,
        address: LoopAddress,
        enable: bool,  # noqa: FBT001
    ) -> None:
        """Do nothing: a loop system never joins a convention, as Thespian's simple base."""

    def updateCapability(self, name: str, value: object) -> None:  # noqa: N802
        """Change a capability of the actor system."""
        self.base.update_capability(name, value)

    def loadActorSource(self, source: Any) -> str:  # noqa: ANN401, N802
        """Load a zip file of actor sources and return its hash."""
        return self.base.loadActorSource(source)

    def unloadActorSource(self, source_hash: str) -> None:  # noqa: N802
        """Forget a loaded source."""
        self.base.unloadActorSource(source_hash)

    def preRegisterRemoteSystem(self, address: object, capabilities: object) -> None:  # noqa: N802
        """Do nothing: there are no remote systems."""

    def deRegisterRemoteSystem(self, address: object) -> None:  # noqa: N802
        """Do nothing: there are no remote systems."""

    def actorSystemShutdown(self) -> None:  # noqa: N802
        """Shut the whole system down once the current message is handled."""
        self.base.shutdown_soon()


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
