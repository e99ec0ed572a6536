"""An actor system on one of Thespian's own bases, as application threads see it.

It turns blocking calls into packets to the hosts of the actors, and waits for the answers. See
`poe.thespian.hosted` for what happens at the other end, and docs/bases.md for which base to use.
"""

import importlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Self

from thespian.actors import ActorSystem

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.call import Call, Start
from poe.actors.gen_server import GenServer
from poe.actors.loop_system import EndWatcher
from poe.actors.message import Cast, ExitSignal
from poe.actors.reason import NOPROC, NORMAL, Reason, is_word
from poe.actors.system_calls import SystemCalls
from poe.errors import ActorDead, CallTimeout, OptionError, SystemShutDown
from poe.errors.timeout import limit_of
from poe.thespian.hosted.host import Host
from poe.thespian.hosted.host_system import HostSystem
from poe.thespian.hosted.name_server import NameServer
from poe.thespian.hosted.packet import Op, Packet
from poe.thespian.hosted.pid_watch import wait_for_end
from poe.thespian.hosted.remote_actors import RemoteCell

_BASES = ("simpleSystemBase", "multiprocQueueBase")

SLICE_S = 0.02
"""How long one thread listens for all of them before another one may send."""


class HostedSystem(SystemCalls):
    """GenServers on `simpleSystemBase`, `multiprocQueueBase` or `multiprocTCPBase` of Thespian.

    Its methods are for application threads, any number of them; not for use inside actors. On
    `simpleSystemBase` actors run only while a method of this object does. Actor classes, arguments,
    messages and replies are pickled: they must be importable in every process.

    Life: the constructor starts Thespian's own processes and a name server; `shutdown` ends them
    all, and so does the end of `with HostedSystem() as system:`. When the application ends without
    it, the actors end within seconds.

    Raises:
        OptionError: on construction: there is no such base.
    """

    def __init__(self, base: str = "multiprocQueueBase", **capabilities: object) -> None:
        self._lock = threading.RLock()
        is_one_process = base == "simpleSystemBase"
        self._is_over = threading.Event()
        self._thespian = _start_thespian(base, capabilities, self._is_over)
        self._actors = HostSystem(_ApplicationOutlet(self._thespian))
        self._actors.remote.is_one_process = is_one_process
        self._group = 0
        try:
            self._actors.remote.be_at(self._own_route())
            self._actors.names = self._start(NameServer, (), {}, None)
            if not self._actors.remote.is_one_process:
                self._group = os.getpgid(self.pid_of(self._actors.names))
                assert self._group != os.getpgid(0), "the admin has left the application's group"
        except BaseException:
            self.shutdown()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    def _own_route(self) -> object:
        base = self._thespian._systemBase  # noqa: SLF001 - Thespian has no public way
        if self._actors.remote.is_one_process:
            return base.actorRegistry["System:ExternalRequester"].address
        return base.transport.myAddress

    # ---- actors -------------------------------------------------------------------------------

    def start(
        self,
        actor_class: type[GenServer],
        *args: object,
        name: str | None = None,
        start_timeout_s: float | None = None,
        **kwargs: object,
    ) -> LoopAddress | None:
        """Start an actor without a parent and wait for it, as `LoopSystem.start`.

        Raises:
            StartFailed, NameTaken, SystemShutDown: as there; or the process was killed.
            NotPicklable: the class or the arguments cannot be sent to another process.
        """
        start_timeout_s = limit_of(start_timeout_s, "start_timeout_s")
        return self._start(actor_class, args, kwargs, name, start_timeout_s)  # type: ignore[no-any-return]  # the reply to Start

    def _start(
        self,
        actor_class: type[GenServer],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        name: str | None,
        timeout_s: float | None = None,
    ) -> Any:  # noqa: ANN401 - the reply to Start
        with self._lock:
            if self._is_over.is_set():
                raise SystemShutDown(actor_class)
            cell = self._actors.spawn(actor_class, None, name)
            call = Call(None, None, cell, None)
            start = Start(args, kwargs, call)
            cell.post(start)
            if timeout_s is not None:
                call.timer = self._actors.host_queue.add_timer(timeout_s, start.expire)
        return self._outcome(call)

    def call(self, ref: LoopAddress | str, request: object, timeout_s: float | None = 5.0) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Send a request and wait for the reply.

        Raises:
            ActorDead, CallTimeout: as `LoopSystem.call`.
            NotPicklable: the request or the reply cannot be sent to another process.
        """
        timeout_s = limit_of(timeout_s)
        with self._lock:
            cell = self._find(ref)
            call = Call(request, None, cell, timeout_s)
            cell.post(call)
        return self._outcome(call)

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer."""
        self._post(self._find(ref), Cast(message))

    def exit(self, ref: LoopAddress | str, reason: Reason) -> None:
        """Send an exit signal that comes from no actor; `KILL` ends the actor's process."""
        self._post(self._find(ref), ExitSignal(None, reason))

    def stop(
        self, ref: LoopAddress | str, reason: Reason = NORMAL, timeout_s: float | None = 5.0
    ) -> None:
        """Make an actor terminate with `reason` and wait until it is gone.

        Raises:
            ActorDead, CallTimeout: as `LoopSystem.stop`.
        """
        timeout_s = limit_of(timeout_s)
        downs: list[Reason] = []
        with self._lock:
            watcher = self._actors.new_outside_cell("Stop", EndWatcher(downs.append))
            cell = self._find(ref)
            monitor = watcher.monitor(cell)
            self._actors.request_stop(cell, reason)
        try:
            if not self._wait_until(lambda: downs, timeout_s):
                raise CallTimeout(ref, timeout_s or 0.0)
            if is_word(downs[0], NOPROC):
                raise ActorDead(ref, NOPROC)
        finally:
            with self._lock:
                cell.drop_monitor(monitor)
                self._actors.remote.drop(watcher)

    def is_alive(self, ref: LoopAddress, timeout_s: float | None = 5.0) -> bool:
        """Return whether the actor still runs; its host answers, once it is not busy.

        Raises:
            CallTimeout: the process runs, but is busy for longer than `timeout_s`.
        """
        call = Call(None, None, ref.cell, limit_of(timeout_s))
        if not isinstance(ref.cell, RemoteCell) or ref.cell.instance is None:
            return False
        with self._lock:
            ref.cell.request(Op.PROBE, call, None)
        try:
            return bool(self._outcome(call))
        except ActorDead:
            return False

    def pid_of(self, ref: LoopAddress) -> int:
        """Return the process that the actor lives in, for tools and tests."""
        _, pid = self._actors.remote.place_of(ref)
        return pid

    def shutdown(self) -> None:
        """End every actor without ceremony, and all processes; stop supervisors before.

        Twice is harmless.
        """
        with self._lock:
            if self._is_over.is_set():
                return
            if self._group:
                base = self._thespian._systemBase  # noqa: SLF001 - its thread, its processes
                _kill_group(self._group, self._actors.remote.known_pids())
                _reap_leader(self._group, getattr(base, "admin_process", None))
                self._group = 0
                base.transport.close()
            elif self._thespian._systemBase is not None:  # noqa: SLF001
                self._thespian.shutdown()
            self._is_over.set()
            self._actors.remote.end_all()
            self._actors.host_queue.take_turn()

    # ---- waiting ------------------------------------------------------------------------------

    def _find(self, ref: LoopAddress | str) -> ActorCell:
        with self._lock:
            cell = self._actors.find(ref)
        assert cell is not None
        return cell

    def _post(self, cell: ActorCell, message: object) -> None:
        with self._lock:
            cell.post(message)
            self._actors.host_queue.take_turn()

    def _outcome(self, call: Call) -> Any:  # noqa: ANN401 - a reply
        if not self._wait_until(lambda: call.is_done, call.timeout_s):
            with self._lock:
                call.expire()
        return call.result()

    def _wait_until(self, is_done: Callable[[], object], timeout_s: float | None) -> bool:
        """Run what arrives for the application until a condition holds; False: time is up."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._actors.host_queue.take_turn()
                if is_done():
                    return True
                has_arrived = self._listen()
                if is_done():
                    return True
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False
            if not has_arrived:
                # The lock is not fair: another thread gets it only in a pause.
                time.sleep(0.001)

    def _listen(self) -> bool:
        """Take at most one packet; look for processes that have ended where none comes."""
        packet = self._thespian.listen(timedelta(seconds=SLICE_S))
        if isinstance(packet, Packet):
            self._actors.receive(packet, None)
        else:
            for pid in self._actors.remote.processes.take_ended():
                self._actors.receive(Packet(Op.GONE, number=pid), None)
        self._actors.host_queue.take_turn()
        return isinstance(packet, Packet)


class _ApplicationOutlet:
    """How the application's own host system reaches the hosts."""

    def __init__(self, thespian: ActorSystem) -> None:
        self._thespian = thespian

    def create_host(self, cell: RemoteCell) -> object:
        """Make a top-level host and return the route to it."""
        del cell
        return self._thespian.createActor(Host)

    def send_packet(self, route: object, packet: Packet) -> None:
        """Send a packet to a host."""
        self._thespian.tell(route, packet)

    def send_to_self(self, packet: Packet) -> None:
        """Do nothing: the application takes its turns by itself."""

    def leave(self) -> None:
        """Do nothing: the application ends by itself."""


def _start_thespian(
    base: str, capabilities: dict[str, object], is_over: threading.Event
) -> ActorSystem:
    if base == "multiprocTCPBase":
        return _run_in_lasting_thread(partial(_start_tcp, capabilities), is_over)
    if base == "multiprocQueueBase" and hasattr(os, "pidfd_open"):
        # Linux: it has the sockets, too, that keep a queue alive when its writers are killed.
        # Imported here: it loads multiprocessing, which others do not need.
        queue_base = importlib.import_module("poe.thespian.hosted.queue_base")
        return queue_base.QueueBase(capabilities).thespian
    if base not in _BASES:
        raise OptionError("base", base, f"{', '.join(_BASES)} or multiprocTCPBase")
    log_definitions = False if base == "simpleSystemBase" else None
    return ActorSystem(base, capabilities, logDefs=log_definitions, transientUnique=True)


def _start_tcp(capabilities: dict[str, object]) -> ActorSystem:
    """Start a system whose sockets are all on loopback; Thespian's own would be on all interfaces.

    Without an `Admin Port` it gets one that is free.
    """
    loopback_tcp = importlib.import_module("poe.thespian.loopback_tcp")
    port = capabilities.get("Admin Port")
    if port is not None:
        return loopback_tcp.loopback_tcp_system(port, capabilities)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # The admin is forked meanwhile, and keeps it open.
        return loopback_tcp.loopback_tcp_system(port, capabilities, listening=listener.fileno())


def _run_in_lasting_thread(
    start: Callable[[], ActorSystem], is_over: threading.Event
) -> ActorSystem:
    """Start a system in a thread that lasts as long: its processes end with it, not with ours."""
    started: Future[ActorSystem] = Future()

    def run() -> None:
        try:
            started.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            started.set_exception(error)
        else:
            is_over.wait()

    threading.Thread(target=run, name="poe-tcp", daemon=True).start()
    return started.result()


def _kill_group(group: int, pids: set[int]) -> None:
    """Kill all processes of a system, and wait until those that are known are gone."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    # The others die in the same moment. The group itself lives on until init has asked for all.
    for pid in pids:
        wait_for_end(pid)


def _reap_leader(group: int, admin: Any) -> None:  # noqa: ANN401 - multiprocessing makes its class
    """Leave no zombie: the leader of a system's processes is a child of this one."""
    if admin is not None:
        # Not by `waitpid`: multiprocessing would take it for alive, and signal its pid at our exit.
        admin.join()
    else:
        # On the queue base the leader has forked the admin and ended long ago.
        with suppress(ChildProcessError):
            os.waitpid(group, os.WNOHANG)
