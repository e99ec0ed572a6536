"""Turns words of the command line into values, or refuses them with a sentence of ours.

typer's own checks speak of input and of integers; these say what to use, as `poe serve` does.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from poe.errors import OptionError
from poe.option import path_option
from poe.topic_name import folder_name

Number = TypeVar("Number", int, float)
Choice = TypeVar("Choice", bound=StrEnum)


def flag_of(name: str) -> str:
    """Return how an option of a class is written on the command line."""
    return "--" + name.replace("_", "-")


@contextmanager
def named_as_typed(options: Mapping[str, object]) -> Iterator[None]:
    """Have what is wrong with an option that was given name it as the command line does."""
    try:
        yield
    except OptionError as error:
        if options.get(error.key) is None:
            raise
        raise OptionError(flag_of(error.key), error.value, error.allowed) from error


def topic_name(text: str) -> bytes:
    """Return a topic's name, before a server is asked, which may allow less.

    Raises:
        InvalidTopicName: no topic can have it.
    """
    topic = os.fsencode(text)
    folder_name(topic, "escape")
    return topic


def folder(text: str) -> Path:
    """Return a folder; nothing does not mean the current one.

    Raises:
        OptionError: no path.
    """
    if not str(text):
        raise OptionError("DIR", text, "the path of a folder")
    return path_option("DIR", text)


def number(
    flag: str, kind: type[Number], least: Number, most: Number | None = None
) -> Callable[[str], Number]:
    """Return what parses a number of an option; it raises `OptionError`."""
    noun = "a whole number" if kind is int else "a number"
    allowed = f"{noun}, {least} or more" if most is None else f"{noun}, {least} to {most}"

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError as error:
            raise OptionError(flag, text, allowed) from error
        # Asked this way round, the number that is none (nan) is refused, too.
        if not (value >= least and (most is None or value <= most)):
            raise OptionError(flag, text, allowed)
        return value

    return parse


def choice(flag: str, kind: type[Choice]) -> Callable[[str], Choice]:
    """Return what parses one of the words of an option; it raises `OptionError`."""

    def parse(text: str) -> Choice:
        try:
            return kind(text)
        except ValueError as error:
            raise OptionError(flag, text, " or ".join(kind)) from error

    return parse


def assignment(flag: str, text: str) -> tuple[str, Any]:
    """Return name and value of `NAME=VALUE`, the value written as in TOML; what is none is text.

    Raises:
        OptionError: there is no `=`.
    """
    name, separator, value = text.partition("=")
    if not (separator and name.strip()):
        raise OptionError(flag, text, "NAME=VALUE, as in linger_s=0.01")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # a number of thousands of digits is no TOMLDecodeError
        return name.strip(), value.strip()
