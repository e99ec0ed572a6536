"""How far the queries of a pipeline are: kept by one actor, and told to a server each second.

A query tells of itself each time that it looks; what it has told outlives its actor. The server is
told by a thread, and its absence changes nothing.
"""

import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final

from poe.actors import Down, GenServer, Work
from poe.client.patience import NOT_LET_IN, Gate
from poe.client.server_order import ServerOrder
from poe.errors import (
    AuthenticationFailed,
    CallTimeout,
    ConnectFailed,
    ConnectionClosed,
    NotAuthorized,
    PipelineRunning,
    PoeError,
    SecurityFileError,
    TlsFailed,
)
from poe.protocol import Socket
from poe.protocol.client import open_socket
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from poe.protocol.server import Server

logger = logging.getLogger("poe.spark")

PROGRESS: Final = "progress"
"""Name of the actor."""
REPORT_S: Final = 1.0
_TICK: Final = object()
_CALL_TIMEOUT_S: Final = 5.0


def supervisor_name(query: str) -> str:
    """Return the name of the supervisor of one query."""
    return f"query_sup {query}"


@dataclass(slots=True)
class Known:
    """What is known of a run: written by `Progress` and its thread, read by any thread.

    `queries` keeps its keys from the start on.
    """

    pipeline: str
    queries: dict[str, QueryReport]
    is_to_stop: bool = False
    """Somebody has asked for the end, by the server."""
    refusal: PipelineRunning | None = None
    """Another run has the name; this one has to end."""

    @property
    def is_to_go_on(self) -> bool:
        """Return whether a query may go on, and nobody is against it."""
        return not (self.report().is_ended or self.is_to_stop or self.refusal)

    def fail_all(self, error: str) -> None:
        """Note that there is nobody left who would run the queries; after the end of the tree."""
        for name, query in self.queries.items():
            if query.state != "done":
                self.queries[name] = replace(query, state="failed", last_error=error)

    def report(self) -> PipelineReport:
        """Return what a server is told."""
        queries = tuple(self.queries.values())
        return PipelineReport(
            name=self.pipeline, host=socket.gethostname(), pid=os.getpid(), queries=queries
        )


class BrokerLink:
    """Tells one server of a run; connects again when it has to. Any thread may use it."""

    def __init__(self, known: Known, servers: Sequence[Server]) -> None:
        self._known = known
        self._order = ServerOrder(servers)
        self._socket: Socket | None = None
        self._is_there = True
        self._gate = Gate()
        self._lock = Lock()

    def begin(self) -> None:
        """Tell for the first time: what keeps this client out for good is an error only here.

        Raises:
            PipelineRunning: another run has the name.
            AuthenticationFailed, TlsFailed: as it gets in, it never will.
            SecurityFileError: nor with these files.
        """
        self._tell((PipelineRunning, AuthenticationFailed, TlsFailed, SecurityFileError))

    def tell(self) -> None:
        """Send a report and take the answer; a server that is not there is logged once.

        One that refuses whoever tells is asked again after a second, later after half a minute.

        Raises:
            PipelineRunning: another run has the name.
        """
        self._tell((PipelineRunning,))

    def _tell(self, raised: tuple[type[PoeError], ...]) -> None:
        with self._lock:
            try:
                answer = self._report(time.monotonic())
            except raised:
                raise
            except PoeError as error:
                if self._is_there:
                    logger.warning("the pipeline goes on without reports to the server: %s", error)
                self._is_there = False
                return
        self._is_there = True
        if isinstance(answer, dict) and answer.get("stop") is True:
            self._known.is_to_stop = True

    def _report(self, now_s: float) -> Any:  # noqa: ANN401 - what a server answers
        self._gate.check(now_s)
        try:
            if self._socket is None or not self._socket.is_usable:
                self._socket = open_socket(self._order.current, _CALL_TIMEOUT_S)
            report = self._known.report().as_map()
            answer = self._socket.control("pipeline_report", report=report)
        except (*NOT_LET_IN, NotAuthorized) as refusal:
            self._gate.shut(refusal, now_s)
            raise
        except (ConnectFailed, ConnectionClosed, CallTimeout):
            self._order.failed(self._order.current)
            raise
        self._gate.open()
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()


class Progress(GenServer):
    """Takes `QueryReport`s by cast; counts restarts, and sees when a query was given up."""

    def init(self, known: Known, link: BrokerLink) -> None:
        """Go on with what is known; watch the supervisors that run already."""
        self._known = known
        self._link = link
        self._watched: dict[object, str] = {}
        self._work: Work | None = None
        for name in known.queries:
            self._watch(name)
        self.send_after(0, _TICK)

    def handle_cast(self, report: QueryReport) -> None:
        """Keep what a query tells of itself."""
        before = self._known.queries[report.name]
        is_start = report.state == "starting"
        if is_start and report.name not in self._watched.values():
            self._watch(report.name)
        self._known.queries[report.name] = replace(
            report,
            restarts=before.restarts + (is_start and before.state != "starting"),
            last_error=report.last_error or before.last_error,
            batch=max(before.batch, report.batch),
        )

    def handle_info(self, message: object) -> None:
        """Take the end of a supervisor, of a report, and its own timer."""
        if isinstance(message, Down):
            self._on_down(message)
        elif message is _TICK:
            self._work = Work(self, self._link.tell)
        elif message is self._work and self._work is not None:
            error = self._work.error
            if isinstance(error, PipelineRunning):
                self._known.refusal = error
            elif error is not None:
                raise error
            self.send_after(REPORT_S, _TICK)
        else:
            super().handle_info(message)

    def _watch(self, name: str) -> None:
        ref = self.whereis(supervisor_name(name))
        if ref is not None:
            self._watched[self.monitor(ref)] = name

    def _on_down(self, down: Down) -> None:
        """A supervisor ends when it gives its query up, or with the whole pipeline."""
        name = self._watched.pop(down.monitor)
        last = self._known.queries[name]
        if not last.is_ended:
            self._known.queries[name] = replace(last, state="failed", rows_per_s=0.0)
            logger.error("query %r has failed too often and is given up: %s", name, last.last_error)
