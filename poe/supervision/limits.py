"""Finds limits that cannot be reached: a supervisor that would never give up, as written.

It turns flags and specs into sentences for the log; nothing is refused, since a child that is
retried for ever may be what is wanted.
"""

from collections.abc import Iterator, Sequence

from poe.errors.short_text import short_repr
from poe.supervision.child_spec import ChildSpec, Strategy, SupervisorFlags

_WAITS_MAX = 10_000
"""Waits that are added up before a limit counts as reachable."""

_GROUPS = frozenset({Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE})


def unreachable_limits(flags: SupervisorFlags, specs: Sequence[ChildSpec]) -> Iterator[str]:
    """Yield a sentence for each child that alone could never make its supervisor give up."""
    for spec in specs:
        if _is_spread_out(flags, spec):
            yield (
                f"child {short_repr(spec.id)}: its back-off spreads {flags.intensity + 1} restarts "
                f"over more than the period of {flags.period_s} s, so it is restarted for ever; "
                "use a longer period_s or a lower intensity to give up some time"
            )
        if flags.strategy in _GROUPS and (spec.grace_s or 0.0) > flags.period_s:
            yield (
                f"child {short_repr(spec.id)}: while it takes its shutdown_s of {spec.grace_s} s "
                f"in a group restart, the period of {flags.period_s} s passes, so that such "
                "restarts never exceed the intensity; use a longer period_s"
            )


def _is_spread_out(flags: SupervisorFlags, spec: ChildSpec) -> bool:
    """Return whether one child that fails at once after each wait stays within the intensity."""
    backoff = spec.backoff or flags.backoff
    if backoff is None:
        return False
    sum_s = 0.0
    waits_s = backoff.waits_s()
    for _ in range(min(flags.intensity, _WAITS_MAX)):
        sum_s += next(waits_s) * (1 - backoff.jitter)
        # Whole seconds: restarts that lie a second more than the period apart never meet.
        if sum_s >= flags.period_s + 1:
            return True
    return False
