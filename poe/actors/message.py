"""The values that actors exchange, and what a callback may return.

What reaches a callback: the request or message itself, and in `handle_info` also `Exit`, `Down` and
`TIMED_OUT`. What a callback returns to the runtime: nothing, a reply, or one of `Stop`, `Continue`,
`IdleTimeout`, `HIBERNATE`, `Reply`, `Error`, `NO_REPLY`, `IGNORE`. The envelopes `Cast`,
`ExitSignal`, `DownSignal` and `SystemRequest` never reach user code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

from thespian.actors import ActorAddress

from poe.actors.reason import Reason
from poe.errors.timeout import check_delay

ActorRef: TypeAlias = ActorAddress
"""What user code holds of another actor, on every system base."""


class Receiver(Protocol):
    """Whatever takes messages out of a run queue."""

    @property
    def deliver(self) -> Callable[[Any, Any], None]:
        """Take one message and its sender."""


Entry = tuple[Receiver, Any, Any]
"""One entry of a run queue: receiver, message, and sender or the marker `REPLY`."""


class Token(Enum):
    """Values that stand for a meaning only."""

    NO_REPLY = "no reply now: `reply(caller, value)` follows"
    IGNORE = "init: do not run, and do not fail either"
    HIBERNATE = "sleep until the next message, with no more memory than the state takes"
    TIMED_OUT = "the deadline of a wait, or an idle time-out, has passed"
    REPLY = "marks a run-queue entry that resumes a waiting actor"
    SUSPENDED = "an actor keeps its messages until it is resumed"


NO_REPLY: Final = Token.NO_REPLY
"""Returned by `handle_call`: the answer comes later, by `reply(caller, value)`."""
IGNORE: Final = Token.IGNORE
"""Returned by `init`: the actor does not run, and its start has not failed either."""
HIBERNATE: Final = Token.HIBERNATE
"""Returned by a callback: the actor sleeps until its next message, and gives memory back."""
TIMED_OUT: Final = Token.TIMED_OUT
"""What `handle_info` gets when an `IdleTimeout` is over, and a wait returns when its time is."""
REPLY: Final = Token.REPLY
SUSPENDED: Final = Token.SUSPENDED


def check_error(error: object) -> None:
    """Refuse an answer that no caller can raise.

    Raises:
        TypeError: it is no exception.
    """
    if not isinstance(error, BaseException):
        shown = f"the class {error.__name__}" if isinstance(error, type) else type(error).__name__
        msg = f"an error is an exception, such as ValueError('why'), not {shown}"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True)
class Continue:
    """Run `handle_continue(argument)` before any other message."""

    argument: object


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Send this actor `TIMED_OUT` (to `handle_info`) if no message comes first."""

    after_s: float
    """0 or more seconds; at 0 a message that is on its way already still comes first."""

    def __post_init__(self) -> None:
        """Refuse a time that never comes, in the callback that asks for it.

        Raises:
            InvalidTimeout: it is no time, or never comes.
        """
        check_delay(self.after_s, "after_s")


@dataclass(frozen=True, slots=True)
class Stop:
    """End this actor: `terminate(reason)` runs first, then the reply is sent."""

    reason: Reason
    reply: object = NO_REPLY


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the call with `value`, then go on as `then` says."""

    value: object
    """`NO_REPLY` where the answer comes later."""
    then: Continue | IdleTimeout | Literal[Token.HIBERNATE]


@dataclass(frozen=True, slots=True)
class Error:
    """Answer the call with an error that the caller's `call` raises; this actor lives on."""

    error: Exception

    def __post_init__(self) -> None:
        """Refuse what cannot be raised, in the callback that returns it.

        Raises:
            TypeError: it is no exception.
        """
        check_error(self.error)


@dataclass(frozen=True, slots=True, eq=False)
class Monitor:
    """One request to hear of an actor's end; each gives one `Down`."""

    ref: ActorRef
    name: str | None = None
    """The name that was asked for, where it was not a ref; `ref` is then who had it."""


@dataclass(frozen=True, slots=True)
class Exit:
    """A linked actor ended, or sent an exit signal; seen by actors that trap exits."""

    ref: ActorRef | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Down:
    """A monitored actor has ended."""

    ref: ActorRef
    reason: Reason
    monitor: Monitor


class Cast:
    """Envelope of a cast."""

    __slots__ = ("message",)

    def __init__(self, message: object) -> None:
        self.message = message


@dataclass(frozen=True, slots=True)
class ExitSignal:
    """An exit signal on its way; `linked` when it spreads along a link instead of `exit`."""

    ref: ActorRef | None
    reason: Reason
    linked: bool = False


class DownSignal:
    """The notice of an end on its way to who has a monitor; it becomes a `Down` there.

    A `Down` that anybody made and sent is a message like any other.
    """

    __slots__ = ("monitor", "reason", "ref")

    def __init__(self, ref: ActorRef, reason: Reason, monitor: Monitor) -> None:
        self.ref = ref
        self.reason = reason
        self.monitor = monitor


@dataclass(frozen=True, slots=True)
class SystemRequest:
    """A request of OTP's `sys`: served even while the actor is suspended."""

    op: str
    """stop, suspend, resume, get_state, replace_state, change_code, get_status or inspect."""
    argument: Any = None
