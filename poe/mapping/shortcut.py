"""What can be told of an expression in CEL without asking CEL, which takes some ten times as long.

A part `body.type == 'order'` of a chain of `&&` that is false makes all of it false, also where
another part is an error: so CEL has it. Nothing else is told here, and of no other form of part.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

_STRING: Final = r"'[^'\\\n]*'|\"[^\"\\\n]*\""
_TOKEN: Final = re.compile(
    rf"(?P<string>{_STRING})|(?P<and>&&)|(?P<or>\|\||\?)|(?P<rest>.)", re.DOTALL
)
_UNKNOWN: Final = re.compile(r"//|\\|`|'''|\"\"\"|\b[rRbB]+['\"]")
"""Comments, escapes, quoted names and strings of other kinds: nothing is told of such a text."""
_PART: Final = re.compile(
    rf"\s*body\s*\.\s*([A-Za-z_]\w*)\s*(==|!=|<=|>=|<|>)\s*({_STRING}|-?[0-9]{{1,18}})\s*", re.ASCII
)
_BODY: Final = re.compile(r"(?<![\w.])body\b(?!\s*\.\s*[A-Za-z_]\w*\s*(?![\w(\s]))", re.ASCII)
_FIELD: Final = re.compile(r"(?<![\w.])body\s*\.\s*([A-Za-z_]\w*)", re.ASCII)
_INT_MAX: Final = (1 << 63) - 1

Refutes = Callable[[dict[Any, Any]], bool]
"""Whether an expression is certainly false for a body that is a map."""


class _Part(NamedTuple):
    field: str
    operator: str
    literal: str | int


def fields_of(text: str) -> frozenset[str] | None:
    """Return the fields of the body that an expression can see; None where it may see all of it."""
    if _UNKNOWN.search(text):
        return None
    bare = re.sub(_STRING, "''", text)
    return None if _BODY.search(bare) else frozenset(_FIELD.findall(bare))


def refuter_of(text: str) -> Refutes | None:
    """Return what tells at once that an expression is false; None where nothing can be told."""
    if _UNKNOWN.search(text):
        return None
    tests = [_refuter(each) for each in _parts(text)]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    first, *others = tests
    return lambda body: first(body) or any(test(body) for test in others)


def _parts(text: str) -> Iterator[_Part]:
    """Yield the parts of a chain of `&&` that compare a field of the body with a literal."""
    depth, begin, parts = 0, 0, list[str]()
    for token in _TOKEN.finditer(text):
        kind, found = token.lastgroup, token[0]
        if kind == "rest":
            depth += (found in "([{") - (found in ")]}")
        elif depth == 0 and kind == "or":
            return
        elif depth == 0 and kind == "and":
            parts.append(text[begin : token.start()])
            begin = token.end()
    parts.append(text[begin:])
    for part in parts:
        if (match := _PART.fullmatch(part)) is not None:
            field, operator, literal = match.groups()
            is_text = literal[0] in "'\""
            yield _Part(field, operator, literal[1:-1] if is_text else int(literal))


def _refuter(part: _Part) -> Refutes:
    """Return whether a value of the literal's own kind does not compare so; else CEL is asked."""
    name, operator, literal = part
    compares = _COMPARES[operator]
    if isinstance(literal, str):
        return lambda body: type(value := body.get(name)) is str and not compares(value, literal)
    return lambda body: (
        type(value := body.get(name)) is int
        and -_INT_MAX <= value <= _INT_MAX
        and not compares(value, literal)
    )


_COMPARES: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda value, literal: value == literal,
    "!=": lambda value, literal: value != literal,
    "<": lambda value, literal: value < literal,
    "<=": lambda value, literal: value <= literal,
    ">": lambda value, literal: value > literal,
    ">=": lambda value, literal: value >= literal,
}
