"""What has happened in an actor system lately, and what led to it: a ring of events, newest last.

Supervisors tell it of ends and restarts (`chronicle.py`), and others of what they have to tell. An
event is a map of plain values, so that it may go to another process as it is: `poe.protocol` says
what is in it, and `poe.protocol.why` makes a sentence of where it came from.

Pure: it reads no clock but the one it is given, and waits for nothing.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, TypeAlias

EVENTS_MAX: Final = 10_000
BYTES_MAX: Final = 4 * 1024 * 1024
"""Of all events together, by `_size`: with texts of usual length there is room for all 10 000."""
TEXT_MAX: Final = 500
"""Characters of one text, be it a reason or the id of a child."""
TOGETHER_MAX: Final = 50
"""Ids that are named of those restarted together."""
_ENDS_MAX: Final = 2000
"""Ends of actors of which is known which event tells why."""
_EVENT_BYTES: Final = 200

EventMap: TypeAlias = dict[str, Any]
"""One event; `poe.protocol.NodeEvent` has its fields."""


class EventRing:
    """The newest events of one actor system.

    Always:

        events kept <= EVENTS_MAX, their bytes <= BYTES_MAX
        seq of the events kept are consecutive; 1 is the first one ever

    An event is never changed, but for `count` of the newest one. It belongs to the thread that runs
    actors; others look at it while no actor runs.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        """Begin without any; `now_us` tells the time as microseconds since the epoch."""
        self.now_us = now_us
        self._events: deque[EventMap] = deque()
        self._size_bytes = 0
        self._ends: OrderedDict[str, int] = OrderedDict()
        self._starts: dict[str, int | None] = {}
        self._failed_starts: dict[str, int] = {}
        self.restarts_count = 0
        """How many events told of a restart."""
        self.newest_seq = 0
        """Of the newest event; 0 before the first one."""
        self.when_added: Callable[[], object] = _nothing
        """Called after each event; must not wait."""

    def add(self, kind: str, *, cause_seq: int | None = None, **fields: Any) -> int:  # noqa: ANN401 - plain values
        """Add an event and return its seq; texts are cut to `TEXT_MAX` characters."""
        self.newest_seq += 1
        event: EventMap = {
            "seq": self.newest_seq,
            "time_us": self.now_us(),
            "kind": kind,
            "cause_seq": cause_seq,
            **{name: _short(value) for name, value in fields.items()},
        }
        if kind == "restarted":
            self.restarts_count += 1
        self._events.append(event)
        self._size_bytes += _size(event)
        while len(self._events) > EVENTS_MAX or self._size_bytes > BYTES_MAX:
            self._size_bytes -= _size(self._events.popleft())
        self.when_added()
        return self.newest_seq

    def add_alike(self, kind: str, **fields: Any) -> int:  # noqa: ANN401 - as `add`
        """Add an event, or count it to the newest one where that tells the same, but for `ref`.

        A crash that takes ten thousand actors with it does not drive out all that was before.
        """
        newest = self._events[-1] if self._events else {}
        same = {"kind": kind, **fields, "ref": newest.get("ref")}
        if all(newest.get(name) == _short(value) for name, value in same.items()):
            newest["count"] = newest.get("count", 1) + 1
            return self.newest_seq
        return self.add(kind, **fields)

    def after(self, seq: int, limit: int) -> list[EventMap]:
        """Return the events behind a seq, oldest first, `limit` at most; less those forgotten."""
        oldest = self._events[0]["seq"] if self._events else 1
        begin = min(max(seq + 1 - oldest, 0), len(self._events))
        return list(islice(self._events, begin, begin + limit))

    def ended(self, ref: str, seq: int) -> None:
        """Note which event tells why an actor has ended, or is about to end."""
        self._ends[ref] = seq
        self._ends.move_to_end(ref)
        if len(self._ends) > _ENDS_MAX:
            self._ends.popitem(last=False)

    def end_of(self, ref: str) -> int | None:
        """Return the event that tells why an actor has ended; None where nobody has told."""
        return self._ends.get(ref)

    def begin_start(self, supervisor: str, cause_seq: int | None) -> None:
        """Note why a supervisor starts children from now on: whoever starts below it asks."""
        self._starts[supervisor] = cause_seq

    def end_start(self, supervisor: str) -> None:
        """Note that it has started them."""
        self._starts.pop(supervisor, None)

    def cause_of_start(self, supervisor: str | None) -> int | None:
        """Return why a supervisor starts children at present; None: nothing had ended."""
        return None if supervisor is None else self._starts.get(supervisor)

    def start_failed(self, supervisor: str, seq: int) -> None:
        """Note for a supervisor which event tells why the start of its child is about to fail.

        Only while it starts children by itself. Whoever has asked for a start hears of its failure
        by the answer, and a note that nobody takes would be taken for the cause of a later one.
        """
        if supervisor in self._starts:
            self._failed_starts[supervisor] = seq

    def cause_of_failed_start(self, supervisor: str) -> int | None:
        """Return what was noted for a supervisor, and forget it."""
        return self._failed_starts.pop(supervisor, None)


def _nothing() -> None:
    """Do nothing."""


def _short(value: Any) -> Any:  # noqa: ANN401 - any plain value
    if isinstance(value, str | bytes):
        return value[:TEXT_MAX]
    return [_short(each) for each in value[:TOGETHER_MAX]] if isinstance(value, list) else value


def _size(event: EventMap) -> int:
    """Return roughly how many bytes an event takes; it never depends on `count`."""
    return _EVENT_BYTES + sum(map(_value_size, event.values()))


def _value_size(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_value_size, value))
    return 4 * len(value) if isinstance(value, str | bytes) else 8
