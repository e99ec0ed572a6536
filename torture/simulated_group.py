"""Groups without a node: clients that keep to the protocol or wake up too late, and a log.

Whoever drives it says what happens next, at random or by Hypothesis; after each step it compares
what the group says with what must be. Time is simulated. The log is what the coordinator writes:
after a power cut the end of it may be missing, which those who were answered do not know.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poe.broker.groups.dead_letters import Dying
from poe.broker.groups.lease import Lease
from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.options import GroupDefinition, GroupOptions, Mode, matches
from poe.broker.groups.ordered import Granted
from poe.broker.groups.shared import Done, Failed, Outcome
from poe.broker.groups.state import GroupState, Heartbeat
from poe.errors import GroupFenced

START_US = 1_790_000_000_000_000
SECOND = 1_000_000
SESSION_S = 10.0
LEASE_S = 20.0
ALL = 1 << 30
_STEPS_MAX = 10_000

Message = tuple[bytes, int]
"""Unit and pointer."""


def member_id(number: int) -> bytes:
    """The id of a client."""
    return b"%016d" % number


class World(ABC):
    """A group and its log.

    Always: `state` has the same snapshot as the log makes anew.
    """

    def __init__(self, mode: Mode, **options: float) -> None:
        self.now_us = START_US
        definition = GroupDefinition(
            name="group",
            id=bytes(16),
            mode=mode,
            topics=(b"*",),
            options=GroupOptions(session_s=SESSION_S, **options),  # type: ignore[arg-type]
        )
        self.state = GroupState.create(definition, self.now_us)
        self.log: list[Any] = [self.state.snapshot()]
        """A snapshot, and the changes behind it."""
        self.steps_count = 0
        self.members: set[int] = set()
        """Those that the group counts as members, by number."""
        self._heard_us: dict[int, int] = {}

    @abstractmethod
    def units(self) -> dict[bytes, list[bytes]]:
        """The units of each topic."""

    def end_step(self) -> None:
        """Write what has changed, and compare."""
        self.log += self.state.take_changes()
        self.steps_count += 1
        if self.steps_count % 16 == 0:
            assert self.remade().snapshot() == self.state.snapshot(), "the log lacks something"

    def remade(self) -> GroupState:
        """Make the group anew of its log."""
        first, *changes = self.log
        state = GroupState.restore(first)
        at = state.changes_count
        middle = len(changes) // 2
        # What was written, and not answered, is written again.
        for begin, end in ((0, middle), (middle // 2, len(changes))):
            state.replay(at + begin, changes[begin:end])
        return state

    def compact(self) -> None:
        """Begin the log anew with a snapshot."""
        self.log = [self.state.snapshot()]

    def hear(self, number: int) -> None:
        """Count a client as heard."""
        self._heard_us[number] = self.now_us

    def joined(self, number: int) -> None:
        """Count a client as a member."""
        self.members.add(number)
        self.hear(number)

    def pass_time(self, seconds: float) -> list[int]:
        """Let time pass; the members whose session is over by then."""
        self.now_us += round(seconds * SECOND)
        limit_us = self.now_us - round(SESSION_S * SECOND)
        silent = [each for each in sorted(self.members) if self._heard_us[each] <= limit_us]
        self.members -= set(silent)
        return silent

    def expire(self) -> None:
        """Do what time has brought; before the group has said there is nothing of that."""
        due_us = self.state.next_deadline_us()
        events, changes = self.state.expire(self.now_us), self.state.take_changes()
        is_due = due_us is not None and due_us <= self.now_us
        assert is_due or not (events or changes), f"{due_us} is not over, but {events}, {changes}"
        due_us = self.state.next_deadline_us()
        assert due_us is None or due_us > self.now_us, "it is always due"
        self.log += changes
        self.end_step()

    def refused(self, number: int) -> None:
        """A client was fenced; only one that is no member may be."""
        assert number not in self.members, f"client {number} is a member, and was fenced"

    def restart(self, lost_count: int) -> int:
        """End the node, and start it without the last so many changes; how many are left."""
        lost_count = min(lost_count, len(self.log) - 1)
        del self.log[len(self.log) - lost_count :]
        self.state = self.remade()
        kept_count = len(self.log)
        self.now_us += 2 * SECOND
        self.state.restarted(self.now_us)
        self.state.set_units(self.units(), self.now_us)
        self.members.clear()
        return kept_count


@dataclass
class Held:
    """A lease as a client and the judge know it."""

    lease: Lease
    number: int
    messages: list[Message]
    deadline_us: int
    is_alone: bool
    is_valid: bool = True
    left: set[Message] = field(default_factory=set)


class SharedWorld(World):
    """A group of mode `shared`, whose messages are known one by one."""

    def __init__(self, pointers: dict[bytes, list[int]], **options: float) -> None:
        super().__init__("shared", lease_s=LEASE_S, **options)
        self.pointers = pointers
        self.held: list[Held] = []
        """All leases that any client knows of, those that are over, too."""
        self.done: dict[Message, int] = {}
        """What was acknowledged, or put as a dead letter, and where the log was then."""
        self.attempts: dict[Message, int] = {}
        self.lost: set[Message] = set()
        """What was done, and a power cut has taken the knowledge."""
        self.letters: dict[tuple[int, int], list[Message]] = {}
        self.given_up: set[Message] = set()
        """What a client has said never to try again."""
        self.due_us: dict[Message, int] = {}
        """When what has failed may be tried again."""
        self.is_certain = True
        """Whether no power cut has taken what clients know."""
        self._is_reset = False
        self._detached: set[Dying] = set()
        """Dying ranges that a reset has made somebody's work again, or of a deleted unit."""
        self._of_deleted: dict[Dying, list[Message]] = {}
        """What was in those of deleted units."""
        self._there = set(pointers)
        self.state.set_units(self.units(), self.now_us)
        self.end_step()

    def units(self) -> dict[bytes, list[bytes]]:
        """The units of each topic."""
        return {b"t": sorted(self._there)}

    def set_units(self, there: set[bytes]) -> None:
        """Have some of the units only."""
        self._there = there & self.pointers.keys()
        self.state.set_units(self.units(), self.now_us)
        self.end_step()

    def pause(self, *, is_paused: bool) -> None:
        """Pause the group, or resume it."""
        (self.state.pause if is_paused else self.state.resume)(self.now_us)
        self.end_step()

    def reset(self, unit: bytes, pointer: int) -> None:
        """Go on elsewhere; all members are ended."""
        letters = {each for each in self.state.shared.dying() if each.unit == unit}
        self.state.reset({unit: pointer}, self.now_us, force=True)
        self._is_reset = True
        self._detached |= letters
        self.members.clear()
        for each in self.held:
            each.is_valid = False
        messages = [(unit, each) for each in self.pointers[unit]]
        for message in messages:
            self.lost.discard(message)
            self.given_up.discard(message)
            self.due_us.pop(message, None)
            self.done.pop(message, None)
            self.attempts.pop(message, None)
            if message[1] <= pointer:
                self.done[message] = 1
        # So that no power cut takes it back, of which the judge does not know what was before.
        self.end_step()
        self.compact()

    def delete(self, unit: bytes) -> None:
        """Delete a unit, which is made anew at once, with as many messages behind those."""
        there = self.pointers[unit]
        self._detached |= {each for each in self.state.shared.dying() if each.unit == unit}
        of_it = [each for each in self._detached if each.unit == unit]
        self._of_deleted |= {each: self._messages(each) for each in of_it}
        self.pointers[unit] = [each + 10_000 for each in there]
        for each in self.held:
            if each.lease.unit == unit:
                each.is_valid = False
        for message in [(unit, each) for each in there]:
            for known in (self.attempts, self.done, self.due_us):
                known.pop(message, None)
            self.lost.discard(message)
            self.given_up.discard(message)
        self.state.forget([unit], self.now_us)
        self.state.set_units(self.units(), self.now_us)
        self.end_step()
        self.compact()

    def valid(self, number: int | None = None) -> list[Held]:
        """The leases that are held, of one client or of all."""
        return [each for each in self.held if each.is_valid and number in {None, each.number}]

    def join(self, number: int) -> None:
        """Have a client join, or join again."""
        self.state.join(MemberInfo(id=member_id(number), name=str(number)), self.now_us)
        self.joined(number)
        self.end_step()

    def leave(self, number: int) -> None:
        """Have a client leave, and know nothing of what it held."""
        if number in self.members:
            self.state.leave(member_id(number), self.now_us)
            self.members.remove(number)
            for each in self.valid(number):
                each.is_valid = False
            self.end_step()

    def beat(self, number: int) -> None:
        """Have a client's library give a sign of life."""
        try:
            self.state.heartbeat(member_id(number), 0, [], self.now_us)
        except GroupFenced:
            self.refused(number)
        else:
            self.hear(number)

    def sleep(self, seconds: float) -> None:
        """Let time pass; sessions and leases may be over then."""
        silent = self.pass_time(seconds)
        for each in self.valid():
            if each.number in silent:
                self._count_expiry(each)
        for each in self.valid():
            if each.deadline_us <= self.now_us:
                self._count_expiry(each)
        self.expire()

    def take(self, number: int, limit: int) -> Held | None:
        """Have a client ask for messages."""
        self.expire()
        for _ in range(_STEPS_MAX):
            has_work = self.state.shared.has_work
            try:
                want = self.state.shared.want(member_id(number), limit, ALL, self.now_us)
            except GroupFenced:
                self.refused(number)
                return None
            if want is None:
                return None
            assert has_work, f"who waits would not be given {want}"
            there = self.pointers[want.unit]
            low, high = bisect_right(there, want.after), bisect_right(there, want.last)
            found = there[low : min(high, low + want.limit)]
            if not found:
                self.state.shared.nothing(want)
                self.end_step()
                continue
            lease = self.state.shared.leased(want, found[-1], len(found), 1, self.now_us)
            assert lease is not None, "nobody was quicker"
            return self._hold(number, lease, found)
        raise AssertionError("it asks for ever")

    def acknowledge(
        self,
        held: Held,
        part: slice | None,
        *,
        is_failed: bool,
        outcome: Outcome = "retry",
        delay_s: float | None = None,
        is_rest_done: bool = False,
    ) -> None:
        """Have a client say of a lease, or of some of its messages, that they are done or not."""
        lease = held.lease
        chosen = held.messages if part is None else held.messages[part]
        if not chosen:
            return
        bounds = (self._before(chosen[0], lease.after), chosen[-1][1])
        if is_failed:
            said: Failed = (lease.id, *bounds, outcome, delay_s, "it says so")
            done: list[Done] = [(lease.id, None)] if is_rest_done else []
            lost = self.state.shared.acknowledge(done, [said], self.now_us)
        else:
            ranges = None if part is None else [bounds]
            lost = self.state.shared.acknowledge([(lease.id, ranges)], [], self.now_us)
        assert (lost == []) == held.is_valid, f"held: {held.is_valid}, but lost: {lost}"
        if held.is_valid:
            changed = held.left & set(chosen)
            held.left -= changed
            if is_failed and is_rest_done:
                self.done |= dict.fromkeys(held.left, len(self.log) + 10)
                held.left = set()
            held.is_valid = bool(held.left)
            for message in changed:
                if is_failed:
                    self.attempts[message] = self.attempts.get(message, 0) + 1
                    self.due_us[message] = self.now_us + round((delay_s or 0) * SECOND)
                    if outcome == "dead":
                        self.given_up.add(message)
                else:
                    self.done[message] = len(self.log) + 1
        self.end_step()

    def release(self, held: Held) -> None:
        """Have a client give a lease back untried."""
        lease = held.lease
        said: Failed = (lease.id, lease.after, lease.last, "release", None, "")
        lost = self.state.shared.acknowledge([], [said], self.now_us)
        assert (lost == []) == held.is_valid
        held.is_valid = False
        self.end_step()

    def extend(self, held: Held, seconds: float) -> None:
        """Have a client ask for more time."""
        leases = [held.lease.id]
        try:
            lost = self.state.shared.extend(held.lease.member, leases, seconds, self.now_us)
        except GroupFenced:
            self.refused(held.number)
            return
        self.hear(held.number)
        assert (lost == []) == held.is_valid
        if held.is_valid:
            held.deadline_us = max(held.deadline_us, self.now_us + round(seconds * SECOND))

    def put_letter(self, *, is_buried: bool) -> None:
        """Put a dead letter; perhaps end before that is written."""
        dying = self.state.shared.next_dying()
        if dying is None:
            return
        messages = self._messages(dying)
        number = dying.epoch, dying.sequence
        if number not in self.letters:
            epoch, sequence = max(self.letters, default=(-1, -1))
            expected = sequence + 1 if dying.epoch == epoch else 0
            is_next = dying.epoch >= epoch and dying.sequence == expected
            refused = f"behind {epoch}, {sequence} the topic refuses {number}"
            assert is_next or not self.is_certain, refused
        stored = self.letters.setdefault(number, messages)
        assert stored == messages, "a dead letter is taken for another one, and lost"
        if self.is_certain and dying not in self._detached:
            least = self.state.definition.options.attempts_max
            innocent = [each for each in messages if self.attempts.get(each, 0) < least]
            assert self.given_up.issuperset(innocent), f"{innocent} have not failed {least} times"
        if self.is_certain and not self._is_reset:
            letters = Counter(message for each in self.letters.values() for message in each)
            assert max(letters.values()) == 1, f"{letters.most_common(1)} is there twice"
        if is_buried:
            self.state.shared.buried(dying)
            if dying not in self._detached:
                for message in messages:
                    self.done.setdefault(message, len(self.log) + 1)
            self.end_step()

    def end_node(self, lost_count: int) -> None:
        """End the node, and start it again; after a power cut without the end of its log."""
        before_count = len(self.log)
        kept_count = self.restart(lost_count)
        if kept_count < before_count:
            self.is_certain = False
            self.lost |= {each for each, at in self.done.items() if at > kept_count}
            self.done = {each: at for each, at in self.done.items() if at <= kept_count}
            self.attempts.clear()
            self.given_up.clear()
            self.due_us.clear()
        for each in self.held:
            each.is_valid = False
        self.end_step()

    def compact(self) -> None:
        """Begin the log anew with a snapshot."""
        super().compact()
        self.done = dict.fromkeys(self.done, 1)

    def check(self) -> None:
        """Compare what the group says with what must be."""
        for unit, there in self.pointers.items():
            floor = self.state.floor(unit) or 0  # None: it is away, and nothing was done there
            below = {(unit, each) for each in there[: bisect_right(there, floor)]}
            missing = below - self.done.keys() - self.lost
            assert not missing, f"the floor {floor} is ahead of {missing}"

    def finish(self) -> None:
        """Have one good client do what is left; everything must be done then."""
        for number in sorted(self.members):
            self.leave(number)
        self.set_units(set(self.pointers))
        self.pause(is_paused=False)
        for _ in range(_STEPS_MAX):
            self.join(0)
            held = self.take(0, 7)
            if held is not None:
                self.acknowledge(held, None, is_failed=False)
                continue
            is_any = self.state.shared.next_dying() is not None
            while self.state.shared.next_dying() is not None:
                self.put_letter(is_buried=True)
            deadline_us = self.state.shared.next_deadline_us()
            if deadline_us is None and is_any:
                continue  # there was no room for more, maybe
            if deadline_us is None:
                break
            self.sleep(max(0, deadline_us - self.now_us) / SECOND + 1)
        for unit, there in self.pointers.items():
            floor = self.state.floor(unit)
            assert floor == there[-1], f"{unit!r} is done up to {floor} of {there[-1]} only"
        told = self.state.describe()
        assert told["state"] == "ok"
        for unit in told["units"]:
            for name in ("done_ranges", "leases", "returned_ranges", "dying_ranges"):
                assert unit[name] == 0, f"{name} is {unit[name]}"

    def _hold(self, number: int, lease: Lease, pointers: list[int]) -> Held:
        messages = [(lease.unit, pointer) for pointer in pointers]
        others = self.valid(number)
        held = Held(lease, number, messages, self.now_us + round(LEASE_S * SECOND), not others)
        held.left = set(messages)
        for each in self.valid():
            assert not each.left & held.left, "two members hold a message"
        for message in messages:
            assert message not in self.done, f"{message} was done, and is handed out again"
            assert self.due_us.get(message, 0) <= self.now_us, f"{message} is not due"
            assert message not in self.given_up, f"{message} was given up, and is handed out"
            known = self.attempts.get(message)
            told = lease.failures.attempts
            if self.is_certain:
                assert (known or 0) == told, f"{message} failed {known} times, not {told}"
        if any(each.lease.failures.is_suspect for each in others):
            raise AssertionError("a suspect's member got something else")
        for each in others:
            each.is_alone = False
        share = max(1, self.state.definition.options.lease_messages_max // len(self.members))
        in_hand = sum(len(each.messages) for each in [*others, held])
        assert in_hand <= share or not others, f"{in_hand} messages, of {share}"
        self.held.append(held)
        return held

    def _count_expiry(self, held: Held) -> None:
        held.is_valid = False
        if held.is_alone and len(held.messages) == 1:
            [message] = held.messages
            self.attempts[message] = self.attempts.get(message, 0) + 1

    def _before(self, message: Message, least: int) -> int:
        there = self.pointers[message[0]]
        at = bisect_left(there, message[1])
        return max(least, there[at - 1] if at else 0)

    def _messages(self, dying: Dying) -> list[Message]:
        if dying in self._of_deleted:
            return self._of_deleted[dying]
        there = self.pointers[dying.unit]
        low, high = bisect_right(there, dying.after), bisect_right(there, dying.last)
        return [(dying.unit, pointer) for pointer in there[low:high]]


Said = tuple[int, frozenset[bytes]]
"""The generation that a heartbeat tells, and what its sender owns."""


def _has_news(told: Heartbeat, owned: frozenset[bytes]) -> bool:
    return bool(told.revoke) or set(told.keep) != owned


@dataclass
class Owner:
    """A client of a group of mode `ordered`, and what it believes."""

    wishes: tuple[bytes, ...] | None = None
    generation: int = 0
    owned: set[bytes] = field(default_factory=set)
    revoked: set[bytes] = field(default_factory=set)
    """What it was told to give up, and works on still."""
    deleted: set[bytes] = field(default_factory=set)
    """What of it was deleted since: it works on what there is no more."""


class OrderedWorld(World):
    """A group of mode `ordered`, and what its clients believe that they own."""

    def __init__(self, units: dict[bytes, list[bytes]]) -> None:
        super().__init__("ordered")
        self._units = units
        self.owners: dict[int, Owner] = {}
        self.commits: list[tuple[int, bytes, int | None]] = []
        """Where the log was, the unit, and the pointer that was taken; None: it was forgotten."""
        self._instances: dict[str, int] = {}
        self._held_back: dict[int, Said] = {}
        """Heartbeats that wait for their answers."""
        self._first_owner: dict[tuple[bytes, int], int] = {}
        self._begun: dict[bytes, int] = {}
        """The newest generation in which somebody has begun to work on each unit."""
        self._pointer = 0
        self.state.set_units(self.units(), self.now_us)
        self.end_step()

    def units(self) -> dict[bytes, list[bytes]]:
        """The units of each topic."""
        return self._units

    def join(
        self,
        number: int,
        wishes: tuple[bytes, ...] | None,
        *,
        is_lost: bool,
        instance: str | None = None,
    ) -> None:
        """Have a client join, which drops what it had; its answer may get lost."""
        info = MemberInfo(id=member_id(number), topics=wishes, instance=instance)
        owner = self.owners[number] = Owner(wishes)
        self._held_back.pop(number, None)
        joined = self.state.join(info, self.now_us)
        self._instances = {each: who for each, who in self._instances.items() if who != number}
        if instance is not None:
            self.members.discard(self._instances.get(instance, number))
            self._instances[instance] = number
        self.joined(number)
        if not is_lost:
            self._begin(owner, joined.granted, joined.generation)
        self.end_step()

    def leave(self, number: int) -> None:
        """Have a client leave."""
        if number in self.members:
            self.state.leave(member_id(number), self.now_us)
            self.members.remove(number)
            self.owners[number] = Owner()
            self._held_back.pop(number, None)
            self.end_step()

    def end_step(self) -> None:
        """Write what has changed, compare, and answer heartbeats for which there are news."""
        super().end_step()
        for member in self.state.take_news():
            if (said := self._held_back.pop(int(member), None)) is not None:
                self._take(int(member), self.state.tell(member, *said, self.now_us))

    def beat(self, number: int, *, obeys: bool, is_lost: bool, may_wait: bool = False) -> None:
        """Have a client send a heartbeat, whose answer may get lost; it obeys the last one.

        The answer may be held back as long as there is nothing new to say.
        """
        owner = self.owners.get(number)
        if owner is None:
            return
        self.expire()
        said = self._held_back.pop(number, None)
        if said is not None and number in self.members:
            told = self.state.tell(member_id(number), *said, self.now_us)
            assert not _has_news(told, said[1]), f"client {number} was not told of {told}"
        if obeys:
            owner.owned -= owner.revoked
            owner.deleted &= owner.owned
            owner.revoked = set()
        said = owner.generation, frozenset(owner.owned)
        try:
            told = self.state.heartbeat(member_id(number), *said, self.now_us)
        except GroupFenced:
            self.refused(number)
            self.owners[number] = Owner()
            return
        self.hear(number)
        if may_wait and not _has_news(told, said[1]):
            self._held_back[number] = said
        elif not is_lost:
            self._take(number, told)
        self.end_step()

    def _take(self, number: int, told: Heartbeat) -> None:
        """Have a client hear the answer to a heartbeat."""
        owner = self.owners[number]
        assert not set(told.keep) & set(told.revoke)
        owner.revoked = set(told.revoke) & owner.owned
        places = {unit for each in self._units.values() for unit in each}
        assert told.granted.keys() == (set(told.keep) - owner.owned) & places
        self._begin(owner, told.granted, told.generation)

    def _begin(self, owner: Owner, granted: Mapping[bytes, Granted], generation: int) -> None:
        """Have a client begin with what it does not work on yet, under a name of its own.

        It numbers what it puts by unit and generation, from the same number on each time.
        """
        owner.generation = generation
        expected = self.expected()
        for unit, place in granted.items():
            last = self._begun.get(unit, 0)
            assert generation > last, f"{unit!r} is begun twice in generation {generation}"
            self._begun[unit] = generation
            begun = place.position and place.position[0]
            assert begun == expected.get(unit), f"{unit!r} is begun at {begun}"
        owner.owned |= granted.keys()
        owner.deleted -= granted.keys()

    def commit(self, number: int) -> None:
        """Have a client commit on all units, also those of others: only its own are taken."""
        owner = self.owners.get(number)
        if owner is None:
            return
        self._pointer += 1
        everywhere = {unit: (self._pointer, b"") for each in self._units.values() for unit in each}
        try:
            taken = self.state.ordered.commit(
                member_id(number), owner.generation, everywhere, self.now_us
            )
        except GroupFenced:
            self.refused(number)
            self.owners[number] = Owner()
            return
        assert number in self.members, f"client {number} is none, and has committed"
        self.hear(number)
        refused = owner.owned & everywhere.keys() - taken.keys()
        is_withdrawn = self.state.ordered._ownership.is_withdrawn
        assert all(map(is_withdrawn, refused)), f"{number} owns {refused}, and has not committed"
        assert not owner.deleted & taken.keys(), "it is of what was deleted"
        for other in self.members - {number}:
            # What was granted to it, and taken back before it knew, is nobody else's yet.
            stolen = taken.keys() & self.owners[other].owned
            assert not stolen, f"{number} has committed on {stolen}, which {other} owns"
        for unit in taken:
            first = self._first_owner.setdefault((unit, owner.generation), number)
            assert first == number, f"{unit!r} had two owners in generation {owner.generation}"
            self.commits.append((len(self.log) + 1, unit, self._pointer))
        self.end_step()

    def sleep(self, seconds: float) -> None:
        """Let time pass; sessions may be over then."""
        self.pass_time(seconds)
        self.expire()

    def set_units(self, units: dict[bytes, list[bytes]]) -> None:
        """Have other units."""
        self._units = units
        self.state.set_units(units, self.now_us)
        self.end_step()

    def delete(self, topic: bytes) -> None:
        """Delete a topic, which is made anew at once."""
        gone = self._units[topic]
        self.commits += [(len(self.log) + 1, unit, None) for unit in gone]
        self.state.forget(gone, self.now_us)
        self.state.set_units(self._units, self.now_us)
        for owner in self.owners.values():
            owner.deleted |= owner.owned & set(gone)
        self.end_step()

    def reset(self, unit: bytes) -> None:
        """Go on elsewhere; all members are ended."""
        self._pointer += 1
        self.state.reset({unit: self._pointer}, self.now_us, force=True)
        self.members.clear()
        self.commits.append((len(self.log) + 2, unit, self._pointer))
        self.end_step()

    def pause(self, *, is_paused: bool) -> None:
        """Pause the group, or resume it."""
        (self.state.pause if is_paused else self.state.resume)(self.now_us)
        self.end_step()

    def end_node(self, lost_count: int) -> None:
        """End the node, and start it again; after a power cut without the end of its log."""
        kept_count = self.restart(lost_count)
        self._held_back.clear()
        self.commits = [each for each in self.commits if each[0] <= kept_count]
        self.end_step()

    def compact(self) -> None:
        """Begin the log anew with a snapshot."""
        super().compact()
        self.commits = [(1, unit, pointer) for unit, pointer in self.expected().items()]

    def expected(self) -> dict[bytes, int]:
        """The positions that were taken last."""
        last = {unit: pointer for _, unit, pointer in self.commits}
        return {unit: pointer for unit, pointer in last.items() if pointer is not None}

    def check(self) -> None:
        """Compare what the group says with what must be."""
        owned: set[bytes] = set()
        for number in self.members:
            mine = self.owners[number].owned
            assert not owned & mine, f"two members own {owned & mine}"
            owned |= mine
        positions = self.state.ordered.positions().items()
        found = {unit: position[0] for unit, position in positions if position is not None}
        assert found == self.expected()

    def finish(self) -> None:
        """Have all members heard until nothing moves; everything must be owned, evenly."""
        self.pause(is_paused=False)
        for _ in range(4):
            self.sleep(1)
            for number in sorted(self.members):
                self.beat(number, obeys=True, is_lost=False)
            self.check()
        wanted: dict[frozenset[bytes], list[int]] = {}
        owned: set[bytes] = set()
        for number in sorted(self.members):
            owner = self.owners[number]
            assert not owner.revoked, f"client {number} is to give up {owner.revoked} still"
            assert not owner.deleted, f"client {number} has not begun anew {owner.deleted}"
            topics = [
                topic
                for topic in self._units
                if owner.wishes is None or any(matches(each, topic) for each in owner.wishes)
            ]
            wanted.setdefault(frozenset(topics), []).append(len(owner.owned))
            owned |= owner.owned
        for counts in wanted.values():
            assert max(counts) - min(counts) <= 1, f"members of one class own {counts} units"
        all_topics = {topic for topics in wanted for topic in topics}
        assert owned == {unit for topic in all_topics for unit in self._units[topic]}
