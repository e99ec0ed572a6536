"""Several nodes' sides of one queue, wired by hand: what one tells is heard when the test says."""

import random
from collections import deque
from typing import Any

from poe.broker.groups.membership import MemberInfo
from poe.broker.requests.groups import GroupRequest
from poe.cluster.frames import decode, encode
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.queue.effects import Answer, Effect, Event, PutDone, PutResult, Tell, Trim, Write
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.errors import PoeError
from poe.protocol.leases import Done, Lease, LeaseRequest
from poe.storage.formats.record import decode_records

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
        self.record = record = QueueRecord(b"jobs", **{"copies": 2, **properties})
        self.asked = 0
        self.now_us = 1_000_000_000_000
        self.results: dict[object, PutResult] = {}
        self.answers: dict[object, object] = {}
        self.events: list[Event] = []
        self.logs: dict[bytes, list[tuple[int, bytes]]] = {}
        """What each node has written, and as which message of its life; 0: in an earlier one."""
        self.writes: dict[NodeRef, list[Write]] = {}
        """What is not written yet; nothing, unless the test does it by hand."""
        self.is_writing_by_hand = False
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

    def make_group(self, number: int, name: str = "work", **options) -> None:
        """Have a group, made at a node."""
        record = GroupRecord(b"jobs", name, options, self.now_us, self.refs[number].id)
        self[number].make_group(record, self.now_us)
        self.settle()

    def ask(self, number: int, request, group: str = "work") -> Any:
        """Ask a group at a node; return its answer."""
        self.asked += 1
        token = f"asked {self.asked}"
        self[number].serve(group, request, token, self.now_us)
        self.collect()
        answer = self.answers.pop(token)
        if isinstance(answer, PoeError):
            raise answer
        return answer

    def join(self, number: int, group: str = "work") -> bytes:
        """Have a member at a node; return its id."""
        member = bytes([number, *group.encode()])[:16].ljust(16, b".")
        self.ask(number, GroupRequest("group_join", {"info": MemberInfo(id=member)}), group)
        return member

    def take(self, number: int, limit: int = 1000, group: str = "work") -> tuple[Any, list[bytes]]:
        """Lease messages at a node; return the lease and the messages."""
        member = self.join(number, group)
        answer = self.ask(number, LeaseRequest(group, member, limit, 1 << 24, 0.0), group)
        if answer.found is None:
            return answer.lease, []
        return answer.lease, [message for _, message in decode_records(answer.found.records)]

    def acknowledgement(self, member: bytes, lease: Lease, group: str = "work") -> LeaseRequest:
        """Return what a member says that has done a lease."""
        return LeaseRequest(group, member, 0, 1 << 24, 0.0, done=(Done(lease.id, None),))

    def done(self, number: int, lease: Lease, group: str = "work") -> None:
        """Acknowledge a lease at a node."""
        self.ask(number, self.acknowledgement(self.join(number, group), lease, group), group)

    def work(self, number: int, group: str = "work") -> list[bytes]:
        """Take all that there is at a node, and acknowledge it; return the messages."""
        taken: list[bytes] = []
        while True:
            lease, messages = self.take(number, group=group)
            if not messages:
                return taken
            taken += messages
            self.done(number, lease, group)

    def kill(self, number: int) -> None:
        """Have a node die, and all others see it."""
        gone = self.refs[number]
        del self.queues[gone]
        self.writes.pop(gone, None)
        for queue in self.queues.values():
            queue.peer_down(gone, self.now_us)

    def crash(self, number: int) -> None:
        """Have a node's side of the queue crash; its copies are kept, and it begins anew."""
        ref = self.refs[number]
        self.collect()
        dice = random.Random(f"{number} {self.now_us}")
        copies = self.queues[ref].copies
        self.now_us += 1
        queue = BestEffortQueue(
            self.record, ref, self.zones.get(number, ""), self.now_us, dice, copies
        )
        self.queues[ref] = queue
        if self.record.persist:
            self.logs[ref.id] = [(0, message) for _, message in self.logs.get(ref.id, ())]
            for _, message in self.logs[ref.id]:
                queue.recover(message, self.now_us)
            queue.recovered(self.now_us)
        for other in self.queues:
            if other != ref and frozenset({ref, other}) not in self.cut:
                self.up(ref, other)

    def restart(self, number: int) -> None:
        """Have a node that died begin another life, with what it has written; all others see it."""
        old = self.refs[number]
        self.refs[number] = new = old._replace(epoch=old.epoch + 1)
        zone = self.zones.get(number, "")
        dice = random.Random(f"{number} {new.epoch}")
        queue = BestEffortQueue(self.record, new, zone, self.now_us, dice)
        log = [(0, message) for _, message in self.logs.get(old.id, ())]
        self.logs[old.id] = log
        for _, message in log:
            queue.recover(message, self.now_us)
        queue.recovered(self.now_us)
        others = list(self.queues)
        self.queues[new] = queue
        for other in others:
            self.up(other, new)
            self.up(new, other)

    def collect(self) -> None:
        """Take what the nodes want to have done."""
        for ref, queue in self.queues.items():
            for effect in queue.take_effects():
                self.carry_out(ref, effect)
        if not self.is_writing_by_hand and self.writes:
            for ref in list(self.writes):
                self.write(self.refs.index(ref))
            self.collect()

    def carry_out(self, ref: NodeRef, effect: Effect) -> None:
        """Do what a node wants to have done."""
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
            case Trim(number):
                log = self.logs[ref.id]
                self.logs[ref.id] = [each for each in log if each[0] >= number]

    def write(self, number: int, error: PoeError | None = None) -> None:
        """Have a node write what it wants to have written, or fail at it."""
        ref = self.refs[number]
        for write in self.writes.pop(ref, ()):
            if ref not in self.queues:
                continue
            if error is None:
                self.logs.setdefault(ref.id, []).append((write.number, write.message))
                self.queues[ref].written(write.number, self.now_us)
            else:
                self.queues[ref].write_failed(write.number, error, self.now_us)

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
