"""What a running pipeline tells a server of itself, and a server those who ask.

Maps of the control ops `pipeline_report` and `pipelines`; whoever sent them, what comes out of here
has the types that it is said to have.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from types import NoneType
from typing import Any, Final, Self

from poe.errors import RemoteProtocolError

ACTIVE: Final = ("starting", "running", "restarting", "idle", "retrying", "waiting")
ENDED: Final = ("done", "stopped", "failed")
TEXT_MAX: Final = 1000
"""Characters of an error that are told."""
_SHORT_MAX: Final = 200
QUERIES_MAX: Final = 100
RULES_MAX: Final = 200
"""Rules of a mapping that are told; a few bytes each."""
_COUNTS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport:
    """One query of a pipeline, as it was when this was made."""

    name: str
    """Of its sink."""
    state: str
    """starting, running, restarting (it failed and is tried again), or how it ended: done,
    stopped, or failed (too often). Of a partition of a mapping idle, retrying and waiting, too."""
    rows_per_s: float = 0.0
    """Of its newest batch."""
    lag_s: float | None = None
    """Seconds between the newest message of its topics and the last one that it has read; None
    where no source tells."""
    batch: int = -1
    """Number of its newest batch; -1 before the first."""
    restarts: int = 0
    last_error: str = ""
    """Why it last failed; empty before the first time."""

    @property
    def is_ended(self) -> bool:
        """Return whether it will not run again."""
        return self.state in ENDED

    def summary(self, what: str = "rows") -> str:
        """Return its progress in a few words: `1200 rows/s, lag 0.3 s`."""
        lag = "" if self.lag_s is None else f", lag {self.lag_s:.1f} s"
        return f"{self.rows_per_s:.0f} {what}/s{lag}"

    @classmethod
    def from_map(cls, values: object) -> Self:
        """Check what came.

        Raises:
            RemoteProtocolError: no map, a field is missing or has a wrong type, or the state is
                none.
        """
        report = cls(**_checked(cls, values, "query report"))
        if report.state not in (*ACTIVE, *ENDED):
            states = ", ".join((*ACTIVE, *ENDED))
            msg = f"query report has state {report.state[:40]!r}; use {states}"
            raise RemoteProtocolError(msg)
        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReport:
    """One rule of a mapping, as it was when this was made."""

    name: str
    """Its id; `otherwise` is what no rule wants."""
    what: str = ""
    """What it does, in a few words: `to orders.vip, audit`."""
    per_s: float = 0.0
    """Messages that have met it, in the last second or so."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Messages since the process has started, by what became of them: to, drop, error …"""

    @classmethod
    def from_map(cls, values: object) -> Self:
        """Check what came.

        Raises:
            RemoteProtocolError: no map, or a field is missing or has a wrong type.
        """
        report = cls(**_checked(cls, values, "rule report"))
        told: dict[Any, Any] = dict(report.counts)
        is_sound = len(told) <= _COUNTS_MAX and all(
            isinstance(name, str) and len(name) <= _SHORT_MAX and type(count) is int
            for name, count in told.items()
        )
        if not is_sound:
            msg = "rule report: counts are no few numbers by name"
            raise RemoteProtocolError(msg)
        return replace(report, what=report.what[:_SHORT_MAX], name=report.name[:_SHORT_MAX])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """A pipeline and its queries; which of several runs it is tell `host` and `pid`."""

    name: str
    host: str
    """Name of the machine that its driver runs on."""
    pid: int
    """Of its driver."""
    queries: tuple[QueryReport, ...]
    kind: str = "pipeline"
    """Or mapping: its partitions stand where a pipeline's queries do."""
    rules: tuple[RuleReport, ...] = ()
    """Of a mapping, in their order."""

    @property
    def state(self) -> str:
        """Return running while a query may go on; else failed, stopped or done."""
        states = {query.state for query in self.queries}
        if states.intersection(ACTIVE):
            return "running"
        return next((state for state in ("failed", "stopped") if state in states), "done")

    @property
    def is_ended(self) -> bool:
        """Return whether none of its queries will run again."""
        return self.state != "running"

    def as_map(self) -> dict[str, Any]:
        """Return what msgpack can carry."""
        return asdict(self)

    @classmethod
    def from_map(cls, values: object) -> Self:
        """Check what came.

        Raises:
            RemoteProtocolError: as for a query, or there are too many of them.
        """
        checked = _checked(cls, values, "pipeline report")
        queries = checked["queries"]
        if len(queries) > QUERIES_MAX:
            msg = f"pipeline report has {len(queries)} queries; {QUERIES_MAX} at most"
            raise RemoteProtocolError(msg)
        if len(checked["rules"]) > RULES_MAX:
            msg = f"pipeline report has {len(checked['rules'])} rules; {RULES_MAX} at most"
            raise RemoteProtocolError(msg)
        rules = tuple(map(RuleReport.from_map, checked["rules"]))
        told = {**checked, "queries": tuple(map(QueryReport.from_map, queries)), "rules": rules}
        return cls(**told)


_TYPES: Final[Mapping[object, tuple[type, ...]]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    float | None: (float, int, NoneType),
    tuple[QueryReport, ...]: (list, tuple),
    tuple[RuleReport, ...]: (list, tuple),
    Mapping[str, int]: (dict,),
}


def _checked(kind: type[Any], values: object, what: str) -> dict[str, Any]:
    """Return the fields that `kind` has; a newer peer may send more."""
    if not isinstance(values, dict):
        msg = f"{what} is no map"
        raise RemoteProtocolError(msg)
    checked = {}
    for each in fields(kind):
        value = values.get(each.name, _default(each))
        if type(value) not in _TYPES[each.type]:
            msg = f"{what}: {each.name} is missing or of a wrong type"
            raise RemoteProtocolError(msg)
        checked[each.name] = value[:TEXT_MAX] if isinstance(value, str) else value
    return checked


def _default(of: Field[Any]) -> object:
    return of.default if of.default_factory is MISSING else of.default_factory()
