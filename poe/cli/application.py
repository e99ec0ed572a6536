"""The list of commands, and the one place where an error becomes a sentence and an exit code."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from poe.cli.archive import archive
from poe.cli.bench import bench
from poe.cli.check import check
from poe.cli.delete import delete, trim
from poe.cli.exit_code import ExitCode
from poe.cli.gateway import gateway_command
from poe.cli.interrupt import Interrupt
from poe.cli.output import (
    OutputFailed,
    ReaderGone,
    discard,
    occupy_closed_descriptors,
    write_error,
    write_line,
)
from poe.cli.pipeline import pipeline_application
from poe.cli.put import put
from poe.cli.read import read
from poe.cli.sentence import sentence_of
from poe.cli.serve import serve_command
from poe.cli.status import status, topics
from poe.cli.tree import tree
from poe.cli.unlock import unlock
from poe.errors import PoeError
from poe.version import VERSION


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence."""
    interrupt = Interrupt()
    try:
        with interrupt:
            occupy_closed_descriptors()
            code = _application()(args=arguments, prog_name="poe", standalone_mode=False)
    except KeyboardInterrupt:
        return interrupt.exit_code
    except (typer.TyperException, PoeError, OutputFailed, OSError) as error:
        return _tell(error)
    # typer turns KeyboardInterrupt into 130, whatever the signal was.
    if interrupt.number is not None and code == ExitCode.INTERRUPTED:
        return interrupt.exit_code
    return int(code or ExitCode.OK)


def _tell(error: Exception) -> ExitCode:
    """Tell an error that ended a command, and return its exit code."""
    match error:
        case ReaderGone():
            return ExitCode.OK
        case OutputFailed():
            write_error(str(error))
            return ExitCode.OUTPUT_FAILED
        case PoeError():
            write_error(sentence_of(error))
            return ExitCode.of(error)
        case OSError():
            # typer prints the help, and its disk may be full; nothing else is known to come here.
            discard(sys.stdout)
            write_error(sentence_of(error))
            return ExitCode.FAILURE
        case _:
            command = getattr(getattr(error, "ctx", None), "command_path", "poe")
            told = error.format_message() if isinstance(error, typer.TyperException) else str(error)
            write_error(f"{told.rstrip('.')}; see {command} --help")
            return ExitCode.USAGE


def _application() -> typer.Typer:
    application = typer.Typer(
        help="A supervised, append-only topic server.",
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    application.callback(invoke_without_command=True)(_top)
    client_commands = put, read, topics, status, tree, trim, delete
    for command in (
        serve_command(),
        *client_commands,
        check,
        unlock,
        archive,
        gateway_command(),
        bench,
    ):
        application.command()(command)
    application.add_typer(pipeline_application(), name="pipeline")
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
