"""The children of a simple_one_for_one supervisor: any number of instances of one template.

Instances have no ids and no order; each is known by its ref, so that a start or an exit costs the
same among 100 000 as among three. Verdicts come from `strategy.py`; a method that returns False
asks the supervisor to end with reason shutdown. An instance whose restart returned IGNORE is
dropped: OTP 25 keeps a phantom and crashes on it later (erlang/otp #8215).

Source: OTP stdlib 4.2, supervisor.erl, the clauses for `?is_simple`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext

from poe.actors import KILL, NOPROC, ActorRef, Error, GenServer
from poe.actors.gen_server import operations_of
from poe.actors.reason import is_word, reason_text
from poe.errors import ChildStartFailed
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
    stop_signal,
)
from poe.supervision.restart_delays import RestartDelays, RestartDue
from poe.supervision.strategy import (
    RESTARTING,
    ChildEnd,
    CrashRecord,
    RestartHistory,
    Verdict,
    is_crash_report_due,
    is_stop_as_told,
    verdict_on_exit,
    verdict_on_restart,
)
from poe.supervision.watcher import AllGone, Watcher, living

_NO_ARGUMENTS = StartDynamicChild()
_NOT_KEPT = "the arguments of a temporary child are not kept"
_NO_CRASHES = CrashRecord()


class DynamicChildren:
    """Owns the instances of one template and the restart history of their supervisor.

    Invariants: `restarting` is a subset of `instances`; a restarting instance keeps the ref of its
    dead actor as its handle; only instances that may be restarted when they start keep their
    arguments, and only those that crashed have a record of it.
    """

    strategy = Strategy.SIMPLE_ONE_FOR_ONE

    def __init__(self, supervisor: GenServer, flags: SupervisorFlags, template: ChildSpec) -> None:
        self._supervisor = operations_of(supervisor)
        self._flags = flags
        self._template = template
        self._history = RestartHistory(flags.intensity, flags.period_s)
        self._instances: dict[ActorRef, StartDynamicChild | None] = {}
        self._restarting: set[ActorRef] = set()
        self._crashed: dict[ActorRef, CrashRecord] = {}
        self.crashes = CrashRecord()
        """Of all children together."""
        self._delays = RestartDelays(self._supervisor)
        self._chronicle = chronicle_of(self._supervisor)

    async def start_all(self) -> None:
        """Start nothing: instances start on demand."""

    async def stop_all(self) -> None:
        """Stop all instances together, with one deadline for all."""
        self._delays.cancel_all()
        refs = [ref for ref in self._instances if ref not in self._restarting]
        if not refs:
            return
        supervisor, template = self._supervisor, self._template
        watcher = await supervisor.start_link(Watcher, refs)
        assert watcher is not None
        signal = stop_signal(template)
        for ref in refs:
            supervisor.exit(ref, signal)
        # After a kill there is nothing left to do but to wait.
        grace_s = None if signal == KILL else template.grace_s
        reasons = await supervisor.call(watcher, AllGone(grace_s), timeout_s=None)
        failures = Counter(
            reason_text(reason)
            for reason in reasons
            if not is_word(reason, NOPROC) and not is_stop_as_told(template, reason)
        )
        for why, count in failures.items():
            report(Report.SHUTDOWN_ERROR, supervisor.ref, template, why, count)

    async def on_exit(self, ref: ActorRef, reason: object) -> bool:
        """Handle the exit of a linked actor; an unknown one is ignored."""
        if ref not in self._instances or ref in self._restarting:
            return True
        if not has_ended(self._supervisor, ref):
            return True
        template = self._template
        if is_crash_report_due(template.restart, reason):
            self.crashes.last_reason = reason_text(reason)
            report(
                Report.CHILD_TERMINATED, self._supervisor.ref, template, self.crashes.last_reason
            )
            if self._chronicle is not None:
                self._chronicle.ended_alike(template.id, ref, self.crashes.last_reason)
        verdict = verdict_on_exit(
            ChildEnd(template, reason, significant_left=len(self._instances) > 1),
            self._flags.auto_shutdown,
            self._history,
            self._supervisor.monotonic_s(),
        )
        if verdict is Verdict.RESTART:
            crashes = self._crashed.setdefault(ref, CrashRecord())
            crashes.last_reason = self.crashes.last_reason
        elif verdict is Verdict.AUTO_SHUTDOWN and self._chronicle is not None:
            self._chronicle.shut_down(ref, template.id, reason_text(reason))
        return await self._carry_out(verdict, ref)

    async def on_retry(self, ref: Hashable) -> bool:
        """Try again to restart an instance, unless the retry was cancelled meanwhile."""
        if ref not in self._restarting:
            return True
        verdict = verdict_on_restart(self._history, self._supervisor.monotonic_s())
        return await self._carry_out(verdict, ref)

    async def on_due(self, due: RestartDue) -> None:
        """Restart an instance whose wait is over, unless it was cancelled meanwhile."""
        if self._delays.is_valid(due):
            await self._restart(due.child)

    async def _carry_out(self, verdict: Verdict, ref: ActorRef) -> bool:
        if verdict is Verdict.RESTART:
            backoff = self._template.backoff or self._flags.backoff
            if backoff is None:
                await self._restart(ref)
            else:
                delay_s = self._delays.begin(ref, backoff)
                if self._chronicle is not None:
                    self._chronicle.waits(ref, delay_s)
                self._restarting.add(ref)
            return True
        if verdict is Verdict.GIVE_UP:
            why = report_give_up(self._supervisor.ref, self._template, self._history)
            if self._chronicle is not None:
                used = self._history.intensity_used
                self._chronicle.gave_up(ref, self._template.id, why, used)
        self._forget(ref)
        return verdict not in (Verdict.GIVE_UP, Verdict.AUTO_SHUTDOWN)

    async def _restart(self, old_ref: ActorRef) -> None:
        self._restarting.discard(old_ref)
        request = self._instances.pop(old_ref)
        crashes = self._crashed.pop(old_ref)
        chronicle, template = self._chronicle, self._template
        try:
            with nullcontext() if chronicle is None else chronicle.starting(old_ref) as cause:
                ref = await self._start_again(request)
        except ChildStartFailed as failure:
            crashes.last_reason = self.crashes.last_reason = reason_text(failure.reason)
            if chronicle is not None:
                chronicle.start_failed(old_ref, template.id, crashes.last_reason, cause)
            self._instances[old_ref] = request
            self._crashed[old_ref] = crashes
            self._restarting.add(old_ref)
            retry_later(self._supervisor, old_ref)
            return
        if ref is None:
            self._delays.forget(old_ref)
            if chronicle is not None:
                chronicle.forget(old_ref)
        else:
            if chronicle is not None:
                chronicle.restarted(
                    old_ref,
                    template.id,
                    ref,
                    cause,
                    together=[template.id],
                    strategy=str(self.strategy),
                    intensity=self._history.intensity_used,
                    generation=crashes.restarts + 1,
                )
            crashes.restarts += 1
            self.crashes.restarts += 1
            self._instances[ref] = request
            self._crashed[ref] = crashes
            self._delays.rename(old_ref, ref)

    async def _start_again(self, request: StartDynamicChild | None) -> ActorRef | None:
        """Start an instance as before; as in OTP it fails if it was temporary when it started."""
        supervisor, template = self._supervisor, self._template
        if request is None:
            report(Report.START_ERROR, supervisor.ref, template, reason_text(_NOT_KEPT))
            raise ChildStartFailed(template.id, _NOT_KEPT)
        return ref_of(await start(supervisor, template, request.args, request.kwargs))

    def _forget(self, ref: ActorRef) -> None:
        self._restarting.discard(ref)
        self._crashed.pop(ref, None)
        self._delays.forget(ref)
        if self._chronicle is not None:
            self._chronicle.forget(ref)
        del self._instances[ref]

    # ---- requests -----------------------------------------------------------------------------

    def reconfigure(self, flags: SupervisorFlags, specs: Sequence[ChildSpec]) -> None:
        """Go on with other flags and another template; running instances stay as they are."""
        self._flags = flags
        self._history.set_limit(flags.intensity, flags.period_s)
        self._template = specs[0]

    async def start_child(
        self, request: StartChild | StartDynamicChild
    ) -> ActorRef | Started | Error | None:
        """Start one more instance."""
        if isinstance(request, StartChild):
            return refuse(request.spec.id, Refusal.SIMPLE_ONE_FOR_ONE)
        max_children = self._flags.max_children
        if max_children is not None and len(self._instances) >= max_children:
            return refuse(self._template.id, Refusal.MAX_CHILDREN)
        try:
            started = await start(self._supervisor, self._template, request.args, request.kwargs)
        except ChildStartFailed as failure:
            return Error(failure)
        ref = ref_of(started)
        if ref is not None:
            is_restartable = self._template.restart is not Restart.TEMPORARY
            # Instances without arguments share a request: theirs would be one object more for each.
            own = request if request.args or request.kwargs else _NO_ARGUMENTS
            self._instances[ref] = own if is_restartable else None
        return started

    async def terminate_child(self, child: Hashable) -> Error | None:
        """Stop and forget an instance; any actor that is gone counts as stopped, as in OTP."""
        if child in self._instances:
            if child not in self._restarting:
                await stop(self._supervisor, self._template, child)
            self._forget(child)
            return None
        if not isinstance(child, ActorRef):  # type: ignore[misc]  # Thespian is untyped
            return refuse(child, Refusal.SIMPLE_ONE_FOR_ONE)
        alive = await living(self._supervisor, [child])
        return refuse(child, Refusal.NOT_FOUND) if alive else None

    async def restart_child(self, child_id: Hashable) -> Error:
        """Refuse: an instance that is not running is forgotten."""
        return refuse(child_id, Refusal.SIMPLE_ONE_FOR_ONE)

    def delete_child(self, child_id: Hashable) -> Error:
        """Refuse: instances have no specs to delete."""
        return refuse(child_id, Refusal.SIMPLE_ONE_FOR_ONE)

    def which_children(self) -> list[ChildInfo]:
        """List all instances, in no order."""
        return list(self.infos())

    def infos(self) -> Iterator[ChildInfo]:
        """Yield what is known of each instance, in no order."""
        kind, restarting, crashed = self._template.kind, self._restarting, self._crashed
        for ref in self._instances:
            crashes = crashed.get(ref, _NO_CRASHES)
            slot = RESTARTING if ref in restarting else ref
            yield ChildInfo(None, slot, kind, crashes.restarts, crashes.last_reason)

    async def count_children(self) -> ChildCounts:
        """Count; an instance is active until its exit was handled."""
        count = len(self._instances)
        is_supervisor = self._template.kind is ChildKind.SUPERVISOR
        return ChildCounts(
            specs=1,
            active=count - len(self._restarting),
            supervisors=count if is_supervisor else 0,
            workers=0 if is_supervisor else count,
        )

    async def get_child_spec(self, child: Hashable) -> ChildSpec | Error:
        """Return the template, by its id, or by the ref of an instance that runs or has gone."""
        if key_of(child) == self._template.key or child in self._instances:
            return self._template
        is_ref = isinstance(child, ActorRef)  # type: ignore[misc]  # Thespian is untyped
        if not is_ref or await living(self._supervisor, [child]):
            return refuse(child, Refusal.NOT_FOUND)
        return self._template
