"""`poe gateway`: turns command line options into an HTTP gateway, and runs it as a service.

Most options of the command are those of `GatewayOptions`: a new one appears here by itself, with
its type, default and docstring. What it needs of the extra `http` is loaded when it runs.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from poe.cli.argument import assignment, flag_of, named_as_typed, number
from poe.cli.endpoint_options import url_refusal
from poe.cli.exit_code import ExitCode
from poe.cli.hangup import tell_hangups
from poe.cli.log import start_logging
from poe.cli.option_help import field_docstrings
from poe.cli.output import OutputFailed, write_line
from poe.cli.parameters import LogLevelOption, option, with_parameters
from poe.cli.service import notify, print_ready, raise_descriptor_limit
from poe.errors import HttpMissing, OptionError
from poe.gateway.http.options import GatewayOptions
from poe.option import help_of

_log = logging.getLogger("poe.cli")

_NEEDED = ("starlette", "uvicorn", "httptools", "uvloop", "prometheus_client")
_KINDS: Final = frozenset(
    {int, float, str, bool, tuple[str, ...], int | None, str | None, Path | None}
)
"""Of the options that a command line can give."""
_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def gateway(
    *,
    edit: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Function that sees each post first."),
    ] = None,
    producer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Option of the producer, the value as in TOML; may be repeated.",
        ),
    ] = None,
    log_level: LogLevelOption = "info",
    **options: Any,  # noqa: ANN401 - as typer has parsed them
) -> ExitCode:
    """Serve topics over HTTP until SIGTERM or Ctrl-C; a second signal ends it at once.

    Prints `ready on HOST:PORT` when clients can connect. Ends with 1 if messages that it had
    accepted could not be delivered; the log tells which.
    """
    begin(log_level)
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = [word.strip() for words in value for word in words.split(",")]
    if edit is not None:
        given["edit"] = _function(edit)
    given["producer"] = dict(assignment("--producer", each) for each in producer or ())
    with named_as_typed(options):
        return run(given)


def begin(log_level: str) -> None:
    """Start the log, and make ready what a gateway needs of the process.

    Raises:
        OptionError: there is no such level.
        HttpMissing: the extra `http` is not installed.
    """
    start_logging(log_level)
    missing = [each for each in _NEEDED if find_spec(each) is None]
    if missing:
        raise HttpMissing(", ".join(missing))
    raise_descriptor_limit()
    tell_hangups()


def run(given: dict[str, Any]) -> ExitCode:
    """Serve with these options until a signal.

    Raises:
        OptionError: one of them is wrong.
    """
    # Here, and not above: it loads what may be missing.
    from poe.gateway.http.server import serve  # noqa: PLC0415

    try:
        undelivered = serve(GatewayOptions(**given), _tell_ready, _tell_invitation)
    except OptionError as error:
        if error.key != "url":
            raise
        raise url_refusal("--broker", given["broker"], error) from None
    return ExitCode.FAILURE if undelivered else ExitCode.OK


def gateway_command() -> Callable[..., ExitCode]:
    """Return `gateway` with a parameter for each option, for typer to read."""
    kinds, texts = get_type_hints(GatewayOptions), field_docstrings(GatewayOptions)
    made = (
        _parameter(each.name, kinds[each.name], texts.get(each.name, ""), each.default)
        for each in fields(GatewayOptions)
        if kinds[each.name] in _KINDS or get_origin(kinds[each.name]) is Literal
    )
    return with_parameters(gateway, "options", made)


def _parameter(name: str, kind: type, help_text: str, default: object) -> Parameter:
    flag = flag_of(name)
    if kind is bool:
        made = typer.Option(f"{flag}/--no-{flag.removeprefix('--')}", help=help_text)
    elif get_origin(kind) is Literal:
        made = typer.Option(flag, help=help_text, metavar="|".join(get_args(kind)))
        kind = str
    elif kind == Path | None:
        made = typer.Option(flag, help=help_text, metavar="FILE")
        kind = Path
    elif kind == str | None:
        made = typer.Option(flag, help=help_text, metavar="TEXT")
        kind = str
    elif kind == tuple[str, ...]:
        made = typer.Option(flag, help=f"{help_text}  [may be repeated]", metavar="TEXT,...")
        kind = list[str]
    else:
        parser: Callable[[str], float | None] | None = None
        if kind == int | None:
            kind = int
            parser = _or_none(number(flag, kind, 0))
        elif kind is not str:
            parser = number(flag, kind, 0)
        help_text = help_of(GatewayOptions, name, help_text, default)
        made = typer.Option(flag, help=help_text, metavar=_METAVARS[kind], parser=parser)
    annotation = Annotated[kind | None, made]  # type: ignore[valid-type]  # made at run time
    return option(name, annotation)


def _or_none(parse: Callable[[str], float]) -> Callable[[str], float | None]:
    """Return what parses a number or `none`, which is the default."""
    return lambda text: None if text == "none" else parse(text)


def _function(text: str) -> Callable[..., Any]:
    """Return the function that `MODULE:FUNCTION` names.

    Raises:
        OptionError: there is none; it tells why.
    """
    module, _, name = text.partition(":")
    # A console script does not look for modules where it is called.
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # a module of users may end with any
        is_plain = isinstance(error, ImportError | AttributeError | ValueError)
        why = error if is_plain else f"{type(error).__name__}: {error}"
        allowed = f"MODULE:FUNCTION of a module that can be imported ({why})"
        raise OptionError("--edit", text, allowed) from error
    if not callable(found):
        raise OptionError("--edit", text, f"MODULE:FUNCTION; {name} is no function")
    return found  # type: ignore[no-any-return]


def _tell_ready(address: str) -> None:
    """Say that clients can connect."""
    print_ready(address)
    notify(f"READY=1\nSTATUS=serving on {address}")
    _log.info("serving on %s", address)


def _tell_invitation(url: str) -> None:
    """Show how the console is opened; a token is for who reads this, and in no log."""
    try:
        write_line(f"console at {url} (for one browser)")
    except OutputFailed as error:
        _log.warning("nobody can read how to open the console: %s", error)
