"""What is known of the failures of messages, and when they are tried again."""

from typing import Final, NamedTuple

from poe.broker.groups.options import GroupOptions

_JITTER_PARTS: Final = 1024
_DOUBLINGS_MAX: Final = 30


class Failures(NamedTuple):
    """What is known of the failures of the messages in a range."""

    attempts: int
    """How often each has failed for certain."""

    limit: int | None
    """How many of them may be handed out at once; None: any number. One is handed out alone: to a
    member that holds nothing else meanwhile, so that it is certain what has failed."""

    due_us: int
    """When they are to be handed out again."""

    reason: str
    """Of the last failure."""

    @property
    def is_suspect(self) -> bool:
        """Return whether each of the messages is to be handed out alone."""
        return self.limit == 1


NONE_YET: Final = Failures(0, None, 0, "")


def back_off_us(options: GroupOptions, attempts: int, pointer: int) -> int:
    """Return how long to wait after so many attempts: twice as long after each, up to a limit.

    To that a half of it at most is added, another part for each message, so that what has failed
    together is not tried together for ever. The part comes from the pointer: a second look at the
    same changes finds the same.
    """
    wait_s = min(options.retry_s * (1 << min(attempts - 1, _DOUBLINGS_MAX)), options.retry_max_s)
    part = (pointer * 0x9E3779B97F4A7C15 >> 32) % _JITTER_PARTS
    return round(wait_s * 1e6) * (2 * _JITTER_PARTS + part) // (2 * _JITTER_PARTS)
