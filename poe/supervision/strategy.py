"""What to do when a child ends: (end, history, clock) to a verdict, and a verdict to a plan.

This is the whole of OTP's restart logic without a single message: `verdict_on_exit` decides whether
the child is kept, removed, restarted, or whether the supervisor itself ends; `restart_plan` lists
which children are stopped and started, in which order. `ordered_children.py` and
`dynamic_children.py` carry it out. Nothing here waits, sends, or reads a clock.

Source: OTP stdlib 4.2, supervisor.erl, do_restart/3, restart/3, add_restart/1, do_auto_shutdown/2.
"""

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto

from poe.actors import KILLED, SHUTDOWN, is_orderly
from poe.actors.reason import is_word
from poe.supervision.child_spec import (
    BRUTAL_KILL,
    AutoShutdown,
    ChildSpec,
    Restart,
    Strategy,
)
from poe.supervision.child_table import ChildTable


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


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Stop `stop` one after the other, each completely; forget `forget`; then start `start`."""

    stop: tuple[Hashable, ...]
    forget: tuple[Hashable, ...]
    """Temporary siblings of a group: stopped, never started again."""
    start: tuple[Hashable, ...]


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


def is_significant_left(table: ChildTable, ended_key: Hashable) -> bool:
    """Return whether a significant child other than that of `ended_key` runs or is restarting."""
    return any(
        child.spec.significant and child.slot is not None and child.spec.key != ended_key
        for child in table
    )


def restart_plan(strategy: Strategy, table: ChildTable, key: Hashable) -> RestartPlan:
    """List what a restart of a child stops and starts; for a first try and for a retry alike.

    The group of a retry begins at the child that *failed to start*, which need not be the one that
    crashed: so rest_for_one does not start again what already runs, and one_for_all stops what the
    failed round had started. Members of the group that were not running are started too: a group
    restart brings the whole group back to its first state.
    """
    if strategy is Strategy.ONE_FOR_ONE:
        return RestartPlan(stop=(), forget=(), start=(key,))
    group = table.ids()
    if strategy is Strategy.REST_FOR_ONE:
        group = group[group.index(key) :]
    return RestartPlan(
        stop=tuple(i for i in reversed(group) if table[i].is_running and i != key),
        forget=tuple(i for i in group if table[i].spec.restart is Restart.TEMPORARY),
        start=tuple(i for i in group if table[i].spec.restart is not Restart.TEMPORARY),
    )
