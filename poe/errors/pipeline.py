"""Errors of pipelines: a wrong file (15x), a query that fails, a name that is not there (45x)."""

from poe.errors.broker import BrokerError
from poe.errors.config import ConfigError
from poe.errors.short_text import short_repr


class InvalidPipeline(ConfigError):
    """A pipeline, or the file that holds it, cannot be used."""

    code = 150

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class UnknownPipeline(BrokerError):
    """No pipeline of this name runs on top of the broker."""

    code = 450

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        name = short_repr(pipeline)
        super().__init__(f"no pipeline {name} is running; see `poe pipeline list`")


class PipelineRunning(BrokerError):
    """A second run of a pipeline would write to the checkpoints of the first."""

    code = 451

    def __init__(self, pipeline: str, host: str, pid: int) -> None:
        self.pipeline = pipeline
        self.host = host
        self.pid = pid
        super().__init__(
            f"pipeline {pipeline!r} runs already, as process {pid} on {host}; "
            f"use `poe pipeline stop {pipeline}` first, or give this one another name"
        )


class QueryFailed(BrokerError):
    """A query of a pipeline could not be started, or has ended with an error of Spark's."""

    code = 452

    def __init__(self, query: str, reason: str) -> None:
        self.query = query
        self.reason = reason
        super().__init__(f"query {query!r} failed: {reason}")
