"""What a host knows of actors elsewhere: their addresses, the calls under way, what goes out.

An actor has one address in each host. Its serial says which actor is meant, so that addresses,
links and answers of the same actor find each other whatever way they came. The cell behind the
address keeps the local ends of links and monitors like any cell, so that the end of the actor is
told here by the same code as that of a local one; only one notice for each crosses.
"""

import logging
import os
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.actor_table import ActorTable
from poe.actors.call import Call, Start
from poe.actors.message import REPLY, Cast, DownSignal, ExitSignal, Monitor
from poe.actors.reason import KILL, KILLED, NOPROC, Reason, is_word
from poe.errors import ActorDead, NotPicklable, StartFailed
from poe.thespian.hosted.packet import Op, Packet
from poe.thespian.hosted.pickling import encode
from poe.thespian.hosted.pid_watch import PidWatch, is_gone

logger = logging.getLogger("poe.actors")

_alive_here: set[int] = set()
"""Serials of the actors that live in this process; says who is gone where pids cannot."""


class Outlet(Protocol):
    """How a host system reaches the others."""

    def send_packet(self, route: object, packet: Packet) -> None:
        """Send a packet to a host."""

    def create_host(self, cell: "RemoteCell") -> object:
        """Make a new, empty host and return the route to it."""

    def send_to_self(self, packet: Packet) -> None:
        """Send a packet to this very host, behind all that has arrived already."""

    def leave(self) -> None:
        """End this host; its main actor has ended, and everybody was told."""


class RemoteActors:
    """What one host knows of the others' actors, and they of its own.

    Serials are unique among all hosts. A remote cell is kept while anybody uses its address or
    waits for news of it.
    """

    def __init__(self, actors: ActorTable, outlet: Outlet) -> None:
        self._actors = actors
        self.outlet = outlet
        self.is_one_process = False
        self.processes = PidWatch()
        self._route: object = None
        self.local: dict[int, ActorCell] = {}
        """Actors of this host that others may reach, by serial."""
        self._remote: WeakValueDictionary[int, RemoteCell] = WeakValueDictionary()
        self._watched: set[RemoteCell] = set()
        self._calls: dict[int, tuple[RemoteCell, Call]] = {}
        self._held_back: list[tuple[object, Packet]] | None = None

    def be_at(self, route: object) -> None:
        """Learn where this host is."""
        self._route = route

    def keep(self, cell: ActorCell) -> None:
        """Let others reach a local actor."""
        self.local[cell.address.serial] = cell
        _alive_here.add(cell.address.serial)

    def drop(self, cell: ActorCell) -> None:
        """Answer for a local actor from now on that it is gone."""
        self.local.pop(cell.address.serial, None)
        _alive_here.discard(cell.address.serial)

    def found(self, serial: int, label: str) -> "RemoteCell":
        """Make a host for an actor, and wait for news of it."""
        child = RemoteCell(self, self._actors, serial, label, None, 0)
        child.route = self.outlet.create_host(child)
        if self.is_one_process:
            child.pid = os.getpid()
            _alive_here.add(serial)
        self._remote[serial] = child
        self.watch(child)
        return child

    def of(self, serial: int) -> "RemoteCell | None":
        """Return the cell of an actor elsewhere, if anybody here knows it."""
        return self._remote.get(serial)

    # ---- addresses ----------------------------------------------------------------------------

    def place_of(self, address: LoopAddress) -> tuple[object, int]:
        """Return the route to an actor and its pid, to be sent along with its address."""
        cell = address.cell
        if isinstance(cell, RemoteCell):
            return cell.route, cell.pid
        return self._route, os.getpid()

    def address_of(self, place: tuple[object, int], serial: int, label: str) -> LoopAddress:
        """Return the one address that an actor has in this host."""
        local = self.local.get(serial)
        if local is not None:
            return local.address
        route, pid = place
        remote = self._remote.get(serial)
        if remote is None:
            remote = RemoteCell(self, self._actors, serial, label, route, pid)
            self._remote[serial] = remote
            if self.has_process_ended(remote):
                remote.end(NOPROC)
        elif not remote.pid:
            remote.say_hello(route, pid)
        return remote.address

    def has_process_ended(self, cell: "RemoteCell") -> bool:
        """Return whether an actor is gone for sure, whatever was told of it."""
        if cell.pid == os.getpid():
            return cell.address.serial not in _alive_here
        return cell.pid != 0 and is_gone(cell.pid)

    def unwatch(self, cell: "RemoteCell") -> None:
        """Wait for no more news of an actor, which has ended."""
        self._watched.discard(cell)

    def end_process(self, pid: int) -> None:
        """Learn that a process has ended, and with it all actors that lived there."""
        for cell in [cell for cell in self._watched if cell.pid == pid]:
            cell.end(KILLED)

    def watch(self, cell: "RemoteCell") -> None:
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

    def add_call(self, cell: "RemoteCell", call: Call) -> int:
        """Keep a call until it is answered; return its number."""
        number = self._actors.next_serial()
        self._calls[number] = (cell, call)
        return number

    def forget_call(self, number: int, call: Call) -> None:
        """Drop what still comes for a call that is done."""
        del call
        self._calls.pop(number, None)

    def take_calls(self, cell: "RemoteCell") -> list[Call]:
        """Return the calls under way to an actor, which will not be answered any more."""
        return [call for owner, call in list(self._calls.values()) if owner is cell]

    # ---- packets out --------------------------------------------------------------------------

    def send(self, route: object, packet: Packet) -> None:
        """Send a packet, at once or when `let_go` is called."""
        if self._held_back is None:
            self.outlet.send_packet(route, packet)
        else:
            self._held_back.append((route, packet))

    def hold_back(self) -> None:
        """Keep what is to be sent from now on."""
        self._held_back = []

    def let_go(self) -> None:
        """Send what was held back."""
        held_back, self._held_back = self._held_back, None
        for route, packet in held_back or ():
            self.outlet.send_packet(route, packet)

    @property
    def is_holding_back(self) -> bool:
        """Return whether something is still to be sent."""
        return self._held_back is not None

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

    def send_end(self, cell: "RemoteCell", serial: int, reason: Reason) -> None:
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


class RemoteCell(ActorCell):
    """One actor of another host, as seen from this one.

    `route` is where packets for it go, `pid` the process it lives in; 0 until that has said hello.
    `instance` is None once the end of the actor is known here.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - where it is, and who it is
        self,
        home: RemoteActors,
        actors: ActorTable,
        serial: int,
        label: str,
        route: object,
        pid: int,
    ) -> None:
        super().__init__(actors, None, label, actors.run_queue.queue)
        self.home = home
        self.address = LoopAddress(self, serial, label)
        self.route = route
        self.pid = pid
        self.instance = self
        self._is_killed = False
        self._monitored_for: LoopAddress | None = None

    # ---- links, monitors, the end -------------------------------------------------------------

    def accept_link(self, other: ActorCell) -> None:
        """Keep the link of a local actor, and tell the other end."""
        self.add_link(other)
        if self.instance is not None:
            self.send(Op.LINK, other.address)

    def add_link(self, other: ActorCell) -> None:
        """Keep the link of a local actor."""
        super().accept_link(other)
        self.home.watch(self)

    def drop_link(self, other: ActorCell) -> None:
        """Forget the link of a local actor, and tell the other end."""
        super().drop_link(other)
        if self.instance is not None:
            self.send(Op.UNLINK, other.address)

    def accept_monitor(self, monitor: Monitor, watcher: ActorCell) -> None:
        """Keep a monitor; one notice for all of them is asked for."""
        super().accept_monitor(monitor, watcher)
        if self.instance is not None and self._monitored_for is None:
            self._monitored_for = watcher.address
            self.home.watch(self)
            self.send(Op.MONITOR, watcher.address)

    def drop_monitor(self, monitor: Monitor) -> None:
        """Forget a monitor; after the last one the notice is asked for no longer."""
        super().drop_monitor(monitor)
        if self.monitors is None and self._monitored_for is not None:
            watcher, self._monitored_for = self._monitored_for, None
            if self.instance is not None:
                self.send(Op.DEMONITOR, watcher)

    def end(self, reason: Reason) -> None:
        """Tell everybody here that the actor has ended, and fail the calls under way to it."""
        if self.instance is None:
            return
        calls = self.home.take_calls(self)
        for call in calls:
            if call.request is Start and isinstance(call.caller, ActorCell):
                # The failed start tells the starter; the link would do so a second time.
                super().drop_link(call.caller)
                call.caller.cut(self)
        super().end(reason)
        for call in calls:
            is_start = call.request is Start
            call.fail(StartFailed(reason) if is_start else ActorDead(self.address, reason))

    def abort(self, reason: Reason) -> None:
        """Have the actor killed wherever it stands; its end is known here when it is gone."""
        del reason
        self.post(ExitSignal(None, KILL))

    def say_hello(self, route: object, pid: int) -> None:
        """Learn where the actor is; a kill may have waited for that."""
        self.route, self.pid = route, pid
        if self._is_killed:
            self._kill()
        self.home.watch(self)

    def _kill(self) -> None:
        self._is_killed = True
        if self.pid and self.instance is not None:
            self.home.watch(self)
            self.home.processes.kill(self.pid)

    # ---- packets ------------------------------------------------------------------------------

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Receive for the remote actor."""
        kind = type(message)
        if self.instance is None:
            self.refuse(message, sender)
        elif kind is Call:
            if sender is not REPLY:
                self.request(Op.CALL, message, message.request)
        elif kind is Start:
            message.call.request = Start
            self.request(Op.START, message.call, (message.args, message.kwargs))
        elif kind is Cast:
            self.send(Op.CAST, message.message)
        elif kind is DownSignal or (kind is ExitSignal and message.linked):
            ActorCell.cut(self, message.ref.cell)
            self.home.send_end(self, message.ref.serial, message.reason)
        elif kind is not ExitSignal:
            self.send(Op.INFO, (message, sender))
        elif is_word(message.reason, KILL) and self.pid != os.getpid():
            self._kill()
        else:
            self.send(Op.SIGNAL, (message.ref, message.reason))

    def request(self, op: Op, call: Call, body: object) -> None:
        """Send what is to be answered; the answer, or the actor's end, ends `call`."""
        try:
            content = encode(self.home, body)
        except NotPicklable as error:
            call.fail(StartFailed(error) if op is Op.START else error)
            return
        number = self.home.add_call(self, call)
        call.forget = partial(self.home.forget_call, number)
        self.home.watch(self)
        self.home.send(self.route, Packet(op, self.address.serial, number, content))

    def send(self, op: Op, body: object) -> None:
        """Send what is not answered; a body that cannot be sent is logged and dropped."""
        self.home.send_value(self.route, op, self.address.serial, body)
