"""LoopSystemBase: all actors of a system in one process, on one run queue.

It turns messages into `deliver` calls, in the order they were sent. Whoever brings a message from
outside runs the queue until it is empty (*caller runs*): an application thread that calls an
actor gets its answer without a thread switch, and the event loop's thread does the same for sockets
and timers. One lock makes sure that only one thread runs actors at a time; actors that own
sockets (`pinned_to_loop`) have a queue that only the loop's thread serves.

With an injected clock there is no thread at all: `advance` moves time, and every outcome is
decided by the order of calls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from thespian.actors import ActorSystem, ChildActorExited, DeadEnvelope

from poe.actors.actor_cell import ActorCell, Entry
from poe.actors.address import LoopAddress
from poe.actors.call import Call
from poe.actors.clock import SimulatedClock
from poe.actors.event_loop import EventLoop
from poe.actors.gen_server import GenServer
from poe.actors.message import Cast, Down, ExitSignal, Start, SystemRequest
from poe.actors.outside import OutsideContext
from poe.actors.reason import NOPROC, NORMAL, Reason
from poe.actors.thespian_base import ThespianBase
from poe.actors.thespian_delivery import ThespianDelivery
from poe.actors.timer_queue import Timer, TimerQueue
from poe.errors import ActorDead, CallFromActor, CallTimeout, NameTaken

T = TypeVar("T")

_THREADS_MAX = 4
"""Worker threads for blocking functions (`GenServer.in_thread`)."""


class LoopSystemBase(ThespianBase):
    """A Thespian system base, and the runtime of GenServers.

    Thread-safe where it says "from outside"; the rest runs under `_lock`, held by the thread that
    drains. Invariant: whenever the lock is free, `_run_queue` is empty.
    """

    def __init__(
        self,
        system: ActorSystem | None = None,
        logDefs: Any = False,  # noqa: ANN401, N803 - Thespian's constructor
        *,
        clock: SimulatedClock | None = None,
    ) -> None:
        self._run_queue: deque[Entry] = deque()
        self._pinned_queue: deque[Entry] = self._run_queue if clock else deque()
        self._lock = threading.Lock()
        self._owner = 0
        self._waiting = 0
        self._clock = clock
        self._timers = TimerQueue()
        self._alarm: Any = None
        self._alarm_s: float | None = None
        self._event_loop: EventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._serial = 0
        self._names: dict[str, ActorCell] = {}
        self._alive: set[ActorCell] = set()
        self.unarmed: deque[Call] = deque()
        super().__init__(system or ActorSystem(self, transientUnique=True), logDefs)

    # ---- from outside: application threads ----------------------------------------------------

    def start(
        self, actor_class: type[GenServer], *args: object, name: str | None = None, **kwargs: object
    ) -> LoopAddress | None:
        """Start an actor without a parent and wait until its `init` is done.

        Returns:
            Its address, or None when `init` returned `IGNORE`.

        Raises:
            StartFailed: `init` raised or stopped.
            NameTaken: another live actor has the name.
        """
        self._enter()
        try:
            cell = self.spawn(actor_class, None, name)
            call = Call(None, None, cell, None)
            cell.queue.append((cell, Start(args, kwargs, call), None))
            self._drain()
            self._prepare_wait(call)
        finally:
            self._leave()
        return self._outcome(call)  # type: ignore[no-any-return]  # the reply to Start

    def call(
        self, ref: LoopAddress | str, request: object, timeout_s: float | None = 5.0
    ) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Send a request and wait for the reply.

        Raises:
            ActorDead: the actor is not there, or ended before it answered.
            CallTimeout: no reply within `timeout_s`; the work may have been done.
            CallFromActor: used inside an actor.
        """
        self._enter()
        try:
            cell = self.find(ref)
            if cell is None:
                raise ActorDead(ref, NOPROC)
            call = Call(request, None, cell, timeout_s)
            cell.queue.append((cell, call, None))
            self._drain()
            if not call.is_done:
                self._prepare_wait(call)
        finally:
            self._leave()
        if call.event is not None:
            return self._outcome(call)
        return call.result()

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer."""
        cell = self.find(ref)
        if cell is not None:
            self.post_from_outside(cell, Cast(message), None)

    def exit(self, ref: LoopAddress, reason: Reason) -> None:
        """Send an exit signal that comes from no actor."""
        self.post_from_outside(ref.cell, ExitSignal(None, reason), None)

    def stop(
        self, ref: LoopAddress, reason: Reason = NORMAL, timeout_s: float | None = 5.0
    ) -> None:
        """Make an actor terminate with `reason` and wait until it is gone.

        Raises:
            CallTimeout: it had not ended after `timeout_s`; it still will.
        """
        waiter = _DownWaiter()
        watcher = self.new_outside_cell("stop", waiter)
        self._enter()
        try:
            watcher.monitor(ref.cell)
            call = Call(SystemRequest("stop", reason), None, ref.cell, None)
            ref.cell.queue.append((ref.cell, call, None))
            self._drain()
        finally:
            self._leave()
        if not waiter.down.wait(timeout_s):
            raise CallTimeout(ref, timeout_s or 0.0)

    def is_alive(self, ref: LoopAddress) -> bool:
        """Tell whether the actor still runs."""
        return ref.cell.instance is not None

    def whereis(self, name: str) -> LoopAddress | None:
        """Return the address of the actor registered under a name, or None."""
        cell = self._names.get(name)
        return None if cell is None else cell.address

    def post_from_outside(self, cell: ActorCell, message: object, sender: object) -> None:
        """Send any message from an application thread and let the actors run."""
        self._enter()
        try:
            cell.queue.append((cell, message, sender))
            self._drain()
        finally:
            self._leave()

    def advance(self, seconds: float) -> None:
        """Move an injected clock on and run what has come due, deadline by deadline."""
        if self._clock is None:
            msg = "advance() needs a simulated clock; pass clock=... to the constructor"
            raise ValueError(msg)
        self._enter()
        try:
            end_s = self.monotonic_s() + seconds
            self._drain()
            while (next_s := self._timers.next_deadline_s()) is not None and next_s <= end_s:
                self._clock.advance(max(0.0, next_s - self.monotonic_s()))
                self._fire_due()
            self._clock.advance(max(0.0, end_s - self.monotonic_s()))
        finally:
            self._leave()

    def run(self, started: Callable[[], object]) -> None:
        """Run the event loop in the calling thread until `shutdown`; for services."""
        self._event_loop = EventLoop()
        self._event_loop.run(started)

    def shutdown(self) -> None:
        """End every actor without ceremony, then the event loop; stop supervisors before."""
        if not self.is_running_here():
            self._enter()
            try:
                for cell in list(self._alive):
                    cell.end(NORMAL)
                self._drain()
            finally:
                self._leave()
        self.release_sources()
        if self._threads is not None:
            self._threads.shutdown()
        if self._event_loop is not None:
            self._event_loop.stop()

    def shutdown_soon(self) -> None:
        """Shut down as soon as no actor runs; for `Actor.actorSystemShutdown`."""
        threading.Thread(target=self.shutdown, name="poe-shutdown").start()

    def is_running_here(self) -> bool:
        """Tell whether the calling thread is the one that runs actors right now."""
        return self._owner == threading.get_ident()

    def is_quiet(self) -> bool:
        """Tell whether nothing can happen any more without a message from outside."""
        return not self._timers and not self._run_queue and not self._pinned_queue

    # ---- the run queue ------------------------------------------------------------------------

    def _enter(self) -> None:
        """Take the lock, and give way to those who wait for it."""
        me = threading.get_ident()
        if self._owner == me:
            raise CallFromActor
        if not self._lock.acquire(blocking=False):
            self._waiting += 1
            self._lock.acquire()
            self._waiting -= 1
        self._owner = me

    def _leave(self) -> None:
        self._owner = 0
        self._lock.release()
        if self._waiting:
            # Python's locks are not fair: a thread that calls in a tight loop would starve the
            # event loop's thread for seconds. A moment without the GIL lets the other one in.
            time.sleep(0)

    def _drain(self) -> None:
        """Deliver until nothing is left that this thread may deliver."""
        queue, pinned = self._run_queue, self._pinned_queue
        while True:
            while queue:
                cell, message, sender = queue.popleft()
                cell.deliver(message, sender)
            if not pinned or queue is pinned:
                break
            if self._event_loop is None or self._event_loop.thread_ident != threading.get_ident():
                self.event_loop().wake(self.run_ready)
                break
            cell, message, sender = pinned.popleft()
            cell.deliver(message, sender)
        while self.unarmed:
            call = self.unarmed.popleft()
            if not call.is_done and call.timeout_s is not None:
                call.timer = self.add_timer(call.timeout_s, call.expire)

    def run_ready(self) -> None:
        """Drain from the event loop's thread."""
        self._enter()
        try:
            self._drain()
        finally:
            self._leave()

    def run_outside(self, action: Callable[[], object]) -> None:
        """Run `action` under the lock, then let the actors run."""
        self._enter()
        try:
            action()
            self._drain()
        finally:
            self._leave()

    def deliver_now(self, cell: ActorCell, message: object) -> None:
        """Hand a message that the event loop brings to an actor and let the actors run."""
        self._enter()
        try:
            cell.queue.append((cell, message, None))
            self._drain()
        finally:
            self._leave()

    def _prepare_wait(self, call: Call) -> None:
        if not call.is_done:
            call.event = threading.Event()

    def _outcome(self, call: Call) -> Any:  # noqa: ANN401
        """Wait, outside the lock, for a call that was not answered at once."""
        if call.event is not None and not call.event.wait(call.timeout_s):
            self._enter()
            try:
                call.expire()
            finally:
                self._leave()
        return call.result()

    # ---- actors -------------------------------------------------------------------------------

    def next_serial(self) -> int:
        """Count the actors of this system."""
        self._serial += 1
        return self._serial

    def spawn(
        self, actor_class: type[GenServer], parent: ActorCell | None, name: str | None
    ) -> ActorCell:
        """Make an actor that waits for its `Start`; the name is checked before anything is made."""
        if name is not None and name in self._names:
            raise NameTaken(name, self._names[name].address)
        pinned = actor_class.pinned_to_loop
        queue = self._pinned_queue if pinned else self._run_queue
        cell = ActorCell(self, parent, actor_class.__name__, queue)
        instance = actor_class()
        self.enliven(cell, instance)
        if name is not None:
            self.register_name(name, cell)
        return cell

    def enliven(self, cell: ActorCell, instance: Any) -> None:  # noqa: ANN401 - a Thespian actor
        """Tie an instance to its cell; from now on it receives."""
        cell.instance = instance
        instance._myRef = cell  # noqa: SLF001 - Thespian's own hook
        if isinstance(instance, GenServer):
            cell.deliver = instance.receiveMessage
        else:
            cell.deliver = ThespianDelivery(cell).deliver
        self._alive.add(cell)

    def new_outside_cell(self, label: str, mailbox: Any) -> ActorCell:  # noqa: ANN401
        """Make the address of something that receives but is no actor."""
        cell = ActorCell(self, None, label, self._run_queue)
        cell.instance = mailbox
        cell.deliver = mailbox.deliver
        return cell

    def find(self, ref: LoopAddress | str) -> ActorCell | None:
        """Return the cell behind an address or a name."""
        return self._names.get(ref) if isinstance(ref, str) else ref.cell

    def register_name(self, name: str, cell: ActorCell) -> None:
        """Give a live actor a name.

        Raises:
            NameTaken: another live actor has it.
        """
        holder = self._names.setdefault(name, cell)
        if holder is not cell:
            raise NameTaken(name, holder.address)
        cell.names = cell.names or []
        cell.names.append(name)

    def forget(self, cell: ActorCell) -> None:
        """Take an ended actor out of all tables and tell a Thespian parent."""
        self._alive.discard(cell)
        for name in cell.names or ():
            self._names.pop(name, None)
        self.forget_thespian(cell)
        parent = cell.parent
        if parent is None or isinstance(parent.instance, GenServer):
            return
        if parent.children is not None and cell in parent.children:
            parent.children.remove(cell)
        parent.post(ChildActorExited(cell.address), self.system_address)

    def dead_letter(self, cell: ActorCell, message: object, sender: object) -> None:
        """Give a message for an ended actor to the dead letter handler, if there is one."""
        handler = self.dead_letter_handler
        if handler is None or isinstance(message, Cast | ExitSignal | Down | DeadEnvelope):
            return
        handler.post(DeadEnvelope(cell.address, message), sender)

    # ---- time and threads ----------------------------------------------------------------------

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic() if self._clock is None else self._clock.monotonic_s()

    def event_loop(self) -> EventLoop:
        """Return the event loop; it starts in a thread of its own when first needed."""
        if self._event_loop is None:
            self._event_loop = EventLoop()
            self._event_loop.start_thread("poe-loop")
        return self._event_loop

    def add_timer(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Run `action` under the lock after `delay_s`."""
        timer = self._timers.add(self.monotonic_s() + delay_s, action)
        if self._clock is None and (self._alarm_s is None or timer.deadline_s < self._alarm_s):
            self._alarm_s = timer.deadline_s
            loop = self.event_loop()
            if loop.thread_ident == threading.get_ident():
                self._set_alarm()
            else:
                loop.wake(self._set_alarm)
        return timer

    def _set_alarm(self) -> None:
        """Make the event loop ring at the earliest deadline; runs in the loop's thread."""
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, (self._alarm_s or 0.0) - time.monotonic())
        self._alarm = self.event_loop().loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        """Run what has come due; called by the event loop."""
        self._enter()
        try:
            self._alarm = self._alarm_s = None
            self._fire_due()
            self._alarm_s = self._timers.next_deadline_s()
            if self._alarm_s is not None:
                self._set_alarm()
        finally:
            self._leave()

    def _fire_due(self) -> None:
        while (action := self._timers.pop_due(self.monotonic_s())) is not None:
            action()
            self._drain()

    def run_in_thread(
        self, call: Call, function: Callable[..., T], args: tuple[object, ...]
    ) -> None:
        """Run a blocking function in a worker thread and answer `call` with its result."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="poe-worker")
        self._threads.submit(self._run_blocking, call, function, args)

    def _run_blocking(
        self, call: Call, function: Callable[..., T], args: tuple[object, ...]
    ) -> None:
        error: BaseException | None = None
        value: T | None = None
        try:
            value = function(*args)
        except Exception as raised:  # noqa: BLE001 - it is raised in the actor that asked
            error = raised
        self._enter()
        try:
            if error is None:
                call.answer(value)
            else:
                call.fail(error)
            self._drain()
        finally:
            self._leave()


class _DownWaiter:
    """Receives the one `Down` that `stop` waits for."""

    def __init__(self) -> None:
        self.down = threading.Event()

    def deliver(self, message: object, sender: object) -> None:
        """Note the end."""
        del sender
        if isinstance(message, Down):
            self.down.set()
