"""Requests of the runtime itself, which an actor serves in any state: OTP's `sys`.

Stopping is the actor's own business (`gen_server.py`); here is what suspends it, looks at it or
changes its state. Nothing of it costs an actor anything that is not asked.

Source: OTP sys.erl; `spec/otp.md` §2.6.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poe.actors.address import ActorRef
from poe.actors.call import Call
from poe.actors.message import REPLY, SystemRequest
from poe.actors.reports import kind_of
from poe.errors import NotSuspended

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """One message that reached an inspected actor, without its content."""

    at_s: float
    """When, on the system's monotonic clock."""
    kind: str
    """Its way in and its type, such as `"call Withdraw"`."""
    sender: ActorRef | None
    """None: an application thread, or nobody who is known."""


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """How an actor is at this moment; holds nothing of its state or of any message."""

    actor_class: str
    name: str | None
    parent: ActorRef | None
    is_suspended: bool
    is_busy: bool
    """A callback waits for something."""
    mailbox_length: int
    """Messages that wait behind that callback, or for `resume`."""
    unanswered_count: int
    """Calls that get their reply later."""
    links: frozenset[ActorRef]
    monitors_count: int
    """Monitors that others have of it."""
    messages_in: int | None
    """Messages handled since `inspect`; None: it is not inspected."""
    log: tuple[LoggedMessage, ...]
    """The last of them, oldest first."""


def serve(actor: "GenServer", request: SystemRequest) -> object:
    """Carry out a request and return its answer; what it raises goes to who asked."""
    match request.op:
        case "suspend" | "resume":
            actor._is_suspended = request.op == "suspend"  # noqa: SLF001 - part of the runtime
            return None
        case "get_status":
            return _status(actor)
        case "inspect":
            _inspect(actor, request.argument)
            return None
        case "replace_state" | "change_code":
            _change_state(actor, request)
    return actor.get_state() if request.op.endswith("_state") else None


def _change_state(actor: "GenServer", request: SystemRequest) -> None:
    """Replace the state, or change the code; whatever fails leaves the attributes as they were.

    What they refer to is not copied: it may be large, or a socket.
    """
    is_code = request.op == "change_code"
    if is_code and not actor._is_suspended:  # noqa: SLF001 - part of the runtime
        raise NotSuspended(actor.ref)
    before = actor.get_state()
    try:
        if is_code:
            actor.code_change(request.argument)
        else:
            actor.set_state(request.argument(actor.get_state()))
    except Exception:
        actor.set_state(before)
        raise


def _status(actor: "GenServer") -> ActorStatus:
    cell = actor._myRef  # noqa: SLF001
    inspector = actor._inspector  # noqa: SLF001
    return ActorStatus(
        actor_class=type(actor).__name__,
        name=cell.name,
        parent=actor.parent,
        is_suspended=actor._is_suspended,  # noqa: SLF001
        is_busy=actor._coroutine is not None,  # noqa: SLF001
        mailbox_length=len(actor._mailbox or ()),  # noqa: SLF001
        unanswered_count=len(actor._unanswered or ()),  # noqa: SLF001
        links=frozenset(other.address for other in cell.linked()),
        monitors_count=len(cell.monitors or ()),
        messages_in=None if inspector is None else inspector.messages_in,
        log=() if inspector is None else tuple(inspector.log),
    )


def _inspect(actor: "GenServer", log_max: int | None) -> None:
    if actor._inspector is not None:  # noqa: SLF001
        actor._inspector.end()  # noqa: SLF001
    actor._inspector = None if log_max is None else Inspector(actor, log_max)  # noqa: SLF001


class Inspector:
    """Counts and logs what one actor handles; stands before it as its way in.

    Replies are not seen: they go from the actor straight to who waits, and looking at each would
    cost every actor.
    """

    def __init__(self, actor: "GenServer", log_max: int) -> None:
        self.messages_in = 0
        self.log: deque[LoggedMessage] = deque(maxlen=log_max)
        self._actor = actor
        self._receive = actor.receiveMessage
        self._place(self.deliver)

    def deliver(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Note a message that the actor handles now, and hand it on."""
        actor = self._actor
        # What has to wait comes by a second time, when it is handled.
        is_handled = actor._coroutine is None and not actor._is_suspended  # noqa: SLF001
        is_call = type(message) is Call
        is_system = is_call and type(message.request) is SystemRequest
        if is_handled and sender is not REPLY and not is_system:
            if is_call:
                sender = None if message.caller is None else message.caller.address
            self.messages_in += 1
            now_s = actor.monotonic_s()
            self.log.append(LoggedMessage(now_s, kind_of(message), sender))
        self._receive(message, sender)

    def end(self) -> None:
        """Let messages go to the actor directly again."""
        self._place(self._receive)

    def _place(self, receive: Any) -> None:  # noqa: ANN401 - a bound method
        actor = self._actor
        actor.receiveMessage = receive  # type: ignore[method-assign]  # shadows the method
        # An idle time-out stands before all, and looks this up when it hands on.
        if actor._idle_time is None:  # noqa: SLF001
            actor._myRef.deliver = receive  # noqa: SLF001
