"""Messages that other nodes are given, since their members have none: the side of the owner.

A node that asks is a member of the group like any other, and holds what it was given under leases.
It keeps them alive while it works, and hands back what it does not need; if it is not there any
more, all of it is handed out again at once.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from poe.broker.groups.failures import Failures
from poe.broker.groups.lease import Sought
from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.ranges import Bounds
from poe.cluster.batch import Batch
from poe.cluster.frames import Given, Keep, Loan, Release, Revoked, Want
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.borrowing import BYTES_MAX, COUNT_MAX
from poe.cluster.queue.effects import Tell
from poe.cluster.queue.ledger import Ledger
from poe.cluster.ranges import minus
from poe.errors import GroupError, PoeError

WANT_US: Final = 1_500_000
"""How long a node is taken to want messages, that has said so."""
HEARD_US: Final = 15_000_000
"""After so long a node that is there has told what it had done while it was not heard."""

_EPOCH_BYTES = 8

Find = Callable[[StreamId, Sought], "Lendable | None"]


class Lendable(NamedTuple):
    """Messages that may be given to another node."""

    last: int
    messages_count: int
    batches: tuple[Batch, ...]
    """Empty: they are not this node's to give."""


class _Standing(NamedTuple):
    want: Want
    until_us: int


class _Expired(NamedTuple):
    """What a node had until its leases ended: it may have handed that out, and not told yet."""

    at_us: int
    node: NodeRef
    stream: StreamId
    bounds: Bounds


class Lending:
    """What other nodes want of this one, and what they were given.

    Always: a node is a member if it was given something and was there ever since.
    """

    def __init__(self, ledger: Ledger, find: Find) -> None:
        self._ledger = ledger
        self._queue = ledger.record.queue
        self._state = ledger.state
        self._find = find
        self._standing: dict[NodeRef, _Standing] = {}
        self._given: dict[NodeRef, Given] = {}
        self._kept_until_us: dict[NodeRef, int] = {}
        """Until when the messages of the last answer are kept, should the node ask for it again."""
        self._members: set[NodeRef] = set()
        self._expired: list[_Expired] = []

    @property
    def is_wanted(self) -> bool:
        """Return whether some node wants messages."""
        return bool(self._standing)

    def hear_want(self, node: NodeRef, want: Want, now_us: int) -> list[Tell]:
        """Note what a node wants; return the answer again if it was answered."""
        given = self._given.get(node)
        if given is not None and want.number <= given.number:
            return [Tell(node, self._still(node, given))] if want.number == given.number else []
        if given is not None:
            self._given[node] = given._replace(loans=())  # it has come: else that was asked again
        if want.limit:
            self._standing[node] = _Standing(want, now_us + WANT_US)
            if node in self._members:
                self._hear(node, now_us)
        else:
            self._standing.pop(node, None)
        return []

    def give(self, now_us: int) -> list[Tell]:
        """Return what nodes that want messages are given now."""
        tells = []
        for node, (want, until_us) in list(self._standing.items()):
            if until_us <= now_us:
                del self._standing[node]
                continue
            if not self._state.shared.has_work:
                break
            loans = self._lend(node, want, now_us)
            if loans:
                del self._standing[node]
                given = Given(self._queue, want.group, want.number, loans)
                self._given[node] = given
                self._kept_until_us[node] = now_us + HEARD_US
                tells.append(Tell(node, given))
        return tells

    def hear_keep(self, node: NodeRef, keep: Keep, now_us: int) -> list[Tell]:
        """Keep leases alive; return which are none any more."""
        options = self._ledger.options
        seconds = min(options.lease_s, options.work_max_s)
        try:
            lost = self._state.shared.extend(member_id(node), keep.leases, seconds, now_us)
        except GroupError:  # it was given up meanwhile
            lost = list(keep.leases)
        return [Tell(node, Revoked(self._queue, keep.group, tuple(lost)))] if lost else []

    def hear_release(self, node: NodeRef, release: Release, now_us: int) -> None:
        """Have handed out again what a node hands back.

        Raises:
            RangeNotLeased: a range is not of its lease.
        """
        shared = self._state.shared
        for lease, after, last, attempts, limit, delay_us, reason in release.parts:
            due_us = now_us + min(delay_us, round(2e6 * self._ledger.options.retry_max_s))
            failures = Failures(attempts, limit, due_us if delay_us else 0, reason)
            shared.hand_back(member_id(node), lease, (after, last), failures, now_us)

    def expire(self, now_us: int) -> None:
        """End the leases that are due; what nodes had by them is to be handed out again."""
        due_us = self._state.next_deadline_us()
        is_due = due_us is not None and due_us <= now_us
        lent = {node: self._held_by(node) for node in self._members} if is_due else {}
        self._state.expire(now_us)
        self._expired = [each for each in self._expired if now_us < each.at_us + HEARD_US]
        for node, until_us in list(self._kept_until_us.items()):
            if until_us <= now_us:
                del self._kept_until_us[node]
                self._given[node] = self._given[node]._replace(loans=())
        for node, before in lent.items():
            held = self._held_by(node)
            for stream, ranges in before.items():
                ended = minus(ranges, held.get(stream, ()))
                self._expired += [_Expired(now_us, node, stream, bounds) for bounds in ended]

    def next_deadline_us(self) -> int | None:
        """Return when something is to be let go, if nothing else happens."""
        return min(self._kept_until_us.values(), default=None)

    def may_have_handed_out(self, node: NodeRef) -> list[tuple[StreamId, Bounds]]:
        """Return what a node that is not there any more has, or had a short while ago."""
        held = [
            (stream, bounds) for stream, ranges in self._held_by(node).items() for bounds in ranges
        ]
        return held + [(each.stream, each.bounds) for each in self._expired if each.node == node]

    def _held_by(self, node: NodeRef) -> dict[StreamId, list[Bounds]]:
        held: dict[StreamId, list[Bounds]] = {}
        for unit, *bounds in self._state.shared.held_by(member_id(node)):
            held.setdefault(self._ledger.stream(unit), []).append((bounds[0], bounds[1]))
        return held

    def drop(self, node: NodeRef, now_us: int) -> None:
        """Hand out again what a node has, which is not there any more."""
        self._expired = [each for each in self._expired if each.node != node]
        self._standing.pop(node, None)
        self._given.pop(node, None)
        self._kept_until_us.pop(node, None)
        if node in self._members:
            self._members.discard(node)
            try:
                self._state.leave(member_id(node), now_us)
            except GroupError:  # its session was over before
                return

    def _hear(self, node: NodeRef, now_us: int) -> None:
        """Have a node be a member, and count a sign of its life.

        Raises:
            GroupFull: there are too many.
        """
        try:
            self._state.hear(member_id(node), now_us)
        except GroupError:
            self._state.join(MemberInfo(id=member_id(node), name=f"node {node}"), now_us)
        self._members.add(node)

    def _lend(self, node: NodeRef, want: Want, now_us: int) -> tuple[Loan, ...]:
        """Lease messages to a node; return what it is told of them."""
        shared = self._state.shared
        loans: list[Loan] = []
        count, size_bytes = min(want.limit, COUNT_MAX), min(want.bytes_max, BYTES_MAX)
        try:
            self._hear(node, now_us)
            while count > 0 and size_bytes > 0:
                sought = shared.want(member_id(node), count, size_bytes, now_us)
                if sought is None:
                    break
                stream = self._ledger.stream(sought.unit)
                found = self._find(stream, sought)
                if found is None:
                    continue
                if not found.batches:
                    break
                size = sum(len(batch.records) for batch in found.batches)
                if loans and size > size_bytes:
                    break  # one message always comes, and this one later
                lease = shared.leased(sought, found.last, found.messages_count, size, now_us)
                if lease is None:
                    break
                attempts, limit, _, reason = lease.failures
                loans.append(
                    Loan(
                        lease.id, stream, lease.after, lease.last, attempts, limit, reason,
                        found.batches,
                    )
                )  # fmt: skip
                if self._ledger.is_once:
                    shared.acknowledge([(lease.id, None)], [], now_us)
                count -= found.messages_count
                size_bytes -= size
        except PoeError:  # a limit of the group; the node asks again
            pass
        return tuple(loans)

    def _still(self, node: NodeRef, given: Given) -> Given:
        """Return what of that is still so."""
        if self._ledger.is_once:
            return given
        member = member_id(node)
        return given._replace(
            loans=tuple(
                loan
                for loan in given.loans
                if any(
                    each.id == loan.lease and each.member == member
                    for each in self._state.shared.leases_of(
                        self._ledger.unit(loan.stream), loan.after, loan.last
                    )
                )
            )
        )


def member_id(node: NodeRef) -> bytes:
    """Return what a node is called as a member: 16 bytes."""
    return node.id + node.epoch.to_bytes(_EPOCH_BYTES)
