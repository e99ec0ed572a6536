"""One node's part in a group of a queue: what it hands out, to whom, and what it knows to be done.

The rules of leases are those of a group on one node (`poe.broker.groups`): each stream is a unit of
it, of which this node offers what it is to hand out. Who asks and finds nothing waits here, for
messages that come. What is done and was handed out is joined with what other nodes know.

Times are microseconds; nothing here waits, sends, or looks at single messages.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from xxhash import xxh3_128_digest, xxh64_intdigest

from poe.broker.groups.deadlines import earlier
from poe.broker.groups.failures import NONE_YET
from poe.broker.groups.lease import Want
from poe.broker.groups.options import GroupDefinition, GroupOptions
from poe.broker.groups.ranges import Bounds, RangeSet
from poe.broker.groups.state import GroupState
from poe.broker.requests.groups import GroupRequest
from poe.broker.requests.request_handler import WAIT_SLICE_S
from poe.cluster.frames import Known, QueueFrame
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.queue.copies import Copies, Found
from poe.cluster.queue.effects import Answer, Effect
from poe.cluster.queue.knowledge import Knowledge
from poe.cluster.queue_record import GroupRecord
from poe.cluster.ranges import minus
from poe.errors import GroupMismatch, OptionError, PoeError
from poe.protocol.leases import Failed, Lease, LeaseRequest

AT_MOST_ONCE: Final = "at-most-once"
DELIVERIES: Final = ("at-least-once", AT_MOST_ONCE)

_LATER: Final = object()
_SKEW_BITS: Final = 20
"""Two nodes make a group in the same microsecond, and their leases have other numbers all the same:
generations begin up to a second ahead, by a hash of the node."""
_FIRST_GENERATION_US: Final = 1_767_225_600_000_000


def take_options(record: GroupRecord) -> tuple[GroupOptions, str]:
    """Return the options of a group, and how often each of its messages may be handed out.

    Raises:
        UnknownOption: there is no option of one of the names.
        OptionError: a value is not allowed.
    """
    options = dict(record.options)
    delivery = options.pop("delivery", DELIVERIES[0])
    if delivery not in DELIVERIES:
        raise OptionError("delivery", delivery, " or ".join(DELIVERIES))
    return GroupOptions.from_map(options), delivery


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

    def __init__(self, record: GroupRecord, me: NodeRef, copies: Copies, now_us: int) -> None:
        options, self._delivery = take_options(record)
        self._record = record
        self._me = me
        self._copies = copies
        identity = b"%b/%b/%d" % (record.queue, record.name.encode(), record.created_us)
        definition = GroupDefinition(
            name=record.name,
            id=xxh3_128_digest(identity),
            mode="shared",
            topics=(record.queue,),
            options=options,
            created_us=record.created_us,
        )
        skew = xxh64_intdigest(b"%b%d" % me) % (1 << _SKEW_BITS)
        generation = max(0, now_us - _FIRST_GENERATION_US) + skew
        self._state = GroupState.create(definition, now_us, generation)
        self._shared = self._state.shared
        self._knowledge = Knowledge(record.name, me)
        self._streams: dict[bytes, StreamId] = {}
        self._units: dict[StreamId, bytes] = {}
        self._owned: dict[StreamId, RangeSet] = {}
        self._polls: dict[object, _Poll] = {}
        self._effects: list[Effect] = []
        self._counts: Counter[str] = Counter()

    # --- What is to be handed out ----------------------------------------------------------------

    def set_owned(self, stream: StreamId, ranges: Sequence[Bounds], why: str, now_us: int) -> None:
        """Say all that this node is to hand out of a stream now, and why that has changed."""
        del why
        owned = self._owned.get(stream)
        before = [] if owned is None else list(owned)
        for bounds in minus(before, ranges):
            self._disown(stream, *bounds)
        for bounds in minus(ranges, before):
            self._own(stream, *bounds, now_us)
        self._go_on(now_us)

    def arrived(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Say that a range is to be handed out besides, which has just come."""
        self._own(stream, after, last, now_us)
        self._go_on(now_us)

    def _own(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Offer a range, as far as it is not done."""
        if self._delivery == AT_MOST_ONCE and stream.origin != self._me.id:
            return  # nobody knows what its origin has handed out and could not tell
        owned = self._owned.get(stream)
        if owned is None:
            owned = self._owned[stream] = RangeSet()
        owned.join(after, last)
        unit = self._unit(stream)
        for bounds in self._knowledge.get(stream).done.without(after, last):
            self._shared.offer(unit, *bounds, NONE_YET, now_us)

    def _disown(self, stream: StreamId, after: int, last: int) -> None:
        self._owned[stream].cut(after, last)
        self._shared.withdraw(self._unit(stream), after, last)

    def _unit(self, stream: StreamId) -> bytes:
        unit = self._units.get(stream)
        if unit is None:
            unit = b"%b@%b.%d" % (self._record.queue, stream.origin.hex().encode(), stream.epoch)
            self._units[stream], self._streams[unit] = unit, stream
        return unit

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

    def cancel(self, token: object, now_us: int) -> None:
        """Forget who asked; it is gone."""
        del now_us
        self._polls.pop(token, None)

    def undelivered(self, lease: Lease, now_us: int) -> None:
        """Have somebody else get messages whose member was not told of them, and never will be."""
        if lease.id:
            given_back = Failed(lease.id, lease.after, lease.last, "release")
            self._shared.acknowledge([], [given_back], now_us)
            self._go_on(now_us)

    def _lease(self, request: LeaseRequest, token: object, now_us: int) -> object:
        """Take what a member tells of its leases; answer with another one, or have it wait.

        Raises:
            GroupFenced: it is no member.
            PoeError: what it tells is wrong.
        """
        lost: tuple[int, ...] = ()
        if request.done or request.failed:
            lost = tuple(self._shared.acknowledge(request.done, request.failed, now_us))
            if self._delivery == AT_MOST_ONCE:
                lost = ()  # all of it was done when it was handed out
            self._take_changes()
        if not request.limit:
            return LeasedCopies(Lease(lost=lost), None)
        self._state.hear(request.member, now_us)
        leased = self._find(request, lost, now_us)
        if leased is None and request.wait_s:
            until_us = now_us + round(min(request.wait_s, WAIT_SLICE_S) * 1e6)
            self._polls[token] = _Poll(request, lost, until_us)
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
        while (want := shared.want(member, request.limit, request.bytes_max, now_us)) is not None:
            stream = self._streams[want.unit]
            found = self._found(stream, want)
            if found is None:
                continue
            size = len(found.records)
            lease = shared.leased(want, found.last, found.count, size, now_us)
            if lease is None:
                continue
            why = "taken over" if want.returned is None else want.returned.why
            self._knowledge.grant(stream, why, found.after, found.last, now_us)
            left_s = (lease.deadline_us - now_us) / 1e6
            told = Lease(
                lease.id, lease.unit, lease.after, lease.last, lease.attempts, left_s, lost
            )
            if self._delivery == AT_MOST_ONCE:
                shared.acknowledge([(lease.id, None)], [], now_us)
                self._take_changes()
            return LeasedCopies(told, found)
        return None

    def _found(self, stream: StreamId, want: Want) -> Found | None:
        """Return messages that are wanted; None where they are not held: then nobody wants them."""
        found = self._copies.find(stream, want.after, want.last, want.limit, want.bytes_max)
        if found is not None and found.after == want.after:
            return found
        end = want.last if found is None else found.after
        self._shared.withdraw(want.unit, want.after, end)
        return None

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
                answer = [] if self._delivery == AT_MOST_ONCE else lost
            case "group_pause":
                state.pause(now_us)
            case "group_resume":
                state.resume(now_us)
            case "group" | "group_create":
                answer = self.describe()
            case op:
                name = self._record.name
                raise GroupMismatch(name, "kind", f"one that has {op}", "of a queue")
        return answer

    # --- What is known ---------------------------------------------------------------------------

    def learn(self, known: Known, now_us: int) -> None:
        """Join what another node knows of a stream."""
        unit = self._unit(known.stream)
        for bounds in self._knowledge.join(known):
            self._shared.learn_done(unit, *bounds)
        self._go_on(now_us)

    def known(self, stream: StreamId) -> Known:
        """Return all that is known of a stream, the same for what is the same."""
        return self._knowledge.known(stream)

    def streams(self) -> Iterable[StreamId]:
        """Return the streams of which something is known."""
        return self._knowledge.streams()

    def done(self, stream: StreamId) -> RangeSet:
        """Return what is done of a stream; it is not to be changed."""
        return self._knowledge.get(stream).done

    def take_news(self) -> Sequence[Known]:
        """Return what this node has done, granted and so on since the last time."""
        return self._knowledge.take_news()

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream, which is over and done everywhere."""
        self._knowledge.forget(stream)
        self._owned.pop(stream, None)
        unit = self._units.pop(stream, None)
        if unit is not None:
            del self._streams[unit]
            self._state.forget([unit], 0)
            self._take_changes()

    def _take_changes(self) -> None:
        """Know what the group has done."""
        for change in self._state.take_changes():
            if change[0] == "done":
                stream, ends = self._streams[change[1]], change[2:]
                for after, last in zip(ends[::2], ends[1::2], strict=True):
                    self._knowledge.finish(stream, after, last)

    # --- Other nodes -----------------------------------------------------------------------------

    def hear(self, node: NodeRef, frame: QueueFrame, now_us: int) -> None:
        """Take what another node's share of the group has sent."""

    def peer_up(self, peer: Peer, now_us: int) -> None:
        """Take note that a node is there."""

    def peer_down(self, ref: NodeRef, now_us: int) -> None:
        """Take note that a node is not there."""

    # --- Time ------------------------------------------------------------------------------------

    def expire(self, now_us: int) -> None:
        """Do what time has brought."""
        self._state.expire(now_us)
        for token, poll in list(self._polls.items()):
            if poll.until_us <= now_us:
                del self._polls[token]
                self._answer_nothing(token, poll)
        self._go_on(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when to call `expire` next."""
        until_us = min((poll.until_us for poll in self._polls.values()), default=None)
        return earlier(until_us, self._state.next_deadline_us())

    def take_effects(self) -> Sequence[Effect]:
        """Return what is to be done by whoever runs the queue."""
        effects, self._effects = self._effects, []
        return effects

    def _go_on(self, now_us: int) -> None:
        """Do what a change brings about for others."""
        self._take_changes()
        if self._polls and self._shared.has_work:
            for token, poll in list(self._polls.items()):
                try:
                    leased: object = self._find(poll.request, poll.lost, now_us)
                except PoeError as error:
                    leased = error
                if leased is not None:
                    del self._polls[token]
                    self._effects.append(Answer(token, leased))
                if not self._shared.has_work:
                    break

    def _answer_nothing(self, token: object, poll: _Poll) -> None:
        try:
            answer: object = self._nothing(poll.request, poll.lost)
        except PoeError as error:
            answer = error
        self._effects.append(Answer(token, answer))

    # --- To look at ------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the group, as msgpack can hold it."""
        return {
            **self._state.describe(),
            "delivery": self._delivery,
            "waiting": len(self._polls),
            "streams": [
                {
                    "stream": str(stream),
                    "done_ranges": len(known.done),
                    "granted_ranges": sum(map(len, known.granted.values())),
                }
                for stream in sorted(self._knowledge.streams())
                for known in [self._knowledge.get(stream)]
            ],
        }

    def counters(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self._counts)
