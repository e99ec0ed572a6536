"""What a look at one actor tells, and who counts its messages for that: of OTP's `sys`.

Nothing of it costs an actor anything that is not asked.

Source: OTP sys.erl; `spec/otp.md` §2.6.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call
from poe.actors.message import REPLY, ActorRef, SystemRequest
from poe.actors.reports import kind_of


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


class Inspector:
    """Counts and logs what one actor handles.

    Replies are not seen: they go from the actor straight to who waits, and looking at each would
    cost every actor.
    """

    __slots__ = ("_cell", "log", "messages_in")

    def __init__(self, cell: ActorCell, log_max: int) -> None:
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
            now_s = self._cell.run_queue.monotonic_s()
            self.log.append(LoggedMessage(now_s, kind_of(message), sender))
