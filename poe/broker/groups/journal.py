"""What a group has done: its generation, the changes that are to be written, and what to tell.

Whoever changes a group notes it here in the same step, so that what is written is what was done.
"""

from collections import deque
from typing import Any, Final, NamedTuple

EVENTS_COUNT_MAX: Final = 200

_FIRST_LIFE_US = 1_767_225_600_000_000
"""From 1970 to the begin of 2026."""


def seconds(now_us: int) -> int:
    """Return the seconds since 2026; 0 before."""
    return generation_at(now_us) // 1_000_000


def generation_at(now_us: int) -> int:
    """Return the generation that a life begins behind at a time: the microseconds since 2026."""
    return max(0, now_us - _FIRST_LIFE_US)


class GroupEvent(NamedTuple):
    """One thing that happened to a group, and why."""

    time_us: int
    kind: str
    text: str


class Journal:
    """The notes of one group.

    Always: `generation` grows, and is durable with the changes: it is the last one among them.
    """

    __slots__ = ("_changes", "events", "generation", "life_us", "taken_count", "told_count")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.life_us = 0
        """When the group was made, or taken up by the last start."""
        self._changes: list[list[Any]] = []
        self.taken_count = 0
        """How many changes were taken, in all lives; of the others none is durable."""
        self.events: deque[GroupEvent] = deque(maxlen=EVENTS_COUNT_MAX)
        self.told_count = 0

    def advance(self) -> int:
        """Begin the next generation, and return it."""
        self.generation += 1
        self._changes.append(["generation", self.generation])
        return self.generation

    def begin_life(self, now_us: int) -> None:
        """Begin a generation that is greater than all before, even those that a power cut took.

        What is flushed but not synced may be gone, and with it generations that members still
        know. So a start counts the microseconds since 2026, too: to begin a generation takes longer
        than one, so none is ahead of the time.
        """
        self.generation = max(self.generation, generation_at(now_us))
        self.life_us = now_us
        self.advance()

    def note(self, change: list[Any]) -> None:
        """Have a change written."""
        self._changes.append(change)

    def note_done(self, unit: bytes, after: int, last: int) -> None:
        """Have it written that a range is done; one that follows another makes it longer.

        A change is `["done", unit, after, last, after, last, …]`.
        """
        if self._changes:
            newest = self._changes[-1]
            if newest[0] == "done" and newest[1] == unit:
                if newest[-1] == after:
                    newest[-1] = last
                else:
                    newest += (after, last)
                return
        self._changes.append(["done", unit, after, last])

    def take_changes(self) -> list[list[Any]]:
        """Return what is to be written, and forget it."""
        changes = self._changes
        self._changes = []
        self.taken_count += len(changes)
        return changes

    def tell(self, now_us: int, kind: str, text: str) -> GroupEvent:
        """Keep an event, as long as it is among the last ones."""
        event = GroupEvent(now_us, kind, text)
        self.events.append(event)
        self.told_count += 1
        return event

    def since(self, told_count: int) -> list[GroupEvent]:
        """Return the events that were told since there were so many, as far as they are kept."""
        count = min(self.told_count - told_count, len(self.events))
        return list(self.events)[len(self.events) - count :]
