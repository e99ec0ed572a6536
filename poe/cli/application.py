"""The list of commands, and the one place where an error becomes a sentence and an exit code."""

import sys
from collections.abc import Sequence

import typer

from poe.cli.exit_code import ExitCode
from poe.cli.serve import serve_command
from poe.errors import PoeError

def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence."""
    try:
        code = _application()(args=arguments, prog_name="poe", standalone_mode=False)
    except typer.TyperException as error:
        return _fail(error.format_message(), ExitCode.USAGE)
    except PoeError as error:
        return _fail(str(error), ExitCode.of(error))
    return int(code or ExitCode.OK)


def _application() -> typer.Typer:
    application = typer.Typer(
        name="poe",
        help="A supervised, append-only topic server.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    application.callback()(lambda: None)
    application.command("serve")(serve_command())
    return application


def _fail(message: str, code: ExitCode) -> ExitCode:
    print(f"poe: {message}", file=sys.stderr)  # noqa: T201
    return code
