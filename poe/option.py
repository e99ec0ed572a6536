"""What an option may be, said once, at its field: the check and the help read it there.

class ConnectionOptions:
frame_timeout: Annotated[float, Range(0, is_above=True, unit="seconds")] = 10.0

def __post_init__(self) -> None:
check_options(self)
"""

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from poe.errors import OptionError, UnknownOption

T = TypeVar("T")

NONE_WORDS = frozenset({"none", "infinity"})
"""In the place of a value, for an option that may be none; however they are written."""
_PLAIN_MAX = 1 << 20
_NEAR_POWER = 16


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an option may be: `least` to `most`, both allowed unless it `is_above`."""

    least: int = 0
    most: float = math.inf
    is_above: bool = False
    """Whether `least` itself is too little."""

    unit: str = ""

    def holds(self, value: object) -> bool:
        """Return whether it is such a number; what is infinite, or none (nan), never is."""
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            # A large whole number is another one as a float.
            number = int(value) if isinstance(value, Integral) else float(value)
            is_finite = float(value) < math.inf
        except OverflowError:  # no limit is that large
            return False
        is_enough = number > self.least if self.is_above else number >= self.least
        return is_enough and number <= self.most and is_finite

    def words(self, *, is_whole: bool) -> str:
        """Say what is allowed; of numbers with a fraction, that infinity is not."""
        unit = f" ({self.unit})" if self.unit else ""
        if self.most < math.inf:
            least = f"more than {self.least}, up" if self.is_above else str(self.least)
            return f"{least} to {_number(int(self.most))}{unit}"
        if not is_whole:
            unit = f" (finite {self.unit})"
        return (f"more than {self.least}" if self.is_above else f"{self.least} or more") + unit


def _number(number: int) -> str:
    """Write a number near a power of two as people know it: 2^31, 2^40 - 1."""
    power = number.bit_length() - (number.bit_count() == 1)
    below = (1 << power) - number
    if number < _PLAIN_MAX or below > _NEAR_POWER:
        return str(number)
    return f"2^{power} - {below}" if below else f"2^{power}"


class Allowed(NamedTuple):
    """What one option may be, as far as that is more than its type."""

    range: Range | None
    choices: tuple[str | bool, ...]
    is_whole: bool
    """Whether a number has no fraction."""

    may_be_none: bool

    def __str__(self) -> str:
        return self.words()

    def words(self, none: str = '"none"') -> str:
        """Say what is allowed; `none` is how None is written where the option is given."""
        choices = [each if isinstance(each, str) else str(each).lower() for each in self.choices]
        words = " or ".join(choices)
        if self.range is not None:
            words = self.range.words(is_whole=self.is_whole)
            words += "".join(f' or "{each}"' for each in choices)
        return f"{words}, or {none}" if words and self.may_be_none else words

    def holds(self, value: object) -> bool:
        """Return whether it may be that value."""
        # Asked for the type, too: 1 equals True.
        if any(type(value) is type(each) and value == each for each in self.choices):
            return True
        if value is None and self.may_be_none:
            return True
        if self.range is not None:
            return (isinstance(value, Integral) or not self.is_whole) and self.range.holds(value)
        return not self.choices


@cache
def allowed(kind: Any) -> dict[str, Allowed]:  # noqa: ANN401 - a dataclass
    """Return what each field of a class of options may be."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _allowed(hints[field.name]) for field in fields(kind)}


def _allowed(hint: Any) -> Allowed:  # noqa: ANN401 - any type
    found = None
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        found = next(each for each in notes if isinstance(each, Range))
    types = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    kinds = [each for each in types if each is not NoneType]
    choices: tuple[str | bool, ...] = (True, False) if kinds == [bool] else ()
    literals = [kind for kind in kinds if get_origin(kind) is Literal]
    if found is not None or literals == kinds:
        choices = tuple(each for kind in literals for each in get_args(kind))
    return Allowed(found, choices, float not in types, NoneType in types)


def help_of(kind: type, name: str, text: str, default: object) -> str:
    """Return the help of an option: what it is for, its range if it has one, and its default."""
    found = allowed(kind)[name]
    words = f"  [{found}]" if found.range is not None else ""
    return f"{text}{words}  [default: {default}]"


def path_option(key: str, text: str | Path) -> Path:
    """Return the path that an option is, with the home of a user in the place of `~`.

    Raises:
        OptionError: it is none, or there is no such user.
    """
    # Path("") would be the current folder, where a script's variable was empty by mistake.
    if not str(text) or "\0" in str(text):
        raise OptionError(key, str(text), "a path")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise OptionError(key, str(text), "a path that the system can write") from error
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise OptionError(key, str(text), "a path; there is no user with such a home") from error


def fixed_path(key: str, text: str | Path) -> Path:
    """Return the path that an option of a node is: the same, wherever the program goes later.

    Raises:
        OptionError: it is none.
    """
    path = path_option(key, text)
    try:
        return path.absolute()
    except OSError as error:  # somebody has removed the current folder
        reason = f"an absolute path: there is no current folder ({error.strerror})"
        raise OptionError(key, str(text), reason) from error


def folder_of_user(find: Callable[[str], Path], key: str) -> Path:
    """Return a folder of Poe's in the home of the user whose process this is.

    Args:
        find: the function of platformdirs for that kind of folders.
        key: the option, or variable, that may name another one.

    Raises:
        OptionError: there is no home.
    """
    with contextlib.suppress(RuntimeError):  # in its older versions "~" stays in the path instead
        found = find("poe")
        if found.is_absolute():
            return found
    raise OptionError(key, "none", "the path of a folder: this user has no home, where it would be")


def load_options(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make options of names and values; what is left out has its default.

    Raises:
        UnknownOption: there is none of one of the names; it lists those there are.
        OptionError: a value is not allowed.
    """
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in values:
        if name not in names:
            raise UnknownOption(name, "one of " + ", ".join(sorted(names)))
    return kind(**values)


def check_options(options: Any, none: str = '"none"') -> None:  # noqa: ANN401 - a dataclass
    """Refuse what an option must not be; `none` is how None is written where it is given.

    Raises:
        OptionError: names the option, and says what is allowed.
    """
    for name in allowed(type(options)):  # type: ignore[arg-type]  # it is hashable
        check_option(type(options), name, getattr(options, name), none)


def check_option(kind: type, name: str, value: object, none: str = '"none"') -> None:
    """Refuse a value that this option of a class must not have.

    Raises:
        OptionError: as `check_options`.
    """
    each = allowed(kind)[name]
    if not each.holds(value):
        is_cut = each.range is not None and each.is_whole and isinstance(value, float)
        words = each.words(none)
        raise OptionError(name, value, f"a whole number, {words}" if is_cut else words)
