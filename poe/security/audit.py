"""What happened to whom: one line of JSON an event, on the logger `poe.audit`.

Names that clients have given are in it and can be anything: what is no ASCII is escaped, so that no
name makes a line of its own, and long ones are cut. A token that somebody gave in the wrong place
is no exception: only its id is written.
"""

import json
import logging
from typing import Final

from poe.security.token import hide_tokens

LOGGER: Final = "poe.audit"
TEXT_MAX: Final = 500
"""Characters of one value."""

Value = str | bytes | float | bool | None

_logger = logging.getLogger(LOGGER)


def audit(event: str, **fields: Value | list[str]) -> None:
    """Write one event; `fields` are never secrets, and no messages."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    shown = {key: _shown(value) for key, value in fields.items()}
    _logger.info("%s", json.dumps({"event": event, **shown}))


def _shown(value: Value | list[str]) -> Value | list[str]:
    match value:
        case bytes():
            return _shown(value[:TEXT_MAX].decode("utf-8", "backslashreplace"))
        case str():
            return hide_tokens(value)[:TEXT_MAX]
        case list():
            return [hide_tokens(each)[:TEXT_MAX] for each in value]
    return value
