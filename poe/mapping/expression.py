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
from poe.mapping.pattern import Test
from poe.mapping.shortcut import fields_of, refuter_of

Holds = Callable[[Message], bool]
"""Whether an expression is true for a message; raises `RuleError` where that cannot be told."""

LENGTH_MAX: Final = 10_000

_AT = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_UNSEEN = re.compile(
    r"//[^\n]*|'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|"
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"",
    re.DOTALL,
)
"""Comments and strings, in which a name is a word like any other."""


class Expressions(Protocol):
    """A language of expressions."""

    def compile(self, text: str, rule: str) -> Holds:
        """Return whether an expression is true, as a function.

        Raises:
            InvalidMapping: it is none; the place in its text is named.
        """

    def compile_body(self, text: str, rule: str) -> Test | None:
        """Return the same as a function of the body; None where it looks at more than that.

        Raises:
            InvalidMapping: as `compile`.
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
        names = self.names(text)
        of_body = self.compile_body(text, rule)
        if of_body is not None:

            def holds_of_body(message: Message) -> bool:
                try:
                    body = message.body
                except UndecodableMessage as error:
                    raise RuleError(rule, str(error)) from error
                return of_body(body)

            return holds_of_body

        evaluate = self._checked(text, rule)
        seen = [(name, _SEEN[name]) for name in sorted(names)]

        def holds(message: Message) -> bool:
            try:
                data = {name: see(message) for name, see in seen}
            except UndecodableMessage as error:
                raise RuleError(rule, str(error)) from error
            return self._verdict(evaluate, data, rule)

        return holds

    def compile_body(self, text: str, rule: str) -> Test | None:
        """Return whether it is true, as a function of the body; see `Expressions`.

        Raises:
            InvalidMapping: as `compile`.
        """
        evaluate = self._checked(text, rule)
        if self.names(text) != {"body"}:
            return None
        refutes, fields = refuter_of(text), fields_of(text)

        def holds(body: object) -> bool:
            if type(body) is dict:
                if refutes is not None and refutes(body):
                    return False
                if fields is not None:  # what it cannot see costs as much to hand over
                    body = {name: body[name] for name in fields if name in body}
            return self._verdict(evaluate, {"body": body}, rule)

        return holds

    def _checked(self, text: str, rule: str) -> Callable[..., Any]:
        """Return what evaluates an expression.

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
        evaluate: Callable[..., Any] = compiled.eval
        return evaluate

    def _verdict(self, evaluate: Callable[..., Any], data: Mapping[str, Any], rule: str) -> bool:
        try:
            value = evaluate(data=data)
            verdict = value.value()
        except (RuntimeError, ValueError, TypeError) as error:
            raise RuleError(rule, f"when: {error}") from error
        if verdict is True or verdict is False:
            return verdict
        if value.type() == self._error:
            raise RuleError(rule, f"when: {verdict}")
        raise RuleError(rule, f"when: it is {verdict!r}, and neither true nor false")

    def names(self, text: str) -> frozenset[str]:
        """Return what of a message an expression may look at: what it has the word for."""
        bare = _UNSEEN.sub("", text)
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
