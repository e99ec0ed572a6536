"""LoopSystemBase: all actors of a system in one process, and how application threads use them.

It turns a blocking call of any thread into a message, and waits for the answer where the run queue
could not give it at once. See `run_queue` for who runs actors and when.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from thespian.actors import ActorSystem

from poe.actors.address import LoopAddress, cell_of
from poe.actors.call import Call
from poe.actors.clock import SimulatedClock
from poe.actors.gen_server import GenServer
from poe.actors.gen_server_operations import CALL_TIMEOUT_S
from poe.actors.message import Cast, DownSignal, ExitSignal, Start
from poe.actors.reason import KILLED, NOPROC, NORMAL, Reason, is_word
from poe.actors.server_cell import ServerCell
from poe.actors.system_calls import SystemCalls
from poe.actors.thespian_base import ThespianBase
from poe.errors import ActorDead, CallTimeout, SystemShutDown
from poe.errors.timeout import limit_of


class LoopSystemBase(SystemCalls, ThespianBase):
    """A Thespian system base, and the runtime of GenServers.

    Its own methods are for application threads, any number of them; inside an actor they raise
    `CallFromActor`. `with LoopSystemBase() as system:` shuts it down at the end.
    """

    _is_shut_down = False

    def __init__(
        self,
        system: ActorSystem | None = None,
        logDefs: Any = False,  # noqa: ANN401, FBT002, N803 - Thespian's constructor
        *,
        clock: SimulatedClock | None = None,
    ) -> None:
        super().__init__(system or ActorSystem(self, transientUnique=True), logDefs, clock)

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
        self._enter()
        try:
            if self._is_shut_down:
                raise SystemShutDown(actor_class)
            cell = self.spawn(actor_class, None, name)
            call = Call(None, None, cell, None)
            start = Start(args, kwargs, call)
            cell.queue.append((cell, start, None))
            self._drain()
            if not call.is_done:
                call.event = threading.Event()
                if start_timeout_s is not None:
                    call.timer = self.add_timer(start_timeout_s, start.expire)
        finally:
            self._leave()
        return self._outcome(call)  # type: ignore[no-any-return]  # the reply to Start

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
        self._enter()
        try:
            cell = self.find(ref)
            if cell is None:
                raise SystemShutDown(ref) if self._is_shut_down else ActorDead(ref, NOPROC)
            call = Call(request, None, cell, timeout_s)
            cell.queue.append((cell, call, None))
            self._drain()
            if not call.is_done:
                call.event = threading.Event()
        finally:
            self._leave()
        return self._outcome(call)

    def cast(self, ref: LoopAddress | str, message: object) -> None:
        """Send a message that expects no answer; a dead receiver is no error.

        Raises:
            MailboxFull: the receiver is busy or suspended, and as many as its `mailbox_max` wait.
        """
        cell = self.find(ref)
        if cell is not None:
            self.send_from_outside(cell, Cast(message), None)

    def exit(self, ref: LoopAddress | str, reason: Reason) -> None:
        """Send an exit signal that comes from no actor."""
        cell = self.find(ref)
        if cell is not None:
            self.post_from_outside(cell, ExitSignal(None, reason), None)

    def stop(
        self, ref: LoopAddress | str, reason: Reason = NORMAL, timeout_s: float | None = 5.0
    ) -> None:
        """Make an actor terminate with `reason` and wait until it is gone.

        Raises:
            ActorDead: it is not there, be it gone already or never have been.
            CallTimeout: it had not ended after `timeout_s`; it still will.
        """
        timeout_s = limit_of(timeout_s)
        ended, reasons = threading.Event(), list[Reason]()
        watcher = self.new_outside_cell("stop", _EndWatcher(reasons.append, ended.set))
        self._enter()
        try:
            cell = self.find(ref)
            if cell is None:
                raise ActorDead(ref, NOPROC)
            monitor = watcher.monitor(cell)
            self.request_stop(cell, reason)
            self._drain()
        finally:
            self._leave()
        if not self._wait(ended, timeout_s):
            self.run_outside(lambda: cell.drop_monitor(monitor))
            raise CallTimeout(ref, timeout_s or 0.0)
        if is_word(reasons[0], NOPROC):
            raise ActorDead(ref, NOPROC)

    def when_ended(self, ref: LoopAddress, action: Callable[[Reason], object]) -> None:
        """Call `action` with the reason once an actor has ended.

        It is called in whatever thread runs actors then, and must not block or call the system.
        """
        watcher, cell = self.new_outside_cell("when_ended", _EndWatcher(action)), cell_of(ref)
        self.run_outside(lambda: watcher.monitor(cell))

    def shutdown(self) -> None:
        """End every actor without ceremony, then all threads; stop supervisors before.

        Inside an actor it returns at once, and the end comes when the actor is done.
        """
        if self.is_running_here():
            self.shutdown_soon()
            return
        self.run_outside(self._kill_all)
        self._is_shut_down = True
        self.release_sources()
        self._stop_event_loop()

    def _kill_all(self) -> None:
        for cell in list(self._alive):
            # Its own end: whoever waits for an answer of it must not wait for ever.
            cell.abort(KILLED if isinstance(cell, ServerCell) else NORMAL)

    def shutdown_soon(self) -> None:
        """Shut down as soon as no actor runs; for `Actor.actorSystemShutdown`."""
        threading.Thread(target=self.shutdown, name="poe-shutdown").start()

    def _outcome(self, call: Call) -> Any:  # noqa: ANN401
        """Wait, outside the lock, for a call that was not answered at once."""
        if call.event is not None and not self._wait(call.event, call.timeout_s):
            self.run_outside(call.expire)
        error, call.error = call.error, None
        if error is None:
            return call.value
        if isinstance(error, ActorDead) and self._is_shut_down and is_word(error.reason, NOPROC):
            error = SystemShutDown(error.ref)
        try:
            raise error
        finally:
            del error  # it refers to this frame

    def _wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Wait for what actors do in other threads; where time is simulated, let it pass."""
        return event.wait(timeout_s)


class _EndWatcher:
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
