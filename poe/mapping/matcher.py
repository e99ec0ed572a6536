"""Finds which rules the messages of a batch meet; the batch is of one topic.

What can be told from the topic alone was told before. Where any rule looks at the body, all bodies
are decoded first. Rules are looked up by a text that a field of the body has to be, so that of a
hundred rules about different types of messages few are tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from operator import not_
from typing import Any, Final, NamedTuple

from poe.errors import RuleError, UndecodableMessage
from poe.mapping.condition import Condition
from poe.mapping.decision import Fallen
from poe.mapping.decoding import REFUSALS, UNDECODED, Decode, decoder, loader
from poe.mapping.message import Columns
from poe.mapping.pattern import Fields, Pattern

DECODING: Final = "decode"
"""In the place of a rule's id: the value could not be decoded."""

_INDEX_FROM: Final = 4
"""Rules with literals from which on looking them up is quicker than trying them."""

_NEEDLES_MAX: Final = 3
"""Needles up to which looking for all of them is quicker than decoding."""

Case = tuple[Callable[[Any], bool], int]
"""A test of a body, or of a message, and the number of its rule."""


class Chosen(NamedTuple):
    """Which messages meet which rule."""

    places: Sequence[Sequence[int]]
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
            nothing: list[Sequence[int]] = [() for _ in range(self._count)]
            return Chosen([range(count), *nothing], [])
        if self._is_about_body:
            with suppress(*REFUSALS):
                return Chosen(self._quickly(batch.values), [])
        return self._one_by_one(batch)

    def _quickly(self, values: Sequence[bytes | None]) -> Sequence[Sequence[int]]:
        """Return the places where all rules are about bodies alone, and all can be decoded.

        No body outlives its test: where thousands do, looking for garbage takes as long as
        decoding.

        Raises:
            Exception: one of `REFUSALS`: a value cannot be decoded, or is a tombstone.
        """
        load = loader(self._decode)
        bodies: Iterable[Any] = map(load, values)
        if self._needles:
            bodies = (load(value) if self._may_meet(value) else UNDECODED for value in values)
        if len(self._cases) == 1:
            verdicts = list(map(self._cases[0][0], bodies))
            places = range(len(values))
            return [list(compress(places, verdicts)), list(compress(places, map(not_, verdicts)))]
        return self._met_by_first(bodies) if self._is_first else self._met_by_all(bodies)

    def _met_by_first(self, bodies: Iterable[Any]) -> Sequence[Sequence[int]]:
        places: list[list[int]] = [[] for _ in range(self._count + 1)]
        by_text, by_no_text, field = self._by_text, self._by_no_text, self._field
        for place, body in enumerate(bodies):
            cases = by_no_text
            if type(body) is dict:
                if by_text:
                    text = body.get(field)
                    if type(text) is str:
                        cases = by_text.get(text, by_no_text)
            elif body is UNDECODED:
                cases = self._bodiless
            for test, number in cases:
                if test(body):
                    places[number].append(place)
                    break
            else:
                places[-1].append(place)
        return places

    def _met_by_all(self, bodies: Iterable[Any]) -> Sequence[Sequence[int]]:
        places: list[list[int]] = [[] for _ in range(self._count + 1)]
        for place, body in enumerate(bodies):
            met = [number for test, number in self._cases_of(body) if test(body)]
            for number in met or (-1,):
                places[number].append(place)
        return places

    def _one_by_one(self, batch: Columns) -> Chosen:
        """Return the same of any messages: what is wrong with one is told of that one."""
        places: list[list[int]] = [[] for _ in range(self._count + 1)]
        failed = []
        decode = decoder(self._decode)
        for place, value in enumerate(batch.values):
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
        return Chosen(places, failed)

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
