"""What runs on top of this broker: the newest report of each pipeline, and the wish to end one.

A pipeline is supervised where its driver runs; a broker only keeps what it was told last, in
memory, for those who look. Nothing depends on it: after a restart it knows all again a second
later.
"""

from dataclasses import dataclass
from typing import Any, Final

from poe.actors import Call, Error, GenServer
from poe.errors import ActorDead, Overloaded, PipelineRunning, PoeError, UnknownPipeline
from poe.protocol.maps import take_text
from poe.protocol.pipeline_report import PipelineReport
from poe.supervision import TreeRow
from poe.supervision.live_tree import ROWS_MAX, TEXT_MAX

PIPELINES: Final = "pipelines"
"""Name of the actor."""
PIPELINE_OPERATIONS: Final = ("pipelines", "pipeline_report", "pipeline_stop")
"""Control ops that it carries out."""
LOST_AFTER_S: Final = 5.0
"""A pipeline that is silent for so long is told as lost; it reports each second."""
PIPELINES_MAX: Final = 100
"""With 100 queries each they are told in some 10 ms, and shown in a tree in 100 ms."""


@dataclass(slots=True)
class _Known:
    report: PipelineReport
    as_map: dict[str, Any]
    """The report; made once, since who looks often asks for all of them."""
    told_s: float
    is_to_stop: bool = False


class Pipelines(GenServer):
    """Carries out `PIPELINE_OPERATIONS`: calls are pairs (op, arguments).

    Always: reports kept <= PIPELINES_MAX, one for each name.
    """

    def init(self) -> None:
        """Begin without any."""
        self._known: dict[str, _Known] = {}

    def handle_call(self, request: tuple[str, dict[str, Any]], caller: Call) -> object:
        """Carry out one op; what is wrong with it goes to who asked."""
        del caller
        op, arguments = request
        try:
            match op:
                case "pipeline_report":
                    return self._take(PipelineReport.from_map(arguments.get("report")))
                case "pipeline_stop":
                    self._ask_to_stop(take_text(arguments, "name", "pipeline_stop"))
                    return None
                case _:
                    return [self._told(known) for _, known in sorted(self._known.items())]
        except PoeError as error:
            return Error(error)

    def _take(self, report: PipelineReport) -> dict[str, bool]:
        """Keep a report; answer whether somebody has asked the pipeline to stop."""
        before = self._known.get(report.name)
        is_to_stop = False
        if before is not None:
            run = before.report.host, before.report.pid
            if run == (report.host, report.pid):
                is_to_stop = before.is_to_stop
            elif self._is_running(before):
                raise PipelineRunning(report.name, *run)
        elif len(self._known) >= PIPELINES_MAX:
            self._forget_one()
        self._known[report.name] = _Known(report, report.as_map(), self.monotonic_s(), is_to_stop)
        return {"stop": is_to_stop}

    def _forget_one(self) -> None:
        """Make room: the one that was heard of least lately goes, if it does not run."""
        name = min(self._known, key=lambda each: self._known[each].told_s)
        if self._is_running(self._known[name]):
            limit = "pipelines"
            raise Overloaded(limit, PIPELINES_MAX)
        del self._known[name]

    def _ask_to_stop(self, name: str) -> None:
        known = self._known.get(name)
        if known is None or not self._is_running(known):
            raise UnknownPipeline(name)
        known.is_to_stop = True

    def _is_running(self, known: _Known) -> bool:
        return self._state(known) == "running"

    def _state(self, known: _Known) -> str:
        is_silent = self.monotonic_s() - known.told_s > LOST_AFTER_S
        return "lost" if is_silent and not known.report.is_ended else known.report.state

    def _told(self, known: _Known) -> dict[str, Any]:
        age_s = self.monotonic_s() - known.told_s
        return {**known.as_map, "state": self._state(known), "age_s": age_s}


async def add_pipelines(actor: GenServer, rows: list[TreeRow]) -> list[TreeRow]:
    """Return a node's tree with the pipelines below the actor that keeps their reports.

    It has no more rows, and no longer texts, than a tree without pipelines may have.
    """
    place = next((number for number, row in enumerate(rows) if row.name == PIPELINES), None)
    if place is None:
        return rows
    try:
        pipelines = await actor.call(PIPELINES, (PIPELINES, {}))
    except ActorDead:  # it is being restarted
        return rows
    depth = rows[place].depth + 1
    added = [row for told in pipelines for row in _pipeline_rows(told, depth)]
    return [*rows[: place + 1], *added, *rows[place + 1 :]][:ROWS_MAX]


def _pipeline_rows(told: dict[str, Any], depth: int) -> list[TreeRow]:
    report = PipelineReport.from_map(told)
    name, run = report.name[:TEXT_MAX], f"driver {report.pid} on {report.host}"[:TEXT_MAX]
    rows = [TreeRow(depth=depth, id=name, role=run, state=told["state"], kind="supervisor")]
    for query in report.queries:
        role = "" if query.is_ended else query.summary()
        rows.append(
            TreeRow(
                depth=depth + 1,
                id=query.name[:TEXT_MAX],
                role=role,
                state=query.state,
                restarts=query.restarts,
                last_reason=query.last_error[:TEXT_MAX],
            )
        )
    return rows
