"""A partition supervisor: a key leads to one of several equal children, each restarted alone."""

import pytest

from poe.actors import GenServer
from poe.errors import InvalidChildSpec
from poe.supervision import (
    ChildKind,
    ChildSpec,
    CountChildren,
    Partitions,
    PartitionSupervisor,
    StartDynamicChild,
    Strategy,
    Supervisor,
    SupervisorFlags,
    start_dynamic_child,
)
from tests.supervision.workers import Worker

WORKERS = Partitions("workers", 4)


class Register(GenServer):
    """Keeps what it is told, and tells it."""

    def init(self):
        self.values = []

    def handle_call(self, request, caller):
        return self.values

    def handle_cast(self, message):
        if message == "crash":
            raise ValueError(message)
        self.values.append(message)


REGISTER = ChildSpec(id="register", actor=Register)


def test_a_key_always_leads_to_the_same_partition(world):
    supervisor = world.base.start(PartitionSupervisor, WORKERS, REGISTER)
    keys = [*range(8), *(f"key {number}" for number in range(8)), b"bytes"]
    for key in keys:
        world.base.cast(WORKERS.find(key), key)
    for key in keys:
        assert key in world.base.call(WORKERS.find(key), "values")
    counts = world.ask(supervisor, CountChildren())
    assert (counts.specs, counts.active) == (4, 4)


def test_the_partition_of_a_key_is_the_same_on_every_machine():
    # Known values of XXH3; another hash would send a key's work elsewhere after an upgrade.
    indexes = [Partitions("p", 1000).index(key) for key in ("a", b"a", "poe", b"")]
    assert indexes == [719, 719, 962, 138]
    assert [Partitions("p", 3).index(key) for key in (0, 1, 2, 3, -1)] == [0, 1, 2, 0, 2]


def test_keys_are_spread_over_all_partitions():
    used = [Partitions("p", 8).index(f"key {number}") for number in range(8000)]
    assert all(800 < used.count(index) < 1200 for index in range(8))


def test_each_partition_is_restarted_alone_under_its_name(world):
    supervisor = world.base.start(PartitionSupervisor, WORKERS, REGISTER)
    for key in range(4):
        world.base.cast(WORKERS.find(key), key)
    world.base.cast(WORKERS.find(2), "crash")
    kept = [world.base.call(WORKERS.find(key), "values") for key in range(4)]
    assert kept == [[0], [1], [], [3]]
    assert list(world.slots(supervisor)) == [0, 1, 2, 3]


def test_partitions_may_be_supervisors_of_dynamic_children(world):
    template = ChildSpec(id="worker", actor=Worker, args=(world.journal,))
    flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
    spec = ChildSpec(
        id="sup", actor=Supervisor, args=(flags, [template]), kind=ChildKind.SUPERVISOR
    )
    world.base.start(PartitionSupervisor, WORKERS, spec)

    class Asker(GenServer):
        async def handle_call(self, request, caller):
            return await start_dynamic_child(self, WORKERS.find(request), request)

    asker = world.base.start(Asker)
    for key in ("x", "y", "z"):
        assert world.base.call(asker, key).cell.parent.name == WORKERS.find(key)
    world.ask(WORKERS.find("x"), StartDynamicChild(("more",)))


def test_a_partition_that_crashes_too_often_ends_the_supervisor(world):
    flags = SupervisorFlags(intensity=1)
    supervisor = world.watch(world.base.start(PartitionSupervisor, WORKERS, REGISTER, flags))
    for _ in range(2):
        world.base.cast(WORKERS.find(0), "crash")
    assert world.reason_of(supervisor) == "shutdown"
    assert world.base.whereis(WORKERS.find(1)) is None


def test_what_cannot_be_partitions_is_refused(world):
    with pytest.raises(InvalidChildSpec, match="count is 0"):
        Partitions("p", 0)
    flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ALL)
    with pytest.raises(Exception, match="use one_for_one"):
        world.base.start(PartitionSupervisor, WORKERS, REGISTER, flags)
