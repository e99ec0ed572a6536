"""`poe login` and `poe logout` keep how to get into a server; `poe reload` renews its files."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, place_of
from poe.cli.exit_code import ExitCode
from poe.cli.node_place import TOKEN_FILE
from poe.cli.output import counted, write_error, write_line
from poe.cli.saved_login import SavedLogins
from poe.cli.sentence import sentence_of
from poe.errors import ConfigError, SecurityFileError
from poe.security.credentials import Scram, Token, TokenFile
from poe.security.small_file import read_small
from poe.security.tls import Tls

_FILE_BYTES_MAX = 1 << 20


@asks_server
def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="poes://HOST:PORT, of the server.")],
    *,
    endpoint: Endpoint,
) -> None:
    """Get into a server once, and keep how, for this user of the machine.

    Commands to that url, and commands that say no server, then need no options. Kept are copies of
    the files, in the folder of your configuration, for nobody else to read; `poe logout` removes
    them. The password is asked for where --user is given alone.
    """
    del url  # in the endpoint
    given = endpoint.entry.credentials
    # The administrator's is made anew at each start of the server.
    if isinstance(given, TokenFile) and Path(given.path).name == TOKEN_FILE:
        entry = replace(endpoint.entry, credentials=None)
        endpoint = replace(endpoint, server=replace(endpoint.server, entry=entry))
    options, files = _to_keep(endpoint)
    with endpoint.looking() as connection:
        connection.control("health")
    SavedLogins().save(options, files)
    who = f" as {options['user']}" if "user" in options else ""
    write_line(f"logged in{who} at {endpoint.url}")


def logout(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="Of which login; else the last.")
    ] = None,
) -> None:
    """Forget a login, with the copies of its files."""
    if not SavedLogins().remove(url and place_of({"url": url}).text):
        msg = "there is no such login; nothing was done"
        raise ConfigError(msg)
    write_line("logged out")


@asks_server
def reload(*, endpoint: Endpoint) -> ExitCode:
    """Have a server read users, grants and certificates anew.

    All of it, or nothing: where a file is wrong the old ones hold, and the exit code is 1.
    Connections end whose user, credential or authority is gone; others go on.
    """
    with endpoint.connect() as connection:
        try:
            told = connection.control("reload")
        except SecurityFileError as error:  # a file of the server, not one that was named here
            write_error(sentence_of(error))
            return ExitCode.FAILURE
    changes = [
        f"{', '.join(names)} {word}"
        for word in ("added", "changed", "removed")
        if (names := told.get(f"users_{word}"))
    ]
    ended = counted(told["ended_count"], "connection")
    write_line("\t".join(["reloaded", *changes, f"{ended} ended"]))
    return ExitCode.OK


def _to_keep(endpoint: Endpoint) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return what is kept of a login: options, and the content of files.

    Raises:
        SecurityFileError: a file cannot be read.
    """
    options, files = {"url": endpoint.url}, {}
    if isinstance(tls := endpoint.entry.tls, Tls):
        for name in (each.name for each in fields(Tls)):
            value = getattr(tls, name)
            if value is not None and name == "server_name":
                options[name] = value
            elif value is not None:
                files[name] = read_small(str(value), _FILE_BYTES_MAX)[0]
    credentials = endpoint.entry.credentials
    match credentials.resolve() if credentials is not None else None:
        case Scram(user, password):
            options["user"] = user
            files["password_file"] = password.encode() + b"\n"
        case Token(str(text)):
            files["token_file"] = text.encode() + b"\n"
    return options, files
