"""Finds which rules the messages of a batch meet; the batch is of one topic.

What can be told from the topic alone was told before. Where any rule looks at the body, all bodies
are decoded first. Rules are looked up by a text that a field of the body has to be, so that of a
hundred rules about different types of messages few are tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import not_
from typing import Any, Final, NamedTuple

from poe.errors import RuleError
from poe.mapping.condition import Condition
from poe.mapping.decision import Fallen
from poe.mapping.decoding import UNDECODED, Decode, decode_all
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

    bodies: Sequence[Any] | None
    """Of all messages; None where no rule looked at them."""

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
        self._ids = list(conditions)
        self._is_first = is_first
        self._decode = decode
        self._is_lenient = is_lenient
        found = list(conditions.values())
        self._has_always = is_first and bool(found) and found[0].is_always
        self._needs_body = any(each.needs_body for each in found)
        self._is_about_body = all(each.is_about_body for each in found)
        self._cases: list[Case] = [
            (each.body_test if self._is_about_body else each.message_test, number)
            for number, each in enumerate(found)
        ]
        self._needles = _needles(found, decode) if is_lenient else ()
        """Of which a value has to hold one, as bytes, to meet any rule about bodies."""

        self._bodiless = [case for case in self._cases if not found[case[1]].needs_body]
        self._field, index = _index([each.body for each in found])
        self._by_text = {
            text: [self._cases[number] for number in numbers] for text, numbers in index.items()
        }
        self._by_no_text = self._by_text.pop(None, self._cases)

    def choose(self, batch: Columns) -> Chosen:
        """Return which messages of a batch meet which rules."""
        count = len(batch.pointers)
        if self._has_always:
            nothing: list[Sequence[int]] = [() for _ in self._ids]
            return Chosen([range(count), *nothing], None, [])
        bodies: list[Any] | None = None
        broken: dict[int, str] = {}
        if self._needs_body:
            bodies, broken = self._decoded(batch.values)
            if self._is_about_body and len(self._cases) == 1 and not broken and not self._needles:
                verdicts = list(map(self._cases[0][0], bodies))
                met = list(compress(range(count), verdicts))
                rest = list(compress(range(count), map(not_, verdicts)))
                return Chosen([met, rest], bodies, [])
        failed = []
        if not self._is_lenient:
            failed = [Fallen(place, DECODING, why) for place, why in broken.items()]
        places: list[list[int]] = [[] for _ in (*self._ids, None)]
        subjects = self._subjects(batch, bodies)
        pairs = zip(subjects, repeat(None) if bodies is None else bodies, strict=False)
        choose = self._choose_first if self._is_first else self._choose_all
        choose(pairs, places, failed)
        return Chosen(places, bodies, failed)

    def _decoded(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """Return the bodies, but of values of which their bytes tell that they meet nothing."""
        if not self._needles:
            return decode_all(self._decode, values)
        may_meet = [
            value is not None and any(each in value for each in self._needles) for value in values
        ]
        found, broken = decode_all(self._decode, list(compress(values, may_meet)))
        places = list(compress(range(len(values)), may_meet))
        bodies: list[Any] = [UNDECODED] * len(values)
        for place, body in zip(places, found, strict=True):
            bodies[place] = body
        return bodies, {places[at]: why for at, why in broken.items()}

    def _subjects(self, batch: Columns, bodies: Sequence[Any] | None) -> Iterable[Any]:
        """Return what is tested: bodies where all rules are about these alone, else messages."""
        if self._is_about_body and bodies is not None:
            return bodies
        return (
            batch.message(place, self._decode, UNDECODED if bodies is None else bodies[place])
            for place in range(len(batch.pointers))
        )

    def _cases_of(self, body: object) -> Sequence[Case]:
        """Return the rules that a message of this body may meet."""
        if body is UNDECODED:
            return self._bodiless if self._is_lenient else ()
        if type(body) is dict:
            text = body.get(self._field)
            if type(text) is str:
                return self._by_text.get(text, self._by_no_text)
        return self._by_no_text

    def _choose_first(
        self, pairs: Iterable[tuple[Any, Any]], places: list[list[int]], failed: list[Fallen]
    ) -> None:
        by_text, by_no_text, field = self._by_text, self._by_no_text, self._field
        for place, (subject, body) in enumerate(pairs):
            cases = by_no_text
            if type(body) is dict:
                if by_text:
                    text = body.get(field)
                    if type(text) is str:
                        cases = by_text.get(text, by_no_text)
            elif body is UNDECODED:
                if not self._is_lenient:
                    continue
                cases = self._bodiless
            try:
                for test, number in cases:
                    if test(subject):
                        places[number].append(place)
                        break
                else:
                    places[-1].append(place)
            except RuleError as error:
                failed.append(Fallen(place, error.rule, error.reason))

    def _choose_all(
        self, pairs: Iterable[tuple[Any, Any]], places: list[list[int]], failed: list[Fallen]
    ) -> None:
        for place, (subject, body) in enumerate(pairs):
            if body is UNDECODED and not self._is_lenient:
                continue
            try:
                met = [number for test, number in self._cases_of(body) if test(subject)]
            except RuleError as error:
                failed.append(Fallen(place, error.rule, error.reason))
                continue
            for number in met or (-1,):
                places[number].append(place)


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
