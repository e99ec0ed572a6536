"""One query of Spark as an actor: starts it, looks at it, ends with it.

Each call of Spark may block and is made in a thread. A query that fails is an actor that crashes:
its supervisor starts another one, which goes on from the checkpoint.
"""

import json
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from poe.actors import GenServer, Reason, Stop, Work, is_orderly
from poe.errors import QueryFailed
from poe.protocol.pipeline_report import QueryReport
from poe.spark.pipeline.progress import PROGRESS
from poe.spark.reason import reason_of

LOOK_S: Final = 0.5
STOP_S: Final = 60.0
"""How long a batch that is under way may take when the query is to stop."""
_LOOK: Final = object()
_WAIT_S: Final = 0.02
_MICROSECONDS: Final = 1_000_000


class Query(GenServer):
    """Runs from `init` on; ends with reason normal when the query has, or with `QueryFailed`.

    `make_writer` is called in a thread and makes the plan anew, so that what was wrong with the
    outside (a folder, a topic) may be right at the next start.
    """

    trap_exits = True

    def init(self, name: str, make_writer: Callable[[], DataStreamWriter]) -> None:
        """Begin to start the query."""
        self._name = name
        self._run = _Run(make_writer)
        self._state = "starting"
        self._tell()
        self._begin(self._run.start)

    def handle_info(self, message: object) -> Stop | None:
        """Take the end of what a thread did, and the timer for the next look."""
        if message is _LOOK:
            self._begin(self._run.look)
        elif message is self._work:
            return self._on_done(self._work.error)
        else:
            super().handle_info(message)
        return None

    async def terminate(self, reason: Reason) -> None:
        """Stop the query, whatever state it is in, before another one uses its checkpoint."""
        self._run.is_to_stop = True
        while not self._run.is_idle.is_set():
            await self.sleep(_WAIT_S)
        self._begin(self._run.stop)
        while not self._run.is_idle.is_set():
            await self.sleep(_WAIT_S)
        if isinstance(reason, QueryFailed):
            self._state = "restarting"
        elif self._state != "done":
            self._state = "stopped" if is_orderly(reason) else "restarting"
        self._tell("" if is_orderly(reason) else _told(reason))

    def _begin(self, function: Callable[[], None]) -> None:
        self._run.is_idle.clear()
        self._work = Work(self, self._run.until_idle(function))

    def _on_done(self, error: BaseException | None) -> Stop | None:
        if error is not None:
            # Not raised: nobody needs to know at which of our lines that is.
            return Stop(QueryFailed(self._name, reason_of(error)))
        self._state = "running" if self._run.is_active else "done"
        if self._state == "done":
            return Stop("normal")
        self._tell()
        self.send_after(LOOK_S, _LOOK)
        return None

    def _tell(self, error: str = "") -> None:
        progress = self._run.progress
        report = QueryReport(
            name=self._name,
            state=self._state,
            rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
            lag_s=lag_s(progress),
            batch=int(progress.get("batchId", -1)),
            last_error=error,
        )
        self.cast(PROGRESS, report)


class _Run:
    """The query and what was last seen of it; its functions run in a thread, one at a time."""

    def __init__(self, make_writer: Callable[[], DataStreamWriter]) -> None:
        self._make_writer = make_writer
        self._query: StreamingQuery | None = None
        self.is_idle = Event()
        self.is_to_stop = False
        self.is_active = True
        self.progress: Mapping[str, Any] = {}

    def until_idle(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return the function with a note of its end, which an actor in `terminate` can see."""

        def noted() -> None:
            try:
                function()
            finally:
                self.is_idle.set()

        return noted

    def start(self) -> None:
        writer = self._make_writer()
        if not self.is_to_stop:
            self._query = writer.start()

    def look(self) -> None:
        """Note how far it is; raise what it has failed with."""
        query = self._query
        assert query is not None
        # In this order: a query that ends in between is seen as active, and looked at once more.
        self.is_active = query.isActive
        error = query.exception()
        if error is not None:
            raise error
        newest = query.lastProgress
        if newest is not None:
            self.progress = json.loads(newest.json)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()


def lag_s(progress: Mapping[str, Any]) -> float | None:
    """Return how far the topics of a query are ahead of it; None where no source tells.

    Pointers are microseconds, so it is the time between the newest message and the last one read.
    """
    lags = []
    for source in progress.get("sources", ()):
        read, newest = _pointers(source.get("endOffset")), _pointers(source.get("latestOffset"))
        # A topic that nothing was read of yet is behind by all that is known of it, which is less
        # than its whole age; it shows as soon as its first batch is done.
        lags += [newest[topic] - read[topic] for topic in newest.keys() & read.keys()]
    return None if not lags else max(0, *lags) / _MICROSECONDS


def _pointers(offset: object) -> dict[str, int]:
    """Return the pointers in an offset `{topic: pointer}`; nothing of another source's offset."""
    try:
        values = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {topic: value for topic, value in values.items() if type(value) is int}


def _told(reason: object) -> str:
    if isinstance(reason, QueryFailed):
        return reason.reason
    return reason_of(reason) if isinstance(reason, BaseException) else str(reason)
