"""The small actor system inside one host, and its traffic with the others.

It is the usual table and run queue with one main actor, and helpers of that actor beside it. It
runs nobody by itself: its host gives it what arrives, and lets it take a turn.
"""

import itertools
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from poe.actors.actor_cell import ActorCell, LoopAddress, cell_of
from poe.actors.actor_table import ActorTable
from poe.actors.call import Call, Start
from poe.actors.clock import SimulatedClock
from poe.actors.gen_server import GenServer
from poe.actors.message import Cast, ExitSignal, Receiver
from poe.actors.reason import KILLED, NOPROC, is_for_program
from poe.actors.run_queue import RunQueue
from poe.actors.server_cell import ServerCell
from poe.errors import LoopSystemOnly, MailboxFull, NotPicklable, StartFailed
from poe.thespian.hosted.name_server import Register, Unregister
from poe.thespian.hosted.named_cell import NamedCell
from poe.thespian.hosted.packet import ANSWERED, Op, Packet, when_done
from poe.thespian.hosted.pickling import decode, encode
from poe.thespian.hosted.remote_actors import Outlet, RemoteActors, RemoteCell

logger = logging.getLogger("poe.actors")

BURST = (None,) * 2_000
"""Messages that are delivered in one turn, before the host takes what has arrived meanwhile."""


@dataclass(frozen=True, slots=True)
class Birth:
    """What a new host has to know to make its main actor."""

    actor_class: type[GenServer]
    parent: LoopAddress | None
    name: str | None
    names: LoopAddress | None
    """The name server; None for itself."""
    spawner_pid: int
    is_top: bool
    """Started by the application."""


class RealClock(SimulatedClock):
    """The real monotonic clock; the host sees to it that a turn comes when a timer is due."""

    def monotonic_s(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()


class HostQueue(RunQueue):
    """Runs the actors of one host, when that lets it take a turn."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """Begin with nobody to run; `wake` asks for another turn."""
        super().__init__(RealClock())
        self.burst = BURST
        self._wake = wake

    @property
    def is_simulated(self) -> bool:
        """Whether nothing runs beside the actors: the clock is given, but it is the real one."""
        return False

    def take_turn(self) -> None:
        """Run what has come due and what is queued."""
        self.drain()
        self.fire_due()

    def event_loop(self) -> Any:  # noqa: ANN401 - the part of `EventLoop` that a run queue needs
        """Return what a run queue asks for another turn."""
        return self

    def wake(self, callback: Callable[[], object]) -> None:
        """Take another turn soon, behind what has arrived."""
        del callback
        self._wake()


class HostSystem(ActorTable):
    """The main actor of one host, its helpers, and what comes for them from elsewhere."""

    has_all_actors = False

    def __init__(self, outlet: Outlet) -> None:
        self.host_queue = HostQueue(lambda: outlet.send_to_self(Packet(Op.TURN)))
        super().__init__(self.host_queue)
        # Different from those of all hosts; calls are numbered with them, too.
        self.next_serial = itertools.count(secrets.randbits(40) << 20).__next__
        self.remote = RemoteActors(self, outlet)
        self.names: LoopAddress | None = None
        self.main: ActorCell | None = None
        self._spawner: object = None
        self.spawner_pid = 0
        """The process that made this host; 0 where that is this one."""
        self.is_top = False
        """Made by the application."""
        self.is_orphaned = False
        self._name: str | None = None
        self._stillborn: BaseException | None = None
        self._held: list[tuple[Packet, object]] | None = None

    # ---- actors -------------------------------------------------------------------------------

    def spawn(
        self, actor_class: type[GenServer], parent: ActorCell | None, name: str | None
    ) -> ActorCell:
        """Make an actor in a new host of its own, or here if it is to be beside its parent."""
        if actor_class.colocated:
            return super().spawn(actor_class, parent, None)
        if actor_class.pinned_to_loop:
            raise LoopSystemOnly("pinned_to_loop", "let an actor of a LoopSystem own the sockets")
        birth = Birth(
            actor_class,
            None if parent is None else parent.address,
            name,
            self.names,
            os.getpid(),
            is_top=self.main is None,
        )
        content = encode(self.remote, birth)
        serial = self.next_serial()
        child = self.remote.found(serial, actor_class.__name__)
        self.remote.send(child.route, Packet(Op.CREATE, serial, body=content))
        return child

    def enliven(self, cell: ActorCell, instance: Any) -> None:  # noqa: ANN401 - a GenServer
        """Tie an instance to its cell; from now on it receives."""
        super().enliven(cell, instance)
        self.remote.keep(cell)

    def new_outside_cell(self, label: str, mailbox: Receiver) -> ActorCell:
        """Make the address of something that receives but is no actor."""
        cell = super().new_outside_cell(label, mailbox)
        self.remote.keep(cell)
        return cell

    def forget(self, cell: ActorCell) -> None:
        """Take an ended actor out of all tables; its name is freed before anyone hears of it."""
        if isinstance(cell, RemoteCell):
            self.remote.unwatch(cell)
            return
        name, cell.name = cell.name, None
        super().forget(cell)
        self.remote.drop(cell)
        if name is not None and self.names is not None:
            call = Call(Unregister(name, cell.address), None, self.names.cell, None)
            self.names.cell.deliver(call, None)
            self.remote.hold_back()
            when_done(call, lambda _: self.remote.let_go())

    def find(self, ref: LoopAddress | str) -> ActorCell | None:
        """Return the cell behind an address, or one that looks for the owner of a name."""
        if isinstance(ref, str):
            return NamedCell(self, ref, self.names)
        return cell_of(ref)

    def dead_letter(self, cell: ActorCell, message: object, sender: object) -> None:
        """Drop a message for an ended actor."""
        del sender
        logger.debug("%s has ended and gets no %s", cell.address, type(message).__name__)

    # ---- packets in ---------------------------------------------------------------------------

    def receive(self, packet: Packet, route: object) -> None:
        """Take one packet from the host at `route`."""
        if self._held is not None and self.main and packet.target == self.main.address.serial:
            self._held.append((packet, route))
            return
        if packet.op is Op.CREATE:
            # Before anything of its class is loaded, or run: who made it hears if that kills it.
            self.remote.send(route, Packet(Op.HELLO, packet.target, os.getpid()))
        try:
            value = decode(self.remote, packet.body) if packet.body else None
        except NotPicklable as error:
            self._receive_garbled(packet, route, error)
            return
        match packet.op:
            case Op.ANSWER | Op.FAIL:
                self.remote.end_call(packet, value)
            case Op.HELLO | Op.ENDED | Op.GONE:
                self._receive_news(packet, route, value)
            case Op.CREATE:
                assert isinstance(value, Birth)
                self._create(packet.target, value, route)
            case Op.TURN:
                pass
            case _:
                cell = self.remote.local.get(packet.target)
                if cell is None:
                    content = encode(self.remote, NOPROC)
                    self.remote.send(route, Packet(Op.ENDED, packet.target, body=content))
                else:
                    self._receive_for(cell, packet, route, value)

    def _receive_for(  # noqa: C901 - a case for each kind of packet
        self,
        cell: ActorCell,
        packet: Packet,
        route: object,
        value: Any,  # noqa: ANN401
    ) -> None:
        """Give a local actor what was sent to it."""
        match packet.op:
            case Op.CALL:
                cell.post(self._answered(Call(value, None, cell, None), packet, route))
            case Op.PROBE:
                self._answered(Call(None, None, cell, None), packet, route).answer(value=True)
            case Op.START:
                self._start(cell, packet, route, value)
            case Op.CAST:
                self._post(cell, Cast(value), None)
            case Op.INFO:
                self._post(cell, *value)
            case Op.SIGNAL:
                cell.post(ExitSignal(*value))
            case Op.LINK:
                cell.accept_link(value.cell)
                value.cell.add_link(cell)
            case Op.UNLINK:
                ActorCell.drop_link(cell, value.cell)
                ActorCell.drop_link(value.cell, cell)
            case Op.MONITOR:
                value.cell.monitor(cell)
                self.remote.watch_host_of(value.cell)
            case Op.DEMONITOR:
                _drop_monitors(cell, {value.cell})

    def _post(self, cell: ActorCell, message: object, sender: LoopAddress | None) -> None:
        """Give a local actor a message; one that it has no room for is lost, and logged."""
        try:
            if cell.blocked_by is not None:
                cell.admit()
        except MailboxFull as full:
            logger.error("a message was dropped: %s", full)
            if sender is not None and type(message) is not MailboxFull:
                sender.cell.post(full, cell.address)
        else:
            cell.post(message, sender)

    def _answered(self, call: Call, packet: Packet, route: object) -> Call:
        when_done(call, partial(self.remote.answer, route, packet.number))
        return call

    def _receive_garbled(self, packet: Packet, route: object, error: NotPicklable) -> None:
        """Tell whoever waits that what came cannot be read here."""
        if packet.op in ANSWERED:
            self._answered(Call(None, None, None, None), packet, route).fail(error)
        elif packet.op in (Op.ANSWER, Op.FAIL):
            self.remote.end_call(packet, error)
        elif packet.op is Op.ENDED:
            self._receive_news(packet, route, error)
        elif packet.op is Op.CREATE:
            self._stillborn = error
            nobody = Birth(GenServer, None, None, None, os.getppid(), is_top=False)
            self._create(packet.target, nobody, route)
        else:
            logger.error("a message (%s) was dropped: %s", packet.op, error)

    def _receive_news(self, packet: Packet, route: object, value: object) -> None:
        if packet.op is Op.GONE:
            self.remote.end_process(packet.number)
            for local in list(self.remote.local.values()):
                watchers = (local.monitors or {}).values()
                _drop_monitors(local, {each for each in watchers if _is_in(packet.number, each)})
            if packet.number == self.spawner_pid and self.main is not None:
                self.is_orphaned = True
                parent = self.main.parent
                ref = None if parent is None else parent.address
                self.main.post(ExitSignal(ref, KILLED))
            return
        remote = self.remote.of(packet.target)
        if remote is None:
            return
        if packet.op is Op.HELLO:
            remote.say_hello(route or remote.route, packet.number)
        else:
            remote.end(value)

    # ---- the main actor -----------------------------------------------------------------------

    def _create(self, serial: int, birth: Birth, route: object) -> None:
        self.is_top = birth.is_top
        self.remote.is_one_process = birth.spawner_pid == os.getpid()
        if not self.remote.is_one_process:
            self.spawner_pid = birth.spawner_pid
            self.remote.processes.add(birth.spawner_pid)
        self.names = birth.names
        self._name = birth.name
        actor_class = birth.actor_class
        cell = self.new_cell(ServerCell, None if birth.parent is None else birth.parent.cell, "")
        cell.address = LoopAddress(cell, serial, actor_class.__name__)
        self.main = cell
        try:
            instance = actor_class()
        except BaseException as error:
            if is_for_program(error):
                raise
            self._stillborn = error
            instance = GenServer()
        self.enliven(cell, instance)
        self._spawner = route

    def is_over(self) -> bool:
        """Return whether the main actor has ended and everybody was told."""
        return (
            self.main is not None and self.main.instance is None and not self.remote.is_holding_back
        )

    def say_goodbye(self) -> None:
        """Tell the spawner; a start that failed left it without any other news."""
        if self.main is not None:
            content = encode(self.remote, NOPROC)
            self.remote.send(
                self._spawner, Packet(Op.ENDED, self.main.address.serial, body=content)
            )

    def _start(self, cell: ActorCell, packet: Packet, route: object, value: Any) -> None:  # noqa: ANN401
        """Run `init`, once the actor has its name; what comes meanwhile waits."""
        args, kwargs = value
        call = self._answered(Call(None, None, cell, None), packet, route)
        if self._stillborn is not None:
            cell.end_unstarted(self._stillborn)
            call.fail(StartFailed(self._stillborn))
            return
        start = Start(args, kwargs, call)
        if self._name is None or self.names is None:
            cell.post(start)
            return
        register = Call(Register(self._name, cell.address), None, self.names.cell, None)
        self._held = []
        self.names.cell.post(register)
        when_done(register, partial(self._go_on_named, cell, start))

    def _go_on_named(self, cell: ActorCell, start: Start, register: Call) -> None:
        if register.error is None:
            cell.name = self._name
            cell.post(start)
        else:
            cell.end_unstarted(register.error)
            start.call.fail(register.error)
        held, self._held = self._held, None
        for packet, route in held or ():
            self.receive(packet, route)

    # ---- what needs all actors in one process -------------------------------------------------

    def whereis(self, name: str) -> LoopAddress | None:
        """Refuse: the answer would have to come from another process.

        Raises:
            LoopSystemOnly: always.
        """
        del name
        raise LoopSystemOnly("whereis", "call, cast or monitor the actor by its name")

    def register_name(self, name: str, cell: ActorCell) -> None:
        """Refuse: the answer would have to come from another process.

        Raises:
            LoopSystemOnly: always.
        """
        raise LoopSystemOnly("register", f"start {cell.address.label} with name={name!r}")

    def unregister_name(self, name: str) -> None:
        """Refuse, as `register_name`.

        Raises:
            LoopSystemOnly: always.
        """
        del name
        raise LoopSystemOnly("unregister", "a name is free when its actor has ended")


def _is_in(pid: int, cell: ActorCell) -> bool:
    return isinstance(cell, RemoteCell) and cell.pid == pid


def _drop_monitors(cell: ActorCell, watchers: set[ActorCell]) -> None:
    """Forget the monitors that some actors of other hosts have of a local one."""
    if watchers:
        monitors = (cell.monitors or {}).items()
        for monitor in [monitor for monitor, watcher in monitors if watcher in watchers]:
            cell.drop_monitor(monitor)
