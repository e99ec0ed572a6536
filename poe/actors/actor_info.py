"""How an actor is, seen from outside: read under the system's lock, without a message to it.

So a look disturbs nobody, and an actor that is stuck in a callback can be looked at like any other.

Source: Erlang's `process_info/2`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from poe.actors.actor_cell import ActorCell, LoopAddress
from poe.actors.call import Call, Start
from poe.actors.message import REPLY
from poe.actors.run_queue import RunQueue
from poe.actors.server_cell import ServerCell


class ActorState(StrEnum):
    """What an actor does at the moment of the look."""

    RUNNING = "running"
    """Ready for its next message."""
    STARTING = "starting"
    """In an `init` that awaits something."""
    BUSY = "busy"
    """In another callback that awaits something; its messages wait."""
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    """In a `terminate` that awaits something."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """One actor at one moment."""

    actor: str
    """Name of its class; of an actor that has ended, as its address tells it."""
    name: str | None
    """Under which it is registered."""
    state: str
    """An `ActorState`, or what a supervisor says of a child without an actor."""
    awaits: LoopAddress | None
    """The actor whose reply or start its callback awaits."""
    mailbox_length: int
    """Messages that it has not begun with, those that are still on their way included."""


def queued_messages(run_queue: RunQueue) -> Counter[object]:
    """Count the messages on their way by receiver."""
    return Counter(receiver for receiver, _, sender in run_queue.entries() if sender is not REPLY)


def actor_info(ref: LoopAddress, queued: Mapping[object, int]) -> ActorInfo:
    """Look at one actor; under the system's lock, with the counts of `queued_messages`."""
    cell: ActorCell = ref.cell
    actor = cell.instance
    waiting = queued.get(cell, 0)
    if actor is None:
        return ActorInfo(ref.label, cell.name, ActorState.ENDED, None, waiting)
    kind = type(actor).__name__
    if not isinstance(cell, ServerCell):
        return ActorInfo(kind, cell.name, ActorState.RUNNING, None, waiting)
    waiting += len(cell.mailbox or ())
    awaited = cell.awaited
    server = awaited.server if type(awaited) is Call else None
    awaits = None if server is None else server.address
    return ActorInfo(kind, cell.name, _state(cell), awaits, waiting)


def is_at_rest(ref: LoopAddress, queued: Mapping[object, int]) -> bool:
    """Return whether an actor is running, and no message for it is to be seen; as `actor_info`.

    Of many alike ones it is asked first, since it makes nothing.
    """
    cell = ref.cell
    is_ready = cell.instance is not None and cell.blocked_by is None and cell not in queued
    return is_ready and isinstance(cell, ServerCell) and cell.stop is None and not cell.mailbox


def _state(cell: ServerCell) -> ActorState:
    if cell.stop is not None:
        return ActorState.STOPPING
    if cell.is_busy:
        is_start = type(cell.handling) is Start
        return ActorState.STARTING if is_start else ActorState.BUSY
    return ActorState.SUSPENDED if cell.is_suspended else ActorState.RUNNING


def role_of(ref: LoopAddress) -> str:
    """Return what an actor tells of itself by `describe_role`; under the system's lock."""
    cell = ref.cell
    if not isinstance(cell, ServerCell) or cell.instance is None:
        return ""
    try:
        return str(cell.instance.describe_role())
    except Exception:  # noqa: BLE001 - a look must not fail because of one actor
        return "?"
