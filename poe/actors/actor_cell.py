"""Where an actor is: its address, and the cell that the address leads to.

A cell is what the system keeps of one actor beside the instance: queue, parent, links, monitors.
"""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol
from weakref import ref as weak

from thespian.actors import ActorAddress

from poe.actors.call import Call, Start
from poe.actors.message import REPLY, DownSignal, Entry, ExitSignal, Monitor
from poe.actors.reason import NOPROC, Reason
from poe.actors.run_queue import RunQueue
from poe.errors import ActorDead, StartFailed


class Estate(Protocol):
    """What actors own that may outlive them."""

    def pass_on(self, owner: "ActorCell") -> None:
        """Give what an actor that has ended leaves behind to its heirs."""


class System(Protocol):
    """What actors need of the system that they live in."""

    run_queue: RunQueue
    estate: Estate | None
    """There from the first time that an actor owns such a thing."""
    has_all_actors: bool
    """Whether all that an actor can reach lives here, and can be looked at."""
    alive: "set[ActorCell]"
    """The actors that live here, and run."""

    @property
    def next_serial(self) -> Callable[[], int]:
        """Return what counts the actors."""

    def spawn(self, actor_class: Any, parent: "ActorCell | None", name: str | None) -> "ActorCell":  # noqa: ANN401 - of GenServers
        """Make an actor that waits for its `Start`."""
        ...

    def find(self, ref: "LoopAddress | str") -> "ActorCell | None":
        """Return the cell behind an address or a name."""

    def whereis(self, name: str) -> "LoopAddress | None":
        """Return the address of the actor registered under a name, or None."""

    def register_name(self, name: str, cell: "ActorCell") -> None:
        """Give a live actor its one name."""

    def unregister_name(self, name: str) -> None:
        """Free a name; its actor lives on without one."""

    def request_stop(self, cell: "ActorCell", reason: Reason) -> None:
        """Ask an actor to terminate."""

    def cell_of_nobody(self, name: str) -> "ActorCell":
        """Return the cell of an actor that does not exist."""
        ...

    def forget(self, cell: "ActorCell") -> None:
        """Take an ended actor out of the system."""

    def dead_letter(self, cell: "ActorCell", message: object, sender: object) -> None:
        """Take a message for an actor that has ended."""

    def tell_status(self, cell: "ActorCell", asker: "LoopAddress") -> None:
        """Answer a Thespian program that asks for an actor's status."""


class LoopAddress(ActorAddress):  # type: ignore[misc]  # Thespian is untyped
    """The address of one actor; it leads straight to the actor's cell.

    An address outlives its actor and is never reused: `serial` counts all actors of a system.
    Two addresses are equal only if they are the same actor of the same system.
    """

    __slots__ = ("cell", "label", "serial")

    def __init__(self, cell: "ActorCell", serial: int, label: str) -> None:
        # Thespian's constructor is skipped on purpose: it would store a second copy of the
        # address in an instance dictionary, 100 bytes for each of 10 000 idle actors.
        self.cell = cell
        self.serial = serial
        self.label = label

    @property
    def addressDetails(self) -> str:  # noqa: N802 - Thespian's name
        """Return the text that identifies the actor within its system."""
        return f"{self.label}.{self.serial}"

    @property
    def actorAddressString(self) -> str:  # noqa: N802 - Thespian's name
        """Return the same text; Thespian asks for it under this name."""
        return self.addressDetails

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return self.serial

    def __deepcopy__(self, memo: object) -> "LoopAddress":
        """Return this address: a copy would be nobody's, and take the whole system along."""
        return self

    def __str__(self) -> str:
        return self.addressDetails

    __repr__ = __str__


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
        "instance",
        "is_linked_to_parent",
        "links",
        "monitors",
        "name",
        "on_end",
        "parent",
        "queue",
        "run_queue",
        "system",
    )

    def __init__(
        self,
        system: System,
        parent: "ActorCell | None",
        label: str,
        queue: deque[Entry],
    ) -> None:
        self.system = system
        self.parent = parent
        self.queue = queue
        self.run_queue = system.run_queue
        self.instance: Any = None
        """The actor, or what receives for something that is none; None from the end on."""
        self.address = LoopAddress(self, system.next_serial(), label)
        self.blocked_by: object = None
        # Most actors are linked with their parent alone: a set would be a quarter of their memory.
        self.is_linked_to_parent = False
        self.links: set[ActorCell] | None = None
        self.monitors: dict[Monitor, ActorCell] | None = None
        self.name: str | None = None
        self.on_end: Callable[[], object] | None = None

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

    def house(self, actor: Any) -> None:  # noqa: ANN401 - whatever lives here
        """Let an actor know its cell."""

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

    def cut(self, other: "ActorCell") -> None:
        """Forget this actor's side of a link; nothing happens when there was none."""
        if other is self.parent:
            self.is_linked_to_parent = False
        elif self.links is not None:
            self.links.discard(other)

    def is_linked(self, other: "ActorCell") -> bool:
        """Return whether this actor's side of a link is there."""
        if other is self.parent:
            return self.is_linked_to_parent
        return self.links is not None and other in self.links

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
        """Take the actor out of the system and tell links and monitors.

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


def cell_of(ref: Any) -> ActorCell:  # noqa: ANN401 - to be checked
    """Return the cell behind an address.

    Raises:
        TypeError: it is none.
    """
    try:
        return ref.cell  # type: ignore[no-any-return]  # what else has none
    except AttributeError:
        way_out = "use whereis(name) for the ref" if isinstance(ref, str) else "use what start gave"
        msg = f"{ref!r} is no actor's ref; {way_out}"
        raise TypeError(msg) from None
