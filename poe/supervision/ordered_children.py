"""The children of a supervisor with a start order: one_for_one, rest_for_one and one_for_all.

Carries out what `strategy.py` decides: exits and requests in, starts and stops out. Everything runs
inside the supervisor's own callbacks, one after the other; a method that returns False asks the
supervisor to end with reason shutdown.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from poe.actors import ActorRef, Error, GenServer
from poe.actors.gen_server import operations_of
from poe.actors.reason import reason_text
from poe.errors import ChildStartFailed, InvalidChildSpec
from poe.supervision.api import (
    ChildCounts,
    ChildInfo,
    Refusal,
    StartChild,
    StartDynamicChild,
    refuse,
)
from poe.supervision.child_key import key_of
from poe.supervision.child_spec import (
    ChildKind,
    ChildSpec,
    Restart,
    Started,
    Strategy,
    SupervisorFlags,
    check_combination,
)
from poe.supervision.chronicle import chronicle_of
from poe.supervision.lifecycle import (
    Report,
    has_ended,
    ref_of,
    report,
    report_give_up,
    retry_later,
    start,
    stop,
)
from poe.supervision.restart_delays import RestartDelays, RestartDue
from poe.supervision.strategy import (
    RESTARTING,
    Child,
    ChildEnd,
    ChildTable,
    CrashRecord,
    RestartHistory,
    RestartPlan,
    Verdict,
    is_crash_report_due,
    verdict_on_exit,
    verdict_on_restart,
)
from poe.supervision.watcher import living


class OrderedChildren:
    """Owns the table of children of one supervisor and its restart history.

    A queued `Retry` is valid only while its child's slot is RESTARTING: whatever changes the slot
    cancels the retry.
    """

    def __init__(
        self, supervisor: GenServer, flags: SupervisorFlags, specs: Sequence[ChildSpec]
    ) -> None:
        self._supervisor = operations_of(supervisor)
        self._flags = flags
        self._table = ChildTable(specs)
        self._history = RestartHistory(flags.intensity, flags.period_s)
        self._delays = RestartDelays(self._supervisor)
        self._chronicle = chronicle_of(self._supervisor)
        self.crashes = CrashRecord()
        """Of all children together."""

    @property
    def strategy(self) -> Strategy:
        """Return the strategy at present."""
        return self._flags.strategy

    async def start_all(self) -> ChildStartFailed | None:
        """Start left to right; after a failure stop the started ones again and return it."""
        chronicle = self._chronicle
        with nullcontext() if chronicle is None else chronicle.starting() as cause:
            failure = await self._start_group(self._table.ids())
        if failure is None:
            if chronicle is not None and cause is not None:
                for child in self._table:
                    if child.is_running:
                        chronicle.restarted(child.spec.key, child.spec.id, child.slot, cause)
            return None
        if chronicle is not None:
            key, error = failure
            why = reason_text(error.reason)
            chronicle.start_failed(key, self._table[key].spec.id, why, cause, is_init=True)
        await self.stop_all()
        return failure[1]

    async def stop_all(self) -> None:
        """Stop the children one after the other, in reverse start order."""
        self._delays.cancel_all()
        for child in reversed(list(self._table)):
            if child.is_running:
                await self._stop(child)

    async def _stop(self, child: Child) -> None:
        ref, spec = child.slot, child.spec
        why = await stop(self._supervisor, spec, ref)
        if self._chronicle is not None:
            self._chronicle.stopped(spec.key, spec.id, ref, why)

    async def on_exit(self, ref: ActorRef, reason: object) -> bool:
        """Handle the exit of a linked actor; an unknown one is ignored."""
        child = self._table.find_ref(ref)
        if child is None or not has_ended(self._supervisor, ref):
            return True
        spec = child.spec
        if is_crash_report_due(spec.restart, reason):
            why = reason_text(reason)
            report(Report.CHILD_TERMINATED, self._supervisor.ref, spec, why)
            child.crashes.last_reason = self.crashes.last_reason = why
            if self._chronicle is not None:
                self._chronicle.ended(spec.key, spec.id, ref, why)
        self._table.set_slot(spec.key, None)
        verdict = verdict_on_exit(
            ChildEnd(
                spec,
                reason,
                # A walk through all children, for those few that the answer matters to.
                significant_left=spec.significant and self._table.has_other_significant(spec.key),
            ),
            self._flags.auto_shutdown,
            self._history,
            self._supervisor.monotonic_s(),
        )
        if verdict is Verdict.REMOVE:
            self._table.remove(spec.key)
        if self._chronicle is not None:
            if verdict is Verdict.AUTO_SHUTDOWN:
                self._chronicle.shut_down(spec.key, spec.id, reason_text(reason))
            elif verdict is not Verdict.RESTART and verdict is not Verdict.GIVE_UP:
                self._chronicle.forget(spec.key)
        return await self._carry_out(verdict, spec)

    async def on_retry(self, key: Hashable) -> bool:
        """Try again to restart a child, unless the retry was cancelled meanwhile."""
        child = self._table.get(key)
        if child is None or child.slot is not RESTARTING:
            return True
        verdict = verdict_on_restart(self._history, self._supervisor.monotonic_s())
        return await self._carry_out(verdict, child.spec)

    async def on_due(self, due: RestartDue) -> None:
        """Restart a child whose wait is over, unless it was cancelled meanwhile."""
        child = self._table.get(due.child)
        if child is not None and child.slot is RESTARTING and self._delays.is_valid(due):
            await self._start_planned(await self._stop_group(due.child), due.child)

    async def _carry_out(self, verdict: Verdict, spec: ChildSpec) -> bool:
        key = spec.key
        if verdict is Verdict.RESTART:
            # The group stops at once: nobody works on with a sibling that is not there.
            plan = await self._stop_group(key)
            child = self._table.get(key)
            # It is gone where it was made temporary while it waited for its restart.
            backoff = None if child is None else child.spec.backoff or self._flags.backoff
            if backoff is None:
                await self._start_planned(plan, key)
            else:
                delay_s = self._delays.begin(key, backoff)
                if self._chronicle is not None:
                    self._chronicle.waits(key, delay_s)
                self._table.set_slot(key, RESTARTING)
        elif verdict is Verdict.GIVE_UP:
            why = report_give_up(self._supervisor.ref, spec, self._history)
            if self._chronicle is not None:
                self._chronicle.gave_up(key, spec.id, why, self._history.intensity_used)
        return verdict not in (Verdict.GIVE_UP, Verdict.AUTO_SHUTDOWN)

    async def _stop_group(self, key: Hashable) -> RestartPlan:
        """Stop what is restarted together with a child, and forget who is not started again."""
        plan = self._table.restart_plan(self._flags.strategy, key)
        for stop_id in plan.stop:
            child = self._table[stop_id]
            await self._stop(child)
            self._table.set_slot(stop_id, None)
        for forget_id in plan.forget:
            self._table.remove(forget_id)
            self._forget_away(forget_id)
        for start_id in plan.start:
            # A sibling that waits for its own retry starts with the group; its retry is void.
            self._table.set_slot(start_id, None)
        return plan

    async def _start_planned(self, plan: RestartPlan, key: Hashable) -> None:
        """Start a group again, of which the child of `key` had ended, or failed to start."""
        chronicle = self._chronicle
        with nullcontext() if chronicle is None else chronicle.starting(key) as cause:
            failure = await self._start_group(plan.start)
        started: list[Child] = []
        for start_id in plan.start:
            child = self._table.get(start_id)
            if child is not None and child.is_running:
                child.crashes.restarts += 1
                self.crashes.restarts += 1
                started.append(child)
        if chronicle is not None:
            ids = [child.spec.id for child in started]
            for child in started:
                chronicle.restarted(
                    child.spec.key,
                    child.spec.id,
                    child.slot,
                    cause,
                    together=ids,
                    strategy=str(self.strategy),
                    intensity=self._history.intensity_used,
                    generation=child.crashes.restarts,
                )
        if failure is not None:
            key, error = failure
            why = reason_text(error.reason)
            if chronicle is not None:
                chronicle.start_failed(key, self._table[key].spec.id, why, cause)
            self._table[key].crashes.last_reason = self.crashes.last_reason = why
            self._table.set_slot(key, RESTARTING)
            retry_later(self._supervisor, key)

    async def _start_group(
        self, keys: Sequence[Hashable]
    ) -> tuple[Hashable, ChildStartFailed] | None:
        """Start children up to the first one that fails; return its key and why."""
        for key in keys:
            spec = self._table[key].spec
            try:
                ref = ref_of(await start(self._supervisor, spec))
            except ChildStartFailed as failure:
                return key, failure
            if ref is None and spec.restart is Restart.TEMPORARY:
                self._table.remove(key)
            else:
                self._table.set_slot(key, ref)
        return None

    def reconfigure(self, flags: SupervisorFlags, specs: Sequence[ChildSpec]) -> None:
        """Go on with other flags and specs; no child is started or stopped by it.

        Source: supervisor.erl, update_childspec/2.
        """
        self._flags = flags
        self._history.set_limit(flags.intensity, flags.period_s)
        self._table.merge(specs)

    # ---- requests -----------------------------------------------------------------------------

    async def start_child(
        self, request: StartChild | StartDynamicChild
    ) -> ActorRef | Started | Error | None:
        """Add a child as the last in start order, and start it."""
        if isinstance(request, StartDynamicChild):
            return refuse(None, Refusal.NOT_SIMPLE_ONE_FOR_ONE)
        spec = request.spec
        try:
            check_combination(spec, self._flags.auto_shutdown)
        except InvalidChildSpec as error:
            return Error(error)
        present = self._table.get(spec.key)
        if present is not None:
            if present.is_running:
                return refuse(spec.id, Refusal.ALREADY_STARTED, present.slot)
            return refuse(spec.id, Refusal.ALREADY_PRESENT)
        try:
            started = await start(self._supervisor, spec)
        except ChildStartFailed as failure:
            return Error(failure)
        if spec.restart is Restart.TEMPORARY:
            # It is never started again, so its arguments would only hold memory.
            spec = replace(spec, args=(), kwargs={})
        if started is not None or spec.restart is not Restart.TEMPORARY:
            self._table.add(spec, ref_of(started))
        return started

    async def terminate_child(self, child_id: Hashable) -> Error | None:
        """Stop a child; a temporary one is forgotten, a pending restart is cancelled."""
        child = self._table.get(key_of(child_id))
        if child is None:
            return refuse(child_id, Refusal.NOT_FOUND)
        if child.is_running:
            await self._stop(child)
        self._forget_away(child.spec.key)
        if child.spec.restart is Restart.TEMPORARY:
            self._table.remove(child.spec.key)
        else:
            self._table.set_slot(child.spec.key, None)
        return None

    async def restart_child(self, child_id: Hashable) -> ActorRef | Started | Error | None:
        """Start a child that has a spec but no actor; it keeps its place."""
        idle = self._find_idle(child_id)
        if isinstance(idle, Error):
            return idle
        try:
            started = await start(self._supervisor, idle.spec)
        except ChildStartFailed as failure:
            return Error(failure)
        self._table.set_slot(idle.spec.key, ref_of(started))
        self._forget_away(idle.spec.key)
        return started

    def delete_child(self, child_id: Hashable) -> Error | None:
        """Forget a child that has a spec but no actor."""
        idle = self._find_idle(child_id)
        if isinstance(idle, Error):
            return idle
        self._table.remove(idle.spec.key)
        self._forget_away(idle.spec.key)
        return None

    def _forget_away(self, key: Hashable) -> None:
        """Note that a child that is away is not started again by itself."""
        self._delays.forget(key)
        if self._chronicle is not None:
            self._chronicle.forget(key)

    def _find_idle(self, child_id: Hashable) -> Child | Error:
        child = self._table.get(key_of(child_id))
        if child is None:
            return refuse(child_id, Refusal.NOT_FOUND)
        if child.slot is RESTARTING:
            return refuse(child_id, Refusal.RESTARTING)
        if child.is_running:
            return refuse(child_id, Refusal.RUNNING)
        return child

    def which_children(self) -> list[ChildInfo]:
        """List the children in reverse start order."""
        return list(self.infos())[::-1]

    def infos(self) -> Iterator[ChildInfo]:
        """Yield what is known of each child, in start order."""
        for child in self._table:
            spec, crashes = child.spec, child.crashes
            yield ChildInfo(spec.id, child.slot, spec.kind, crashes.restarts, crashes.last_reason)

    async def count_children(self) -> ChildCounts:
        """Count; a child that has just ended is not active, even if its exit still waits."""
        running = [child.slot for child in self._table if child.is_running]
        active = await living(self._supervisor, running)
        supervisors = sum(child.spec.kind is ChildKind.SUPERVISOR for child in self._table)
        count = len(self._table)
        return ChildCounts(count, len(active), supervisors, count - supervisors)

    async def get_child_spec(self, child_id: Hashable) -> ChildSpec | Error:
        """Return the spec of a child."""
        child = self._table.get(key_of(child_id))
        return refuse(child_id, Refusal.NOT_FOUND) if child is None else child.spec
