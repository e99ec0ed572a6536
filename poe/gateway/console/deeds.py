"""What was changed with this console lately: who, from where, what."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from poe.errors.short_text import printable

_log = logging.getLogger("poe.gateway.console")

DEEDS_MAX: Final = 500
_TARGET_MAX: Final = 1000


class Deeds:
    """The newest, kept in memory; each is a line of the log, too."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: deque[dict[str, Any]] = deque(maxlen=DEEDS_MAX)

    def note(self, user: str | None, address: str, action: str, target: str) -> None:
        """Tell of one before it is done."""
        who = "the one-time token" if user is None else repr(user)
        target = printable(target[:_TARGET_MAX])
        _log.info("%s at %s: %s %s", who, address, action, target)
        self._known.append(
            {
                "time_us": str(round(self._clock() * 1e6)),
                "user": user,
                "address": address,
                "action": action,
                "target": target,
            }
        )

    def newest(self, user: str | None) -> list[dict[str, Any]]:
        """Return the newest first; of a user of the node what it did itself."""
        return [each for each in reversed(self._known) if user is None or each["user"] == user]
