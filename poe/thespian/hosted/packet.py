"""What hosts send each other: a small header, and a body that was pickled by its sender.

The body is opened by the receiving host only, so that a value that cannot be unpickled there fails
one request and not the host. The header says whom such a failure has to be told.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from poe.actors.call import Call
from poe.actors.latch import Latch


class Op(StrEnum):
    """The kinds of packets; `target` is the serial of the actor that is meant, if not said else."""

    CREATE = "create"
    """Body: `Birth`. Make the main actor of a new host."""
    HELLO = "hello"
    """`number`: the pid of the target, a child of the receiving host."""
    START = "start"
    """Body: args and kwargs of `init`. Answered."""
    CALL = "call"
    """Body: the request. Answered."""
    PROBE = "probe"
    """Answered by the host itself: is the target alive?"""
    ANSWER = "answer"
    """Body: the value that ends the request of this `number`."""
    FAIL = "fail"
    """Body: the error that ends the request of this `number`."""
    CAST = "cast"
    """Body: the message."""
    INFO = "info"
    """Body: the message and the address of its sender, or None."""
    SIGNAL = "signal"
    """Body: the address of the sender, or None, and the reason of an exit signal."""
    LINK = "link"
    """Body: the address of the actor that has linked itself to the target."""
    UNLINK = "unlink"
    """Body: the address of the actor that has undone a link to the target."""
    MONITOR = "monitor"
    """Body: the address of the actor that is to hear of the target's end."""
    DEMONITOR = "demonitor"
    """Body: the address that a `MONITOR` had; nobody there wants to hear of the target's end."""
    ENDED = "ended"
    """Body: the reason. The target, an actor of the sending host, has ended."""
    GONE = "gone"
    """From a host to itself. `number`: pid of a process that has ended."""
    TURN = "turn"
    """From a host to itself: more is to be done, after the messages that have arrived meanwhile."""


ANSWERED = frozenset({Op.START, Op.CALL, Op.PROBE})


@dataclass(frozen=True, slots=True)
class Packet:
    """One message between two hosts, or between a host and the application."""

    op: Op
    target: int = 0
    number: int = 0
    """Of the request, in its sender; an answer repeats it."""
    body: bytes = b""


class _Notice(Latch):
    """Stands for the thread that waits for a call, where nobody blocks: runs a function instead."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action

    def set(self) -> None:
        super().set()
        self._action()


def when_done(call: Call, action: Callable[[Call], object]) -> None:
    """Run `action(call)` as soon as the call has its answer or error."""
    if call.is_done:
        action(call)
    else:
        call.event = _Notice(partial(action, call))
