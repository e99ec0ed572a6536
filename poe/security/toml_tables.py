"""Add whole tables to a TOML text, and remove them; every other line, comments too, stays.

What a file writes as a value, `users = {…}`, is no table in this sense. Who changes a text here
reads the result and compares it with what it should say.
"""

import tomllib
from typing import NamedTuple

from poe.toml_document import statement_ends

Path = tuple[str, ...]


class _Table(NamedTuple):
    """A header with the statements below it; comments behind the last of these are not its own."""

    path: Path
    begin: int
    end: int


def with_table(text: str, path: Path, addition: str) -> str:
    """Return the text with an addition behind the last table that is, or lies in, a path."""
    ends = [each.end for each in _tables(text) if _is_in(each.path, path)]
    at = ends[-1] if ends else len(text)
    line_end = "" if text[:at].endswith("\n") else "\n"
    return f"{text[:at]}{line_end}\n{addition}{text[at:]}"


def without_table(text: str, path: Path) -> str:
    """Return the text without the table of a path, and without the tables in that."""
    return _without(text, [each for each in _tables(text) if _is_in(each.path, path)])


def without_element(text: str, path: Path, number: int) -> str:
    """Return the text without one table of an array of tables, which has no tables in it."""
    return _without(text, [each for each in _tables(text) if each.path == path][number:][:1])


def _without(text: str, tables: list[_Table]) -> str:
    for each in reversed(tables):
        text = text[: each.begin] + text[each.end :].lstrip("\r\n")
    return text


def _is_in(path: Path, outer: Path) -> bool:
    return path[: len(outer)] == outer


def _tables(text: str) -> list[_Table]:
    tables = [_Table((), 0, 0)]
    begin = 0
    for end in statement_ends(text):
        statement = text[begin:end].strip()
        if statement.startswith("["):
            tables.append(_Table(_path(statement), begin, end))
        elif statement and not statement.startswith("#"):
            tables[-1] = tables[-1]._replace(end=end)
        begin = end
    return tables


def _path(header: str) -> Path:
    path: Path = ()
    value = tomllib.loads(header)
    while value:
        [(key, value)] = value.items()
        path += (key,)
        value = value[0] if isinstance(value, list) else value
    return path
