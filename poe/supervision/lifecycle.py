"""Starting and stopping one child on behalf of its supervisor, and telling the log of its life.

A start is complete when the child's `init` is; a stop when the child is gone. Stopping waits on a
monitor and not on the link, so that a child that unlinked itself cannot hang its supervisor.

Each start, crash, failure and give-up is one structured line to the logger `poe.supervision`. It
carries `report`, `supervisor`, `child_id`, `reason` and `count` as fields of its record, so that a
handler can filter without reading text. No field holds a message's payload (`reason_text`).

Source: OTP supervisor.erl, do_start_child/3, shutdown/1; supervisor reports and progress reports;
`spec/otp.md` §1.15 says which event gives which.
"""

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from poe.actors import KILL, NOPROC, SHUTDOWN, TIMED_OUT, ActorRef, LoopAddress
from poe.actors.gen_server import GenServer
from poe.actors.message import Cast
from poe.actors.reason import is_for_program, is_word, reason_text
from poe.errors import ChildStartFailed, IntensityExceeded, StartFailed
from poe.supervision.child_spec import BRUTAL_KILL, ChildSpec, Started
from poe.supervision.strategy import RestartHistory, is_stop_as_told

logger = logging.getLogger("poe.supervision")


@dataclass(frozen=True, slots=True)
class Retry:
    """A supervisor's cast to itself: try again to restart a child.

    It goes through the mailbox so that a request to stop the child or the supervisor gets in
    between two tries.
    """

    child: Hashable
    """Key of the child's id; for a dynamic child the ref of its dead actor."""


class Report(StrEnum):
    """The kinds of reports."""

    PROGRESS = "progress"
    """A child has started."""
    CHILD_TERMINATED = "child_terminated"
    """A child ended by itself, and should not have."""
    START_ERROR = "start_error"
    """A child did not start, at first or at a restart."""
    SHUTDOWN_ERROR = "shutdown_error"
    """A child that was told to stop ended in another way."""
    SHUTDOWN = "shutdown"
    """The supervisor gives up (OTP: reached_max_restart_intensity)."""


async def start(
    supervisor: GenServer,
    spec: ChildSpec,
    extra_args: tuple[Any, ...] = (),
    extra_kwargs: Mapping[str, Any] | None = None,
) -> ActorRef | Started | None:
    """Start a child, linked; None when its `init` returned IGNORE.

    Raises:
        ChildStartFailed: its `init` or its start function failed, or its name is taken; reported
            already.
    """
    kwargs = {**spec.kwargs, **extra_kwargs} if extra_kwargs else spec.kwargs
    if spec.start_timeout_s is not None:
        kwargs = {**kwargs, "start_timeout_s": spec.start_timeout_s}
    try:
        # A start function gets the actor itself, with what its class has besides.
        started = await spec.start(
            supervisor.ref.cell.instance,
            spec.actor,
            *spec.args,
            *extra_args,
            name=spec.name,
            **kwargs,
        )
    except BaseException as error:
        if type(error) is GeneratorExit or is_for_program(error):
            raise  # the supervisor itself is being ended
        reason = error.reason if isinstance(error, StartFailed) else error
        report(Report.START_ERROR, supervisor.ref, spec, reason_text(reason))
        raise ChildStartFailed(spec.id, reason) from error
    ref = ref_of(started)
    if ref is None:
        return None
    if not isinstance(ref, LoopAddress):
        report(Report.START_ERROR, supervisor.ref, spec, reason_text(started))
        raise ChildStartFailed(spec.id, started)
    report(Report.PROGRESS, supervisor.ref, spec)
    return started


def ref_of(started: ActorRef | Started | None) -> ActorRef | None:
    """Return the child that a start gave, without what its start function told besides."""
    return started.ref if type(started) is Started else started


async def stop(supervisor: GenServer, spec: ChildSpec, ref: ActorRef) -> str:
    """Stop a child and wait until it is gone; its exit is consumed.

    Return why it ended, where that is reported as an error; else nothing.
    """
    signal = stop_signal(spec)
    monitor = supervisor.monitor(ref)
    # Now, so that its exit does not come to wait in the mailbox.
    supervisor.unlink(ref)
    supervisor.exit(ref, signal)
    reason = await supervisor.wait_down(monitor, None if signal == KILL else spec.grace_s)
    if reason is TIMED_OUT:
        supervisor.exit(ref, KILL)
        reason = await supervisor.wait_down(monitor)
    # A child that was gone before it was told to go is no failure of the stop.
    if is_word(reason, NOPROC) or is_stop_as_told(spec, reason):
        return ""
    why = reason_text(reason)
    report(Report.SHUTDOWN_ERROR, supervisor.ref, spec, why)
    return why


def stop_signal(spec: ChildSpec) -> str:
    """Return the exit signal that asks a child to stop."""
    return KILL if spec.shutdown_s == BRUTAL_KILL else SHUTDOWN


def retry_later(supervisor: GenServer, child: Hashable) -> None:
    """Queue another try to restart a child behind all that waits already, however much it is."""
    supervisor.ref.cell.post(Cast(Retry(child)))


def has_ended(supervisor: GenServer, ref: ActorRef) -> bool:
    """Return whether a child has ended, as a message says; of one that lives, log the message.

    OTP believes whatever looks like an exit, and starts a second child beside the first one. Here
    an exit signal that a child sends its supervisor, or an `Exit` that somebody has made, is no
    end: one child spec has one actor.
    """
    if ref.cell.instance is None:
        return True
    logger.error("%s ignores an exit of %s, which lives", supervisor.ref, ref)
    return False


def report(
    kind: Report, supervisor: object, spec: ChildSpec, reason: str = "", count: int = 1
) -> None:
    """Log one report, of `count` children alike; progress at level DEBUG, the others at ERROR.

    `reason` is what `reason_text` makes of one.
    """
    level = logging.DEBUG if kind is Report.PROGRESS else logging.ERROR
    if not logger.isEnabledFor(level):
        return
    fields = {
        "report": str(kind),
        "supervisor": str(supervisor),
        "child_id": spec.id,
        "reason": reason,
        "count": count,
    }
    times = "" if count == 1 else f" ({count} times)"
    # An error of ours may name the child itself.
    child = repr(spec.key)
    told = reason.removeprefix(f"child {child}: ")
    told = f": {told}" if told else ""
    logger.log(level, "%s: %s of child %s%s%s", supervisor, kind, child, times, told, extra=fields)


def report_give_up(supervisor: object, spec: ChildSpec, history: RestartHistory) -> str:
    """Log that a supervisor ends because a restart exceeded its intensity; return why."""
    why = reason_text(IntensityExceeded(spec.id, len(history), history.period_s))
    report(Report.SHUTDOWN, supervisor, spec, why)
    return why
