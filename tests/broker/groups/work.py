"""What the tests of groups share: members, and groups with work that is numbered."""

from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.options import GroupDefinition, GroupOptions
from poe.broker.groups.state import GroupState

SECOND = 1_000_000
ALL = 1 << 30


def who(letter, **kwargs):
    return MemberInfo(id=letter.encode() * 16, name=letter, **kwargs)


A, B, C = (who(letter).id for letter in "abc")


def definition(mode, **options):
    return GroupDefinition(
        name="g", id=bytes(16), mode=mode, topics=(b"*",), options=GroupOptions(**options)
    )


def again(state, snapshot, changes):
    """Build a group anew, of a snapshot and the changes behind it."""
    copy = GroupState.restore(snapshot)
    for change in changes:
        copy.apply(change)
    assert copy.snapshot() == state.snapshot()
    return copy


class Work:
    """A group of mode `shared`, whose units hold messages with the pointers 10, 20, 30 …"""

    def __init__(self, counts=None, **options):
        self.counts = counts or {b"t": 10}
        self.state = GroupState.create(definition("shared", **options), 0)
        self.start = self.state.snapshot()
        self.changes = []
        self.now_us = 0
        self.state.set_units({b"t": sorted(self.counts)}, 0)

    @property
    def shared(self):
        return self.state.shared

    def join(self, *letters):
        for letter in letters:
            self.state.join(who(letter), self.now_us)

    def found(self, want):
        """The pointers that a look for them finds."""
        pointers = range(10, 10 * self.counts[want.unit] + 1, 10)
        return [each for each in pointers if want.after < each <= want.last][: want.limit]

    def take(self, member, limit=ALL):
        """Have a member ask; the lease, or None."""
        while (want := self.shared.want(member, limit, ALL, self.now_us)) is not None:
            pointers = self.found(want)
            if not pointers:
                self.shared.nothing(want)
                continue
            last = pointers[-1]
            lease = self.shared.leased(want, last, len(pointers), len(pointers), self.now_us)
            assert lease is not None
            return lease
        return None

    def done(self, *leases):
        assert self.shared.acknowledge([(each.id, None) for each in leases], [], self.now_us) == []

    def fail(self, lease, outcome="retry", delay_s=0, reason="no"):
        said = (lease.id, lease.after, lease.last, outcome, delay_s, reason)
        return self.shared.acknowledge([], [said], self.now_us)

    def sleep(self, seconds):
        self.now_us += round(seconds * SECOND)

    def beat(self, *members):
        for member in members:
            self.state.heartbeat(member, 0, [], self.now_us)

    def expire(self):
        return self.state.expire(self.now_us)

    def compact(self):
        """Begin the log anew with a snapshot."""
        self.state.take_changes()
        self.start, self.changes = self.state.snapshot(), []

    def restart(self):
        """End the process, and start it again with what is durable."""
        self.changes += self.state.take_changes()
        self.state = again(self.state, self.start, self.changes)
        self.state.restarted(self.now_us)
        self.changes += self.state.take_changes()
        self.state.set_units({b"t": sorted(self.counts)}, self.now_us)

    def floor(self, unit=b"t"):
        return self.state.floor(unit)
