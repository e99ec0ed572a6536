"""`poe cluster`: how a cluster is, who belongs to it, what came twice, whether copies agree."""

from datetime import datetime
from typing import Annotated, Any

import typer

from poe.cli.argument import topic_name
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.group import write_json
from poe.cli.output import counted, write_error, write_line
from poe.cli.topic import Format, FormatOption
from poe.errors.short_text import printable
from poe.topic_name import topic_text

_EVENTS_SHOWN = 20
_US = 1_000_000


def cluster_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Show a cluster and its nodes, forget nodes, compare copies.", no_args_is_help=True
    )
    application.command("status")(status)
    application.command("members")(members)
    application.command("forget")(forget)
    application.command("report")(report)
    application.command("logs")(logs)
    application.command("verify")(verify)
    application.command("move")(move)
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
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its name, or four digits or more of its id.")
    ],
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
        rows = connection.control("cluster_report", **arguments)
    for each in rows:
        if output_format is Format.JSON:
            write_json(each)
            continue
        since = _time(each["since_us"]) if each["since_us"] else "-"
        place = f"({each['after']}, {each['last']}]"
        nodes = " ".join(each["nodes"])
        fields = (each["group"], each["stream"], place, each["certainty"], each["cause"])
        names = "\t".join(map(printable, fields))
        write_line(f"{topic_text(each['queue'])}\t{names}\t{nodes}\t{since}")
    if not rows and output_format is Format.TEXT:
        write_error("nothing came twice, as far as this node knows")


@asks_server
def logs(
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show the engine of the replicated log, and the copies of a node, one partition a line.

    Partition, how its copy is, its place in the stream, puts that wait for a majority, and why.
    """
    with endpoint.looking() as connection:
        told = connection.control("cluster_logs")
        names = _names(connection)
    if output_format is Format.JSON:
        write_json(told)
        return
    engine = told["engine"]
    reached = [name for name, is_there in sorted(engine["nodes"].items()) if is_there]
    leader = names.get(engine["leader"], engine["leader"]) or "nobody: there is no majority"
    version = printable(engine["version"] or "not reached")
    write_line(
        f"engine {version}: led by {printable(leader)}, "
        f"{len(reached)} of {counted(len(engine['nodes']), 'node')}"
    )
    if engine["why"]:
        write_line(f"  {printable(engine['why'])}")
    coordinator = told.get("groups", {}).get("node")  # an older node does not tell
    if coordinator:
        write_line(f"groups of replicated topics: {printable(names.get(coordinator, coordinator))}")
    for topic, each in sorted(told["topics"].items()):
        fields = (each["state"], str(each["place"]), str(each["waiting"]), each["why"])
        write_line("\t".join([topic_text(topic), *map(printable, fields)]).rstrip())
    for topic, why in sorted(told["refused"].items()):
        write_line(f"{topic_text(topic)}\trefused\t{printable(why)}")


@asks_server
def verify(
    topic: Annotated[
        bytes | None,
        typer.Argument(metavar="TOPIC", parser=topic_name, help="This one alone."),
    ] = None,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Compare the copies of replicated topics with those of all other nodes, byte by byte.

    One partition and node a line: segments and messages that both have, and what is wrong. The exit
    code is 1 where copies differ.
    """
    arguments = {} if topic is None else {"topic": topic}
    with endpoint.looking() as connection:
        names = _names(connection)
    # It takes as long as reading all that there is.
    with endpoint.connect(timeout_s=None) as connection:
        told = connection.control("cluster_verify", **arguments)
    if output_format is Format.JSON:
        write_json(told)
    are_same = True
    for name, rows in sorted(told.items()):
        for row in rows:
            are_same = are_same and not row["differing"]
            if output_format is Format.TEXT:
                node = printable(names.get(row["node"], row["node"]))
                write_line(f"{topic_text(name)}\t{node}\t{_verdict(row)}")
    if not any(told.values()) and output_format is Format.TEXT:
        write_error("there is no replicated topic to compare")
    if not are_same:
        raise typer.Exit(1)


@asks_server
def move(
    topic: Annotated[
        bytes, typer.Argument(metavar="TOPIC", parser=topic_name, help="A replicated one.")
    ],
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its name, or four digits or more of its id.")
    ],
    *,
    endpoint: Endpoint,
) -> None:
    """Have a node lead a replicated topic, or one of its partitions.

    Puts go on after some milliseconds, where an election after a kill takes seconds: do so before
    you stop the node that leads. `poe cluster logs --format json` tells who does.
    """
    with endpoint.connect() as connection:
        connection.control("cluster_move", topic=topic, node=node)
    write_line(f"{topic_text(topic)} is led by {printable(node)}")


def _names(connection: Any) -> dict[str, str]:  # noqa: ANN401 - of either style
    """Return the names of nodes by what engines call them: the ids of their folders."""
    members = connection.control("cluster_members")
    return {each["id"].partition(".")[0]: each["name"] for each in members}


def _verdict(row: dict[str, Any]) -> str:
    """Say how a copy at another node compares."""
    if row.get("error"):
        return f"not compared: {printable(row['error'])}"
    compared = f"{counted(row['segments'], 'segment')}, {counted(row['messages'], 'message')}"
    if row["differing"]:
        return f"DIFFERENT in segments {', '.join(map(str, row['differing']))}, of {compared}"
    behind = row.get("behind", 0)
    return f"the same, {compared}" + (f", {behind} entries behind" if behind > 0 else "")


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / _US).astimezone().isoformat(sep=" ", timespec="seconds")
