"""What has happened in a node: an event of the control op `events`, and why it has.

`why` follows the causes of an event through what is known, and makes a sentence of them. Pure;
whoever sent the events, what comes out of here has the types that it is said to have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from poe.errors import RemoteProtocolError

EVENTS_COUNT_MAX: Final = 1000
"""Events in one answer."""
_CHAIN_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """One thing that has happened; what does not apply to its kind has its default."""

    seq: int
    """1 for the first one since the node has started; each has one more than the last."""
    time_us: int
    """Microseconds since the epoch, by the node's clock."""
    kind: str
    """Of a supervised child: child_terminated, restarted, start_error, shutdown_error. Of a
    supervisor that ends: gave_up, auto_shutdown. Others tell of a topic, a group, or who asked."""
    cause_seq: int | None = None
    """The event that led to this one; None: nothing else did, or nobody knows."""
    supervisor: str = ""
    """Its name, or its reference where it has none; who tells, where nobody supervises."""
    child: str = ""
    """Id of the child in its supervisor; or the topic or group."""
    ref: str = ""
    """Of the actor that has ended, or that runs now."""
    reason: str = ""
    """Why it ended or failed, as in the log; no message's payload."""
    together: tuple[str, ...] = ()
    """On the wire `with`: ids of the children restarted at the same time, this one among them."""
    strategy: str = ""
    """By which it was restarted; empty where it started below a supervisor that was restarted."""
    delay_s: float = 0.0
    """How long a back-off has put its restart off."""
    away_s: float | None = None
    """From its end to its restart."""
    generation: int = 0
    """How often this child has been restarted by its present supervisor."""
    intensity: tuple[int, ...] = ()
    """Restarts that counted then, how many are allowed, and in how many seconds."""
    count: int = 1
    """How many ended alike, one after the other."""
    who: str = ""
    """User or address of who asked for it."""

    @classmethod
    def from_map(cls, values: object) -> Self:
        """Check what came; a newer peer may send more.

        Raises:
            RemoteProtocolError: no map, or a field is missing or of a wrong type.
        """
        if not isinstance(values, dict):
            msg = "event is no map"
            raise RemoteProtocolError(msg)
        given = {"together" if name == "with" else name: each for name, each in values.items()}
        found: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in given:
                continue
            value = given[field.name]
            value = tuple(value) if isinstance(value, list) else value
            if not _fits(field.name, value):
                msg = f"event: {field.name} is of a wrong type"
                raise RemoteProtocolError(msg)
            found[field.name] = value
        missing = {"seq", "time_us", "kind"} - found.keys()
        if missing:
            msg = f"event has no {', '.join(sorted(missing))}"
            raise RemoteProtocolError(msg)
        return cls(**found)

    def as_map(self) -> dict[str, Any]:
        """Return what msgpack and JSON can carry."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        together = told.pop("together")
        return {**told, "with": list(together), "intensity": list(self.intensity)}

    def __str__(self) -> str:
        return f"{_what(self)} at {_time(self.time_us)}"


class EventPage(NamedTuple):
    """Events behind a seq."""

    events: list[NodeEvent]
    newest_seq: int
    """Of all there are; 0 before the first one. Less than what was asked behind: the node has
    started anew, and counts from 1."""
    oldest_seq: int
    """Of those that are kept; older ones are forgotten."""

    @classmethod
    def from_map(cls, values: Any) -> Self:  # noqa: ANN401 - checked here
        """Check what came.

        Raises:
            RemoteProtocolError: it is no such page.
        """
        try:
            events = [NodeEvent.from_map(each) for each in values["events"]]
            return cls(events, int(values["newest_seq"]), int(values["oldest_seq"]))
        except (KeyError, TypeError, ValueError) as error:
            msg = "events: the answer is no page of events"
            raise RemoteProtocolError(msg) from error


class Why(NamedTuple):
    """An event, and what led to it."""

    chain: list[NodeEvent]
    """The event first, then each one's cause."""
    is_whole: bool
    """Whether the last one has no cause; else that is forgotten."""

    def __str__(self) -> str:
        last = self.chain[-1]
        told = [_effect(*pair) for pair in zip(self.chain, [*self.chain[1:], None], strict=True)]
        if not self.is_whole:
            told.append(f"of event {last.cause_seq}, which is forgotten")
        return ", because ".join(told)


def why(events: Iterable[NodeEvent], seq: int) -> Why | None:
    """Return what led to an event, by the events that are known; None where it is not one."""
    known: Mapping[int, NodeEvent] = {each.seq: each for each in events}
    event = known.get(seq)
    if event is None:
        return None
    chain = list(_chain(known, event))
    cause = chain[-1].cause_seq
    return Why(chain, cause is None)


def _chain(known: Mapping[int, NodeEvent], event: NodeEvent | None) -> Iterator[NodeEvent]:
    """Yield an event and its causes, each of which is older: who sends others is not followed."""
    for _ in range(_CHAIN_MAX):
        if event is None:
            return
        yield event
        cause = event.cause_seq
        event = known.get(cause) if cause is not None and cause < event.seq else None


def _effect(event: NodeEvent, cause: NodeEvent | None) -> str:
    """Return a sentence of an event, and of how it follows from its cause."""
    told = [str(event)]
    if event.kind == "restarted":
        others = [each for each in event.together if each != event.child]
        if cause is not None and cause.supervisor != event.supervisor:
            told.append("(with its supervisor)")
        elif others:
            told.append(f"({event.strategy}, together with {', '.join(map(repr, others))})")
        elif event.strategy:
            told.append(f"({event.strategy})")
        if event.away_s is not None:
            told.append(f"after {event.away_s:.3f} s")
        if event.delay_s:
            told.append(f"of which {event.delay_s:.3f} s were back-off")
    return " ".join(told)


def _what(event: NodeEvent) -> str:
    make = _SENTENCES.get(event.kind)
    if make is not None:
        return make(event)
    parts = [event.kind, repr(event.child) if event.child else ""]
    parts += [f"({event.reason})" if event.reason else ""]
    parts += [f"by {event.who}" if event.who else ""]
    return " ".join(filter(None, parts))


def _ended(event: NodeEvent) -> str:
    times = f", {event.count} of them," if event.count > 1 else ""
    return f"{_child(event)} ended{times} with {event.reason}"


def _gave_up(event: NodeEvent) -> str:
    used, allowed, period_s = (*event.intensity, 0, 0, 0)[:3]
    return f"{event.supervisor} gave up (restart {used} within {period_s} s, {allowed} allowed)"


def _child(event: NodeEvent) -> str:
    return f"{event.child!r} of {event.supervisor}"


_SENTENCES: Final[dict[str, Callable[[NodeEvent], str]]] = {
    "restarted": lambda event: f"{_child(event)} restarted",
    "child_terminated": _ended,
    "start_error": lambda event: f"{_child(event)} did not start ({event.reason})",
    "shutdown_error": lambda event: f"{_child(event)} did not stop as it should ({event.reason})",
    "gave_up": _gave_up,
    "auto_shutdown": lambda event: (
        f"{event.supervisor} ended as its significant child {event.child!r} had"
    ),
}


def _time(us: int) -> str:
    try:
        at = datetime.fromtimestamp(us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{us} us"
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


_WHOLE: Final = frozenset({"seq", "time_us", "generation", "count"})
_NUMBERS: Final = frozenset({"delay_s", "away_s"})


def _fits(name: str, value: object) -> bool:
    if name in _WHOLE:
        return type(value) is int
    if name == "cause_seq":
        return value is None or type(value) is int
    if name in _NUMBERS:
        return type(value) in {int, float} or (value is None and name == "away_s")
    if name in {"together", "intensity"}:
        kind = str if name == "together" else int
        return isinstance(value, tuple) and all(type(each) is kind for each in value)
    return isinstance(value, str)
