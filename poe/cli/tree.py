"""`poe tree`: the actors of a server as they are now, for people and for programs."""

import json
from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server
from poe.cli.output import write_line
from poe.errors import RemoteProtocolError
from poe.supervision import TreeRow, render_tree

_FIELDS = {field.name for field in fields(TreeRow)}


@asks_server
def tree(
    *,
    all_rows: Annotated[
        bool, typer.Option("--all", help="List each actor, however many are alike.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per line instead of a table.")
    ] = False,
    endpoint: Endpoint,
) -> None:
    """Show the supervision tree of a server.

    A line for each actor: its id in its supervisor, its name and reference, the strategy of a
    supervisor, state, restarts, messages that wait for it, and why it last crashed. Of many
    children those come first of which there is something to tell, and the rest is summed up.
    """
    with endpoint.looking() as connection:
        try:
            answer = connection.control("tree", all=all_rows)
        except RemoteProtocolError as error:
            if "is unknown" not in str(error):
                raise
            msg = "this server is older than `poe tree` and cannot answer it; use `poe status`"
            raise RemoteProtocolError(msg) from error
    rows = [_row(each) for each in answer]
    lines = (json.dumps(asdict(row)) for row in rows) if as_json else render_tree(rows)
    for line in lines:
        write_line(line)


def _row(values: dict[str, Any]) -> TreeRow:
    """Make a row from what came; a newer server may tell more."""
    return TreeRow(**{name: value for name, value in values.items() if name in _FIELDS})
