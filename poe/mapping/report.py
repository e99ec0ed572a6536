"""Tells the node once a second how far a mapping is, for those who look there."""

import os
import socket as tcp
from collections import Counter
from contextlib import suppress
from time import monotonic
from typing import Final

from poe.actors import GenServer
from poe.errors import PoeError
from poe.mapping.connection import Connection
from poe.mapping.doors import Status, now_us
from poe.mapping.rule import fate_text
from poe.mapping.rule_set import OTHERWISE
from poe.mapping.station import Station, logger
from poe.protocol.pipeline_report import (
    QUERIES_MAX,
    RULES_MAX,
    TEXT_MAX,
    PipelineReport,
    QueryReport,
    RuleReport,
)

_REPORT_S: Final = 1.0
_CALL_TIMEOUT_S: Final = 5.0
_TELL: Final = "tell"
_STATES: Final = {"stopped": "waiting"}
"""In reports, stopped is what does not go on by itself."""


class Reporter(GenServer):
    """Reports again and again; a node that takes no report keeps nothing from its work."""

    trap_exits = True  # the connection is to be closed

    def init(self, station: Station) -> None:
        """Begin."""
        self._station = station
        self._connection = Connection(station.servers, _CALL_TIMEOUT_S)
        self._before: dict[bytes, tuple[float, int]] = {}
        self._counted: tuple[float, Counter[tuple[str, str]]] = monotonic(), Counter()
        self.send_after(0, _TELL)

    async def handle_info(self, message: object) -> None:
        """Report."""
        del message
        if self._station.is_ending:  # that it has stopped is told when it has
            return
        try:
            await self.run_blocking(self._report, False)
        except PoeError as error:
            logger.debug("mapping %s: no report: %s", self._station.rules.name, error)
            self._connection.failed()
        self.send_after(_REPORT_S, _TELL)

    async def terminate(self, reason: object) -> None:
        """Tell that the mapping has stopped, if it has, and close the connection."""
        del reason
        if self._station.is_ending and self._connection.is_open:
            with suppress(PoeError):
                await self.run_blocking(self._report, True)
        self._connection.close()

    def _report(self, has_stopped: bool) -> None:  # noqa: FBT001 - handed over as it is
        if has_stopped:
            units = [QueryReport(name="-", state="stopped")]
        else:
            units = [self._unit(run.status) for run in self._station.runs()][:QUERIES_MAX]
        host, pid = tcp.gethostname(), os.getpid()
        report = PipelineReport(
            name=f"{self._station.rules.name} {host}:{pid}",
            host=host,
            pid=pid,
            queries=tuple(units) or (QueryReport(name="-", state="starting"),),
            kind="mapping",
            rules=self._rules(),
        )
        answer = self._connection.socket().control("pipeline_report", report=report.as_map())
        if isinstance(answer, dict) and answer.get("stop") is True:
            self._station.is_to_stop = True

    def _rules(self) -> tuple[RuleReport, ...]:
        """Return the rules in their order, and what has met them."""
        now_s, counts = monotonic(), self._station.tally.counts()
        before_s, before = self._counted
        self._counted = now_s, counts
        grown = counts - before
        rules = self._station.rules
        what = {each.id: fate_text(each.fate) for each in rules.rules}
        what[OTHERWISE] = fate_text(rules.otherwise)
        by_rule: dict[str, dict[str, int]] = {}
        for (rule, action), count in counts.items():
            by_rule.setdefault(rule, {})[action] = count
        names = [*what, *sorted(by_rule.keys() - what.keys())]
        if len(names) > RULES_MAX:
            names = [*names[: RULES_MAX - 1], OTHERWISE]
        per_s: Counter[str] = Counter()
        for (rule, _), count in grown.items():
            per_s[rule] += count
        elapsed_s = max(now_s - before_s, 1e-3)
        return tuple(
            RuleReport(
                name=name,
                what=what.get(name, ""),
                per_s=per_s[name] / elapsed_s,
                counts=by_rule.get(name, {}),
            )
            for name in names
        )

    def _unit(self, status: Status) -> QueryReport:
        now_s, count = monotonic(), status.messages
        before_s, before = self._before.get(status.unit, (now_s, count))
        self._before[status.unit] = now_s, count
        rate = max(0, count - before) / (now_s - before_s) if now_s > before_s else 0.0
        lag_s = 0.0 if status.state == "idle" else max(0.0, (now_us() - status.pointer) / 1e6)
        return QueryReport(
            name=status.unit.decode(errors="replace"),
            state=_STATES.get(status.state, status.state),
            rows_per_s=rate,
            lag_s=lag_s if status.pointer else None,
            batch=status.batches,
            last_error=_sent(status.reason),
        )


def _sent(reason: str) -> str:
    """Return as much of a reason as is told; halves of surrogate pairs are in no frame."""
    return reason[:TEXT_MAX].encode("utf-8", "backslashreplace").decode()
