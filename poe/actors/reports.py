"""Crash reports: what the log is told of an actor that ended and should not have.

One line at level ERROR to the logger `poe.actors`, with fields that a handler can filter by. A
field names types and addresses and never holds a message or its parts; the traceback, where there
is one, ends with the text that the programmer gave the exception.

Source: OTP proc_lib.erl, crash_report/4; gen_server.erl, error_info/8.
"""

import logging
from collections.abc import Collection
from traceback import format_exception
from typing import Any

from poe.actors.actor_cell import ActorCell
from poe.actors.call import Call
from poe.actors.message import Cast, Down, DownSignal
from poe.actors.reason import Reason, reason_text

logger = logging.getLogger("poe.actors")

_SHOWN_MAX = 10
"""Waiting messages and links that a report names; it counts all messages."""


def report_crash(
    cell: ActorCell,
    mailbox: Collection[tuple[Any, Any]],
    reason: Reason,
    error: BaseException | None,
) -> None:
    """Log the end of an actor, just before `terminate` runs; `error` is what a callback raised."""
    if not logger.isEnabledFor(logging.ERROR):
        return
    text = reason_text(reason)
    fields = {
        "report": "crash",
        "actor": str(cell.address),
        "actor_name": cell.name,
        "parent": None if cell.parent is None else str(cell.parent.address),
        "reason": text,
        "mailbox_length": len(mailbox),
        "messages": [kind_of(message) for message, _ in list(mailbox)[:_SHOWN_MAX]],
        "links": [str(other.address) for other in cell.linked()[:_SHOWN_MAX]],
    }
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logger.makeRecord(
        logger.name,
        logging.ERROR,
        __file__,
        0,
        "%s crashed: %s",
        (fields["actor"], text),
        exc_info,
        extra=fields,
    )
    logger.handle(record)
    if error is not None:
        # Whoever keeps the record keeps text, and not the actor through the frames.
        record.exc_text = record.exc_text or "".join(format_exception(error)).rstrip()
        record.exc_info = (type(error), error, None)


def kind_of(message: object) -> str:
    """Name a message by its way in and its type."""
    if type(message) is Call:
        return f"call {type(message.request).__name__}"
    if type(message) is Cast:
        return f"cast {type(message.message).__name__}"
    kind = Down if type(message) is DownSignal else type(message)
    return f"info {kind.__name__}"
