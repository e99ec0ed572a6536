"""A cluster in simulated time: the pure parts of each node, and what an actor would do for them.

Nodes are `BestEffortQueue` and `Membership` over a `SimulatedNetwork`; here is what carries out
their effects, and what makes a history of it. Clients are in `torture/cluster_clients.py`. With the
same random numbers the same happens.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from random import Random
from typing import Any

from poe.cluster import frames
from poe.cluster.batch import Batch
from poe.cluster.fabric.interface import FabricEvent, PeerDown, PeerUp
from poe.cluster.identity import PROTOCOL, NodeRef, Peer, StreamId
from poe.cluster.members import membership
from poe.cluster.members.membership import Membership
from poe.cluster.members.table import Member
from poe.cluster.queue import effects
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.protocol import envelope
from poe.record import RECORD_HEADER_BYTES, SIZE_BYTES, decode_header
from poe.testing.simulated_fabric import SimulatedNetwork, Spans, Told
from torture.cluster_history import Event, Kind, message_of

SECOND_US = 1_000_000
_GOSSIP_US = 5 * SECOND_US
_BURY_US = 50_000
_WRITE_US = 5000
"""What it takes a disk to write, at most."""

Answered = Callable[[Any], None]
"""Called with what a node answers, a `PoeError`, or None where it is gone."""


class Cluster:
    """Nodes of one cluster, and what happened to them."""

    def __init__(self, random: Random, count: int, zones: int = 1) -> None:
        self.random = random
        lease_us = random.choice([500_000, 2 * SECOND_US])
        self.network = SimulatedNetwork(random.getrandbits(32), spans=Spans(lease_us))
        self.events: list[Event] = []
        self.is_encoded = random.random() < 0.25
        """Whether frames travel as bytes; else as they are, which takes less time."""
        self.lives: dict[NodeRef, tuple[Node, int]] = {}
        """Whose a life is, and the number of it there."""
        self.names: dict[StreamId, dict[int, str]] = {}
        """The message at each pointer, as far as anybody has stored it."""
        self.nodes: list[Node] = []
        self._ops = 0
        for place in range(count):
            self.add_node(f"z{place % zones}")

    @property
    def now_us(self) -> int:
        """The time, as no node knows it."""
        return self.network.now_us

    def add(self, kind: Kind, node: "Node | None" = None, **fields: Any) -> None:
        """Add an event to the history."""
        if node is not None:
            fields["node"], fields["life"] = node.name, node.life
        self.events.append(Event(self.now_us, kind, **fields))

    def next_op(self) -> int:
        """Return a number that no operation has had."""
        self._ops += 1
        return self._ops

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.network.run_for(round(seconds * SECOND_US))

    def add_node(self, zone: str, copied: "Node | None" = None) -> "Node":
        """Have one more node, perhaps with a copy of the folder of another one."""
        node = Node(self, len(self.nodes), zone)
        if copied is not None:
            node.ids, node.epoch = list(copied.ids), copied.epoch
            node.table = list(copied.table)
        self.nodes.append(node)
        return node

    def matters(self, queue: bytes, stream: StreamId) -> bool:
        """Return whether more may be put onto a stream, or somebody holds something of it."""
        node, life = self.lives[NodeRef(*stream)]
        return (node.is_serving and node.life == life) or any(
            stream in each.hosted[queue].copies.streams()
            for each in self.nodes
            if queue in each.hosted
        )

    def named(self, stream: StreamId, ranges: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """Return the messages of a stream that lie in some ranges."""
        names = self.names.get(stream, {})
        return tuple(
            name
            for after, last in ranges
            for pointer, name in names.items()
            if after < pointer <= last
        )


class Node:
    """One node: what of it outlives its process, and what does not."""

    def __init__(self, cluster: Cluster, place: int, zone: str) -> None:
        self.cluster = cluster
        self.place = place
        self.name = f"n{place}"
        self.zone = zone
        self.life = 0
        self.ids = [cluster.random.randbytes(8)]
        """The last one is its own now; the others were wiped with its folder."""
        self.epoch = 0
        self.skew_us = 0
        """How far the clock of its life is ahead."""
        self.next_skew_us = 0
        """... and that of its machine, which its next life goes by."""
        self.table: list[Member] = []
        """The members that its disk has; below, the logs of queues."""
        self.topics: dict[bytes, tuple[QueueRecord, list[tuple[int, int, bytes]]]] = {}
        """Of each queue its record, and of each message the life and number by which it came."""
        self.is_running = False
        self.is_fenced = False
        self.lag_us = cluster.random.choice([0, 0, 1000, 300_000])
        """How much later than others it learns who comes and goes."""
        self.hosted: dict[bytes, Hosted] = {}

    @property
    def now_us(self) -> int:
        """What its clock says."""
        return self.cluster.now_us + self.skew_us

    @property
    def is_serving(self) -> bool:
        """Whether it takes requests."""
        return self.is_running and not self.is_fenced

    @property
    def is_frozen(self) -> bool:
        """Whether it does nothing for now."""
        return self.is_running and self.cluster.network.is_frozen(self.name)

    @property
    def is_listening(self) -> bool:
        """Whether it takes requests now."""
        return self.is_serving and not self.is_frozen

    # ---- lives ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life."""
        cluster = self.cluster
        self.skew_us = self.next_skew_us
        self.epoch = max(self.epoch + 1, self.now_us)
        self.life += 1
        self.is_running, self.is_fenced = True, False
        self.hosted = {}
        self._slow: set[NodeRef] = set()
        while NodeRef(self.ids[-1], self.epoch) in cluster.lives:
            self.epoch += 1  # two processes of one folder, in the same microsecond
        self.ref = NodeRef(self.ids[-1], self.epoch)
        cluster.lives[self.ref] = self, self.life
        incarnation = cluster.random.randbytes(8)
        peer = Peer(self.ref, self.name, self.zone, PROTOCOL, incarnation, f"{self.name}:1")
        copies = [each.name for each in cluster.nodes if each.ids[-1] == self.ids[-1]]
        cluster.add("start", self, peers=tuple(each for each in copies if each != self.name))
        self.membership = Membership(peer, self.table)
        self.membership.join()
        self.fabric = cluster.network.fabric(self.name)
        self.fabric.open(peer, self._hear)
        for record, _ in list(self.topics.values()):
            self.hosted[record.name] = Hosted(self, record)
        self.follow_membership()
        self._gossip()

    def kill(self, *, is_disk_lost: bool = False) -> None:
        """End a life; memory is gone, and the disk perhaps."""
        state = "kept" if self.topics and not is_disk_lost else "lost"
        self.cluster.add("kill", self, state=state)
        self.is_running = False
        hosted, self.hosted = self.hosted, {}
        for each in hosted.values():
            each.end()
        self.cluster.network.kill(self.name)
        if is_disk_lost:
            self.topics.clear()

    def wipe(self) -> None:
        """Begin anew with an empty folder."""
        self.ids.append(self.cluster.random.randbytes(8))
        self.table = []
        self.topics.clear()

    # ---- members --------------------------------------------------------------------------------

    def follow_membership(self) -> None:
        """Carry out what follows for members."""
        for effect in self.membership.take_effects():
            match effect:
                case membership.Up(peer):
                    self._tell_tables(peer.ref)
                    self._for_all(BestEffortQueue.peer_up, peer, self.now_us)
                case membership.Down(ref, _):
                    node, life = self.cluster.lives[ref]
                    self.cluster.add("down", self, peers=(node.name,), made=life)
                    self._for_all(BestEffortQueue.peer_down, ref, self.now_us)
                case membership.PaceChanged(ref, pace):
                    is_slow = pace != "ok"
                    self._for_all(BestEffortQueue.peer_pace, ref, self.now_us, is_slow=is_slow)
                case membership.MemberGone(node_id, _):
                    self._for_all(BestEffortQueue.forget, node_id, self.now_us)
                case membership.TableChanged(members):
                    self.table = list(self.membership.table)
                    self._for_all(BestEffortQueue.know_members, self.member_ids())
                    for peer in self.membership.live.values():
                        self.tell(peer.ref, members)
                case membership.Refused(peer, _):
                    self._tell_tables(peer.ref)
                case membership.Fenced():
                    self._leave()

    def _gossip(self) -> None:
        """Tell one of the others which nodes and queues there are, now and then."""
        if self.membership.live:
            peer = self.cluster.random.choice(sorted(self.membership.live.values()))
            self._tell_tables(peer.ref)
        self.membership.tick(self.now_us)
        self.follow_membership()
        self.alarm(self.now_us + _GOSSIP_US, self._gossip)

    def _tell_tables(self, ref: NodeRef) -> None:
        records = [each.record for each in self.hosted.values()]
        self.tell(ref, (*self.membership.table, *records))

    def forget(self, node_id: bytes) -> bool:
        """Have the cluster forget a node that does not live; return whether it does."""
        known = self.membership.table.get(node_id)
        is_dead = node_id not in self.membership.live and node_id != self.ref.id
        if known is None or known.state != "joined" or not is_dead:
            return False
        self.membership.forget(node_id.hex(), self.now_us)
        self.follow_membership()
        return True

    def forget_the_dead(self) -> None:
        """Have the cluster forget all nodes that do not live."""
        for each in self.member_ids():
            self.forget(each)

    def member_ids(self) -> list[bytes]:
        """Return the ids of all nodes of the cluster, as far as this one knows."""
        return [each.id for each in self.membership.table if each.state == "joined"]

    def _leave(self) -> None:
        """Be fenced: what it has of queues does not count any more."""
        self.is_fenced = True
        self.fabric.close()
        self.cluster.add("forget", self)
        hosted, self.hosted = self.hosted, {}
        for each in hosted.values():
            each.end()

    # ---- what is told ---------------------------------------------------------------------------

    def tell(self, ref: NodeRef, what: Any) -> None:
        """Tell another node something."""
        if self.cluster.is_encoded and isinstance(what, frames.QueueFrame):
            what = frames.encode(what)
        if not self.fabric.tell(ref, what) and ref in self._live_refs() and ref not in self._slow:
            self._slow.add(ref)
            self.membership.peer_pace(ref, self.now_us, is_slow=True)
            self._look_at_pace(ref)

    def _live_refs(self) -> set[NodeRef]:
        return {each.ref for each in self.membership.live.values()}

    def _look_at_pace(self, ref: NodeRef) -> None:
        """See after a while whether a node is slow no more."""
        network, other = self.cluster.network, self.cluster.lives[ref][0]
        if network.has_room(self.name, other.name):
            self._slow.discard(ref)
            self.membership.peer_pace(ref, self.now_us, is_slow=False)
        else:
            self.alarm(self.now_us + SECOND_US // 2, lambda: self._look_at_pace(ref))

    def _hear(self, event: FabricEvent | Told) -> None:
        match event:
            case Told(sender, frame):
                self._take(sender, frame)
            case PeerUp() | PeerDown() if self.lag_us:
                self.alarm(self.now_us + self.lag_us, lambda: self._see(event))
            case PeerUp() | PeerDown():
                self._see(event)

    def _see(self, event: PeerUp | PeerDown) -> None:
        match event:
            case PeerUp(peer):
                self.membership.peer_up(peer, self.now_us)
            case PeerDown(ref, why):
                self.membership.peer_down(ref, why, self.now_us)
        self.follow_membership()

    def _take(self, sender: NodeRef, what: Any) -> None:
        if self.is_fenced:
            return
        if isinstance(what, bytes):
            what = frames.decode(what)
        if not isinstance(what, frames.QueueFrame):
            for each in what:
                if isinstance(each, QueueRecord):
                    self.make_queue(each)
            self.membership.hear([each for each in what if isinstance(each, Member)], self.now_us)
            self.follow_membership()
            return
        if isinstance(what, frames.Store):
            self.make_queue(what.record)
        hosted = self.hosted.get(what.queue)
        if hosted is not None:
            hosted.do(lambda queue: queue.hear(sender, what, self.now_us))

    def _for_all(self, do: Callable[..., object], *values: Any, **named: Any) -> None:
        for hosted in self.hosted.values():
            hosted.do(lambda queue: do(queue, *values, **named))

    # ---- queues ---------------------------------------------------------------------------------

    def make_queue(self, record: QueueRecord) -> "Hosted":
        """Return a queue, which is made and told to all where it is not there."""
        hosted = self.hosted.get(record.name)
        if hosted is None:
            hosted = self.hosted[record.name] = Hosted(self, record)
            for peer in self.membership.live.values():
                self.tell(peer.ref, (record,))
        return hosted

    def alarm(self, at_us: int, do: Callable[[], None]) -> None:
        """Have something done at a time of its clock, in this life."""
        self.cluster.network.at(max(at_us - self.now_us, 0), do, self.name)


class Hosted:
    """A queue of a node, and who runs it."""

    def __init__(self, node: Node, record: QueueRecord) -> None:
        self.node = node
        self.record = record
        self.copies = _SeenCopies(node, record.name.decode())
        self.groups: dict[str, GroupRecord] = {}
        self._asked: dict[int, Answered] = {}
        self._alarm_us: int | None = None
        self._begin()

    def _begin(self) -> None:
        node = self.node
        dice = Random(node.cluster.random.random())
        self.queue = BestEffortQueue(
            self.record, node.ref, node.zone, node.now_us, dice, self.copies
        )
        self._written_us = node.now_us
        if self.record.persist:
            _, log = node.topics.setdefault(self.record.name, (self.record, []))
            for _, _, message in log:
                self.queue.recover(message, node.now_us)
            self.queue.recovered(node.now_us)
        self.queue.know_members(node.member_ids())
        for each in node.membership.table:
            if each.state != "joined":
                self.queue.forget(each.id, node.now_us)
        for peer in node.membership.live.values():
            self.queue.peer_up(peer, node.now_us)
        for record in self.groups.values():
            self.queue.make_group(record, node.now_us)
        self.carry_out()

    def crash(self) -> None:
        """Have the actor crash: nothing is left of it but the copies."""
        self.node.cluster.add("crash", self.node, queue=self.record.name.decode())
        self.end()
        self.groups = {record.name: record for record in self.queue.groups()}
        self._begin()

    def end(self) -> None:
        """Have nobody answered any more."""
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(None)

    def do(self, do: Callable[[BestEffortQueue], object]) -> None:
        """Have the queue do something, and carry out what follows."""
        do(self.queue)
        self.carry_out()

    def ask(self, do: Callable[[BestEffortQueue, int], object], answered: Answered) -> int:
        """Ask the queue something; return the token, by which it may be cancelled."""
        token = self.node.cluster.next_op()
        self._asked[token] = answered
        self.do(lambda queue: do(queue, token))
        return token

    def is_asked(self, token: int) -> bool:
        """Return whether it has not answered yet."""
        return token in self._asked

    def cancel(self, token: int) -> None:
        """Have who asked be gone; what is on its way to it is told to nobody, as in a network."""
        if token in self._asked:
            self.do(lambda queue: queue.cancel(token, self.node.now_us))

    def make_group(self, record: GroupRecord) -> None:
        """Make a group at this node, unless it was made here."""
        if record.name in self.groups:
            return
        self.groups[record.name] = record
        self.do(lambda queue: queue.make_group(record, self.node.now_us))

    def state(self) -> str:
        """Return what the node knows to be done, for each group and stream.

        But for streams that are over and held by nobody, which it may have forgotten.
        """
        cluster = self.node.cluster
        return str(
            [
                (group.name, str(stream), known.done)
                for group in sorted(self.queue.groups())
                for stream, known in sorted(self.queue.known(group.name).items())
                if known.done and cluster.matters(self.record.name, stream)
            ]
        )

    def tell_report(self) -> None:
        """Have in the history what the node reports."""
        cluster, queue = self.node.cluster, self.record.name.decode()
        cluster.add("report", self.node, queue=queue)
        for group in self.queue.groups():
            fields: dict[str, Any] = {"queue": queue, "group": group.name}
            for each in self.queue.repeated(group.name):
                fields |= {"state": each.certainty, "text": each.cause}
                messages = cluster.named(each.stream, [(each.after, each.last)])
                cluster.add("report", self.node, **fields, messages=messages)

    def carry_out(self) -> None:
        """Do what the queue wants done, and set the alarm."""
        node, queue = self.node, self.queue
        while todo := queue.take_effects():
            for effect in todo:
                self._carry_out(effect)
        self.copies.forget_dropped()
        deadline_us = queue.next_deadline_us()
        if deadline_us is not None and (self._alarm_us is None or deadline_us < self._alarm_us):
            self._alarm_us = deadline_us
            node.alarm(deadline_us, lambda: self._wake(deadline_us))

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Tell(ref, frame):
                self.node.tell(ref, frame)
            case effects.PutDone(int(token), value) | effects.Answer(int(token), value):
                answered = self._asked.pop(token, None)
                if answered is not None:
                    answered(value)
            case effects.Write(number, message):
                self._write(self.queue, number, message)
            case effects.Trim(number):
                self._trim(number)
            case effects.Bury(group, number, _, _, batches):
                self._bury(group, number, batches)
            case effects.Event("dropped", _):
                self.copies.tell_dropped()

    def _bury(self, group: str, number: int, batches: Iterable[Batch]) -> None:
        """Have dead letters held by another queue, which may be told, or never."""
        node, queue = self.node, self.queue
        letters = [
            envelope.decode(letter)[1] or b""
            for batch in batches
            for _, letter in _records(batch.records)
        ]

        def held() -> None:
            if self.queue is queue and node.hosted.get(self.record.name) is self:
                name = self.record.name.decode()
                messages = tuple(map(message_of, letters))
                node.cluster.add("dead", node, queue=name, group=group, messages=messages)
                self.do(lambda queue: queue.buried(group, number, node.now_us))

        if node.cluster.random.random() < 0.7:
            node.alarm(node.now_us + node.cluster.random.randint(1, _BURY_US), held)

    def _wake(self, deadline_us: int) -> None:
        if self._alarm_us == deadline_us and self.node.hosted.get(self.record.name) is self:
            self._alarm_us = None
            self.do(lambda queue: queue.tick(self.node.now_us))

    def _write(self, queue: BestEffortQueue, number: int, message: bytes) -> None:
        """Have a message written behind those before it."""
        node = self.node

        def written() -> None:
            if self.queue is queue and node.hosted.get(self.record.name) is self:
                node.topics[self.record.name][1].append((node.life, number, message))
                self.do(lambda queue: queue.written(number, node.now_us))

        delay_us = node.cluster.random.randint(1, _WRITE_US)
        self._written_us = max(self._written_us, node.now_us + delay_us)
        node.alarm(self._written_us, written)

    def _trim(self, number: int) -> None:
        """Let go of what was written before a message of this life."""
        node = self.node
        _, log = node.topics[self.record.name]
        log[:] = [each for each in log if each[:2] >= (node.life, number)]


class _SeenCopies(Copies):
    """Copies of which the history tells what is held."""

    def __init__(self, node: Node, queue: str) -> None:
        super().__init__()
        self._node = node
        self._queue = queue
        self._dropped: list[str] = []

    def add(self, stream: StreamId, batch: Batch) -> list[tuple[int, int]]:
        new = super().add(stream, batch)
        cluster = self._node.cluster
        if new:
            names = names_of(batch.records)
            pointers = range(batch.first, batch.last + 1)
            cluster.names.setdefault(stream, {}).update(zip(pointers, names, strict=True))
            cluster.add(
                "stored",
                self._node,
                queue=self._queue,
                messages=names,
                made=self.messages_count,
                size_bytes=self.bytes_count,
            )
        return new

    def drop(self, stream: StreamId, after: int, last: int) -> list[tuple[int, int]]:
        for batch in self.batches(stream, after, last):
            self._dropped += names_of(batch.records)
        return super().drop(stream, after, last)

    def tell_dropped(self) -> None:
        """Have it in the history that what was dropped last is told to people."""
        if self._dropped:
            self._node.cluster.add(
                "dropped", self._node, queue=self._queue, messages=tuple(self._dropped)
            )
            self._dropped.clear()

    def forget_dropped(self) -> None:
        """Take what was dropped since the last time for done."""
        self._dropped.clear()


@lru_cache(4096)
def names_of(records: bytes) -> tuple[str, ...]:
    """Return the names of messages, of which these are the records."""
    return tuple(message_of(body) for _, body in _records(records))


def pointers_of(records: bytes) -> tuple[int, ...]:
    """Return the pointers of some records."""
    return tuple(pointer for pointer, _ in _records(records))


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        size, pointer = decode_header(data[at : at + RECORD_HEADER_BYTES])
        end = at + SIZE_BYTES + size
        yield pointer, data[at + RECORD_HEADER_BYTES : end]
        at = end
