"""What is asked of the queues across nodes; the actors that answer are those of `poe.cluster`.

A node without a cluster has none of them, and then nobody asks: `RoutingTable.queues` is None.

To the registry of queues, by its name `QUEUES`:

    FindQueue, ListQueues, DeleteQueue
    FindGroup, ListGroups, DeleteGroup   of `requests.groups`, of groups that take from queues
    ClusterRequest
    ReleaseWaiting                       a cast of `appendix.message`, before the node stops: all
                                         queues answer who waits for messages, and let nobody wait

To the actor of one queue, by its address in `RoutingTable.queues`:

    QueuePut                  answers `QueueStored`
    LeaseRequest              answers a lease, and `HeldRecords` or None: after `WAIT_SLICE_S` at
                              the latest, so that who has gone meanwhile is leased nothing
    GroupRequest              with the name of the group; answers what its op answers
    Undelivered               a cast, with the name of the group
    BrowseQueue, DescribeQueue

Errors are `PoeError`s: the registry and the queues answer them, they do not end.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from poe.storage import Messages

QUEUES: Final = "queues"
"""Name of the actor that knows all queues."""


class FindQueue(NamedTuple):
    """Asked of `QUEUES`: answers the actor of a queue.

    Raises:
        UnknownQueue: there is none, and it is not to be made.
        QueueMismatch: there is one that has other properties than those which were asked for.
        QueueExists: there is one, and it is to be new.
        InvalidTopicName, OptionError: no queue may be so.
        TooFewNodes: nothing could be put onto it now.
    """

    name: bytes
    properties: dict[str, Any] | None = None
    """To make it where there is none: `copies`, `persist`, `bytes_max`, `messages_max`, `on_full`;
    what is left out is as the node's options say. None: it is not made."""

    is_new: bool = False
    """Whether there must be none."""

    is_for_put: bool = False
    """Whether it is made with so many copies only where there are as many nodes."""


@dataclass(frozen=True, slots=True)
class ListQueues:
    """Asked of `QUEUES`: answers what `DescribeQueue` does, of all queues, sorted by name."""


class DeleteQueue(NamedTuple):
    """Asked of `QUEUES`: deletes a queue and all that it holds, on all nodes; answers None.

    Raises:
        UnknownQueue: there is none.
    """

    name: bytes


class ClusterRequest(NamedTuple):
    """Asked of `QUEUES`: answers what one of the ops of a cluster answers, as plain values."""

    op: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class QueuePut:
    """Asked of a queue: put messages onto it, all or none; answers `QueueStored`.

    Raises:
        TooFewNodes, QueueBusy: nothing is stored.
        UnderCopies: it is stored on fewer nodes than was asked for.
        PutUnconfirmed: nobody who was asked to hold it has said so in time; it may be stored.
        InvalidMessage: one is too large; nothing is stored.
    """

    messages: Messages
    deadline_s: float
    copies: int | None = None
    """None: as many as the queue has."""


class QueueStored(NamedTuple):
    """Where messages were stored."""

    pointer: int
    """Of the last one, in the stream of this node."""

    copies: int
    """Nodes that hold it."""


class BrowseQueue(NamedTuple):
    """Asked of a queue: look at what this node holds, and hand nothing out; answers `Browsed`."""

    after: tuple[bytes, int]
    """Go on behind this message, by stream and pointer; `(b"", 0)`: begin."""

    limit: int
    bytes_max: int


class HeldRecords(NamedTuple):
    """Records that lie in memory, where those of a topic lie in a file."""

    entries: bytes
    """One for each record, as in an index."""

    data: bytes
    """The records, one behind the other."""

    ordinal: int = 0
    """Of the first one: nobody numbers the messages of a queue."""


class Browsed(NamedTuple):
    """Some messages of one stream."""

    unit: bytes
    """The name of the stream, as leases have it; empty: there is nothing more."""

    last: int
    """The pointer of the last one of them."""

    records: HeldRecords | None = None


@dataclass(frozen=True, slots=True)
class DescribeQueue:
    """Asked of a queue: answers a map of what it has and holds, with `name` and its properties."""
