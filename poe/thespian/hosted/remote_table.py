"""What a host knows of actors elsewhere: their addresses, the calls under way, what goes out.

An actor has one address in each host. Its serial says which actor is meant, so that addresses,
links and answers of the same actor find each other whatever way they came.
"""

import itertools
import logging
import os
import secrets
import time
from typing import Any, Protocol
from weakref import WeakValueDictionary

from poe.actors.actor_cell import ActorCell, Receiver
from poe.actors.actor_table import ActorTable
from poe.actors.address import LoopAddress
from poe.actors.call import Call
from poe.actors.clock import SimulatedClock
from poe.actors.reason import KILLED, NOPROC, Reason
from poe.errors import LoopBaseOnly, NotPicklable
from poe.thespian.hosted.packet import Op, Packet
from poe.thespian.hosted.pickling import encode
from poe.thespian.hosted.pid_watch import PidWatch, is_gone
from poe.thespian.hosted.remote_cell import RemoteCell

logger = logging.getLogger("poe.actors")

_alive_here: set[int] = set()
"""Serials of the actors that live in this process; says who is gone where pids cannot."""


class Outlet(Protocol):
    """How a host system reaches the others."""

    def send_packet(self, route: object, packet: Packet) -> None:
        """Send a packet to a host."""

    def create_host(self, cell: RemoteCell) -> object:
        """Make a new, empty host and return the route to it."""

    def send_to_self(self, packet: Packet) -> None:
        """Send a packet to this very host, behind all that has arrived already."""

    def leave(self) -> None:
        """End this host; its main actor has ended, and everybody was told."""


class RealClock(SimulatedClock):
    """The real monotonic clock; the host sees to it that a turn comes when a timer is due."""

    def monotonic_s(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()


class RemoteTable(ActorTable):
    """The table of a host's own actors, and beside it what it knows of all others.

    Serials are unique among all hosts. A remote cell is kept while anybody uses its address or
    waits for news of it.
    """

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(RealClock())
        self.outlet = outlet
        self.is_one_process = False
        self.processes = PidWatch()
        self._route: object = None
        # Different from those of all hosts; calls are numbered with them, too.
        self.next_serial = itertools.count(secrets.randbits(40) << 20).__next__
        self._local: dict[int, ActorCell] = {}
        self._remote: WeakValueDictionary[int, RemoteCell] = WeakValueDictionary()
        self._watched: set[RemoteCell] = set()
        self._calls: dict[int, tuple[RemoteCell, Call]] = {}
        self._unsent: list[tuple[object, Packet]] | None = None

    @property
    def run_queue(self) -> Any:  # noqa: ANN401 - entries of a run queue
        """The queue of everything that happens here."""
        return self._run_queue

    def be_at(self, route: object) -> None:
        """Learn where this host is."""
        self._route = route

    def new_outside_cell(self, label: str, mailbox: Receiver) -> ActorCell:
        """Make the address of something that receives but is no actor."""
        cell = super().new_outside_cell(label, mailbox)
        self.keep(cell)
        return cell

    def keep(self, cell: ActorCell) -> None:
        """Let others reach a local actor."""
        self._local[cell.address.serial] = cell
        _alive_here.add(cell.address.serial)

    def drop(self, cell: ActorCell) -> None:
        """Answer for a local actor from now on that it is gone."""
        self._local.pop(cell.address.serial, None)
        _alive_here.discard(cell.address.serial)

    def adopt(self, child: RemoteCell) -> None:
        """Wait for news of an actor that was made from here."""
        if self.is_one_process:
            child.pid = os.getpid()
            _alive_here.add(child.address.serial)
        self._remote[child.address.serial] = child
        self.watch(child)

    # ---- addresses ----------------------------------------------------------------------------

    def place_of(self, address: LoopAddress) -> tuple[object, int]:
        """Return the route to an actor and its pid, to be sent along with its address."""
        cell = address.cell
        if isinstance(cell, RemoteCell):
            return cell.route, cell.pid
        return self._route, os.getpid()

    def address_of(self, place: tuple[object, int], serial: int, label: str) -> LoopAddress:
        """Return the one address that an actor has in this host."""
        local = self._local.get(serial)
        if local is not None:
            return local.address
        route, pid = place
        remote = self._remote.get(serial)
        if remote is None:
            remote = RemoteCell(self, serial, label, route, pid)
            self._remote[serial] = remote
            if self.has_process_ended(remote):
                remote.end(NOPROC)
        elif not remote.pid:
            remote.say_hello(route, pid)
        return remote.address

    def has_process_ended(self, cell: RemoteCell) -> bool:
        """Tell whether an actor is gone for sure, whatever was told of it."""
        if cell.pid == os.getpid():
            return cell.address.serial not in _alive_here
        return cell.pid != 0 and is_gone(cell.pid)

    def watch(self, cell: RemoteCell) -> None:
        """Make sure that the end of an actor is noticed, even if it is killed."""
        if cell.instance is None:
            return
        self._watched.add(cell)
        self.watch_host_of(cell)

    def watch_host_of(self, cell: ActorCell) -> None:
        """Make sure that the end of an actor's process is noticed, whatever became of the actor."""
        if isinstance(cell, RemoteCell) and cell.pid not in (0, os.getpid()):
            self.processes.add(cell.pid)

    def known_pids(self) -> set[int]:
        """Return the other processes that live actors known here are in."""
        # The pid of one that has ended may be that of anybody by now.
        alive = [cell for cell in self._remote.values() if cell.instance is not None]
        return {cell.pid for cell in alive} - {0, os.getpid()}

    def end_all(self) -> None:
        """Learn that all other hosts are gone."""
        self.processes.close()
        for cell in list(self._remote.values()):
            cell.end(KILLED)

    # ---- calls to other hosts -----------------------------------------------------------------

    def add_call(self, cell: RemoteCell, call: Call) -> int:
        """Keep a call until it is answered; return its number."""
        number = self.next_serial()
        self._calls[number] = (cell, call)
        return number

    def forget_call(self, number: int, call: Call) -> None:
        """Drop what still comes for a call that is done."""
        del call
        self._calls.pop(number, None)

    def take_calls(self, cell: RemoteCell) -> list[Call]:
        """Return the calls under way to an actor, which will not be answered any more."""
        return [call for owner, call in list(self._calls.values()) if owner is cell]

    # ---- packets out --------------------------------------------------------------------------

    def send(self, route: object, packet: Packet) -> None:
        """Send a packet, or keep it until a name is free."""
        if self._unsent is None:
            self.outlet.send_packet(route, packet)
        else:
            self._unsent.append((route, packet))

    def send_value(
        self, route: object, op: Op, target: int, value: object, number: int = 0
    ) -> None:
        """Send a value that nobody can be told about if it cannot be sent."""
        try:
            content = encode(self, value)
        except NotPicklable as error:
            logger.error("a message (%s) was dropped: %s", op, error)
        else:
            self.send(route, Packet(op, target, number, content))

    def send_end(self, cell: RemoteCell, serial: int, reason: Reason) -> None:
        """Tell the host of `cell` that a local actor has ended."""
        try:
            content = encode(self, reason)
        except NotPicklable as error:
            content = encode(self, error)
        self.send(cell.route, Packet(Op.ENDED, serial, body=content))

    def answer(self, route: object, number: int, call: Call) -> None:
        """Send the outcome of a call that came from the host at `route`."""
        op, value = (Op.FAIL, call.error) if call.error else (Op.ANSWER, call.value)
        try:
            content = encode(self, value)
        except NotPicklable as error:
            op, content = Op.FAIL, encode(self, error)
        self.send(route, Packet(op, 0, number, content))

    def end_call(self, packet: Packet, value: Any) -> None:  # noqa: ANN401 - an answer
        """End a call to another host with what came for it."""
        _, call = self._calls.pop(packet.number, (None, None))
        if call is None:
            return  # it has timed out
        if packet.op is Op.FAIL or isinstance(value, NotPicklable):
            call.fail(value)
        else:
            call.answer(value)

    # ---- what needs all actors in one process -------------------------------------------------

    def whereis(self, name: str) -> LoopAddress | None:
        """Refuse: the answer would have to come from another process.

        Raises:
            LoopBaseOnly: always.
        """
        del name
        raise LoopBaseOnly("whereis", "call, cast or monitor the actor by its name")

    def register_name(self, name: str, cell: ActorCell) -> None:
        """Refuse: the answer would have to come from another process.

        Raises:
            LoopBaseOnly: always.
        """
        raise LoopBaseOnly("register", f"start {cell.address.label} with name={name!r}")

    def unregister_name(self, name: str) -> None:
        """Refuse, as `register_name`.

        Raises:
            LoopBaseOnly: always.
        """
        del name
        raise LoopBaseOnly("unregister", "a name is free when its actor has ended")

    def create_child(self, *_: object) -> LoopAddress:
        """Refuse to make plain Thespian actors.

        Raises:
            LoopBaseOnly: always.
        """
        raise LoopBaseOnly("createActor", "start a GenServer with start_link")

    def wakeup_after(self, *_: object) -> None:
        """Refuse Thespian's wake-ups.

        Raises:
            LoopBaseOnly: always.
        """
        raise LoopBaseOnly("wakeupAfter", "use send_after")
