"""What the audit log is told of requests that were refused: the first of a kind in each minute.

A client that asks a thousand times a second for what it may not have fills no disk.
"""

from typing import Final

from poe.broker.access.permission import Need
from poe.security.audit import audit

_PERIOD_S: Final = 60.0
_KINDS_MAX: Final = 4096
"""Kinds of refusals that are told apart; with more of them some are told more than once."""


class AuditTrail:
    """Counts refusals of each principal, operation and name."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[str, Need], tuple[float, int]] = {}
        """When it was told last, and how often it was refused since."""

    def denied(self, principal: str, need: Need, now_s: float) -> None:
        """Tell that something was refused, with how often that was so since the last time."""
        key = principal, need
        told_s, count = self._refused.get(key, (None, 0))
        if told_s is not None and now_s - told_s < _PERIOD_S:
            self._refused[key] = told_s, count + 1
            return
        if len(self._refused) >= _KINDS_MAX:
            self._refused.clear()
        self._refused[key] = now_s, 0
        audit(
            "denied",
            principal=principal,
            operation=need.operation,
            kind=need.kind,
            name=need.name,
            count=count + 1,
        )
