"""The options of segments."""

from dataclasses import dataclass
from typing import Literal

from poe.errors import OptionError
from poe.storage.recovery import RecoveryMode

_MESSAGE_LIMIT = 2**32 - 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """How segments store messages.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    message_max: int = 16 * 1024 * 1024
    """Largest message, in bytes."""

    buffer_count_max: int = 100
    """Messages that wait in memory before they are written, with `ack="memory"`."""

    ack: Literal["memory", "flushed", "fsync"] = "flushed"
    """What a put waits for: a copy in memory, the kernel, or the disk."""

    verify: Literal["once", "always", "never"] = "once"
    """How often data that this process did not write is compared with its sums before it is read:
    once, each time, or not at all."""

    recovery: RecoveryMode = "point-in-time"
    """After a reboot: cut off what has no sums or does not match them (point-in-time), the same,
    and take no puts on a topic with damage (strict), or keep all that looks like records
    (salvage)."""

    def __post_init__(self) -> None:
        """Reject what no segment could keep."""
        if not 1 <= self.message_max <= _MESSAGE_LIMIT:
            raise OptionError(
                key="message_max", value=self.message_max, allowed="1 to 2^32 - 8 (bytes)"
            )
        if self.buffer_count_max < 1:
            raise OptionError(
                key="buffer_count_max", value=self.buffer_count_max, allowed="1 or more (messages)"
            )
        for key, choices in (
            ("ack", ("memory", "flushed", "fsync")),
            ("verify", ("once", "always", "never")),
            ("recovery", ("point-in-time", "strict", "salvage")),
        ):
            if getattr(self, key) not in choices:
                raise OptionError(key, getattr(self, key), " or ".join(choices))

    @property
    def waiting_count_max(self) -> int:
        """Messages that may wait in memory at this `ack`."""
        return self.buffer_count_max if self.ack == "memory" else 0
