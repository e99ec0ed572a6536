"""Requests under way: a call or a start, where its answer goes, and the answer itself.

The same object is the envelope in the server's mailbox, the caller's token for `reply`, and what
the calling actor awaits; one allocation per call keeps a round trip near one microsecond.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Protocol

from poe.actors.latch import Latch
from poe.actors.message import REPLY, TIMED_OUT, ActorRef, Entry, Monitor
from poe.actors.reason import KILLED, TIMEOUT, Reason
from poe.actors.timer_queue import Timer
from poe.errors import CallTimeout, StartFailed
from poe.errors.tracebacks import drop_tracebacks


class Party(Protocol):
    """An actor as the messages to it know it."""

    queue: deque[Entry]
    blocked_by: object

    @property
    def address(self) -> ActorRef:
        """Return its address."""

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Take one message."""

    def admit(self) -> None:
        """Let a message come although the actor is blocked, or raise `MailboxFull`."""

    def abort(self, reason: Reason) -> None:
        """End the actor wherever it stands."""

    def unlink(self, other: Any) -> None:  # noqa: ANN401 - another one
        """Undo a link."""


class Clock(Protocol):
    """Whatever tells the time of a system."""

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds."""
        ...


class Owner(Protocol):
    """Keeps what ends with an actor."""

    def add_timer(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Run `action` after `delay_s`, unless the actor has ended by then."""
        ...

    def add_call(self, call: "Call") -> None:
        """Give a call up if the actor ends before the reply."""


class Caller(Party, Protocol):
    """An actor as its own calls know it."""

    @property
    def run_queue(self) -> Clock:
        """Return what runs it."""

    def own(self) -> Owner:
        """Return what ends with it, to put something in."""
        ...


class Call:
    """One request and its one answer.

    Life: made by the caller, handled by the server, ended once by `answer`, `fail` or `expire`;
    what comes later is dropped, as OTP drops late replies. All three run under the system's lock.
    `caller` is None for a call from an application thread, which waits on `event` if the answer
    was not there when it had drained the run queue. `owner` holds the call of an actor that waits.
    """

    __slots__ = (
        "caller",
        "error",
        "event",
        "forget",
        "is_awaited",
        "is_done",
        "owner",
        "request",
        "server",
        "timeout_s",
        "timer",
        "value",
    )

    def __init__(
        self,
        request: object,
        caller: Caller | None,
        server: Party | None,
        timeout_s: float | None,
    ) -> None:
        self.request = request
        self.caller = caller
        self.server = server
        self.timeout_s = timeout_s
        self.is_done = False
        self.is_awaited = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.event: Latch | None = None
        self.timer: Timer | None = None
        self.forget: Callable[[Call], object] | None = None
        self.owner: dict[Any, Any] | None = None

    def answer(self, value: object) -> None:
        """End the call with a reply."""
        if self.is_done:
            return
        self.value = value
        self.is_done = True
        if self.forget is not None:
            self.forget(self)
        if self.timer is not None:
            self.timer.cancel()
        if self.owner is not None:
            self.owner.pop(self, None)
            self.owner = None
        caller = self.caller
        if self.is_awaited and caller is not None:
            caller.queue.append((caller, self, REPLY))
        elif self.event is not None:
            self.event.set()

    def fail(self, error: BaseException) -> None:
        """End the call with an error that its caller raises."""
        if not self.is_done:
            # Frames of the server, and with them this call, which holds the error.
            drop_tracebacks(error)
            self.error = error
            self.answer(None)

    def expire(self) -> None:
        """End the call because its time is up; the server may still do the work."""
        timeout_s = 0.0 if self.timeout_s is None else self.timeout_s
        self.fail(CallTimeout(self.server.address if self.server else None, timeout_s))

    def cancel(self) -> None:
        """End the call because its caller has ended; nobody gets the reply."""
        self.caller = None
        self.answer(None)

    def result(self) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Return the reply or raise the error; only once the call is done."""
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            del self  # the error refers to this frame, and the call to the error

    def __await__(self) -> Generator["Call", None, Any]:
        if not self.is_done:
            self.is_awaited = True
            yield self
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            del self  # as in `result`


class Start:
    """The first message of a GenServer: run `init`, then answer the starter."""

    # No frozen dataclass: that takes four times as long to make, for each actor.
    __slots__ = ("args", "call", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], call: Call) -> None:
        self.args = args
        self.kwargs = kwargs
        self.call = call

    def answer(self, result: object) -> None:
        """Give the starter the address; `init` must not have returned what means nothing."""
        server = self.call.server
        assert server is not None
        if result is None:
            self.call.answer(server.address)
        else:
            reason = ("bad_return_value", result)
            self._give_up(reason, reason)

    def expire(self) -> None:
        """Kill the actor because its `init` takes too long, and tell the starter."""
        self._give_up(TIMEOUT, KILLED)

    def _give_up(self, reason: Reason, ends_with: Reason) -> None:
        server = self.call.server
        assert server is not None
        self.call.fail(StartFailed(reason))
        if self.call.caller is not None:
            server.unlink(self.call.caller)  # the starter is told once
        server.abort(ends_with)


class Response:
    """What an actor awaits when it looks for the reply of a call for some time only."""

    __slots__ = ("_call", "_timeout_s")

    def __init__(self, call: Call, timeout_s: float) -> None:
        self._call = call
        self._timeout_s = timeout_s

    def __await__(self) -> Generator[Call, None, Any]:
        call, caller = self._call, self._call.caller
        if not call.is_done and caller is not None:
            timer = caller.own().add_timer(
                self._timeout_s, partial(caller.queue.append, (caller, call, REPLY))
            )
            call.is_awaited = True
            yield call
            call.is_awaited = False
            timer.cancel()
        if not call.is_done:
            return TIMED_OUT
        result = call.result
        del self, call  # as there
        return result()


class Wait:
    """What an actor awaits when it waits for the end of another actor or for time to pass."""

    __slots__ = ("caller", "is_done", "monitor", "timer", "value")

    def __init__(self, caller: Party, monitor: Monitor | None = None) -> None:
        self.caller = caller
        self.monitor = monitor
        self.is_done = False
        self.timer: Timer | None = None
        self.value: object = TIMED_OUT

    def finish(self, value: object) -> None:
        """Resume the waiting actor with `value`."""
        if not self.is_done:
            self.is_done = True
            self.value = value
            if self.timer is not None:
                self.timer.cancel()
            self.caller.queue.append((self.caller, self, REPLY))

    def expire(self) -> None:
        """Resume the waiting actor with `TIMED_OUT`."""
        self.finish(TIMED_OUT)

    def __await__(self) -> Generator["Wait", None, object]:
        if not self.is_done:
            yield self
        return self.value
