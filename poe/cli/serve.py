"""`poe serve`: turns command line options into a node's configuration and runs it as a service.

The options of the command are those of `Config`: a new one appears here by itself, with its type,
default and docstring.
"""

import logging
from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

import typer

from poe.cli.argument import flag_of, named_as_typed
from poe.cli.doors import doors
from poe.cli.exit_code import ExitCode
from poe.cli.isolated_node import IsolatedNode
from poe.cli.log import start_logging
from poe.cli.option_help import field_docstrings
from poe.cli.parameters import LogLevelOption, option, with_parameters
from poe.cli.service import Served, Service, print_ready
from poe.cli.thespian_gateway import ThespianGateway
from poe.config import Config, option_choices, option_parts, parse_option
from poe.errors import OptionError
from poe.node import Node
from poe.option import help_of

_log = logging.getLogger("poe.cli")

_METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
_METAVARS[tuple[str, ...]] = "TEXT,…"
_METAVARS[option_choices("topics")[0]] = "NAME.OPTION=VALUE,…"
_DIR_DEFAULT = "the user's data folder"


def serve(
    config: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Configuration file; else POE_CONFIG, else ./poe.toml."),
    ] = None,
    log_level: LogLevelOption = "info",
    **options: str | bool | None,
) -> ExitCode:
    """Run a server until SIGTERM or Ctrl-C; a second signal ends it at once.

    Prints `ready on HOST:PORT` when clients can connect, and `HOST:PORT (TLS)` behind it where they
    can do so by TLS. Each option may stand in the environment
    as POE_<NAME> and in the configuration file as <name>, too; the command line wins.
    """
    start_logging(log_level)
    with named_as_typed(options):
        node_config = Config.load(_arguments(options), toml_path=config)
        if node_config.listener.port is None and node_config.security.tls_port is None:
            allowed = "0 to 65535; without a port nobody could reach the server"
            raise OptionError(key="port", value="none", allowed=allowed)
    served = _served(node_config, log_level)

    def on_ready(address: str) -> None:
        print_ready(address)
        thespian_port = node_config.service.thespian_port
        opened = served.address, served.tls_address, thespian_port, node_config.security
        for door in doors(*opened):
            _log.info("%s", door)

    return Service(served, on_ready).run()


def _served(config: Config, log_level: str) -> Served:
    """Return the node, in this process or in one of its own, and what is around it."""
    node: Served = Node(config)
    if config.service.isolation == "process":
        node = IsolatedNode(config, log_level)
    if config.service.thespian_port is not None:
        node = ThespianGateway(node, config.service, log_level)
    return node


def serve_command() -> Callable[..., ExitCode]:
    """Return `serve` with a parameter for each option of a node, for typer to read."""
    made = (_parameter(name, *row) for name, row in _options().items())
    return with_parameters(serve, "options", made)


def _options() -> dict[str, tuple[str, str]]:
    """Return the help of each option, without and with its range and default."""
    text = field_docstrings(Config).get("dir", "")
    rows = {"dir": (text, help_of(Config, "dir", text, _DIR_DEFAULT))}
    for part in option_parts():
        texts = field_docstrings(part)
        for field in fields(part):
            default = "none" if field.default in (None, ()) else str(field.default)
            text = texts.get(field.name, "")
            rows[field.name] = (text, help_of(part, field.name, text, default))
    return rows


def _parameter(name: str, text: str, whole_text: str) -> Parameter:
    """Describe one option to typer: a switch when it is true or false, else text that we parse."""
    flag = flag_of(name)
    choices = option_choices(name)
    if bool in choices:
        switch = f"{flag}/--no-{flag.removeprefix('--')}"
        annotation: Any = Annotated[bool | None, typer.Option(switch, help=text)]
    else:
        words = [_METAVARS.get(each, str(each)) for each in choices if each is not NoneType]
        made = typer.Option(flag, help=whole_text, metavar="|".join(words))
        annotation = Annotated[str | None, made]
    return option(name, annotation)


def _arguments(options: dict[str, str | bool | None]) -> dict[str, Any]:
    """Return the values of the options that were given."""
    return {
        name: parse_option(name, flag_of(name), value) if isinstance(value, str) else value
        for name, value in options.items()
        if value is not None
    }
