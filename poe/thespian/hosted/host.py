"""The Thespian actor that holds one GenServer, on any of Thespian's system bases.

It turns Thespian's messages into turns of its host system, and time into wake-ups. Whatever goes
wrong stays inside: Thespian would run a message that raised again, and go on with half-changed
state.
"""

import logging
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ChildActorExited,
    WakeupMessage,
)

from poe.actors.reason import KILLED, SHUTDOWN
from poe.thespian.hosted.host_system import HostSystem
from poe.thespian.hosted.packet import Op, Packet
from poe.thespian.hosted.pid_watch import wait_for_end
from poe.thespian.hosted.remote_actors import RemoteCell

logger = logging.getLogger("poe.actors")

POLL_INTERVAL_S = 0.05
"""How often a host looks whether watched processes have ended. Thespian's queue base can wait for
messages only, not for pidfds."""

LINGER_S = 0.1
"""From the end of the main actor to that of its process: notices of the end may be on their way
through other actors, and must arrive before the process is seen to be gone."""

ORPHAN_GRACE_S = 5.0
"""What an actor has for its clean-up when the process that started it was killed."""


class Host(Actor):  # type: ignore[misc]  # Thespian is untyped
    """One Thespian actor, with one main GenServer inside.

    Life: `CREATE` - `START` - turns - the main actor ends - linger, while Thespian's children,
    whose messages come through here, live - leave.
    """

    def __init__(self) -> None:
        super().__init__()
        self._system = HostSystem(self)
        self._children: list[tuple[Any, RemoteCell]] = []
        self._alarm_s: float | None = None
        self._is_leaving = False
        self._guard: threading.Thread | None = None

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: ANN401, N802
        """Take one message of Thespian; never raises."""
        try:
            self._take(message, sender)
            self._take_turn()
        except Exception:
            logger.exception("the host of %s failed", self._system.main)

    def _take(self, message: Any, sender: Any) -> None:  # noqa: ANN401
        system = self._system
        kind = type(message)
        if kind is Packet:
            system.remote.be_at(self.myAddress)
            system.receive(message, sender)
            if message.op is Op.CREATE:
                self._guard_against_orphanhood()
        elif kind is WakeupMessage:
            self._alarm_s = None
        elif kind is ChildActorExited:
            self._lose_child(message.childAddress)
        elif kind is ActorExitRequest and not self._is_leaving:
            self._exit(message, sender)

    def _take_turn(self) -> None:
        system = self._system
        for pid in system.remote.processes.take_ended():
            # Behind what has arrived: the last words of the process may be among it.
            self.send_to_self(Packet(Op.GONE, number=pid))
        system.host_queue.take_turn()
        # Without the application somebody has to stay, to end Thespian's own processes at last.
        is_last = system.is_top and system.is_orphaned
        if system.is_over() and not (self._children or self._is_leaving or is_last):
            self._is_leaving = True
            system.say_goodbye()
            system.host_queue.add_timer(LINGER_S, self.leave)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Ask Thespian for a wake-up when the next timer or look at processes is due."""
        now_s = self._system.host_queue.monotonic_s()
        due_s = self._system.host_queue.next_deadline_s()
        if len(self._system.remote.processes):
            due_s = (
                now_s + POLL_INTERVAL_S if due_s is None else min(due_s, now_s + POLL_INTERVAL_S)
            )
        if due_s is not None and (self._alarm_s is None or due_s < self._alarm_s):
            self._alarm_s = due_s
            self.wakeupAfter(timedelta(seconds=max(0.0, due_s - now_s)))

    def _lose_child(self, address: Any) -> None:  # noqa: ANN401 - a Thespian address
        for entry in [entry for entry in self._children if entry[0] == address]:
            self._children.remove(entry)
            entry[1].end(KILLED)  # unless it has told of its end before

    def _exit(self, request: Any, sender: Any) -> None:  # noqa: ANN401
        """End the main actor now: Thespian ends this process when the message is handled."""
        del sender
        self._is_leaving = True
        main = self._system.main
        if main is not None and main.instance is not None:
            main.post(ActorExitRequest(recursive=request.isRecursive))
            self._system.host_queue.take_turn()
            main.abort(SHUTDOWN)
            self._system.host_queue.take_turn()

    def _guard_against_orphanhood(self) -> None:
        """End this process, busy or not, some time after the one that started it has ended."""
        if self._system.spawner_pid:
            arguments = (self._system.spawner_pid, self._system.is_top)
            self._guard = threading.Thread(target=_end_after, args=arguments, daemon=True)
            self._guard.start()

    # ---- what a host system needs -------------------------------------------------------------

    def send_packet(self, route: object, packet: Packet) -> None:
        """Send a packet to a host."""
        self.send(route, packet)

    def create_host(self, cell: RemoteCell) -> object:
        """Make a new, empty host and return the route to it."""
        route = self.createActor(Host)
        self._children.append((route, cell))
        return route

    def send_to_self(self, packet: Packet) -> None:
        """Send a packet to this very host."""
        self.send(self.myAddress, packet)

    def leave(self) -> None:
        """End this host."""
        self.send(self.myAddress, ActorExitRequest())


def _end_after(spawner_pid: int, is_top: bool) -> None:  # noqa: FBT001 - the target of a thread
    """Kill this process; with an application that is gone, all actors and Thespian's processes."""
    wait_for_end(spawner_pid)
    time.sleep(ORPHAN_GRACE_S)
    if is_top:
        # The actors of one system are a process group, which Thespian's admin has made.
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
