"""What the system keeps of one actor beside the instance: address, queue, parent, links, monitors.

A cell is also what Thespian calls the actor's `_myRef`: the object through which an `Actor` sends,
creates children and sets wake-ups. A GenServer uses the same cell for links, monitors and timers.
"""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref as weak

from thespian.actors import ActorExitRequest

from poe.actors.address import LoopAddress
from poe.actors.call import Call
from poe.actors.message import REPLY, DownSignal, ExitSignal, Monitor, Start
from poe.actors.reason import NOPROC, Reason
from poe.errors import ActorDead, StartFailed

if TYPE_CHECKING:
    from poe.actors.loop_base import LoopSystemBase


class Receiver(Protocol):
    """Whatever takes messages out of a run queue."""

    @property
    def deliver(self) -> Callable[[Any, Any], None]:
        """Take one message and its sender."""


Entry = tuple[Receiver, Any, Any]
"""One entry of a run queue: receiver, message, and sender or the marker `REPLY`."""

_ENDED = object()
"""Marks the place in the run queue where an actor has ended."""


class _Ended:
    """Blocks an actor that has ended, and keeps the reason for calls that were on their way."""

    __slots__ = ("reason",)

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


_GONE = _Ended(NOPROC)


class ActorCell:
    """The place of one actor in its system; of this very class, that of one that does not exist.

    `deliver(message, sender)` is the one way in; each kind of actor has its own, which leaves to
    `refuse` what comes after the end. `queue` is the run queue that messages to this actor go to.
    Messages wait, or are refused, while `blocked_by` is something. All of it is touched under the
    system's lock only.
    """

    __slots__ = (
        "_former_address",
        "address",
        "blocked_by",
        "children",
        "globalName",
        "instance",
        "is_linked_to_parent",
        "links",
        "monitors",
        "name",
        "on_end",
        "parent",
        "queue",
        "source_hash",
        "system",
    )

    def __init__(
        self,
        system: "LoopSystemBase",
        parent: "ActorCell | None",
        label: str,
        queue: deque[Entry],
    ) -> None:
        self.system = system
        self.parent = parent
        self.queue = queue
        self.instance: Any = None
        """The actor, or what receives for something that is none; None from the end on."""
        self.address = LoopAddress(self, system.next_serial(), label)
        self.blocked_by: object = None
        self.children: dict[ActorCell, None] | None = None
        # Most actors are linked with their parent alone: a set would be a quarter of their memory.
        self.is_linked_to_parent = False
        self.links: set[ActorCell] | None = None
        self.monitors: dict[Monitor, ActorCell] | None = None
        self.name: str | None = None
        self.on_end: Callable[[], object] | None = None
        self.globalName: str | None = None
        self.source_hash: str | None = None

    def let_go_of_address(self) -> None:
        """Refer to the own address weakly from now on: it refers to this cell.

        At the end of an actor nothing is to wait for the garbage collector.
        """
        address = self.address  # held, so that the reference does not end with the slot
        self._former_address = weak(address), address.serial, address.label
        del self.address
        kind: Any = type(self)
        self.__class__ = _without_address(kind)

    def former_address(self) -> LoopAddress:
        """Return the address, or its like: where nobody has it any more, nobody can compare."""
        former, serial, label = self._former_address
        address: LoopAddress | None = former()
        if address is None:
            address = LoopAddress(self, serial, label)
            self._former_address = weak(address), serial, label
        return address

    # ---- links, monitors, the end ------------------------------------------------------------

    def post(self, message: object, sender: object = None) -> None:
        """Put a message behind all that is already on its way to this actor."""
        self.queue.append((self, message, sender))

    def link(self, other: "ActorCell") -> None:
        """Tie two endings together; a link to a dead actor answers with its exit at once."""
        if other is self:
            return
        self._tie_to(other)
        other.accept_link(self)

    def accept_link(self, other: "ActorCell") -> None:
        """Be the other end of a link."""
        if self.instance is None:
            other.post(ExitSignal(self.address, NOPROC, linked=True))
        else:
            self._tie_to(other)

    def _tie_to(self, other: "ActorCell") -> None:
        if other is self.parent:
            self.is_linked_to_parent = True
        elif self.links is None:
            self.links = {other}
        else:
            self.links.add(other)

    def unlink(self, other: "ActorCell") -> None:
        """Undo `link`; nothing happens when there was none."""
        self.cut(other)
        other.drop_link(self)

    def drop_link(self, other: "ActorCell") -> None:
        """Be the other end of a link no longer."""
        self.cut(other)

    def cut(self, other: "ActorCell") -> bool:
        """Forget this actor's side of a link; tell whether there was one."""
        if other is self.parent:
            was_linked, self.is_linked_to_parent = self.is_linked_to_parent, False
            return was_linked
        if self.links is None or other not in self.links:
            return False
        self.links.discard(other)
        return True

    def linked(self) -> "list[ActorCell]":
        """Return the cells of all linked actors, oldest first."""
        parent = [self.parent] if self.is_linked_to_parent and self.parent is not None else []
        if not self.links:
            return parent
        return sorted([*parent, *self.links], key=lambda cell: cell.address.serial)

    def monitor(self, other: "ActorCell", name: str | None = None) -> Monitor:
        """Ask for one `Down` when `other` ends; at once when it is dead."""
        monitor = Monitor(other.address, name)
        other.accept_monitor(monitor, self)
        return monitor

    def accept_monitor(self, monitor: Monitor, watcher: "ActorCell") -> None:
        """Remember whom to tell of the end."""
        if self.instance is None:
            watcher.post(DownSignal(self.address, NOPROC, monitor))
        else:
            self.monitors = self.monitors or {}
            self.monitors[monitor] = watcher

    def drop_monitor(self, monitor: Monitor) -> None:
        """Tell a watcher nothing; it was told already, or has lost its interest."""
        if self.monitors is not None:
            self.monitors.pop(monitor, None)
            self.monitors = self.monitors or None

    def end(self, reason: Reason) -> None:
        """Take the actor out of the system and tell links, monitors and the Thespian parent.

        Names are free before anyone hears of the end. Calling it twice is harmless.
        """
        if self.instance is None:
            return
        self.instance = None
        # Calls that were on their way learn the reason, as in OTP; those that come after the
        # marker learn only that nobody is there.
        self.blocked_by = _Ended(reason)
        self.post(_ENDED)
        self.system.forget(self)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
        linked = self.linked()
        self.links, self.is_linked_to_parent = None, False
        for other in linked:
            other.post(ExitSignal(self.address, reason, linked=True))
        monitors, self.monitors = self.monitors, None
        for monitor, watcher in (monitors or {}).items():
            watcher.post(DownSignal(self.address, reason, monitor))
        if not hasattr(self, "_former_address"):
            self.let_go_of_address()

    def end_unstarted(self, reason: Reason) -> None:
        """End before `init` is done; an exit signal would tell the starter a second time."""
        if self.parent is not None:
            self.unlink(self.parent)
        self.end(reason)

    def abort(self, reason: Reason) -> None:
        """End the actor wherever it stands, because what it was doing was cut short."""
        self.end(reason)

    # ---- messages -----------------------------------------------------------------------------

    def admit(self) -> None:
        """Let a message that is about to be sent come, although `blocked_by` is something.

        Raises:
            MailboxFull: too many wait already.
        """

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Take one message."""
        self.refuse(message, sender)

    def refuse(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Receive for an actor that has ended: calls fail, the rest are dead letters."""
        if sender is REPLY:
            return
        if message is _ENDED:
            self.blocked_by = _GONE
        elif isinstance(message, Call):
            reason = self.blocked_by.reason if type(self.blocked_by) is _Ended else NOPROC
            message.fail(ActorDead(self.address, reason))
        elif isinstance(message, Start):
            message.call.fail(StartFailed(NOPROC))
        else:
            self.system.dead_letter(self, message, sender)

    def exit_children(self) -> None:
        """Ask the Thespian children to exit; theirs follow."""
        for child in list(self.children or ()):
            child.post(ActorExitRequest(), self.address)

    # ---- Thespian's `_myRef` interface ------------------------------------------------------

    def createActor(  # noqa: N802 - Thespian's name
        self,
        actor_class: Any,  # noqa: ANN401
        requirements: Any = None,  # noqa: ANN401
        global_name: str | None = None,
        source_hash: str | None = None,
    ) -> LoopAddress:
        """Create a child actor, as `Actor.createActor` does."""
        return self.system.create_child(
            self, actor_class, requirements, global_name, source_hash or self.source_hash
        )

    def actor_send(self, target: LoopAddress, message: object) -> None:
        """Send a Thespian message; `sender` is this actor's address.

        Raises:
            MailboxFull: too many wait at the target already.
        """
        cell = target.cell
        if cell.blocked_by is not None:
            cell.admit()
        cell.queue.append((cell, message, self.address))

    def wakeupAfter(self, period: Any, payload: object = None) -> None:  # noqa: ANN401, N802
        """Deliver a `WakeupMessage` after `period` (a timedelta or seconds)."""
        self.system.wakeup_after(self, period, payload)

    def handleDeadLetters(self, address: LoopAddress, enable: bool) -> None:  # noqa: FBT001, N802
        """Register or unregister this actor as the receiver of dead letters."""
        self.system.set_dead_letter_handler(address.cell, enabled=enable)

    def registerSourceAuthority(self, address: LoopAddress) -> None:  # noqa: N802
        """Make this actor the one that validates loaded sources."""
        self.system.registerSourceAuthority(address)

    def notifyOnSourceAvailability(  # noqa: N802
        self,
        address: LoopAddress,
        enable: bool,  # noqa: FBT001
    ) -> None:
        """Tell this actor of loaded and unloaded sources, or stop doing so."""
        self.system.registerSourceNotifications(address, enable)

    def notifyOnSystemRegistrationChanges(  # noqa: N802
        self,
        address: LoopAddress,
        enable: bool,  # noqa: FBT001
    ) -> None:
        """Do nothing: a loop system never joins a convention, as Thespian's simple base."""

    def updateCapability(self, name: str, value: object) -> None:  # noqa: N802
        """Change a capability of the actor system."""
        self.system.system.updateCapability(name, value)

    def loadActorSource(self, source: Any) -> str:  # noqa: ANN401, N802
        """Load a zip file of actor sources and return its hash."""
        return self.system.loadActorSource(source)

    def unloadActorSource(self, source_hash: str) -> None:  # noqa: N802
        """Forget a loaded source."""
        self.system.unloadActorSource(source_hash)

    def preRegisterRemoteSystem(self, address: object, capabilities: object) -> None:  # noqa: N802
        """Do nothing: there are no remote systems."""

    def deRegisterRemoteSystem(self, address: object) -> None:  # noqa: N802
        """Do nothing: there are no remote systems."""

    def actorSystemShutdown(self) -> None:  # noqa: N802
        """Shut the whole system down once the current message is handled."""
        self.system.shutdown_soon()


@cache
def _without_address(kind: Any) -> Any:  # noqa: ANN401 - a class of cells
    """Return the same kind of cell, whose address is a property.

    A `__getattr__` would slow every attribute of every cell down, by 5 % of a small put.
    """
    members = {"__slots__": (), "address": property(ActorCell.former_address)}
    return type(kind.__name__, (kind,), members)


class OutsideCell(ActorCell):
    """The address of something that receives but is no actor, such as an application thread."""

    __slots__ = ()

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        """Hand one message on."""
        if self.instance is None:
            self.refuse(message, sender)
        else:
            self.instance.deliver(message, sender)
