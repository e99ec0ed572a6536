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
from poe.actors.message import REPLY, SUSPENDED, SystemRequest
from poe.actors.reports import kind_of
from poe.errors import NotSuspended

if TYPE_CHECKING:
    from poe.actors.server_cell import ServerCell


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


def serve(cell: "ServerCell", request: SystemRequest) -> object:
    """Carry out a request and return its answer; what it raises goes to who asked."""
    match request.op:
        case "suspend":
            cell.blocked_by = SUSPENDED
            return None
        case "resume":
            cell.blocked_by = None
            return None
        case "get_status":
            return _status(cell)
        case "inspect":
            _inspect(cell, request.argument)
            return None
        case "replace_state" | "change_code":
            _change_state(cell, request)
    return cell.instance.get_state() if request.op.endswith("_state") else None


def _change_state(cell: "ServerCell", request: SystemRequest) -> None:
    """Replace the state, or change the code; whatever fails leaves the attributes as they were.

    What they refer to is not copied: it may be large, or a socket.
    """
    actor = cell.instance
    is_code = request.op == "change_code"
    if is_code and not cell.is_suspended:
        raise NotSuspended(cell.address)
    before = actor.get_state()
    try:
        if is_code:
            actor.code_change(request.argument)
        else:
            actor.set_state(request.argument(actor.get_state()))
    except Exception:
        actor.set_state(before)
        raise


def _status(cell: "ServerCell") -> ActorStatus:
    inspector = _inspector(cell)
    return ActorStatus(
        actor_class=type(cell.instance).__name__,
        name=cell.name,
        parent=None if cell.parent is None else cell.parent.address,
        is_suspended=cell.is_suspended,
        is_busy=cell.is_busy,
        mailbox_length=len(cell.mailbox or ()),
        unanswered_count=len(cell.unanswered or ()),
        links=frozenset(other.address for other in cell.linked()),
        monitors_count=len(cell.monitors or ()),
        messages_in=None if inspector is None else inspector.messages_in,
        log=() if inspector is None else tuple(inspector.log),
    )


def _inspector(cell: "ServerCell") -> "Inspector | None":
    found = [each for each in cell.observers or () if isinstance(each, Inspector)]
    return found[0] if found else None


def _inspect(cell: "ServerCell", log_max: int | None) -> None:
    before = _inspector(cell)
    after = None if log_max is None else Inspector(cell, log_max)
    if before is not None:
        cell.observe_no_more(before)
    if after is not None:
        cell.observe_by(after)


class Inspector:
    """Counts and logs what one actor handles.

    Replies are not seen: they go from the actor straight to who waits, and looking at each would
    cost every actor.
    """

    __slots__ = ("_cell", "log", "messages_in")

    def __init__(self, cell: "ServerCell", log_max: int) -> None:
        self.messages_in = 0
        self.log: deque[LoggedMessage] = deque(maxlen=log_max)
        self._cell = cell

    def see(self, message: Any, sender: Any) -> None:  # noqa: ANN401 - any message
        """Note a message that the actor handles now."""
        # What has to wait comes by a second time, when it is handled.
        is_handled = self._cell.blocked_by is None
        is_call = type(message) is Call
        is_system = is_call and type(message.request) is SystemRequest
        if is_handled and sender is not REPLY and not is_system:
            if is_call:
                sender = None if message.caller is None else message.caller.address
            self.messages_in += 1
            now_s = self._cell.system.monotonic_s()
            self.log.append(LoggedMessage(now_s, kind_of(message), sender))
