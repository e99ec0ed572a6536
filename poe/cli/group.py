"""`poe group`: shows groups and how far they are, moves, pauses and deletes them."""

import json
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from poe.cli.argument import number, topic_name
from poe.cli.delete import says_yes
from poe.cli.endpoint import CALL_TIMEOUT_S, Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, is_terminal, write_error, write_line
from poe.cli.topic import Format, FormatOption
from poe.errors import ConfigError, CorruptGroup, OptionError
from poe.errors.short_text import printable
from poe.protocol import Socket
from poe.record import POINTER_MAX
from poe.topic_name import topic_text

_PLACES = "oldest, newest, a time such as 2026-07-01T12:00, or with --unit a pointer"

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
UnitOption = Annotated[
    list[bytes] | None,
    typer.Option(
        "--unit",
        metavar="TOPIC",
        parser=topic_name,
        help="The topic of a partition; may be repeated. All without it.",
    ),
]


def group_application() -> typer.Typer:
    """Return the commands, for typer to read."""
    application = typer.Typer(
        help="Show groups of consumers, and move, pause and delete them.", no_args_is_help=True
    )
    application.command("list")(list_groups)
    application.command("show")(show)
    application.command("lag")(lag)
    application.command("reset")(reset)
    application.command("pause")(pause)
    application.command("resume")(resume)
    application.command("delete")(delete)
    return application


@asks_server
def list_groups(
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """List groups, one a line: name, mode and topics."""
    with endpoint.looking(CALL_TIMEOUT_S) as connection:
        for each in connection.control("groups"):
            if output_format is Format.JSON:
                write_json(each)
            else:
                topics = ", ".join(map(topic_text, each["topics"]))
                write_line(f"{each['group']}\t{each['mode']}\t{topics}")


@asks_server
def show(
    group: GroupArgument,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show a group: its state, members, units, and what has happened lately, and why."""
    with endpoint.looking(CALL_TIMEOUT_S) as connection:
        told = connection.control("group", group=group)
    if output_format is Format.JSON:
        write_json(told)
        return
    write_line(f"{told['name']}\t{told['mode']}\t{told['state']}")
    if told.get("full"):
        write_line(f"  full: {_words(told['full'])}")
    # By the clock of who has told it; an older one does not tell the time.
    now_us = told.get("now_us", time.time_ns() // 1000)
    for member in told["members"]:
        fields = member["name"], _member(member, told["mode"], now_us)
        write_line("\t".join(["member", *map(printable, fields)]))
    hidden = {None, 0} if told["mode"] == "shared" else {None}
    names = {member["id"]: member["name"] for member in told["members"]}
    for unit in told["units"]:
        cells = {key: unit[key] for key in unit if key != "unit" and unit[key] not in hidden}
        if "owner" in cells:
            cells["owner"] = names.get(cells["owner"], "")
        write_line(f"unit\t{topic_text(unit['unit'])}\t{_words(cells)}")
    for time_us, kind, text in told["events"]:
        at = datetime.fromtimestamp(time_us / 1e6).astimezone()
        write_line(f"{at:%Y-%m-%d %H:%M:%S}\t{kind}\t{printable(text)}")


@asks_server
def lag(
    group: GroupArgument,
    *,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Show how far behind a group is in each unit: messages, and seconds since the oldest came."""
    with endpoint.looking(CALL_TIMEOUT_S) as connection:
        units = connection.control("group_lag", group=group)
    for unit, told in sorted(units.items()):
        if output_format is Format.JSON:
            write_json({"unit": unit, **told})
        else:
            held = f"{counted(told['messages'], 'message')}\t{told['seconds']:.1f} s"
            write_line(f"{topic_text(unit)}\t{held}")


@asks_server
def reset(  # noqa: PLR0913 - a command line option each
    group: GroupArgument,
    *,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help=_PLACES)],
    units: UnitOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would move.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it has members, which then begin anew.")
    ] = False,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:
    """Have a group go on from another place, and tell how many messages that skips or repeats."""
    place = _place(to, units)
    with endpoint.connect() as connection:
        arguments = {"to": place, "units": units or [], "dry": dry_run, "force": force}
        moved = connection.control("group_reset", group=group, **arguments)
    for unit, (old, new, distance) in sorted(moved.items()):
        if output_format is Format.JSON:
            write_json({"unit": unit, "old": old, "new": new, "messages": distance})
            continue
        before = "nowhere" if old is None else old
        told = f"skips {counted(distance, 'message')}"
        if distance <= 0:
            told = f"repeats {counted(-distance, 'message')}"
        write_line(f"{topic_text(unit)}\t{before} to {new}\t{told}")
    if dry_run and output_format is Format.TEXT:
        write_line("nothing was moved")


@asks_server
def pause(group: GroupArgument, endpoint: Endpoint) -> None:
    """Have a group hand nothing out; what is held may be finished."""
    with endpoint.connect() as connection:
        connection.control("group_pause", group=group)


@asks_server
def resume(group: GroupArgument, endpoint: Endpoint) -> None:
    """Have a group go on that was paused."""
    with endpoint.connect() as connection:
        connection.control("group_resume", group=group)


@asks_server
def delete(
    group: GroupArgument,
    *,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if it has members.")] = False,
    endpoint: Endpoint,
) -> ExitCode:
    """Delete a group, with all that it knows of how far it is; its topics stay."""
    if not is_confirmed and not is_terminal(sys.stdin):
        msg = "there is no terminal to ask on; give --yes to delete the group"
        raise ConfigError(msg)
    with endpoint.connect() as connection:
        what = f"group {group}, {_members(connection, group)}"
        if not is_confirmed and not says_yes(f"delete {what}?"):
            write_error("nothing was deleted")
            return ExitCode.FAILURE
        connection.control("group_delete", group=group, force=force)
    write_line(f"{what}: deleted")
    return ExitCode.OK


def _members(connection: Socket, group: str) -> str:
    """Say how many members a group has; one that is damaged can only be deleted."""
    try:
        told = connection.control("group", group=group)
    except CorruptGroup:
        return "damaged"
    return counted(len(told["members"]), "member")


def plain(value: Any) -> Any:  # noqa: ANN401 - as a server tells it
    """Return what a server has told as JSON can hold it: names as text, ids in hexadecimal."""
    if isinstance(value, dict):
        return {
            str(plain(key)): each.hex() if key == "id" and isinstance(each, bytes) else plain(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return topic_text(value) if isinstance(value, bytes) else value


def write_json(value: dict[str, Any]) -> None:
    """Write what a server tells as a line of JSON."""
    write_line(json.dumps(plain(value), ensure_ascii=False))


def _place(text: str, units: list[bytes] | None) -> object:
    """Return where to go on, as the protocol has it.

    Raises:
        OptionError: it is no place.
    """
    if text in {"oldest", "newest"}:
        return text
    if text.isdecimal() and units:
        return dict.fromkeys(units, number("--to", int, 0, POINTER_MAX)(text))
    try:
        time_us = max(0, int(datetime.fromisoformat(text).timestamp() * 1_000_000))
    except (ValueError, OverflowError) as error:
        raise OptionError("--to", text, _PLACES) from error
    if time_us > POINTER_MAX:
        raise OptionError("--to", text, _PLACES)
    return {"time_us": time_us}


def _member(member: dict[str, Any], mode: str, now_us: int) -> str:
    """Say what a member has, at a time by the clock of the node that has told it."""
    instance = f" (instance {member['instance']})" if member.get("instance") else ""
    if mode == "ordered":
        return ", ".join(map(topic_text, member.get("units", ()))) + instance
    held = f"{member['messages']} messages in {counted(member['leases'], 'lease')}"
    if member.get("since_us"):
        held += f", the oldest for {max(0, now_us - member['since_us']) / 1e6:.0f} s"
    return held + instance


def _words(cells: Any) -> str:  # noqa: ANN401 - as a server tells it
    if isinstance(cells, dict):
        words = (f"{key.replace('_', ' ')} {plain(each)}" for key, each in cells.items())
        return printable(", ".join(words))
    return printable(str(plain(cells)))
