"""Errors on their way through a frame: their attributes as plain values, and the class again.

A class is found by its code and made without calling its constructor: the message is the server's,
and a server that is newer or lies can at most set the attributes which the constructor names.
"""

from functools import cache
from inspect import Parameter, signature
from typing import Any

from poe import errors
from poe.errors import PoeError, ServerError

Plain = int | float | str | bytes | None

TEXT_MAX = 4096
"""Characters or bytes of a message or an attribute; the name of a topic may be a frame long."""

_INT_MAX = 1 << 63


def error_message(error: PoeError) -> str:
    """Return the message of the error, fit for a frame."""
    return _fit(str(error))


def error_values(error: PoeError) -> dict[str, Plain]:
    """Return the attributes of the error that its constructor names; what is not plain as text."""
    names = _parameters(error.code) if error.code in _CLASSES else ()
    return {name: _plain(getattr(error, name)) for name in names if hasattr(error, name)}


def rebuild_error(code: int, name: str, message: str, values: dict[str, Any]) -> PoeError:
    """Return the error of this code, or a `ServerError` where code or attributes are not known.

    A server that is older may not know of attributes that have a default.
    """
    error_class = _CLASSES.get(code, ServerError)
    if error_class is ServerError:
        return ServerError(code, name, message)
    parameters = _parameters(code).items()
    values = {each: values.get(each, default) for each, default in parameters}
    if Parameter.empty in values.values():
        return ServerError(code, name, message)
    error = error_class.__new__(error_class)
    Exception.__init__(error, message)
    for attribute, value in values.items():
        setattr(error, attribute, value)
    return error


def _plain(value: object) -> Plain:
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, bytes):
        return value[:TEXT_MAX]
    if isinstance(value, int) and -_INT_MAX <= value < _INT_MAX:
        return value
    return _fit(value if isinstance(value, str) else repr(value))


def _fit(text: str) -> str:
    # A path that is no UTF-8 holds surrogates, which no frame can.
    return text[:TEXT_MAX].encode(errors="backslashreplace").decode()


@cache
def _parameters(code: int) -> dict[str, Any]:
    """Return what a class's constructor takes, by name: its default, or that there is none.

    Nothing where the error is only a message.
    """
    error_class = _CLASSES[code]
    if error_class.__init__ is PoeError.__init__:
        return {}
    parameters = signature(error_class).parameters
    return {name: each.default for name, each in parameters.items()}


_CLASSES: dict[int, type[PoeError]] = {
    value.code: value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, PoeError) and "code" in vars(value)
}
