"""The cell that stands for an actor of another host: what it is given goes out as packets.

It keeps the local ends of links and monitors like any cell, so that the end of the remote actor is
told here by the same code as that of a local one; only one notice for each crosses.
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from poe.actors.actor_cell import ActorCell
from poe.actors.address import LoopAddress
from poe.actors.call import Call
from poe.actors.message import REPLY, Cast, DownSignal, ExitSignal, Monitor, Start
from poe.actors.reason import KILL, Reason, is_word
from poe.errors import ActorDead, NotPicklable, StartFailed
from poe.thespian.hosted.packet import Op, Packet
from poe.thespian.hosted.pickling import encode

if TYPE_CHECKING:
    from poe.actors.loop_base import LoopSystemBase
    from poe.thespian.hosted.remote_table import RemoteTable


class RemoteCell(ActorCell):
    """One actor of another host, as seen from this one.

    `route` is where packets for it go, `pid` the process it lives in; 0 until that has said hello.
    `instance` is None once the end of the actor is known here.
    """

    def __init__(
        self, home: "RemoteTable", serial: int, label: str, route: object, pid: int
    ) -> None:
        super().__init__(cast("LoopSystemBase", home), None, label, home.run_queue)
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
            if call.request is Start and call.caller is not None:
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
