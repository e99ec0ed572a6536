"""`poe cluster`: tells how a cluster is, who belongs to it, and what came twice; forgets nodes."""

from datetime import datetime
from typing import Annotated

import typer

from poe.cli.argument import topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.group import printable, write_json
from poe.cli.output import counted, write_line
from poe.cli.topic import Format, FormatOption
from poe.topic_name import topic_text

_EVENTS_SHOWN = 20
_US = 1_000_000


def cluster_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Show a cluster and its nodes, and forget nodes.", no_args_is_help=True
    )
    application.command("status")(status)
    application.command("members")(members)
    application.command("forget")(forget)
    application.command("report")(report)
    return application


@asks_server
def status(
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show how a node and its cluster are, what was counted, and what has happened lately."""
    with endpoint.looking() as connection:
        told = connection.control("cluster")
    if output_format is Format.JSON:
        write_json(told)
        return
    write_line(
        f"cluster {printable(told['cluster'])}: {told['live']} of "
        f"{counted(told['members'], 'member')} live, {counted(told['queues'], 'queue')}, "
        f"{counted(told['groups'], 'group')}"
    )
    zone = f", zone {printable(told['zone'])}" if told["zone"] else ""
    write_line(
        f"this node: {printable(told['name'])} at {told['locator']}{zone}, "
        f"id {told['node']}, {told['state']}"
    )
    if told["why"]:
        write_line(f"  {printable(told['why'])}")
    for name, count in [*told["counts"].items(), *sorted(told["fabric"].items())]:
        if count:
            write_line(f"  {printable(name)}: {count}")
    for at_us, kind, detail in told["events"][-_EVENTS_SHOWN:]:
        write_line(f"{_time(at_us)}  {printable(kind)}: {printable(detail)}")


@asks_server
def members(
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """List the nodes of a cluster, one a line: id, name, state, whether it lives, place, zone.

    A node stays a member while it is down, since what it holds comes back with it; until it is
    forgotten.
    """
    with endpoint.looking() as connection:
        for each in connection.control("cluster_members"):
            if output_format is Format.JSON:
                write_json(each)
                continue
            fields = (each[key] for key in ("id", "name", "state", "liveness", "locator", "zone"))
            write_line("\t".join(map(printable, fields)))


@asks_server
def forget(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name, or how its id begins.")],
    *,
    endpoint: Endpoint,
) -> None:
    """Forget a node that is down and will not come back.

    Nobody waits any more for what it holds. Should it start again it is refused, until
    node.identity and node.members are removed from its folder.
    """
    with endpoint.connect() as connection:
        told = connection.control("cluster_forget", node=node)
    write_line(f"node {printable(told['name'])} ({told['id']}) is forgotten")


@asks_server
def report(
    *,
    queue: Annotated[
        bytes | None,
        typer.Option("--queue", metavar="QUEUE", parser=topic_name, help="Of this queue alone."),
    ] = None,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """List what came to clients more than once, or may have, one range a line.

    Queue, group, stream, pointers, how sure that is, why, the two nodes, and since when.
    """
    arguments = {} if queue is None else {"topic": queue}
    with endpoint.looking() as connection:
        for each in connection.control("cluster_report", **arguments):
            if output_format is Format.JSON:
                write_json(each)
                continue
            since = _time(each["since_us"]) if each["since_us"] else "-"
            place = f"({each['after']}, {each['last']}]"
            nodes = " ".join(each["nodes"])
            fields = (each["group"], each["stream"], place, each["certainty"], each["cause"])
            names = "\t".join(map(printable, fields))
            write_line(f"{topic_text(each['queue'])}\t{names}\t{nodes}\t{since}")


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / _US).astimezone().isoformat(sep=" ", timespec="seconds")
