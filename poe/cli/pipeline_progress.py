"""How far a pipeline is that runs in this process: bars on a terminal, lines in a pipe."""

from typing import Any, Self

from poe.cli.output import write_line
from poe.protocol.pipeline_report import PipelineReport, QueryReport


class Lines:
    """Writes a line whenever the state of a query has changed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, report: PipelineReport) -> None:
        """Write what is new."""
        for query in report.queries:
            state = query.state, query.restarts
            if self._states.get(query.name) != state:
                self._states[query.name] = state
                told = f": {query.last_error}" if query.state in {"restarting", "failed"} else ""
                write_line(f"{query.name} {query.state}{told}")


class Bars:
    """Shows a bar for each query; it is full when the query has read all that there is.

    What 0 stands for is the greatest lag that was seen. A query whose lag nobody knows has a bar
    that moves only.
    """

    def __init__(self, console: Any = None) -> None:  # noqa: ANN401 - rich is loaded late
        # For people only; a pipe need not load it.
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            console=console,
        )
        self._tasks: dict[str, Any] = {}
        self._greatest_lag_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, report: PipelineReport) -> None:
        """Renew the bars."""
        for query in report.queries:
            if query.name not in self._tasks:
                task = self._progress.add_task(query.name, total=None, told=query.state)
                self._tasks[query.name] = task
            told = f"{query.state}, {query.summary()}"
            if query.restarts or query.last_error:
                told += f", restarts {query.restarts}: {query.last_error[:60]}"
            share = self._share(query)
            total = None if share is None else 1.0
            self._progress.update(
                self._tasks[query.name], total=total, completed=share or 0.0, told=told
            )

    def _share(self, query: QueryReport) -> float | None:
        if query.state == "done":
            return 1.0
        if query.lag_s is None:
            return None
        greatest_s = max(query.lag_s, self._greatest_lag_s.get(query.name, 0.0))
        self._greatest_lag_s[query.name] = greatest_s
        return 1.0 if not greatest_s else 1.0 - query.lag_s / greatest_s
