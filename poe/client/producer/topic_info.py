"""What a producer tells of its topics and workers, for people and for callbacks."""

from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from poe.client.producer.transport import Link, TopicMetadata
from poe.errors import PoeError


class TopicState(StrEnum):
    """What a topic is at."""

    STARTING = "starting"
    READY = "ready"
    DOWNTIME = "downtime"
    """No broker can be reached."""


class WorkerState(StrEnum):
    """What a worker is at."""

    CONNECTING = "connecting"
    READY = "ready"
    DRAINING = "draining"
    """It ends once what it has sent is answered."""
    DOWN = "down"


class WorkerInfo(NamedTuple):
    """One connection of a topic."""

    topic: bytes
    id: int
    """Counts the workers of the topic since it was begun."""
    state: WorkerState
    """`connecting`, `ready` or `draining`."""
    broker: str
    """host:port"""
    partitions: tuple[int, ...]
    buffered_count: int
    """Messages that wait to be sent."""
    in_flight_count: int
    """Requests without an answer."""


class Carrier(Protocol):
    """A worker, as a queue sees it."""

    @property
    def broker(self) -> str:
        """host:port of its broker."""
        ...

    @property
    def state(self) -> WorkerState:
        """What it is at."""
        ...

    @property
    def link(self) -> Link | None:
        """Its connection, while it has one."""
        ...

    def info(self, topic: bytes) -> WorkerInfo:
        """Return it for people."""
        ...


class TopicInfo(NamedTuple):
    """One topic of a producer."""

    topic: bytes
    state: TopicState
    """`starting`, `ready` or `downtime`."""
    metadata: TopicMetadata | None
    workers: tuple[WorkerInfo, ...]
    buffered_count: int
    """Messages that wait to be sent."""
    buffered_bytes: int
    spooled_count: int
    """Messages that wait on disk."""
    spool_damaged_count: int
    """Damaged places on disk that were skipped; each was a batch or more, of any topic."""
    last_error: PoeError | None
    workers_limit: int | None = None
    """Workers that can be of use, whatever `workers` says: one for each partition. None with
    `ordered=False`, and while the partitions are not known."""


class Undelivered(NamedTuple):
    """Messages that a closed producer has not delivered."""

    topic: bytes
    partition: int | None
    """None where it was not chosen yet."""
    messages: list[Any]
    """`bytes`, or `Message`."""
    error: PoeError
