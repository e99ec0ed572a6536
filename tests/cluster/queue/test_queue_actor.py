"""The actor of a queue in simulated time: what it makes of time in which it could not run."""

from typing import Any

import pytest

from poe.actors import LoopSystem
from poe.actors.clock import SimulatedClock
from poe.broker import RoutingTable
from poe.broker.groups.membership import MemberInfo
from poe.broker.requests.groups import GroupRequest
from poe.broker.requests.queue_messages import QueuePut
from poe.cluster.actor_messages import MakeGroup, NodesChanged
from poe.cluster.queue.copies import Copies
from poe.cluster.queue_actor import QueueActor, QueueParts
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.cluster.shelf import Shelf
from poe.protocol.leases import Done, LeaseRequest
from tests.cluster.queue.wired import node_ref, peer_of

ANN = b"a" * 16
NOW_US = 1_800_000_000_000_000


class Held:
    """A queue of one node, with one message and a member that works on it."""

    def __init__(self, system):
        self.system = system
        record, me = QueueRecord(b"jobs", copies=1), peer_of(node_ref(1))
        there = Copies(), RoutingTable(), Shelf(), NOW_US, NodesChanged(())
        self.queue = system.start(QueueActor, QueueParts(record, me, *there))
        options = {"session_s": 10, "lease_s": 10}
        self.call(MakeGroup(GroupRecord(b"jobs", "workers", options, NOW_US), force=False))
        self.operate("group_join", info=MemberInfo(id=ANN))
        self.call(QueuePut([b"work"], 5.0, None))
        self.lease = self.ask(1)

    def call(self, request):
        return self.system.call(self.queue, request)

    def operate(self, op, **arguments):
        return self.call(GroupRequest(op, arguments, "workers"))

    def ask(self, limit, done=()) -> Any:
        lease, _ = self.call(LeaseRequest("workers", ANN, limit, 1 << 20, 0.0, done))
        return lease

    def beat(self):
        self.operate("group_heartbeat", member=ANN, generation=0, owned=(), wait_s=0.0)

    def hold_up(self, seconds):
        self.system.suspend(self.queue)
        self.system.advance(seconds)
        self.system.resume(self.queue)
        self.system.advance(0)

    def members(self):
        return len(self.operate("group")["members"])


@pytest.fixture
def held():
    with LoopSystem(clock=SimulatedClock()) as system:
        yield Held(system)


def test_a_queue_that_was_held_up_takes_nobody_for_silent_whom_it_has_not_heard(held):
    for _ in range(2):
        held.hold_up(30)
        held.system.advance(9)
        assert held.members() == 1
        held.beat()
    assert held.ask(0, done=[Done(held.lease.id)]).lost == ()


def test_a_queue_that_is_held_up_again_and_again_finds_out_who_is_gone(held):
    for _ in range(2):
        held.hold_up(15)
    assert held.members() == 0
