"""Files with functions: run like scripts, once, and their functions found and called."""

import hashlib
import importlib
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from poe.errors import InvalidMapping
from poe.mapping.message import Message

MODULE: Final = "poe_mapping_file"
"""`__name__` in such a file."""


class Answer(NamedTuple):
    """What a function has returned for a message, or how it ended."""

    value: object
    error: str = ""


class FoundFunction(NamedTuple):
    """A function of a file."""

    function: Callable[..., Any]
    sha256: str
    """Of what the file holds; and behind it of the one that the function was imported from."""


def find_function(folder: Path, named: str) -> FoundFunction:
    """Return a function by its name, as in `clicks.py:enrich` or `package.module:enrich`.

    Raises:
        InvalidMapping: there is none, or its file ends with an error.
    """
    where, _, name = named.rpartition(":")
    problem = 'names no function; use "clicks.py:enrich" or "package.module:enrich"'
    if not where or not name:
        raise InvalidMapping(place=f"{named!r}", problem=problem)
    if where.endswith(".py"):
        path = (folder / where).resolve()
        names = run_file(path)
    else:
        try:
            module = importlib.import_module(where)
        except (Exception, SystemExit) as error:  # a module of users may end with any
            why = str(error) if isinstance(error, ImportError) else _told(error)
            raise InvalidMapping(repr(named), problem=f"cannot be imported: {why}") from error
        names = vars(module)
        path = Path(getattr(module, "__file__", None) or "")
    function = names.get(name)
    if not callable(function):
        raise InvalidMapping(place=f"{named!r}", problem=problem)
    sha256 = hash_of(path, is_imported=not where.endswith(".py"))
    home = file_of(function)
    if home is not None and home != path.resolve():
        sha256 += hash_of(home, is_imported=True)
    return FoundFunction(function, sha256)


def hash_of(path: Path, *, is_imported: bool) -> str:
    """Return the hash of what a file holds; of what is no file, of nothing.

    Of one that was imported, of what it held then: it is not read again while the process lives.
    """
    if not is_imported:
        return _hash_now(path)
    path = path.resolve()
    return _imported.setdefault(path, _hash_now(path))


def check_as_imported(path: Path) -> None:
    """Refuse a file of functions that holds something else than when it was imported.

    Raises:
        InvalidMapping: it does.
    """
    path = path.resolve()
    if path in _imported and _imported[path] != _hash_now(path):
        problem = "has changed since it was imported; start the mapping anew, and it is read"
        raise InvalidMapping(str(path), problem)


_imported: Final[dict[Path, str]] = {}
"""The hashes of files of functions that were imported."""


def _hash_now(path: Path) -> str:
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()


def file_of(function: Callable[..., Any]) -> Path | None:
    """Return the file in which a function stands; where it was decorated, not the decorator."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(function))
    except (TypeError, ValueError):
        return None
    return None if found is None else Path(found).resolve()


def is_found_again(function: Callable[..., Any]) -> bool:
    """Return whether another process finds a function by its file and its name."""
    name: str = getattr(function, "__qualname__", "")
    return name.isidentifier() and file_of(function) is not None


def run_file(path: Path) -> dict[str, Any]:
    """Run a Python file and return its names.

    Raises:
        InvalidMapping: it cannot be read, or it ends with an error, which is told with its line.
    """
    folder = str(path.parent)
    if folder not in sys.path:  # as for a script: it may import its neighbours
        sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=MODULE)
    except InvalidMapping:
        raise
    except (Exception, SystemExit) as error:  # a file is no script, and ends nothing
        frames = traceback.extract_tb(error.__traceback__)
        line = next((each.lineno for each in reversed(frames) if each.filename == str(path)), None)
        if line is not None:  # one that it has met, be it of another file
            raise InvalidMapping(place=f"{path}, line {line}", problem=_told(error)) from error
        if isinstance(error, OSError):
            raise InvalidMapping(str(path), f"cannot be read: {error.strerror}") from error
        if isinstance(error, SyntaxError):
            where = f"{path}, line {error.lineno}"
            raise InvalidMapping(where, problem=f"is no Python: {error.msg}") from error
        raise InvalidMapping(str(path), _told(error)) from error


def answer_of(function: Callable[..., Any], message: Message) -> Answer:
    """Return what a function says of a message, or how it ended."""
    try:
        return Answer(function(message))
    except BaseException as error:  # noqa: BLE001 - whatever a function of users raises
        # SystemExit, too: a thread that ended by it would be started again and again.
        frames = traceback.extract_tb(error.__traceback__)
        line = f", line {frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""
        return Answer(None, f"{_told(error)}{line}")


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
