"""Finds which rules the messages of a batch meet; the batch is of one topic.

What can be told from the topic alone was told before. Where any rule looks at the body, all bodies
are decoded first. Rules are looked up by a text that a field of the body has to be, so that of a
hundred rules about different types of messages few are tried.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import not_
from typing import Any, Final, NamedTuple

from poe.errors import RuleError, UndecodableMessage
from poe.mapping.condition import Condition, passes
from poe.mapping.decision import Fallen
from poe.mapping.decoding import REFUSALS, UNDECODED, Decode, decoder, load_all, loader
from poe.mapping.message import Columns
from poe.mapping.pattern import Fields, Pattern

DECODING: Final = "decode"
"""In the place of a rule's id: the value could not be decoded."""

_INDEX_FROM: Final = 4
"""Rules with literals from which on looking them up is quicker than trying them."""

_AT_ONCE: Final = 128
"""Bodies that are there at a time; also decoded together."""

_NEEDLES_MAX: Final = 3
"""Needles up to which looking for all of them is quicker than decoding."""

Case = tuple[Callable[[Any], bool], int]
"""A test of a body, or of a message, and the number of its rule."""


class Chosen(NamedTuple):
    """Which messages meet which rule."""

    places: list[list[int]]
    """For each rule, and last for those that meet none; rising."""

    failed: list[Fallen]
    """For which that could not be told."""


class Matcher:
    """The conditions of the rules for one topic.

    Args:
        conditions: of the rules by their id, in their order.
        is_first: of the rules that a message meets, the first counts alone.
        decode: how a value becomes a body.
        is_lenient: a value that cannot be decoded meets no rule about bodies; else it has failed.
    """

    def __init__(
        self,
        conditions: Mapping[str, Condition],
        *,
        is_first: bool,
        decode: Decode,
        is_lenient: bool,
    ) -> None:
        found = list(conditions.values())
        self._count = len(found)
        self._is_first = is_first
        self._decode = decode
        self._is_lenient = is_lenient
        self._has_always = is_first and bool(found) and found[0].is_always
        self._needs_body = any(each.needs_body for each in found)
        self._is_about_body = self._needs_body and all(each.is_about_body for each in found)
        self._cases: list[Case] = [
            (each.body_test if self._is_about_body else each.message_test, number)
            for number, each in enumerate(found)
        ]
        self._bodiless = [case for case in self._cases if not found[case[1]].needs_body]
        self._needles = _needles(found, decode) if is_lenient else ()
        """Of which a value has to hold one, as bytes, to meet any rule about bodies."""

        self._field, index = _index([each.body for each in found])
        self._by_text = {
            text: [self._cases[number] for number in numbers] for text, numbers in index.items()
        }
        self._by_no_text = self._by_text.pop(None, self._cases)

    def choose(self, batch: Columns) -> Chosen:
        """Return which messages of a batch meet which rules."""
        count = len(batch.pointers)
        if self._has_always:
            return Chosen([list(range(count)), *([] for _ in range(self._count))], [])
        chosen = Chosen([[] for _ in range(self._count + 1)], [])
        for begin in range(0, count, _AT_ONCE):
            part = range(begin, min(count, begin + _AT_ONCE))
            if self._is_about_body:
                try:
                    bodies = self._bodies(batch.values[part.start : part.stop])
                except REFUSALS:
                    self._one_by_one(batch, part, chosen)
                else:
                    self._quickly(bodies, begin, chosen)
            else:
                self._one_by_one(batch, part, chosen)
        return chosen

    def _bodies(self, values: Sequence[bytes | None]) -> list[Any]:
        """Return the bodies of a few messages.

        Few are there at a time: where thousands are, looking for garbage takes as long as decoding.

        Raises:
            Exception: one of `REFUSALS`: a value cannot be decoded, or is a tombstone.
        """
        if not self._needles:
            return load_all(self._decode, values)
        load = loader(self._decode)
        return [load(value) if self._may_meet(value) else UNDECODED for value in values]

    def _quickly(self, bodies: Sequence[Any], begin: int, chosen: Chosen) -> None:
        """Note where all rules are about bodies alone, and all could be decoded."""
        if not self._is_first:
            self._met_by_all(bodies, begin, chosen)
        elif self._by_text or self._needles or not self._met_in_turn(bodies, begin, chosen):
            self._met_by_first(bodies, begin, chosen)

    def _met_in_turn(self, bodies: Sequence[Any], begin: int, chosen: Chosen) -> bool:
        """Ask one rule after the other of all bodies; return False where one ends with an error.

        With few rules that is much quicker than to ask all rules of each body.
        """
        left: Sequence[int] = range(begin, begin + len(bodies))
        found: list[tuple[int, Sequence[int]]] = []
        for test, number in self._cases:
            if test is passes:
                found.append((number, left))
                left = ()
                break
            try:
                verdicts = list(map(test, bodies))
            except RuleError:
                return False
            met = list(compress(left, verdicts))
            if met:
                found.append((number, met))
                verdicts = list(map(not_, verdicts))
                left, bodies = list(compress(left, verdicts)), list(compress(bodies, verdicts))
        for number, places in found:
            chosen.places[number].extend(places)
        chosen.places[-1].extend(left)
        return True

    def _met_by_first(self, bodies: Sequence[Any], begin: int, chosen: Chosen) -> None:
        places, by_text, by_no_text, field = (
            chosen.places, self._by_text, self._by_no_text, self._field,
        )  # fmt: skip
        for place, body in enumerate(bodies, begin):
            cases = by_no_text
            if type(body) is dict:
                if by_text:
                    text = body.get(field)
                    if type(text) is str:
                        cases = by_text.get(text, by_no_text)
            elif body is UNDECODED:
                cases = self._bodiless
            try:
                for test, number in cases:
                    if test(body):
                        places[number].append(place)
                        break
                else:
                    places[-1].append(place)
            except RuleError as error:
                chosen.failed.append(Fallen(place, error.rule, error.reason))

    def _met_by_all(self, bodies: Sequence[Any], begin: int, chosen: Chosen) -> None:
        for place, body in enumerate(bodies, begin):
            try:
                met = [number for test, number in self._cases_of(body) if test(body)]
            except RuleError as error:
                chosen.failed.append(Fallen(place, error.rule, error.reason))
                continue
            for number in met or (-1,):
                chosen.places[number].append(place)

    def _one_by_one(self, batch: Columns, part: range, chosen: Chosen) -> None:
        """Note the same of any messages: what is wrong with one is told of that one."""
        places, failed = chosen
        decode = decoder(self._decode)
        for place in part:
            value = batch.values[place]
            body: Any = UNDECODED
            if self._needs_body and self._may_meet(value):
                try:
                    body = decode(value)
                except UndecodableMessage as error:
                    if not self._is_lenient:
                        failed.append(Fallen(place, DECODING, str(error)))
                        continue
            cases = self._cases_of(body) if self._needs_body else self._cases
            subject = body if self._is_about_body else batch.message(place, self._decode, body)
            met = []
            try:
                for test, number in cases:
                    if test(subject):
                        met.append(number)
                        if self._is_first:
                            break
            except RuleError as error:
                failed.append(Fallen(place, error.rule, error.reason))
                continue
            for number in met or (-1,):
                places[number].append(place)

    def _may_meet(self, value: bytes | None) -> bool:
        """Return whether a value may meet a rule about bodies, as far as its bytes tell."""
        if not self._needles:
            return True
        return value is not None and any(each in value for each in self._needles)

    def _cases_of(self, body: object) -> Sequence[Case]:
        """Return the rules that a message of this body may meet."""
        if body is UNDECODED:
            return self._bodiless
        if type(body) is dict and self._by_text:
            text = body.get(self._field)
            if type(text) is str:
                return self._by_text.get(text, self._by_no_text)
        return self._by_no_text


def _needles(conditions: Sequence[Condition], decode: Decode) -> tuple[bytes, ...]:
    """Return what values have to hold one of to meet a condition about bodies; none where unknown.

    In JSON any text may be written with a backslash, and is not told from its bytes then.
    """
    found = [
        None if each.body is None else each.body.needles() for each in conditions if each.needs_body
    ]
    known = [each for each in found if each is not None]
    texts = frozenset[str]().union(*known)
    if len(known) < len(found) or len(texts) > _NEEDLES_MAX or decode == "bytes":
        return ()
    try:
        needles = [each.encode() for each in texts]
    except UnicodeEncodeError:  # half a surrogate pair, which no document holds
        return ()
    return (*needles, b"\\") if decode == "json" else tuple(needles)


def _index(patterns: Sequence[Pattern | None]) -> tuple[str, dict[str | None, list[int]]]:
    """Return the field that most rules want to be a text, and the rules for each of these texts.

    With None stand those for which it may be anything else; without an index there is nothing.
    """
    wanted = [each.literals() if isinstance(each, Fields) else {} for each in patterns]
    counts = Counter(name for texts in wanted for name in texts)
    field, count = counts.most_common(1)[0] if counts else ("", 0)
    if count < _INDEX_FROM:
        return "", {}
    index: dict[str | None, list[int]] = {None: []}
    index |= {text: [] for texts in wanted for text in texts.get(field, ())}
    for number, texts in enumerate(wanted):
        for each in texts[field] if field in texts else list(index):
            index[each].append(number)
    return field, index
