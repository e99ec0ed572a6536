"""What the audit log is told of requests that were refused: the first of a kind in each minute.

A client that asks a thousand times a second for what it may not have fills no disk, and no memory:
not by asking for another name each time either, nor by names of megabytes.
"""

from typing import Final

from poe.broker.access.permission import ANYTHING, Need
from poe.security.audit import TEXT_MAX, audit

_PERIOD_S: Final = 60.0
_KINDS_MAX: Final = 100
"""Kinds of refusals of one principal that are told apart in a period, which only the name of a
kind makes many: those beyond are told as one, of any name."""

_Kinds = dict[Need, tuple[float, int]]
"""When each was told last, and how often it was refused since."""


class AuditTrail:
    """Counts refusals of each principal, operation and name."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[str, _Kinds] = {}

    def denied(self, principal: str, need: Need, now_s: float) -> None:
        """Log that something was refused, with how often that was so since the last time."""
        kind = need._replace(name=need.name[:TEXT_MAX])
        kinds = self._refused.setdefault(principal, {})
        if kind not in kinds and len(kinds) >= _KINDS_MAX:
            kinds = self._refused[principal] = _of_this_period(kinds, now_s)
            if len(kinds) >= _KINDS_MAX:
                kind = need._replace(name=ANYTHING)
        told_s, count = kinds.get(kind, (None, 0))
        if told_s is not None and now_s - told_s < _PERIOD_S:
            kinds[kind] = told_s, count + 1
            return
        kinds[kind] = now_s, 0
        audit(
            "denied",
            principal=principal,
            operation=kind.operation,
            kind=kind.kind,
            name=kind.shown_name,
            count=count + 1,
        )


def _of_this_period(kinds: _Kinds, now_s: float) -> _Kinds:
    return {kind: told for kind, told in kinds.items() if now_s - told[0] < _PERIOD_S}
