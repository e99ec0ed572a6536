"""Mappings made in Python; they equal those that say the same in TOML.

mapping = Mapping("orders", source={"topics": ["orders"]}, otherwise="dead")

@mapping.rule(body={"type": "order", "amount": P > 100})
def vip(message: Message) -> Action:
    return To("orders.vip", message)
"""

from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from poe.errors import InvalidMapping
from poe.mapping.checks import refuse_circles
from poe.mapping.definition import Definition, Place
from poe.mapping.function_file import MODULE, file_of, hash_of
from poe.mapping.rule_set import RuleSet

Function = TypeVar("Function", bound=Callable[..., Any])


class Operators(dict[str, Any]):
    """Operators of a pattern, all of which have to be met: `(P > 1) & (P < 9)`, `~(P > 1)`."""

    def __and__(self, other: MappingOf[str, Any]) -> "Operators":
        shared = self.keys() & other.keys()
        if shared:
            problem = f"has {', '.join(sorted(shared))} twice"
            raise InvalidMapping(place="a pattern", problem=problem)
        return Operators({**self, **other})

    def __invert__(self) -> "Operators":
        return Operators({"not": dict(self)})


class _Value:
    """Stands for the value in a pattern: `P > 100`, `P.prefix("ab")`."""

    def __gt__(self, other: object) -> Operators:
        return Operators(gt=other)

    def __ge__(self, other: object) -> Operators:
        return Operators(ge=other)

    def __lt__(self, other: object) -> Operators:
        return Operators(lt=other)

    def __le__(self, other: object) -> Operators:
        return Operators(le=other)

    def __eq__(self, other: object) -> Operators:  # type: ignore[override]  # it is a pattern
        return Operators(eq=other)

    def __ne__(self, other: object) -> Operators:  # type: ignore[override]  # likewise
        return Operators(ne=other)

    __hash__ = object.__hash__

    def is_in(self, *values: object) -> Operators:
        """Return the pattern of what is one of some values."""
        return Operators({"in": list(values)})

    def prefix(self, text: str) -> Operators:
        """Return the pattern of texts that begin so."""
        return Operators(prefix=text)

    def suffix(self, text: str) -> Operators:
        """Return the pattern of texts that end so."""
        return Operators(suffix=text)

    def contains(self, text: str) -> Operators:
        """Return the pattern of texts that have it in them."""
        return Operators(contains=text)

    def regex(self, text: str) -> Operators:
        """Return the pattern of texts in which a regular expression (RE2) finds something."""
        return Operators(regex=text)

    def any(self, pattern: object) -> Operators:
        """Return the pattern of lists with an element that meets a pattern."""
        return Operators(any=pattern)

    def all(self, pattern: object) -> Operators:
        """Return the pattern of lists all elements of which meet a pattern."""
        return Operators(all=pattern)

    @property
    def exists(self) -> Operators:
        """The pattern of what is there."""
        return Operators(exists=True)

    @property
    def missing(self) -> Operators:
        """The pattern of what is not there."""
        return Operators(exists=False)


P: Final = _Value()
"""The value that a pattern is about."""


class Mapping:
    """A mapping that is made rule by rule; the words are those of TOML.

    Args (of the constructor):
        name: of the mapping.
        settings: `source`, `otherwise`, `decode` …, as in TOML.
    """

    def __init__(self, name: str, **settings: Any) -> None:  # noqa: ANN401 - as TOML has it
        self._values: dict[str, Any] = {"name": name, **settings}
        self._rules: list[dict[str, Any]] = []
        self._tests: list[dict[str, Any]] = []

    def rule(
        self,
        name: str | None = None,
        /,
        **words: Any,  # noqa: ANN401 - as TOML has it
    ) -> Callable[[Function], Function]:
        """Add a rule, of the words of TOML; over a function, it is what the rule calls.

        The rule is called as the function is, where it is given no name.
        """
        rule = {**words} if name is None else {"id": name, **words}
        self._rules.append(rule)

        def over(function: Function) -> Function:
            rule.setdefault("id", function.__name__)
            rule["call"] = function
            return function

        return over

    def test(self, given: MappingOf[str, Any], expect: MappingOf[str, Any]) -> None:
        """Add a test: a message, and what has to become of it."""
        self._tests.append({"in": given, "expect": expect})

    def rule_set(self, file: Path | None = None) -> RuleSet:
        """Return the rules, checked.

        Args:
            file: what has made the mapping, and counts for the hash of functions that it has made.

        Raises:
            InvalidMapping: something is wrong; its place is named.
            MappingExtraMissing: a rule needs what is not installed.
        """
        values = {**self._values}
        if self._rules:
            values["rule"] = self._rules
        if self._tests:
            values["test"] = self._tests
        found = partial(_found, file)
        rules = Definition(_plain(values), self._refuse, lambda _: "", found).rule_set()
        refuse_circles(rules)
        rules.compile()
        return rules

    def _refuse(self, place: Place, why: str) -> NoReturn:
        match place:
            case ["rule", int(at), *rest]:
                named = self._rules[at].get("id", at + 1)
                shown = ": ".join(
                    [f"rule {named!r}", *([".".join(map(str, rest))] if rest else [])]
                )
            case _:
                shown = ".".join(map(str, place)) or f"mapping {self._values['name']!r}"
        raise InvalidMapping(shown, why)


def _found(file: Path | None, function: object) -> tuple[Callable[..., Any], str, str]:
    if not callable(function):
        raise InvalidMapping(repr(function), problem="is no function")
    path = file_of(function)
    name = getattr(function, "__name__", "")
    where = "" if path is None else path.name
    # Else it stands in the file of the mapping, which is run anew each time.
    is_imported = getattr(function, "__module__", "") != MODULE
    sha256 = "" if path is None else hash_of(path, is_imported=is_imported)
    if file is not None and path != file:  # which may have said how it is made
        sha256 += hash_of(file, is_imported=False)
    return function, f"{where}:{name}", sha256


def _plain(value: Any) -> Any:  # noqa: ANN401 - data
    """Return data as TOML would have it: tuples are lists, and operators are maps."""
    if isinstance(value, MappingOf):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
