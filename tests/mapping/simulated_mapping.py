"""A world in which units of a mapping change owners at the worst of times, and what must hold.

One source partition, two targets, the log of the group, and owners that run side by side: of these
one owns the unit, the others were cut off and do not know. Topics know producers by the rules of
the storage itself. Each step one owner's next effect is carried out, or a fault happens.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from poe.errors import ProducerFenced, RepeatedPut, RulesChanged, SequenceGap
from poe.mapping import plan as plans
from poe.mapping.decision import Put
from poe.mapping.message import Columns
from poe.mapping.plan import Decided, Sent, Target
from poe.mapping.unit import (
    Commit,
    Counted,
    Describe,
    Effect,
    Grant,
    Held,
    Judged,
    Read,
    Store,
    Tell,
    Unit,
    Wait,
    Work,
)
from poe.storage.segment.producers import Producers

TARGETS = (b"even", b"third")
DEAD = b"m.dead"
WEEK_US = 7 * 24 * 3600 * 1_000_000
POISON = 7
"""Messages whose number it divides make the rules fail."""


class SimulatedRules:
    """Even numbers onto one topic, each third onto another; some are tried a few times first."""

    def __init__(self, version: int, rng: Random, retries: dict[int, int]) -> None:
        self.hash = b"rules %d" % version
        self._version = version
        self._rng = rng
        self._retries = retries

    def judge(self, batch: Columns) -> Judged:
        """Decide; a function that is asked again may have another answer."""
        numbers = [int(value or b"") for value in batch.values]
        for place, number in enumerate(numbers):
            if self._retries.get(number, 0) and self._rng.random() < 0.5:
                self._retries[number] -= 1
                held = Held(place, "retry", "rule", "later", attempts_max=9)
                return Judged(Decided(batch, {}), {}, held)
        if any(number % POISON == 0 for number in numbers):
            raise ValueError
        puts = {}
        for topic, divisor in zip(TARGETS, (2, 3), strict=True):
            places = [p for p, number in enumerate(numbers) if number % divisor == 0]
            if places:
                values = [batch.values[place] for place in places]
                other = TARGETS[topic == TARGETS[0]]
                puts[topic if self._version % 2 else other] = Put(places, values, None, None)
        return Judged(Decided(batch, puts), {})

    def give_up(self, batch: Columns, rule: str, reason: str, attempts: int) -> Judged:
        """Have it among the dead letters."""
        del rule, reason, attempts
        return Judged(Decided(batch, {DEAD: Put([0], batch.values, None, None)}), {})

    def pause_s(self, held: Held, attempts: int) -> float:
        """Wait for as long as nothing."""
        del held, attempts
        return 0.0


@dataclass
class Topic:
    """A log that knows its producers."""

    messages: list[bytes] = field(default_factory=list)
    producers: Producers = field(default_factory=Producers)

    def put(self, put: Sent, now_us: int) -> None:
        """Store it, unless it is stored."""
        try:
            if self.producers.find(_key(put)) is not None:
                return
        except (RepeatedPut, ProducerFenced):
            return
        self.messages += put.messages
        self.producers.add(_key(put), now_us + len(self.messages))

    def rotate(self, now_us: int) -> None:
        """Begin a segment, which is told of some producers."""
        kept = Producers()
        for put, pointer in self.producers.live(now_us):
            kept.add(put, pointer)
        self.producers = kept


@dataclass
class Owner:
    """A worker with a unit, or one that thinks so."""

    generation: int
    work: Work
    effect: Effect | None
    pending: list[Sent] = field(default_factory=list)


class World:
    """All of it; `step` carries on at random."""

    def __init__(  # noqa: PLR0913 - faults, by name
        self,
        seed: int,
        count: int = 60,
        *,
        unit: Callable[..., Unit] = Unit,
        is_fenced: bool = True,
        ends_on_doubt: bool = True,
        rules_change: bool = False,
        power_cuts: bool = False,
        is_idle_long: bool = False,
    ) -> None:
        self.rng = Random(seed)
        self.count = count
        self._unit = unit
        self._is_fenced = is_fenced
        self._ends_on_doubt = ends_on_doubt
        self._rules_change = rules_change
        self._power_cuts = power_cuts
        self._is_idle_long = is_idle_long
        self.topics = {name: Topic() for name in (*TARGETS, DEAD)}
        self.log: list[tuple[int, bytes]] = []
        """Positions, as the group has written them; the last one holds."""
        self.generation = 0
        self.now_us = WEEK_US
        self.owners: list[Owner] = []
        self.late: list[tuple[int, Commit] | Sent] = []
        """What is still in some socket."""
        self.retries = {number: 1 + number % 2 for number in range(5, count, 13)}
        self.version = 1

    def run(self, steps: int = 400) -> None:
        """Have faults for a while, then one owner that ends in peace."""
        for _ in range(steps):
            self._fault() if self.rng.random() < 0.12 or not self.owners else self._step()
        self.late.clear()
        self.owners.clear()
        while not self.owners:  # one that finds other rules than those of the plan ends at once
            self._grant()
        self._end(self.owners[-1])

    def begin(self, owner: Owner) -> None:
        """Have an owner of one's own do all that there is to do."""
        self._go_on(owner, None)
        self._end(owner)

    def _end(self, owner: Owner) -> None:
        while owner.effect is not None:
            if isinstance(owner.effect, Read) and owner.effect.is_to_wait:
                return
            self._carry_out(owner, may_fail=False)
        raise AssertionError("the last owner has ended before all was done")  # noqa: TRY003

    def expected(self) -> Counter[bytes]:
        """Return what must be stored, with first rules."""
        found: Counter[bytes] = Counter()
        for number in range(1, self.count + 1):
            if number % POISON == 0:
                found[b"dead %d" % number] += 1
            else:
                found.update(
                    b"%s %d" % (topic, number)
                    for topic, divisor in zip(TARGETS, (2, 3), strict=True)
                    if number % divisor == 0
                )
        return found

    def stored(self) -> Counter[bytes]:
        """Return what is."""
        names = {DEAD: b"dead"}
        return Counter(
            b"%s %s" % (names.get(name, name), message)
            for name, topic in self.topics.items()
            for message in topic.messages
        )

    # ---- inside -------------------------------------------------------------------------------

    def _fault(self) -> None:
        kind = self.rng.randrange(8)
        if kind <= 2:
            self._grant()
        elif kind == 3 and self.owners:  # it is killed
            self.owners.remove(self.rng.choice(self.owners))
        elif kind == 4 and self.late:
            self._arrive(self.late.pop(self.rng.randrange(len(self.late))))
        elif kind == 5 and self._power_cuts:
            self._cut_power()
        elif kind == 6 and self._is_idle_long:
            self.now_us += 8 * WEEK_US // 7
            for topic in self.topics.values():
                topic.rotate(self.now_us)
        elif kind == 7 and self._rules_change:
            self.version += 1

    def _cut_power(self) -> None:
        """Lose what was flushed of the group's log, and all who live."""
        kept = self.rng.randrange(len(self.log) + 1)
        del self.log[max(kept, len(self.log) - 3) :]
        self.owners.clear()
        self.late.clear()

    def _grant(self) -> None:
        """Give the unit to another one; who has it now does not know."""
        self.generation += 1
        pointer, data = self.log[-1] if self.log else (0, b"")
        rules = SimulatedRules(self.version, self.rng, self.retries)
        batch = self.rng.randrange(1, 9)
        grant = Grant(b"source", self.generation, pointer, data)
        work = self._unit("m", grant, lambda: rules, batch, process=b"%d" % self.generation).work()
        owner = Owner(self.generation, work, None)
        self._go_on(owner, None)
        if owner.effect is not None:
            self.owners.append(owner)

    def _step(self) -> None:
        # The newest one is the likeliest to be the one that lives.
        owner = self.owners[-1] if self.rng.random() < 0.7 else self.rng.choice(self.owners)
        self._carry_out(owner, may_fail=True)
        if owner.effect is None:
            self.owners.remove(owner)

    def _go_on(self, owner: Owner, answer: object) -> None:
        try:
            owner.effect = owner.work.send(answer)
        except StopIteration:
            owner.effect = None
        except RulesChanged as error:  # somebody puts the earlier file back
            owner.effect = None
            self.version = int(error.planned.split()[1])

    def _carry_out(self, owner: Owner, *, may_fail: bool) -> None:
        match owner.effect:
            case Read(first, last, limit):
                self._go_on(owner, self._read(first, last, limit))
            case Commit() as commit:
                is_lost = may_fail and self.rng.random() < 0.05
                if is_lost and self._ends_on_doubt:
                    self.late.append((owner.generation, commit))
                    owner.effect = None
                    return
                if is_lost:
                    self.late.append((owner.generation, commit))
                self._go_on(owner, self._commit(owner.generation, commit))
            case Describe(topics):
                self._go_on(
                    owner, {topic: Target((topic,), has_envelope=False) for topic in topics}
                )
            case Store(puts):
                self._store(owner, list(puts), may_fail=may_fail)
            case Wait() | Tell() | Counted():
                self._go_on(owner, None)

    def _store(self, owner: Owner, puts: list[Sent], *, may_fail: bool) -> None:
        """Have one of the puts arrive each time, some of them again, later."""
        if not owner.pending:
            owner.pending = puts
        put = owner.pending.pop(0)
        if may_fail and self.rng.random() < 0.1:
            self.late.append(put)
        self._arrive(put)
        if not owner.pending:
            self._go_on(owner, None)

    def _arrive(self, what: "tuple[int, Commit] | Sent") -> None:
        if isinstance(what, Sent):
            try:
                self.topics[what.topic].put(what, self.now_us)
            except SequenceGap as error:
                raise AssertionError from error
        else:
            self._commit(*what)

    def _commit(self, generation: int, commit: Commit) -> bool:
        if self._is_fenced and generation != self.generation:
            return False
        self.log.append((commit.pointer, commit.data))
        return True

    def _read(self, first: int, last: int | None, limit: int) -> Columns | None:
        end = min(self.count, first + limit, last if last is not None else self.count)
        if first >= end:
            return None
        pointers = list(range(first + 1, end + 1))
        return Columns(b"source", pointers, [b"%d" % each for each in pointers])


def unpinned(mapping: str, group_us: int, unit: bytes, life: int) -> bytes:
    """Return a producer's name that topics forget."""
    return b"own\0" + plans.producer_of(mapping, group_us, unit, life)[4:]


def _key(put: Sent) -> tuple[bytes, int, int]:
    producer, epoch, sequence = put.put_id
    return producer, epoch, sequence
