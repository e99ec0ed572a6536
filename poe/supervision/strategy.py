"""What to do when a child ends: children, end, history and clock in; a verdict and a plan out.

This is the whole of OTP's restart logic without a single message: `verdict_on_exit` decides whether
the child is kept, removed, restarted, or whether the supervisor itself ends; the table of children
that have an order lists which are stopped and started, one after the other. `ordered_children.py`
and `dynamic_children.py` carry it out. Nothing here waits, sends, reads a clock or asks a ref.

Source: OTP stdlib 4.2, supervisor.erl, do_restart/3, restart/3, add_restart/1, do_auto_shutdown/2.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from poe.actors import KILLED, SHUTDOWN, is_orderly
from poe.actors.reason import is_word
from poe.supervision.child_spec import (
    BRUTAL_KILL,
    AutoShutdown,
    ChildSpec,
    Restart,
    Strategy,
)


class SlotState(Enum):
    """What a slot holds that has neither an actor nor nothing."""

    RESTARTING = "restarting"


RESTARTING: Final = SlotState.RESTARTING
"""In place of a ref: a restart of the child failed, and another try is queued."""

Ref = Hashable
"""The address of a child; opaque to everything that decides."""

Slot = Ref | SlotState | None
"""How a child is: a ref (running), None (specified, not running) or `RESTARTING`."""


@dataclass(slots=True)
class CrashRecord:
    """What a supervisor remembers of the crashes of one child, or of all its children together."""

    restarts: int = 0
    """How often it was started again, alone or with its group."""
    last_reason: str = ""
    """Why it last ended or did not start, as in a report; empty before the first time."""


@dataclass(slots=True)
class Child:
    """One row: what the user asked for, and how it is now."""

    spec: ChildSpec
    slot: Slot = None
    crashes: CrashRecord = field(default_factory=CrashRecord)

    @property
    def is_running(self) -> bool:
        """Return whether the slot holds a ref; its actor may have ended a moment ago."""
        return self.slot is not None and self.slot is not RESTARTING


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Stop `stop` one after the other, each completely; forget `forget`; then start `start`."""

    stop: tuple[Hashable, ...]
    forget: tuple[Hashable, ...]
    """Temporary siblings of a group: stopped, never started again."""
    start: tuple[Hashable, ...]


class ChildTable:
    """The children of one supervisor by the key of their id, in start order; plain data.

    It finds a child by key and by ref in constant time, so that a supervisor of many children
    handles an exit as fast as one of three. It is changed only through its methods.

    Invariant: `_by_ref` holds the refs in the slots. Where start functions have given one actor to
    several children, as OTP lets them, it leads to the last of these.
    """

    def __init__(self, specs: Iterable[ChildSpec] = ()) -> None:
        self._by_key: dict[Hashable, Child] = {spec.key: Child(spec) for spec in specs}
        self._by_ref: dict[Ref, Hashable] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._by_key.values())

    def __getitem__(self, key: Hashable) -> Child:
        return self._by_key[key]

    def get(self, key: Hashable) -> Child | None:
        """Return the child with this key, or None."""
        return self._by_key.get(key)

    def find_ref(self, ref: Ref) -> Child | None:
        """Return the running child with this ref, or None."""
        return self._by_key[self._by_ref[ref]] if ref in self._by_ref else None

    def ids(self) -> list[Hashable]:
        """Return the keys of all ids in start order."""
        return list(self._by_key)

    def add(self, spec: ChildSpec, slot: Slot) -> None:
        """Append a child as the last in start order; its id must be free."""
        assert spec.key not in self._by_key
        self._by_key[spec.key] = Child(spec)
        self.set_slot(spec.key, slot)

    def set_slot(self, key: Hashable, slot: Slot) -> None:
        """Record how a child is from now on."""
        child = self._by_key[key]
        if child.is_running and self._by_ref.get(child.slot) == key:
            del self._by_ref[child.slot]
        child.slot = slot
        if child.is_running:
            self._by_ref[slot] = key

    def merge(self, specs: Iterable[ChildSpec]) -> None:
        """Take new specs, in their order; children they do not name stay, behind them.

        A child that is named keeps its slot; a new one is not running.
        """
        old = self._by_key
        new = {
            spec.key: replace(old[spec.key], spec=spec) if spec.key in old else Child(spec)
            for spec in specs
        }
        self._by_key = new | {key: child for key, child in old.items() if key not in new}

    def remove(self, key: Hashable) -> None:
        """Forget a child and its spec."""
        self.set_slot(key, None)
        del self._by_key[key]

    def has_other_significant(self, key: Hashable) -> bool:
        """Return whether a significant child other than this one runs or is restarting."""
        return any(
            child.spec.significant and child.slot is not None and child.spec.key != key
            for child in self
        )

    def restart_plan(self, strategy: Strategy, key: Hashable) -> RestartPlan:
        """List what a restart of a child stops and starts; for a first try and for a retry alike.

        The group of a retry begins at the child that *failed to start*, which need not be the one
        that crashed: so rest_for_one does not start again what already runs, and one_for_all stops
        what the failed round had started. Members of the group that were not running are started
        too: a group restart brings the whole group back to its first state.
        """
        if strategy is Strategy.ONE_FOR_ONE:
            return RestartPlan(stop=(), forget=(), start=(key,))
        group = self.ids()
        if strategy is Strategy.REST_FOR_ONE:
            group = group[group.index(key) :]
        return RestartPlan(
            stop=tuple(i for i in reversed(group) if self[i].is_running and i != key),
            forget=tuple(i for i in group if self[i].spec.restart is Restart.TEMPORARY),
            start=tuple(i for i in group if self[i].spec.restart is not Restart.TEMPORARY),
        )


class Verdict(Enum):
    """What follows from the end of one child."""

    KEEP = auto()
    """The spec stays, without an actor."""
    REMOVE = auto()
    """The spec goes with the actor."""
    RESTART = auto()
    """Carry out the restart plan."""
    GIVE_UP = auto()
    """More restarts than the intensity allows: the supervisor ends."""
    AUTO_SHUTDOWN = auto()
    """A significant child has ended: so does the supervisor."""


class RestartHistory:
    """When the restarts of one supervisor were tried; one budget for all its children.

    Times are whole seconds and the edge of the window counts, exactly as in OTP: two restarts at
    most `period_s` apart always count together, `period_s + 1` apart never, in between it depends
    on the phase of the second. Holds at most `intensity + 1` times.
    """

    def __init__(self, intensity: int, period_s: int) -> None:
        self.set_limit(intensity, period_s)
        self._times_s: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._times_s)

    @property
    def intensity_used(self) -> list[int]:
        """Return restarts that count at present, how many are allowed, and in how many seconds."""
        return [len(self._times_s), self.intensity, self.period_s]

    def set_limit(self, intensity: int, period_s: int) -> None:
        """Judge restarts by these figures from now on; those recorded still count."""
        self.intensity = intensity
        self.period_s = period_s

    def allows_restart(self, now_s: float) -> bool:
        """Record one restart at `now_s` of a monotonic clock; False when that is one too many.

        A group restart is one restart whatever its size, and each failed try is one more.
        """
        now = math.floor(now_s)
        while self._times_s and self._times_s[0] < now - self.period_s:
            self._times_s.popleft()
        if self._times_s and now < self._times_s[-1]:
            # A simulated clock was set back. In OTP a time that is too old hides all that were
            # recorded before it: they leave the window with it.
            self._times_s = deque(min(time_s, now) for time_s in self._times_s)
        self._times_s.append(now)
        return len(self._times_s) <= self.intensity


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """A child that ended by itself."""

    spec: ChildSpec
    reason: object
    significant_left: bool
    """Another significant child runs or is restarting."""


def is_restarted(restart: Restart, reason: object) -> bool:
    """Return whether a child that ended by itself with `reason` is started again."""
    if restart is Restart.TRANSIENT:
        return not is_orderly(reason)
    return restart is Restart.PERMANENT


def is_crash_report_due(restart: Restart, reason: object) -> bool:
    """Return whether an end is reported: every crash, and whatever ends a permanent child."""
    return restart is Restart.PERMANENT or not is_orderly(reason)


def is_stop_as_told(spec: ChildSpec, reason: object) -> bool:
    """Return whether a child that was told to stop ended as it should, so that no report is due.

    Obedience ends as `"shutdown"`, or `"killed"` after a brutal kill. Other orderly ends are in
    order too, unless the child is permanent.

    Source: supervisor.erl, shutdown/1.
    """
    told = KILLED if spec.shutdown_s == BRUTAL_KILL else SHUTDOWN
    return is_word(reason, told) or (spec.restart is not Restart.PERMANENT and is_orderly(reason))


def verdict_on_exit(
    end: ChildEnd, auto_shutdown: AutoShutdown, history: RestartHistory, now_s: float
) -> Verdict:
    """Decide what follows when a child ends by itself; a restart is recorded in `history`."""
    spec = end.spec
    if is_restarted(spec.restart, end.reason):
        return verdict_on_restart(history, now_s)
    if spec.significant and (
        auto_shutdown is AutoShutdown.ANY_SIGNIFICANT
        or (auto_shutdown is AutoShutdown.ALL_SIGNIFICANT and not end.significant_left)
    ):
        return Verdict.AUTO_SHUTDOWN
    return Verdict.REMOVE if spec.restart is Restart.TEMPORARY else Verdict.KEEP


def verdict_on_restart(history: RestartHistory, now_s: float) -> Verdict:
    """Decide whether one more try to restart is within the budget, and record it."""
    return Verdict.RESTART if history.allows_restart(now_s) else Verdict.GIVE_UP
