"""A TOML file whose values know their lines, so that what is wrong is found at once.

`tomllib` tells the line of a syntax error only. The line of a value is found when it is to blame:
TOML is read from the top, so a value comes with the first statement after which a reader of the
file's beginning has it. Statements end with a line on which nothing is open.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, NoReturn

from poe.errors import PoeError, SecurityFileError

Place = tuple[str | int, ...]
"""Keys of tables and places in arrays, from 0, that lead to a value."""

# In a text that is known to be TOML: strings of each kind, comments, brackets, ends of lines.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)$")


class TomlDocument:
    """The values of a file, and the way to say where one of them stands.

    Args:
        text: what the file holds.
        path: for errors only.
        error: makes the error that is raised, of the path, the line, or None, and what is wrong.

    Raises:
        SecurityFileError: it is no TOML.
    """

    def __init__(
        self,
        text: str,
        path: str,
        error: Callable[[str, int | None, str], PoeError] = SecurityFileError,
    ) -> None:
        self.path = path
        self._error = error
        self._lines: dict[Place, int] = {}
        # As TOML sees it: lines end with \n or \r\n.
        self._text = text.replace("\r\n", "\n")
        try:
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except RecursionError:
            raise error(path, None, "values are nested too deeply") from None
        except ValueError as refusal:  # a number of thousands of digits is no TOMLDecodeError
            why = str(refusal)
            found = _AT_LINE.search(why)
            line = int(found[1]) if found else self._text.count("\n") + 1
            raise error(path, line, _AT_LINE.sub("", why).strip()) from None

    def table(
        self, place: Place, value: object, keys: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return a value that has to be a table; `keys`: the only ones it may have.

        Raises:
            SecurityFileError: it is none, or has another key.
        """
        if not isinstance(value, dict):
            self.refuse(place, f"{_text(place)} has to be a table")
        for key in value:
            if keys is not None and key not in keys:
                self.refuse((*place, key), f"{key!r} is not known; use {', '.join(keys)}")
        return value

    def array(self, place: Place, value: object) -> list[Any]:
        """Return a value that has to be an array.

        Raises:
            SecurityFileError: it is none.
        """
        if not isinstance(value, list):
            self.refuse(place, f"{_text(place)} has to be an array")
        return value

    def texts(self, place: Place, value: object) -> list[str]:
        """Return a value that has to be an array of texts.

        Raises:
            SecurityFileError: it is none.
        """
        for number, each in enumerate(self.array(place, value)):
            if not isinstance(each, str):
                self.refuse((*place, number), f"{_text(place)} has to be an array of texts")
        return self.array(place, value)

    def refuse(self, place: Place, why: str) -> NoReturn:
        """Raise an error that names the line of a value, or of what a value is missing from.

        Raises:
            SecurityFileError: always.
        """
        raise self._error(self.path, self.line_of(place), why) from None

    def line_of(self, place: Place) -> int | None:
        """Return the line on which the statement begins that brings a value.

        A table that is nowhere named itself comes with the first thing that is in it.
        """
        while place and not _has(self.values, place):
            place = place[:-1]
        if not place:
            return None
        match place:
            case [str(name), int(at), *rest] if name in self._heads:
                # Its own part of the file: to read all of it for each is to read for minutes.
                begin, end = self._heads[name][at : at + 2]
                return self._line_at(begin, self._text[begin:end], (name, 0, *rest))
            case [str(name), int(), *_]:  # all of a list that is written as one comes with it
                place = (name,)
        if place not in self._lines:
            self._lines[place] = self._line_at(0, self._text, place)
        return self._lines[place]

    def _line_at(self, offset: int, text: str, place: Place) -> int:
        """Return the line of a value that a part of the file brings, which begins at the offset."""
        begins = [0, *statement_ends(text)]
        number = bisect_left(begins, True, key=lambda end: _has(tomllib.loads(text[:end]), place))
        return bisect_left(self._newlines, offset + begins[number - 1]) + 1

    @cached_property
    def _newlines(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self._text)]

    @cached_property
    def _heads(self) -> dict[str, list[int]]:
        """Where each `[[name]]` begins, and the end of the file."""
        heads: dict[str, list[int]] = {}
        begin = 0
        for end in statement_ends(self._text):
            if self._text[begin:end].lstrip().startswith("[["):
                for name, value in tomllib.loads(self._text[begin:end]).items():
                    if isinstance(value, list):
                        heads.setdefault(name, []).append(begin)
            begin = end
        return {name: [*found, len(self._text)] for name, found in heads.items()}


def statement_ends(text: str) -> list[int]:
    """Return where the statements of a TOML text end: behind each line on which nothing is open.

    Blank lines and comments count as statements; the end of the text is the last.
    """
    ends = []
    depth = 0
    for match in _TOKEN.finditer(text):
        match match[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "\n" if not depth:
                ends.append(match.end())
    return [*ends, len(text)]


def _has(value: Any, place: Place) -> bool:  # noqa: ANN401 - any value of TOML
    for key in place:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _text(place: Place) -> str:
    return ".".join(map(str, place))
