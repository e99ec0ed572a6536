"""The list of commands, and the one place where an error becomes a sentence and an exit code.

A command is loaded when it is asked for: all of them take longer than most take to run.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from poe.cli.exit_code import ExitCode
from poe.cli.interrupt import Interrupt
from poe.cli.option_help import is_help_asked
from poe.cli.output import (
    OutputFailed,
    ReaderGone,
    discard,
    escape_what_has_no_character,
    is_reader_gone,
    occupy_closed_descriptors,
    write_error,
    write_line,
)
from poe.cli.sentence import sentence_of
from poe.errors import PoeError
from poe.version import VERSION

_COMMANDS: Final = {
    "serve": "serve:serve_command()",
    "put": "put:put",
    "read": "read:read",
    "topic": "topic:topic_application()",
    "topics": "status:topics",
    "group": "group:group_application()",
    "queue": "queue:queue_application()",
    "work": "work:work",
    "cluster": "cluster:cluster_application()",
    "status": "status:status",
    "tree": "tree:tree",
    "events": "events:events",
    "counters": "looking:counters",
    "connections": "looking:connections",
    "config": "looking:config",
    "search": "search:search",
    "trim": "delete:trim",
    "delete": "delete:delete",
    "check": "check:check",
    "unlock": "unlock:unlock",
    "archive": "archive:archive",
    "gateway": "gateway:gateway_command()",
    "console": "console:console",
    "bench": "bench:bench",
    "pipeline": "pipeline:pipeline_application()",
    "mapping": "mapping:mapping_application()",
    "certificates": "certificates:certificates",
    "user": "user:user_application()",
    "grant": "grant:grant",
    "grants": "grant:grants",
    "reload": "login:reload",
    "login": "login:login",
    "logout": "login:logout",
}
"""Module and function of each; one with parentheses makes it."""

_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; errors are told on stderr in one sentence."""
    occupy_closed_descriptors()
    escape_what_has_no_character()
    # Before: an interrupt that is raised while modules are loaded may get lost there.
    application = _application(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        gc.freeze()  # what was loaded stays
        gc.enable()
    interrupt = Interrupt()
    try:
        with interrupt:
            code = application(args=arguments, prog_name="poe", standalone_mode=False)
    except KeyboardInterrupt:
        return interrupt.exit_code
    except SystemExit as ended:
        # So typer ends, which wraps standard output, where nobody reads its help any more.
        is_pipe = isinstance(ended.__context__, BrokenPipeError)
        if not (is_pipe and is_reader_gone(sys.__stdout__)):
            raise
        return ExitCode.OK
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
            is_help = told.startswith("Usage:")  # of a group, whose command is missing
            hint = f"; see {command} --help"
            write_error(f"a command is missing\n\n{told}" if is_help else told.rstrip(".") + hint)
            return ExitCode.USAGE


def _application(arguments: Sequence[str]) -> typer.Typer:
    application = typer.Typer(
        help="A supervised, append-only topic server.",
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    application.callback(invoke_without_command=True)(_top)
    before = is_help_asked.set("--help" in arguments or _is_completion())
    for name in _wanted(arguments):
        made = _load(_COMMANDS[name])
        if isinstance(made, typer.Typer):
            application.add_typer(made, name=name)
        else:
            application.command(name)(made)
    is_help_asked.reset(before)
    return application


def _wanted(arguments: Sequence[str]) -> Sequence[str]:
    """Return the commands that these arguments may be about."""
    if list(arguments) == ["--version"]:
        return ()
    first = arguments[0] if arguments else ""
    return [first] if first in _COMMANDS and not _is_completion() else list(_COMMANDS)


def _is_completion() -> bool:
    """Return whether a shell asks what could be typed, which it does with no arguments."""
    return "_POE_COMPLETE" in os.environ


def _load(place: str) -> Callable[..., Any] | typer.Typer:
    module, _, name = place.partition(":")
    with _one_thread_of_blas():
        found: Callable[..., Any] = getattr(import_module(f"poe.cli.{module}"), name.rstrip("()"))
    return found() if name.endswith("()") else found


@contextlib.contextmanager
def _one_thread_of_blas() -> Iterator[None]:
    """Have numpy loaded without the threads of its linear algebra, of which nothing here is asked.

    When they have begun they look for work for 0.1 s, without a rest, which on two slow processors
    is a fifth of what it costs to load a server. Processes that are started later do not get it.
    """
    chosen = os.environ.get(_BLAS_THREADS)
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        yield
    finally:
        if chosen is None:
            del os.environ[_BLAS_THREADS]


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
