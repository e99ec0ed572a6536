"""Where a node on this machine keeps what commands of its administrator need.

The same answer as `poe.config` gives, from the same places, for a single path: to load all options
would take a command longer than what it is to do.
"""

import os
import tomllib
from pathlib import Path

from platformdirs import user_data_path

from poe.errors import OptionError

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
    text = typed or os.environ.get(f"POE_{name.upper()}") or _from_file(name)
    return None if text is None else Path(text).expanduser()


def node_folder(typed: str | None = None) -> Path:
    """Return the folder of the node, as `node_path`."""
    return node_path("dir", typed) or user_data_path("poe")


def _from_file(name: str) -> str | None:
    """Return what the configuration file says."""
    where = os.environ.get("POE_CONFIG")
    path = Path(where or "poe.toml")
    try:
        value = tomllib.loads(path.read_text("utf-8")).get(name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OptionError("POE_CONFIG", str(path), f"a readable TOML file ({error})") from error
    if value is None or isinstance(value, str):
        return value
    place = f"{path}: {name}"
    raise OptionError(place, value, "a path")
