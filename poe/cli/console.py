"""`poe console`: the gateway with its console, for who looks at a node from this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from poe.cli.argument import named_as_typed
from poe.cli.exit_code import ExitCode
from poe.cli.gateway import begin, run
from poe.cli.parameters import LogLevelOption
from poe.errors import OptionError


def console(  # noqa: PLR0913 - as typer reads them
    *,
    broker: Annotated[
        str, typer.Option(metavar="URL", help="The node to look at.")
    ] = "poe://127.0.0.1:5555",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0: a free one.")] = 0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Look, and change nothing.")
    ] = False,
    destructive: Annotated[
        bool, typer.Option("--destructive", help="Allow to delete and to trim, too.")
    ] = False,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of the node's certificate.")
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Who looks.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its first line is the password.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its first line is a token, instead.")
    ] = None,
    log_level: LogLevelOption = "warning",
) -> ExitCode:
    """Show a node in a browser, until Ctrl-C; prints the URL to open, good for one browser.

    It listens on this machine alone. For others start `poe gateway --console` with TLS and
    --authentication bearer, where the node's own users log in.
    """
    if read_only and destructive:
        raise OptionError("--destructive", "given", "it or --read-only")
    begin(log_level)
    level = "read" if read_only else "destroy" if destructive else "operate"
    given: dict[str, Any] = {"broker": broker, "port": port, "console": True}
    entry = {"ca": ca, "user": user, "password_file": password_file, "token_file": token_file}
    given |= {name: value for name, value in entry.items() if value is not None}
    with named_as_typed(given):
        return run({**given, "console_level": level})
