"""Looks at all rules together: those that go round in circles, and those that nothing reaches."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from poe.errors import InvalidMapping
from poe.mapping.message import topic_text
from poe.mapping.pattern import OPERATORS, compile_pattern
from poe.mapping.rule import Call, Fate, Route, Rule
from poe.mapping.rule_set import OTHERWISE, RuleSet
from poe.mapping.template import looks_like

ANY = ("*",)


def refuse_circles(rules: RuleSet) -> None:
    """Refuse rules by which a message may come back to the same rule, unless `loop` is true.

    Functions are believed to put onto what their rule lists in `to` and `topics`.

    Raises:
        InvalidMapping: names the rules, in the order of the circle.
    """
    if rules.loop:
        return
    if any(may_meet(topic_text(rules.dead_topic), each) for each in rules.source.topics):
        raise InvalidMapping(
            place="source",
            problem=f"has {topic_text(rules.dead_topic)!r} in it, where dead letters of the "
            "mapping go; name other topics, or write loop = true",
        )
    fates: dict[str, tuple[Fate, Sequence[str]]] = {
        each.id: (each.fate, _topics_of(each.topic)) for each in rules.rules
    }
    fates[OTHERWISE] = rules.otherwise, ANY
    ways = {}
    for one, (fate, _) in fates.items():
        # Mostly none; each pair of rules is looked at for those alone.
        back = [
            topic
            for topic in _outputs(fate)
            if any(may_meet(topic, source) for source in rules.source.topics)
        ]
        ways[one] = [
            other
            for other, (_, wanted) in (fates.items() if back else ())
            if any(may_meet(topic, each) for topic in back for each in wanted)
        ]
    for begin in ways:
        circle = _circle(ways, begin)
        if circle:
            raise InvalidMapping(
                place=f"rule {begin!r}: to",
                problem=f"goes in a circle: {' -> '.join([*circle, begin])}; "
                "put onto a topic that is not in `source`, or write loop = true",
            )


def warnings(rules: RuleSet) -> list[str]:
    """Return a sentence for each rule that is never reached, looks misspelt, or may repeat."""
    return [*_unreached(rules), *_misspelt(rules), *_impure(rules)]


def _impure(rules: RuleSet) -> Iterator[str]:
    fates = [(each.place, f"rule {each.id!r}", each.fate) for each in rules.rules]
    for place, name, fate in [*fates, ("", OTHERWISE, rules.otherwise)]:
        if isinstance(fate, Call) and not fate.pure:
            where = f"{place}: " if place else ""
            yield (
                f"{where}{name} calls {fate.name}, which may lose or repeat messages of a batch "
                "that is done again if it says something else then; write pure = true if it "
                "always says the same of a message"
            )


def _misspelt(rules: RuleSet) -> Iterator[str]:
    for rule in rules.rules:
        where = f"{rule.place}: " if rule.place else ""
        for name in ("header", "body"):
            for place, operator in _near_operators(getattr(rule, name), name, depth=0):
                told = f"{place} is a field; if an operator is meant, write {operator!r}"
                yield f"{where}rule {rule.id!r}: {told}"


def _near_operators(data: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield the fields that look like an operator, and which; a document's own fields do not."""
    if not isinstance(data, Mapping):
        return
    for name, each in data.items():
        if name in _OF_VALUES:  # a value, whose fields are no patterns
            continue
        if depth and len(data) == 1 and name not in OPERATORS and not name.startswith("."):
            found = _OTHER_NAMES.get(name.lower())
            if found is None and isinstance(each, int | float):
                found = next(iter(get_close_matches(name, _NEAR_NUMBERS, 1, _NEAR)), None)
            elif found is None and isinstance(each, str):
                found = next(iter(get_close_matches(name, _NEAR_TEXTS, 1, _NEAR)), None)
            if found is not None:
                yield f"{place}.{name}", found
        yield from _near_operators(each, f"{place}.{name}", depth + 1)


_NEAR: Final = 0.8
_NEAR_NUMBERS: Final = ("gt", "ge", "lt", "le")
_NEAR_TEXTS: Final = ("prefix", "suffix", "contains", "regex")
_OTHER_NAMES: Final = {
    "gte": "ge", "lte": "le", "equals": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
    "<": "lt", "<=": "le", "startswith": "prefix", "starts_with": "prefix", "endswith": "suffix",
    "ends_with": "suffix", "regexp": "regex", "matches": "regex", "one_of": "in", "oneof": "in",
    "exist": "exists", "present": "exists",
}  # fmt: skip
"""What operators are called elsewhere."""


def _unreached(rules: RuleSet) -> Iterator[str]:
    earlier = _Earlier()
    for rule in rules.rules:
        where = f"{rule.place}: " if rule.place else ""
        name = f"{where}rule {rule.id!r} is never reached"
        wanted = _topics_of(rule.topic)
        if not any(may_meet(one, other) for one in wanted for other in rules.source.topics):
            yield f"{name}: the mapping does not read {', '.join(wanted)}"
        elif rules.match == "first":
            before = earlier.covering(rule)
            if before is not None:
                yield f"{name}: whatever meets it meets rule {before.id!r}, which comes before"
            earlier.add(rule)


class _Earlier:
    """Rules that come before others, by a part that what they cover has to have, too.

    So few of thousands are compared with each that comes.
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._by_part: defaultdict[_Part, list[int]] = defaultdict(list)
        self._of_all: list[int] = []

    def add(self, rule: Rule) -> None:
        """Take one more."""
        wanted = list(_wanted(_conditions(rule), ()))
        # What fewest others are known by: many may want the same of one field.
        parts = min(wanted, key=lambda each: max(len(self._by_part[p]) for p in each), default=None)
        for known in [self._of_all] if parts is None else (self._by_part[p] for p in parts):
            known.append(len(self._rules))
        self._rules.append(rule)

    def covering(self, rule: Rule) -> Rule | None:
        """Return the first of them that all messages meet which meet a rule."""
        near = {
            each for part in _parts(_conditions(rule), ()) for each in self._by_part.get(part, ())
        }
        for number in sorted(near.union(self._of_all)):
            if _covers(self._rules[number], rule):
                return self._rules[number]
        return None


_Part = tuple[tuple[str, ...], str]
"""Where in the conditions of a rule, and what."""


def _conditions(rule: Rule) -> dict[str, Any]:
    names = ("topic", "key_is", "header", "body", "when")
    return {name: each for name in names if (each := getattr(rule, name)) is not None}


def _wanted(data: Any, place: tuple[str, ...]) -> Iterator[list[_Part]]:  # noqa: ANN401 - a pattern
    """Yield parts of which all that `data` covers has one, for each of its ends.

    What `{"body": {"country": ["DE", "FR"]}}` covers wants one of the two there, or both as a list.
    """
    if isinstance(data, dict) and data:
        for name, each in data.items():
            yield from _wanted(each, (*place, name))
    elif isinstance(data, list):
        yield [(place, repr(each)) for each in (data, *data)]
    elif place:
        yield [(place, repr(data))]


def _parts(data: Any, place: tuple[str, ...]) -> Iterator[_Part]:  # noqa: ANN401 - a pattern
    if isinstance(data, dict):
        yield place, "{}"
        for name, each in data.items():
            yield from _parts(each, (*place, name))
    else:
        yield place, repr(data)


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Return whether all messages that meet one rule certainly meet another one."""
    return _is_part(_conditions(wide), _conditions(narrow))


def _is_part(wide: Any, narrow: Any) -> bool:  # noqa: ANN401 - patterns
    if isinstance(wide, dict) and isinstance(narrow, dict):
        is_other_kind = not wide and not narrow.keys().isdisjoint(OPERATORS)  # a map, or a value
        return (
            "not" not in wide
            and not is_other_kind
            and all(
                name in narrow
                and (_is_same if name in _OF_VALUES else _is_part)(each, narrow[name])
                for name, each in wide.items()
            )
        )
    if isinstance(wide, list) and not isinstance(narrow, (dict, list)):
        return any(_is_same(each, narrow) for each in wide)
    return _is_same(wide, narrow)


def _is_same(wide: Any, narrow: Any) -> bool:  # noqa: ANN401 - patterns
    return repr(wide) == repr(narrow)  # of one type, too: true is not 1


_OF_VALUES: Final = frozenset({"eq", "ne"})
"""Operators whose operand is no pattern: a map there has those fields alone."""


def _topics_of(pattern: Any) -> Sequence[str]:  # noqa: ANN401 - a pattern
    """Return the names that a pattern of topics may stand for; any, where it has operators."""
    names = pattern if isinstance(pattern, list | tuple) else [pattern]
    return names if all(isinstance(each, str) for each in names) else ANY


def _outputs(fate: Fate) -> Sequence[str]:
    match fate:
        case Route():
            return [
                out
                for each in fate.to
                for out in (fate.topics if fate.topics and "{" in each else [looks_like(each)])
            ]
        case Call():
            route = [] if fate.route is None else _outputs(fate.route)
            return [*route, *(fate.topics or ())]
    return ()


def _circle(ways: Mapping[str, Sequence[str]], begin: str) -> list[str]:
    """Return the shortest way from a rule back to itself; empty where there is none."""
    paths, seen = [[begin]], set()
    while paths:
        path = paths.pop(0)
        for each in ways[path[-1]]:
            if each == begin:
                return path
            if each not in seen:
                seen.add(each)
                paths.append([*path, each])
    return []


def may_meet(one: str, other: str) -> bool:
    """Return whether some name is what both stand for, `*` being any characters."""
    if "*" not in one or "*" not in other:
        wanted, name = (one, other) if "*" in one else (other, one)
        return compile_pattern(wanted, kind="name").test(name)
    # Row by row: whether the rest of one, from each place on, can meet the rest of the other.
    row = [all(each == "*" for each in other[at:]) for at in range(len(other) + 1)]
    for letter in reversed(one):
        below, row = row, [False] * len(row)
        row[-1] = letter == "*" and below[-1]
        for at in reversed(range(len(other))):
            if letter == "*" or other[at] == "*":
                row[at] = below[at] or row[at + 1]
            else:
                row[at] = letter == other[at] and below[at + 1]
    return row[0]
