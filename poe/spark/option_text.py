"""Options as Spark hands them over: text, under names whose case does not count."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from poe.errors import OptionError, UnknownOption

Parsers: TypeAlias = Mapping[str, tuple[str, Callable[[str, str], Any]]]
"""By the name that a user writes: the field that it sets, and what reads name and text."""

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark passes on of its own."""
NOT_HANDED_ON: Final = (
    "of a table in its catalog Spark does not hand the options on to a Python data source"
)
NO_TABLE: Final = f"CREATE TEMPORARY VIEW t USING poe OPTIONS (…): {NOT_HANDED_ON} when it is read"
_SECRETS: Final = {
    "token": "tokenFile, the path of a file that holds it",
    "password": "user and passwordFile, the path of a file that holds it",
}
"""What Spark must not be told, and what to give instead."""
_SECONDS_MAX = 86_400
_DIGITS_MAX = 100


def parse(options: Mapping[str, str], parsers: Parsers) -> dict[str, Any]:
    """Return the values by field.

    Raises:
        OptionError: an unknown name, or a value that is not allowed.
    """
    names = {name.lower(): name for name in parsers}
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for key, text in options.items():
        name = names.get(key.lower())
        if key.lower() in OF_SPARK:
            continue
        if name is None:
            raise unknown(key, parsers)
        field, read = parsers[name]
        if field in said:
            raise OptionError(name, text, f"either {said[field]} or {name}")
        said[field] = name
        values[field] = read(name, text)
    return values


def unknown(key: str, names: Iterable[str]) -> OptionError:
    """Return the error of an option that there is not, with the nearest of those there are."""
    if key.lower() in _SECRETS:
        why = "; Spark shows options in plans and logs, so take this one for known to others"
        return OptionError(key, "(hidden)", _SECRETS[key.lower()] + why)
    by_lower = {name.lower(): name for name in names}
    nearest = get_close_matches(key.lower(), by_lower, n=1)
    hint = "".join(f"; did you mean {by_lower[each]}?" for each in nearest)
    return UnknownOption(key, "one of " + ", ".join(sorted(by_lower.values())) + hint)


def any_text(name: str, text: str) -> str:
    """Read a text that is not empty."""
    if not text:
        raise OptionError(name, text, "a text that is not empty")
    return text


def number(
    low: int, high: int, words: Mapping[str, int] | None = None
) -> Callable[[str, str], int]:
    """Return what reads a number, or one of the words that stand for one."""
    words = words or {}
    allowed = "".join(f"{word}, " for word in words) + f"{low} to {high}"

    def read(name: str, text: str) -> int:
        if text.lower() in words:
            return words[text.lower()]
        # Python reads no number of thousands of digits.
        is_number = text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX
        if is_number and low <= int(text) <= high:
            return int(text)
        raise OptionError(name, text, allowed)

    return read


def flag(name: str, text: str) -> bool:
    """Read true or false."""
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise OptionError(name, text, "true or false")
    return value


def word(*words: str) -> Callable[[str, str], str]:
    """Return what reads one of some words."""

    def read(name: str, text: str) -> str:
        if text.lower() not in words:
            raise OptionError(name, text, " or ".join(words))
        return text.lower()

    return read


def seconds(name: str, text: str) -> float:
    """Read a time in seconds, of up to a day."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _SECONDS_MAX:
        raise OptionError(name, text, f"0 to {_SECONDS_MAX} seconds")
    return value
