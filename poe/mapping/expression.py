"""Expressions: one small interface, behind which a library may be changed.

CEL by `cel-expr-python`, Google's own in C++: no loops without bounds, no side effects, and an
error is an error, never "false". An expression sees `body`, `topic`, `pointer`, `key` (a text, or
bytes where it is none) and `header` (a map of texts, likewise).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from poe.errors import InvalidMapping, MappingExtraMissing, RuleError, UndecodableMessage
from poe.mapping.message import Message

Holds = Callable[[Message], bool]
"""Whether an expression is true for a message; raises `RuleError` where that cannot be told."""

LENGTH_MAX: Final = 10_000

_AT = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


class Expressions(Protocol):
    """A language of expressions."""

    def compile(self, text: str, rule: str) -> Holds:
        """Return whether an expression is true, as a function.

        Raises:
            InvalidMapping: it is none; the place in its text is named.
        """

    def names(self, text: str) -> frozenset[str]:
        """Return what of a message an expression may look at."""


class Cel:
    """CEL.

    Raises:
        MappingExtraMissing: on construction, the library is not installed.
    """

    def __init__(self) -> None:
        try:
            from cel_expr_python import cel  # noqa: PLC0415 - of an extra
        except ModuleNotFoundError:
            raise MappingExtraMissing("cel-expr-python", "`when`") from None
        kinds = cel.Type
        self._error = kinds.ERROR
        self._bool = kinds.BOOL
        self._any = kinds.DYN
        self._environment = cel.NewEnv(
            variables={
                "body": kinds.DYN,
                "topic": kinds.STRING,
                "pointer": kinds.INT,
                "key": kinds.DYN,
                "header": kinds.DYN,
            }
        )

    def compile(self, text: str, rule: str) -> Holds:
        """Return whether an expression is true, as a function; see `Expressions`.

        Raises:
            InvalidMapping: it is none, or never a boolean.
        """
        place = f"rule {rule!r}: when"
        if len(text) > LENGTH_MAX:
            raise InvalidMapping(place, f"has {len(text)} characters; use up to {LENGTH_MAX}")
        try:
            compiled = self._environment.compile(text)
            kind = compiled.return_type()
        except (RuntimeError, ValueError, TypeError) as error:
            raise InvalidMapping(place, _told(str(error))) from error
        if kind not in (self._bool, self._any):
            raise InvalidMapping(
                place, f"is of type {kind.name().lower()}; use what is true or false"
            )
        evaluate, failure = compiled.eval, self._error
        names = self.names(text)
        seen = [(name, _SEEN[name]) for name in sorted(names)]
        is_about_body = names == {"body"}

        def holds(message: Message) -> bool:
            try:
                if is_about_body:
                    value = evaluate(data={"body": message.body})
                else:
                    value = evaluate(data={name: see(message) for name, see in seen})
                verdict = value.value()
            except UndecodableMessage as error:
                raise RuleError(rule, str(error)) from error
            except (RuntimeError, ValueError, TypeError) as error:
                raise RuleError(rule, f"when: {error}") from error
            if verdict is True or verdict is False:
                return verdict
            if value.type() == failure:
                raise RuleError(rule, f"when: {verdict}")
            raise RuleError(rule, f"when: it is {verdict!r}, and neither true nor false")

        return holds

    def names(self, text: str) -> frozenset[str]:
        """Return what of a message an expression may look at: what it has the word for."""
        bare = _STRING.sub("", text)
        return frozenset(name for name in _SEEN if re.search(rf"\b{name}\b", bare))


def _told(error: str) -> str:
    """Return what the library says of an expression, with the place in it."""
    found = _AT.search(error)
    if found is None:
        return error.partition("[")[0].strip()
    line, column, why = found.groups()
    where = f"character {column}" if line == "1" else f"line {line}, character {column}"
    return f"at {where}: {why}"


def _text(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _header(message: Message) -> Mapping[str, Any]:
    return {name: _text(value) for name, value in (message.headers or {}).items()}


_SEEN: Final[Mapping[str, Callable[[Message], Any]]] = {
    "body": lambda message: message.body,
    "topic": lambda message: message.topic,
    "pointer": lambda message: message.pointer,
    "key": lambda message: _text(message.key),
    "header": _header,
}
