"""The run queue of one actor system: who runs actors, when, and in which thread.

It turns messages into `deliver` calls, in the order they were sent. Whoever brings a message from
outside runs the queue until it is empty (*caller runs*): an application thread that calls an
actor gets its answer without a thread switch, and the event loop's thread does the same for sockets
and timers. One lock makes sure that only one thread runs actors at a time; actors that own
sockets (`pinned_to_loop`) have a queue that only the loop's thread serves.

The event loop's thread keeps awake while a peer answers as fast as it does. A thread that sleeps on
a processor that has nothing else to do is woken late, in a virtual machine by tens of microseconds:
as long as all the rest of a small request takes.

With an injected clock there is no thread at all: `advance` moves time, and every outcome is
decided by the order of calls.
"""

import itertools
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from types import CodeType, CoroutineType, FrameType
from typing import ClassVar, Protocol, TypeVar

from poe.actors.call import Call, Party, Start
from poe.actors.clock import SimulatedClock
from poe.actors.event_loop import EventLoop
from poe.actors.latch import Latch
from poe.actors.message import Entry, Receiver
from poe.actors.reason import is_for_program
from poe.actors.timer_queue import Timer, TimerQueue
from poe.errors import ActorDead, CallFromActor
from poe.errors.timeout import check_delay

logger = logging.getLogger("poe.actors")

_BURST = (None,) * 2_000
"""As many messages as one thread delivers before timers, sockets and other threads get a turn."""

_SIMULATED_BURST = (None,) * 300_000
"""The same in simulated time, where nobody needs a turn but a test whose actors go on for ever;
what is left over waits for the next call or `advance`."""

_HAND_OVERS_MAX = 10_000
"""Calls that one thread delivers past the queue; more go through it, where they count as messages
of the burst, so that others get a turn."""

_NESTING_MAX = 16
"""Calls within calls that are delivered past the queue; each nests some frames on the stack."""


_LOOK_S = 100e-6
HAS_SPARE_PROCESSOR = len(os.sched_getaffinity(0)) > 1
"""Whether a peer on this machine can go on while the event loop looks."""


_ENTERING: set[CodeType] = set()

_F = TypeVar("_F", bound=Callable[..., object])


def enters(function: _F) -> _F:
    """Mark a function that calls `enter`, and `leave` in any case: see `_has_entered`."""
    _ENTERING.add(function.__code__)
    return function


class SocketOwner(Party, Protocol):
    """An actor with a socket, as the run queue knows it."""

    @property
    def is_busy(self) -> bool:
        """Return whether a callback awaits something."""
        ...


class Watch(Protocol):
    """Watches a socket for its actor, as the run queue knows it."""

    @property
    def cell(self) -> SocketOwner:
        """Return the actor."""

    @property
    def descriptor(self) -> int:
        """Return that of the socket."""
        ...

    def tell_in_vain(self) -> None:
        """Note that the actor was busy; stop telling at each eighth time."""


class RunQueue:
    """Runs the actors of one system under one lock.

    Any thread may use `run_outside`, `post_from_outside`, `send_from_outside`, `call_from_outside`,
    `run_ready`, `is_quiet` and, as these do, `enter`, `drain` and `leave`; the rest belongs to the
    thread that has entered.
    Whenever nobody has, `queue` is empty or the event loop has been told to go on with it.
    """

    _all: ClassVar[list[weakref.ref["RunQueue"]]] = []

    def __init__(
        self, clock: SimulatedClock | None = None, queue: deque[Entry] | None = None
    ) -> None:
        """Begin with nobody to run.

        Args:
            clock: runs nothing unless the test says so.
            queue: what holds the entries; tests have it take them out in another order.
        """
        self._clock = clock
        self.queue: deque[Entry] = deque() if queue is None else queue
        self.pinned: deque[Entry] = self.queue if clock else deque()
        """Of actors that are `pinned_to_loop`."""
        self.burst: Iterable[None] = _SIMULATED_BURST if clock else _BURST
        self._hand_overs_left = _HAND_OVERS_MAX
        self._nesting = 0
        self._lock = threading.RLock()
        self._try_lock = self._lock.acquire
        self._is_owned: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - as `threading.Condition` does
        self._is_running = False
        self._waiters: list[int] = []
        self.unarmed: deque[Call] = deque()
        """Calls that were not answered at once, and have no timer yet."""
        self.timers = TimerQueue()
        self.works_count = 0
        """Works that go on beside the actors, and whose ends are to be told to one."""
        self._alarm_s: float | None = None
        self._event_loop: EventLoop | None = None
        self._wakefulness: Wakefulness | None = None
        if clock is None:
            self._all.append(weakref.ref(self, self._all.remove))

    # ---- the way in ---------------------------------------------------------------------------

    @enters
    def post_from_outside(self, cell: Party, message: object, sender: object) -> None:
        """Send what the runtime itself has to tell, and is never refused, from any thread."""
        self.enter()
        try:
            cell.queue.append((cell, message, sender))
            self.drain()
        finally:
            self.leave()

    @enters
    def send_from_outside(self, cell: Party, message: object, sender: object) -> None:
        """Send a message of an application thread and let the actors run.

        Raises:
            MailboxFull: too many wait for the receiver already.
        """
        self.enter()
        try:
            if cell.blocked_by is not None:
                cell.admit()
            cell.queue.append((cell, message, sender))
            self.drain()
        finally:
            self.leave()

    @enters
    def call_from_outside(
        self, cell: Party, request: object, timeout_s: float | None = None
    ) -> Call:
        """Make a call of an application thread and let the actors run.

        Where the call is not done then, its `event` tells when it is.
        """
        self.enter()
        try:
            call = Call(request, None, cell, timeout_s)
            cell.queue.append((cell, call, None))
            self.drain()
            if not call.is_done:
                call.event = Latch()
        finally:
            self.leave()
        return call

    @enters
    def tell_readable(self, watch: Watch, message: object) -> None:
        """Send an actor that something has come for its socket, and let the actors run.

        Called by the event loop, as long as there is something to receive. The watch of an actor
        that is busy is paused at the eighth time: the kernel's buffers then slow the peer down.
        """
        assert self._wakefulness is not None
        self._wakefulness.note_input(watch.descriptor)
        cell = watch.cell
        if cell.blocked_by is not None and cell.is_busy:
            watch.tell_in_vain()
            return
        self.enter()
        try:
            cell.queue.append((cell, message, None))
            self.drain()
        finally:
            self.leave()

    @enters
    def run_outside(self, action: Callable[[], object]) -> None:
        """Run `action` under the lock, then let the actors run."""
        self.enter()
        try:
            action()
            self.drain()
        finally:
            self.leave()

    @enters
    def run_ready(self) -> None:
        """Deliver what has been left to the event loop's thread."""
        self.enter()
        try:
            self.drain()
        finally:
            self.leave()

    def is_running_here(self) -> bool:
        """Return whether the calling thread is the one that runs actors right now."""
        return self._is_owned() and (self._is_running or _has_entered(sys._getframe(1)))  # noqa: SLF001 - no other way

    @enters
    def is_quiet(self) -> bool:
        """Return whether nothing can happen any more without a message from outside."""
        if self._is_running and self._is_owned():
            raise CallFromActor
        if not self._try_lock(False):
            return False  # who runs actors has in hand what is nowhere to be seen
        try:
            return not (self.timers or self.queue or self.pinned or self.works_count)
        finally:
            self._lock.release()

    def entries(self) -> Iterable[Entry]:
        """Return what is on its way; under the lock."""
        is_one = self.pinned is self.queue
        return itertools.chain(self.queue, () if is_one else self.pinned)

    def enter(self) -> None:
        """Take the lock, and give way to those who wait for it."""
        if self._is_running and self._is_owned():
            raise CallFromActor
        if not self._try_lock(False):
            me = get_ident()
            try:
                self._waiters.append(me)
                self._lock.acquire()
            finally:
                self._waiters.remove(me)

    def leave(self) -> None:
        """Let others run actors."""
        self._lock.release()
        # The caller's caller: what is further up may have entered before, and goes on behind this.
        if self._is_owned() and not _has_entered(sys._getframe(1).f_back):  # noqa: SLF001 - as there
            # Ctrl-C came between lock and `try` of an earlier call, which never got here.
            self._lock.release()
        if self._waiters:
            # Python's locks are not fair: a thread that calls in a tight loop would starve the
            # event loop's thread for seconds. A moment without the GIL lets the other one in. (A
            # fair hand-over was measured: 5.6 us a call with 8 busy threads, against 1.0 us.)
            time.sleep(0)
        if len(self._all) > 1:
            for reference in tuple(self._all):
                other = reference()
                if other is not None and other is not self:
                    other.wake_if_idle()

    def wake_if_idle(self) -> None:
        """Run, in the event loop, what actors of another system of this process have sent here.

        Nobody here would notice: a message goes straight into the receiver's queue, and asking
        each time whose queue that is would slow every message down. While actors run here, they
        will find it.
        """
        if not self._is_running and (self.queue or self.pinned):
            with self._lock:
                self.event_loop().wake(self.run_ready)

    def hand_over(self, server: Party, message: Call | Start) -> None:
        """Send a call or a start: at once where nothing is queued before it, else behind what is.

        With an empty queue the server would be next in any case; without the way through the queue
        a call and its reply cost less, and the caller's coroutine is not suspended. Only for
        callers in a coroutine, to which nothing is delivered before they await, and for servers
        that call nobody. One whose callback is not over may be a caller further up, which ends
        without having waited for anything, and never looks for what had to wait.
        """
        queue = self.queue
        if (
            queue
            or server.queue is not queue
            or type(server.blocked_by) is CoroutineType
            or self._nesting >= _NESTING_MAX
            or self._hand_overs_left <= 0
        ):
            server.queue.append((server, message, None))
            return
        self._hand_overs_left -= 1
        self._nesting += 1
        try:
            server.deliver(message, None)
        except BaseException as error:  # noqa: BLE001 - an interrupt is raised again by `drain`
            # Not through the caller's coroutine: it is no crash of the caller, who learns from
            # the call how the server ended.
            _cut_short(server, message, None, error)
            if is_for_program(error):
                queue.appendleft((_Interrupt(error), None, None))
        finally:
            self._nesting -= 1

    def hand_back(self, call: Call, error: ActorDead) -> None:
        """Fail a call that reaches nobody: at once, or as `hand_over` behind what is queued.

        Whoever calls again and again, until somebody has the name, must let that one start.
        """
        if self._hand_overs_left > 0:
            self._hand_overs_left -= 1
            call.fail(error)
        else:
            self.queue.append((_Nobody(error), call, None))

    def drain(self) -> None:
        """Deliver until nothing is left that this thread may deliver, or others need a turn."""
        queue, pinned, loop = self.queue, self.pinned, self._event_loop
        self._is_running = True
        self._hand_overs_left = _HAND_OVERS_MAX
        try:
            for _ in self.burst:
                if queue:
                    cell, message, sender = queue.popleft()
                elif pinned and loop is not None and loop.thread_ident == get_ident():
                    cell, message, sender = pinned.popleft()
                else:
                    break
                try:
                    cell.deliver(message, sender)
                except BaseException as error:
                    _cut_short(cell, message, sender, error)
                    if is_for_program(error):
                        raise
        finally:
            self._is_running = False
            if (queue or pinned) and type(self._clock) is not SimulatedClock:
                self.event_loop().wake(self.run_ready)
        if self.unarmed:
            self._arm_calls()

    def _arm_calls(self) -> None:
        """Set the timers of the calls that were not answered at once, and give them owners."""
        while self.unarmed:
            call = self.unarmed.popleft()
            if call.is_done or call.caller is None:
                continue
            call.caller.own().add_call(call)
            try:
                # Whoever waits for a reply by `wait_reply` has given the call a timer already.
                if call.timeout_s is not None and call.timer is None and not call.is_done:
                    call.timer = self.add_timer(call.timeout_s, call.expire)
            except (RuntimeError, TypeError, ValueError) as error:
                # The caller is to blame, or a system that has no thread for the loop of timers, and
                # not who happens to run actors now.
                call.fail(error)
                self.drain()

    # ---- time ---------------------------------------------------------------------------------

    @property
    def is_simulated(self) -> bool:
        """Whether time moves by `advance` alone, and nothing runs beside the actors."""
        return self._clock is not None

    def simulate_work(self, run: Callable[[], object], tell: Callable[[], object]) -> None:
        """Have what a thread would do be done in simulated time, and its end be told: at once."""
        run()
        tell()

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic() if self._clock is None else self._clock.monotonic_s()

    def next_deadline_s(self) -> float | None:
        """Return when the next timer is due, on the clock of `monotonic_s`; None without one."""
        return self.timers.next_deadline_s()

    @enters
    def advance(self, seconds: float) -> None:
        """Move an injected clock on and run what has come due, deadline by deadline."""
        if self._clock is None:
            msg = "advance() needs a simulated clock; pass clock=... to the constructor"
            raise ValueError(msg)
        if not seconds >= 0:
            msg = f"advance({seconds}): time does not go back; use 0 or more seconds"
            raise ValueError(msg)
        self.enter()
        try:
            end_s = self.monotonic_s() + seconds
            self.drain()
            while (next_s := self.timers.next_deadline_s()) is not None and next_s <= end_s:
                self._clock.advance(max(0.0, next_s - self.monotonic_s()))
                self.fire_due()
            self._clock.advance(max(0.0, end_s - self.monotonic_s()))
        finally:
            self.leave()

    def event_loop(self) -> EventLoop:
        """Return the event loop; it starts in a thread of its own when first needed."""
        event_loop = self._event_loop
        if event_loop is None:
            event_loop = self._make_event_loop()
            try:
                event_loop.start_thread("poe-loop")
            except RuntimeError:
                # The system gives no thread. Such a loop would take each timer, and ring none.
                self._event_loop = None
                event_loop.stop()
                raise
        return event_loop

    def run(self, started: Callable[[], object]) -> None:
        """Run the event loop in the calling thread until `shutdown`; for services.

        `started` is called first, in the loop; nothing may have used the event loop before. What it
        raises ends the loop, and is raised.
        """
        assert self._event_loop is None, "the event loop already runs in a thread of its own"
        self._make_event_loop().run(started)

    def _make_event_loop(self) -> EventLoop:
        self._event_loop = event_loop = EventLoop()
        self._wakefulness = Wakefulness(event_loop.loop.call_soon)
        return event_loop

    def add_timer(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Run `action` under the lock after `delay_s`.

        Raises:
            InvalidTimeout: the delay is negative or has no end, or is no number.
        """
        check_delay(delay_s)
        if self._clock is not None:
            return self.timers.add(self._clock.monotonic_s() + delay_s, action)
        if self._event_loop is None:
            # Its start takes milliseconds. They would be missing at the end: an actor that looks
            # at a clock of its own when it is woken would find that it is too early.
            self.event_loop()
        timer = self.timers.add(time.monotonic() + delay_s, action)
        if self._alarm_s is None or timer.deadline_s < self._alarm_s:
            self._alarm_s = timer.deadline_s
            self.event_loop().set_alarm(timer.deadline_s, self._ring)
        return timer

    @enters
    def _ring(self) -> None:
        """Run what has come due; called by the event loop."""
        self.enter()
        try:
            try:
                self._alarm_s = None
                self.fire_due()
            finally:
                # Whatever a signal handler has raised meanwhile: the loop may go on all the same.
                next_s = self.timers.next_deadline_s()
                if next_s is not None and next_s != self._alarm_s:
                    self._alarm_s = next_s
                    self.event_loop().set_alarm(next_s, self._ring)
        finally:
            self.leave()

    def fire_due(self) -> None:
        """Run what has come due by now; by whoever has entered.

        What comes due meanwhile waits for the next time, and so does what is more than a burst: an
        actor that sleeps for no time, again and again, must not keep others waiting, nor must many
        that wake at a time.
        """
        now_s = self.monotonic_s()
        for _ in self.burst:
            action = self.timers.pop_due(now_s)
            if action is None:
                break
            action()
            self.drain()

    def stop_event_loop(self) -> None:
        """End the event loop and its thread; no other system starts it again."""
        for reference in tuple(self._all):
            if reference() is self:
                self._all.remove(reference)
        if self._event_loop is not None:
            self._event_loop.stop()
        # With so many ends that they are more than a burst, somebody still waits for one.
        while self.queue:
            self.run_ready()


# Those of the parent are not run here: whoever looked whether they wait might wait for their lock.
os.register_at_fork(after_in_child=RunQueue._all.clear)  # noqa: SLF001 - of this module


class Wakefulness:
    """Keeps one event loop from going to sleep; belongs to the loop's thread.

    After an input the loop looks for the next one for a moment, but only where a single peer has
    just sent two that soon after each other. Peers that ask now and then cost nothing, and one that
    stops costs one such moment; where several ask at a time, one of them has mostly come when the
    loop is about to sleep.

    Source: haltpoll, by which Linux does the same for a processor of a virtual machine.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        monotonic_s: Callable[[], float] = time.monotonic,
        *,
        has_spare_processor: bool = HAS_SPARE_PROCESSOR,
    ) -> None:
        """Begin asleep; `call_soon` is the loop's."""
        self._call_soon = call_soon
        self._monotonic_s = monotonic_s
        self._has_spare_processor = has_spare_processor
        self._peer = -1
        self._input_s = 0.0
        self._is_looking = False

    def note_input(self, peer: int) -> None:
        """Tell that something came over the connection with this descriptor."""
        if peer != self._peer:
            self._peer = peer
            self._input_s = 0.0
            return
        now_s = self._monotonic_s()
        is_close = now_s - self._input_s < 2 * _LOOK_S
        self._input_s = now_s
        if is_close and not self._is_looking and self._has_spare_processor:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        if self._monotonic_s() - self._input_s < _LOOK_S:
            # With a callback that is due, a loop only looks at its sockets and does not sleep.
            self._call_soon(self._look)
        else:
            self._is_looking = False


def _has_entered(frame: FrameType | None) -> bool:
    """Return whether a frame, or one further up, is of a function marked by `enters`.

    A signal handler may call actors where it has interrupted such a function.
    """
    while frame is not None:
        if frame.f_code in _ENTERING:
            return True
        frame = frame.f_back
    return False


def _cut_short(receiver: Receiver, message: object, sender: object, error: BaseException) -> None:
    """End an actor in the middle of its turn.

    Nobody can vouch for the state of one that Ctrl-C has interrupted. Anything else was raised by
    what a user's object does where no callback runs, such as the `__bool__` of a setting. The
    actor's supervisor does what it does after a crash. Who runs actors now has nothing to do with
    it, and must not hear of it.
    """
    if not is_for_program(error):
        name = getattr(receiver, "address", type(receiver).__name__)
        logger.error("%s was cut short", name, exc_info=error)
    abort = getattr(receiver, "abort", None)
    if abort is not None:
        abort(error)
        if type(message) in (Call, Start) and getattr(receiver, "instance", receiver) is None:
            # It may not even have begun with it, and who waits for an answer is to hear of the end.
            receiver.deliver(message, sender)


class _Nobody:
    """Stands in the run queue for the receiver of a call that there is not."""

    __slots__ = ("_error",)

    def __init__(self, error: ActorDead) -> None:
        self._error = error

    def deliver(self, call: Call, sender: object) -> None:
        """Fail the call."""
        del sender
        call.fail(self._error)


class _Interrupt:
    """Stands first in the run queue to raise what cut short an actor within another's callback."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def deliver(self, message: object, sender: object) -> None:
        """Raise it in the thread that runs actors."""
        del message, sender
        raise self._error
