"""One node's part in a group of a queue: what it hands out, to whom, and what it knows to be done.

The rules of leases are those of a group on one node (`poe.broker.groups`): each stream is a unit of
it, of which this node offers what it is to hand out. Who asks and finds nothing waits here, for
messages that come. What is done and was handed out is joined with what other nodes know.

Times are microseconds; nothing here waits, sends, or looks at single messages.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from poe.broker.groups.deadlines import earliest
from poe.broker.groups.lease import Sought
from poe.broker.groups.ranges import Bounds, RangeSet
from poe.broker.requests.groups import GroupRequest
from poe.broker.requests.request_handler import WAIT_SLICE_S
from poe.cluster.batch import Batch
from poe.cluster.frames import (
    Ceded,
    Claim,
    Given,
    Keep,
    Known,
    Paused,
    Release,
    Revoked,
    ShareFrame,
    Want,
)
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.queue.borrowing import SETTLE_US, Borrowing
from poe.cluster.queue.burials import Burials
from poe.cluster.queue.ceding import Ceding
from poe.cluster.queue.copies import Copies, Found
from poe.cluster.queue.effects import Answer, Effect, Event, Tell
from poe.cluster.queue.knowledge import UNDELIVERED, UNHEARD, StreamKnowledge
from poe.cluster.queue.ledger import Ledger
from poe.cluster.queue.lending import HEARD_US, Lendable, Lending
from poe.cluster.queue.places import Places
from poe.cluster.queue.report import ROWS_MAX, Repeated, repeated, repeated_of
from poe.cluster.queue_record import TIME_MAX_US, GroupRecord
from poe.cluster.ranges import intersect, minus
from poe.errors import GroupMismatch, PoeError
from poe.protocol.leases import Failed, Lease, LeaseRequest

UNHEARD_MAX: Final = 64
"""Lives that are remembered as not heard of, the last ones."""

MayHaveHandedOut = Callable[[NodeRef, StreamId], Iterable[Bounds]]
"""Returns what of a stream another node may have handed out."""

IsGone = Callable[[object], bool]
"""Returns whether who asked, by its token, is not there any more to be answered."""

_LATER: Final = object()


class LeasedCopies(NamedTuple):
    """The answer to a `LeaseRequest`: the lease, and its messages; None: nothing came."""

    lease: Lease
    found: Found | None


class _Poll(NamedTuple):
    """Somebody who waits for messages."""

    request: LeaseRequest
    lost: tuple[int, ...]
    until_us: int


class GroupShare:
    """A node's part in one group; owned by its queue, which alone calls it.

    Always: what is offered is owned and not known to be done; who waits is in `_polls`, first come,
    first served.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - which group, whose part, and what its queue knows
        self,
        record: GroupRecord,
        me: NodeRef,
        copies: Copies,
        now_us: int,
        may_have_handed_out: MayHaveHandedOut = lambda _node, _stream: (),
        is_gone: IsGone = lambda _token: False,
    ) -> None:
        known = copies.agree(record, me)
        self.knowledge = known.knowledge
        """What all nodes know of it together."""
        self._ledger = Ledger(record, me, self.knowledge, now_us)
        self._state, self._shared = self._ledger.state, self._ledger.shared
        self._copies = copies
        self._borrowing = Borrowing(self._ledger)
        self._lending = Lending(self._ledger, self._lendable)
        self._places = Places(self._ledger, copies)
        self._ceding = Ceding(self._ledger, copies)
        self._burials = Burials(self._ledger, self._batches)
        self._polls: dict[object, _Poll] = {}
        self._may_have_handed_out = may_have_handed_out
        self._is_gone = is_gone
        self._peers: dict[NodeRef, int] = {}
        """The nodes that are there, and since when."""
        self._unheard: dict[NodeRef, int] = {}
        """The lives that were not heard of, and since when."""
        self._hungry_us = 0
        """Since when members wait; 0: none does."""
        self._asked_us = 0
        """When one has asked last."""
        self._due_us: int | None = None
        self._is_due_known = False
        """Whether nothing has changed since that was reckoned."""
        self._past = known.past
        self._effects: list[Effect] = []
        if self.paused.is_paused:
            self._state.pause(now_us)

    @property
    def is_once(self) -> bool:
        """Whether what is handed out is done by that."""
        return self._ledger.is_once

    @property
    def record(self) -> GroupRecord:
        """Return the group."""
        return self._ledger.record

    @property
    def paused(self) -> Paused:
        """Return whether nothing is handed out, on all nodes, and since when."""
        return Paused(self.record.queue, self.record.name, *self.knowledge.paused)

    # --- What is to be handed out ----------------------------------------------------------------

    def set_owned(self, stream: StreamId, ranges: Sequence[Bounds], now_us: int) -> None:
        """Say all that this node is to hand out of a stream now."""
        if self._is_claimed(stream):
            self._ceding.set_claimed(stream, ranges)
            self._go_on(now_us)
            return
        before = list(self._ledger.owned.get(stream, ()))
        for bounds in minus(before, ranges):
            for part in self._ledger.disown(stream, *bounds):
                for rest in self._borrowing.not_borrowed(stream, *part):
                    self._shared.withdraw(self._ledger.unit(stream), *rest)
        for bounds in minus(ranges, before):
            self._ledger.own(stream, *bounds, now_us)
        self._go_on(now_us)

    def arrived(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Say that a range is to be handed out besides, which has just come."""
        if self._is_claimed(stream):
            self._ceding.add(stream, after, last)
        else:
            self._ledger.own(stream, after, last, now_us)
        self._go_on(now_us)

    def disown(self, stream: StreamId, after: int, last: int) -> None:
        """Note that a range is not held here any more; who works on it may finish."""
        self._ledger.disown(stream, after, last)

    def _is_claimed(self, stream: StreamId) -> bool:
        """Return whether to ask first: nobody else knows what that life has handed out."""
        return self._ledger.is_once and stream != StreamId(*self._ledger.me)

    def end(self, stream: StreamId, ranges: Iterable[Bounds]) -> None:
        """Note that the life of a stream's origin is over, and what is held here of it.

        What is to be handed out once at most, nobody else hands out.
        """
        if self._ledger.is_once:
            for bounds in ranges:
                for after, last in self._ledger.not_done(stream, *bounds):
                    self.knowledge.finish(stream, after, last)
                    detail = f"{self._ledger.record.name}: {stream} behind {after} up to {last}"
                    self._effects.append(Event("given up", detail))

    def skip(self, stream: StreamId, ranges: Iterable[Bounds]) -> None:
        """Count as done what this node, the origin, had dropped before it knew of the group.

        Other nodes may hold it still; what is to be handed out once at most they keep for nothing.
        """
        if self._ledger.is_once:
            for bounds in ranges:
                self.knowledge.finish(stream, *bounds)

    def pass_over(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Count as done what nobody holds any more; return what is handed out here, or is to be."""
        left = self._shared.known(self._ledger.unit(stream), after, last)
        for bounds in minus([(after, last)], left):
            self.knowledge.finish(stream, *bounds)
        return left

    # --- Requests --------------------------------------------------------------------------------

    def serve(self, request: object, token: object, now_us: int) -> None:
        """Take a `LeaseRequest` or `GroupRequest`; its `Answer` is an effect, now or later."""
        try:
            if isinstance(request, LeaseRequest):
                answer: object = self._lease(request, token, now_us)
            else:
                assert isinstance(request, GroupRequest)
                answer = self._operate(request, now_us)
        except PoeError as error:
            answer = error
        if answer is not _LATER:
            self._effects.append(Answer(token, answer))
        self._go_on(now_us)

    def cancel(self, token: object) -> None:
        """Forget who asked; it is gone."""
        self._is_due_known = False
        self._polls.pop(token, None)

    def release_waiting(self) -> None:
        """Answer all who wait that nothing has come: the node is about to stop."""
        self._is_due_known = False
        polls, self._polls = self._polls, {}
        for token, poll in polls.items():
            self._answer_nothing(token, poll)

    def undelivered(self, lease: Lease, now_us: int) -> None:
        """Have somebody else get messages whose member was not told of them, and never will be."""
        if not lease.id:
            return
        if not self._ledger.is_once:
            if self._ledger.has_unit(lease.topic):
                stream, why = self._ledger.stream(lease.topic), (UNDELIVERED, self._ledger.me)
                self.knowledge.note_again(stream, why, now_us, lease.after, lease.last)
            given_back = Failed(lease.id, lease.after, lease.last, "release")
            self._shared.acknowledge([], [given_back], now_us)
            self._go_on(now_us)

    def written(self, news: Iterable[Known], now_us: int, *, is_failed: bool) -> list[Known]:
        """Note that news are written, or cannot be; return what is to be told of them.

        What counts as handed out by a lease, and no client has got, comes again when that is over;
        what would be done by that is handed out anew.
        """
        told = []
        for each in news:
            known, not_done = self.knowledge.written(each, is_failed=is_failed)
            told.append(known)
            for bounds in not_done:
                self._ledger.own(known.stream, *bounds, now_us)
        if is_failed:
            self._go_on(now_us)
        return told

    def _lease(self, request: LeaseRequest, token: object, now_us: int) -> object:
        """Take what a member tells of its leases; answer with another one, or have it wait.

        Raises:
            GroupFenced: it is no member.
            PoeError: what it tells is wrong.
        """
        lost: tuple[int, ...] = ()
        if request.done or request.failed:
            lost = tuple(self._shared.acknowledge(request.done, request.failed, now_us))
            if self._ledger.is_once:
                lost = ()  # all of it was done when it was handed out
            self._take_changes()
        if not request.limit:
            return LeasedCopies(Lease(lost=lost), None)
        self._state.hear(request.member, now_us)
        self._asked_us = now_us
        leased = self._find(request, lost, now_us)
        if leased is None and request.wait_s:
            until_us = now_us + round(min(request.wait_s, WAIT_SLICE_S) * 1e6)
            self._polls[token] = _Poll(request, lost, until_us)
            self._hungry_us = self._hungry_us or now_us
            return _LATER
        return leased or self._nothing(request, lost)

    def _nothing(self, request: LeaseRequest, lost: tuple[int, ...]) -> LeasedCopies:
        """Return that nothing has come, and what of the group keeps it back.

        Raises:
            GroupFenced: it is no member.
        """
        why = self._shared.why_nothing(request.member)
        return LeasedCopies(Lease(lost=lost, why="" if why is None else str(why)), None)

    def _find(
        self, request: LeaseRequest, lost: tuple[int, ...], now_us: int
    ) -> LeasedCopies | None:
        """Lease what comes next to a member; None where nothing does.

        Raises:
            GroupFenced: it is no member.
        """
        shared, member = self._shared, request.member
        while (sought := shared.want(member, request.limit, request.bytes_max, now_us)) is not None:
            stream = self._ledger.stream(sought.unit)
            found = self._found(stream, sought)
            if found is None:
                continue
            size = len(found.records)
            lease = shared.leased(sought, found.last, found.count, size, now_us)
            if lease is None:
                continue
            # Of another life's stream it is done already: that was left to this node by its origin.
            is_done = self._ledger.is_once and not self._is_claimed(stream)
            before = self.knowledge.grant(stream, found.after, found.last, is_done=is_done)
            for other, *bounds in before:
                why = self._why(sought, other), other
                self.knowledge.note_again(stream, why, now_us, *bounds)
            if self._unheard:
                self._note_unheard(stream, found)
            left_s = (lease.deadline_us - now_us) / 1e6
            told = Lease(
                lease.id, lease.unit, lease.after, lease.last, lease.attempts, left_s, lost
            )
            if self._ledger.is_once:
                shared.acknowledge([(lease.id, None)], [], now_us)
                self._take_changes()
                self._borrowing.handed_out(stream, found.after, found.last)
            return LeasedCopies(told, found)
        return None

    def _why(self, sought: Sought, other: NodeRef) -> str:
        """Return why messages are handed out that another node has handed out, or this one."""
        if sought.returned is None:
            return "restarted" if other == self._ledger.me else "taken over"
        is_lost = other != self._ledger.me and other not in self._peers
        return "node lost" if is_lost else sought.returned.why

    def _note_unheard(self, stream: StreamId, found: Found) -> None:
        """Note which nodes that are not there may have handed messages out as well."""
        for ref, since_us in self._unheard.items():
            if ref not in self._peers:
                theirs = self._may_have_handed_out(ref, stream)
                for bounds in intersect(theirs, [(found.after, found.last)]):
                    self.knowledge.note_again(stream, (UNHEARD, ref), since_us, *bounds)

    def _found(self, stream: StreamId, sought: Sought) -> Found | None:
        """Return messages that are wanted; None where they are not held: then nobody wants them."""
        end = sought.last
        for copies in (self._copies, self._borrowing.copies):
            found = copies.find(stream, sought.after, sought.last, sought.limit, sought.bytes_max)
            if found is not None and found.after == sought.after:
                return found
            end = end if found is None else min(end, found.after)
        self._shared.withdraw(sought.unit, sought.after, end)
        return None

    def _lendable(self, stream: StreamId, sought: Sought) -> Lendable | None:
        """Return messages of this node's own for another one; None where they are not held."""
        if self._borrowing.has(stream, sought.after, sought.last):
            return Lendable(0, 0, ())
        found = self._found(stream, sought)
        if found is None:
            return None
        if self._unheard:
            self._note_unheard(stream, found)  # who gets it may know nothing of them
        batches = tuple(self._copies.batches(stream, found.after, found.last))
        return Lendable(found.last, found.count, batches)

    def _batches(self, stream: StreamId, after: int, last: int) -> list[Batch]:
        """Return what is here of a range, this node's own or not."""
        batches = list(self._copies.batches(stream, after, last))
        for bounds in minus([(after, last)], [(each.after, each.last) for each in batches]):
            batches += self._borrowing.copies.batches(stream, *bounds)
        return batches

    def buried(self, number: int, now_us: int) -> None:
        """Note that the dead letters of a `Bury` are held."""
        self._burials.buried(number)
        self._go_on(now_us)

    def _operate(self, request: GroupRequest, now_us: int) -> object:
        """Carry out a control operation.

        Raises:
            PoeError: it is refused.
        """
        state, arguments = self._state, request.arguments
        answer: object = None
        match request.op:
            case "group_join":
                answer = state.join(arguments["info"], now_us)._asdict()
            case "group_heartbeat":
                said = {name: value for name, value in arguments.items() if name != "wait_s"}
                answer = state.heartbeat(**said, now_us=now_us)._asdict()
            case "group_leave":
                state.leave(arguments["member"], now_us)
            case "group_extend":
                lost = self._shared.extend(**arguments, now_us=now_us)
                answer = [] if self._ledger.is_once else lost
            case "group_pause":
                self._pause(now_us, is_paused=True)
            case "group_resume":
                self._pause(now_us, is_paused=False)
            case "group" | "group_create":
                answer = self.describe() | {"now_us": now_us}
            case "group_lag":
                answer = self._places.lag(now_us)
            case "group_reset":
                answer = self._places.reset(**arguments, now_us=now_us)
            case _:  # of positions, which only those of mode ordered have
                raise GroupMismatch(self._ledger.record.name, "mode", "ordered", "shared")
        return answer

    # --- What is known ---------------------------------------------------------------------------

    def learn(self, known: Known, now_us: int) -> None:
        """Join what another node knows of a stream.

        Raises:
            GroupFull: it is of more streams or nodes than there may be; nothing was taken.
        """
        stream = known.stream
        done = self.knowledge.join(known)
        unit = self._ledger.unit(stream)
        for bounds in done:
            for part in self._borrowing.not_given(stream, *bounds):
                self._shared.learn_done(unit, *part)
                self._borrowing.copies.drop(stream, *part)
        self._go_on(now_us)

    def done(self, stream: StreamId) -> RangeSet:
        """Return what is done of a stream; it is not to be changed."""
        return self.knowledge.get(stream).done

    @property
    def has_changed(self) -> bool:
        """Whether there are news or effects to take."""
        return bool(self._effects) or self.knowledge.has_news

    def is_at_work_on(self, stream: StreamId) -> bool:
        """Return whether something of a stream is being buried, or is a gift to be handed out."""
        return self._borrowing.has_gifts(stream) or any(
            self._ledger.stream(each.unit) == stream for each in self._shared.dying()
        )

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream, which is over and done everywhere."""
        self._is_due_known = False
        self._remember(stream, self.knowledge.get(stream))
        self._ceding.forget(stream)
        self._ledger.forget(stream, 0)

    def let_go(self, members: Collection[bytes], now_us: int) -> None:
        """Let go of who was handed what, of what is done long since, if it is known to all nodes.

        It is when each of them was there for a while; else some may have handed it out, too, and
        only the report of who knows both can say so.
        """
        heard = {ref.id for ref, up_us in self._peers.items() if now_us - up_us >= HEARD_US}
        if heard.union([self._ledger.me.id]).issuperset(members):
            for stream, old in self.knowledge.take_old():
                self._remember(stream, old)

    def _remember(self, stream: StreamId, known: StreamKnowledge) -> None:
        """Keep in the report what is told by knowledge that is let go."""
        heard = {self._ledger.me, *self._peers}
        rows = list(islice(repeated_of(stream, known, heard), ROWS_MAX))
        if rows:
            told = set(self._past)
            self._past.extend(each for each in rows if each not in told)

    def _take_changes(self) -> None:
        for stream, after, last in self._ledger.take_changes():
            self._borrowing.copies.drop(stream, after, last)

    # --- Other nodes -----------------------------------------------------------------------------

    def hear(self, node: NodeRef, frame: ShareFrame, now_us: int) -> None:
        """Take what another node's share of the group has sent.

        Raises:
            PoeError: what it says cannot be so; nothing was taken.
        """
        self._is_due_known = False
        match frame:
            case Want():
                self._effects += self._lending.hear_want(node, frame, now_us)
            case Given():
                self._borrowing.take(node, frame, now_us)
            case Keep():
                self._effects += self._lending.hear_keep(node, frame, now_us)
            case Release():
                self._lending.hear_release(node, frame, now_us)
            case Revoked():
                self._borrowing.revoke(node, frame.leases)
            case Paused():
                self._hear_paused(frame, now_us)
            case Claim():
                self._effects += self._ceding.hear_claim(node, frame)
            case Ceded():
                for bounds in self._ceding.take(frame):
                    self._borrowing.take_gift(frame.stream, *bounds, now_us)
        self._go_on(now_us)

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Note that a node is there."""
        self._peers[peer.ref] = now_us
        self._go_on(now_us)

    def peer_down(self, ref: NodeRef, now_us: int) -> None:
        """Note that a node is not there: what it holds it may hand out, and tell nobody."""
        up_us = self._peers.pop(ref, None)
        if up_us is not None and now_us - up_us >= HEARD_US:
            self._unheard.pop(ref, None)
        since_us = self._unheard.setdefault(ref, now_us)
        if len(self._unheard) > UNHEARD_MAX:
            del self._unheard[next(iter(self._unheard))]
        streams = {*self._copies.streams(), *self.knowledge.streams()}
        theirs = [(each, part) for each in streams for part in self._may_have_handed_out(ref, each)]
        for stream, bounds in theirs + self._lending.may_have_handed_out(ref):
            self.knowledge.note_again(stream, (UNHEARD, ref), since_us, *bounds)
        for stream in self._copies.streams() if self._copies.is_logged else ():
            for bounds in self._copies.held(stream):
                self.knowledge.note_told(stream, ref, *bounds)
        self._lending.drop(ref, now_us)
        self._borrowing.drop(ref)
        self._go_on(now_us)

    def _pause(self, now_us: int, *, is_paused: bool) -> None:
        """Hand nothing out, on all nodes, or go on."""
        since_us = max(now_us, self.paused.since_us + 1, self.record.created_us)
        since_us = min(since_us, TIME_MAX_US)
        self._hear_paused(self.paused._replace(since_us=since_us, is_paused=is_paused), now_us)
        self._effects += [Tell(node, self.paused) for node in sorted(self._peers)]

    def _hear_paused(self, said: Paused, now_us: int) -> None:
        if self.knowledge.join_paused(said.since_us, is_paused=said.is_paused):
            (self._state.pause if said.is_paused else self._state.resume)(now_us)

    # --- Time ------------------------------------------------------------------------------------

    def expire(self, now_us: int) -> None:
        """Do what time has brought."""
        self._lending.expire(now_us)
        for token, poll in list(self._polls.items()):
            if poll.until_us <= now_us:
                del self._polls[token]
                self._answer_nothing(token, poll)
        settle_us = self._borrowing.next_settle_us()
        if settle_us is not None and settle_us <= now_us:
            is_idle = not self._polls and self._asked_us + SETTLE_US <= now_us
            self._effects += self._borrowing.settle(now_us, is_idle=is_idle)
        self._go_on(now_us)

    def excuse(self, now_us: int) -> None:
        """Count members and nodes as heard of, and what they hold as worked on, as a group does."""
        self._is_due_known = False
        self._state.excuse(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when to call `expire` next."""
        if not self._is_due_known:
            self._due_us, self._is_due_known = self._reckon_deadline_us(), True
        return self._due_us

    def _reckon_deadline_us(self) -> int | None:
        ask_us = None
        if self._is_hungry:
            ask_us = self._borrowing.next_ask_us(self._peers, self._hungry_us)
        return earliest(
            *[poll.until_us for poll in self._polls.values()], ask_us,
            self._borrowing.next_settle_us(), self._burials.next_deadline_us(),
            self._ceding.next_ask_us(), self._state.next_deadline_us(),
            self._lending.next_deadline_us(),
        )  # fmt: skip

    def take_effects(self) -> Sequence[Effect]:
        """Return what is to be done by whoever runs the queue."""
        effects, self._effects = self._effects, []
        return effects

    def _go_on(self, now_us: int) -> None:
        """Do what a change brings about for members that wait, then for other nodes."""
        self._is_due_known = False
        if self._shared.next_dying() is not None:
            self._effects += self._burials.bury(now_us)
        self._take_changes()
        if self._polls and self._shared.has_work:
            self._serve_polls(now_us)
        if self._lending.is_wanted and not self._polls and self._shared.has_work:
            self._effects += self._lending.give(now_us)
            self._take_changes()
        self._effects += self._ceding.ask(self._peers, now_us)
        if not self._polls:
            self._hungry_us = 0
            self._effects += self._borrowing.sated()
        elif self._is_hungry:
            self._ask_others(now_us)

    @property
    def _is_hungry(self) -> bool:
        return bool(self._polls) and not self._state.is_paused

    def _serve_polls(self, now_us: int) -> None:
        for token, poll in list(self._polls.items()):
            if self._is_gone(token):
                del self._polls[token]
                continue
            try:
                leased: object = self._find(poll.request, poll.lost, now_us)
            except PoeError as error:
                leased = error
            if leased is not None:
                del self._polls[token]
                self._effects.append(Answer(token, leased))
            if not self._shared.has_work:
                break

    def _ask_others(self, now_us: int) -> None:
        limit = sum(poll.request.limit for poll in self._polls.values())
        bytes_max = sum(poll.request.bytes_max for poll in self._polls.values())
        since_us = self._hungry_us
        self._effects += self._borrowing.hunger(
            sorted(self._peers), (limit, bytes_max), since_us, now_us
        )

    def _answer_nothing(self, token: object, poll: _Poll) -> None:
        try:
            answer: object = self._nothing(poll.request, poll.lost)
        except PoeError as error:
            answer = error
        self._effects.append(Answer(token, answer))

    # --- To look at ------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the group, as msgpack can hold it."""
        described = self._state.describe()
        return {
            **described,
            "units": [self._describe_unit(unit) for unit in described["units"]],
            "delivery": self._ledger.delivery,
            "waiting": len(self._polls),
            "repeats": dict(Counter(each.certainty for each in islice(self.report(), ROWS_MAX))),
            "streams": [
                {
                    "stream": str(stream),
                    "done_ranges": len(known.done),
                    "granted_ranges": sum(map(len, known.granted.values())),
                }
                for stream in sorted(self.knowledge.streams())
                for known in [self.knowledge.get(stream)]
            ],
        }

    def _describe_unit(self, unit: dict[str, Any]) -> dict[str, Any]:
        """Return what is told of a stream, with how far all nodes together are."""
        stream = self._ledger.stream(unit["unit"])
        known = self.knowledge.get(stream)
        told = {"floor": self._places.floor(stream), "done_ranges": len(known.done)}
        return {**unit, **told}

    def report(self) -> Iterator[Repeated]:
        """Yield all that came to clients more than once, or may have."""
        heard = {self._ledger.me, *self._peers}
        return chain(self._past, repeated(self.knowledge, heard))
