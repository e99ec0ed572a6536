"""A set of rules, and what it decides about batches of messages, grouped by where they go.

Nothing here waits for anything, but for functions that rules call.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from poe.errors import InvalidMapping, RuleError
from poe.mapping.condition import Condition
from poe.mapping.decision import Decisions
from poe.mapping.decoding import Decode
from poe.mapping.expression import Cel, Expressions
from poe.mapping.fate import Apply, compile_fate
from poe.mapping.functions import runner_of
from poe.mapping.ledger import Ledger
from poe.mapping.matcher import DECODING, Matcher
from poe.mapping.message import Columns, Message, topic_bytes, topic_text
from poe.mapping.pattern import Clause
from poe.mapping.rule import (
    Call,
    Example,
    Fate,
    Match,
    OnError,
    Order,
    Rule,
    Source,
    Start,
    Undecodable,
)

OTHERWISE: Final = "otherwise"
"""In the place of a rule's id: the message met none."""

HOPS: Final = "poe-hops"
"""Header: how many mappings a message has come through."""

ORIGIN: Final = "poe-origin"
"""Header: topic and pointer where it was before the first of them, as `orders/1234`."""

_TOPICS_KEPT: Final = 10_000
_DIGITS_MAX: Final = 19


def number_in(headers: Mapping[str, bytes] | None, name: str) -> int:
    """Return the number that a header is; 0 without one, or where it is none.

    Anybody may have written it, and thousands of digits are an error of Python's.
    """
    digits = (headers or {}).get(name, b"0")
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else 0


def hops_of(headers: Mapping[str, bytes]) -> int:
    """Return how many mappings a message has come through, as its headers say."""
    return number_in(headers, HOPS)


def onward(batch: Columns, place: int, headers: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """Return the headers of a message that goes on to another topic: with origin and hops."""
    came = (batch.headers[place] if batch.headers else None) or {}
    origin = came.get(ORIGIN, b"%s/%d" % (batch.topic, batch.pointers[place]))
    return {**(headers or {}), ORIGIN: origin, HOPS: b"%d" % (hops_of(came) + 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """A mapping as data: what it reads, its rules in their order, and what else there is to say."""

    name: str
    source: Source
    otherwise: Fate
    rules: tuple[Rule, ...]
    start: Start = "oldest"
    decode: Decode = "json"
    undecodable: Undecodable = "error"
    """What a message is whose value cannot be decoded where rules look at bodies: an error, or one
    that meets none of these rules."""

    on_error: OnError = field(default_factory=OnError)
    match: Match = "first"
    retries: Order = "ordered"
    """Whether what is tried again holds those behind it in its partition."""

    loop: bool = False
    """Whether rules may put onto topics that the mapping reads."""

    hops_max: int = 16
    examples: tuple[Example, ...] = ()

    @property
    def dead_topic(self) -> bytes:
        """Where dead letters go."""
        return topic_bytes(f"{self.name}.dead")

    @property
    def retry_topic(self) -> bytes:
        """Where messages wait that hold nobody."""
        return topic_bytes(f"{self.name}.retry")

    def compile(self) -> "Compiled":
        """Return what decides.

        Raises:
            InvalidMapping: a rule is none; its place is named.
            MappingExtraMissing: a rule needs what is not installed.
        """
        return Compiled(self)


class Tried(NamedTuple):
    """How a message fares by a rule."""

    rule: str
    is_met: bool | None
    """None: the rule ends with an error."""

    clauses: list[Clause]
    error: str = ""


class Explanation(NamedTuple):
    """How a message fares by rules, up to the one that counts."""

    tried: list[Tried]

    @property
    def met(self) -> list[str]:
        """The rules that it meets."""
        return [each.rule for each in self.tried if each.is_met]


def _tried(rule: str, condition: Condition, message: Message) -> Tried:
    clauses: list[Clause] = []
    try:
        clauses.extend(condition.clauses(message))
    except RuleError as error:
        return Tried(rule, None, clauses, error.reason)
    return Tried(rule, all(each.is_met for each in clauses), clauses)


class Compiled:
    """Rules that are ready to decide; one thread at a time may ask."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        languages: list[Expressions] = []

        def expressions() -> Expressions:
            if not languages:
                languages.append(Cel())
            return languages[0]

        for each, count in Counter(each.id for each in rules.rules).items():
            if count > 1 or each in {OTHERWISE, DECODING}:
                problem = "is used twice" if count > 1 else "has a meaning of its own"
                raise InvalidMapping(
                    place=f"rule {each!r}: id", problem=f"{problem}; use another name"
                )
        self._conditions = {each.id: Condition(each, expressions) for each in rules.rules}
        self._runners = {
            each.id: runner_of(each.fate) for each in rules.rules if isinstance(each.fate, Call)
        }
        self._fates = {
            each.id: compile_fate(each.id, each.fate, rules.decode, self._runners.get(each.id))
            for each in rules.rules
        }
        self.has_functions = bool(self._runners)
        """Whether messages are handed to functions."""
        self._otherwise = compile_fate(OTHERWISE, rules.otherwise, rules.decode)
        self._by_topic: dict[bytes, tuple[Matcher, Sequence[Apply]]] = {}
        self.hash = sha256(repr(_canonical(rules)).encode("utf-8", "surrogatepass")).digest()
        """Of all that decides: rules of the same hash decide the same."""

    def close(self) -> None:
        """End the processes of functions; nobody asks it again."""
        for each in self._runners.values():
            each.close()

    def decide(self, batch: Columns) -> Decisions:
        """Return what becomes of the messages of a batch, which are of one topic."""
        matcher, fates = self._of_topic(batch.topic)
        chosen = matcher.choose(batch)
        tired = self._tired(batch)
        ledger = Ledger(batch, [each for each in chosen.failed if each.place not in tired])
        ledger.bury(HOPS, tired, f"it came through {self.rules.hops_max} mappings; is it a loop?")
        for apply, places in zip(fates, chosen.places, strict=True):
            left = [each for each in places if each not in tired] if tired else places
            if left:
                apply(ledger, left)
        return ledger.decisions()

    def explain(self, message: Message) -> Explanation:
        """Return how a message fares by each rule; no function is called.

        Raises:
            UndecodableMessage: rules look at the body, and there is none.
        """
        conditions = self._conditions_of(message.topic)
        tried = []
        for rule, condition in self._conditions.items():
            if rule not in conditions:
                assert condition.topic is not None
                clauses = list(condition.topic.clauses("topic", message.topic))
                tried.append(Tried(rule, is_met=False, clauses=clauses))
                continue
            tried.append(_tried(rule, condition, message))
            if tried[-1].is_met is not False and self.rules.match == "first":
                break
        return Explanation(tried)

    def _tired(self, batch: Columns) -> frozenset[int]:
        """Return which messages have come through too many mappings."""
        most = self.rules.hops_max
        return frozenset(
            place
            for place, headers in enumerate(batch.headers or ())
            if headers and HOPS in headers and hops_of(headers) >= most
        )

    def _conditions_of(self, topic: str) -> dict[str, Condition]:
        """Return those of the rules that messages of a topic may meet."""
        return {
            rule: each
            for rule, each in self._conditions.items()
            if each.topic is None or each.topic.test(topic)
        }

    def _of_topic(self, topic: bytes) -> tuple[Matcher, Sequence[Apply]]:
        """Return what finds, and what does with, messages of a topic."""
        found = self._by_topic.get(topic)
        if found is None:
            conditions = self._conditions_of(topic_text(topic))
            matcher = Matcher(
                conditions,
                is_first=self.rules.match == "first",
                decode=self.rules.decode,
                is_lenient=self.rules.undecodable == "otherwise",
            )
            found = matcher, [*(self._fates[each] for each in conditions), self._otherwise]
            if len(self._by_topic) >= _TOPICS_KEPT:
                self._by_topic.clear()
            self._by_topic[topic] = found
        return found


def _canonical(value: object) -> object:
    """Return all that rules of the same meaning have in common, in a form whose text is the same.

    What fields compare is what decides; the order of keys does not. Examples decide nothing.
    """
    if is_dataclass(value) and not isinstance(value, type):
        told = [
            (each.name, _canonical(getattr(value, each.name)))
            for each in fields(value)
            if each.compare and each.name != "examples"
        ]
        return (type(value).__name__, *told)
    if isinstance(value, Mapping):
        return sorted((str(key), _canonical(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return value
