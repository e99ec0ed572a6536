"""How a GenServer ends: by an exception, by a wish to stop, or at once.

Its cell goes through `crash`, `stop_with` and `end_now`, in this order, from where it stands.

Source: OTP `gen_server`, terminate/10; `spec/otp.md` §2.5.
"""

import logging
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from poe.actors.call import Call
from poe.actors.message import NO_REPLY, Start, Stop, has_lost_cell, lost_cell
from poe.actors.reason import ActorExit, Reason, is_for_program, is_orderly, reason_of
from poe.actors.reports import report_crash
from poe.errors import ActorDead, StartFailed
from poe.errors.tracebacks import drop_tracebacks

if TYPE_CHECKING:
    from poe.actors.server_cell import ServerCell

logger = logging.getLogger("poe.actors")

_OWN_MODULES = frozenset({"poe.actors.server_cell", __name__})


def crash(cell: "ServerCell", error: BaseException) -> None:
    """End because a callback raised; a failing `init` or `terminate` ends at once."""
    if type(error) is RuntimeError and error.args == ("no running event loop",):
        error.add_note("an actor is no asyncio task; use `await self.sleep(seconds)` here")
    _skip_own_frames(error)
    if has_lost_cell(cell):
        error = lost_cell(cell, error)
    reason = reason_of(error)
    if cell.stop is None and type(cell.handling) is not Start:
        stop_with(cell, Stop(reason), error)
    else:
        if cell.stop is not None and not is_orderly(reason):
            report_crash(cell, reason, error)
        end_now(cell, reason)
    drop_tracebacks(error)


def _skip_own_frames(error: BaseException) -> None:
    """Let a traceback begin with the callback: what runs it says nothing, and holds the call."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals["__name__"] in _OWN_MODULES:
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def stop_with(cell: "ServerCell", stop: Stop, error: BaseException | None = None) -> None:
    """Run `terminate`, then send the reply that goes with the stop, then end."""
    if type(cell.handling) is Start:
        end_now(cell, stop.reason)
        return
    if not is_orderly(stop.reason):
        report_crash(cell, stop.reason, None if type(error) is ActorExit else error)
    cell.stop = stop
    cell.blocked_by = None  # it may have been suspended
    try:
        result = cell.instance.terminate(stop.reason)
    except BaseException as failure:
        if is_for_program(failure):
            raise
        crash(cell, failure)
        return
    if type(result) is CoroutineType:
        cell.blocked_by = result
        cell.step(result, None)
    else:
        end_now(cell, stop.reason)


def end_now(cell: "ServerCell", reason: Reason) -> None:
    """Leave the system; whoever still waits for an answer learns the reason."""
    if cell.instance is None:
        return
    blocked_by, cell.blocked_by = cell.blocked_by, None
    handling, cell.handling = cell.handling, None
    cell.awaited = None
    if type(blocked_by) is CoroutineType:
        close(blocked_by)
    if type(handling) is Start:
        cell.end_unstarted(reason)
        handling.call.fail(StartFailed(reason))
    else:
        stop = cell.stop
        if type(handling) is Call and stop is not None and stop.reply is not NO_REPLY:
            handling.answer(stop.reply)
        cell.end(reason)
    dead = ActorDead(cell.address, reason)
    if type(handling) is Call:
        handling.fail(dead)
    for call in list(cell.unanswered or ()):
        call.fail(dead)
    if cell.mailbox is not None:
        cell.mailbox.give_up(dead)
    cell.mailbox = cell.unanswered = None


def close(coroutine: Coroutine[Any, Any, object]) -> None:
    """End a suspended callback; what its `finally` blocks raise or await is too late to matter."""
    try:
        coroutine.close()
    except BaseException as error:
        if is_for_program(error):
            raise
        logger.warning("a callback that was ended did not end cleanly", exc_info=True)
