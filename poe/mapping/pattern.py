"""Patterns: what a value has to be, as data; compiled to a function that never raises.

A pattern is a value that has to be met exactly, a list of patterns of which one has to be met, a
map of fields each of which has its pattern, or a map of operators (`gt`, `prefix` …) all of which
have to be met. A field that is called as an operator is, is written with a dot in front: `".in"`.

A value of another type, and one that is not there, meets nothing but `exists = false` and `not`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from poe.errors import InvalidMapping, MappingExtraMissing
from poe.errors.short_text import short_repr

Test = Callable[[Any], bool]
"""Whether a value meets a pattern; `MISSING` where there is none."""

DEPTH_MAX: Final = 32
"""Patterns in patterns; a pattern is compiled by recursion."""

ALTERNATIVES_MAX: Final = 10_000
_BITS_MAX: Final = 1024
"""Of a number, which is told in errors."""


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()
"""In the place of a value that is not there."""


class Clause(NamedTuple):
    """A part of a pattern, and how a value fares by it."""

    place: str
    is_met: bool
    wanted: str
    found: str


class Pattern(ABC):
    """What a value has to be."""

    __slots__ = ("test",)

    test: Test

    @abstractmethod
    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield how the value fares, part by part; all are met if, and only if, the pattern is."""

    def needles(self) -> frozenset[str] | None:
        """Return texts of which each value that meets the pattern has one in it, if there are."""
        return None

    def field_test(self, name: str) -> Test:
        """Return the test of a map one field of which has to meet the pattern."""
        test = self.test
        return lambda value: test(value.get(name, MISSING))


class Leaf(Pattern):
    """One operator, or a value that has to be met."""

    __slots__ = ("operand", "operator", "wanted")

    def __init__(self, operator: str, operand: object, test: Test) -> None:
        self.operator = operator
        self.operand = operand
        """As the values are: for keys and headers bytes."""
        self.wanted = f"{operator} {short_repr(operand)}"
        self.test = test

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield the one clause that it is."""
        yield Clause(place, self.test(value), self.wanted, short_repr(value))

    def field_test(self, name: str) -> Test:
        """Return the same; what is asked most costs one call less."""
        wanted = self.operand
        if self.operator == "eq" and isinstance(wanted, str):
            return lambda value: value.get(name) == wanted
        if self.operator in _ORDERS and type(wanted) in {int, float}:
            return _FIELD_ORDERS[self.operator](name, wanted)
        return super().field_test(name)

    def needles(self) -> frozenset[str] | None:
        """Return the text, where a part of the value has to be one."""
        if self.operator not in _NEEDLES or not isinstance(self.operand, str):
            return None
        return frozenset({self.operand}) if self.operand else None


class Every(Pattern):
    """Several patterns of one value, all of which have to be met."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Pattern]) -> None:
        self.parts = parts
        self.test = _all_of([each.test for each in parts])

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield those of each."""
        for each in self.parts:
            yield from each.clauses(place, value)

    def needles(self) -> frozenset[str] | None:
        """Return those of the part that has the best."""
        return _best_needles(self.parts)


class OneOf(Pattern):
    """Several patterns of one value, one of which has to be met."""

    __slots__ = ("parts", "wanted")

    def __init__(self, parts: Sequence[Pattern], data: object) -> None:
        self.parts = parts
        self.wanted = f"one of {short_repr(data)}"
        literals = [each.operand for each in parts if isinstance(each, Leaf) and _is_literal(each)]
        tests = [each.test for each in parts if not _is_literal(each)]
        self.test = _one_of(frozenset(literals), tests)

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield one clause: which of them is closest, nobody knows."""
        yield Clause(place, self.test(value), self.wanted, short_repr(value))

    def needles(self) -> frozenset[str] | None:
        """Return those of all parts, if all have some."""
        found = [each.needles() for each in self.parts]
        known = [each for each in found if each is not None]
        return frozenset().union(*known) if len(known) == len(found) else None


class Fields(Pattern):
    """A map of which fields have patterns; it may have others."""

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[str, Pattern]) -> None:
        self.parts = parts
        # Texts first: what is asked most often tells most soon.
        ordered = sorted(parts.items(), key=lambda each: not _is_text(each[1]))
        tests = [each.field_test(name) for name, each in ordered]
        if ordered and _is_text(ordered[0][1]):
            self.test = _text_and(ordered[0][0], ordered[0][1].operand, tests[1:])  # type: ignore[attr-defined]
        else:
            self.test = _map_of(tests)

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield those of each field."""
        if type(value) is not dict:
            yield Clause(place, is_met=False, wanted="a map", found=short_repr(value))
            return
        for name, each in self.parts.items():
            yield from each.clauses(f"{place}.{name}", value.get(name, MISSING))

    def needles(self) -> frozenset[str] | None:
        """Return those of the field that has the best."""
        return _best_needles(self.parts.values())

    def literals(self) -> dict[str, list[str]]:
        """Return the fields that have to be one of some texts, and these texts."""
        found = {}
        for name, each in self.parts.items():
            choices = each.parts if isinstance(each, OneOf) else [each]
            operands = [
                one.operand for one in choices if isinstance(one, Leaf) and _is_literal(one)
            ]
            texts = [each for each in operands if isinstance(each, str)]
            if len(texts) == len(choices):
                found[name] = list(dict.fromkeys(texts))
        return found


class Not(Pattern):
    """The contrary of a pattern: met, too, by what is not there."""

    __slots__ = ("part", "wanted")

    def __init__(self, part: Pattern, data: object) -> None:
        self.part = part
        self.wanted = f"not {short_repr(data)}"
        test = part.test
        self.test = lambda value: not test(value)

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield one clause."""
        yield Clause(place, self.test(value), self.wanted, short_repr(value))


class Elements(Pattern):
    """A list of which any, or all, elements have to meet a pattern."""

    __slots__ = ("_is_any", "part", "wanted")

    def __init__(self, operator: str, part: Pattern, data: object) -> None:
        self.part = part
        self.wanted = f"{operator} {short_repr(data)}"
        test, judge = part.test, any if operator == "any" else all
        self._is_any = operator == "any"
        self.test = lambda value: type(value) is list and judge(map(test, value))

    def clauses(self, place: str, value: object) -> Iterator[Clause]:
        """Yield one clause."""
        yield Clause(place, self.test(value), self.wanted, short_repr(value))

    def needles(self) -> frozenset[str] | None:
        """Return those of an element that there has to be: all may be none."""
        return self.part.needles() if self._is_any else None


def _best_needles(parts: Iterable[Pattern]) -> frozenset[str] | None:
    """Return the fewest; of as many, the longest."""
    found = [each for each in (part.needles() for part in parts) if each is not None]
    return min(found, key=lambda each: (len(each), -min(map(len, each))), default=None)


# ---- compiling -----------------------------------------------------------------------------------


Kind = Literal["document", "bytes", "name"]
"""What values are: of a document; bytes, as keys and headers are, for which texts stand for their
UTF-8; or names of topics, where `*` in a text stands for any characters."""


def compile_pattern(data: object, place: str = "body", kind: Kind = "document") -> Pattern:
    """Return a pattern of data.

    Args:
        data: see the module.
        place: what the pattern is of, for errors and explanations.
        kind: of the values.

    Raises:
        InvalidMapping: the data is no pattern; its place is named.
        MappingExtraMissing: it has a `regex`, and google-re2 is not installed.
    """
    return _Compiler(kind).compile(data, place, 0)


class _Compiler:
    def __init__(self, kind: Kind) -> None:
        self._is_bytes = kind == "bytes"
        self._is_name = kind == "name"

    def compile(self, data: object, place: str, depth: int) -> Pattern:
        if depth > DEPTH_MAX:
            raise InvalidMapping(place, f"patterns are nested more than {DEPTH_MAX} deep")
        if isinstance(data, Mapping):
            return self._map(data, place, depth)
        if isinstance(data, list | tuple):
            return self._one_of(data, place, depth)
        literal = self._literal(data, place)
        if self._is_name and isinstance(data, str) and "*" in data:
            return Leaf("like", literal, _like(data))
        return Leaf("eq", literal, _equal(literal))

    def _map(self, data: Mapping[Any, Any], place: str, depth: int) -> Pattern:
        named = [each for each in data if each in OPERATORS]
        if not named:
            parts = {
                _field_name(name, place): self.compile(each, f"{place}.{name}", depth + 1)
                for name, each in data.items()
            }
            return Fields(parts)
        if len(named) < len(data):
            other = next(each for each in data if each not in OPERATORS)
            problem = (
                f"{named[0]!r} is an operator, and {other!r} is none; operators are "
                f"{', '.join(OPERATORS)}, and a field of such a name is written '.{named[0]}'"
            )
            raise InvalidMapping(place, problem)
        found = [self._operator(name, data[name], f"{place}.{name}", depth + 1) for name in named]
        return found[0] if len(found) == 1 else Every(found)

    def _one_of(self, data: Sequence[Any], place: str, depth: int) -> Pattern:
        if not 0 < len(data) <= ALTERNATIVES_MAX:
            raise InvalidMapping(place, f"has {len(data)} choices; use 1 to {ALTERNATIVES_MAX}")
        parts = [
            self.compile(each, f"{place}.{number}", depth + 1) for number, each in enumerate(data)
        ]
        return parts[0] if len(parts) == 1 else OneOf(parts, data)

    def _operator(self, name: str, operand: Any, place: str, depth: int) -> Pattern:  # noqa: ANN401
        if name in _ORDERS:
            return Leaf(name, operand, self._order(name, operand, place))
        if name in _PARTS:
            return Leaf(name, operand, self._part(name, operand, place))
        if name in {"any", "all"}:
            return Elements(name, self.compile(operand, place, depth), operand)
        make: Callable[[Any, str, int], Pattern] = getattr(self, f"_{name}")
        return make(operand, place, depth)

    def _eq(self, operand: Any, place: str, depth: int) -> Pattern:  # noqa: ANN401
        wanted = self._value(operand, place, depth)
        return Leaf("eq", wanted, _equal(wanted))

    def _ne(self, operand: Any, place: str, depth: int) -> Pattern:  # noqa: ANN401
        equal = _equal(self._value(operand, place, depth))
        return Leaf("ne", operand, lambda value: value is not MISSING and not equal(value))

    def _in(self, operand: Any, place: str, depth: int) -> Pattern:  # noqa: ANN401
        if not isinstance(operand, list | tuple) or any(
            isinstance(each, Mapping | list | tuple) for each in operand
        ):
            raise InvalidMapping(place, problem=f"is {short_repr(operand)}; use a list of values")
        return self._one_of(operand, place, depth)

    def _exists(self, operand: Any, place: str, _: int) -> Pattern:  # noqa: ANN401
        if not isinstance(operand, bool):
            raise InvalidMapping(place, problem=f"is {short_repr(operand)}; use true or false")
        return Leaf("exists", operand, _is_there if operand else _is_missing)

    def _not(self, operand: Any, place: str, depth: int) -> Pattern:  # noqa: ANN401
        return Not(self.compile(operand, place, depth), operand)

    def _regex(self, operand: Any, place: str, _: int) -> Pattern:  # noqa: ANN401
        if not isinstance(operand, str):
            problem = f"is {short_repr(operand)}; use a regular expression"
            raise InvalidMapping(place, problem)
        return Leaf("regex", operand, _search(operand, place, bytes if self._is_bytes else str))

    def _order(self, name: str, operand: Any, place: str) -> Test:  # noqa: ANN401
        operand = self._literal(operand, place)
        if operand is None or isinstance(operand, bool):
            raise InvalidMapping(place, f"is {short_repr(operand)}; use a number or a text")
        return _ORDERS[name](operand, _orderable(operand))

    def _part(self, name: str, operand: Any, place: str) -> Test:  # noqa: ANN401
        text = self._literal(operand, place)
        if not isinstance(text, str | bytes):
            raise InvalidMapping(place, f"is {short_repr(operand)}; use a text")
        return _PARTS[name](text, type(text))

    def _value(self, data: Any, place: str, depth: int) -> Any:  # noqa: ANN401
        """Return what a value has to equal, which may be a map or a list, too."""
        if depth > DEPTH_MAX:
            raise InvalidMapping(place, f"values are nested more than {DEPTH_MAX} deep")
        if isinstance(data, Mapping):
            return {key: self._value(each, place, depth + 1) for key, each in data.items()}
        if isinstance(data, list | tuple):
            return [self._value(each, place, depth + 1) for each in data]
        return self._literal(data, place)

    def _literal(self, data: Any, place: str) -> Any:  # noqa: ANN401
        if isinstance(data, float) and math.isnan(data):
            raise InvalidMapping(place, "is not a number (nan), which nothing equals")
        if isinstance(data, int) and data.bit_length() > _BITS_MAX:
            raise InvalidMapping(place, f"has more than {_BITS_MAX} bits, as no message can")
        if isinstance(data, str):
            return data.encode("utf-8", "surrogateescape") if self._is_bytes else data
        if isinstance(data, bytes) or (
            not self._is_bytes and (data is None or isinstance(data, bool | int | float))
        ):
            return data
        allowed = "a text" if self._is_bytes else "a text, a number, true or false"
        raise InvalidMapping(place, f"is {short_repr(data)}; use {allowed}")


def _field_name(name: object, place: str) -> str:
    if not isinstance(name, str):
        raise InvalidMapping(place, f"has a field {short_repr(name)}; use a text")
    return name.removeprefix(".")


def _is_literal(pattern: Pattern) -> bool:
    """Return whether it is met by one text, or one run of bytes, alone."""
    return (
        isinstance(pattern, Leaf)
        and pattern.operator == "eq"
        and isinstance(pattern.operand, str | bytes)
    )


def _is_text(pattern: Pattern) -> bool:
    return isinstance(pattern, Leaf) and pattern.operator == "eq" and type(pattern.operand) is str


# ---- tests ---------------------------------------------------------------------------------------


def _is_there(value: object) -> bool:
    return value is not MISSING


def _is_missing(value: object) -> bool:
    return value is MISSING


def _equal(wanted: Any) -> Test:  # noqa: ANN401 - any value of a document
    """Return a test for a value: true is not 1, but 1 is 1.0."""
    if wanted is None or isinstance(wanted, bool):
        return lambda value: value is wanted
    if isinstance(wanted, str | bytes):
        return lambda value: value == wanted
    if isinstance(wanted, int | float):
        return lambda value: value == wanted and type(value) is not bool
    if isinstance(wanted, list):
        tests = [_equal(each) for each in wanted]
        return lambda value: (
            type(value) is list
            and len(value) == len(tests)
            and all(test(each) for test, each in zip(tests, value, strict=True))
        )
    fields = {key: _equal(each) for key, each in wanted.items()}
    return lambda value: (
        type(value) is dict
        and value.keys() == fields.keys()
        and all(test(value[key]) for key, test in fields.items())
    )


def _like(wanted: str) -> Test:
    """Return a test for names, in which `*` stands for any characters; linear, as in groups."""
    first, *parts = wanted.split("*")
    last = parts.pop()

    def test(value: Any) -> bool:  # noqa: ANN401 - any value of a document
        at, end = len(first), len(value) - len(last)
        if end < at or not value.startswith(first) or not value.endswith(last):
            return False
        for part in parts:
            found = value.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return test


def _orderable(operand: object) -> frozenset[type]:
    return _NUMBERS if type(operand) in _NUMBERS else frozenset({type(operand)})


_NUMBERS: Final = frozenset({int, float})
_NEEDLES: Final = frozenset({"eq", "prefix", "suffix", "contains"})
_ORDERS: Final[Mapping[str, Callable[[Any, frozenset[type]], Test]]] = {
    "gt": lambda limit, kinds: lambda value: type(value) in kinds and value > limit,
    "ge": lambda limit, kinds: lambda value: type(value) in kinds and value >= limit,
    "lt": lambda limit, kinds: lambda value: type(value) in kinds and value < limit,
    "le": lambda limit, kinds: lambda value: type(value) in kinds and value <= limit,
}
_FIELD_ORDERS: Final[Mapping[str, Callable[[str, Any], Test]]] = {
    "gt": lambda name, limit: lambda value: type(n := value.get(name)) in _NUMBERS and n > limit,
    "ge": lambda name, limit: lambda value: type(n := value.get(name)) in _NUMBERS and n >= limit,
    "lt": lambda name, limit: lambda value: type(n := value.get(name)) in _NUMBERS and n < limit,
    "le": lambda name, limit: lambda value: type(n := value.get(name)) in _NUMBERS and n <= limit,
}
_PARTS: Final[Mapping[str, Callable[[Any, Any], Test]]] = {
    "prefix": lambda part, kind: lambda value: type(value) is kind and value.startswith(part),
    "suffix": lambda part, kind: lambda value: type(value) is kind and value.endswith(part),
    "contains": lambda part, kind: lambda value: type(value) is kind and part in value,
}
OPERATORS: Final = (
    *("eq", "ne", *_ORDERS, "in", *_PARTS, "regex"),
    *("exists", "any", "all", "not"),
)


def _search(text: str, place: str, kind: type) -> Test:
    """Return a search in linear time, which Python's own `re` does not promise."""
    try:
        import re2  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError:
        raise MappingExtraMissing("google-re2", f"{place}: a regular expression") from None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        search = re2.compile(text, options).search
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0] if error.args else error
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
        problem = f"is no regular expression of RE2: {why}"
        raise InvalidMapping(place, problem) from error

    def test(value: Any) -> bool:  # noqa: ANN401 - any value of a document
        if type(value) is not kind:
            return False
        try:
            return search(value) is not None
        except UnicodeEncodeError:  # half a surrogate pair is no character
            return False

    return test


def _all_of(tests: Sequence[Test]) -> Test:
    """Return whether a value passes all tests; unrolled, for a loop takes as long as a test."""
    match tests:
        case [a]:
            return a
        case [a, b]:
            return lambda value: a(value) and b(value)
        case [a, b, c]:
            return lambda value: a(value) and b(value) and c(value)
        case _:
            first, rest = _all_of(tests[:3]), _all_of(tests[3:])
            return lambda value: first(value) and rest(value)


def _one_of(literals: frozenset[Any], tests: Sequence[Test]) -> Test:
    kinds = frozenset(map(type, literals))  # what is not of these may not be hashable
    if not tests:
        return lambda value: type(value) in kinds and value in literals
    return lambda value: (
        (type(value) in kinds and value in literals) or any(test(value) for test in tests)
    )


def _text_and(name: str, wanted: str, tests: Sequence[Test]) -> Test:
    """Return whether a value is a map with a text, and passes all tests; in one call for most."""
    if not tests:
        return lambda value: type(value) is dict and value.get(name) == wanted
    rest = _all_of(tests)
    return lambda value: type(value) is dict and value.get(name) == wanted and rest(value)


def _map_of(tests: Sequence[Test]) -> Test:
    """Return whether a value is a map that passes all tests; unrolled, likewise."""
    match tests:
        case []:
            return lambda value: type(value) is dict
        case [a]:
            return lambda value: type(value) is dict and a(value)
        case [a, b]:
            return lambda value: type(value) is dict and a(value) and b(value)
        case [a, b, c]:
            return lambda value: type(value) is dict and a(value) and b(value) and c(value)
        case _:
            rest = _all_of(tests[2:])
            a, b = tests[:2]
            return lambda value: type(value) is dict and a(value) and b(value) and rest(value)
