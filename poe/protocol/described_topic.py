"""What a server tells of a topic: what it has, and what its partitions hold.

A client takes from it how many partitions there are, what each is called, and whether messages are
in envelopes; what it was told by its own options must agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from poe.errors import PoeError, PropertyMismatch, RemoteProtocolError, UnknownTopic
from poe.topic_properties import TopicProperties


class DescribedPartition(NamedTuple):
    """One partition: a topic of its own to whoever puts onto it, or reads it."""

    topic: bytes
    """Its name."""

    oldest: int | None
    """Pointer of the oldest message; None where there is none."""

    newest: int | None
    """Pointer of the newest one; None likewise."""

    messages: int
    bytes: int
    segments: int

    first_ordinal: int | None = None
    """Of the oldest message; None where nobody knows."""

    next_ordinal: int | None = None
    """What the next message gets; None likewise."""

    roles: str = ""
    """How many segments are written to, are read, and hibernate: `1 w 2 r 97 h`."""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic as its server has described it."""

    name: bytes
    id: bytes
    """16 bytes; a topic that was deleted and made anew has another one."""

    created_us: int
    """When it was made, in microseconds since the epoch."""

    version: int
    """Grows with each change of the properties; 0: a put has made it, and nobody has set any."""

    properties: TopicProperties = field(default_factory=TopicProperties)
    partitions: tuple[DescribedPartition, ...] = ()
    """In their order; none where they were not asked for."""

    error: str = ""
    """Why it is out of service; then nothing but its name is told."""

    queue: Mapping[str, Any] | None = None
    """Of a queue across nodes: what it has, and nothing where it is yet to be made."""

    @classmethod
    def from_map(cls, content: Any) -> Self:  # noqa: ANN401 - to be checked
        """Take what the control op `describe` has answered; what is newer than this is left out.

        Raises:
            RemoteProtocolError: it is no such answer.
        """
        try:
            if "error" in content:
                return cls(bytes(content["name"]), b"", 0, 0, error=str(content["error"]))
            properties = TopicProperties.from_map(content["properties"], are_unknown_left_out=True)
            rows = content.get("partitions", ())
            partitions = tuple(
                DescribedPartition(
                    **{name: row[name] for name in DescribedPartition._fields if name in row}
                )
                for row in rows
            )
            return cls(
                bytes(content["name"]),
                bytes(content["id"]),
                int(content["created_us"]),
                int(content["version"]),
                properties,
                partitions,
                queue=_map_or_none(content.get("queue")),
            )
        except (AttributeError, TypeError, KeyError, ValueError, PoeError) as error:
            msg = f"the answer to describe is {content!r:.200}"
            raise RemoteProtocolError(msg) from error

    def as_map(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "id": self.id,
            "created_us": self.created_us,
            "version": self.version,
            "properties": self.properties.as_map(),
            "partitions": [each._asdict() for each in self.partitions],
            **({} if self.queue is None else {"queue": dict(self.queue)}),
        }

    @property
    def is_told(self) -> bool:
        """Whether somebody has said what the topic has; else it has what its clients say."""
        return self.version > 0

    def check(self, asked: Mapping[str, Any]) -> None:
        """Compare properties that a client was told with those that the topic has.

        None is what a client was not told.

        Raises:
            PropertyMismatch: they are others; it names both values.
        """
        if not self.is_told:
            return
        for name, value in asked.items():
            has = getattr(self.properties, name)
            if value is not None and value != has:
                raise PropertyMismatch(self.name, name, value, has)


def _map_or_none(value: object) -> dict[str, Any] | None:
    return None if value is None else dict(value)  # type: ignore[call-overload]  # it raises


def no_topic(error: PoeError) -> PoeError | None:
    """Return None for a topic that is not known, or a server that knows no op; else the error."""
    is_old = isinstance(error, RemoteProtocolError) and "'describe' is unknown" in str(error)
    return None if is_old or isinstance(error, UnknownTopic) else error
