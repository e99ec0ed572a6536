"""What a queue has to have done by whoever runs it: a queue itself sends and writes nothing."""

from typing import Literal, NamedTuple

from poe.cluster.batch import Batch
from poe.cluster.frames import QueueFrame
from poe.cluster.identity import NodeRef, StreamId

PutState = Literal["ok", "under", "busy", "none"]
"""What became of a put: on as many nodes as were asked for, or more; on fewer, at least one; on
none, for want of room, which is certain; on none that has said so, for another reason."""


class PutResult(NamedTuple):
    """What became of a put, when it was answered; what nodes tell later is not in it."""

    state: PutState
    made: int
    """Copies that are certain."""
    wanted: int
    stream: StreamId
    first: int
    """The pointer of the first message; those of the others follow."""
    pointer: int
    """That of the last one."""


class Tell(NamedTuple):
    """Send a frame to a node; it may get lost."""

    node: NodeRef
    frame: QueueFrame


class HandingOver(NamedTuple):
    """Token of messages that a node hands over before it goes."""

    token: object


class PutDone(NamedTuple):
    """Answer who has put."""

    token: object
    result: PutResult


class Answer(NamedTuple):
    """Answer who has asked a group: a value, or a `PoeError`."""

    token: object
    value: object


class Bury(NamedTuple):
    """Have another queue hold dead letters, and say `buried` of them when that is done.

    They have ids of their own, the same whoever buries them: so they are there once.
    """

    group: str
    number: int
    """Of these letters in the group; what is not said to be buried is asked for again."""
    queue: bytes
    stream: StreamId
    batches: tuple[Batch, ...]


class Write(NamedTuple):
    """Write a message to the queue's own topic, and say `written` or `write_failed` of it."""

    number: int
    message: bytes


class Trim(NamedTuple):
    """Let go of what was written before the message of this number."""

    number: int


class Event(NamedTuple):
    """Tell people."""

    kind: str
    detail: str


Effect = Tell | PutDone | Answer | Bury | Write | Trim | Event
