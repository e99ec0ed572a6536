"""What a supervisor tells the log: one structured line for each start, crash, failure and give-up.

Every line goes to the logger `poe.supervision` and carries `report`, `supervisor`, `child_id`,
`reason` and `count` as fields of its record, so that a handler can filter without reading text.
No field holds a message's payload (`reason_text`).

Source: OTP supervisor reports and progress reports; `spec/otp.md` §1.15 says which event gives
which.
"""

import logging
from collections.abc import Hashable
from enum import StrEnum

from poe.actors.reports import reason_text
from poe.errors import IntensityExceeded
from poe.errors.short_text import short_repr
from poe.supervision.strategy import RestartHistory

logger = logging.getLogger("poe.supervision")


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


def report(
    kind: Report, supervisor: object, child_id: Hashable, reason: object = None, count: int = 1
) -> None:
    """Log one report, of `count` children alike; progress at level DEBUG, the others at ERROR."""
    level = logging.DEBUG if kind is Report.PROGRESS else logging.ERROR
    if not logger.isEnabledFor(level):
        return
    text = "" if reason is None else reason_text(reason)
    fields = {
        "report": str(kind),
        "supervisor": str(supervisor),
        "child_id": child_id,
        "reason": text,
        "count": count,
    }
    times = "" if count == 1 else f" ({count} times)"
    # An error of ours may name the child itself.
    child = short_repr(child_id)
    told = text.removeprefix(f"child {child}: ")
    told = f": {told}" if told else ""
    logger.log(level, "%s: %s of child %s%s%s", supervisor, kind, child, times, told, extra=fields)


def report_give_up(supervisor: object, child_id: Hashable, history: RestartHistory) -> None:
    """Log that a supervisor ends because a restart exceeded its intensity."""
    reason = IntensityExceeded(child_id, len(history), history.period_s)
    report(Report.SHUTDOWN, supervisor, child_id, reason)
