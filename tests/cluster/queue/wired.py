"""Several nodes' sides of one queue, wired by hand: what one tells is heard when the test says."""

import random
from collections import deque

from poe.cluster.frames import decode, encode
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.queue.effects import Answer, Event, PutDone, PutResult, Tell, Write
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue_record import QueueRecord

SECOND_US = 1_000_000


def node_ref(number: int, epoch: int = 1) -> NodeRef:
    """Return a node by number."""
    return NodeRef(bytes([number]) * 8, epoch)


def peer_of(ref: NodeRef, zone: str = "") -> Peer:
    """Return what a node tells of itself."""
    return Peer(ref, ref.id.hex(), zone, 1, ref.id, "host:1")


class Wired:
    """Nodes and what is under way between them, in order; `cut` pairs hear nothing."""

    def __init__(self, count: int, seed: int = 0, zones: str = "", **properties) -> None:
        record = QueueRecord(b"jobs", **{"copies": 2, **properties})
        self.now_us = 1_000_000_000_000
        self.results: dict[object, PutResult] = {}
        self.answers: dict[object, object] = {}
        self.events: list[Event] = []
        self.writes: dict[NodeRef, list[Write]] = {}
        self.under_way: deque[tuple[NodeRef, NodeRef, bytes]] = deque()
        self.cut: set[frozenset[NodeRef]] = set()
        self.zones = dict(zip(range(count), zones, strict=False))
        self.refs = [node_ref(number + 1) for number in range(count)]
        self.queues = {
            ref: BestEffortQueue(record, ref, self.zones.get(number, ""), self.now_us,
                                 random.Random(seed + number))
            for number, ref in enumerate(self.refs)
        }  # fmt: skip
        for one in self.refs:
            for other in self.refs:
                if one != other:
                    self.up(one, other)
        self.settle()

    def __getitem__(self, number: int) -> BestEffortQueue:
        """Return a node's side."""
        return self.queues[self.refs[number]]

    def up(self, one: NodeRef, other: NodeRef) -> None:
        """Have one node see another."""
        zone = self.zones.get(self.refs.index(other), "")
        self.queues[one].peer_up(peer_of(other, zone), self.now_us)

    def part(self, one: int, other: int) -> None:
        """Have two nodes lose sight of each other."""
        pair = self.refs[one], self.refs[other]
        self.cut.add(frozenset(pair))
        self.queues[pair[0]].peer_down(pair[1], self.now_us)
        self.queues[pair[1]].peer_down(pair[0], self.now_us)

    def heal(self, one: int, other: int) -> None:
        """Have two nodes see each other again."""
        pair = self.refs[one], self.refs[other]
        self.cut.discard(frozenset(pair))
        self.up(*pair)
        self.up(*pair[::-1])

    def put(self, number: int, messages, token="put", deadline_s=1.0, **options) -> None:
        """Put at a node."""
        deadline_us = self.now_us + round(deadline_s * SECOND_US)
        self[number].put(messages, token, self.now_us, deadline_us=deadline_us, **options)

    def collect(self) -> None:
        """Take what the nodes want to have done."""
        for ref, queue in self.queues.items():
            for effect in queue.take_effects():
                match effect:
                    case Tell(node, frame):
                        self.under_way.append((ref, node, encode(frame)))
                    case PutDone(token, result):
                        assert token not in self.results
                        self.results[token] = result
                    case Answer(token, value):
                        assert token not in self.answers
                        self.answers[token] = value
                    case Event():
                        self.events.append(effect)
                    case Write():
                        self.writes.setdefault(ref, []).append(effect)

    def settle(self) -> None:
        """Have everything heard that is under way, and what that leads to."""
        self.collect()
        while self.under_way:
            sender, node, body = self.under_way.popleft()
            if node in self.queues and frozenset((sender, node)) not in self.cut:
                self.queues[node].hear(sender, decode(body), self.now_us)
            self.collect()

    def lose(self) -> None:
        """Have nobody hear what is under way."""
        self.collect()
        self.under_way.clear()

    def wait(self, seconds: float) -> None:
        """Let time pass, from deadline to deadline."""
        end_us = self.now_us + round(seconds * SECOND_US)
        while True:
            self.settle()
            due = [queue.next_deadline_us() for queue in self.queues.values()]
            next_us = min([each for each in due if each is not None], default=end_us)
            if next_us > end_us:
                break
            self.now_us = max(self.now_us + 1, next_us)
            if self.now_us >= end_us:
                break
            for queue in self.queues.values():
                queue.tick(self.now_us)
        self.now_us = end_us
        for queue in self.queues.values():
            queue.tick(end_us)
        self.settle()
