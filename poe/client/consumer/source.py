"""What a consumer reads from: the seam between it and the transports, and its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from ssl import SSLContext
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from poe.errors import OptionError
from poe.option import Range, check_options
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls

_FIRST_YEAR = 1970

Start = int | datetime | Literal["oldest", "newest"] | Mapping[Any, int]
"""Where to begin: behind a pointer, at a time, or behind a pointer for each partition (others at
their oldest message); of a consumer in a group for each unit, which is a partition's own topic."""


class Received(NamedTuple):
    """A message as it came, and where it lies."""

    topic: bytes
    """As the consumer was asked for it, without the number of the partition."""

    partition: int

    pointer: int
    """On Kafka, the offset."""

    key: bytes | None
    value: bytes | None
    """None is a tombstone, of Kafka or of an envelope."""

    headers: Mapping[str, bytes] | None

    ordinal: int
    """How many messages its partition had before; on Kafka, the offset."""


class Fetched(NamedTuple):
    """Messages of one partition side by side, in order; none is an object until it is handed out.

    A program that keeps few of them then spares the garbage collector most of its work.
    """

    partition: int

    pointers: Sequence[int]
    """Of all messages; the other columns are as long."""

    ordinals: Sequence[int]

    values: Sequence[bytes | None]

    keys: Sequence[bytes | None] | None = None
    """None where no message has a key."""

    headers: Sequence[Mapping[str, bytes] | None] | None = None
    """None where no message has headers."""

    topic: bytes | None = None
    """None where it is the only one that the consumer reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer reads.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    partitions: Annotated[int | None, Range(1, 1 << 16)] = None
    """Of a topic whose server does not know: how many topics, `t-0` to `t-(n-1)`, are its
    partitions; 1, as None, is `t` itself."""

    start: Start = "oldest"
    """Where to begin: `"oldest"`, `"newest"` (what comes from the begin of the `with` on, or from
    the first call), a `datetime` (what was put from then on), the pointer of the last message that
    was read, or such a pointer for each partition, as `position()` returns them. With a group, it
    is for partitions on which the group has never been; `"newest"` is what came since it was
    made."""

    batch: Annotated[int, Range(1, 1 << 31, unit="messages")] = 1000
    """Messages that `receive` and `batches` return at a time, at most."""

    follow: bool = False
    """Wait for more at the end of the topic; else reading ends there."""

    envelope: bool | None = None
    """Of such a topic on Poe: each message was stored with its key and headers, by a producer with
    the option."""

    on_corrupt: Literal["error", "skip"] = "error"
    """About a damaged record, or what is no envelope: an error, or `"skip"` goes on and counts."""

    on_lost: Literal["error", "skip"] = "error"
    """About messages that were deleted before they were read: likewise."""

    timeout_s: Annotated[float | None, Range(unit="seconds")] = 60.0
    """Seconds that no broker may be reachable before that is an error; None: for ever, 0: none."""

    request_timeout_s: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds without an answer after which a connection is given up, and another one made."""

    fetch_bytes: Annotated[int, Range(1, 10**9, unit="bytes")] = 1 << 20
    """Bytes to ask for at a time, for each partition; a message that is larger comes alone."""

    group: str | None = None
    """On Poe: the group to join, which is made where there is none. Its members share the
    partitions of their topics, and go on where the group was."""

    commit: Literal["after", "before", "manual"] = "after"
    """When the group is told that messages are dealt with: after the next ones were asked for, so
    that none is lost; before they are handed out, so that none comes twice; or by `commit()`."""

    commit_interval_s: Annotated[float, Range(is_above=True, unit="seconds")] = 1.0
    """How often that happens by itself, with `"after"`; at the end of the consumer, too."""

    handover_s: Annotated[float, Range(unit="seconds")] = 10.0
    """How long a partition that another member is to have waits until the messages that were
    handed out are dealt with. Then the other one gets them again."""

    instance: str | None = None
    """A name that outlives the process: who joins the group under it anew gets back what it had."""

    group_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the group, where this makes it."""

    kafka: Mapping[str, Any] = field(default_factory=dict)
    """Settings of librdkafka, passed on as they are."""

    tls: Tls | SSLContext | None = None
    """On Poe, with `poes://`: what to demand of TLS, and to show of oneself; None: a certificate
    of the server that the system trusts."""

    credentials: Credentials | None = None
    """On Poe: how to log in; None: not at all."""

    def __post_init__(self) -> None:
        """Reject what cannot be worked with."""
        check_options(self, none="None")
        for key, of in (("kafka", "librdkafka's settings"), ("group_options", "options of groups")):
            if not isinstance(getattr(self, key), Mapping):
                raise OptionError(key, getattr(self, key), f"a dictionary of {of}")
        for key in ("group", "instance"):
            if not isinstance(getattr(self, key), str | None) or getattr(self, key) == "":
                raise OptionError(
                    key, getattr(self, key), f'a name, as in {key}="billing", or None'
                )
        if self.group is None and (self.instance is not None or self.commit != "after"):
            key = "commit" if self.instance is None else "instance"
            raise OptionError(key, getattr(self, key), "nothing where there is no group")
        if not self._is_start():
            each = 'b"the topic of a partition"' if self.group else "partition"
            allowed = f"oldest, newest, a datetime, a pointer, or {{{each}: pointer}}"
            raise OptionError("start", self.start, allowed)

    @property
    def entry(self) -> Entry:
        """How to get in at the servers."""
        return Entry(self.tls, self.credentials)

    def _is_start(self) -> bool:
        start = self.start
        if isinstance(start, Mapping):
            return all(
                (isinstance(p, bytes) if self.group else _is_whole(p, 0)) and _is_pointer(each)
                for p, each in start.items()
            )
        if isinstance(start, datetime):
            return True
        return start in {"oldest", "newest"} if isinstance(start, str) else _is_pointer(start)


class Source(Protocol):
    """The messages of one topic, wherever they come from; belongs to one event loop.

    A source reaches its brokers again by itself, and raises when none could be reached for
    `timeout_s`. After an error it can be asked again: it goes on where it was, so that what does
    not pass, such as damage, is raised again, unless the consumer opens it somewhere else.
    """

    async def open(self, start: Start) -> Mapping[Any, int]:
        """Begin at `start`, also where it has begun before; forget what was read ahead.

        Returns for each partition (its number, or in a group its own topic) the pointer behind
        which it begins: that of the last message before, or 0 on Poe and -1 on Kafka where there is
        none. It is the position of a consumer that was handed nothing. May be cancelled, and is
        called again then.
        """

    async def fetch(self) -> Fetched | None:
        """Return messages that follow, one or more of one partition; partitions take turns.

        None is the end, without `follow`: then all partitions have been read, and the next call
        looks anew. May be cancelled at any time; nothing is lost by it, the next call returns what
        this one would have.

        Raises:
            CorruptRecord, InvalidEnvelope: the next message is damaged, with `on_corrupt="error"`.
            MessagesLost: what was next has been deleted, with `on_lost="error"`.
            PoeError: a refusal, or no broker could be reached for `timeout_s`.
        """

    async def close(self) -> None:
        """Let go of all connections; no `fetch` is under way, and nothing is called afterwards."""

    @property
    def statistics(self) -> "ConsumerStatistics":
        """What was counted so far."""


@dataclass(slots=True)
class ConsumerStatistics:
    """What a consumer has met; counts since it was made."""

    received_count: int = 0
    """Messages that were fetched."""

    corrupt_count: int = 0
    """Damaged places that were skipped, each of one record or more."""

    lost_count: int = 0
    """Times that messages had been deleted before they were read."""

    reconnect_count: int = 0
    """Connections that were lost, or could not be made."""


def pointer_at(time: datetime) -> int:
    """Return the pointer behind which lies what was put at a time, or later."""
    return max(0, int(seconds_at(time) * 1_000_000) - 1)


def seconds_at(time: datetime) -> float:
    """Return a time in seconds since 1970; 0 for any before, when nobody put anything."""
    # `datetime.min`, for all that there is, cannot be told in seconds; and Kafka takes some numbers
    # below 0 for other things.
    return max(0.0, time.timestamp()) if time.year >= _FIRST_YEAR else 0.0


def _is_whole(value: object, low: int, high: int = 1 << 31) -> bool:
    return type(value) is int and low <= value <= high


def _is_pointer(value: object) -> bool:
    # -1 is Kafka's: behind it comes offset 0.
    return _is_whole(value, -1, (1 << 63) - 2)
