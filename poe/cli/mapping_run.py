"""`poe mapping run`, `dry-run`, `stop`, `list` and `show`: mappings at work."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from poe.cli.endpoint import LOOK_TIMEOUT_S, Endpoint
from poe.cli.exit_code import ExitCode
from poe.cli.hangup import tell_hangups
from poe.cli.log import start_logging
from poe.cli.output import counted, write_error, write_line
from poe.cli.parameters import LogLevelOption
from poe.cli.pipeline import needs_spark, run_to_the_end
from poe.cli.topic import Format, FormatOption
from poe.errors import (
    CallTimeout,
    ConnectionClosed,
    OptionError,
    UnknownPipeline,
    UnknownTopic,
)
from poe.errors.short_text import printable
from poe.mapping import Columns, load
from poe.mapping.dry_run import DryRun, topics_of
from poe.mapping.message import columns_of
from poe.mapping.rule_set import Compiled
from poe.mapping.runner import Runner
from poe.mapping.station import RunOptions
from poe.mapping.watch import Watch
from poe.protocol import DescribedTopic, Socket
from poe.protocol.pipeline_report import PipelineReport, RuleReport
from poe.record import POINTER_MAX

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A mapping: .toml or .py.")]

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_PIECE_COUNT = 4096
_PATIENCE_S = 3.0
"""A server that has not answered for so long is told of."""
_STOP_S = 60.0
_LOOK_S = 0.2


class On(StrEnum):
    """Where a mapping is carried out."""

    HERE = "here"
    SPARK = "spark"


def run(  # noqa: PLR0913 - the options of a command
    file: FileArgument,
    *,
    may_repeat: Annotated[
        bool,
        typer.Option(
            "--may-repeat", help="Go on behind a kill with other rules; messages may come twice."
        ),
    ] = False,
    on: Annotated[
        On, typer.Option(help="Processes of its own, or Spark, without order between partitions.")
    ] = On.HERE,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Of Spark: local[2], spark://HOST:7077 …")
    ] = "local[2]",
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Of Spark; FILE.checkpoints without it.")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="On Spark: work on what is there, and end.")
    ] = False,
    log_level: LogLevelOption = "warning",
    endpoint: Endpoint,
) -> ExitCode:
    """Carry out a mapping until Ctrl-C: each message once, whatever is killed meanwhile.

    Start as many as you like, anywhere: they share the partitions. With several nodes of a cluster
    in --url it goes on at the next one where one dies; all its topics are replicated then.

    When the file changes, its rules hold from the next batch on; a wrong one is told, and changes
    nothing. On Spark the same rules are applied by its executors, each message once by Spark's
    checkpoint; functions, retries and stop are not for Spark.
    """
    start_logging(log_level)
    if on is On.SPARK:
        rules = load(file)
        try:
            from poe.mapping.on_spark import pipeline_of  # noqa: PLC0415 - needs Spark
        except ModuleNotFoundError as error:
            raise needs_spark(error) from error
        pipeline = pipeline_of(rules, checkpoint or f"{file}.checkpoints")
        return run_to_the_end(
            pipeline, endpoint, master=master, available_now=available_now, config={}
        )
    tell_hangups()
    watch = Watch(file)
    rules, options = watch.rules, RunOptions(may_repeat=may_repeat)
    where = endpoint.url.partition("://")[2]
    with Runner(rules, endpoint.url, options, watch, **endpoint.options) as runner:
        if not runner.wait_ready(_PATIENCE_S):
            write_error(f"no answer from {where} yet; waits until there is one")
            runner.wait_ready()
        if runner.station.has_joined:
            write_line(f"mapping {printable(rules.name)} runs on {where}")
        runner.join()
    return ExitCode.OK


def dry_run(
    file: FileArgument,
    *,
    since: Annotated[
        str,
        typer.Option("--from", metavar="AGO", help="30s, 10m, 2h, 1d ago; 0s: from the oldest on."),
    ] = "10m",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Messages to look at.")] = 10_000,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Tell what a mapping would do with messages that are there; nothing is put.

    Functions are called.
    """
    match = _AGO.fullmatch(since)
    if match is None:
        raise OptionError("--from", since, "30s, 10m, 2h or 1d ago, or 0s: from the oldest on")
    ago_s = int(match[1]) * _UNITS_S[match[2]]
    pointer = max(0, round((time.time() - ago_s) * 1e6)) if ago_s else 0
    compiled = load(file).compile()
    found = DryRun(compiled)
    with endpoint.looking() as connection:
        for batch in _messages(connection, compiled, pointer):
            found.take(batch.head(limit - found.looked))
            if found.looked >= limit:
                break
    told = found.told()
    if output_format is Format.JSON:
        write_line(json.dumps(told, ensure_ascii=False))
        return
    write_line(counted(told["messages"], "message"))
    for row in told["rules"]:
        write_line(f"rule {printable(row['rule'])}\t{row['action']}\t{row['messages']}")
    for topic, count in told["targets"].items():
        write_line(f"topic {printable(topic)}\t{count}")
    for reason, count in told["reasons"].items():
        write_line(f"{count} times\t{printable(reason)}")


def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the mapping.")],
    *,
    endpoint: Endpoint,
) -> ExitCode:
    """Stop a mapping, wherever it runs: each batch that is under way is ended before.

    Waits until it has stopped, for a minute.
    """
    deadline_s = time.monotonic() + _STOP_S
    running = _ask_to_stop(endpoint, name)
    if not running:
        return _none_runs(name)
    # One that goes on at another node is asked there.
    while left := running & _ask_to_stop(endpoint, name):
        if time.monotonic() > deadline_s:
            where = ", ".join(sorted(each.rsplit(" ", 1)[1] for each in left))
            write_error(f"{name!r} has not stopped within {_STOP_S:.0f} s on {where}")
            return ExitCode.FAILURE
        time.sleep(_LOOK_S)
    write_line(f"{printable(name)}\tstopped")
    return ExitCode.OK


def list_mappings(*, output_format: FormatOption = Format.TEXT, endpoint: Endpoint) -> None:
    """List the mappings that report to a server: name, state, where they run, partitions."""
    for told in _told(endpoint):
        name, where = told["name"].rsplit(" ", 1)
        row = {
            "name": name,
            "state": _state(told),
            "process": where,
            "partitions": len(told["queries"]),
            "age_s": told["age_s"],
        }
        if output_format is Format.JSON:
            write_line(json.dumps(row, ensure_ascii=False))
        else:
            parts = counted(row["partitions"], "partition")
            age = f"{told['age_s']:.0f} s ago"
            write_line("\t".join(map(printable, (name, row["state"], where, parts, age))))


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the mapping.")],
    *,
    rules: Annotated[
        bool, typer.Option("--rules", help="Rule by rule: how many have met it, and what became.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> ExitCode:
    """Show what a mapping does, partition by partition: state, rate, lag, and why it waits."""
    found = [each for each in _told(endpoint) if _name(each) == name]
    if not found:
        return _none_runs(name)
    for told in found:
        where = told["name"].rsplit(" ", 1)[1]
        report = PipelineReport.from_map(told)
        if rules:
            _show_rules(where, report.rules, output_format)
            continue
        for unit in report.queries:
            if output_format is Format.JSON:
                row = {"process": where, "unit": unit.name, "state": unit.state}
                row |= {"per_s": unit.rows_per_s, "lag_s": unit.lag_s, "reason": unit.last_error}
                write_line(json.dumps(row, ensure_ascii=False))
            else:
                cells = [where, unit.name, unit.state, unit.summary("messages")]
                cells += [unit.last_error] if unit.last_error else []
                write_line("\t".join(map(printable, cells)))
    return ExitCode.OK


def _show_rules(where: str, rules: Sequence[RuleReport], output_format: Format) -> None:
    for rule in rules:
        if output_format is Format.JSON:
            write_line(json.dumps({"process": where, **asdict(rule)}, ensure_ascii=False))
            continue
        counts = ", ".join(f"{name} {count}" for name, count in sorted(rule.counts.items()))
        cells = [where, rule.name, rule.what, f"{rule.per_s:.0f} messages/s", counts]
        write_line("\t".join(map(printable, cells)).rstrip())


def _told(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return what the servers of the url know of mappings, of each process the newest."""
    newest: dict[str, dict[str, Any]] = {}
    for _, told in _reports(endpoint):
        for each in told:
            known = newest.get(each["name"])
            if known is None or each["age_s"] < known["age_s"]:
                newest[each["name"]] = each
    return [each for _, each in sorted(newest.items())]


def _ask_to_stop(endpoint: Endpoint, name: str) -> set[str]:
    """Ask the processes that run a mapping to stop, and return what they call themselves."""
    asked = set()
    for connection, told in _reports(endpoint):
        for each in told:
            if _name(each) == name and each["state"] == "running":
                with suppress(UnknownPipeline):  # it has just ended by itself
                    connection.control("pipeline_stop", name=each["name"])
                asked.add(each["name"])
    return asked


def _reports(endpoint: Endpoint) -> Iterator[tuple[Socket, list[dict[str, Any]]]]:
    """Yield what each server of the url knows of mappings, and a connection to it.

    Raises:
        PoeError: none of them can be asked.
    """
    if not endpoint.others:
        with endpoint.looking() as connection:
            yield connection, _told_by(connection)
        return
    reached = 0
    for connection in endpoint.all_reached():
        try:
            told = _told_by(connection)
        except (CallTimeout, ConnectionClosed):  # it is frozen, or has just died
            continue
        reached += 1
        yield connection, told
    if not reached:
        endpoint.connect(LOOK_TIMEOUT_S).close()


def _told_by(connection: Socket) -> list[dict[str, Any]]:
    return [each for each in connection.control("pipelines") if each.get("kind") == "mapping"]


def _name(told: Mapping[str, Any]) -> str:
    """Return the name of a mapping, without where it runs."""
    return str(told["name"]).rsplit(" ", 1)[0]


def _none_runs(name: str) -> ExitCode:
    write_error(f"no mapping {name!r} runs; see `poe mapping list`")
    return ExitCode.FAILURE


def _state(told: dict[str, Any]) -> str:
    """Return the state that asks for most attention."""
    if told["state"] != "running":
        return str(told["state"])
    states = {each["state"] for each in told["queries"]}
    order = ("waiting", "retrying", "starting", "running", "idle")
    return next((each for each in order if each in states), "running")


def _messages(connection: Socket, compiled: Compiled, pointer: int) -> Iterator[Columns]:
    """Yield messages of all topics that a mapping reads, from a pointer on."""
    for topic in _topics(connection, compiled):
        for partition in topic.partitions:
            behind = pointer
            while True:
                records = connection.read_range(partition.topic, behind, POINTER_MAX, _PIECE_COUNT)
                if not len(records):
                    break
                pointers = records.pointers.tolist()
                behind = pointers[-1]
                values = records.messages()
                yield columns_of(
                    topic.name, pointers, values, is_enveloped=topic.properties.envelope
                )


def _topics(connection: Socket, compiled: Compiled) -> list[DescribedTopic]:
    found = topics_of(compiled, connection.topic_names())
    if not found:
        raise UnknownTopic(", ".join(compiled.rules.source.topics).encode())
    return [connection.describe(each) for each in found]
