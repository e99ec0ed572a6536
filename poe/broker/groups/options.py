"""What a group is, and what it may be: its name, topics and options, checked when they are made."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from poe.errors import InvalidGroupName, OptionError
from poe.option import Range, check_options, load_options
from poe.topic_properties import is_reserved

Mode = Literal["ordered", "shared"]

ID_BYTES: Final = 16
"""Of the ids of groups and members."""

POINTER_MAX: Final = (1 << 56) - 1

METADATA_BYTES_MAX: Final = 64 << 10
NAME_BYTES_MAX: Final = 255
"""Of topics, patterns, members and instances."""

_TOPICS_COUNT_MAX = 1000
_PATTERNS_COUNT_MAX = 100
"""Each of them is compared with each topic of the node."""
_OWN = b"poe."
_GROUP_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How a group treats its members and their work.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    session_s: Annotated[float, Range(1, 3600, unit="seconds")] = 15.0
    """A member that is not heard of for so long is one no more."""

    heartbeat_s: Annotated[float | None, Range(0, 1200, is_above=True, unit="seconds")] = None
    """How often members are to be heard of, twice in a session at least; None: three times."""

    members_max: Annotated[int, Range(1, 10_000)] = 1000
    """Members at one time; one more is refused."""

    start: Literal["oldest", "newest"] = "oldest"
    """Where the group begins on the topics that are there when it is made. On topics and
    partitions that come later it begins with their first message."""

    lease_s: Annotated[float, Range(1, 3600, unit="seconds")] = 30.0
    """Messages that are not acknowledged within it are delivered again, unless it is extended."""

    work_max_s: Annotated[float, Range(1, 86_400, unit="seconds")] = 3600.0
    """How long a lease may be extended in all."""

    leases_max: Annotated[int, Range(1, 1_000_000)] = 10_000
    """Leases at one time, of all members; each gets an equal share."""

    lease_messages_max: Annotated[int, Range(1, 10_000_000)] = 100_000
    """Messages under lease at one time, of all members; each gets an equal share."""

    lease_bytes_max: Annotated[int, Range(1, 1 << 40, unit="bytes")] = 256 << 20
    """Bytes under lease at one time, of all members."""

    holes_max: Annotated[int, Range(1, 1_000_000)] = 10_000
    """Ranges that are not done among others that are; with more of them nothing new is handed
    out before some are done."""

    attempts_max: Annotated[int, Range(1, 1000)] = 5
    """A message that has failed so often goes to the dead letters."""

    retry_s: Annotated[float, Range(0, 3600, unit="seconds")] = 1.0
    """The wait before the second attempt; it doubles with each one."""

    retry_max_s: Annotated[float, Range(0, 86_400, unit="seconds")] = 300.0
    """The longest wait before an attempt."""

    on_dead: Literal["keep", "drop"] = "keep"
    """Whether messages that have failed for good go to the dead letter topic, or nowhere."""

    dead_letter_topic: str | None = None
    """None: the group's name with `.dead` behind it."""

    def __post_init__(self) -> None:
        """Refuse what an option must not be."""
        check_options(self, none="null")  # "none" is a name, too
        if self.heartbeat_s is not None and self.heartbeat_s * 2 > self.session_s:
            raise OptionError("heartbeat_s", self.heartbeat_s, "half of session_s or less")
        dead: object = self.dead_letter_topic
        if dead is not None and not _may_be_put_onto(dead):
            allowed = "the name of a topic that is not the node's own, or null"
            raise OptionError("dead_letter_topic", dead, allowed)

    @property
    def beat_s(self) -> float:
        """Return the seconds between two heartbeats of a member."""
        return self.session_s / 3 if self.heartbeat_s is None else self.heartbeat_s

    def as_map(self) -> dict[str, Any]:
        """Return names and values."""
        return asdict(self)

    @classmethod
    def from_map(cls, values: Mapping[str, Any]) -> Self:
        """Make options of names and values; what is left out has its default.

        Raises:
            UnknownOption: there is no option of one of the names.
            OptionError: a value is not allowed.
        """
        return load_options(cls, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDefinition:
    """What a group was made as, which never changes.

    Raises:
        InvalidGroupName, OptionError: on construction, saying what is allowed.
    """

    name: str
    id: bytes
    """Of 16 bytes; a group that is deleted and made anew has another one."""

    mode: Mode
    """`ordered`: each unit has one owner, who reads it in order and tells how far it is.
    `shared`: each message goes to whoever asks next, who acknowledges it."""

    topics: tuple[bytes, ...]
    """Names, or patterns in which `*` stands for any bytes."""

    options: GroupOptions = field(default_factory=GroupOptions)

    assignment_by: Literal["server"] = "server"
    """Who says what is whose: the group itself. Of Kafka's older protocol one of the members
    will; the field is there so that what is written now can be told from that."""

    created_us: Annotated[int, Range(0, unit="microseconds since the epoch")] = 0

    def __post_init__(self) -> None:
        """Refuse what no group may be."""
        check_name(self.name)
        check_bytes("id", self.id, ID_BYTES, ID_BYTES)
        check_options(self)
        check_topics(self.topics)

    @property
    def dead_letter_topic(self) -> bytes:
        """The topic that messages which have failed for good are put onto."""
        name = self.options.dead_letter_topic or f"{self.name}.dead"
        return name.encode("utf-8", "surrogateescape")

    @property
    def unmatched_topic(self) -> bytes | None:
        """The topic that no pattern of the group stands for; None where there is no such one.

        Of its own dead letters a message that always fails would go round.
        """
        return self.dead_letter_topic if self.mode == "shared" else None

    def reads(self, topic: bytes) -> bool:
        """Return whether a topic is one of the group's, named or by a pattern."""
        if topic in self.topics:
            return True
        is_matched = topic != self.unmatched_topic
        return is_matched and any(matches(each, topic) for each in self.topics)

    def as_map(self) -> dict[str, Any]:
        """Return it as msgpack can hold it."""
        return {
            "name": self.name,
            "id": self.id,
            "mode": self.mode,
            "topics": list(self.topics),
            "options": self.options.as_map(),
            "assignment_by": self.assignment_by,
            "created_us": self.created_us,
        }

    @classmethod
    def from_map(cls, values: Mapping[str, Any]) -> Self:
        """Make a definition of what `as_map` has returned.

        Raises:
            InvalidGroupName, OptionError: it holds what no group may be.
        """
        options = GroupOptions.from_map(values["options"])
        return cls(**{**values, "topics": tuple(values["topics"]), "options": options})


def _may_be_put_onto(topic: object) -> bool:
    is_name = isinstance(topic, str) and 0 < len(topic) <= NAME_BYTES_MAX
    return is_name and not is_reserved(str(topic).encode("utf-8", "surrogateescape"))


def check_name(name: object) -> None:
    """Refuse what is no name of a group.

    Raises:
        InvalidGroupName: says what is one.
    """
    if not isinstance(name, str) or _GROUP_NAME.fullmatch(name) is None:
        raise InvalidGroupName(name)


def check_topics(topics: object) -> None:
    """Refuse what are no names and patterns of topics.

    Raises:
        OptionError: says what is allowed.
    """
    allowed = f"1 to {_TOPICS_COUNT_MAX} names or patterns"
    if not isinstance(topics, tuple):
        raise OptionError("topics", topics, allowed)
    if not 0 < len(topics) <= _TOPICS_COUNT_MAX:
        raise OptionError("topics", f"{len(topics)} of them", allowed)
    for topic in topics:
        check_bytes("topic", topic, 1, NAME_BYTES_MAX)


def check_patterns(topics: tuple[bytes, ...]) -> None:
    """Refuse more patterns than a new group, or a member, may have.

    Raises:
        OptionError: says how many these are.
    """
    count = sum(b"*" in topic for topic in topics)
    if count > _PATTERNS_COUNT_MAX:
        raise OptionError("topics", f"{count} patterns", f"{_PATTERNS_COUNT_MAX} at most")


def check_bytes(key: str, value: object, least: int, most: int) -> None:
    """Refuse what is not bytes, or too short or too long.

    Raises:
        OptionError: says what is allowed; of a value that is long, only its length.
    """
    if not isinstance(value, bytes):
        raise OptionError(key, value, "bytes")
    if not least <= len(value) <= most:
        allowed = f"{least} bytes" if least == most else f"{least} to {most} bytes"
        raise OptionError(key, f"of {len(value)} bytes", allowed)


def matches(pattern: bytes, topic: bytes) -> bool:
    """Return whether a pattern stands for a topic; without a `*` it is the name of one.

    For a name that begins with `poe.` stands only what begins so, too, before its first `*`: what
    grants cover by a prefix is no more either.

    The time it takes grows with the lengths alone, whatever the pattern.
    """
    first, *parts = pattern.split(b"*")
    if not parts:
        return topic == pattern
    if topic.startswith(_OWN) and not first.startswith(_OWN):
        return False
    last = parts.pop()
    end = len(topic) - len(last)
    at = len(first)
    if end < at or not topic.startswith(first) or not topic.endswith(last):
        return False
    for part in parts:
        found = topic.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
