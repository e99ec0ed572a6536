"""One ownership of one unit, as effects: what to read, to write down and to put, in which order.

    read → decide → write the plan → put → read …

Nothing here knows sockets, threads or time. Whoever carries the effects out may end between any two
of them: what was written down is enough for the next owner, see `plan.py`.
"""

import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Protocol

from poe.errors import PlanTooLarge, RulesChanged
from poe.mapping.decision import Put
from poe.mapping.message import Columns
from poe.mapping.plan import (
    NUMBER_MAX,
    REASON_BYTES_MAX,
    Decided,
    Plan,
    Sent,
    Target,
    Trial,
    producer_of,
    puts_of,
    spread_of,
)

DEATHS_MAX: Final = 5
"""Processes that end while they work on one message, before it is given up."""


class Held(NamedTuple):
    """The first message of a batch that cannot be dealt with now."""

    place: int
    kind: Literal["retry", "stop"]
    rule: str
    reason: str
    after_s: float | None = None
    """None: as the mapping says."""

    attempts_max: int | None = None
    """After which it is given up; None: never."""


class Judged(NamedTuple):
    """What becomes of a batch; with `held` nothing is said of the messages from there on."""

    decided: Decided
    counts: Mapping[tuple[str, str], int]
    """Messages, by rule and what became of them."""

    held: Held | None = None


class Rules(Protocol):
    """What decides; the same for the same bytes, but for functions that are not pure."""

    hash: bytes

    def judge(self, batch: Columns) -> Judged:
        """Decide about a batch."""

    def give_up(self, batch: Columns, rule: str, reason: str, attempts: int) -> Judged:
        """Return what becomes of the one message of a batch when it is given up.

        Without a rule it was the rules themselves that have failed.
        """

    def pause_s(self, held: Held, attempts: int) -> float:
        """Return how long to wait before the next attempt; `attempts`: so many were made."""


# ---- effects ----


class Read(NamedTuple):
    """Answer messages behind `first`, up to `last`, or None; LEAVE where the unit is to go."""

    first: int
    last: int | None
    limit: int
    is_to_wait: bool = False
    """For some to come, for as long as the driver likes."""


class Commit(NamedTuple):
    """Answer whether the group has taken it: False, the unit is another's.

    Where that is not known the ownership is over, too: nothing else may be done with it.
    """

    pointer: int
    data: bytes


class Describe(NamedTuple):
    """Answer a `Target` for each topic; one that is not there is made."""

    topics: Mapping[bytes, bool]
    """And whether it needs envelopes, if it is made."""
    spread: Mapping[bytes, int] = {}
    """As in a plan: a target has so many partitions at least, wherever it is asked for."""


class Store(NamedTuple):
    """Put these, those of one topic in their order; answer when all are stored, however long.

    ANEW where there is a topic no more: it is to be described again, and all to be put so.
    `RepeatedPut` and `ProducerFenced` mean stored: nobody begins a batch before all of the one
    before is.
    """

    puts: Sequence[Sent]


class Wait(NamedTuple):
    """Answer after a while, or LEAVE."""

    seconds: float
    why: str
    kind: Literal["retry", "stop"]


class Tell(NamedTuple):
    """Tell people."""

    text: str


class Counted(NamedTuple):
    """A batch is done with."""

    counts: Mapping[tuple[str, str], int]
    messages: int
    pointer: int
    """Of its last message."""


Effect = Read | Commit | Describe | Store | Wait | Tell | Counted
LEAVE: Final = "leave"
"""Answered to `Read` and `Wait`: let the unit go."""
ANEW: Final = "anew"
"""Answered to `Store`: a topic was deleted since it was described, or has not got a partition."""


class Grant(NamedTuple):
    """A unit, as it is got."""

    unit: bytes
    life: int
    """Generation of the group: no other ownership of the unit has it."""

    pointer: int
    """Of the last message that is done."""

    data: bytes = b""
    """The last owner's plan; nothing where there was none, or somebody has set the position."""

    group_us: int = 0
    """When the group was made. One of the same name, at another node or made later, has lives of
    its own, and may put onto the same topics."""


class _Over(Exception):
    """The ownership ends here."""


Work = Generator[Effect, Any, None]


class Unit:
    """One ownership of one unit; `work` is its only life."""

    def __init__(  # noqa: PLR0913 - what it is, and how it works
        self,
        mapping: str,
        grant: Grant,
        rules: Callable[[], Rules],
        batch: int,
        *,
        process: bytes,
        earlier: Callable[[bytes], Rules | None] = lambda _: None,
        may_repeat: bool = False,
    ) -> None:
        """Begin with a grant.

        Args:
            mapping: its name.
            grant: what the group has told.
            rules: returns those of now, at the boundary of each plan.
            batch: messages at a time, at most.
            process: a few bytes that no other process has.
            earlier: returns those of before by their hash, where they are still known.
            may_repeat: go on where a plan was made with other rules; messages may come twice.
        """
        self._mapping = mapping
        self._grant = grant
        self._rules = rules
        self._batch = batch
        self._process = process
        self._earlier = earlier
        self._may_repeat = may_repeat
        self._position = grant.pointer
        self._number = 1
        self._attempts = 0
        self._trial: Trial | None = None
        self._rest: Columns | None = None
        self._committed: bytes | None = None

    def work(self) -> Work:
        """Yield effects, and take their answers, until the unit is to go or is another's.

        Raises:
            UnknownPlan, RulesChanged: the last owner's batch cannot be repeated.
        """
        try:
            yield from self._take_over()
            while True:
                yield from self._next_batch()
        except _Over:
            return

    # ---- what the last owner has left ----

    def _take_over(self) -> Work:
        if not self._grant.data:
            return
        plan = Plan.decode(self._grant.data)
        if not plan.is_empty:
            yield from self._repeat(plan)
        self._attempts = plan.attempts if plan.is_empty else 0
        if plan.trial is not None and self._position < plan.trial.until:
            trial = plan.trial
            if trial.by not in {b"", self._process}:
                deaths = trial.deaths + (trial.limit == 1)
                trial = trial._replace(limit=max(1, trial.limit // 2), deaths=deaths)
            self._trial = trial

    def _repeat(self, plan: Plan) -> Work:
        rules = self._rules()
        if plan.reason is None and plan.rules != rules.hash:
            earlier = self._earlier(plan.rules)
            if earlier is None and not self._may_repeat:
                raise RulesChanged(self._mapping, self._grant.unit, plan.rules, rules.hash)
            if earlier is None:
                yield Tell("a batch was planned with other rules; some messages may come twice")
                return
            rules = earlier
        columns = yield from self._read_all(plan)
        if columns is None:
            yield Tell("messages of a batch are gone from their topic; others may come twice")
            return
        judged = yield from self._judge_again(rules, plan, columns)
        yield from self._store(plan, judged)
        self._position = plan.last

    def _read_all(self, plan: Plan) -> Generator[Effect, Any, Columns | None]:
        """Return the messages of a plan; None where not all of them are there."""
        found: Columns | None = None
        while True:
            behind = plan.first if found is None else found.pointers[-1]
            count = plan.count - (0 if found is None else len(found.pointers))
            if not count or behind >= plan.last:
                break
            read = yield Read(behind, plan.last, count)
            if read == LEAVE:
                raise _Over
            if read is None:
                break
            found = read if found is None else _joined(found, read)
        is_whole = found is not None and found.pointers[-1] == plan.last
        return found if is_whole and len(found.pointers) == plan.count else None  # type: ignore[union-attr]

    def _judge_again(
        self, rules: Rules, plan: Plan, columns: Columns
    ) -> Generator[Effect, Any, Judged]:
        if plan.reason is not None:
            return rules.give_up(columns, plan.rule, plan.reason, plan.attempts)
        attempts = 0
        while (judged := rules.judge(columns)).held is not None:
            attempts += 1
            pause_s = rules.pause_s(judged.held, attempts)
            if (yield Wait(pause_s, judged.held.reason, judged.held.kind)) == LEAVE:
                raise _Over
        return judged

    # ---- batch by batch ----

    def _next_batch(self) -> Work:
        columns = yield from self._take()
        rules = self._rules()
        if self._committed is None:
            columns = yield from self._try(columns)
        if self._trial is not None and self._trial.deaths >= DEATHS_MAX:
            reason = f"{DEATHS_MAX} processes have ended while they worked on it"
            yield from self._give_up(rules, _head(columns, 1), "", reason)
            return
        yield from self._deal(rules, columns)

    def _deal(self, rules: Rules, columns: Columns) -> Work:
        """Deal with a batch, or with its begin."""
        judged, columns, failure = _judge(rules, columns)
        if failure is not None:
            yield from self._give_up(rules, columns, "", failure)
        elif judged.held is not None:
            yield from self._hold(rules, judged.held, columns)
        else:
            yield from self._carry_out(rules, judged, columns)

    def _take(self) -> Generator[Effect, Any, Columns]:
        """Return messages, when there are some; say how far it is, where there are none."""
        limit = self._batch if self._trial is None else self._trial.limit
        columns = self._rest
        is_to_wait = False
        while columns is None:
            columns = yield Read(self._position, None, limit, is_to_wait)
            if columns == LEAVE:
                yield from self._look_at_nothing()
                raise _Over
            if columns is None:
                yield from self._commit(self._idle())
                is_to_wait = True
        if len(columns.pointers) > limit:
            columns, self._rest = _head(columns, limit), columns
        else:
            self._rest = columns
        return columns

    def _try(self, columns: Columns) -> Generator[Effect, Any, Columns]:
        """Write down what is about to be looked at: who comes next knows of which it died."""
        if self._trial is None:
            self._trial = Trial(len(columns.pointers), columns.pointers[-1])
        self._trial = self._trial._replace(by=self._process)
        yield from self._commit(self._idle())
        return _head(columns, self._trial.limit)

    def _look_at_nothing(self) -> Work:
        """Say how far it is, and that no process is to blame a message if this one ends now."""
        if self._trial is not None:
            self._trial = self._trial._replace(by=b"")
        yield from self._commit(self._idle())

    def _hold(self, rules: Rules, held: Held, columns: Columns) -> Work:
        """Deal with what is in front of a message that cannot be dealt with now; or wait."""
        if held.place:
            yield from self._deal(rules, _head(columns, held.place))
            return
        if held.kind == "retry":
            self._attempts += 1
            if held.attempts_max is not None and self._attempts >= held.attempts_max:
                yield from self._give_up(rules, _head(columns, 1), held.rule, held.reason)
                return
        yield from self._look_at_nothing()
        pause_s = rules.pause_s(held, self._attempts)
        if (yield Wait(pause_s, held.reason, held.kind)) == LEAVE:
            raise _Over
        self._committed = None  # the next attempt is told before it is made, too

    def _give_up(self, rules: Rules, columns: Columns, rule: str, reason: str) -> Work:
        """Have one message dealt with as those that are given up: the plan says why."""
        reason = _short(reason)
        attempts = max(1, self._attempts)
        judged = rules.give_up(columns, rule, reason, attempts)
        plan = self._plan(rules, columns)
        plan = replace(plan, reason=reason, rule=rule[:100], attempts=attempts)
        yield from self._commit_and_store(plan, judged, columns)

    def _carry_out(self, rules: Rules, judged: Judged, columns: Columns) -> Work:
        """Have a batch put; a smaller one where that is needed."""
        if self._trial is not None:  # who waits for a target has not died of a message
            yield from self._look_at_nothing()
        targets = yield Describe(_wanted(judged.decided))
        unfit = _first_unfit(judged.decided, targets)
        if unfit is not None:
            place, topic = unfit
            if place == 0:
                name = topic.decode(errors="replace")
                reason = f"it would be empty on topic {name}, whose messages have no envelopes"
                yield from self._give_up(rules, _head(columns, 1), "", reason)
                return
            yield from self._deal(rules, _head(columns, place))
            return
        plan = replace(self._plan(rules, columns), spread=spread_of(targets))
        try:
            plan.encode()
        except PlanTooLarge as error:
            if len(columns.pointers) == 1:
                yield from self._give_up(rules, columns, "", str(error))
                return
            yield from self._deal(rules, _head(columns, len(columns.pointers) // 2))
            return
        yield from self._commit_and_store(plan, judged, columns)

    def _commit_and_store(self, plan: Plan, judged: Judged, columns: Columns) -> Work:
        yield from self._commit(plan)
        yield from self._store(plan, judged)
        assert self._rest is not None
        count = len(columns.pointers)
        self._rest = None if count == len(self._rest.pointers) else _tail(self._rest, count)
        self._position = plan.last
        self._number += 1
        self._attempts = 0
        self._trial = plan.trial

    def _store(self, plan: Plan, judged: Judged) -> Work:
        wanted = _wanted(judged.decided)
        producer = producer_of(self._mapping, self._grant.group_us, self._grant.unit, plan.life)
        while wanted:
            targets = yield Describe(wanted, plan.spread)
            if (yield Store(puts_of(plan, producer, judged.decided, targets))) != ANEW:
                break
        yield Counted(judged.counts, plan.count, plan.last)

    # ---- plans ----

    def _plan(self, rules: Rules, columns: Columns) -> Plan:
        last = columns.pointers[-1]
        trial = self._trial
        if trial is not None:
            trial = trial._replace(by=self._process, deaths=0) if last < trial.until else None
        return replace(
            self._idle(), last=last, count=len(columns.pointers), rules=rules.hash, trial=trial
        )

    def _idle(self) -> Plan:
        """Return what to write where there is no batch."""
        return Plan(
            life=self._grant.life,
            number=self._number,
            first=self._position,
            last=self._position,
            attempts=self._attempts,
            trial=self._trial,
        )

    def _commit(self, plan: Plan) -> Work:
        """Write a plan, unless it is written; end where the unit is another's."""
        if plan.number > NUMBER_MAX:  # the next ownership has numbers of its own
            raise _Over
        data = plan.encode()
        if data != self._committed:
            if not (yield Commit(plan.first, data)):
                raise _Over
            self._committed = data


def _judge(rules: Rules, columns: Columns) -> tuple[Judged, Columns, str | None]:
    """Return what becomes of a batch, or of its begin, where all of it makes the rules fail.

    The last one is the traceback, where one message alone does.
    """
    while True:
        try:
            return rules.judge(columns), columns, None
        except Exception:  # noqa: BLE001 - whatever it is, it is of one of these messages
            if len(columns.pointers) == 1:
                return Judged(Decided(columns, {}), {}), columns, traceback.format_exc()
            columns = _head(columns, len(columns.pointers) // 2)


def _wanted(decided: Decided) -> dict[bytes, bool]:
    """Return the topics that are needed, and whether they have to keep more than values."""
    return {
        topic: put.keys is not None or put.headers is not None
        for topic, put in decided.puts.items()
    }


def _first_unfit(decided: Decided, targets: Mapping[bytes, Target]) -> tuple[int, bytes] | None:
    """Return the first message that a topic cannot have: one without bytes, without an envelope."""
    found = [
        (_place_of_nothing(put), topic)
        for topic, put in decided.puts.items()
        if not targets[topic].has_envelope and not all(put.values)
    ]
    return min(found, default=None)


def _place_of_nothing(put: Put) -> int:
    return next(place for place, value in zip(put.places, put.values, strict=True) if not value)


def _short(reason: str) -> str:
    """Return the end of a reason, where a traceback says what it was."""
    packed = reason.strip().encode("utf-8", "backslashreplace")
    return packed[-REASON_BYTES_MAX:].decode("utf-8", "ignore")


def _head(columns: Columns, count: int) -> Columns:
    return _slice(columns, slice(count))


def _tail(columns: Columns, count: int) -> Columns:
    return _slice(columns, slice(count, None))


def _slice(columns: Columns, part: slice) -> Columns:
    topic, *others = columns
    return Columns(topic, *(None if each is None else each[part] for each in others))  # type: ignore[arg-type]


def _joined(first: Columns, second: Columns) -> Columns:
    counts = len(first.pointers), len(second.pointers)
    return Columns(
        first.topic,
        *(  # type: ignore[arg-type]  # as they were
            None
            if one is None and other is None
            else [*_whole(one, counts[0]), *_whole(other, counts[1])]
            for one, other in zip(first[1:], second[1:], strict=True)
        ),
    )


def _whole(column: Sequence[Any] | None, count: int) -> Sequence[Any]:
    return [None] * count if column is None else column
