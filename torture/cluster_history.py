"""What clients of a cluster did, and what happened to its nodes: one event each, a line of JSON.

Simulated clusters, real processes and Spark write and read the same events, and the same rules
(`torture/cluster_rules.py`) judge them. A message goes by the name that its body begins with and a
sum of the whole body, so that an altered one is known as such, wherever it turns up.

A history is what was seen from outside: what clients asked and were answered, and what was done to
nodes. What the simulated cluster sees besides (`stored`, `down`) makes rules sharper, and may lack.
"""

import json
import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

Kind = Literal[
    "queue",  # made with `wanted` copies; it keeps `made` messages, `size_bytes` at most on a node
    "put",  # `client` asks `node` to keep `messages` on `queue`, in `wanted` copies
    "answered",  # what the put `op` was answered: `state`, `made` copies
    "stored",  # `node` keeps a copy of `messages`; `made`, `size_bytes`: all that it keeps then
    "dropped",  # `node` drops `messages` undone, by its watermark, and says so
    "down",  # `node` has been told that the life `made` of the node in `peers` is over
    "group",  # `client` makes `group` at `node`; `state`: its delivery, or that it is deleted
    "pause",  # somebody pauses `group` at `node`, or has it go on, as `state` says
    "handed",  # `node` hands `messages` to `client`; `state` "lost": the answer is never heard
    "untold",  # `node` ends, or its queue, while `client` waits for messages that it may have got
    "undelivered",  # `node` learns that `messages`, which it has handed out, came to nobody
    "ack",  # `client` says at `node` that `messages` are done
    "acked",  # ... and was answered that they are
    "unheld",  # ... or that it does not hold them any more
    "dead",  # `messages` have become dead letters of `group`
    "report",  # `node` names `messages` of `group` in its report; `state`: certain, may or again
    "state",  # `node` has come to `text`, `op` counts the times that all are compared
    "kept",  # `node` keeps so much when all is done: `made`, `size_bytes`
    "start",  # `node` begins a new life; `peers`: other nodes, whose folders are copies of its own
    "kill",  # a life of `node` ends; `state`: what it had is "lost", or "kept" on its disk
    "crash",  # the queue of `node` forgets what it knows, but for its copies
    "forget",  # all are told to forget `node`; what it had is lost
    "fault",  # `text` begins: a cut, a freeze, a lossy network; `op` is its number
    "heal",  # ... and ends
    "jump",  # a clock jumps
]

Lost = tuple[int, str, int]
"""When a node lost what it had, which node, and which life of it."""

GroupName = tuple[str, str]
"""A queue, and a group of it."""


class Event(NamedTuple):
    """One line of a history. What a kind has no word for is empty."""

    at_us: int
    """Of one clock for the whole history."""
    kind: Kind
    node: str = ""
    life: int = 0
    """Which life of the node, as its epoch."""
    client: str = ""
    queue: str = ""
    group: str = ""
    op: int = 0
    """A number that joins what was asked with what was answered."""
    messages: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    state: str = ""
    wanted: int = 0
    made: int = 0
    size_bytes: int = 0
    text: str = ""

    def to_json(self) -> str:
        """Return the line, without what is empty."""
        return json.dumps({name: value for name, value in self._asdict().items() if value})

    @classmethod
    def from_json(cls, line: str) -> "Event":
        """Parse a line."""
        fields: dict[str, Any] = json.loads(line)
        for name in ("messages", "peers"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**{"at_us": 0, **fields})


def make_body(name: str, size_bytes: int = 0) -> bytes:
    """Return a body of at least so many bytes, which begins with a name of letters and digits."""
    return f"{name} ".encode().ljust(size_bytes, b".")


def message_of(body: bytes) -> str:
    """Return the name of a message, and the sum of its body."""
    name, _, _ = body.partition(b" ")
    return f"{name.decode(errors='replace')[:80]}#{zlib.crc32(body):08x}"


class HistoryFile:
    """Events as lines of a file, written at once, so that a process may be killed between two."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", buffering=1)

    def add(self, event: Event) -> None:
        """Write an event."""
        self._file.write(event.to_json() + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(paths: Iterable[Path]) -> "History":
    """Read the files of all processes; a line that a kill has cut off is left out."""
    lines = (line for path in paths for line in path.read_text().splitlines(keepends=True))
    return History([Event.from_json(line) for line in lines if line.endswith("\n")])


class Put(NamedTuple):
    """A put, and what it was answered; None: nothing was heard."""

    asked: Event
    answered: Event | None

    @property
    def promised(self) -> int:
        """Return of how many copies its client was told."""
        answered = self.answered
        return answered.made if answered and answered.state in {"ok", "under"} else 0


class History:
    """Events in the order of time, and what is asked of them."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = sorted(events, key=lambda event: event.at_us)
        self._by_kind: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            self._by_kind[event.kind].append(event)

    def of(self, kind: Kind) -> list[Event]:
        """Return the events of a kind."""
        return self._by_kind.get(kind, [])

    @cached_property
    def puts(self) -> list[Put]:
        """All puts, in the order in which they were asked."""
        answers = {event.op: event for event in self.of("answered")}
        return [Put(asked, answers.get(asked.op)) for asked in self.of("put")]

    @cached_property
    def put_of(self) -> dict[str, Put]:
        """The put of each message."""
        return {message: put for put in self.puts for message in put.asked.messages}

    @cached_property
    def groups(self) -> dict[GroupName, Event]:
        """The groups, and how each was made first."""
        found: dict[GroupName, Event] = {}
        for event in self.of("group"):
            found.setdefault((event.queue, event.group), event)
        return found

    @cached_property
    def deleted(self) -> set[GroupName]:
        """The groups that somebody has deleted."""
        return {(each.queue, each.group) for each in self.of("group") if each.state == "deleted"}

    def by_message(self, *kinds: Kind) -> dict[tuple[GroupName, str], list[Event]]:
        """Return the events of some kinds for each group and message."""
        found: dict[tuple[GroupName, str], list[Event]] = defaultdict(list)
        for kind in kinds:
            for event in self.of(kind):
                name = (event.queue, event.group)
                for message in event.messages:
                    found[name, message].append(event)
        return found

    @cached_property
    def stored(self) -> dict[str, list[Event]]:
        """Who has kept a copy of each message, in the order of time."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.of("stored"):
            for message in event.messages:
                found[message].append(event)
        return found

    @cached_property
    def servers(self) -> dict[GroupName, set[tuple[str, int]]]:
        """The lives of nodes that have handed out messages of each group, or were about to."""
        found: dict[GroupName, set[tuple[str, int]]] = defaultdict(set)
        for event in [*self.of("handed"), *self.of("untold")]:
            found[event.queue, event.group].add((event.node, event.life))
        return found

    @cached_property
    def copies(self) -> dict[str, int]:
        """How many copies each queue has, and restores."""
        return {event.queue: event.wanted for event in self.of("queue")}

    @cached_property
    def crowded(self) -> set[str]:
        """The queues of which a node has kept so much that there was no room for as much more."""
        limits = {event.queue: event.size_bytes for event in self.of("queue")}
        return {
            event.queue
            for event in self.of("stored")
            if event.queue in limits and 2 * event.size_bytes > limits[event.queue]
        }

    @cached_property
    def losses(self) -> list[Lost]:
        """When which node lost what it had."""
        return [
            (event.at_us, event.node, event.life)
            for event in self.events
            if event.kind == "forget" or (event.kind == "kill" and event.state != "kept")
        ]

    @cached_property
    def calms(self) -> list[tuple[int, int]]:
        """The times during which nothing happened to any node, and all heard each other."""
        calms, faults, since_us = [], set[int](), 0
        for event in self.events:
            match event.kind:
                case "fault":
                    faults.add(event.op)
                case "heal":
                    faults.discard(event.op)
                case "kill" | "start" | "crash" | "forget" | "jump":
                    pass
                case _:
                    continue
            if since_us >= 0:
                calms.append((since_us, event.at_us))
            since_us = -1 if faults else event.at_us
        if since_us >= 0 and self.events:
            calms.append((since_us, self.events[-1].at_us))
        return calms

    @cached_property
    def _lives(self) -> tuple[list[int], list[int]]:
        """Times, and how many nodes live from then on."""
        times, counts, live = [], [], set[str]()
        for event in self.events:
            if event.kind == "start":
                live.add(event.node)
            elif event.kind in {"kill", "forget"}:
                live.discard(event.node)
            else:
                continue
            times.append(event.at_us)
            counts.append(len(live))
        return times, counts

    def live_count(self, at_us: int) -> int:
        """Return how many nodes live at a time."""
        times, counts = self._lives
        at = bisect_right(times, at_us)
        return counts[at - 1] if at else 0

    @cached_property
    def forgettings(self) -> dict[tuple[str, int], list[int]]:
        """When what a life of a node had seen itself was lost: the disk too, or its queue crashed.

        A later life may have lost what an earlier one had left on the disk.
        """
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for at_us, node, life in self.losses:
            for each in {(node, life), *self.lives}:
                if each[0] == node and each[1] <= life:
                    found[each].append(at_us)
        for event in self.of("crash"):
            found[event.node, event.life].append(event.at_us)
        return found

    @cached_property
    def lives(self) -> dict[tuple[str, int], tuple[int, int]]:
        """When each life of a node began and ended."""
        end_us = self.events[-1].at_us + 1
        lives = {(each.node, each.life): (each.at_us, end_us) for each in self.of("start")}
        for event in self.events:
            if event.kind in {"kill", "forget"} and (event.node, event.life) in lives:
                life = event.node, event.life
                lives[life] = lives[life][0], min(event.at_us, lives[life][1])
        return lives

    def began_us(self, node: str, life: int) -> int:
        """Return when a life of a node began; 0 where that was not seen."""
        return self.lives.get((node, life), (0, 0))[0]

    def hears_since_us(self, node: str, life: int) -> int:
        """Return since when a life of a node hears what others know: it began, or has crashed."""
        crashes = [
            each.at_us for each in self.of("crash") if (each.node, each.life) == (node, life)
        ]
        return max([self.began_us(node, life), *crashes])

    def lost_us(self, message: str) -> float:
        """Return when the last of those that held a message has lost its disk, or was forgotten."""
        losses = [
            [at_us for at_us, node, life in self.losses if node == each.node and life >= each.life]
            for each in self.stored.get(message, ())
        ]
        return max([min(each, default=math.inf) for each in losses], default=math.inf)

    def over_us(self, node: str, life: int) -> int | None:
        """Return when others could know that a life was over for good; None: never.

        That is when the node began another one, or a copy of its folder did; or it was forgotten.
        """
        begun_us = self.began_us(node, life)
        ends = [
            each.at_us
            for each in (*self.of("start"), *self.of("forget"))
            if (each.node == node and (each.life > life or each.kind == "forget"))
            or (each.kind == "start" and node in each.peers and each.at_us > begun_us)
        ]
        return min(ends, default=None)

    @cached_property
    def done_us(self) -> dict[tuple[GroupName, str], int]:
        """When each message was done in each group for the first time, as far as was said."""
        return {name: events[0].at_us for name, events in self.by_message("ack", "dead").items()}

    def knowers(self, event: Event, at_us: int, agreed_us: int) -> set[tuple[str, int]]:
        """Return which lives of nodes must know at a time what happened at a node.

        That node knows it at once, and as long as its disk does; and who was there during a calm of
        `agreed_us`, if one of them had known it: until its end, for nobody writes what it was told.
        Each of them until a crash of the queue.
        """
        witness, told, since_us = {(event.node, event.life)}, set[tuple[str, int]](), event.at_us
        at = bisect_right(self.calms, event.at_us, key=lambda calm: calm[1])
        for begin_us, end_us in self.calms[at:]:
            begun_us = max(begin_us, event.at_us)
            told_us = begun_us + agreed_us
            if told_us > min(end_us, at_us):
                if begun_us > at_us:
                    break
                continue
            if self._remembering(witness, event.at_us, told_us) or self._remembering(
                told & self._there(since_us, told_us), since_us, told_us
            ):
                told, since_us = self._there(begun_us, told_us), told_us
        return self._remembering(witness, event.at_us, at_us) | self._remembering(
            told & self._there(since_us, at_us), since_us, at_us
        )

    def _there(self, from_us: int, to_us: int) -> set[tuple[str, int]]:
        """Return the lives of nodes that were there all the time."""
        return {
            life for life, (began, end) in self.lives.items() if began <= from_us and to_us < end
        }

    def _remembering(
        self, lives: set[tuple[str, int]], since_us: int, until_us: int
    ) -> set[tuple[str, int]]:
        """Return the lives of nodes that have not forgotten anything between two times."""
        return {
            life
            for life in lives
            if not any(since_us <= at_us <= until_us for at_us in self.forgettings.get(life, ()))
        }

    def calm_end_us(self, from_us: int, long_us: int) -> int | None:
        """Return when the first calm after a time has lasted for so long; None: none has."""
        at = bisect_right(self.calms, from_us, key=lambda calm: calm[1])
        for begin_us, end_us in self.calms[at:]:
            begun_us = max(begin_us, from_us)
            if end_us - begun_us >= long_us:
                return begun_us + long_us
        return None

    def has_calm(self, from_us: int, to_us: int, long_us: int) -> bool:
        """Return whether a calm of so long lies between two times."""
        end_us = self.calm_end_us(from_us, long_us)
        return end_us is not None and end_us <= to_us
