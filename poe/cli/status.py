"""`poe topics` and `poe status`: turn what the server knows of its topics into lines or a table."""

import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

import typer

from poe.cli.argument import number
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.output import counted, is_terminal, write_line
from poe.cli.pipeline import status_lines, told_pipelines
from poe.errors import NotAuthorized, NotInCluster, RemoteProtocolError
from poe.protocol import Socket
from poe.topic_name import topic_text

_MICROSECONDS = 1_000_000
_INTERVAL_MAX_S = 86_400.0
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@asks_server
def topics(endpoint: Endpoint) -> None:
    """List all topics, one a line."""
    with endpoint.looking() as connection:
        for topic in connection.topics():
            write_line(topic_text(topic))


@asks_server
def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            parser=number("--interval", float, 0.1, _INTERVAL_MAX_S),
            help="Seconds between looks, with --watch.",
        ),
    ] = 1.0,
    endpoint: Endpoint,
) -> None:
    """Show each topic with the roles of its appendix servers.

    w is a writer, r a reader, h a hibernating reader. On a terminal it is a table with counts,
    bytes and the age of the newest message; else a line `TOPIC<tab>:ROLES` per topic. Below come
    the pipelines that report to the server, a line for each query, and how its cluster is.
    """
    with endpoint.looking() as connection:
        if is_terminal(sys.stdout):
            _show_tables(connection, interval if watch else None)
        else:
            _write_lines(connection)
            while watch:
                time.sleep(interval)
                write_line("")
                _write_lines(connection)


def _write_lines(connection: Socket) -> None:
    """Write the original's status."""
    for topic, servers in sorted(connection.status().items()):
        write_line(f"{topic_text(topic)}\t:{''.join(role for _, role in servers)}")
    for line in _node_lines(connection):
        write_line(line)


def _show_tables(connection: Socket, interval_s: float | None) -> None:
    """Show a table; renew it in place each interval, if there is one."""
    from rich.console import Console  # noqa: PLC0415 - for people only; a pipe need not load it
    from rich.live import Live  # noqa: PLC0415

    if interval_s is None:
        Console().print(_tables(connection))
        return
    with Live(_tables(connection), auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            live.update(_tables(connection), refresh=True)


def _tables(connection: Socket) -> Any:  # noqa: ANN401 - rich is loaded late
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = (Text(line.replace("\t", "  ")) for line in _node_lines(connection))
    return Group(TopicRows(_rows(connection)), *lines)


def _node_lines(connection: Socket) -> list[str]:
    """Return its pipelines, and what is wrong with the server as a whole, a line each.

    An older server does not tell, nor any one to whom may not know it.
    """
    lines = []
    with suppress(NotAuthorized):
        lines = status_lines(told_pipelines(connection))
    with suppress(NotAuthorized, NotInCluster, RemoteProtocolError):
        lines.append(_cluster_line(connection.control("cluster")))
    told = connection.control("health")
    troubles = [*filter(None, [told.get("refusal")]), *told.get("foreign", [])]
    return [*lines, *(f"server:\t{topic_text(each.encode())}" for each in troubles)]


def _cluster_line(told: dict[str, Any]) -> str:
    """Return how the part of the server in its cluster is."""
    live = f"{told['live']} of {told['members']} live"
    return (
        f"cluster:\t{told['cluster']}: {told['state']}, {live}, {counted(told['queues'], 'queue')}"
    )


def _rows(connection: Socket) -> list[tuple[str, ...]]:
    """Return topic, servers, messages, bytes and age of the newest, of each topic."""
    now_us = time.time_ns() // 1000
    rows: list[tuple[str, ...]] = []
    for topic, segments in sorted(connection.info().items()):
        count = sum(segment["count"] for segment in segments)
        size_bytes = sum(segment["size_bytes"] for segment in segments)
        newest = max((segment["pointer_high"] or 0 for segment in segments), default=0)
        newest_age = age(now_us - newest) if newest else "-"
        row = topic_text(topic), _roles(segments), f"{count:,}", f"{size_bytes:,}", newest_age
        rows.append(row)
    return rows


class TopicRows:
    """A table where there is room for it; else a few lines for each topic, so that all is told."""

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Any, options: Any) -> Any:  # noqa: ANN401 - rich's
        from rich.measure import Measurement  # noqa: PLC0415 - as above

        table = self._table()
        if Measurement.get(console, options, table).maximum < options.max_width:
            yield table
        else:
            yield from self._blocks()

    def _table(self) -> Any:  # noqa: ANN401 - rich is loaded late
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table("topic", "servers")
        for title in ("messages", "bytes", "newest"):
            table.add_column(title, justify="right")
        for topic, *cells in self._rows:
            table.add_row(Text(topic), *cells)
        return table

    def _blocks(self) -> Any:  # noqa: ANN401 - rich is loaded late
        from rich.padding import Padding  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        for topic, servers, count, size_bytes, newest in self._rows:
            yield Text(topic, style="bold", overflow="fold")
            lines = f"{servers}\n{count} messages\n{size_bytes} bytes\nnewest {newest}"
            yield Padding(Text(lines.lstrip("\n"), overflow="fold"), (0, 0, 0, 2))


def _roles(segments: list[dict[str, Any]]) -> str:
    """Shorten `hhhw` to `3h 1w`: a topic may have thousands."""
    counts = Counter(segment["role"] for segment in segments)
    return " ".join(f"{counts[role]}{role}" for role in "hrw" if counts[role])


def age(microseconds: int) -> str:
    """Return an age in the largest unit that fits; `now` below a second."""
    seconds = microseconds // _MICROSECONDS
    for unit_s, unit in _AGES:
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit} ago"
    return "now"
