"""Thespian's system base on Poe's runtime: what its `ActorSystem` speaks to.

Creation of plain actors, global names, wake-ups, dead letters, status, capabilities, and loaded
sources. Source loading is Thespian's own code, inherited from its simple base.
"""

import hashlib
import logging
import sys
import time
from datetime import timedelta
from functools import partial
from typing import Any

from thespian.actors import (
    ActorSystem,
    ActorSystemException,
    ChildActorExited,
    DeadEnvelope,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    Thespian_SystemStatus,
    ThespianGeneration,
    ValidatedSource,
    ValidateSource,
    WakeupMessage,
)
from thespian.system import simpleSystemBase
from thespian.system.sourceLoader import loadModuleFromHashSource
from thespian.system.timing import ExpirationTimer
from thespian.system.utilis import actualActorClass, withPossibleInitArgs

from poe.actors import LoopSystem
from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.call import Call, Start
from poe.actors.gen_server import GenServer
from poe.actors.message import Cast, DownSignal, ExitSignal
from poe.actors.run_queue import enters
from poe.actors.server_cell import ServerCell
from poe.actors.timer_queue import Timer
from poe.thespian.loop.cell import ThespianCell
from poe.thespian.loop.outside import OutsideContext, to_seconds

logger = logging.getLogger("Thespian")


class ThespianBase(simpleSystemBase.ActorSystemBase):  # type: ignore[misc]  # untyped
    """A Thespian system base whose actors live among the GenServers of a runtime.

    `system` is Thespian's `ActorSystem` on it. The end of one is the end of the other: `shutdown`.

    It inherits only the handling of loaded sources and capabilities from Thespian's simple base;
    `__init__` sets what that code uses instead of calling its constructor.
    """

    def __init__(
        self,
        system: ActorSystem | None = None,
        logDefs: Any = False,  # noqa: ANN401, FBT002, N803 - Thespian's constructor
        *,
        runtime: LoopSystem | None = None,
    ) -> None:
        """Begin without plain actors.

        Args:
            system: Thespian's, as it hands it to a base that it makes; None: one is made.
            logDefs: as Thespian's; False leaves logging as it is.
            runtime: where the actors are to live; one runtime has one base. None: one is made.
        """
        if logDefs is not False:
            simpleSystemBase.dictConfig(logDefs or simpleSystemBase.defaultLoggingConfig)
        self.runtime = runtime = LoopSystem() if runtime is None else runtime
        self._actors, self._run_queue = runtime.actors, runtime.run_queue
        self.system = system = system or ActorSystem(self, transientUnique=True)
        self.dead_letter_handler: ActorCell | None = None
        self._sources: dict[str, Any] = {}
        self._sourceAuthority: LoopAddress | None = None
        self._sourceNotifications: list[LoopAddress] = []
        self._globalNames: dict[str, LoopAddress] = {}
        self._wakeups: dict[ActorCell, dict[Timer, Any]] = {}
        self._private_count = 0
        self._system_cell = self._actors.new_outside_cell("ActorSys", _SystemReceiver(self))
        self.system_address = self._system_cell.address
        system.systemAddress = self.system_address
        self._outside = OutsideContext(self._actors, "ExternalRequester", self.newPrimaryActor)
        self._bad_actor = self._actors.new_outside_cell("BadActor", _Discard())
        system.capabilities.update(
            {
                "Python Version": tuple(sys.version_info),
                "Thespian Generation": ThespianGeneration,
                "Thespian Version": str(int(time.time() * 1000)),
                "Thespian ActorSystem Name": "loopSystem",
                "Thespian ActorSystem Version": 1,
                "Thespian Watch Supported": False,
                "AllowRemoteActorSources": "No",
            }
        )
        self._actors.take_in(self)

    # ---- external interface -------------------------------------------------------------------

    def tell(self, actor: Any, message: object) -> None:  # noqa: ANN401
        """Send a message from outside and let the actors run."""
        self._outside.tell(actor, message)

    def ask(self, actor: Any, message: object, timeout: Any) -> Any:  # noqa: ANN401
        """Send a message from outside and wait for the next answer."""
        return self._outside.ask(actor, message, timeout)

    def listen(self, timeout: Any) -> Any:  # noqa: ANN401
        """Wait for a message to the outside."""
        return self._outside.listen(timeout)

    def external_clone(self) -> OutsideContext:
        """Make the endpoint of a `private()` context."""
        self._private_count += 1
        return OutsideContext(
            self._actors, f"ExternalRequester:{self._private_count}", self.newPrimaryActor
        )

    # ---- actors -------------------------------------------------------------------------------

    @enters
    def newPrimaryActor(  # noqa: N802 - Thespian's name
        self,
        actor_class: Any,  # noqa: ANN401
        requirements: Any,  # noqa: ANN401
        global_name: str | None,
        source_hash: str | None,
    ) -> LoopAddress:
        """Create a top-level actor from outside."""
        self._run_queue.enter()
        try:
            known = self._globalNames.get(global_name) if global_name else None
            if known is not None:
                return known
            cell = self._create(
                self._system_cell, actor_class, requirements, source_hash, is_primary=True
            )
            if cell.instance is None:
                return self._bad_actor.address
            self._publish(cell, global_name)
            self._run_queue.drain()
            return cell.address
        finally:
            self._run_queue.leave()

    def create_child(
        self,
        parent: ThespianCell,
        actor_class: Any,  # noqa: ANN401
        requirements: Any,  # noqa: ANN401
        global_name: str | None,
        source_hash: str | None,
    ) -> LoopAddress:
        """Create an actor for another actor; a failure is told by `ChildActorExited`."""
        known = self._globalNames.get(global_name) if global_name else None
        if known is not None:
            return known
        cell = self._create(parent, actor_class, requirements, source_hash, is_primary=False)
        if cell.instance is None:
            parent.post(ChildActorExited(cell.address), self.system_address)
        else:
            parent.children[cell] = None
            self._publish(cell, global_name)
        return cell.address

    def _publish(self, cell: ActorCell, global_name: str | None) -> None:
        if isinstance(cell, ThespianCell):
            cell.globalName = global_name
        if global_name:
            self._globalNames[global_name] = cell.address

    def _create(
        self,
        parent: ActorCell,
        actor_class: Any,  # noqa: ANN401
        requirements: Any,  # noqa: ANN401
        source_hash: str | None,
        *,
        is_primary: bool,
    ) -> ActorCell:
        """Make the instance; without one the cell stays dead."""
        instance = None
        label = actor_class if isinstance(actor_class, str) else actor_class.__name__
        try:
            loader = (
                partial(loadModuleFromHashSource, source_hash, self._sources)
                if source_hash
                else None
            )
            actor_class = actualActorClass(actor_class, loader)
            check = getattr(actor_class, "actorSystemCapabilityCheck", None)
            if check is None or check(self.system.capabilities, requirements or {}):
                instance = withPossibleInitArgs(
                    capabilities=self.system.capabilities, requirements=requirements
                ).create(actor_class)
        except ImportError:
            logger.warning("Actor create import error for %s", label, exc_info=True)
            raise
        except ActorSystemException:
            logger.warning("Actor total creation failure", exc_info=True)
            if is_primary:
                raise
        except Exception:
            logger.warning("Actor total creation error", exc_info=True)
            if is_primary:
                raise
        if isinstance(instance, GenServer):
            pinned = type(instance).pinned_to_loop
            server = self._actors.new_cell(ServerCell, parent, label, pinned=pinned)
            self._actors.enliven(server, instance)
            server.post(Start((), {}, Call(None, None, server, None)))
            return server
        cell = self._actors.new_cell(partial(ThespianCell, self, source_hash), parent, label)
        if instance is not None:
            self._actors.enliven(cell, instance)
        return cell

    def forget(self, cell: ActorCell) -> None:
        """Take an ended actor out of all tables, and tell the actor that created it."""
        for timer in list(self._wakeups.pop(cell, ())):
            timer.cancel()
        for name in [name for name, ref in self._globalNames.items() if ref is cell.address]:
            del self._globalNames[name]
        if self.dead_letter_handler is cell:
            self.dead_letter_handler = None
        if cell.address in self._sourceNotifications:
            self._sourceNotifications.remove(cell.address)
        parent = cell.parent
        if isinstance(parent, ThespianCell) and cell in parent.children:
            del parent.children[cell]
            parent.post(ChildActorExited(cell.address), self.system_address)

    def dead_letter(self, cell: ActorCell, message: object, sender: object) -> None:
        """Give a message for an ended actor to the dead letter handler, if there is one."""
        handler = self.dead_letter_handler
        if handler is None or isinstance(message, Cast | ExitSignal | DownSignal | DeadEnvelope):
            return
        handler.post(DeadEnvelope(cell.address, message), sender)

    def actor_send(self, sender: LoopAddress, target: LoopAddress, message: object) -> None:
        """Send on behalf of an actor; used by Thespian's source handling."""
        target.cell.post(message, sender)

    def set_dead_letter_handler(self, cell: ActorCell, *, enabled: bool) -> None:
        """Register or unregister the receiver of dead letters."""
        if enabled:
            self.dead_letter_handler = cell
        elif self.dead_letter_handler is cell:
            self.dead_letter_handler = None

    def _handleDeadLetters(self, address: LoopAddress, enable: bool) -> None:  # noqa: FBT001, N802
        self.set_dead_letter_handler(address.cell, enabled=enable)

    # ---- time, status -------------------------------------------------------------------------

    def wakeup_after(self, cell: ThespianCell, period: Any, payload: object) -> None:  # noqa: ANN401
        """Deliver a `WakeupMessage` to an actor later; at once where the time has passed."""
        delay_s = max(0.0, to_seconds(period) or 0.0)
        delay = period if isinstance(period, timedelta) else timedelta(seconds=delay_s)
        message = WakeupMessage(delay, payload)
        timer = self._run_queue.add_timer(delay_s, lambda: cell.post(message, cell.address))
        timer.owner = self._wakeups.setdefault(cell, {})
        timer.owner[timer] = ExpirationTimer(delay)

    def tell_status(self, cell: ActorCell, asker: LoopAddress) -> None:
        """Answer a status request for an actor, or for the system itself."""
        if cell is self._system_cell:
            status = Thespian_SystemStatus(
                self.system_address, capabilities=self.system.capabilities
            )
            for name, address in self._globalNames.items():
                status.addGlobalActor(name, address)
        else:
            status = Thespian_ActorStatus(
                cell.address, type(cell.instance).__name__, self.system_address
            )
            for child in cell.children if isinstance(cell, ThespianCell) else ():
                status.addChild(child.address)
        status.addWakeups(
            [
                (sleeper.address, rest)
                for sleeper, timers in self._wakeups.items()
                for rest in timers.values()
            ]
        )
        asker.cell.post(status, cell.address)

    # ---- loaded sources -----------------------------------------------------------------------

    def loadActorSource(self, source: Any) -> str:  # noqa: ANN401, N802 - Thespian's name
        """Offer a zip file (path or file object) to the source authority; return its hash."""
        file = source if hasattr(source, "read") else open(source, "rb")  # noqa: PTH123, SIM115
        try:
            content = file.read()
        finally:
            file.close()
        # The hash names the source, as in every Thespian base; it protects nothing.
        source_hash = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if self._sourceAuthority is not None:
            self._sourceAuthority.cell.post(
                ValidateSource(source_hash, content), self.system_address
            )
            if not self._run_queue.is_running_here():
                self._run_queue.run_ready()
        return source_hash

    def load_validated(self, message: ValidatedSource) -> None:
        """Make a source usable that the authority has accepted."""
        self._loadValidatedActorSource(message.sourceHash, message.sourceZip)

    def update_capability(self, name: str, value: object) -> None:
        """Change a capability of the actor system."""
        self.system.updateCapability(name, value)

    # ---- the end ------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End every actor of the runtime, then all threads."""
        self.runtime.shutdown()

    def shutdown_soon(self) -> None:
        """Shut down as soon as no actor runs; for `Actor.actorSystemShutdown`."""
        self.runtime.shutdown()

    def leave(self) -> None:
        """Forget all loaded sources, because the runtime ends."""
        for source_hash in list(self._sources):
            self.unloadActorSource(source_hash)


class _SystemReceiver:
    """Receives what is sent to the system's own address."""

    def __init__(self, base: ThespianBase) -> None:
        self._base = base

    def deliver(self, message: object, sender: LoopAddress) -> None:
        """Take a validated source or a status request; drop the rest."""
        if isinstance(message, ValidatedSource):
            self._base.load_validated(message)
        elif isinstance(message, Thespian_StatusReq):
            self._base.tell_status(self._base.system_address.cell, sender)


class _Discard:
    """Stands for actors that could not be created; it throws everything away."""

    def deliver(self, message: object, sender: object) -> None:
        """Drop a message."""
