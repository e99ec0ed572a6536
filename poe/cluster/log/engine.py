"""What a node needs of the engine of the log: streams that a majority of nodes agrees on.

A stream is a sequence of entries, the same on all nodes, numbered from 1: the **place** of an entry
in it. An entry is stored once a majority has synced it. An engine is `NatsEngine`, over one
`nats-server` a node, or `SimulatedEngine`. It knows nothing of what it carries.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from poe.errors import PoeError

ENTRY_MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest payload of an entry, of an ask between nodes and of its answer."""
FOLLOW_AHEAD_MAX_BYTES: Final = 8 * 1024 * 1024
"""So far ahead of what its owner has taken an engine may be, and a portion more."""


class Stored(NamedTuple):
    """A majority has an entry that this node has published."""

    place: int
    """Where it is; the place that it got the first time, where it was published before."""


class NotStored(NamedTuple):
    """An entry that this node has published was not acknowledged."""

    is_sure: bool
    """Whether it is stored nowhere, and never will be; else it may be stored, now or later."""
    why: str


class Entry(NamedTuple):
    """An entry as it comes, the same on all nodes."""

    place: int
    time_us: int
    """When the engine took it, in microseconds since the epoch, by the clock of who led it: less
    than that before it where another node leads, whose clock is behind."""
    payload: bytes


class Entries(NamedTuple):
    """What follows on a stream that is followed; places rise, and none is left out between them."""

    stream: str
    follow_id: int
    """Which `follow` they belong to."""
    entries: Sequence[Entry]


class Forgotten(NamedTuple):
    """The stream remembers entries only from a later place on than those that are followed."""

    stream: str
    follow_id: int
    first_place: int
    """The oldest one that it has; one behind the last where it has none."""


class Lost(NamedTuple):
    """A stream that is followed is not there: it was deleted, or the engine lost it."""

    stream: str
    follow_id: int


class CatalogChanged(NamedTuple):
    """What all nodes agree on under a key is another value now."""

    key: str
    value: bytes
    revision: int


class PeerAsked(NamedTuple):
    """Another node asks this one; `answer` may be called once, by any thread, or never."""

    payload: bytes
    answer: Callable[[bytes], None]


class Connected(NamedTuple):
    """The node's engine is reached."""

    version: str


class Disconnected(NamedTuple):
    """The node's engine is not reached; it is tried again and again."""

    why: str


EngineEvent = Entries | Forgotten | Lost | CatalogChanged | PeerAsked | Connected | Disconnected


class StreamState(NamedTuple):
    """What the engine tells of a stream."""

    first_place: int
    last_place: int
    size_bytes: int
    leader: str
    """Name of the node that leads it; empty: none does."""
    replicas: Mapping[str, int]
    """By name of a node, how many entries it is behind; -1: it is not reached."""
    changed: tuple[str, ...] = ()
    """What somebody has changed of its settings, on which promises rest; a sentence each."""


class EngineState(NamedTuple):
    """What the engine tells of itself."""

    version: str
    leader: str
    """Name of the node that leads the engines together; empty: none, there is no majority."""
    nodes: Mapping[str, bool]
    """By name, each node whose engine belongs to the cluster, and whether it is reached."""
    size_bytes: int
    """What it has on this node's disk."""
    answering: Mapping[str, bool] | None = None
    """The nodes that answer, where engines are called otherwise than nodes are."""

    @property
    def peers(self) -> Mapping[str, bool]:
        """Return, by name, each node that may be asked, and whether it is reached."""
        return self.nodes if self.answering is None else self.answering


class LogEngine(Protocol):
    """The engine of one node, as its owner uses it; the owner is one thread at a time.

    No call waits. `hear` and what is `told` are called by any thread, also within the call that
    causes it, and only enqueue; what is told is a result, or a `PoeError`. Each `told` is called
    exactly once. Streams are named by 1 to 200 of `A-Z a-z 0-9 _ -`.
    """

    @property
    def name(self) -> str:
        """Name of this node, as the engines of the others know it."""
        ...

    def open(self, hear: Callable[[EngineEvent], None]) -> None:
        """Begin to reach the engine; until `Connected` was heard, everything fails or waits.

        Raises:
            ClusterError: that will never go well; the sentence says what to mend.
        """
        ...

    def close(self) -> None:
        """Leave; nothing is heard or told after it, but for what is under way: as not done."""
        ...

    def publish(
        self,
        stream: str,
        entry_id: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[Stored | NotStored], None],
    ) -> None:
        """Append an entry; again with the same `entry_id` within two minutes, it is stored once.

        It is tried once. What `told` gets comes within about `deadline_s`.
        """
        ...

    def follow(self, stream: str, after_place: int, follow_id: int) -> None:
        """Hear the entries behind a place, from there on as they come; replaces an earlier one.

        `Entries` come in order and without a gap, however often the engine is lost in between;
        where it cannot be so, `Forgotten` or `Lost` comes, and nothing after it.
        """
        ...

    def taken(self, stream: str, follow_id: int, place: int) -> None:
        """Note that entries up to a place are done with; only then do many more of them come.

        Who never calls it for a follow is not waited for, and has all in memory that comes.
        """
        ...

    def unfollow(self, stream: str) -> None:
        """Hear no more of a stream."""
        ...

    def make_stream(
        self,
        stream: str,
        replicas: int,
        bytes_max: int,
        told: Callable[[PoeError | None], None],
    ) -> None:
        """Make a stream on so many nodes, beyond `bytes_max` of which the oldest entries go.

        One that is there gets these numbers.

        Told `TooFewNodes`, `NoQuorum`, or another `ClusterError` where it cannot be done.
        """
        ...

    def delete_stream(self, stream: str, told: Callable[[PoeError | None], None]) -> None:
        """Delete a stream; one that is not there is fine."""
        ...

    def put_catalog(
        self,
        key: str,
        value: bytes,
        revision: int,
        told: Callable[[int | PoeError], None],
    ) -> None:
        """Set what all nodes agree on under a key, if its revision is still that one; 0: none yet.

        Told the new revision, `CatalogChangedMeanwhile` where it is another one by now, or
        `NoQuorum`. Keys are 1 to 200 of `A-Z a-z 0-9 _ -`. All values are heard as
        `CatalogChanged`: at `Connected` what is there, the newest of each key, then what changes.
        """
        ...

    def stream_state(
        self, stream: str, deadline_s: float, told: Callable[[StreamState | PoeError], None]
    ) -> None:
        """Look at a stream; told `NoQuorum` where nobody leads it, `UnknownStream` without it."""
        ...

    def state(self, deadline_s: float, told: Callable[[EngineState | PoeError], None]) -> None:
        """Look at the engine itself."""
        ...

    def ask(
        self,
        node: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[bytes | PoeError | None], None],
    ) -> None:
        """Ask another node by its name; told None where no answer came in time.

        Told `UnknownNode` where nobody was reached who is called so: nobody has heard it.
        """
        ...

    def forget_node(self, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Take a node that will not come back out of the engine; its streams get another one.

        Told `UnknownNode` where it has none of that name, as servers that are somebody else's.
        """
        ...

    def lead(self, stream: str, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Have a node lead a stream, of which it has a replica.

        Told `NoQuorum` where it does not lead it in time, `UnknownStream` without the stream,
        `UnknownNode` where the node has no replica, or cannot be reached.
        """
        ...

    def metrics(self) -> dict[str, Any]:
        """Return counts since `open`, by name."""
        ...
