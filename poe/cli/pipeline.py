"""`poe pipeline`: runs a pipeline on Spark, and shows or stops those that a server knows of."""

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.exit_code import ExitCode
from poe.cli.hangup import tell_hangups
from poe.cli.log import start_logging
from poe.cli.output import is_terminal, write_error, write_line
from poe.cli.parameters import LogLevelOption
from poe.cli.pipeline_progress import Bars, Lines
from poe.errors import ConfigError, OptionError, RemoteProtocolError, UnknownPipeline
from poe.errors.short_text import printable
from poe.protocol import Socket
from poe.protocol.pipeline_report import PipelineReport

if TYPE_CHECKING:
    from poe.spark import Pipeline

_STOP_TIMEOUT_S = 60.0
_LOOK_S = 0.2

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the pipeline.")]


def pipeline_application() -> typer.Typer:
    """Return the group of commands."""
    application = typer.Typer(
        help="Run pipelines on Spark, and see or stop those that run.", rich_markup_mode=None
    )
    commands: dict[str, Callable[..., Any]] = {
        "run": run,
        "list": list_pipelines,
        "status": status,
        "stop": stop,
    }
    for name, command in commands.items():
        application.command(name)(command)
    return application


@asks_server
def run(  # noqa: PLR0913 - the options of a command
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline: .toml or .py.")],
    *,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's: local[2], spark://HOST:7077 …")
    ] = "local[2]",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Work on what is there, and end.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Instead of the file's.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of Spark; may be repeated.")
    ] = None,
    py_files: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A module for the executors; may be repeated."),
    ] = None,
    log_level: LogLevelOption = "warning",
    endpoint: Endpoint,
) -> ExitCode:
    """Run a pipeline until its queries end, Ctrl-C, or `poe pipeline stop`.

    A query that fails is started again from its checkpoint; one that fails too often is given up,
    while the others go on, and the exit code is 1 at the end. The server is told how far it is,
    and has the topics whose options name no other: the one that the command names, else that of
    the file.
    """
    start_logging(log_level)
    config = dict(_pair(each) for each in conf or ())
    try:
        # Late, since no other command needs Spark, and it takes a second to load.
        from poe.spark.pipeline import load_pipeline  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise needs_spark(error) from error
    pipeline = load_pipeline(file)
    if checkpoint is not None:
        pipeline.checkpoint = checkpoint
    pipeline.py_files += py_files or []
    return run_to_the_end(
        pipeline, endpoint, master=master, available_now=available_now, config=config
    )


def run_to_the_end(
    pipeline: "Pipeline",
    endpoint: Endpoint,
    *,
    master: str,
    available_now: bool,
    config: Mapping[str, str],
) -> ExitCode:
    """Run a pipeline until it ends, and show how far it is."""
    from poe.spark.pipeline.runner import RunOptions, run_pipeline  # noqa: PLC0415 - needs Spark
    from poe.spark.server_options import options_of  # noqa: PLC0415 - likewise

    is_of_command = endpoint.is_told or not pipeline.server
    progress = Bars() if is_terminal(sys.stdout) else Lines()

    def on_look(report: PipelineReport) -> None:
        # Not before: Spark's Java process, started by now, is to ignore SIGHUP as it was told.
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            tell_hangups()
        progress.show(report)

    with progress:
        ended = run_pipeline(
            pipeline,
            RunOptions(
                master=master,
                server=options_of(endpoint.server, *endpoint.others) if is_of_command else {},
                available_now=available_now,
                config=dict(config),
                on_look=on_look,
            ),
        )
    for query in ended.queries:
        if query.state == "failed":
            write_error(f"query {query.name!r} was given up: {query.last_error}")
    return ExitCode.FAILURE if ended.state == "failed" else ExitCode.OK


def needs_spark(error: ModuleNotFoundError) -> ConfigError:
    """Return what tells how Spark is installed."""
    return ConfigError(f"{error.name} is not installed; use: pip install '.[spark]' in a checkout")


@asks_server
def list_pipelines(endpoint: Endpoint) -> None:
    """List the pipelines that report to a server: name, state, driver, and age of the report.

    One of which a query goes on is running; where its queries differ, their states follow.
    One that has not reported for 5 s is lost: killed, or cut off.
    """
    with endpoint.looking() as connection:
        for told in told_pipelines(connection):
            run_of = f"process {told['pid']} on {told['host']}"
            age = f"{told['age_s']:.0f} s ago"
            cells = told["name"], told["state"], run_of, age, *_mixed_states(told)
            write_line("\t".join(map(printable, cells)))


@asks_server
def status(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="All without it.")] = None,
    *,
    endpoint: Endpoint,
) -> None:
    """Show the queries of pipelines: state, rows per second, lag, restarts and last error."""
    with endpoint.looking() as connection:
        found = [told for told in told_pipelines(connection) if name in {None, told["name"]}]
    if name is not None and not found:
        raise UnknownPipeline(name)
    for line in status_lines(found):
        write_line(line)


@asks_server
def stop(name: NameArgument, endpoint: Endpoint) -> ExitCode:
    """Stop a pipeline: its batches that are under way are given up, and are done again next time.

    Waits until it has stopped, for a minute.
    """
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    with endpoint.looking() as connection:
        _state(connection, name)  # a mapping is stopped by another command
        connection.control("pipeline_stop", name=name)
        while time.monotonic() < deadline_s:
            if (state := _state(connection, name)) != "running":
                write_line(f"{name}\t{state}")
                return ExitCode.OK
            time.sleep(_LOOK_S)
    write_error(f"pipeline {name!r} has not stopped within {_STOP_TIMEOUT_S:.0f} s, and still will")
    return ExitCode.FAILURE


def _state(connection: Socket, name: str) -> str:
    """Return the state of a pipeline.

    Raises:
        UnknownPipeline: there is none, or the server has forgotten it.
    """
    for told in told_pipelines(connection):
        if told["name"] == name:
            return str(told["state"])
    raise UnknownPipeline(name)


def told_pipelines(connection: Socket) -> list[dict[str, Any]]:
    """Return what a server knows of pipelines, by name; an older one knows of none."""
    try:
        told = list(connection.control("pipelines"))
    except RemoteProtocolError as error:
        if "is unknown" not in str(error):
            raise
        return []
    return [each for each in told if each.get("kind", "pipeline") == "pipeline"]


def status_lines(pipelines: list[dict[str, Any]]) -> list[str]:
    """Return a line for each query: `PIPELINE/QUERY<tab>STATE<tab>PROGRESS…`."""
    lines = []
    for told in pipelines:
        for query in PipelineReport.from_map(told).queries:
            state = "lost" if told["state"] == "lost" and not query.is_ended else query.state
            restarts = f"{query.restarts} restart{'s' * (query.restarts != 1)}"
            cells = [f"{told['name']}/{query.name}", state, query.summary(), restarts]
            cells += [query.last_error] if query.last_error else []
            lines.append("\t".join(map(printable, cells)))
    return lines


def _mixed_states(told: dict[str, Any]) -> list[str]:
    """Return how many queries are in which state, as `1 failed, 2 running`, where they differ."""
    counts = Counter(query.state for query in PipelineReport.from_map(told).queries)
    if len(counts) < 2 or told["state"] == "lost":  # noqa: PLR2004 - two states are a mix
        return []
    return [", ".join(f"{count} {state}" for state, count in sorted(counts.items()))]


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise OptionError("--conf", text, "KEY=VALUE, as in spark.executor.memory=2g")
    return key, value
