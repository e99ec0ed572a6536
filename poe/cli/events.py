"""`poe events`: what has happened in a server lately, and why."""

from typing import Annotated

import typer

from poe.cli.argument import number
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.group import write_json
from poe.cli.output import check_reader, write_line
from poe.cli.topic import Format, FormatOption
from poe.errors import OptionError
from poe.errors.short_text import printable
from poe.protocol import Socket
from poe.protocol.node_event import NodeEvent, Why, why

_WAIT_S = 20.0


@asks_server
def events(
    *,
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="SEQ", parser=number("--after", int, 0),
            help="Only what has happened behind this event.",
        ),
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    asked: Annotated[
        int | None,
        typer.Option(
            "--why", metavar="SEQ", parser=number("--why", int, 1),
            help="Tell what led to this event, and nothing else.",
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
    endpoint: Endpoint,
) -> None:  # fmt: skip
    """Show what has happened in a server since it started, oldest first, one event a line.

    Crashes and restarts of its parts, what took whom with it, topics repaired or read-only, who has
    deleted what, logins refused. Each line begins with the event's number, which --why takes. Of
    long ago, the older ones are forgotten: 10 000 are kept.
    """
    if asked is not None and (follow or after):
        raise OptionError("--why", asked, "alone, without --follow and --after")
    with endpoint.connect() as connection:
        if asked is not None:
            found = _why(connection, asked)
            if output_format is Format.JSON:
                chain = [each.as_map() for each in found.chain]
                write_json({"why": str(found), "is_whole": found.is_whole, "chain": chain})
            else:
                write_line(printable(str(found)))
            return
        _show(connection, after, output_format, is_followed=follow)


def _show(connection: Socket, after: int, output_format: Format, *, is_followed: bool) -> None:
    while True:
        if is_followed:
            check_reader()
        page = connection.events(after, wait_s=_WAIT_S if is_followed else 0.0)
        if after and page.newest_seq < after:
            after = 0  # the server was started anew, and counts from 1
            continue
        for each in page.events:
            if output_format is Format.JSON:
                write_json(each.as_map())
            else:
                write_line(f"{each.seq}\t{printable(str(each))}{_cause(each)}")
        after = page.events[-1].seq if page.events else after
        if not is_followed and after >= page.newest_seq:
            return


def _cause(event: NodeEvent) -> str:
    return "" if event.cause_seq is None else f", because of {event.cause_seq}"


def _why(connection: Socket, seq: int) -> Why:
    """Return what led to an event.

    Raises:
        OptionError: there is none, or it is forgotten.
    """
    known: list[NodeEvent] = []
    while True:
        page = connection.events(known[-1].seq if known else 0)
        known += page.events
        if not page.events or known[-1].seq >= min(seq, page.newest_seq):
            break
    found = why(known, seq)
    if found is None:
        allowed = f"one of {page.oldest_seq} to {page.newest_seq}, as `poe events` lists them"
        raise OptionError("--why", seq, allowed)
    return found
