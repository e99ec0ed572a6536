"""The log of the groups: what a group is after a restart, whatever happened to its messages."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.broker.coordinator.group_log import Entry, GroupHistory, Kind, encode
from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.options import GroupDefinition
from poe.broker.groups.state import GroupState
from poe.errors import CorruptGroup

NAMED = "work", bytes(16)
ANN = bytes(16)
START_US = 1_790_000_000_000_000


class Log:
    """A work queue that is written down as its actor does, and read as the registry does."""

    def __init__(self):
        definition = GroupDefinition(name=NAMED[0], id=NAMED[1], mode="shared", topics=(b"jobs",))
        self.state = GroupState.create(definition, START_US)
        self.state.set_units({b"jobs": [b"jobs"]}, START_US)
        self.state.join(MemberInfo(id=ANN, name=""), START_US)
        self.messages = [self.snapshot()]

    def snapshot(self):
        return encode(Kind.SNAPSHOT, *NAMED, self.state.snapshot())

    def work(self, pointer):
        """Lease all up to a pointer, and say that it is done."""
        shared = self.state.shared
        want = shared.want(ANN, 100, 1 << 20, START_US)
        assert want is not None
        lease = shared.leased(want, pointer, 1, 1, START_US)
        assert lease is not None
        shared.acknowledge([(lease.id, None)], [], START_US)

    def write(self, changes=None):
        """Write what has changed, behind what could not be written before."""
        changes = [*(changes or []), *self.state.take_changes()]
        number = self.state.changes_count - len(changes)
        message = encode(Kind.CHANGES, *NAMED, changes, number)
        self.messages.append(message)
        return changes

    def read(self):
        history = GroupHistory()
        for pointer, message in enumerate(self.messages, 1):
            entry = Entry.decode(pointer, message)
            assert entry is not None
            history.add(entry)
        return history.restore()


@pytest.fixture
def log():
    return Log()


def test_changes_that_are_in_the_log_twice_are_made_once(log):
    log.work(5)
    changes = log.write()  # nobody knew whether it was written, so it is once more
    log.work(9)
    log.write(changes)
    log.write(changes)
    assert log.read().snapshot() == log.state.snapshot()


def test_numbers_that_no_group_has_written_are_told_as_damage(log):
    log.messages = [
        encode(Kind.SNAPSHOT, *NAMED, log.state.snapshot()),
        encode(Kind.CHANGES, *NAMED, [["done", b"jobs", -7, -1]], 1000),
    ]
    with pytest.raises(CorruptGroup):
        log.read()


@pytest.mark.parametrize("unit", ["jobs", 7, msgpack.ExtType(1, b"jobs")])
@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_units_whose_names_no_group_has_written_are_told_as_damage(log, mode, unit):
    definition = GroupDefinition(name=NAMED[0], id=NAMED[1], mode=mode, topics=(b"jobs",))
    state = GroupState.create(definition, START_US)
    changes = [["done", unit, 0, 5]] if mode == "shared" else [["positions", [[unit, 5, b""]]]]
    log.messages = [
        encode(Kind.SNAPSHOT, *NAMED, state.snapshot()),
        encode(Kind.CHANGES, *NAMED, changes, state.changes_count),
    ]
    with pytest.raises(CorruptGroup):
        log.read()


def test_dead_letters_of_units_that_no_group_has_written_are_told_as_damage(log):
    snapshot = log.state.snapshot()
    snapshot["progress"][1][2].append(["jobs", 0, 5, 1, 1, "failed", 3, True])
    log.messages = [encode(Kind.SNAPSHOT, *NAMED, snapshot)]
    with pytest.raises(CorruptGroup):
        log.read()


def test_a_snapshot_has_the_changes_before_it(log):
    log.work(5)
    changes = log.write()
    log.messages.append(log.snapshot())
    log.work(9)
    log.write(changes)
    assert log.read().snapshot() == log.state.snapshot()
