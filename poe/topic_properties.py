"""What a topic knows of itself: its properties, and which topics hold its partitions.

To the files and to the original each partition is a topic. A topic that was made with one partition
is its own partition 0 (`t`, and `t-1`, `t-2` … when it grows); made with several, it is `t-0` to
`t-(n-1)`. Clients compute no names: they take those that the node tells.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, Self

from xxhash import xxh3_128_digest

from poe.errors import OptionError, PropertyFixed, UnknownOption
from poe.option import Range, check_options

PARTITIONS_MAX: Final = 1024
TOPIC_ID_BYTES: Final = 16
_RESERVED = re.compile(rb"poe\.(?!staging\.)")  # Spark's writers put onto `poe.staging.…`
_GROUPS_MAX = 100
_NUMBER_MAX = 2**63 - 1  # what replies can carry
REPLICAS: Final = (1, 3, 5)
"""Nodes that agree on a topic: a majority of an even number is no larger than of one less."""
_GROUP = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)
_PARTITION = re.compile(rb"(.+)-(0|[1-9][0-9]{0,3})", re.DOTALL)


def is_reserved(topic: bytes) -> bool:
    """Return whether a topic is the node's own, which clients may only read."""
    return _RESERVED.match(topic) is not None


def replicated_id(topic: bytes, created_us: int) -> bytes:
    """Return the id of a replicated topic, which is the same on all nodes."""
    return xxh3_128_digest(b"poe, replicated\0" + created_us.to_bytes(8, "big") + topic)


def partition_of(topic: bytes) -> tuple[bytes, int] | None:
    """Return the topic of which this would be a partition by its name, and which; None: of none."""
    match = _PARTITION.fullmatch(topic)
    return None if match is None else (match[1], int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProperties:
    """What holds for all partitions of a topic; None stands for the node's option of that name.

    Raises:
        OptionError: on construction, naming the property and what is allowed.
    """

    partitions: Annotated[int, Range(1, PARTITIONS_MAX)] = 1
    """How many logs its messages are spread over; can only grow."""

    replicas: Annotated[int, Range(1, 5, unit="nodes")] = 1
    """Nodes of a cluster that agree on each message and its place: 1, 3 or 5; never changes."""

    envelope: bool = False
    """Whether each message holds key, headers and value; never changes."""

    ack: Literal["memory", "flushed", "fsync"] | None = None
    """What a put waits for."""

    count_limit: Annotated[int | None, Range(1, _NUMBER_MAX, unit="messages")] = None
    """Messages in a segment."""

    size_limit: Annotated[int | None, Range(1, 2**40 - 1, unit="bytes")] = None
    """Bytes in a segment."""

    read: Literal["flushed", "synced"] | None = None
    """What consumers see: all that is acknowledged, or only what no power cut undoes."""

    max_age: Annotated[float | Literal["none"] | None, Range(is_above=True, unit="seconds")] = None
    """Seconds after which messages are deleted; "none" keeps them for ever."""

    max_bytes: Annotated[int | Literal["none"] | None, Range(1, _NUMBER_MAX, unit="bytes")] = None
    """Bytes in a partition beyond which the oldest segments are deleted; "none": no limit."""

    keep_unread: tuple[str, ...] = ()
    """Groups whose unread messages outlast `max_age` and `max_bytes`."""

    keep_unread_bytes: Annotated[int | None, Range(1, _NUMBER_MAX, unit="bytes")] = None
    """Bytes in a partition that `keep_unread` may spare; no limit by default."""

    def __post_init__(self) -> None:
        """Reject what no topic could have."""
        check_options(self, none="null")  # "none" is another thing: for ever
        if self.replicas not in REPLICAS:
            allowed = "1, or in a cluster 3 or 5: of an even number a majority is no safer"
            raise OptionError("replicas", self.replicas, allowed)
        if not _are_groups(self.keep_unread):
            allowed = f"up to {_GROUPS_MAX} names of groups, each 1 to 200 of A-Z a-z 0-9 . _ -"
            raise OptionError("keep_unread", self.keep_unread, allowed)
        object.__setattr__(self, "keep_unread", tuple(self.keep_unread))

    @property
    def is_replicated(self) -> bool:
        """Whether several nodes agree on it."""
        return self.replicas > 1

    def as_map(self) -> dict[str, Any]:
        """Return them by name, as msgpack and JSON can carry them."""
        return asdict(self) | {"keep_unread": list(self.keep_unread)}

    @classmethod
    def from_map(cls, values: Mapping[str, Any], *, are_unknown_left_out: bool = False) -> Self:
        """Make them of a map; what it does not name is as it is by default.

        Raises:
            OptionError: a value that is not allowed.
            UnknownOption: there is no property of that name, unless these are to be left out, as
                a client does that is older than its server.
        """
        names = property_names()
        if not isinstance(values, Mapping):
            raise OptionError("properties", values, f"a map of {', '.join(names)}")
        unknown = [each for each in values if each not in names]
        if unknown and not are_unknown_left_out:
            raise UnknownOption(str(unknown[0]), "one of " + ", ".join(names))
        return cls(**{name: value for name, value in values.items() if name in names})


def _are_groups(value: object) -> bool:
    if not isinstance(value, tuple | list) or len(value) > _GROUPS_MAX:
        return False
    return all(isinstance(each, str) and _GROUP.fullmatch(each) for each in value)


def property_names() -> list[str]:
    """Return the names of all properties."""
    return [each.name for each in fields(TopicProperties)]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is known: who it is, what it has, and which topics hold its partitions."""

    name: bytes
    id: bytes
    """16 bytes; a topic that was deleted and made anew has another one."""

    created_us: int
    """When it was made, in microseconds since the epoch."""

    version: int = 1
    """Grows with each change of the properties; 0: nobody has set any."""

    properties: TopicProperties = field(default_factory=TopicProperties)
    first_is_plain: bool = True
    """Whether partition 0 has the name of the topic, which was made with one partition."""

    def partition_topics(self) -> tuple[bytes, ...]:
        """Return the topics that hold the partitions, in their order."""
        count = self.properties.partitions
        names = [b"%b-%d" % (self.name, number) for number in range(count)]
        if self.first_is_plain:
            names[0] = self.name
        return tuple(names)

    def altered(self, changes: Mapping[str, Any]) -> Self:
        """Return it with other properties, as the next version; as it is where nothing differs.

        Raises:
            OptionError: a property that there is not, or a value that is not allowed.
            PropertyFixed: fewer partitions, another envelope, another number of replicas, or of a
                replicated topic other limits of segments.
        """
        old = self.properties
        new = TopicProperties.from_map({**old.as_map(), **changes})
        if new.partitions < old.partitions:
            raise PropertyFixed(self.name, "partitions", old.partitions, new.partitions)
        # Nodes that agree on a topic begin its segments at the same messages, by the same limits.
        limits = ("count_limit", "size_limit") if old.is_replicated else ()
        for name in ("envelope", "replicas", *limits):
            if getattr(new, name) != getattr(old, name):
                raise PropertyFixed(self.name, name, getattr(old, name), getattr(new, name))
        return self if new == old else replace(self, version=self.version + 1, properties=new)

    def as_map(self) -> dict[str, Any]:
        """Return it as control replies carry it."""
        return {
            "name": self.name,
            "id": self.id,
            "created_us": self.created_us,
            "version": self.version,
            "properties": self.properties.as_map(),
        }
