"""Clients of a simulated cluster: producers, and members of groups that die, dawdle or fail.

All that they ask and are answered is in the history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poe.broker.groups.membership import MemberInfo
from poe.broker.requests.groups import GroupRequest
from poe.cluster.queue.effects import PutResult
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.errors import PoeError
from poe.protocol import Done, Failed, LeaseRequest
from poe.protocol.leases import Lease, Verdict
from torture.cluster_history import make_body, message_of
from torture.simulated_cluster import SECOND_US, Cluster, Hosted, Node, names_of, pointers_of

_BYTES_MAX = 1 << 20


class Producer:
    """Puts messages, one put at a time, and notes what it is told."""

    def __init__(self, cluster: Cluster, record: QueueRecord, number: int) -> None:
        self._cluster = cluster
        self._record = record
        self.name = f"p{number}"
        self._count = 0
        self.is_waiting = False

    def put(self, node: Node, count: int, size_bytes: int, copies: int, within_s: float) -> None:
        """Put so many messages at a node, unless the put before is not answered yet."""
        if self.is_waiting or not node.is_listening:
            return
        hosted = node.make_queue(self._record)
        numbers = range(self._count, self._count + count)
        self._count += count
        bodies = [make_body(f"{self.name}m{each}", size_bytes) for each in numbers]
        cluster, op, queue = self._cluster, self._cluster.next_op(), self._record.name.decode()
        cluster.add(
            "put",
            node,
            client=self.name,
            queue=queue,
            op=op,
            messages=tuple(map(message_of, bodies)),
            wanted=copies,
        )

        def answered(result: PutResult | None) -> None:
            self.is_waiting = False
            if result is not None:
                state, made = result.state, result.made
                cluster.add("answered", node, queue=queue, op=op, state=state, made=made)

        self.is_waiting = True
        deadline_us = node.now_us + round(within_s * SECOND_US)
        try:
            hosted.ask(
                lambda each, token: each.put(
                    bodies, token, node.now_us, copies=copies, deadline_us=deadline_us
                ),
                answered,
            )
        except PoeError:
            self.is_waiting = False
            cluster.add("answered", node, queue=queue, op=op, state="refused")


@dataclass(slots=True)
class Held:
    """A lease that a member was given."""

    lease: Lease
    pointers: tuple[int, ...]
    messages: tuple[str, ...]
    node: Node
    life: int


class Member:
    """A member of a group at one node, until it dies, or the node does."""

    def __init__(self, cluster: Cluster, queue: QueueRecord, group: GroupRecord) -> None:
        self._cluster = cluster
        self._record = queue
        self._group = group
        self._fields: dict[str, Any] = {"queue": queue.name.decode(), "group": group.name}
        self.held: list[Held] = []
        self.handed_count = 0
        self._begin()

    def _begin(self) -> None:
        """Be another process."""
        self._id = self._cluster.random.randbytes(16)
        self._name = self._id.hex()[:8]
        self._at: tuple[Node, int] | None = None
        """Where it is a member, and in which life of the node; None: nowhere."""
        self._waiting: tuple[Hosted, int] | None = None
        self._joining = False
        self.held = []

    @property
    def node(self) -> Node | None:
        """Where it is a member."""
        if self._at is not None:
            node, life = self._at
            if node.is_serving and node.life == life:
                return node
            self._at = None
        return None

    @property
    def group(self) -> GroupRecord:
        """The group."""
        return self._group

    @property
    def is_idle(self) -> bool:
        """Whether it waits for nothing."""
        return self._waiting is None and not self._joining

    def join(self, node: Node) -> None:
        """Become a member at a node, which makes queue and group where it knows of none."""
        if self._joining or not node.is_listening:
            return
        hosted = node.make_queue(self._record)
        hosted.make_group(self._group)
        self._joining = True
        me = self._id

        def answered(answer: Any) -> None:
            if me == self._id:
                self._joining = False
                if answer is not None and not isinstance(answer, PoeError):
                    self._at = node, node.life

        request = GroupRequest("group_join", {"info": MemberInfo(id=me, name=self._name)})
        self._ask(hosted, request, answered)

    def take(self, limit: int, wait_s: float) -> None:
        """Ask for messages."""
        node = self.node
        if node is None or not self.is_idle or not node.is_listening:
            return
        hosted, me, name = node.hosted[self._record.name], self._id, self._name
        life = node.life

        def answered(answer: Any) -> None:
            is_heard = me == self._id
            if is_heard:
                self._waiting = None
            if answer is None:
                self._cluster.add("untold", node, client=name, **self._fields)
                return
            if isinstance(answer, PoeError):
                if is_heard:
                    self._at = None
                return
            lease, found = answer
            if found is None:
                return
            records = bytes(found.records)
            messages = names_of(records)
            state = "" if is_heard else "lost"
            self._cluster.add(
                "handed", node, client=name, **self._fields, messages=messages, state=state
            )
            if is_heard:
                self.held.append(Held(lease, pointers_of(records), messages, node, life))
                self.handed_count += len(messages)
            else:
                self._perhaps_return(hosted, name, lease, messages)

        request = LeaseRequest(self._group.name, me, limit, _BYTES_MAX, wait_s)
        number = self._ask(hosted, request, answered)
        if hosted.is_asked(number):
            self._waiting = hosted, number

    def _perhaps_return(
        self, hosted: Hosted, name: str, lease: Lease, messages: tuple[str, ...]
    ) -> None:
        """Have a node learn that who asked for messages was gone when it was answered; or never."""
        node, cluster = hosted.node, self._cluster

        def learn() -> None:
            cluster.add("undelivered", node, client=name, **self._fields, messages=messages)
            hosted.do(lambda queue: queue.undelivered(self._group.name, lease, node.now_us))

        if cluster.random.random() < 0.5:
            node.alarm(node.now_us, learn)

    def finish(self, held: Held) -> None:
        """Say that a lease is done, at the node that gave it."""
        self.held.remove(held)
        self._tell(held, held.messages, Done(held.lease.id))

    def finish_part(self, held: Held, begin: int, end: int) -> None:
        """Say that some messages of a lease are done, from one number to another one."""
        after = held.pointers[begin - 1] if begin else held.lease.after
        ranges = [(after, held.pointers[end - 1])]
        self._tell(held, held.messages[begin:end], Done(held.lease.id, ranges))

    def fail(self, held: Held, verdict: Verdict) -> None:
        """Say of a lease that it was not done."""
        self.held.remove(held)
        lease = held.lease
        self._tell(held, (), Failed(lease.id, lease.after, lease.last, verdict, None, "why"))

    def beat(self) -> None:
        """Give a sign of life, for all that is held."""
        node = self.node
        if node is None or not node.is_listening:
            return
        leases = [each.lease.id for each in self.held if each.life == node.life]
        arguments = {"member": self._id, "leases": leases, "seconds": 5.0}
        self._ask(
            node.hosted[self._record.name], GroupRequest("group_extend", arguments), lambda _: None
        )

    def die(self) -> None:
        """End, and begin as another process; what was held is held by nobody."""
        waiting = self._waiting
        self._begin()
        if waiting is not None:
            hosted, number = waiting
            # Some are seen to be gone only when they are answered.
            if not hosted.node.is_frozen and number % 3:
                hosted.cancel(number)

    def _tell(self, held: Held, messages: Sequence[str], what: Done | Failed) -> None:
        """Say what became of messages of a lease."""
        node, cluster = held.node, self._cluster
        if not node.is_listening or node.life != held.life:
            return
        op = cluster.next_op()
        fields = {**self._fields, "op": op, "messages": tuple(messages), "client": self._name}
        if messages:
            cluster.add("ack", node, **fields)

        def answered(answer: Any) -> None:
            if messages and answer is not None:
                is_lost = isinstance(answer, PoeError) or held.lease.id in answer[0].lost
                cluster.add("unheld" if is_lost else "acked", node, **fields)

        done, failed = ([what], []) if isinstance(what, Done) else ([], [what])
        request = LeaseRequest(self._group.name, self._id, 0, _BYTES_MAX, 0.0, done, failed)
        self._ask(node.hosted[self._record.name], request, answered)

    def _ask(self, hosted: Hosted, request: Any, answered: Any) -> int:
        node = hosted.node
        return hosted.ask(
            lambda each, token: each.serve(self._group.name, request, token, node.now_us), answered
        )
