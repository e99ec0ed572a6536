"""Messages that other nodes have given this one for its members: the side of who is given.

Its members lease them from it as if they were its own. It keeps the leases of their owners alive
while it has them, and hands back what no member asks for. If an owner is not there any more, or
says that a lease is none, then nobody is handed what is left of it; who works on it may finish.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from poe.broker.groups.failures import NONE_YET, Failures
from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.frames import Back, Given, Keep, Release, Want
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Tell
from poe.cluster.queue.ledger import Ledger
from poe.cluster.ranges import minus, union

COUNT_MAX: Final = 4096
BYTES_MAX: Final = 4 * 1024 * 1024
"""What is wanted of a node at a time."""
REPEAT_US: Final = 500_000
"""How often it is said that messages are wanted: what was said may be lost."""
HUNGER_US: Final = 20_000
"""How long members wait before other nodes are asked, unless they lived on such messages."""
SETTLE_US: Final = 1_000_000
"""How often owners hear what is kept, and are handed back what is not needed."""


class _Borrowed(NamedTuple):
    stream: StreamId
    after: int
    last: int


class Borrowing:
    """What this node wants of others, and has of theirs.

    Always: what is borrowed and not done is known to `shared`, or is handed back soon.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.copies = Copies()
        """Messages that came along."""
        self._ledger = ledger
        self._shared = ledger.shared
        self._names = ledger.record.queue, ledger.record.name
        shortest_s = min(ledger.options.lease_s, ledger.options.session_s)
        self._pause_us = min(SETTLE_US, round(shortest_s * 1e6 / 3))
        self._loans: dict[NodeRef, dict[int, _Borrowed]] = {}
        self._numbers: dict[NodeRef, int] = {}
        """Of what each node is asked next; they begin with the time: no life has another's."""
        self._asked: dict[NodeRef, int] = {}
        """The nodes that are asked, and when they are to be asked again."""
        self._is_fed = False
        self._settle_us: int | None = None
        self._gifts: dict[StreamId, RangeSet] = {}
        """What is done by being given, and is to be handed out once."""

    # --- To ask ----------------------------------------------------------------------------------

    def hunger(
        self, nodes: Collection[NodeRef], wanted: tuple[int, int], since_us: int, now_us: int
    ) -> list[Tell]:
        """Return what nodes are asked, since members have waited since a time.

        They wait for so many messages at most, and bytes.
        """
        if not self._is_fed and now_us < since_us + HUNGER_US:
            return []
        tells = []
        for node in nodes:
            if self._asked.get(node, 0) <= now_us:
                self._asked[node] = now_us + REPEAT_US
                number = self._numbers.setdefault(node, now_us)
                limits = min(wanted[0], COUNT_MAX), min(wanted[1], BYTES_MAX)
                tells.append(Tell(node, Want(*self._names, number, *limits)))
        return tells

    def sated(self) -> list[Tell]:
        """Return what nodes are told that were asked, since no member waits."""
        asked, self._asked = self._asked, {}
        return [Tell(node, Want(*self._names, self._numbers[node], 0, 0)) for node in asked]

    def next_ask_us(self, nodes: Collection[NodeRef], since_us: int) -> int | None:
        """Return when to ask next while members wait; None where there is nobody."""
        first_us = 0 if self._is_fed else since_us + HUNGER_US
        asks = [max(first_us, self._asked.get(node, 0)) for node in nodes]
        return min(asks, default=None)

    # --- What was given --------------------------------------------------------------------------

    def take(self, node: NodeRef, given: Given, now_us: int) -> None:
        """Offer to members what was given; the same only once."""
        number = self._numbers.get(node)
        if given.number != number:
            return
        self._numbers[node] = given.number + 1
        self._asked.pop(node, None)
        self._is_fed = self._is_fed or bool(given.loans)
        for loan in given.loans:
            stream, after, last = loan.stream, loan.after, loan.last
            for batch in loan.batches:
                self.copies.add(stream, batch)
            failures = NONE_YET
            if loan.attempts or loan.limit is not None:
                failures = Failures(loan.attempts, loan.limit, 0, loan.reason)
            if self._ledger.is_once:
                self.take_gift(stream, after, last, now_us)
                continue
            self._loans.setdefault(node, {})[loan.lease] = _Borrowed(stream, after, last)
            for bounds in self._ledger.not_done(stream, after, last):
                self._shared.offer(self._ledger.unit(stream), *bounds, failures, now_us)
        if self._loans and self._settle_us is None:
            self._settle_us = now_us + self._pause_us

    def take_gift(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Offer to members what is done by being given."""
        self._gifts.setdefault(stream, RangeSet()).join(after, last)
        self._shared.offer(self._ledger.unit(stream), after, last, NONE_YET, now_us)

    def has_gifts(self, stream: StreamId) -> bool:
        """Return whether something of a stream is done by being given, and not handed out yet."""
        return stream in self._gifts

    def has(self, stream: StreamId, after: int, last: int) -> bool:
        """Return whether a part of a range is borrowed."""
        return bool(self.copies.held(stream).within(after, last)) or any(
            loan.stream == stream and loan.after < last and after < loan.last
            for loans in self._loans.values()
            for loan in loans.values()
        )

    def not_borrowed(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Return what of a range is not borrowed."""
        held = [
            (loan.after, loan.last)
            for loans in self._loans.values()
            for loan in loans.values()
            if loan.stream == stream
        ]
        gifts = self._gifts.get(stream, ())
        return minus([(after, last)], union(gifts, *([each] for each in held)))

    def not_given(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Return what of a range, which is done elsewhere, is not so by being given."""
        gifts = self._gifts.get(stream)
        return [(after, last)] if gifts is None else gifts.without(after, last)

    def handed_out(self, stream: StreamId, after: int, last: int) -> None:
        """Note that a range was handed out, which is done by that."""
        gifts = self._gifts.get(stream)
        if gifts is not None:
            gifts.cut(after, last)
            if not gifts:
                del self._gifts[stream]
        self.copies.drop(stream, after, last)

    def revoke(self, node: NodeRef, leases: Collection[int]) -> None:
        """Hand out no more what an owner says is not given any more."""
        loans = self._loans.get(node, {})
        for lease in leases:
            loan = loans.pop(lease, None)
            if loan is not None:
                self._let_go(loan)

    def drop(self, node: NodeRef) -> None:
        """Hand out no more what an owner has given that is not there any more."""
        self._asked.pop(node, None)
        for loan in self._loans.pop(node, {}).values():
            self._let_go(loan)

    # --- Time ------------------------------------------------------------------------------------

    def next_settle_us(self) -> int | None:
        """Return when to settle next; None where nothing is borrowed."""
        return self._settle_us

    def settle(self, now_us: int, *, is_idle: bool) -> list[Tell]:
        """Return what owners are told: what is kept, and what is handed back.

        That is what is left of it where members are idle, or what came back from one when it was
        not this node's any more.
        """
        tells: list[Tell] = []
        for node, loans in list(self._loans.items()):
            parts = [
                part
                for lease, loan in list(loans.items())
                for part in self._hand_back(lease, loan, now_us, is_idle=is_idle)
            ]
            for lease, loan in list(loans.items()):
                if not self._shared.known(self._ledger.unit(loan.stream), loan.after, loan.last):
                    del loans[lease]
                    self.copies.drop(*loan)
            if parts:
                tells.append(Tell(node, Release(*self._names, tuple(parts))))
            if loans:
                tells.append(Tell(node, Keep(*self._names, tuple(loans))))
            else:
                del self._loans[node]
        self._is_fed = self._is_fed and not is_idle
        self._settle_us = now_us + self._pause_us if self._loans else None
        return tells

    def _hand_back(self, lease: int, loan: _Borrowed, now_us: int, *, is_idle: bool) -> list[Back]:
        stream, after, last = loan
        unit = self._ledger.unit(stream)
        surrendered = []
        if is_idle:
            for bounds in self._ledger.not_owned(*loan):
                surrendered += self._shared.surrender(unit, *bounds)
        left = self._ledger.not_done(stream, after, last)
        gone = minus(left, self._shared.known(unit, after, last))
        given_back = sorted((begin, end) for begin, end, _ in surrendered)
        parts = [*surrendered, *((*bounds, NONE_YET) for bounds in minus(gone, given_back))]
        for begin, end, _ in parts:
            self.copies.drop(stream, begin, end)
        return [
            Back(lease, begin, end, each.attempts, each.limit,
                 max(0, each.due_us - now_us), each.reason)
            for begin, end, each in parts
        ]  # fmt: skip

    def _let_go(self, loan: _Borrowed) -> None:
        for bounds in self._ledger.not_owned(*loan):
            self._shared.withdraw(self._ledger.unit(loan.stream), *bounds)
            self.copies.drop(loan.stream, *bounds)
