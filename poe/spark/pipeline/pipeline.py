"""A pipeline: sources, steps and sinks by name, and how it is supervised."""

import os
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from poe.errors import InvalidPipeline, SecurityFileError
from poe.spark.pipeline.definitions import Sink, Source, Step, make, option_texts, placed
from poe.spark.server_options import FILES, check_files, names_server, parse_servers

BACKOFF_MAX_S = 60.0
"""Longest wait before a restart."""


class Pipeline:
    """Streams that come in, what is made of them, and where that goes.

    A module-level `Pipeline` in a file is what `poe pipeline run FILE` runs. Nothing here starts
    Spark. The keywords of `source`, `step` and `sink` are the keys of a TOML file.

    Args:
        name: under which it is known to a server; one run of it at a time.
        checkpoint: folder or URL of the checkpoints, one for each sink, which all executors reach.
        intensity: how often a query may fail within `period_s` before it is given up.
        period_s: whole seconds.
        backoff_s: wait before the first restart; it doubles with each further one, up to 60 s.
        server: options of the data source that name the server of topics whose own options name
            none, as in `{"url": "poe://host:5555"}`; it is told how far the pipeline is.
        config: Spark's own configuration.
        py_files: modules that functions on executors import.

    Raises:
        InvalidPipeline: an argument has a wrong type or value.
    """

    def __init__(  # noqa: PLR0913 - options of their own, all but one with a default
        self,
        name: str,
        *,
        checkpoint: str | Path | None = None,
        intensity: int = 3,
        period_s: int = 300,
        backoff_s: float = 1.0,
        server: Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        py_files: str | Path | Sequence[str | Path] = (),
    ) -> None:
        _check("name", name, bool(str(name).strip()), "text")
        _check(
            "intensity",
            intensity,
            type(intensity) is int and intensity >= 0,
            "a whole number, 0 or more",
        )
        _check(
            "period_s",
            period_s,
            type(period_s) is int and period_s >= 1,
            "whole seconds, 1 or more",
        )
        is_wait = type(backoff_s) in {int, float} and 0 < backoff_s <= BACKOFF_MAX_S
        _check("backoff_s", backoff_s, is_wait, f"more than 0 seconds, {BACKOFF_MAX_S} at most")
        self.name = str(name)
        self.checkpoint = None if checkpoint is None else str(checkpoint)
        self.intensity = intensity
        self.period_s = period_s
        self.backoff_s = float(backoff_s)
        is_table = server is None or isinstance(server, Mapping)
        _check("server", server, is_table, 'a table of options: {"url": "poe://host:5555"}')
        self.server = option_texts("server", server or {})
        self.config = {key: str(value) for key, value in (config or {}).items()}
        self.py_files = _paths("py_files", py_files)
        self.file: Path | None = None
        """What it was read from; relative paths of sinks are relative to that."""
        self.tables: dict[str, Source | Step] = {}
        self.sinks: dict[str, Sink] = {}

    def source(self, name: str, **keys: Any) -> None:  # noqa: ANN401 - checked against Source
        """Add a stream that comes in, with the fields of `Source`.

        Raises:
            InvalidPipeline: an unknown key or a wrong value.
        """
        place = f"sources.{name}"
        self._add(place, make(Source, place, {**keys, "name": name}))

    def step(self, name: str, **keys: Any) -> None:  # noqa: ANN401 - checked against Step
        """Add a table that is made of others, with the fields of `Step`.

        Raises:
            InvalidPipeline: an unknown key or a wrong value.
        """
        place = f"steps.{name}"
        self._add(place, make(Step, place, {**keys, "name": name}))

    def sink(self, name: str, **keys: Any) -> None:  # noqa: ANN401 - checked against Sink
        """Add where a table goes, with the fields of `Sink`.

        Raises:
            InvalidPipeline: an unknown key or a wrong value.
        """
        place = f"sinks.{name}"
        if name in self.sinks:
            raise InvalidPipeline(place, "is there twice; give it another name")
        self.sinks[name] = make(Sink, place, {**keys, "name": name})

    def check(self) -> None:
        """Make sure that all parts know each other.

        Raises:
            InvalidPipeline: there is no sink, a name is not known, or steps go round in circles;
                or an option of the server is wrong.
        """
        self._check_server("server", self.server)
        sources = (each for each in self.tables.values() if isinstance(each, Source))
        for kind, ends in (("sources", sources), ("sinks", self.sinks.values())):
            for end in ends:
                if end.is_topic:
                    server = {key: end.options[key] for key in end.options if names_server([key])}
                    self._check_server(f"{kind}.{end.name}.options", server)
        if not self.sinks:
            raise InvalidPipeline("sinks", "are missing; without one nothing happens")
        for sink in self.sinks.values():
            self._check_known(sink.takes, f"sinks.{sink.name}.takes")
            self.needed_by(sink)

    def located(self, location: str) -> str:
        """Return a path as it is beside the pipeline's file; a URL stays as it is."""
        if self.file is None or "://" in location:
            return location
        return os.fspath(self.file.parent / location)

    def located_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return options of the data source with the paths to get into a server by `located`."""
        names = {name.lower() for name in FILES}
        return {
            key: self.located(text) if key.lower() in names else text
            for key, text in options.items()
        }

    def needed_by(self, sink: Sink) -> list[Source | Step]:
        """Return the tables that a sink needs, each after those that it is made of.

        Raises:
            InvalidPipeline: as `check`.
        """
        graph: dict[str, tuple[str, ...]] = {}
        left = [sink.takes]
        while left:
            table = self.tables[left.pop()]
            if table.name not in graph:
                graph[table.name] = self._inputs(table)
                left.extend(graph[table.name])
        try:
            order = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            circle = " -> ".join(error.args[1])
            problem = f"goes round in a circle: {circle}; name what it takes by takes"
            raise InvalidPipeline(place=f"steps.{error.args[1][0]}", problem=problem) from error
        return [self.tables[name] for name in order]

    def _check_server(self, place: str, options: Mapping[str, str]) -> None:
        """Check the options that name a server, and the files that these name."""
        located = self.located_options(options)
        with placed({place: located}):
            server = parse_servers(located)[0]  # all are got into in the same way
        try:
            check_files(server)
        except SecurityFileError as error:
            key = next(key for key, text in located.items() if text == error.path)
            place, problem = f"{place}.{key}", f"is {error.path!r}: {error.why}"
            raise InvalidPipeline(place, problem) from error

    def _inputs(self, table: Source | Step) -> tuple[str, ...]:
        if isinstance(table, Source):
            return ()
        names = table.inputs(self.tables)
        for name in names:
            self._check_known(name, f"steps.{table.name}.takes")
        return names

    def _check_known(self, name: str, place: str) -> None:
        if name not in self.tables:
            known = ", ".join(self.tables) or "a source, of which there is none"
            raise InvalidPipeline(place, f"names {name!r}, which is not there; use {known}")

    def _add(self, place: str, table: Source | Step) -> None:
        # For SQL the case of names does not count: it would find the one that was made last.
        if table.name.lower() in map(str.lower, self.tables):
            problem = "has the name of another source or step; give it one of its own"
            raise InvalidPipeline(place, problem)
        self.tables[table.name] = table


def _check(key: str, value: object, is_right: bool, allowed: str) -> None:  # noqa: FBT001 - private, a column of a table
    if not is_right:
        raise InvalidPipeline(key, f"is {value!r}; use {allowed}")


def _paths(key: str, value: object) -> list[str]:
    paths = value if isinstance(value, list | tuple) else [value]
    are_paths = all(isinstance(each, str | Path) for each in paths)
    _check(key, value, are_paths, "a path or a list of paths")
    return [str(path) for path in paths]
