"""Starting and stopping one child on behalf of its supervisor, with the reports that go with it.

A start is complete when the child's `init` is; a stop when the child is gone. Stopping waits on a
monitor and not on the link, so that a child that unlinked itself cannot hang its supervisor.

Source: OTP supervisor.erl, do_start_child/3, shutdown/1.
"""

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from poe.actors import KILL, NOPROC, SHUTDOWN, TIMED_OUT, ActorRef
from poe.actors.gen_server import GenServer
from poe.actors.message import Cast
from poe.actors.reason import is_for_program, is_word
from poe.errors import ChildStartFailed, StartFailed
from poe.supervision.child_spec import BRUTAL_KILL, ChildSpec, Started
from poe.supervision.reports import Report, report
from poe.supervision.strategy import is_stop_as_told

logger = logging.getLogger("poe.supervision")


@dataclass(frozen=True, slots=True)
class Retry:
    """A supervisor's cast to itself: try again to restart a child.

    It goes through the mailbox so that a request to stop the child or the supervisor gets in
    between two tries.
    """

    child: Hashable
    """Key of the child's id; for a dynamic child the ref of its dead actor."""


_STARTED = (ActorRef, Started)


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
        report(Report.START_ERROR, supervisor.ref, spec.id, reason)
        raise ChildStartFailed(spec.id, reason) from error
    if started is None:
        return None
    if not isinstance(started, _STARTED):
        report(Report.START_ERROR, supervisor.ref, spec.id, started)
        raise ChildStartFailed(spec.id, started)
    report(Report.PROGRESS, supervisor.ref, spec.id)
    return started


def ref_of(started: ActorRef | Started | None) -> ActorRef | None:
    """Return the child that a start gave, without what its start function told besides."""
    return started.ref if type(started) is Started else started


async def stop(supervisor: GenServer, spec: ChildSpec, ref: ActorRef) -> None:
    """Stop a child and wait until it is gone; its exit is consumed."""
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
    if not is_word(reason, NOPROC) and not is_stop_as_told(spec, reason):
        report(Report.SHUTDOWN_ERROR, supervisor.ref, spec.id, reason)


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
