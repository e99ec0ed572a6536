"""Runs a pipeline: a Spark application, and a small supervision tree over its queries.

    pipeline_sup            one_for_one
    ├── progress            permanent; what the queries tell, to the server once a second
    └── query_sup <sink> …  transient; one_for_one with intensity and period of the pipeline
        └── query           transient; a query of Spark

A query that fails too often ends its own supervisor, orderly, and so nothing else.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no type hints
from pyspark.sql import SparkSession

from poe.actors import SHUTDOWN, LoopSystem
from poe.errors import ActorDead, InvalidPipeline, PipelineRunning
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from poe.spark.pipeline.pipeline import BACKOFF_MAX_S, Pipeline
from poe.spark.pipeline.plan import writer
from poe.spark.pipeline.progress import PROGRESS, BrokerLink, Known, Progress, supervisor_name
from poe.spark.pipeline.query import STOP_S, Query
from poe.spark.server_options import parse_servers
from poe.spark.session import apart_from_interrupts, started_session
from poe.supervision import (
    Backoff,
    ChildSpec,
    Restart,
    Supervisor,
    SupervisorFlags,
    supervisor_spec,
)

logger = logging.getLogger("poe.spark")

_LOOK_S: Final = 0.1
_CLAIM_S: Final = 7.0
"""How long the name of a pipeline that was killed may stay taken, and a bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a pipeline is run, as the command line says it."""

    master: str = "local[2]"
    """Of Spark: local[2], local-cluster[2,1,1024], spark://host:7077 …"""
    server: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source that name the server that is told, and that topics are of whose
    options name none; wins over that of the pipeline."""
    available_now: bool = False
    """Each query ends when it has read what is there; triggers of sinks do not count then."""
    config: dict[str, str] = field(default_factory=dict)
    """Of Spark; wins over that of the pipeline."""
    on_look: Callable[[PipelineReport], object] = lambda _: None
    """Called ten times a second with how far it is, in the thread that runs the pipeline."""


def run_pipeline(
    pipeline: Pipeline, options: RunOptions, spark: SparkSession | None = None
) -> PipelineReport:
    """Run a pipeline until each query has ended, or somebody asks it to stop; return how it ended.

    KeyboardInterrupt stops the queries in order, too, and goes on.

    Args:
        pipeline: what to run.
        options: where, and how.
        spark: a session to use; by default one is made, and stopped at the end.

    Raises:
        InvalidPipeline: Spark refuses a part of it; nothing was started.
        OptionError: an option of the server is wrong.
        PipelineRunning: another run has its name.
        AuthenticationFailed, TlsFailed, SecurityFileError: the server does not let it in.
        ConfigError: Spark does not start.
    """
    pipeline.check()
    if pipeline.checkpoint is None:
        raise InvalidPipeline("checkpoint", "is missing; use a folder or URL")
    queries = {name: QueryReport(name=name, state="starting") for name in pipeline.sinks}
    known = Known(pipeline.name, queries)
    server = pipeline.located_options(options.server or pipeline.server)
    link = BrokerLink(known, parse_servers(server))
    own = None if spark is not None else _start_spark(pipeline, options)
    try:
        writers = _writers(pipeline, options, server, spark or own)
        # All that Spark can tell of the file before anything runs.
        apart_from_interrupts(lambda: [make() for make in writers.values()])
        _claim(link)
        _supervise(pipeline, options, known, link, writers)
    finally:
        link.close()
        if own is not None:
            with contextlib.suppress(Py4JError, OSError):  # its Java process has died
                own.stop()
    return known.report()


def _start_spark(pipeline: Pipeline, options: RunOptions) -> SparkSession:
    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # the bars are ours
        "spark.log.level": "FATAL",  # what fails a query is told by us, in a line
        **pipeline.config,
        **options.config,
    }
    start = partial(started_session, pipeline.name, options.master, **config)
    spark = apart_from_interrupts(start)
    for path in pipeline.py_files:
        spark.sparkContext.addPyFile(path)
    return spark


def _writers(
    pipeline: Pipeline,
    options: RunOptions,
    server: dict[str, str],
    spark: Any,  # noqa: ANN401 - a session
) -> dict[str, Callable[[], Any]]:
    make = partial(
        writer, pipeline, spark=spark, server=server, available_now=options.available_now
    )
    return {name: partial(make, sink) for name, sink in pipeline.sinks.items()}


def _claim(link: BrokerLink) -> None:
    """Tell the server that this run begins; a name may be taken for a while by one that is gone."""
    deadline_s = time.monotonic() + _CLAIM_S
    while True:
        try:
            link.begin()
        except PipelineRunning:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def _supervise(
    pipeline: Pipeline,
    options: RunOptions,
    known: Known,
    link: BrokerLink,
    writers: dict[str, Callable[[], Any]],
) -> None:
    """Run the tree until there is nothing left to do, or it is to stop."""
    with LoopSystem() as system:
        root = system.start(PipelineSup, pipeline, known, link, writers, name="pipeline_sup")
        assert root is not None
        try:
            while system.is_alive(root) and known.is_to_go_on:
                options.on_look(known.report())
                time.sleep(_LOOK_S)
            if not system.is_alive(root):
                known.fail_all("the supervisor of the pipeline has given up; its log tells why")
        finally:
            with contextlib.suppress(ActorDead):  # all queries have ended
                system.stop(root, SHUTDOWN, timeout_s=2 * STOP_S)
            options.on_look(known.report())
            with contextlib.suppress(PipelineRunning):  # told below
                link.tell()
    if known.refusal is not None:
        raise known.refusal


class PipelineSup(Supervisor):
    """The root of a running pipeline's tree."""

    def configure(
        self,
        pipeline: Pipeline,
        known: Known,
        link: BrokerLink,
        writers: dict[str, Callable[[], Any]],
    ) -> Any:  # noqa: ANN401 - flags and specs
        """Describe the children in start order."""
        progress = ChildSpec(id=PROGRESS, actor=Progress, args=(known, link), name=PROGRESS)
        backoff = Backoff(first_s=pipeline.backoff_s, max_s=BACKOFF_MAX_S)
        flags = SupervisorFlags(
            intensity=pipeline.intensity, period_s=pipeline.period_s, backoff=backoff
        )
        supervisors = [
            supervisor_spec(
                supervisor_name(name),
                flags,
                [_query_spec(name, make)],
                restart=Restart.TRANSIENT,
            )
            for name, make in writers.items()
        ]
        return SupervisorFlags(), [progress, *supervisors]


def _query_spec(name: str, make: Callable[[], Any]) -> ChildSpec:
    return ChildSpec(
        id=name, actor=Query, args=(name, make), restart=Restart.TRANSIENT, shutdown_s=STOP_S
    )
