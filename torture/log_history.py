"""What clients of replicated topics did and saw, and what the nodes have of them in the end.

The schedules of `torture/faults/log.py` make it, and `torture/log_rules.py` judges it. Messages
differ from each other, so that each is known wherever it turns up.

In a file each line is a row, a map of JSON: a put with its tries, a read, a copy, records that a
copy holds (`held`, some hundreds a row, behind so many others), and what else there is. Messages
are text there, a character a byte.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

Outcome = Literal["acked", "refused", "doubt", "unanswered", "wrong"]
"""What a client was told: `wrong` is an answer that nobody should get."""

Row = Mapping[str, Any]
"""A line of a file."""
HELD_MAX = 500
"""Records of a row."""

Record = tuple[int, bytes]
"""A pointer, and the message there."""


@dataclass(slots=True)
class Try:
    """A put as it was asked of one node."""

    node: str
    asked_us: int
    outcome: Outcome = "unanswered"
    pointer: int = 0
    """Of its last message, where it was acknowledged."""
    answered_us: float = math.inf
    why: str = ""


@dataclass(slots=True, eq=False)
class Put:
    """Messages that a client has put, as often as it took it to be told that they are stored."""

    topic: str
    client: str
    number: int
    """Counts those of its client, which puts in this order."""
    messages: tuple[bytes, ...]
    is_sequenced: bool
    tries: list[Try] = field(default_factory=list)

    @property
    def acks(self) -> list[Try]:
        """Return the tries that were acknowledged."""
        return [each for each in self.tries if each.outcome == "acked"]

    @property
    def acked(self) -> Try | None:
        """Return the first of these, if there is one."""
        return next(iter(self.acks), None)

    @property
    def is_refused(self) -> bool:
        """Return whether all tries were."""
        return all(each.outcome == "refused" for each in self.tries)

    @property
    def began_us(self) -> int:
        """Return when it was asked first."""
        return self.tries[0].asked_us

    def __repr__(self) -> str:
        """Return what it is and what became of it."""
        tries = ", ".join(f"{each.node}@{each.asked_us} {each.outcome}" for each in self.tries)
        return f"put {self.number} of {self.client} onto {self.topic} ({tries})"


class Read(NamedTuple):
    """What a node answered when it was asked for what lies behind a pointer."""

    node: str
    topic: str
    at_us: int
    after: int
    end: int
    """Up to there it is all that the node has told of."""
    records: tuple[Record, ...]


class Trimmed(NamedTuple):
    """Somebody has asked to trim a topic, and may have been heard."""

    topic: str
    pointer: int


class Change(NamedTuple):
    """A topic was deleted, or that was asked for."""

    topic: str
    ended_us: float
    """When that was answered; infinite: never."""


class Copy(NamedTuple):
    """What a node has of a topic when all is over."""

    node: str
    topic: str
    first_ordinal: int
    records: tuple[Record, ...]
    files: Mapping[str, str]
    """What its data files hash to, by their names."""


class Stuck(NamedTuple):
    """What was not over long after all had healed."""

    what: str


@dataclass(slots=True)
class LogHistory:
    """All of it."""

    puts: list[Put] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    trims: list[Trimmed] = field(default_factory=list)
    deletes: list[Change] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    shrinking: set[str] = field(default_factory=set)
    """Topics that let go of their oldest segments by themselves."""

    def judged(self) -> "Judged":
        """Return what rules ask for."""
        return Judged(self)


class Judged:
    """A history, and what is asked of it more than once."""

    def __init__(self, history: LogHistory) -> None:
        self.history = history

    @cached_property
    def since_us(self) -> Mapping[str, float]:
        """Return, by topic, since when it is the one that there is in the end."""
        since: dict[str, float] = defaultdict(lambda: -math.inf)
        for each in self.history.deletes:
            since[each.topic] = max(since[each.topic], each.ended_us)
        return since

    @cached_property
    def puts(self) -> list[Put]:
        """Return the puts onto the topics that there are in the end."""
        return [each for each in self.history.puts if each.began_us > self.since_us[each.topic]]

    @cached_property
    def reads(self) -> list[Read]:
        """Return the reads of these."""
        return [each for each in self.history.reads if each.at_us > self.since_us[each.topic]]

    @cached_property
    def trimmed(self) -> Mapping[str, int]:
        """Return, by topic, up to which pointer it may be gone."""
        trimmed: dict[str, int] = defaultdict(int)
        for each in self.history.trims:
            trimmed[each.topic] = max(trimmed[each.topic], each.pointer)
        for copy in self.history.copies:
            if copy.topic in self.history.shrinking:
                first = copy.records[0][0] if copy.records else 0
                trimmed[copy.topic] = max(trimmed[copy.topic], first - 1)
        return trimmed

    @cached_property
    def seen(self) -> Mapping[str, Mapping[bytes, frozenset[int]]]:
        """Return, by topic, where each message was seen, in reads and copies."""
        seen: dict[str, dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
        for topic, (pointer, message) in self.records():
            seen[topic][message].add(pointer)
        return {
            topic: {message: frozenset(at) for message, at in found.items()}
            for topic, found in seen.items()
        }

    def records(self) -> Iterator[tuple[str, Record]]:
        """Yield all records that were seen, with their topics."""
        for read in self.reads:
            for record in read.records:
                yield read.topic, record
        for copy in self.history.copies:
            for record in copy.records:
                yield copy.topic, record

    def places(self, topic: str, message: bytes) -> frozenset[int]:
        """Return where a message was seen."""
        return self.seen.get(topic, {}).get(message, frozenset())


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file."""
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Read a file."""
    with path.open() as file:
        return [json.loads(line) for line in file]


def to_rows(history: LogHistory) -> Iterator[Row]:
    """Yield a history as rows."""
    for put in history.puts:
        tries = [asdict(each) | {"answered_us": _finite(each.answered_us)} for each in put.tries]
        messages = list(map(_text, put.messages))
        yield {
            "kind": "put", "topic": put.topic, "client": put.client, "number": put.number,
            "is_sequenced": put.is_sequenced, "messages": messages, "tries": tries,
        }  # fmt: skip
    for read in history.reads:
        yield {"kind": "read", **read._asdict(), "records": _told(read.records)}
    for each in history.trims:
        yield {"kind": "trim", **each._asdict()}
    for change in history.deletes:
        yield {"kind": "delete", "topic": change.topic, "ended_us": _finite(change.ended_us)}
    for copy in history.copies:
        place = {"node": copy.node, "topic": copy.topic}
        first, files = copy.first_ordinal, dict(copy.files)
        yield {"kind": "copy", **place, "first_ordinal": first, "files": files}
        for begin in range(0, len(copy.records), HELD_MAX):
            records = _told(copy.records[begin : begin + HELD_MAX])
            yield {"kind": "held", **place, "begin": begin, "records": records}
    for stuck in history.stuck:
        yield {"kind": "stuck", "what": stuck.what}
    for topic in sorted(history.shrinking):
        yield {"kind": "shrinking", "topic": topic}


def from_rows(rows: Iterable[Row]) -> LogHistory:
    """Return the history that rows tell, in whatever order."""
    history = LogHistory()
    found: list[Row] = []
    held: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        match row["kind"]:
            case "copy":
                found.append(row)
            case "held":
                held[row["node"], row["topic"]].append(row)
            case _:
                _add(history, row)
    for row in found:
        node, topic, first = row["node"], row["topic"], row["first_ordinal"]
        parts = sorted(held[node, topic], key=itemgetter("begin"))
        records = tuple(record for part in parts for record in _records(part))
        history.copies.append(Copy(node, topic, first, records, dict(row["files"])))
    return history


def _add(history: LogHistory, row: Row) -> None:
    """Add what a row tells, which is of no copy."""
    match row["kind"]:
        case "put":
            messages = tuple(map(_bytes, row["messages"]))
            put = row["topic"], row["client"], row["number"], messages, row["is_sequenced"]
            history.puts.append(Put(*put, list(map(_try, row["tries"]))))
        case "read":
            read = row["node"], row["topic"], row["at_us"], row["after"], row["end"]
            history.reads.append(Read(*read, tuple(_records(row))))
        case "trim":
            history.trims.append(Trimmed(row["topic"], row["pointer"]))
        case "delete":
            history.deletes.append(Change(row["topic"], _known(row["ended_us"])))
        case "stuck":
            history.stuck.append(Stuck(row["what"]))
        case "shrinking":
            history.shrinking.add(row["topic"])


def _try(row: Row) -> Try:
    return Try(**{**row, "answered_us": _known(row["answered_us"])})


def _finite(time_us: float) -> float | None:
    return None if math.isinf(time_us) else time_us


def _known(time_us: float | None) -> float:
    return math.inf if time_us is None else time_us


def _text(message: bytes) -> str:
    return message.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _told(records: Iterable[Record]) -> list[Row]:
    return [{"pointer": pointer, "message": _text(message)} for pointer, message in records]


def _records(row: Row) -> Iterator[Record]:
    return ((each["pointer"], _bytes(each["message"])) for each in row["records"])
