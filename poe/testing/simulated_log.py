"""An engine of the replicated log in memory: what several nodes agree on, without a network.

`SimulatedLog` is what the engines of all nodes are together, `SimulatedEngine` that of one node. It
does what a real one promises, and fails as one fails: nodes are cut off, servers pause, elections
take their time, acknowledgements get lost, streams forget.

By default everything is done and told at once, in whichever thread asks for it: nodes of one
process have a thread each, of which one at a time is let in. With `dice` it waits, in lanes of
which each keeps its order, until `step` does one thing of a lane that the dice choose; `hazards`
says how often what goes wrong. The same calls with the same dice do the same.
"""

import math
import random
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from operator import attrgetter
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar

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
from poe.errors import (
    CatalogChangedMeanwhile,
    NoQuorum,
    PoeError,
    TooFewNodes,
    UnknownNode,
    UnknownStream,
)

VERSION: Final = "simulated"
ID_KNOWN_US: Final = 120_000_000
"""For so long an entry is known by its id."""
LATE_MAX_US: Final = 60_000_000
"""What is stored late is not stored later than that."""
_AGAIN_MAX: Final = 4
_ASK_S: Final = 5.0
_PORTIONS: Final = (1, 2, 5, 1000)


class Hazards(NamedTuple):
    """What befalls single things; probabilities from 0 to 1."""

    lose_ack: float = 0.0
    """It is done, and who has asked is not told so."""
    lose: float = 0.0
    """It is not done, and who has asked cannot know."""
    late: float = 0.0
    """Neither is it done, nor can who has asked know; later it is done after all."""
    again: float = 0.0
    """Entries come once more, in front of those that follow them."""
    lose_ask: float = 0.0
    """A question between nodes, or its answer, is lost."""
    doubt: float = 0.6
    """What nobody agrees on meanwhile is in doubt, and not refused."""


CALM: Final = Hazards(doubt=0.0)


@dataclass(slots=True)
class _Stream:
    replicas: int
    bytes_max: int
    entries: list[Entry] = field(default_factory=list)
    first_place: int = 1
    last_place: int = 0
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The place of each entry by its id, and when it was stored."""
    size_bytes: int = 0

    def append(self, entry_id: str, time_us: int, payload: bytes, now_us: int = 0) -> int:
        """Append an entry that is not known; `now_us` is of a clock that nobody sets."""
        known = self.ids.get(entry_id)
        if known is not None and now_us - known[1] < ID_KNOWN_US:
            return known[0]
        newest_us = self.entries[-1].time_us if self.entries else 0
        self.last_place += 1
        self.entries.append(Entry(self.last_place, max(time_us, newest_us), bytes(payload)))
        self.ids[entry_id] = self.last_place, now_us
        self.size_bytes += len(payload)
        while self.size_bytes > self.bytes_max and len(self.entries) > 1:
            self.forget_to(self.first_place)
        return self.last_place

    def forget_to(self, place: int) -> None:
        """Forget the entries up to a place."""
        while self.entries and self.entries[0].place <= place:
            self.size_bytes -= len(self.entries.pop(0).payload)
        self.first_place = self.entries[0].place if self.entries else self.last_place + 1

    def remove(self, place: int) -> None:
        """Remove one entry, as somebody does who edits a stream."""
        self.entries = [each for each in self.entries if each.place != place]
        self.forget_to(0)

    def behind(self, place: int, count_max: int) -> list[Entry]:
        """Return entries that follow one another behind a place; none where the next is gone."""
        begin = bisect_right(self.entries, place, key=attrgetter("place"))
        found: list[Entry] = []
        for entry in self.entries[begin : begin + count_max]:
            if entry.place != place + 1:
                break
            found.append(entry)
            place = entry.place
        return found

    def next_place(self, place: int) -> int:
        """Return the place of the first entry behind one; one behind the last where none is."""
        begin = bisect_right(self.entries, place, key=attrgetter("place"))
        return self.entries[begin].place if begin < len(self.entries) else self.last_place + 1


class _Asked:
    """Something that an engine is asked for, and tells the outcome of once."""

    __slots__ = ("in_doubt", "is_told", "told")

    def __init__(self, told: Callable[[Any], None], in_doubt: object) -> None:
        self.told = told
        self.in_doubt = in_doubt
        """The outcome where nothing was heard of it."""
        self.is_told = False

    def tell(self, outcome: object) -> None:
        """Tell an outcome, unless one was told."""
        if not self.is_told:
            self.is_told = True
            self.told(outcome)


class _Locked(Protocol):
    lock: threading.RLock


_Self = TypeVar("_Self", bound=_Locked)
_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def _one_at_a_time(
    method: Callable[Concatenate[_Self, _Params], _Result],
) -> Callable[Concatenate[_Self, _Params], _Result]:
    """Let one thread at a time into all such methods of a log, and of its engines.

    Else two that append at once would have the same place, and what is followed would come to a
    node out of its order.
    """

    def locked(self: _Self, /, *args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with self.lock:
            return method(self, *args, **kwargs)

    update_wrapper(locked, method)
    return locked


Lane = tuple[str, str, object]
"""A node, what waits there, and which of several such."""


class SimulatedLog:
    """What the engines of some nodes agree on; `now_us` is their clock, which nobody sets."""

    def __init__(
        self,
        names: list[str],
        now_us: Callable[[], int],
        *,
        dice: random.Random | None = None,
        hazards: Hazards = CALM,
    ) -> None:
        self.lock = threading.RLock()
        self.names = list(names)
        self.now_us = now_us
        self.skew_us = 0
        """By how much the clock is wrong that gives entries their time."""
        self.streams: dict[str, _Stream] = {}
        self.catalog: dict[str, tuple[bytes, int]] = {}
        self.revision = 0
        self.acks_to_lose = 0
        """So many of the next acknowledgements are lost: it is stored, and nobody is told."""
        self.hazards = hazards
        self.dice = dice
        self.is_leaderless = False
        """Whether an election is under way: nothing is agreed on meanwhile."""
        self.preferred: dict[str, str] = {}
        """Who is to lead a stream."""
        self._cut: set[str] = set()
        self._paused: set[str] = set()
        self._engines: dict[str, SimulatedEngine] = {}
        self.may: Callable[[Lane], bool] | None = None
        """Whether something of a lane, (node, what, of which), may be done now; None: of any."""
        self._lanes: dict[Lane, deque[Callable[[], object]]] = {}
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._number = 0

    def engine(self, name: str) -> "SimulatedEngine":
        """Return the engine of a node, which begins with nothing under way."""
        return SimulatedEngine(self, name)

    # ---- what happens to servers ----------------------------------------------------------------

    @_one_at_a_time
    def cut(self, name: str) -> None:
        """Cut a node's server off from the others."""
        self._cut.add(name)

    @_one_at_a_time
    def heal(self, name: str) -> None:
        """Have it reach the others again; it gets what it has missed."""
        self._cut.discard(name)
        self._release_late()
        self._look_at(name)

    @_one_at_a_time
    def pause(self, name: str) -> None:
        """Stop a node's server: nothing comes of it; what it was asked for may be done later."""
        self._paused.add(name)
        engine = self._engines.get(name)
        if engine is not None:
            engine.time_out()

    @_one_at_a_time
    def resume(self, name: str) -> None:
        """Have it go on."""
        self._paused.discard(name)
        self._release_late()
        self._look_at(name)

    @_one_at_a_time
    def begin_election(self) -> None:
        """Have nobody lead."""
        self.is_leaderless = True

    @_one_at_a_time
    def end_election(self) -> None:
        """Have somebody lead again, who has some of what was under way."""
        self.is_leaderless = False
        self._release_late()
        self.spread()

    @_one_at_a_time
    def lose_connection(self, name: str) -> None:
        """Have a node lose its server for a moment: what is under way is in doubt.

        What is followed comes again from somewhere before.
        """
        engine = self._engines.get(name)
        if engine is not None:
            engine.lose("the connection was lost")
            engine.time_out()
            engine.rewind()

    @_one_at_a_time
    def mend(self) -> None:
        """End everything that goes wrong."""
        self.hazards = CALM
        self._cut.clear()
        self._paused.clear()
        self.end_election()
        for name in self.names:
            self._look_at(name)

    # ---- one thing after the other --------------------------------------------------------------

    @_one_at_a_time
    def step(self) -> bool:
        """Do one thing that waits, and may be done; return whether there was any."""
        assert self.dice is not None
        lanes = [lane for lane in self._lanes if lane[0] not in self._paused or lane[1] == "doubt"]
        if self.may is not None:
            lanes = list(filter(self.may, lanes))
        if not lanes:
            return False
        lane = self.dice.choice(lanes)
        waiting = self._lanes[lane]
        do = waiting.popleft()
        if not waiting:
            del self._lanes[lane]
        do()
        return True

    @_one_at_a_time
    def expire(self) -> None:
        """Tell that it is in doubt what has been under way for too long."""
        for engine in list(self._engines.values()):
            engine.time_out(self.now_us())

    def later(self, node: str, what: str, which: object, do: Callable[[], object]) -> None:
        """Do something now, or in its turn, at a step, behind all else of its lane."""
        if self.dice is None:
            do()
            return
        if which is None:
            self._number += 1
            which = self._number
        self._lanes.setdefault((node, what, which), deque()).append(do)

    def happens(self, probability: float) -> bool:
        """Return whether something happens that does so with a probability."""
        return self.dice is not None and self.dice.random() < probability

    def do_late(self, do: Callable[[], object]) -> None:
        """Do something when somebody is reached again, or never."""
        self._late.append((self.now_us(), do))

    def _release_late(self) -> None:
        late, self._late = self._late, []
        for since_us, do in late:
            if self.now_us() - since_us < LATE_MAX_US and self.happens(0.5):
                self.later("", "late", None, do)

    # ---- who agrees -----------------------------------------------------------------------------

    def is_there(self, name: str) -> bool:
        """Return whether the others reach a node's server."""
        return name not in self._cut and name not in self._paused

    def agrees(self, name: str) -> bool:
        """Return whether a node is one of a majority that agrees on things."""
        there = [each for each in self.names if self.is_there(each)]
        return name in there and not self.is_leaderless and 2 * len(there) > len(self.names)

    def reached(self, name: str) -> dict[str, bool]:
        """Return which nodes there are, and whether one reaches them."""
        return {
            each: each == name or (self.is_there(each) and self.is_there(name))
            for each in self.names
        }

    def leader(self, name: str, stream: str = "") -> str:
        """Return who leads, as a node knows it; empty: nobody."""
        if not self.agrees(name):
            return ""
        there = [each for each in self.names if self.is_there(each)]
        wanted = self.preferred.get(stream)
        return wanted if wanted in there else there[0]

    def joined(self, engine: "SimulatedEngine") -> None:
        """Count an engine as that of its node."""
        self._engines[engine.name] = engine

    def left(self, engine: "SimulatedEngine") -> None:
        """Count it so no more."""
        if self._engines.get(engine.name) is engine:
            del self._engines[engine.name]

    def find(self, name: str) -> "SimulatedEngine | None":
        """Return the engine of a node that runs."""
        return self._engines.get(name)

    def spread(self, stream: str | None = None) -> None:
        """Have all nodes that are reached hear what is new."""
        for engine in list(self._engines.values()):
            if self.is_there(engine.name):
                engine.catch_up(stream)

    def _look_at(self, name: str) -> None:
        engine = self._engines.get(name)
        if engine is not None and self.is_there(name):
            engine.catch_up()

    def append(self, stream: str, entry_id: str, payload: bytes) -> int | None:
        """Store an entry, and have all hear of it; return its place, None without the stream."""
        found = self.streams.get(stream)
        if found is None:
            return None
        now_us = self.now_us()
        place = found.append(entry_id, now_us + self.skew_us, payload, now_us)
        self.spread(stream)
        return place


class SimulatedEngine:
    """A `LogEngine` of one node of a `SimulatedLog`."""

    def __init__(self, log: SimulatedLog, name: str) -> None:
        self._log = log
        self.lock = log.lock
        self._name = name
        self._hear: Callable[[EngineEvent], None] | None = None
        self._followed: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, int] = {}
        self._asked: dict[_Asked, float] = {}
        """What is under way, and until when it may be."""
        self._is_gone = False

    @property
    def name(self) -> str:
        """Name of its node."""
        return self._name

    @_one_at_a_time
    def open(self, hear: Callable[[EngineEvent], None]) -> None:
        """Begin."""
        self._hear = hear
        self._seen.clear()
        self._log.joined(self)
        self._tell(Connected(VERSION))
        self.catch_up()

    @_one_at_a_time
    def close(self) -> None:
        """Leave."""
        self._hear = None
        self._followed.clear()
        self._log.left(self)
        asked, self._asked = self._asked, {}
        for each in asked:
            each.tell(each.in_doubt)

    @_one_at_a_time
    def abandon(self) -> None:
        """Be gone as a node is that was killed: nobody is told anything."""
        self._is_gone = True
        self._asked.clear()
        self.close()

    def lose(self, why: str) -> None:
        """Have the node not reach its engine for a moment."""
        self._tell(Disconnected(why))
        self._tell(Connected(VERSION))

    def time_out(self, now_us: float = math.inf) -> None:
        """Tell that it is in doubt what has been under way for too long, by default all."""
        for each in [each for each, until_us in self._asked.items() if until_us <= now_us]:
            self._lose(each)

    def _begin(
        self, told: Callable[[Any], None], in_doubt: object, deadline_s: float = _ASK_S
    ) -> _Asked:
        asked = _Asked(told, in_doubt)
        self._asked[asked] = self._log.now_us() + deadline_s * 1_000_000
        if not self._log.is_there(self.name) and self._log.dice is not None:
            self.time_out()
        return asked

    def _end(self, asked: _Asked, outcome: object) -> None:
        """Tell what came of something, in its turn."""

        def tell() -> None:
            self._asked.pop(asked, None)
            if not self._is_gone:
                asked.tell(outcome)

        self._log.later(self.name, "told", None, tell)

    def _lose(self, asked: _Asked) -> None:
        """Tell of something that nothing was heard of, as a time limit does."""
        self._asked.pop(asked, None)

        def tell() -> None:
            if not self._is_gone:
                asked.tell(asked.in_doubt)

        self._log.later(self.name, "doubt", None, tell)

    def _tell(self, event: EngineEvent) -> None:
        self._log.later(self.name, "event", "", partial(self._deliver, event))

    def _deliver(self, event: EngineEvent) -> None:
        if self._hear is not None:
            self._hear(event)

    # ---- entries --------------------------------------------------------------------------------

    @_one_at_a_time
    def publish(
        self,
        stream: str,
        entry_id: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[Stored | NotStored], None],
    ) -> None:
        """Append an entry."""
        in_doubt = NotStored(is_sure=False, why="nothing was heard of it")
        asked = self._begin(told, in_doubt, deadline_s)
        if self._hear is None:
            self._end(asked, NotStored(is_sure=True, why="it is closed"))
            return
        payload = bytes(payload)
        arrive = partial(self._published, stream, entry_id, payload, asked)
        self._log.later(self.name, "publish", stream, arrive)

    def _published(self, stream: str, entry_id: str, payload: bytes, asked: _Asked) -> None:
        """Take an entry at the server."""
        log, hazards = self._log, self._log.hazards
        store = partial(log.append, stream, entry_id, payload)
        if self._hear is None and log.happens(0.5):
            return  # its node was killed before it was sent
        if not log.agrees(self.name):
            if not log.happens(hazards.doubt):
                self._end(asked, NotStored(is_sure=True, why="no majority"))
                return
            log.do_late(store)
            self._lose(asked)
        elif stream not in log.streams:
            self._end(asked, NotStored(is_sure=True, why="no such stream"))
        elif log.happens(hazards.lose):
            self._lose(asked)
        elif log.happens(hazards.late):
            log.later("", "late", None, store)
            self._lose(asked)
        else:
            place = store()
            assert place is not None
            if log.acks_to_lose or log.happens(hazards.lose_ack):
                log.acks_to_lose = max(log.acks_to_lose - 1, 0)
                self._lose(asked)
            else:
                self._end(asked, Stored(place))

    @_one_at_a_time
    def follow(self, stream: str, after_place: int, follow_id: int) -> None:
        """Follow a stream."""
        self._followed[stream] = (after_place, follow_id)
        if self._log.is_there(self.name):
            self._look(stream)

    def taken(self, stream: str, follow_id: int, place: int) -> None:
        """Note nothing: all is in memory anyway."""
        del stream, follow_id, place

    @_one_at_a_time
    def unfollow(self, stream: str) -> None:
        """Follow it no more."""
        self._followed.pop(stream, None)

    def rewind(self) -> None:
        """Have what is followed come again from somewhere before."""
        dice = self._log.dice
        if dice is None:
            return
        for name, (place, follow_id) in self._followed.items():
            stream = self._log.streams.get(name)
            if stream is not None:
                least = max(stream.first_place - 1, place - _AGAIN_MAX)
                again = dice.randint(min(least, place), place)
                self._followed[name] = again, follow_id
                self._look(name)

    def catch_up(self, stream: str | None = None) -> None:
        """Hear what is new of what is followed, and of the catalog."""
        if self._hear is None or not self._log.is_there(self.name):
            return
        self._log.later(self.name, "event", "", self._catch_up_with_catalog)
        for name in [*self._followed] if stream is None else [stream]:
            self._look(name)

    def _catch_up_with_catalog(self) -> None:
        if self._hear is None or not self._log.is_there(self.name):
            return
        known = sorted(self._log.catalog.items(), key=lambda each: each[1][1])
        for key, (value, revision) in known:
            if revision > self._seen.get(key, 0):
                self._seen[key] = revision
                self._deliver(CatalogChanged(key, value, revision))

    def _look(self, name: str) -> None:
        if name in self._followed:
            self._log.later(self.name, "stream", name, partial(self._bring, name))

    def _bring(self, name: str) -> None:
        """Bring the next entries of a stream on their way."""
        log = self._log
        if name not in self._followed or self._hear is None or not log.is_there(self.name):
            return
        place, follow_id = self._followed[name]
        stream = log.streams.get(name)
        event: EngineEvent | None = None
        if stream is None or place > stream.last_place:
            del self._followed[name]
            event = Lost(name, follow_id)
        elif place < stream.last_place:
            begin = place
            if log.dice is not None and log.happens(log.hazards.again):
                begin = max(stream.first_place - 1, place - log.dice.randint(0, _AGAIN_MAX))
            count = 1 << 30 if log.dice is None else log.dice.choice(_PORTIONS)
            entries = stream.behind(min(begin, place), count + place - begin)
            if entries and entries[-1].place > place:
                event = Entries(name, follow_id, tuple(entries))
                self._followed[name] = entries[-1].place, follow_id
                if entries[-1].place < stream.last_place:
                    self._look(name)
            elif entries:
                self._look(name)
            else:
                del self._followed[name]
                event = Forgotten(name, follow_id, stream.next_place(place))
        if event is not None:
            log.later(self.name, "stream", name, partial(self._deliver, event))

    # ---- streams and the catalog ----------------------------------------------------------------

    def _ask(
        self,
        what: str,
        told: Callable[[Any], None],
        do: Callable[[], object],
    ) -> None:
        """Have a majority do something, and tell what came of it."""
        asked = self._begin(told, NoQuorum(what))

        def arrive() -> None:
            log = self._log
            if not log.agrees(self.name):
                self._end(asked, NoQuorum(what))
            elif log.happens(log.hazards.lose):
                self._lose(asked)
            else:
                outcome = do()
                if log.happens(log.hazards.lose_ack):
                    self._lose(asked)
                else:
                    self._end(asked, outcome)

        self._log.later(self.name, "ask", "", arrive)

    @_one_at_a_time
    def make_stream(
        self,
        stream: str,
        replicas: int,
        bytes_max: int,
        told: Callable[[PoeError | None], None],
    ) -> None:
        """Make a stream."""

        def make() -> PoeError | None:
            live = sum(self._log.reached(self.name).values())
            if live < replicas:
                return TooFewNodes(replicas, live)
            self._log.streams.setdefault(stream, _Stream(replicas, bytes_max))
            return None

        self._ask(f"stream {stream}", told, make)

    @_one_at_a_time
    def delete_stream(self, stream: str, told: Callable[[PoeError | None], None]) -> None:
        """Delete a stream."""

        def delete() -> None:
            self._log.streams.pop(stream, None)
            self._log.spread(stream)

        self._ask(f"stream {stream}", told, delete)

    @_one_at_a_time
    def put_catalog(
        self, key: str, value: bytes, revision: int, told: Callable[[int | PoeError], None]
    ) -> None:
        """Set a value, if nobody has meanwhile."""

        def put() -> int | PoeError:
            log = self._log
            if log.catalog.get(key, (b"", 0))[1] != revision:
                return CatalogChangedMeanwhile(key)
            log.revision += 1
            log.catalog[key] = (bytes(value), log.revision)
            log.spread("")
            return log.revision

        self._ask("the topics of the cluster", told, put)

    @_one_at_a_time
    def stream_state(
        self, stream: str, deadline_s: float, told: Callable[[StreamState | PoeError], None]
    ) -> None:
        """Look at a stream."""
        del deadline_s

        def look() -> StreamState | PoeError:
            found = self._log.streams.get(stream)
            if found is None:
                return UnknownStream(stream)
            reached = self._log.reached(self.name)
            replicas = {name: 0 if there else -1 for name, there in reached.items()}
            leader = self._log.leader(self.name, stream)
            return StreamState(
                found.first_place, found.last_place, found.size_bytes, leader, replicas
            )

        self._ask(f"stream {stream}", told, look)

    @_one_at_a_time
    def state(self, deadline_s: float, told: Callable[[EngineState | PoeError], None]) -> None:
        """Look at the engine."""
        asked = self._begin(told, NoQuorum("the engine"), deadline_s)

        def look() -> None:
            log = self._log
            size_bytes = sum(each.size_bytes for each in log.streams.values())
            leader, reached = log.leader(self.name), log.reached(self.name)
            self._end(asked, EngineState(VERSION, leader, reached, size_bytes))

        self._log.later(self.name, "ask", "", look)

    @_one_at_a_time
    def lead(self, stream: str, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Have a node lead a stream."""

        def prefer() -> PoeError | None:
            if stream not in self._log.streams:
                return UnknownStream(stream)
            if not self._log.reached(self.name).get(node):
                return UnknownNode(node)
            self._log.preferred[stream] = node
            return None

        self._ask(f"stream {stream}", told, prefer)

    @_one_at_a_time
    def forget_node(self, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Take a node out."""

        def forget() -> None:
            if node in self._log.names:
                self._log.names.remove(node)

        self._ask("the engine", told, forget)

    # ---- other nodes ----------------------------------------------------------------------------

    @_one_at_a_time
    def ask(
        self,
        node: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[bytes | PoeError | None], None],
    ) -> None:
        """Ask another node."""
        asked = self._begin(told, None, deadline_s)

        def arrive() -> None:
            other = self._log.find(node)
            is_reached = self._log.reached(self.name).get(node)
            if not is_reached or self._log.happens(self._log.hazards.lose_ask):
                self._lose(asked)
            elif other is None:
                self._end(asked, UnknownNode(node))
            else:
                other._asked_by(self, payload, asked)  # noqa: SLF001 - another one of its class

        self._log.later(self.name, "question", None, arrive)

    def _asked_by(self, other: "SimulatedEngine", payload: bytes, asked: _Asked) -> None:
        def answer(content: bytes) -> None:
            with self.lock:
                is_lost = self._log.happens(self._log.hazards.lose_ask)
                if is_lost or not self._log.reached(self.name).get(other.name):
                    other._lose(asked)  # noqa: SLF001 - another one of its class
                else:
                    other._end(asked, content)  # noqa: SLF001 - likewise

        def deliver() -> None:
            if self._hear is None:
                other._lose(asked)  # noqa: SLF001 - likewise
            else:
                self._hear(PeerAsked(payload, answer))

        self._log.later(self.name, "peer", None, deliver)

    def metrics(self) -> dict[str, Any]:
        """Return nothing that would be counted."""
        return {"followed": len(self._followed)}
