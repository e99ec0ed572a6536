"""The options of segments."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from poe.errors import InvalidTopicName, OptionError
from poe.option import Range, check_options
from poe.storage.recovery.recovery import RecoveryMode
from poe.storage.segment.topic_options import AckLevel, TopicOptions
from poe.topic_name import NamePolicy, folder_bytes, folder_name

MESSAGE_LIMIT = 2**32 - 8
"""Bytes of the largest message that a record can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """How segments store messages.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    message_max: Annotated[int, Range(1, MESSAGE_LIMIT, unit="bytes")] = 16 * 1024 * 1024
    """Largest message, in bytes."""

    buffer_count_max: Annotated[int, Range(1, unit="messages")] = 100
    """Messages that wait in memory before they are written, with `ack="memory"`."""

    ack: AckLevel = "flushed"
    """What a put waits for: a copy in memory, the kernel, or the disk."""

    topics: tuple[TopicOptions, ...] = ()
    """Topics with options of their own, as in `[topics.orders]` with `ack = "fsync"`."""

    names: NamePolicy = "strict"
    """Names of topics other than 1 to 200 of `A-Z a-z 0-9 . _ -`: refused (strict), or kept in
    folders with `%XX` for each other byte (escape)."""

    verify: Literal["once", "always", "never"] = "once"
    """How often data that this process did not write is compared with its sums before it is read:
    once, each time, or not at all."""

    recovery: RecoveryMode = "point-in-time"
    """After a reboot: cut off what has no sums or does not match them (point-in-time), the same,
    and take no puts on a topic with damage (strict), or keep all that looks like records
    (salvage)."""

    def __post_init__(self) -> None:
        """Reject what no segment could keep."""
        check_options(self)
        for each in self.topics:
            try:
                folder_name(folder_bytes(each.topic), self.names)
            except (InvalidTopicName, UnicodeEncodeError) as error:
                allowed = f"the name of a topic ({error})"
                raise OptionError("topics", each.topic, allowed) from error

    def by_topic(self) -> dict[bytes, Self]:
        """Return the options of the topics that have some of their own."""
        return {
            folder_bytes(each.topic): replace(self, ack=each.ack or self.ack, topics=())
            for each in self.topics
        }

    @property
    def waiting_count_max(self) -> int:
        """Messages that may wait in memory at this `ack`."""
        return self.buffer_count_max if self.ack == "memory" else 0
