"""An engine of the replicated log in memory: what several nodes agree on, without a network.

`SimulatedLog` is what the engines of all nodes are together, `SimulatedEngine` that of one node. It
does what a real one promises, and fails as one fails: nodes are cut off, acknowledgements get lost,
streams forget. By default everything is told at once; with `is_stepped` it waits in queues, one a
node, until `step` has it told in an order that a seed decides.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from poe.cluster.log.engine import (
    CatalogChanged,
    Connected,
    Disconnected,
    EngineEvent,
    EngineState,
    Entries,
    Entry,
    Forgotten,
    Lost,
    NotStored,
    PeerAsked,
    Stored,
    StreamState,
)
from poe.errors import CatalogChangedMeanwhile, NoQuorum, PoeError, TooFewNodes, UnknownStream


@dataclass(slots=True)
class _Stream:
    replicas: int
    bytes_max: int
    entries: list[Entry] = field(default_factory=list)
    first_place: int = 1
    places: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0

    @property
    def last_place(self) -> int:
        return self.first_place + len(self.entries) - 1

    def append(self, entry_id: str, time_us: int, payload: bytes) -> int:
        known = self.places.get(entry_id)
        if known is not None:
            return known
        newest_us = self.entries[-1].time_us if self.entries else 0
        place = self.last_place + 1
        self.entries.append(Entry(place, max(time_us, newest_us), bytes(payload)))
        self.places[entry_id] = place
        self.size_bytes += len(payload)
        while self.size_bytes > self.bytes_max and len(self.entries) > 1:
            self.forget_to(self.first_place)
        return place

    def forget_to(self, place: int) -> None:
        """Forget the entries up to a place."""
        while self.entries and self.entries[0].place <= place:
            self.size_bytes -= len(self.entries.pop(0).payload)
            self.first_place += 1


class SimulatedLog:
    """What the engines of some nodes agree on; `now_us` is their clock."""

    def __init__(
        self, names: list[str], now_us: Callable[[], int], *, is_stepped: bool = False
    ) -> None:
        self.names = list(names)
        self.now_us = now_us
        self.streams: dict[str, _Stream] = {}
        self.catalog: dict[str, tuple[bytes, int]] = {}
        self.revision = 0
        self.acks_to_lose = 0
        """So many of the next acknowledgements are lost: it is stored, and nobody is told."""
        self.is_leaderless = False
        """Whether an election is under way: nothing is agreed on meanwhile."""
        self._is_stepped = is_stepped
        self._cut: set[str] = set()
        self._engines: dict[str, SimulatedEngine] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {name: deque() for name in names}

    def engine(self, name: str) -> "SimulatedEngine":
        """Return the engine of a node, which begins with nothing under way."""
        return SimulatedEngine(self, name)

    def cut(self, name: str) -> None:
        """Cut a node's engine off from the others."""
        self._cut.add(name)

    def heal(self, name: str) -> None:
        """Have it reach the others again; it gets what it has missed."""
        self._cut.discard(name)
        engine = self._engines.get(name)
        if engine is not None:
            engine.catch_up()

    def step(self, dice: random.Random) -> bool:
        """Tell one thing that waits; returns whether there was any."""
        names = [name for name, waiting in self._waiting.items() if waiting]
        if not names:
            return False
        self._waiting[dice.choice(names)].popleft()()
        return True

    def agrees(self, name: str) -> bool:
        """Return whether a node is one of a majority that agrees on things."""
        there = [each for each in self.names if each not in self._cut]
        return name in there and not self.is_leaderless and 2 * len(there) > len(self.names)

    def reached(self, name: str) -> dict[str, bool]:
        """Return which nodes there are, and whether one reaches them."""
        return {
            each: each == name or (each not in self._cut and name not in self._cut)
            for each in self.names
        }

    def tell(self, name: str, told: Callable[[], None]) -> None:
        """Have a node be told something, now or at a later step."""
        if self._is_stepped:
            self._waiting[name].append(told)
        else:
            told()

    def joined(self, engine: "SimulatedEngine") -> None:
        """Count an engine as that of its node."""
        self._engines[engine.name] = engine

    def left(self, engine: "SimulatedEngine") -> None:
        """Count it so no more."""
        if self._engines.get(engine.name) is engine:
            del self._engines[engine.name]

    def spread(self, stream: str | None = None) -> None:
        """Have all nodes that are reached hear what is new."""
        for engine in list(self._engines.values()):
            if engine.name not in self._cut:
                engine.catch_up(stream)

    def find(self, name: str) -> "SimulatedEngine | None":
        """Return the engine of a node that runs."""
        return self._engines.get(name)


class SimulatedEngine:
    """A `LogEngine` of one node of a `SimulatedLog`."""

    def __init__(self, log: SimulatedLog, name: str) -> None:
        self._log = log
        self._name = name
        self._hear: Callable[[EngineEvent], None] | None = None
        self._followed: dict[str, tuple[int, int]] = {}
        self._seen_revision = 0

    @property
    def name(self) -> str:
        """Name of its node."""
        return self._name

    def open(self, hear: Callable[[EngineEvent], None]) -> None:
        """Begin."""
        self._hear = hear
        self._log.joined(self)
        self._tell(Connected("simulated"))
        self.catch_up()

    def close(self) -> None:
        """Leave."""
        self._hear = None
        self._followed.clear()
        self._log.left(self)

    def _tell(self, event: EngineEvent) -> None:
        self._log.tell(self.name, partial(self._deliver, event))

    def _deliver(self, event: EngineEvent) -> None:
        if self._hear is not None:
            self._hear(event)

    def catch_up(self, stream: str | None = None) -> None:
        """Hear what is new of what is followed, and of the catalog."""
        if not self._log.reached(self.name)[self.name] or self._hear is None:
            return
        for key, (value, revision) in sorted(
            self._log.catalog.items(), key=lambda each: each[1][1]
        ):
            if revision > self._seen_revision:
                self._tell(CatalogChanged(key, value, revision))
        self._seen_revision = self._log.revision
        for name in [*self._followed] if stream is None else [stream]:
            self._catch_up(name)

    def _catch_up(self, name: str) -> None:
        if name not in self._followed:
            return
        place, follow_id = self._followed[name]
        stream = self._log.streams.get(name)
        if stream is None:
            del self._followed[name]
            self._tell(Lost(name, follow_id))
        elif place + 1 < stream.first_place:
            del self._followed[name]
            self._tell(Forgotten(name, follow_id, stream.first_place))
        elif place < stream.last_place:
            self._followed[name] = (stream.last_place, follow_id)
            entries = stream.entries[place + 1 - stream.first_place :]
            self._tell(Entries(name, follow_id, tuple(entries)))

    def publish(
        self,
        stream: str,
        entry_id: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[Stored | NotStored], None],
    ) -> None:
        """Append an entry."""
        del deadline_s
        found = self._log.streams.get(stream)
        if self._hear is None or not self._log.agrees(self.name):
            outcome: Stored | NotStored = NotStored(is_sure=True, why="no majority")
        elif found is None:
            outcome = NotStored(is_sure=True, why="no such stream")
        else:
            outcome = Stored(found.append(entry_id, self._log.now_us(), payload))
            self._log.spread(stream)
            if self._log.acks_to_lose:
                self._log.acks_to_lose -= 1
                outcome = NotStored(is_sure=False, why="the acknowledgement was lost")
        self._log.tell(self.name, partial(told, outcome))

    def follow(self, stream: str, after_place: int, follow_id: int) -> None:
        """Follow a stream."""
        self._followed[stream] = (after_place, follow_id)
        if self.name not in self._log._cut:  # noqa: SLF001 - its own part
            self._catch_up(stream)

    def taken(self, stream: str, follow_id: int, place: int) -> None:
        """Note nothing: all is in memory anyway."""
        del stream, follow_id, place

    def unfollow(self, stream: str) -> None:
        """Follow it no more."""
        self._followed.pop(stream, None)

    def make_stream(
        self,
        stream: str,
        replicas: int,
        bytes_max: int,
        told: Callable[[PoeError | None], None],
    ) -> None:
        """Make a stream."""
        error: PoeError | None = None
        live = sum(self._log.reached(self.name).values())
        if not self._log.agrees(self.name):
            error = NoQuorum(f"stream {stream}")
        elif live < replicas:
            error = TooFewNodes(replicas, live)
        else:
            self._log.streams.setdefault(stream, _Stream(replicas, bytes_max))
        self._log.tell(self.name, partial(told, error))

    def delete_stream(self, stream: str, told: Callable[[PoeError | None], None]) -> None:
        """Delete a stream."""
        error = None if self._log.agrees(self.name) else NoQuorum(f"stream {stream}")
        if error is None:
            self._log.streams.pop(stream, None)
            self._log.spread(stream)
        self._log.tell(self.name, partial(told, error))

    def put_catalog(
        self, key: str, value: bytes, revision: int, told: Callable[[int | PoeError], None]
    ) -> None:
        """Set a value, if nobody has meanwhile."""
        outcome: int | PoeError
        if not self._log.agrees(self.name):
            outcome = NoQuorum("the topics of the cluster")
        elif self._log.catalog.get(key, (b"", 0))[1] != revision:
            outcome = CatalogChangedMeanwhile(key)
        else:
            self._log.revision += 1
            outcome = self._log.revision
            self._log.catalog[key] = (bytes(value), outcome)
            self._log.spread("")
        self._log.tell(self.name, partial(told, outcome))

    def stream_state(
        self, stream: str, deadline_s: float, told: Callable[[StreamState | PoeError], None]
    ) -> None:
        """Look at a stream."""
        del deadline_s
        found = self._log.streams.get(stream)
        outcome: StreamState | PoeError
        if not self._log.agrees(self.name):
            outcome = NoQuorum(f"stream {stream}")
        elif found is None:
            outcome = UnknownStream(stream)
        else:
            reached = self._log.reached(self.name)
            replicas = {name: 0 if there else -1 for name, there in reached.items()}
            leader = self._log.names[0]
            outcome = StreamState(
                found.first_place, found.last_place, found.size_bytes, leader, replicas
            )
        self._log.tell(self.name, partial(told, outcome))

    def state(self, deadline_s: float, told: Callable[[EngineState | PoeError], None]) -> None:
        """Look at the engine."""
        del deadline_s
        leader = self._log.names[0] if self._log.agrees(self.name) else ""
        size_bytes = sum(each.size_bytes for each in self._log.streams.values())
        state = EngineState("simulated", leader, self._log.reached(self.name), size_bytes)
        self._log.tell(self.name, partial(told, state))

    def ask(
        self, node: str, payload: bytes, deadline_s: float, told: Callable[[bytes | None], None]
    ) -> None:
        """Ask another node."""
        del deadline_s
        other = self._log.find(node) if self._log.reached(self.name).get(node) else None
        if other is None:
            self._log.tell(self.name, partial(told, None))
            return
        answer = partial(self._answered, told)
        other._tell(PeerAsked(payload, answer))  # noqa: SLF001 - another one of the same class

    def _answered(self, told: Callable[[bytes | None], None], answer: bytes) -> None:
        self._log.tell(self.name, partial(told, answer))

    def forget_node(self, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Take a node out."""
        if node in self._log.names:
            self._log.names.remove(node)
        self._log.tell(self.name, partial(told, None))

    def lose(self, why: str) -> None:
        """Have the node not reach its engine for a moment."""
        self._tell(Disconnected(why))
        self._tell(Connected("simulated"))

    def metrics(self) -> dict[str, Any]:
        """Return nothing that would be counted."""
        return {"followed": len(self._followed)}
