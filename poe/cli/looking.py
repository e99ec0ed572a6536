"""`poe counters`, `poe connections`, `poe config`: what a server has done, for whom, and how."""

from typing import Annotated, Any

import typer

from poe.cli.argument import number
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.group import write_json
from poe.cli.output import counted, write_line
from poe.cli.status import age
from poe.cli.topic import Format, FormatOption
from poe.errors.short_text import printable
from poe.topic_name import topic_text

_ROWS_USUAL = 20


@asks_server
def counters(
    *,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="COUNT", parser=number("--limit", int, 0),
            help="How many topics to show: those that carry most; 0 shows all.",
        ),
    ] = _ROWS_USUAL,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:  # fmt: skip
    """Show what a server and its topics have done since it started.

    Numbers only grow: whoever wants rates looks twice. A line for each thing that is counted of the
    node, then one for each topic: messages and bytes put, messages and bytes read, requests
    refused. Of the node only its administrators are told.
    """
    with endpoint.looking() as connection:
        told = connection.counters()
    if output_format is Format.JSON:
        write_json(told)
        return
    for name, value in told["node"].items():
        write_line(f"{name}:\t{_shown(value)}")
    busiest = sorted(told["topics"].items(), key=lambda row: _carried(row[1]), reverse=True)
    shown = busiest[: limit or None]
    for topic, row in shown:
        columns = [row[name] for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")]
        numbers = "\t".join(map(str, columns))
        write_line(f"{topic_text(topic)}\t{numbers}\t{_shown(row['refused'])}")
    left = len(busiest) - len(shown)
    if left:
        write_line(f"and {counted(left, 'topic')} more; --limit 0 shows all")


@asks_server
def connections(
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """List who is connected, oldest first: address, user, since, bytes in and out, what waits.

    `slow` is a client that does not take what is sent to it.
    """
    with endpoint.looking() as connection:
        rows = connection.connections()
    # The newest one is that of this command: it tells the time by the server's clock.
    now_us = max((row["since_us"] for row in rows), default=0)
    for row in rows:
        if output_format is Format.JSON:
            write_json(row)
            continue
        slow = "slow" if row["unsent_bytes"] else "-"
        fields = [row["address"] or "-", row["user"] or "-", age(now_us - row["since_us"])]
        fields += [
            "-" if row[name] is None else str(row[name]) for name in ("bytes_in", "bytes_out")
        ]
        write_line("\t".join(map(printable, [*fields, str(row["in_flight_bytes"]), slow])))


@asks_server
def config(
    *,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not at its default.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show the options that a server goes by, one a line: name, value, and where it came from."""
    with endpoint.looking() as connection:
        told = connection.config()
    found = {name: row for name, row in told.items() if not changed or row["from"] != "default"}
    if output_format is Format.JSON:
        write_json(found)
        return
    for name, row in sorted(found.items()):
        write_line(f"{name}\t{_shown(row['value'])}\t{printable(row['from'])}")


def _carried(row: dict[str, Any]) -> int:
    return int(row["bytes_in"] + row["bytes_out"])


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{printable(str(name))} {each}" for name, each in value.items()) or "-"
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "-"
    return printable(str(value))
