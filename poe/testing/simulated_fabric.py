"""Networks between nodes of one process, in simulated time or real: links fail when a test says so.

A host is a place on the network, by a name; a node is opened on it, and another one after that.
Between two hosts what is sent may be late, lost, doubled and overtaken, by a seed; a link may be
cut, both ways or one way, or slow; a host may freeze. Links behave as TCP's do: what is sent into a
cut arrives if it is healed within the lease, and else both sides have lost each other.

`SimulatedNetwork` has a clock of its own, and nothing happens but by `step` and those that call it:
the same calls with the same seed do the same. `Hub` is one in real time, with a thread.
"""

import heapq
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from poe.cluster.fabric.interface import (
    Asked,
    FabricEvent,
    PeerDown,
    PeerUp,
    Published,
)
from poe.cluster.identity import NodeRef, Peer
from poe.errors import FabricFailed

_START_US: Final = 1_800_000_000_000_000
"""Behind the begin of 2026, from which groups count their lives."""
_BACKLOG_MAX_US: Final = 250_000
"""A link on which more than this waits takes no frame any more."""
_COUNTS: Final = ("asks", "asks_unanswered", "frames", "published")


class Told(NamedTuple):
    """A peer has sent a frame by `SimulatedFabric.tell`."""

    sender: NodeRef
    frame: bytes


class Faults(NamedTuple):
    """What befalls each thing that is sent; probabilities are from 0 to 1."""

    delay_min_us: int = 50
    delay_max_us: int = 500
    """What is sent later arrives earlier where the difference allows it."""
    drop: float = 0.0
    double: float = 0.0


class Spans(NamedTuple):
    """How long a network takes, in microseconds; of two, the shortest and the longest."""

    lease: int = 2_000_000
    """Until hosts that hear nothing of each other have lost each other."""
    death: int = 3_000
    """Until a process that has ended is missed."""
    join: tuple[int, int] = (1_000, 50_000)
    """Until hosts find each other."""
    rejoin: tuple[int, int] = (80_000, 2_800_000)
    """The same where they had lost each other."""


USUAL_SPANS: Final = Spans()
SOME_DELAY: Final = Faults()
NO_FAULTS: Final = Faults(0, 0)


class _Link:
    """One direction between two hosts; `held` is what a cut keeps back."""

    __slots__ = ("bytes_per_s", "free_at_us", "held", "is_cut")

    def __init__(self) -> None:
        self.is_cut = False
        self.held: list[Callable[[], None]] = []
        self.bytes_per_s: int | None = None
        self.free_at_us = 0


class _Pair:
    """Two hosts: a link each way, and whether they have found each other and not lost since.

    `changes` counts what has happened to them: what was to come of an older state is then void.
    """

    __slots__ = ("changes", "has_met", "is_known", "links")

    def __init__(self) -> None:
        self.links = defaultdict[str, _Link](_Link)
        """By who sends."""
        self.is_known = False
        self.has_met = False
        self.changes = 0


class _Host:
    """Where one node at a time is open; `waiting` is what a frozen one has not noticed yet."""

    __slots__ = ("fabric", "is_frozen", "jumped_us", "waiting")

    def __init__(self) -> None:
        self.fabric: SimulatedFabric | None = None
        self.is_frozen = False
        self.waiting: list[Callable[[], None]] = []
        self.jumped_us = 0


class SimulatedNetwork:
    """Hosts, the links between them, and the time. See the module for what it simulates."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults = SOME_DELAY,
        spans: Spans = USUAL_SPANS,
    ) -> None:
        """Begin without hosts.

        Args:
            seed: chooses all that is left to chance.
            faults: of each link.
            spans: how soon hosts find and lose each other.
        """
        self.faults = faults
        self.lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._spans = spans
        self._now_us = _START_US
        self._number = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._hosts = defaultdict[str, _Host](_Host)
        self._pairs = defaultdict[tuple[str, str], _Pair](_Pair)

    # ---- time -----------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The time, in microseconds since 1970."""
        return self._now_us

    def clock_us(self, host: str) -> int:
        """Return what the clock of a host shows, in microseconds."""
        return self.now_us + self._hosts[host].jumped_us

    def jump(self, host: str, us: int) -> None:
        """Set the clock of a host forward, or back where it is negative."""
        self._hosts[host].jumped_us += us

    def at(self, delay_us: int, action: Callable[[], None], host: str | None = None) -> None:
        """Do something later; where a host is given, not before that thaws, nor once it is dead."""
        if host is not None:
            action = partial(self._on, host, self._hosts[host].fabric, action)
        with self.lock:
            self._number += 1
            heapq.heappush(self._due, (self.now_us + delay_us, self._number, action))

    def step(self) -> bool:
        """Do what is due next, and set the clock to that; False: nothing ever will be."""
        if not self._due:
            return False
        due_us, _, action = heapq.heappop(self._due)
        self._now_us = max(self._now_us, due_us)
        action()
        return True

    def run_for(self, us: int) -> None:
        """Do all that is due within `us`, and set the clock to the end of it."""
        end_us = self._now_us + us
        while self._due and self._due[0][0] <= end_us:
            self.step()
        self._now_us = end_us

    def run_until(self, condition: Callable[[], object], within_us: int = 60_000_000) -> None:
        """Do what is due until something is true.

        Raises:
            AssertionError: it was still false after `within_us`.
        """
        end_us = self._now_us + within_us
        while not condition():
            if not self._due or self._due[0][0] > end_us:
                msg = f"not true within {within_us} simulated microseconds: {condition}"
                raise AssertionError(msg)
            self.step()

    # ---- what a test does to it -----------------------------------------------------------------

    def fabric(self, host: str) -> "SimulatedFabric":
        """Return a fabric for a node on a host."""
        return SimulatedFabric(self, host)

    def hosts(self) -> list[str]:
        """Return the hosts on which a node is open, in order."""
        return sorted(name for name, host in self._hosts.items() if host.fabric is not None)

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Cut the link between two hosts; `one_way`: what `one` sends to `other` only."""
        with self.lock:
            self._link(one, other).is_cut = True
            if not one_way:
                self._link(other, one).is_cut = True
            self._look_at(one, other, self._spans.lease)

    def heal(self, one: str, other: str) -> None:
        """Mend the link between two hosts, in both directions."""
        with self.lock:
            self._link(one, other).is_cut = self._link(other, one).is_cut = False
            self._look_at(one, other)

    def heal_all(self) -> None:
        """Mend every link that was cut."""
        for one, other in sorted(self._pairs):
            if self._link(one, other).is_cut or self._link(other, one).is_cut:
                self.heal(one, other)

    def split(self, *sides: set[str]) -> None:
        """Cut every link between hosts of different sides."""
        for place, side in enumerate(sides):
            for other_side in sides[place + 1 :]:
                for one in sorted(side):
                    for other in sorted(other_side):
                        self.cut(one, other)

    def slow(self, one: str, other: str, bytes_per_s: int | None) -> None:
        """Limit what `one` sends to `other`; None: no longer."""
        self._link(one, other).bytes_per_s = bytes_per_s

    def freeze(self, host: str) -> None:
        """Stop a host: it notices nothing until it thaws."""
        with self.lock:
            self._hosts[host].is_frozen = True
            self._look_at_all(host, self._spans.lease)

    def thaw(self, host: str) -> None:
        """Let a host go on, with all that has come meanwhile."""
        with self.lock:
            place = self._hosts[host]
            place.is_frozen = False
            waiting, place.waiting = place.waiting, []
            for action in waiting:
                self._on(host, place.fabric, action)
            self._look_at_all(host)

    def is_frozen(self, host: str) -> bool:
        """Return whether a host is frozen."""
        return self._hosts[host].is_frozen

    def kill(self, host: str) -> None:
        """End the node on a host without notice; nothing happens there any more."""
        with self.lock:
            fabric = self._hosts[host].fabric
            if fabric is not None:
                fabric.die()
                self.leave(host, self._spans.death)

    # ---- for fabrics ----------------------------------------------------------------------------

    def enter(self, host: str, fabric: "SimulatedFabric") -> None:
        """Have a node be found by the others, which miss the one before it at once.

        Raises:
            FabricFailed: one is open on that host.
        """
        place = self._hosts[host]
        if place.fabric is not None:
            why = f"a node is open on host {host}"
            raise FabricFailed(why)
        for other in sorted(self._hosts):
            if other != host and self._pair(host, other).is_known:
                self._lose(host, other, self._pair(host, other).changes)
        place.fabric = fabric
        self._look_at_all(host)

    def leave(self, host: str, seen_us: int = 0) -> None:
        """Have the others miss the node on a host, `seen_us` later."""
        place = self._hosts[host]
        place.fabric, place.is_frozen, place.waiting = None, False, []
        self._look_at_all(host, seen_us)

    def is_open(self, host: str, fabric: "SimulatedFabric") -> bool:
        """Return whether this is the fabric of the node on a host."""
        return self._hosts[host].fabric is fabric

    def has_room(self, one: str, other: str) -> bool:
        """Return whether a link takes more."""
        return self._link(one, other).free_at_us - self.now_us <= _BACKLOG_MAX_US

    def send(
        self, one: str, other: str, size_bytes: int, arrive: Callable[["SimulatedFabric"], None]
    ) -> None:
        """Call `arrive` with the other host's fabric: once, or as faults have it; not in a turn."""
        link, dice, faults = self._link(one, other), self._random, self.faults
        begin_us = self.now_us
        if link.bytes_per_s is not None:
            begin_us = max(begin_us, link.free_at_us)
            begin_us += size_bytes * 1_000_000 // link.bytes_per_s
            link.free_at_us = begin_us
        times = 0 if dice.random() < faults.drop else 1 + (dice.random() < faults.double)
        for _ in range(times):
            delay_us = dice.randint(faults.delay_min_us, faults.delay_max_us)
            transfer = partial(self._transfer, one, other, arrive)
            self.at(begin_us - self.now_us + delay_us, transfer)

    def _transfer(self, one: str, other: str, arrive: Callable[["SimulatedFabric"], None]) -> None:
        link, fabric = self._link(one, other), self._hosts[other].fabric
        if fabric is None or not self._pair(one, other).is_known:
            return
        if link.is_cut:
            link.held.append(partial(self._transfer, one, other, arrive))
        else:
            self._on(other, fabric, partial(arrive, fabric))

    def _on(self, host: str, fabric: "SimulatedFabric | None", action: Callable[[], None]) -> None:
        """Do something on a host, unless the node that was there is gone."""
        place = self._hosts[host]
        if place.fabric is not fabric:
            return
        if place.is_frozen:
            place.waiting.append(action)
        else:
            action()

    # ---- who sees whom --------------------------------------------------------------------------

    def _pair(self, one: str, other: str) -> _Pair:
        return self._pairs[min(one, other), max(one, other)]

    def _link(self, one: str, other: str) -> _Link:
        return self._pair(one, other).links[one]

    def _look_at_all(self, host: str, lose_us: int = 0) -> None:
        for other in sorted(self._hosts):
            if other != host:
                self._look_at(host, other, lose_us)

    def _look_at(self, one: str, other: str, lose_us: int = 0) -> None:
        """Have two hosts find or lose each other in time, unless something happens before."""
        pair = self._pair(one, other)
        pair.changes += 1
        fabrics = self._hosts[one].fabric, self._hosts[other].fabric
        is_whole = not (
            any(fabric is None for fabric in fabrics)
            or any(link.is_cut for link in pair.links.values())
            or any(self._hosts[host].is_frozen for host in (one, other))
        )
        if not is_whole and pair.is_known:
            self.at(lose_us, partial(self._lose, one, other, pair.changes))
        elif is_whole and pair.is_known:
            for link in pair.links.values():
                held, link.held = link.held, []
                for transfer in held:
                    self.at(0, transfer)
        elif is_whole:
            span_us = self._spans.rejoin if pair.has_met else self._spans.join
            self.at(self._random.randint(*span_us), partial(self._find, one, other, pair.changes))

    def _find(self, one: str, other: str, change: int) -> None:
        pair = self._pair(one, other)
        fabric, other_fabric = self._hosts[one].fabric, self._hosts[other].fabric
        if pair.changes == change and fabric is not None and other_fabric is not None:
            pair.is_known = pair.has_met = True
            fabric.find(other, other_fabric.me)
            other_fabric.find(one, fabric.me)

    def _lose(self, one: str, other: str, change: int) -> None:
        pair = self._pair(one, other)
        if pair.changes != change:
            return
        pair.is_known = False
        for link in pair.links.values():
            link.held = []
        for host, lost in ((one, other), (other, one)):
            fabric = self._hosts[host].fabric
            if fabric is not None:
                self._on(host, fabric, partial(fabric.lose, lost))


class SimulatedFabric:
    """The fabric of one node on a host of a `SimulatedNetwork`, or of a `Hub`."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network = network
        self._host = host
        self._peers: dict[str, Peer] = {}
        """By host, those of which `PeerUp` was told."""
        self._asks: dict[int, Callable[[bytes | None], None]] = {}
        self._number = 0
        self._counts = dict.fromkeys(_COUNTS, 0)

    def open(self, me: Peer, hear: Callable[["FabricEvent | Told"], None]) -> None:
        """Join; see `Fabric.open`.

        Raises:
            FabricFailed: a node is open on that host.
        """
        with self._network.lock:
            self.me, self._hear = me, hear
            self._network.enter(self._host, self)

    def close(self) -> None:
        """Leave; peers learn of it at once."""
        with self._network.lock:
            if self._network.is_open(self._host, self):
                self._network.leave(self._host)
            for number in list(self._asks):
                self._answer(number, None)
            self._peers.clear()

    def ask(
        self,
        node: NodeRef,
        payload: bytes,
        deadline_s: float,
        answered: Callable[[bytes | None], None],
    ) -> None:
        """Ask a peer, or this node itself; see `Fabric.ask`."""
        network = self._network
        with network.lock:
            self._counts["asks"] += 1
            self._number = number = self._number + 1
            self._asks[number] = answered
            if node == self.me.ref:
                answer = partial(self._answer, number)
                event = Asked(node, payload, answer)
                network.at(0, partial(self._hear, event), self._host)
            elif (host := self._host_of(node)) is not None and network.is_open(self._host, self):
                asked = Asked(self.me.ref, payload, partial(self._answer, number))
                arrive = partial(SimulatedFabric.hear_ask, asked=asked, host=self._host)
                network.send(self._host, host, len(payload), arrive)
            else:
                self._answer(number, None)
                return
            network.at(int(deadline_s * 1e6), partial(self._answer, number, None), self._host)

    def tell(self, node: NodeRef, frame: bytes) -> bool:
        """Send a frame, which arrives as `Told`; False: the peer is unknown, or its link is full.

        What pure objects use that a node's actors would send by a `Sender`.
        """
        network = self._network
        with network.lock:
            host = self._host_of(node)
            if host is None or not network.is_open(self._host, self):
                return False
            if not network.has_room(self._host, host):
                return False
            self._counts["frames"] += 1
            told = Told(self.me.ref, frame)
            network.send(self._host, host, len(frame), partial(SimulatedFabric.hear, event=told))
            return True

    def publish(self, payload: bytes) -> None:
        """Send something small to all peers."""
        with self._network.lock:
            self._counts["published"] += 1
            event = Published(self.me.ref, payload)
            for host in self._peers:
                arrive = partial(SimulatedFabric.hear, event=event)
                self._network.send(self._host, host, len(payload), arrive)

    def seek(self, locators: Sequence[str]) -> None:
        """Do nothing: who is there and can be reached is heard of at once."""

    def metrics(self) -> dict[str, int]:
        """Return counts since it was made."""
        return dict(self._counts)

    # ---- for the network, and peers -------------------------------------------------------------

    def hear(self, event: "FabricEvent | Told") -> None:
        """Pass on what has come."""
        self._hear(event)

    def hear_ask(self, asked: Asked, host: str) -> None:
        """Pass on what the node of a host asks; the answer goes by the network, too."""
        answer = partial(self._send_answer, host, asked.answer)
        self._hear(asked._replace(answer=answer))

    def die(self) -> None:
        """Hear no answers any more."""
        self._asks.clear()

    def find(self, host: str, peer: Peer) -> None:
        """Note a peer."""
        self._peers[host] = peer
        self._hear(PeerUp(peer))

    def lose(self, host: str) -> None:
        """Note that one cannot be reached any more."""
        peer = self._peers.pop(host, None)
        if peer is not None:
            self._hear(PeerDown(peer.ref, "lost"))

    def _host_of(self, node: NodeRef) -> str | None:
        for host, peer in self._peers.items():
            if peer.ref == node:
                return host
        return None

    def _send_answer(self, host: str, answered: Callable[[bytes], None], payload: bytes) -> None:
        with self._network.lock:
            if self._network.is_open(self._host, self):
                self._network.send(self._host, host, len(payload), lambda _: answered(payload))

    def _answer(self, number: int, payload: bytes | None) -> None:
        answered = self._asks.pop(number, None)
        if answered is not None:
            self._counts["asks_unanswered"] += payload is None
            answered(payload)


class Hub(SimulatedNetwork):
    """A network in real time for nodes of one process; `with Hub() as hub:` ends its thread."""

    def __init__(
        self, seed: int = 0, *, faults: Faults = NO_FAULTS, spans: Spans = USUAL_SPANS
    ) -> None:
        """Begin without hosts, and without faults unless they are given."""
        super().__init__(seed, faults=faults, spans=spans)
        self._has_more = threading.Condition(self.lock)
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="poe-hub", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with self._has_more:
            self._is_closed = True
            self._has_more.notify()
        self._thread.join()

    @property
    def now_us(self) -> int:
        """The time, in microseconds since 1970."""
        return time.time_ns() // 1000

    def at(self, delay_us: int, action: Callable[[], None], host: str | None = None) -> None:
        """Do something later, in the hub's thread."""
        with self._has_more:
            super().at(delay_us, action, host)
            self._has_more.notify()

    def _serve(self) -> None:
        with self._has_more:
            while not self._is_closed:
                wait_us = self._due[0][0] - self.now_us if self._due else None
                if wait_us is None or wait_us > 0:
                    self._has_more.wait(None if wait_us is None else wait_us / 1e6)
                else:
                    self.step()
