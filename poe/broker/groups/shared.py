"""Who holds which messages of a group of mode `shared`: leases on ranges of pointers.

A range is handed out under a lease, and is done when it is acknowledged. What is not acknowledged
in time, or was given back, is handed out again: first of all, when it is due. What nobody was given
yet begins at `next` of its unit. No message is looked at here, and nothing is kept for each: what
is kept grows with leases, and with ranges that are not done among others that are.

Which message is to blame when a member ends or falls silent is not known. So what it held counts no
attempt, but is handed out again in halves, in the end one by one, and then to a member that holds
nothing else: of such a one alone the failure counts.

A unit of which nobody can say that all behind a pointer is to be handed out is offered instead: one
range after another, in any order, and what is not handed out yet may be withdrawn again.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, Never, get_args

from poe.broker.groups.assignment import Units
from poe.broker.groups.dead_letters import DeadLetters, Dying
from poe.broker.groups.deadlines import Deadlines, earliest
from poe.broker.groups.failures import NONE_YET, Failures, back_off_us
from poe.broker.groups.journal import Journal
from poe.broker.groups.lease import Hand, Lease, Sought
from poe.broker.groups.membership import MemberInfo, Membership
from poe.broker.groups.offered import Offered
from poe.broker.groups.options import POINTER_MAX, GroupDefinition
from poe.broker.groups.ranges import Bounds
from poe.broker.groups.returned import Returned, ReturnedRanges, Why
from poe.broker.groups.shared_image import Progress, SharedImage, UnitImage
from poe.errors import GroupError, GroupFull, GroupPaused, OptionError, RangeNotLeased

RETRY_S_MAX: Final = 30 * 24 * 3600
"""As `poe.protocol.leases` has it."""

_NUMBER_BITS = 12
"""So many leases have numbers of one generation: with its 51 bits until 2097, 63 in all."""
_REASON_LENGTH_MAX = 200

Outcome = Literal["retry", "dead", "release"]
"""What a member says of messages that it did not finish: try again, and count it; never again; give
them to somebody else, they were not tried."""

Done = tuple[int, Sequence[Bounds] | None]
"""A lease, and the ranges of it that are done; None: all that is left of it."""

Failed = tuple[int, int, int, Outcome, float | None, str]
"""A lease, a range of it (after, last), what becomes of that, for `retry` the seconds until then
(None: as the options say), and why."""


class Shared:
    """The leases of one group, and what is to be handed out.

    Always: each message up to `next` of its unit is done, or in one lease, or in one range that was
    returned, or dying. Of a unit that is offered this holds of what is `known` of it, and each such
    message may be `fresh` instead; that it is done is not kept.

    Life cycle: `restore` and any number of `apply`, then `restart`; or none of them. Then the rest.
    """

    def __init__(self, definition: GroupDefinition, journal: Journal, members: Membership) -> None:
        self._definition = definition
        self._journal = journal
        self._members = members
        self._image: SharedImage | None = None
        """What is read after a start; None when that is done."""
        self._is_paused = False
        self._counts: Counter[str] = Counter()

        self._units: frozenset[bytes] = frozenset()
        self._progress: dict[bytes, Progress] = {}
        self._done_count = 0
        """Ranges that are done behind the floors."""
        self._fresh: deque[bytes] = deque()
        """Units that may have messages behind their `next`; the others are idle."""
        self._idle: set[bytes] = set()
        self._offered: dict[bytes, Offered] = {}
        self._returned = ReturnedRanges()
        self._letters = DeadLetters(journal)

        self._leases: dict[int, Lease] = {}
        self._deadlines: Deadlines[Lease] = Deadlines()
        self._last_id = 0
        self._messages_count = 0
        self._bytes_count = 0
        self._hands: dict[bytes, Hand] = {}
        self._share_out()
        self._clearing: bytes | None = None
        """The member that is to finish what it holds, for the next suspect."""

    def want(self, member: bytes, limit: int, bytes_max: int, now_us: int) -> Sought | None:
        """Return which messages to look for, for a member that asks; None: there are none for it.

        Two may be told the same, and the first that has found something gets it. What is returned
        comes first, and what is new from each unit in turn.

        Raises:
            GroupFenced: it is no member.
            OptionError: it asks for less than one message, or byte.
        """
        if limit < 1 or bytes_max < 1:
            raise OptionError("limit", min(limit, bytes_max), "1 or more")
        hand = self._hands.get(member)
        if hand is None:
            raise self._members.fenced(member)
        if self._is_paused or self._obstacle(hand) is not None or hand.is_bound:
            return None
        options = self._definition.options
        limit = min(
            limit,
            self._messages_share - hand.messages_count,
            options.lease_messages_max - self._messages_count,
        )
        bytes_max = min(bytes_max, options.lease_bytes_max - self._bytes_count)
        if self._returned.is_empty:
            self._clearing = None
        else:
            self._returned.ripen(now_us)
            returned = self._next_suspect(member, hand)
            if self._clearing == member:
                return None
            returned = returned or self._returned.first()
            if returned is not None:
                limit = min(limit, returned.failures.limit or limit)
                place = returned.unit, returned.after, returned.last
                return Sought(member, *place, limit, bytes_max, returned)
        if not self._fresh or self._holes_count() >= options.holes_max:
            return None
        unit = self._fresh[0]
        offered = self._offered.get(unit)
        after, last = offered.first() if offered else (self._progress[unit].next, POINTER_MAX)
        return Sought(member, unit, after, last, limit, bytes_max, None)

    @property
    def has_work(self) -> bool:
        """Return whether there may be something for somebody who asks."""
        returned = self._returned
        return bool(self._fresh or returned.first() or returned.first_suspect())

    def nothing(self, sought: Sought) -> None:
        """Note that there are no such messages: none yet, or of what was returned, no more."""
        if sought.unit in self._offered:
            self.withdraw(sought.unit, sought.after, sought.last)
        elif sought.returned is None:
            if sought.unit in self._fresh and self._progress[sought.unit].next == sought.after:
                self._rest(sought.unit)
        elif self._returned.take(sought.returned, sought.last):
            self._finish(sought.unit, sought.after, sought.last)

    def put_aside(self, sought: Sought, pause_s: float, now_us: int) -> None:
        """Note that such messages cannot be read now, so that others come before them.

        What was returned comes again after a pause, what is new when it is said to have `arrived`.
        """
        if sought.returned is None:
            self.nothing(sought)
        elif self._returned.take(sought.returned, sought.last):
            failures = sought.failures._replace(due_us=now_us + round(pause_s * 1e6))
            why = sought.returned.why
            self._return(sought.unit, (sought.after, sought.last), failures, why, now_us)

    @property
    def has_idle(self) -> bool:
        """Return whether there are units that have nothing new."""
        return bool(self._idle)

    def idle_units(self) -> Iterator[tuple[bytes, int]]:
        """Yield the units that have nothing new, and the pointer behind which that would be."""
        return ((unit, self._progress[unit].next) for unit in self._idle)

    def arrived(self, unit: bytes) -> None:
        """Note that a unit has new messages."""
        if unit in self._idle:
            self._idle.remove(unit)
            self._fresh.append(unit)

    def leased(
        self, sought: Sought, last: int, messages_count: int, size_bytes: int, now_us: int
    ) -> Lease | None:
        """Hand out the messages that were found, up to the pointer `last`.

        None: somebody else has got them meanwhile, or the member may not have them any more; ask
        what it wants again.
        """
        hand = self._hands.get(sought.member)
        if hand is None or self._is_too_much(sought, hand, messages_count):
            return None
        return self.hand_out(sought, last, messages_count, size_bytes, now_us)

    def hand_out(
        self, sought: Sought, last: int, messages_count: int, size_bytes: int, now_us: int
    ) -> Lease | None:
        """As `leased`, where nothing has happened since it was told what to look for."""
        if sought.returned is None:
            if not self._take_fresh(sought, last):
                return None
        else:
            if not self._returned.take(sought.returned, last):
                return None
            self._counts["redelivered"] += 1
            if sought.failures.is_suspect:
                self._clearing = None
        lease = Lease(self._new_id(), sought, last, messages_count, size_bytes)
        lease.since_us = now_us
        lease.deadline_us = now_us + round(self._definition.options.lease_s * 1e6)
        self._hands[lease.member].take(lease)
        self._leases[lease.id] = lease
        if self._offered and sought.unit in self._offered:
            self._offered[sought.unit].leases.set(sought.after, last, lease)
        self._deadlines.add(lease)
        self._messages_count += messages_count
        self._bytes_count += size_bytes
        return lease

    def offer(self, unit: bytes, after: int, last: int, failures: Failures, now_us: int) -> bool:
        """Have handed out what is not known of a range; return whether there was something.

        What was tried elsewhere comes as what was returned. A unit is offered always, or never.
        """
        offered = self._offered.get(unit)
        if offered is None:
            assert unit not in self._progress
            offered = self._offered[unit] = Offered()
            self._progress[unit] = Progress(0)
            self._units |= {unit}
            self._idle.add(unit)
            self._returned.set_units(self._units, now_us)
        parts = offered.learn(after, last)
        for bounds in parts:
            if failures is not NONE_YET:
                self._return(unit, bounds, failures, "retried", now_us)
            else:
                offered.fresh.add(*bounds)
                self.arrived(unit)
        return bool(parts)

    def withdraw(self, unit: bytes, after: int, last: int) -> list[Bounds]:
        """Hand a range out no more; return what of it nobody holds, which is not known any more.

        What is leased may be finished; if it is not, it is not handed out again either. What is
        dying is put as a dead letter all the same.
        """
        return [(begin, end) for begin, end, _ in self.surrender(unit, after, last)]

    def surrender(self, unit: bytes, after: int, last: int) -> list[tuple[int, int, Failures]]:
        """As `withdraw`; return with each range what is known of its failures, to hand it back."""
        offered = self._offered.get(unit)
        if offered is None:
            return []
        parts = self._recall(offered, unit, after, last)
        offered.leave(after, last)
        return parts

    def hand_back(
        self, member: bytes, lease_id: int, bounds: Bounds, failures: Failures, now_us: int
    ) -> bool:
        """Have a range of a lease handed out again, as it was surrendered elsewhere.

        Return whether its member holds that lease; nothing changes where it does not.

        Raises:
            RangeNotLeased: it is no range of the lease; nothing was taken.
        """
        lease = self._leases.get(lease_id)
        if lease is None or lease.member != member:
            return False
        self._check_ranges(lease_id, (bounds,))
        for part in self._take(lease, *bounds):
            if failures in (NONE_YET, lease.failures):
                self._return(lease.unit, part, lease.failures, "released", now_us)
            else:
                self._fail(lease.unit, part, failures, "released", now_us)
        return True

    def learn_done(self, unit: bytes, after: int, last: int) -> list[int]:
        """Note that a range is done elsewhere; return the leases that nothing is left of.

        What is dying of it is put as a dead letter all the same.
        """
        offered = self._offered.get(unit)
        if offered is None or not offered.known.within(after, last):
            return []
        self._recall(offered, unit, after, last)
        ended = []
        for begin, end, lease in offered.leases.within(after, last):
            self._take(lease, begin, end)
            offered.forget(begin, end)
            if lease.is_over:
                ended.append(lease.id)
        return ended

    def known(self, unit: bytes, after: int, last: int) -> list[Bounds]:
        """Return what of a range of a unit that is offered is to be handed out, or is."""
        offered = self._offered.get(unit)
        return [] if offered is None else offered.known.within(after, last)

    def leases_of(self, unit: bytes, after: int, last: int) -> list[Lease]:
        """Return the leases that hold something of a range of a unit that is offered."""
        offered = self._offered.get(unit)
        held = [] if offered is None else offered.leases.within(after, last)
        return list({lease.id: lease for _, _, lease in held}.values())

    def held_by(self, member: bytes) -> list[tuple[bytes, int, int]]:
        """Return what a member holds: of which unit, and which ranges."""
        hand = self._hands.get(member)
        leases = () if hand is None else hand.leases.values()
        return [(lease.unit, *bounds) for lease in leases for bounds in lease.left()]

    def acknowledge(self, done: Sequence[Done], failed: Sequence[Failed], now_us: int) -> list[int]:
        """Take what members say of what they hold; return the leases that are not held any more.

        What is said of such a lease changes nothing, and costs nobody anything else. What has
        failed of a lease is taken before what is done, so that a whole lease may be done but for
        some ranges. A range that is done, or has failed, already stays so.

        Raises:
            RangeNotLeased, OptionError: what was said is wrong; nothing was taken.
        """
        if failed or len(done) != 1 or done[0][1]:  # else a lease is done as a whole, as mostly
            self._check(done, failed)
        lost, met = self._take_failed(failed, now_us) if failed else ([], ())
        for lease_id, ranges in done:
            lease = self._leases.get(lease_id)
            if lease is None:
                if lease_id not in met:
                    lost.append(lease_id)
            elif ranges is None:
                self._end(lease)
                for after, last in lease.left():
                    self._finish(lease.unit, after, last)
            else:
                for after, last in ranges:
                    for bounds in self._take(lease, after, last):
                        self._finish(lease.unit, *bounds)
        return lost

    def extend(
        self, member: bytes, leases: Iterable[int], seconds: float, now_us: int
    ) -> list[int]:
        """Move deadlines to so many seconds from now; return the leases that it does not hold.

        No deadline is moved to an earlier time, nor behind `work_max_s` from when the lease began.

        Raises:
            GroupFenced: it is no member.
            OptionError: the seconds are 0 or less.
        """
        self._members.hear(member, now_us)
        longest_s = self._definition.options.work_max_s
        if seconds <= 0:
            raise OptionError("seconds", seconds, "more than 0")
        lost = []
        for lease_id in leases:
            lease = self._leases.get(lease_id)
            if lease is None or lease.member != member:
                lost.append(lease_id)
                continue
            until_us = min(now_us + round(seconds * 1e6), lease.since_us + round(longest_s * 1e6))
            lease.deadline_us = max(lease.deadline_us, until_us)
        return lost

    def excuse(self, members: Iterable[bytes], now_us: int) -> None:
        """Extend what members hold by a whole lease: they could not say that they work on it."""
        options = self._definition.options
        until_us = now_us + round(options.lease_s * 1e6)
        longest_us = round(options.work_max_s * 1e6)
        for member in members:
            for lease in self._hands[member].leases.values():
                lease.deadline_us = max(
                    lease.deadline_us, min(until_us, lease.since_us + longest_us)
                )

    @property
    def is_any_dying(self) -> bool:
        """Return whether something is to be put onto the dead letter topic."""
        return bool(self._letters)

    def next_dying(self) -> Dying | None:
        """Return what is to be put onto the dead letter topic next; the same until it is buried."""
        return self._letters.first()

    def dying(self) -> list[Dying]:
        """Return what is to be put there, but for what a reset has made work again; in order."""
        return list(self._letters)

    def buried(self, dying: Dying) -> None:
        """Note that a dead letter is stored, which was the next."""
        assert dying == self._letters.first()
        buried = self._letters.bury()
        if buried is not None:
            self._count_done(buried.unit, buried.after, buried.last)

    def renumber_dying(self, now_us: int, epoch: int = 0) -> None:
        """Number what is dying anew: the dead letter topic takes it behind an epoch alone."""
        self._letters.renumber(now_us, epoch)

    def why_nothing(self, member: bytes) -> GroupError | None:
        """Return what keeps messages from a member; None where there are none for it.

        Raises:
            GroupFenced: it is no member.
        """
        name = self._definition.name
        hand = self._hands[self._members.get(member).info.id]
        if self._is_paused:
            return GroupPaused(name)
        obstacle = self._obstacle(hand) or self._full_of_holes()
        return None if obstacle is None else GroupFull(name, *obstacle)

    def floor(self, unit: bytes) -> int | None:
        """Return the pointer up to which all of a unit is done; None where it is not known."""
        if self._image is not None:  # nobody has begun a new life with what was restored
            known = self._image.units.get(unit)
            return None if known is None else known.progress.floor
        progress = self._progress.get(unit)
        return None if progress is None else progress.floor

    def set_units(self, units: Units, now_us: int) -> None:
        """Say which units there are; what is known of others stays."""
        self._units = frozenset(unit for each in units.values() for unit in each)
        for unit in self._units - self._progress.keys():
            self._progress[unit] = Progress(0)
        self._idle &= self._units
        kept = [unit for unit in self._fresh if unit in self._units]
        self._fresh = deque([*kept, *sorted(self._units - self._idle - set(kept))])
        self._returned.set_units(self._units, now_us)

    def add(self, info: MemberInfo, replaced: bytes | None, now_us: int) -> None:
        """Take a member in; what the one held that it replaces is handed out again."""
        if replaced is not None:
            self.lose(replaced, now_us)
        self._hands.setdefault(info.id, Hand())
        self._share_out()

    def leave(self, member: bytes, now_us: int) -> None:
        """Let a member go; what it held was not tried."""
        for lease in self._let_go(member):
            for bounds in lease.left():
                self._return(lease.unit, bounds, lease.failures, "released", now_us)

    def lose(self, member: bytes, now_us: int) -> None:
        """Let go of a member of which nothing is heard; what it held is handed out again."""
        for lease in self._let_go(member):
            self._expire(lease, "member lost", now_us)

    def heartbeat(
        self, member: bytes, generation: int, owned: Collection[bytes]
    ) -> tuple[list[bytes], list[bytes], dict[bytes, Never]]:
        """Return what a member owns, which is nothing, and what it is to give up."""
        del member, generation
        return [], sorted(owned), {}

    def take_news(self) -> set[bytes]:
        """Return the members that own something else than they know: none."""
        return set()

    def settle(self, now_us: int) -> None:
        """Take back what was held for too long, and have ready what is due."""
        expired: Counter[bytes] = Counter()
        while (lease := self._deadlines.over(now_us)) is not None:
            self._end(lease)
            self._expire(lease, "lease expired", now_us)
            expired[lease.member] += 1
        for member, leases_count in expired.items():
            who = self._members.get(member).info
            self._journal.tell(now_us, "lease expired", f"{leases_count} of member {who}")
        self._returned.ripen(now_us)

    def next_deadline_us(self) -> int | None:
        """Return when there is something to settle."""
        return earliest(self._deadlines.next_us(), self._returned.next_due_us())

    def pause(self, now_us: int, *, is_paused: bool) -> None:
        """Hand nothing out, or go on."""
        del now_us
        self._is_paused = is_paused

    def reset(self, positions: Mapping[bytes, int]) -> None:
        """Go on behind these pointers; nobody is a member now."""
        for unit, pointer in positions.items():
            self._drop(unit)
            self._progress[unit] = Progress(pointer)
            self._journal.note(["reset", unit, pointer])
            self.arrived(unit)

    def forget(self, units: Collection[bytes], now_us: int) -> None:
        """Drop what is known of units that were deleted."""
        del now_us
        gone = frozenset(unit for unit in units if unit in self._progress)
        if not gone:
            return
        for lease in [each for each in self._leases.values() if each.unit in gone]:
            self._end(lease)
        for unit in gone:
            self._drop(unit)
        self._units -= gone
        self._idle -= gone
        self._fresh = deque(unit for unit in self._fresh if unit not in gone)
        self._journal.note(["forgotten", sorted(gone)])

    def describe(self) -> dict[str, Any]:
        """Return what is to be told of the work: its state, its units, what was counted."""
        since: dict[bytes, list[int]] = {}
        for lease in self._leases.values():
            since.setdefault(lease.unit, []).append(lease.since_us)
        returned = Counter(each.unit for each in self._returned)
        dying = Counter(each.unit for each in self._letters)
        is_full = self._obstacle(Hand()) or self._full_of_holes()
        return {
            "state": "full" if is_full else "ok",
            "full": None if is_full is None else list(is_full),
            "counts": dict(self._counts),
            "units": [
                {
                    "unit": unit,
                    "floor": progress.floor,
                    "next": progress.next,
                    "done_ranges": len(progress.done),
                    "leases": len(since.get(unit, ())),
                    "oldest_lease_us": min(since.get(unit, ()), default=None),
                    "returned_ranges": returned[unit],
                    "dying_ranges": dying[unit],
                }
                for unit, progress in sorted(self._progress.items())
            ],
        }

    def describe_member(self, member: bytes) -> dict[str, Any]:
        """Return what a member holds, and since when."""
        hand = self._hands[member]
        return {
            "leases": len(hand.leases),
            "messages": hand.messages_count,
            "since_us": min((lease.since_us for lease in hand.leases.values()), default=None),
        }

    def snapshot(self) -> list[Any]:
        """Return all that is durable."""
        return (self._image or self._as_image()).snapshot()

    def restore(self, snapshot: list[Any]) -> None:
        """Take over what `snapshot` has returned."""
        self._image = SharedImage.restore(snapshot, self._journal)

    def restored_units(self) -> Iterable[Any]:
        """Return the units of which something was restored, whatever those are."""
        assert self._image is not None
        return chain(self._image.units, self._image.letters.units())

    def apply(self, change: list[Any]) -> None:
        """Make a change again."""
        assert self._image is not None
        self._image.apply(change)

    def restart(self, now_us: int, *, is_paused: bool) -> None:
        """Begin a new life: what was held is handed out again, as if it had not been."""
        self._is_paused = is_paused
        image, self._image = self._image, None
        assert image is not None
        self._letters = image.letters
        latest_us = now_us + round(2e6 * RETRY_S_MAX)
        for name, unit, gaps in image.gaps():
            self._progress[name] = unit.progress
            self._done_count += len(unit.progress.done)
            for bounds in gaps:
                self._return(name, bounds, NONE_YET, "restarted", now_us)
            for after, last, failures in unit.failures:
                # Later than that nothing is to come: the clock was ahead, and is set back.
                due_us = failures.due_us if failures.due_us <= latest_us else now_us
                known = failures._replace(due_us=due_us)
                self._return(name, (after, last), known, "restarted", now_us)

    def _next_suspect(self, member: bytes, hand: Hand) -> Returned | None:
        """Return the next suspect, if the member holds nothing.

        If it does, and no other one is about to be free, it gets nothing more until it is: the
        others go on.
        """
        suspect = self._returned.first_suspect()
        if suspect is None:
            self._clearing = None
        elif not hand.leases:
            self._clearing = None
            return suspect
        elif self._clearing is None:
            self._clearing = member
        return None

    def _obstacle(self, hand: Hand) -> tuple[str, int] | None:
        """Return the limit that is reached for a member, and what it is."""
        options = self._definition.options
        if len(self._leases) >= options.leases_max:
            return "leases_max", options.leases_max
        if self._messages_count >= options.lease_messages_max:
            return "lease_messages_max", options.lease_messages_max
        if self._bytes_count >= options.lease_bytes_max:
            return "lease_bytes_max", options.lease_bytes_max
        if len(hand.leases) >= self._leases_share:
            return "a member's share of leases_max", self._leases_share
        if hand.messages_count >= self._messages_share:
            return "a member's share of lease_messages_max", self._messages_share
        return None

    def _full_of_holes(self) -> tuple[str, int] | None:
        """Return the limit for what is not done among what is, where that keeps messages back."""
        holes_max = self._definition.options.holes_max
        is_ready = self._returned.first() or self._returned.first_suspect()
        is_full = self._holes_count() >= holes_max and not is_ready
        return ("holes_max", holes_max) if is_full else None

    def _holes_count(self) -> int:
        return self._done_count + len(self._returned) + len(self._letters)

    def _is_too_much(self, sought: Sought, hand: Hand, messages_count: int) -> bool:
        """Return whether a member may not have what was found, with what it holds by now."""
        return (
            self._is_paused
            or self._obstacle(hand) is not None
            or hand.messages_count + messages_count > self._messages_share
            or hand.is_bound
            or (sought.failures.is_suspect and bool(hand.leases))
        )

    def _share_out(self) -> None:
        """Reckon how much of the budgets each member may have."""
        options = self._definition.options
        members_count = max(1, len(self._hands))
        self._leases_share = max(1, options.leases_max // members_count)
        self._messages_share = max(1, options.lease_messages_max // members_count)

    def _new_id(self) -> int:
        """Return the number of a new lease, which no life of the group has used.

        Nor has a group that had its name before: numbers are those of a generation, and where they
        come to an end, the next one begins.
        """
        self._last_id += 1
        if self._last_id >> _NUMBER_BITS != self._journal.generation:
            if not self._last_id % (1 << _NUMBER_BITS):
                self._journal.advance()
            self._last_id = self._journal.generation << _NUMBER_BITS
        return self._last_id

    def _take_failed(
        self, failed: Sequence[Failed], now_us: int
    ) -> tuple[list[int], Collection[int]]:
        """Take what has failed; return the leases that are not held, and those that were."""
        leases = {said[0]: self._leases.get(said[0]) for said in failed}
        for said in failed:
            lease = leases[said[0]]
            if lease is not None:
                for bounds in self._take(lease, said[1], said[2]):
                    self._give_back(lease, bounds, said, now_us)
        lost = [lease_id for lease_id, lease in leases.items() if lease is None]
        return lost, leases.keys() - set(lost)

    def _check(self, done: Sequence[Done], failed: Sequence[Failed]) -> None:
        told: dict[int, list[Bounds]] = {}
        for lease_id, ranges in done:
            if ranges:
                told.setdefault(lease_id, []).extend(ranges)
        for lease_id, after, last, outcome, delay_s, _ in failed:
            told.setdefault(lease_id, []).append((after, last))
            if outcome not in get_args(Outcome):
                raise OptionError("outcome", outcome, " or ".join(get_args(Outcome)))
            if delay_s is not None and not 0 <= delay_s <= RETRY_S_MAX:
                raise OptionError("delay_s", delay_s, f"0 to {RETRY_S_MAX} (seconds)")
        for lease_id, of_lease in told.items():
            self._check_ranges(lease_id, of_lease)

    def _check_ranges(self, lease_id: int, ranges: Sequence[Bounds]) -> None:
        """Refuse ranges that are not of a lease, or more of them than it has messages for.

        Pointers are not dense: without an end, who holds one message might say what became of
        millions of ranges without any, each of which is kept.
        """
        lease = self._leases.get(lease_id)
        if lease is None:
            return
        # What is told twice, since no answer came, may have been taken.
        are_too_many = len(ranges) + lease.parts_count > 2 * lease.count + 1
        for after, last in ranges:
            if are_too_many or not lease.after <= after < last <= lease.last:
                raise RangeNotLeased(self._definition.name, lease_id, after, last)

    def _take(self, lease: Lease, after: int, last: int) -> list[Bounds]:
        """Take a range out of a lease, and end that with the last of it."""
        parts = lease.take(after, last)
        if lease.unit in self._offered:
            for part in parts:
                self._offered[lease.unit].leases.set(*part, None)
        if parts and lease.is_over:
            self._end(lease)
        return parts

    def _end(self, lease: Lease) -> None:
        """Have a lease held by nobody."""
        self._hands[lease.member].drop(lease)
        del self._leases[lease.id]
        if lease.unit in self._offered:
            for bounds in lease.left():
                self._offered[lease.unit].leases.set(*bounds, None)
        self._messages_count -= lease.count
        self._bytes_count -= lease.size_bytes
        self._deadlines.drop(lease)

    def _let_go(self, member: bytes) -> list[Lease]:
        """End a member's leases, and forget it; return them."""
        leases = list(self._hands[member].leases.values())
        for lease in leases:
            self._end(lease)
        del self._hands[member]
        self._share_out()
        if self._clearing == member:
            self._clearing = None
        return leases

    def _finish(self, unit: bytes, after: int, last: int) -> None:
        """Count a range as done, and have that written."""
        self._count_done(unit, after, last)
        self._journal.note_done(unit, after, last)

    def _count_done(self, unit: bytes, after: int, last: int) -> None:
        if unit in self._offered:
            self._offered[unit].forget(after, last)
            return
        self._done_count += self._progress[unit].finish(after, last)

    def _give_back(self, lease: Lease, bounds: Bounds, said: Failed, now_us: int) -> None:
        """Do with a range of a lease what was said of it."""
        _, _, _, outcome, delay_s, reason = said
        known = lease.failures
        if outcome == "release":
            self._return(lease.unit, bounds, known, "released", now_us)
            return
        attempts = known.attempts + 1
        if delay_s is None:
            delay_us = back_off_us(self._definition.options, attempts, bounds[1])
        else:
            delay_us = round(delay_s * 1e6)
        # Its member has lived to tell: nothing that it did is to be looked for one by one.
        failures = Failures(attempts, None, now_us + delay_us, reason[:_REASON_LENGTH_MAX])
        self._counts["failed"] += 1
        if outcome == "dead":
            self._die(lease.unit, bounds, failures, now_us)
        else:
            self._fail(lease.unit, bounds, failures, "retried", now_us)

    def _expire(self, lease: Lease, why: Why, now_us: int) -> None:
        """Have handed out again what nobody said anything of."""
        self._counts["expired"] += 1
        known = lease.failures
        reason = "nobody said what became of it"
        is_certain = lease.count == 1 and lease.is_alone
        for bounds in lease.left():
            if is_certain:
                attempts = known.attempts + 1
                due_us = now_us + back_off_us(self._definition.options, attempts, bounds[1])
                failures = Failures(attempts, 1, due_us, reason)
            else:
                failures = Failures(known.attempts, max(1, lease.count // 2), now_us, reason)
            self._fail(lease.unit, bounds, failures, why, now_us)

    def _fail(self, unit: bytes, bounds: Bounds, failures: Failures, why: Why, now_us: int) -> None:
        """Have messages tried again when they are due, or not any more."""
        if failures.attempts >= self._definition.options.attempts_max:
            self._die(unit, bounds, failures, now_us)
            return
        self._journal.note(["failed", unit, *bounds, *failures])
        self._return(unit, bounds, failures, why, now_us)

    def _die(self, unit: bytes, bounds: Bounds, failures: Failures, now_us: int) -> None:
        """Give messages up: put them aside, or drop them, as the options say."""
        self._counts["dead"] += 1
        what = f"{unit!r} behind {bounds[0]} up to {bounds[1]}"
        why = f"{failures.attempts} attempts; {failures.reason}"
        if self._definition.options.on_dead == "drop":
            self._journal.tell(now_us, "dropped", f"{what}: {why}")
            self._finish(unit, *bounds)
        else:
            self._journal.tell(now_us, "dead", f"{what}: {why}")
            self._letters.add(unit, bounds, failures, now_us)

    def _return(
        self, unit: bytes, bounds: Bounds, failures: Failures, why: Why, now_us: int
    ) -> None:
        """Have a range handed out again, when it is due; but for what was withdrawn."""
        offered = self._offered.get(unit)
        for part in [bounds] if offered is None else offered.come_back(*bounds):
            self._returned.place(Returned(unit, *part, failures, why), now_us)

    def _take_fresh(self, sought: Sought, last: int) -> bool:
        """Take what nobody was given yet, up to a pointer; False: somebody else was faster."""
        unit = sought.unit
        progress, offered = self._progress.get(unit), self._offered.get(unit)
        if progress is None or unit not in self._units:
            return False
        if offered is not None:
            if not offered.hand_out(sought.after, last):
                return False
        elif progress.next == sought.after:
            progress.next = last
        else:
            return False
        self._fresh.rotate(-1)
        if offered is not None and not offered.fresh:
            self._rest(unit)
        return True

    def _rest(self, unit: bytes) -> None:
        """Note that a unit has nothing new."""
        if unit in self._fresh:
            self._fresh.remove(unit)
            self._idle.add(unit)

    def _recall(
        self, offered: Offered, unit: bytes, after: int, last: int
    ) -> list[tuple[int, int, Failures]]:
        """Forget what of a range nobody holds; return that, and its failures."""
        fresh = offered.fresh.cut(after, last)
        if fresh and not offered.fresh:
            self._rest(unit)
        parts = [(*bounds, NONE_YET) for bounds in fresh]
        parts += [
            (each.after, each.last, each.failures) for each in self._returned.cut(unit, after, last)
        ]
        for begin, end, _ in parts:
            offered.forget(begin, end)
        return parts

    def _drop(self, unit: bytes) -> None:
        """Forget how far a unit is; what of it is dying is put all the same."""
        self._letters.detach(unit)
        self._returned.drop(unit)
        self._offered.pop(unit, None)
        progress = self._progress.pop(unit, None)
        if progress is not None:
            self._done_count -= len(progress.done)

    def _as_image(self) -> SharedImage:
        image = SharedImage(self._letters)
        image.units = {name: UnitImage(progress) for name, progress in self._progress.items()}
        for unit, after, last, failures in self._with_failures():
            image.units[unit].failures.set(after, last, failures)
        return image

    def _with_failures(self) -> Iterator[tuple[bytes, int, int, Failures]]:
        """Yield what has failed, whether it is held again or not."""
        for each in self._returned:
            if each.failures is not NONE_YET:
                yield each.unit, each.after, each.last, each.failures
        for lease in self._leases.values():
            if lease.failures is not NONE_YET:
                for after, last in lease.left():
                    yield lease.unit, after, last, lease.failures
