"""A TOML file whose values know their lines, so that what is wrong is found at once.

`tomllib` tells the line of a syntax error only. The line of a value is found when it is to blame:
TOML is read from the top, so a value comes with the first statement after which a reader of the
file's beginning has it. Statements end with a line on which nothing is open.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection
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
        while place and not self._has(self._text, place):
            place = place[:-1]
        if not place:
            return None
        begins = [0, *statement_ends(self._text)]
        number = bisect_left(begins, x=True, key=lambda end: self._has(self._text[:end], place))
        return self._text.count("\n", 0, begins[number - 1]) + 1

    @staticmethod
    def _has(text: str, place: Place) -> bool:
        value: Any = tomllib.loads(text)
        for key in place:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return False
        return True


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


def _text(place: Place) -> str:
    return ".".join(map(str, place))
