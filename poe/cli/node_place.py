"""Where a node on this machine keeps what commands of its administrator need.

The same answer as `poe.config` gives, from the same places, for a single path: to load all options
would take a command longer than what it is to do.
"""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_data_path

from poe.errors import OptionError
from poe.option import NONE_WORDS, folder_of_user, path_option

TOKEN_FILE = "admin.token"  # noqa: S105 - its name
"""In a node's folder: the credential of who may read it, made anew at each start."""


def node_path(name: str, typed: str | None = None) -> Path | None:
    """Return the path that an option of a node has; None: it has none.

    Args:
        name: of the option.
        typed: its value on the command line, if it was given there.

    Raises:
        OptionError: what holds it cannot be read.
    """
    found = next(_given(name, typed), None)
    if found is None or (name != "dir" and found[1].lower() in NONE_WORDS):
        return None
    return path_option(*found)


def node_folder(typed: str | None = None) -> Path:
    """Return the folder of the node.

    Raises:
        OptionError: as `node_path`, or none is given, and this user has no home.
    """
    return node_path("dir", typed) or folder_of_user(user_data_path, "dir")


def _given(name: str, typed: str | None) -> Iterator[tuple[str, str]]:
    """Yield where an option is given, and its value; what counts first."""
    variable = f"POE_{name.upper()}"
    for where, text in ((f"--{name}", typed), (variable, os.environ.get(variable))):
        if text:
            yield where, text
    yield from _in_file(name)


def _in_file(name: str) -> Iterator[tuple[str, str]]:
    """Yield what the configuration file says, if it does."""
    where = os.environ.get("POE_CONFIG")
    path = Path(where or "poe.toml")
    try:
        value = tomllib.loads(path.read_text("utf-8")).get(name)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        told = "POE_CONFIG" if where else "configuration file"
        raise OptionError(told, str(path), f"a readable TOML file ({reason})") from error
    place = f"{path}: {name}"
    if isinstance(value, str):
        yield place, value
    elif value is not None:
        raise OptionError(place, value, "a path")
