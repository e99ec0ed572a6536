"""Queues of a cluster of one node, without a network: what a broker and its clients meet.

They keep to what `poe.broker.requests.queue_messages` says, as the actors of `poe.cluster` do.
"""

import time
from typing import Any

from poe import Node
from poe.actors import NO_REPLY, Error, GenServer
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.groups.options import matches
from poe.broker.registry.queue_table import QueueTable
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.groups import DeleteGroup, FindGroup, GroupRequest, ListGroups, Undelivered
from poe.broker.requests.queue_messages import (
    QUEUES,
    Browsed,
    BrowseQueue,
    ClusterRequest,
    DeleteQueue,
    DescribeQueue,
    FindQueue,
    HeldRecords,
    ListQueues,
    QueuePut,
    QueueStored,
)
from poe.cluster.batch import Batch
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Answer
from poe.cluster.queue.group_share import GroupShare, LeasedCopies
from poe.cluster.queue_record import GroupRecord
from poe.errors import (
    GroupMismatch,
    PoeError,
    QueueMismatch,
    TooFewNodes,
    UnderCopies,
    UnknownGroup,
    UnknownQueue,
)
from poe.protocol.leases import Lease, LeaseRequest

ME = NodeRef(b"lonenode", 1)
STREAM = StreamId(*ME)
UNDER = b"under"
"""Onto a queue of this name nothing is stored on as many nodes as was asked for."""


def now_us() -> int:
    return time.time_ns() // 1000


def told(answer: Any) -> Any:
    """Return an answer as connections send it."""
    if not isinstance(answer, LeasedCopies):
        return answer
    found = answer.found
    return answer.lease, None if found is None else HeldRecords(found.entries, found.records)


class LoneQueue(GenServer):
    """The actor of one queue."""

    def init(self, name: bytes, properties: dict[str, Any]) -> None:
        self.queue, self.properties = name, {"copies": 1, "persist": False, **properties}
        self.copies = Copies()
        self.shares: dict[str, GroupShare] = {}
        self.asked: dict[Any, GroupShare] = {}
        self.is_ending = False

    def handle_call(self, request: Any, caller: Any) -> Any:
        answer: Any = None
        try:
            match request:
                case QueuePut():
                    answer = self.put(request)
                case LeaseRequest() | GroupRequest():
                    share = self.asked[caller] = self.shares[request.group]
                    share.serve(request, caller, now_us())
                    answer = NO_REPLY
                case FindGroup():
                    self.make_group(request)
                case BrowseQueue():
                    answer = self.browse(request)
                case DescribeQueue():
                    count = self.copies.messages_count
                    answer = {"name": self.queue, **self.properties, "messages": count}
        except PoeError as error:
            answer = Error(error)
        self.go_on()
        return answer

    def handle_cast(self, message: Undelivered | ReleaseWaiting) -> None:
        if isinstance(message, Undelivered):
            self.shares[message.group].undelivered(message.lease, now_us())
        else:
            self.is_ending = True
        self.go_on()

    def handle_info(self, message: Any) -> None:
        for share in self.shares.values():
            share.expire(now_us())
        self.go_on()

    def go_on(self) -> None:
        for share in self.shares.values():
            for effect in share.take_effects():
                assert isinstance(effect, Answer)
                caller: Any = effect.token
                del self.asked[caller]
                if isinstance(effect.value, PoeError):
                    self.reply_error(caller, effect.value)
                else:
                    self.reply(caller, told(effect.value))
            due_us = share.next_deadline_us()
            if due_us is not None:
                self.send_after(max(0, due_us - now_us()) / 1e6, "tick")
        while self.is_ending and self.asked:
            caller, share = self.asked.popitem()
            share.cancel(caller, now_us())
            self.reply(caller, (Lease(), None))

    def put(self, request: QueuePut) -> QueueStored:
        wanted = request.copies or self.properties["copies"]
        if wanted > 1:
            raise TooFewNodes(wanted, 1)
        messages: Any = request.messages
        batch = Batch.encode(messages, *self.copies.place(STREAM, now_us()))
        self.copies.add(STREAM, batch)
        for share in self.shares.values():
            share.arrived(STREAM, batch.after, batch.last, now_us())
        if self.queue == UNDER:
            raise UnderCopies(2, 1)
        return QueueStored(batch.last, 1)

    def make_group(self, wanted: FindGroup) -> None:
        if wanted.name in self.shares:
            return
        record = GroupRecord(self.queue, wanted.name, wanted.options or {}, now_us())
        share = self.shares[wanted.name] = GroupShare(record, ME, self.copies, now_us())
        share.set_owned(STREAM, list(self.copies.held(STREAM)), "", now_us())

    def browse(self, request: BrowseQueue) -> Browsed:
        unit, after = b"%b@%b.1" % (self.queue, ME.id.hex().encode()), request.after[1]
        found = self.copies.find(STREAM, after, 1 << 56, request.limit, request.bytes_max)
        if found is None:
            return Browsed(b"", 0)
        return Browsed(unit, found.last, HeldRecords(found.entries, found.records))


class LoneQueues(GenServer):
    """The registry of all queues."""

    def init(self, routes: RoutingTable) -> None:
        self.register(QUEUES)
        self.routes = routes
        self.refs: dict[bytes, Any] = {}
        self.forget_groups()

    def forget_groups(self) -> None:
        """Know of queues only, as after a restart."""
        self.groups: dict[str, bytes] = {}
        self.table = self.routes.queues = QueueTable()
        for name, ref in self.refs.items():
            self.table.add(name, ref)

    async def handle_call(self, request: Any, caller: Any) -> Any:
        try:
            return await self.serve(request)
        except PoeError as error:
            return Error(error)

    def handle_cast(self, message: ReleaseWaiting) -> None:
        for ref in self.refs.values():
            self.cast(ref, message)

    async def serve(self, request: Any) -> Any:
        answer: Any = None
        match request:
            case FindQueue():
                answer = await self.find(request)
            case ListQueues():
                actors = [self.refs[each] for each in self.table.names()]
                answer = [await self.call(each, DescribeQueue()) for each in actors]
            case DeleteQueue(name):
                if self.refs.pop(name, None) is None:
                    raise UnknownQueue(name)
                self.table.remove(name)
            case FindGroup():
                answer = await self.find_group(request)
            case ListGroups():
                answer = [
                    {"group": name, "mode": "shared", "topics": [queue]}
                    for name, queue in self.groups.items()
                ]
            case DeleteGroup(name, _):
                del self.groups[name]
                self.table.remove_group(name)
            case ClusterRequest(op, arguments):
                answer = {"op": op, **arguments}
            case "forget groups":
                self.forget_groups()
        return answer

    async def find(self, wanted: FindQueue) -> Any:
        if wanted.name not in self.table:
            if wanted.properties is None:
                raise UnknownQueue(wanted.name)
            ref = await self.start_link(LoneQueue, wanted.name, wanted.properties)
            assert ref is not None
            self.refs[wanted.name] = ref
            self.table.add(wanted.name, ref)
        elif wanted.is_new:
            raise QueueMismatch(wanted.name, "name", "new", "in use")
        return self.table.actor(wanted.name)

    async def find_group(self, wanted: FindGroup) -> Any:
        if wanted.name not in self.groups:
            if wanted.mode is None or not wanted.may_create:
                raise UnknownGroup(wanted.name)
            (topic,) = wanted.topics
            ref = await self.find(FindQueue(topic, {}))
            await self.call(ref, wanted)
            self.groups[wanted.name] = topic
            self.table.add_group(wanted.name, topic)
        topic = self.groups[wanted.name]
        if wanted.mode not in {None, "shared"}:
            raise GroupMismatch(wanted.name, "mode", wanted.mode, "shared")
        if wanted.topics and not matches(wanted.topics[0], topic):
            raise GroupMismatch(wanted.name, "topics", list(wanted.topics), [topic])
        return self.table.actor(topic)


class QueueNode(Node):
    """A node of a cluster of one."""

    def start(self, system: Any = None) -> Any:
        super().start(system)
        self.system.start(LoneQueues, self._routes)
        return self
