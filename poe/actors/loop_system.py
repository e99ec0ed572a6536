"""LoopSystem: all actors of a system in one process, and how application threads use them.

It turns a blocking call of any thread into a message, and waits for the answer where the run queue
could not give it at once. See `run_queue` for who runs actors and when.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from poe.actors.actor_cell import LoopAddress, cell_of
from poe.actors.actor_table import ActorTable
from poe.actors.call import Call, Start
from poe.actors.clock import SimulatedClock
from poe.actors.gen_server import CALL_TIMEOUT_S, GenServer
from poe.actors.latch import Latch
from poe.actors.message import Cast, DownSignal, ExitSignal
from poe.actors.reason import KILLED, NOPROC, NORMAL, Reason, is_word
from poe.actors.run_queue import RunQueue, enters
from poe.actors.server_cell import ServerCell
from poe.actors.system_calls import SystemCalls
from poe.errors import ActorDead, CallFromActor, CallTimeout, SystemShutDown
from poe.errors.timeout import limit_of


class LoopSystem(SystemCalls):
    """The runtime of GenServers: actors on one run queue, in one process.

    Its methods are for application threads, any number of them; inside an actor they raise
    `CallFromActor`. `with LoopSystem() as system:` shuts it down at the end.
    """

    def __init__(
        self, *, clock: SimulatedClock | None = None, actors: ActorTable | None = None
    ) -> None:
        """Begin without actors.

        Args:
            clock: for tests, which move it: nothing runs beside the calls of this object.
            actors: where they are kept, with what runs them; for tests that change either.
        """
        self.actors = ActorTable(RunQueue(clock)) if actors is None else actors
        self.run_queue = self.actors.run_queue
        self._is_shut_down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.shutdown()

    @enters
    def start(
        self,
        actor_class: type[GenServer],
        *args: object,
        name: str | None = None,
        start_timeout_s: float | None = None,
        **kwargs: object,
    ) -> LoopAddress | None:
        """Start an actor without a parent and wait until its `init` is done, or time is over.

        Returns:
            Its address, or None when `init` returned `IGNORE`.

        Raises:
            StartFailed: `init` raised or stopped, or still waited for something after
                `start_timeout_s`.
            NameTaken: another live actor has the name.
            SystemShutDown: `shutdown` was called.
        """
        start_timeout_s = limit_of(start_timeout_s, "start_timeout_s")
        run_queue = self.run_queue
        run_queue.enter()
        try:
            if self._is_shut_down:
                raise SystemShutDown(actor_class)
            cell = self.actors.spawn(actor_class, None, name)
            call = Call(None, None, cell, None)
            start = Start(args, kwargs, call)
            cell.queue.append((cell, start, None))
            run_queue.drain()
            if not call.is_done:
                call.event = Latch()
                if start_timeout_s is not None:
                    call.timer = run_queue.add_timer(start_timeout_s, start.expire)
        finally:
            run_queue.leave()
        return self.outcome(call)  # type: ignore[no-any-return]  # the reply to Start

    def call(self, ref: LoopAddress | str, request: object, timeout_s: float | None = 5.0) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Send a request and wait for the reply.

        Raises:
            ActorDead: the actor is not there, or ended before it answered.
            SystemShutDown: it is not there because `shutdown` was called.
            CallTimeout: no reply within `timeout_s`; the work may have been done.
            CallFromActor: used inside an actor.
            InvalidTimeout: `timeout_s` is no time.
        """
        if timeout_s is not None and timeout_s != CALL_TIMEOUT_S:
            timeout_s = limit_of(timeout_s)
        cell = ref.cell if type(ref) is LoopAddress else self.actors.find(ref)
        if cell is None:
            if self.run_queue.is_running_here():
                raise CallFromActor
            raise SystemShutDown(ref) if self._is_shut_down else ActorDead(ref, NOPROC)
        return self.outcome(self.run_queue.call_from_outside(cell, request, timeout_s))

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer; a dead receiver is no error.

        Raises:
            MailboxFull: the receiver is busy or suspended, and as many as its `mailbox_max` wait.
        """
        cell = self.actors.find(ref)
        if cell is not None:
            self.run_queue.send_from_outside(cell, Cast(message), None)

    def exit(self, ref: LoopAddress | str, reason: Reason) -> None:
        """Send an exit signal that comes from no actor."""
        cell = self.actors.find(ref)
        if cell is not None:
            self.run_queue.post_from_outside(cell, ExitSignal(None, reason), None)

    @enters
    def stop(
        self, ref: LoopAddress | str, reason: Reason = NORMAL, timeout_s: float | None = 5.0
    ) -> None:
        """Make an actor terminate with `reason` and wait until it is gone.

        Raises:
            ActorDead: it is not there, be it gone already or never have been.
            CallTimeout: it had not ended after `timeout_s`; it still will.
        """
        timeout_s = limit_of(timeout_s)
        ended, reasons = Latch(), list[Reason]()
        watcher = self.actors.new_outside_cell("stop", EndWatcher(reasons.append, ended.set))
        run_queue = self.run_queue
        run_queue.enter()
        try:
            cell = self.actors.find(ref)
            if cell is None:
                raise ActorDead(ref, NOPROC)
            monitor = watcher.monitor(cell)
            self.actors.request_stop(cell, reason)
            run_queue.drain()
        finally:
            run_queue.leave()
        if not self._wait(ended, timeout_s):
            self.run_queue.run_outside(lambda: cell.drop_monitor(monitor))
            raise CallTimeout(ref, timeout_s or 0.0)
        if is_word(reasons[0], NOPROC):
            raise ActorDead(ref, NOPROC)

    def when_ended(self, ref: LoopAddress, action: Callable[[Reason], object]) -> None:
        """Call `action` with the reason once an actor has ended.

        It is called in whatever thread runs actors then, and must not block or call the system.
        """
        cell = cell_of(ref)
        watcher = self.actors.new_outside_cell("when_ended", EndWatcher(action))
        self.run_queue.run_outside(lambda: watcher.monitor(cell))

    def whereis(self, name: str) -> LoopAddress | None:
        """Return the address of the actor registered under a name, or None."""
        return self.actors.whereis(name)

    def is_alive(self, ref: LoopAddress | str) -> bool:
        """Return whether the actor still runs, or whether one has the name."""
        return self.actors.is_alive(ref)

    def run_outside(self, action: Callable[[], object]) -> None:
        """Run `action` while no actor runs, then let the actors run."""
        self.run_queue.run_outside(action)

    def advance(self, seconds: float) -> None:
        """Move an injected clock on and run what has come due, deadline by deadline."""
        self.run_queue.advance(seconds)

    def run(self, started: Callable[[], object]) -> None:
        """Run the event loop in the calling thread until `shutdown`; for services.

        `started` is called first, in the loop; nothing may have used the event loop before. What it
        raises ends the loop, and is raised.
        """
        self.run_queue.run(started)

    def shutdown(self) -> None:
        """End every actor without ceremony, then all threads; stop supervisors before.

        Inside an actor it returns at once, and the end comes when the actor is done.
        """
        if self.run_queue.is_running_here():
            threading.Thread(target=self.shutdown, name="poe-shutdown").start()
            return
        self.run_queue.run_outside(self._kill_all)
        if self.actors.guests is not None:
            self.actors.guests.leave()
        self.run_queue.stop_event_loop()

    def _kill_all(self) -> None:
        # Under the lock: whoever starts an actor now is refused, or its actor is among these.
        self._is_shut_down = True
        for cell in list(self.actors.alive):
            # Its own end: whoever waits for an answer of it must not wait for ever.
            cell.abort(KILLED if isinstance(cell, ServerCell) else NORMAL)

    def outcome(self, call: Call) -> Any:  # noqa: ANN401 - as `call`
        """Return the reply to a call of this thread, or raise as `call`, once it is done.

        It is waited for outside the lock. Who made the call by the run queue asks for a call that
        was not answered at once, or has failed.
        """
        if call.event is not None and not self._wait(call.event, call.timeout_s):
            self.run_queue.run_outside(call.expire)
        error, call.error = call.error, None
        if error is None:
            return call.value
        if isinstance(error, ActorDead) and self._is_shut_down and is_word(error.reason, NOPROC):
            error = SystemShutDown(error.ref)
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def _wait(self, event: Latch, timeout_s: float | None) -> bool:
        """Wait for what actors do in other threads; where time is simulated, let it pass.

        Raises:
            CallFromActor: they wait for this thread, in which a signal handler calls, or an action
                of `run_outside`.
        """
        if self.run_queue.is_running_here():
            raise CallFromActor
        return event.wait(timeout_s)


class EndWatcher:
    """Receives the `Down` of an actor, for an application thread."""

    def __init__(
        self, action: Callable[[Reason], object], then: Callable[[], object] = lambda: None
    ) -> None:
        self._action = action
        self._then = then

    def deliver(self, message: object, sender: object) -> None:
        """Pass the reason on."""
        del sender
        if isinstance(message, DownSignal):
            self._action(message.reason)
            self._then()
