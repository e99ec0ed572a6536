"""The list of commands, and the one place where an error becomes a sentence and an exit code."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from poe.cli.bench import bench
from poe.cli.check import check
from poe.cli.exit_code import ExitCode
from poe.cli.output import write_error, write_line
from poe.cli.put import put
from poe.cli.read import read
from poe.cli.serve import serve_command
from poe.cli.status import status, topics
from poe.errors import PoeError
from poe.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence."""
    try:
        code = _application()(args=arguments, prog_name="poe", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "poe"
        write_error(f"{error.format_message().rstrip('.')}; see {command} --help")
        return ExitCode.USAGE
    except PoeError as error:
        write_error(str(error))
        return ExitCode.of(error)
    return int(code or ExitCode.OK)


def _application() -> typer.Typer:
    application = typer.Typer(
        help="A supervised, append-only topic server.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    application.callback(invoke_without_command=True)(_top)
    for command in (serve_command(), put, read, topics, status, check, bench):
        application.command()(command)
    return application


def _top(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """A supervised, append-only topic server: push binary messages, pull them by pointer."""
    if version:
        write_line(f"poe {VERSION}")
    elif context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)  # noqa: T201
        raise typer.Exit(ExitCode.USAGE)
