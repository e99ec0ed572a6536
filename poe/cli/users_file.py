"""Which file of users a command is about, and what the commands that change it share."""

import os
from pathlib import Path
from typing import Annotated

import typer

from poe.cli.argument import flag_of
from poe.cli.node_place import node_path
from poe.cli.output import write_error
from poe.errors import ConfigError, OptionError

UsersOption = Annotated[
    str | None,
    typer.Option(
        "--users", metavar="FILE", help="The server's file of users; else its option `users`."
    ),
]

TAKES_EFFECT = "a running server takes it within seconds, and at once by poe reload"


def users_path(typed: str | None) -> Path:
    """Return where the file of users is.

    Raises:
        ConfigError: nobody says it.
    """
    path = node_path("users", typed)
    if path is None:
        msg = "which file of users? give --users FILE, POE_USERS, or users in poe.toml"
        raise ConfigError(msg)
    return path


def split(flag: str, words: list[str] | None) -> tuple[str, ...]:
    """Return the values of an option that may be repeated, and may have commas.

    Raises:
        OptionError: one is empty.
    """
    values = tuple(word.strip() for each in words or () for word in each.split(","))
    if "" in values:
        raise OptionError(flag_of(flag), "", "a name each")
    return values


def names(words: list[str] | None) -> tuple[bytes, ...]:
    """Return names of topics or groups as bytes; they may hold commas."""
    return tuple(map(os.fsencode, words or ()))


def warn(warnings: tuple[str, ...]) -> None:
    """Write what is not wrong, but somebody should know."""
    for each in warnings:
        write_error(each)
