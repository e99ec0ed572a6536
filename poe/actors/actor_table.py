"""The actors of one system: made, found by address or name, and forgotten when they have ended."""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from poe.actors.actor_cell import (
    ActorCell,
    Estate,
    LoopAddress,
    OutsideCell,
    System,
    cell_of,
)
from poe.actors.call import Call
from poe.actors.gen_server import GenServer
from poe.actors.hibernation import HibernateAfter
from poe.actors.message import Entry, Receiver, SystemRequest
from poe.actors.reason import NOPROC, Reason
from poe.actors.run_queue import RunQueue
from poe.actors.server_cell import ServerCell
from poe.errors import ActorDead, NameTaken

CellT = TypeVar("CellT", bound=ActorCell)


class Guests(Protocol):
    """Actors of another kind that live among ours, and hear of what becomes of all."""

    def forget(self, cell: ActorCell) -> None:
        """Hear that an actor has ended."""

    def dead_letter(self, cell: ActorCell, message: object, sender: object) -> None:
        """Take a message for an actor that has ended."""

    def tell_status(self, cell: ActorCell, asker: LoopAddress) -> None:
        """Answer one of them that asks for an actor's status."""

    def leave(self) -> None:
        """Let go of everything, because the system ends."""


class ActorTable:
    """Knows every live actor of a system, and which name belongs to which.

    A name belongs to at most one live actor; it is free before anyone hears of the actor's end.
    """

    has_all_actors: bool = True
    """Whether all that an actor can reach lives here, and can be looked at."""

    def __init__(self, run_queue: RunQueue) -> None:
        self.run_queue = run_queue
        self.estate: Estate | None = None
        self.guests: Guests | None = None
        self.next_serial = itertools.count(1).__next__
        """Counts the actors of this system; safe from any thread."""
        self.alive: set[ActorCell] = set()
        self._names: dict[str, ActorCell] = {}

    def spawn(
        self, actor_class: type[GenServer], parent: ActorCell | None, name: str | None
    ) -> ActorCell:
        """Make an actor that waits for its `Start`; the name is checked before anything is made."""
        if name is not None:
            self._check_name(name)
        try:
            label, pinned = actor_class.__name__, actor_class.pinned_to_loop
            cell: ActorCell = self.new_cell(ServerCell, parent, label, pinned=pinned)
        except AttributeError:
            msg = f"{actor_class!r} cannot be started; use a subclass of GenServer, and no instance"
            raise TypeError(msg) from None
        try:
            instance = actor_class()
        except TypeError as error:
            msg = f"{error}; an actor takes its arguments in init(self, ...), not in __init__"
            raise TypeError(msg) from error
        self.enliven(cell, instance)
        if name is not None:
            self.register_name(name, cell)
        return cell

    def enliven(self, cell: ActorCell, instance: Any) -> None:  # noqa: ANN401 - an actor
        """Tie an instance to its cell; from now on it receives."""
        cell.house(instance)
        cell.instance = instance
        if isinstance(cell, ServerCell):
            after_s = type(instance).hibernate_after_s
            if after_s is not None:
                cell.observe_by(HibernateAfter(cell, after_s))
        self.alive.add(cell)

    def new_outside_cell(self, label: str, mailbox: Receiver) -> ActorCell:
        """Make the address of something that receives but is no actor."""
        cell = self.new_cell(OutsideCell, None, label)
        cell.instance = mailbox
        cell.let_go_of_address()  # it has no end that would do so
        return cell

    def new_cell(
        self,
        kind: Callable[[System, ActorCell | None, str, deque[Entry]], CellT],
        parent: ActorCell | None,
        label: str,
        *,
        pinned: bool = False,
    ) -> CellT:
        """Make the place of an actor."""
        run_queue = self.run_queue
        return kind(self, parent, label, run_queue.pinned if pinned else run_queue.queue)

    def take_in(self, guests: Guests) -> None:
        """Let actors of another kind live here; of one kind at most."""
        assert self.guests is None, "other guests live here already"
        self.guests = guests

    def forget(self, cell: ActorCell) -> None:
        """Take an ended actor out of all tables."""
        if self.estate is not None:
            self.estate.pass_on(cell)
        self.alive.discard(cell)
        # What still comes is refused by whoever brings it, even when the event loop has ended.
        cell.queue = self.run_queue.queue
        self._free_name(cell)
        if self.guests is not None:
            self.guests.forget(cell)

    def dead_letter(self, cell: ActorCell, message: object, sender: object) -> None:
        """Drop a message for an actor that has ended, unless somebody collects them."""
        if self.guests is not None:
            self.guests.dead_letter(cell, message, sender)

    def tell_status(self, cell: ActorCell, asker: LoopAddress) -> None:
        """Answer a Thespian program that asks for an actor's status."""
        if self.guests is not None:
            self.guests.tell_status(cell, asker)

    def find(self, ref: LoopAddress | str) -> ActorCell | None:
        """Return the cell behind an address or a name."""
        return self._names.get(ref) if isinstance(ref, str) else cell_of(ref)

    def whereis(self, name: str) -> LoopAddress | None:
        """Return the address of the actor registered under a name, or None."""
        cell = self._names.get(name)
        return None if cell is None else cell.address

    def is_alive(self, ref: LoopAddress | str) -> bool:
        """Return whether the actor still runs, or whether one has the name."""
        cell = self.find(ref)
        return cell is not None and cell.instance is not None

    def register_name(self, name: str, cell: ActorCell) -> None:
        """Give a live actor its one name.

        Raises:
            NameTaken: the name belongs to a live actor, or this actor has a name already.
        """
        self._check_name(name)
        if cell.name is not None:
            raise NameTaken(cell.name, cell.address)
        self._names[name] = cell
        cell.name = name

    def _check_name(self, name: str) -> None:
        if not name or type(name) is not str:
            msg = f"an actor's name is {name!r}; use a str that is not empty"
            raise TypeError(msg)
        holder = self._names.get(name)
        if holder is not None:
            raise NameTaken(name, holder.address)

    def unregister_name(self, name: str) -> None:
        """Free a name; its actor lives on without one.

        Raises:
            ActorDead: nobody has the name.
        """
        cell = self._names.get(name)
        if cell is None:
            raise ActorDead(name, NOPROC)
        self._free_name(cell)

    def _free_name(self, cell: ActorCell) -> None:
        if cell.name is not None:
            del self._names[cell.name]
            cell.name = None

    def request_stop(self, cell: ActorCell, reason: Reason) -> None:
        """Ask an actor to terminate; under the lock."""
        cell.queue.append((cell, Call(SystemRequest("stop", reason), None, cell, None), None))

    def cell_of_nobody(self, name: str) -> ActorCell:
        """Return the cell of an actor that does not exist, to stand for a name that nobody has."""
        return self.new_cell(ActorCell, None, name)
