"""Does with messages what a rule says, by noting it in a ledger."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from poe.errors import InvalidMapping, RuleError
from poe.errors.short_text import short_repr
from poe.errors.timeout import FOR_EVER_S
from poe.mapping.action import Dead, Drop, Ok, Retry, Stop, To
from poe.mapping.decoding import Decode
from poe.mapping.functions import CannotCall, Runner
from poe.mapping.ledger import Ledger
from poe.mapping.message import Message, topic_bytes
from poe.mapping.pattern import compile_pattern
from poe.mapping.rule import DEFAULT_TOPICS_MAX, Call, Fate, Route
from poe.mapping.template import Template, looks_like
from poe.topic_name import is_plain
from poe.topic_properties import is_reserved

Apply = Callable[[Ledger, Sequence[int]], None]
"""Note what becomes of the messages at some places."""


def compile_fate(rule: str, fate: Fate, decode: Decode, runner: Runner | None = None) -> Apply:
    """Return what does with messages as a rule says; `runner` calls its function, if it has one.

    Raises:
        InvalidMapping: a name of a topic, or a template, is none.
    """
    match fate:
        case Route():
            return _Routing(rule, fate, decode).apply
        case Call():
            assert runner is not None, "who calls it"
            return _Calling(rule, fate, decode, runner).apply
    return lambda ledger, places: _note(ledger, rule, fate, places)


def _note(
    ledger: Ledger, rule: str, action: Ok | Drop | Retry | Stop | Dead, places: Sequence[int]
) -> None:
    match action:
        case Ok():
            ledger.note(rule, "ok", places)
        # A function may give an error for its reason.
        case Drop(reason):
            ledger.drop(rule, places, str(reason))
        case Dead(why):
            ledger.bury(rule, places, str(why))
        case Retry(after_s):
            ledger.retry(rule, places, after_s)
        case Stop(why):
            ledger.stop(rule, places[0], str(why))


class _Topics:
    """Names of topics that come of a rule while it runs: checked, and limited in number."""

    def __init__(self, rule: str, allowed: Sequence[str] | None, count_max: int) -> None:
        self._rule = rule
        self._count_max = count_max
        place = f"rule {rule!r}: topics"
        self._is_allowed = (
            None if allowed is None else compile_pattern(list(allowed), place, "name").test
        )
        self._seen: dict[str, bytes] = {}

    def named(self, name: str) -> bytes:
        """Return the topic of a name.

        Raises:
            RuleError: it cannot be that of a topic, or is not allowed.
            TooManyTopics: one topic more would be too many.
        """
        seen = self._seen.get(name)
        if seen is not None:
            return seen
        topic = topic_bytes(name)
        if not _is_target(topic):
            raise RuleError(self._rule, f"{name[:200]!r} cannot be the name of a topic")
        if self._is_allowed is not None and not self._is_allowed(name):
            raise RuleError(self._rule, f"{name!r} is not among the `topics` that it may put onto")
        if len(self._seen) >= self._count_max:
            raise TooManyTopics(self._rule, name, self._count_max)
        self._seen[name] = topic
        return topic


def _is_target(topic: bytes) -> bool:
    """Return whether anybody may put onto a topic of this name; the node's own refuse it."""
    return is_plain(topic) and not is_reserved(topic)


class TooManyTopics(Exception):
    """A template has made more topics than are allowed: the mapping waits."""

    def __init__(self, rule: str, name: str, count_max: int) -> None:
        super().__init__(
            f"{name!r} would be topic {count_max + 1} of rule {rule!r}; "
            "raise `topics_max`, or write fewer into `topics`"
        )


class _Routing:
    def __init__(self, rule: str, route: Route, decode: Decode) -> None:
        self._rule = rule
        self._decode = decode
        self._to = [Template(each, rule, "to") for each in route.to]
        self._key = None if route.key is None else Template(route.key, rule, "key")
        for each in self._to:
            if not _is_target(topic_bytes(looks_like(each.text).replace("*", "x"))):
                problem = f"{each.text!r} cannot be the name of a topic"
                raise InvalidMapping(place=f"rule {rule!r}: to", problem=problem)
        self._topics = _Topics(rule, route.topics, route.topics_max)
        is_fixed = all(each.is_fixed for each in self._to)
        self._fixed = [topic_bytes(each.text) for each in self._to] if is_fixed else None

    def apply(self, ledger: Ledger, places: Sequence[int]) -> None:
        """Put messages onto the topics; see `Apply`."""
        if self._fixed is not None and self._key is None:
            ledger.put_as_they_came(self._fixed, places)
            ledger.note(self._rule, "to", places)
            return
        for place in places:
            self.put(ledger, place, ledger.batch.message(place, self._decode))

    def put(self, ledger: Ledger, place: int, message: Message) -> None:
        """Put one message onto the topics."""
        try:
            topics = self._fixed or [self._topics.named(each.fill(message)) for each in self._to]
            key = message.key
            if self._key is not None:
                key = self._key.fill(message).encode("utf-8", "surrogatepass")
        except RuleError as error:
            ledger.fail(error.rule, place, error.reason)
        except TooManyTopics as error:
            ledger.stop(self._rule, place, str(error))
        else:
            for topic in dict.fromkeys(topics):
                ledger.put(topic, place, message.value, key, message.headers)
            ledger.note(self._rule, "to", [place])


class _Calling:
    def __init__(self, rule: str, call: Call, decode: Decode, runner: Runner) -> None:
        self._rule = rule
        self._call = call
        self._runner = runner
        self._decode = decode
        route = call.route
        self._routing = None if route is None else _Routing(rule, route, decode)
        self._topics = _Topics(rule, call.topics, DEFAULT_TOPICS_MAX)

    def apply(self, ledger: Ledger, places: Sequence[int]) -> None:
        """Note what a function returns for messages; see `Apply`."""
        messages = [ledger.batch.message(place, self._decode) for place in places]
        try:
            answers = self._runner.run(messages)
        except CannotCall as error:
            ledger.stop(self._rule, places[0], str(error))
            return
        for place, message, (value, failure) in zip(places, messages, answers, strict=True):
            if failure:
                ledger.fail(self._rule, place, f"{self._call.name}: {failure}")
            else:
                self._note(ledger, place, message, value)

    def _note(self, ledger: Ledger, place: int, message: Message, answer: object) -> None:
        rule = self._rule
        flaw = _flaw_of(answer)
        if isinstance(answer, list):
            flaw = next(filter(None, map(_flaw_of, answer)), "")
        match answer:
            case _ if flaw:
                ledger.fail(rule, place, f"{self._call.name} returned {flaw}")
            case Message() if self._routing is not None:
                self._routing.put(ledger, place, answer)
            case To():
                self._put(ledger, place, message, [answer])
            case list() if answer and all(isinstance(each, To) for each in answer):
                self._put(ledger, place, message, answer)
            case Ok() | Drop() | Dead() | Retry() | Stop():
                _note(ledger, rule, answer, [place])
            case Message():
                ledger.fail(rule, place, f"{self._call.name} returned a message; write `to`")
            case _:
                kind = type(answer).__name__
                why = f"{self._call.name} returned {kind}; let it return an action or a message"
                ledger.fail(rule, place, why)

    def _put(self, ledger: Ledger, place: int, message: Message, answers: Sequence[To]) -> None:
        puts = []
        try:
            for answer in answers:
                put = answer.onto(message)
                puts += [(self._topics.named(name), put) for name in answer.topics]
        except RuleError as error:
            ledger.fail(error.rule, place, error.reason)
        except TooManyTopics as error:
            ledger.stop(self._rule, place, str(error))
        else:
            for topic, put in puts:
                ledger.put(topic, place, put.value, put.key, put.headers)
            ledger.note(self._rule, "to", [place])


def _flaw_of(answer: object) -> str:
    """Return what cannot be done of an answer of a function; nothing where all of it can be.

    Told before a plan is made of it: nobody could carry that out, or what was stored would be no
    envelope.
    """
    match answer:
        case Retry(after_s) if not _may_be_waited(after_s):
            return f"a wait of {short_repr(after_s)}; use seconds, 0 or more"
        case To(topics=topics) if not (topics and all(isinstance(each, str) for each in topics)):
            return f"the topics {short_repr(topics)}; use one name or more"
        case To(message=Message() as message, key=key, headers=headers):
            return _flaw_of(message) or _flaw_of_put(b"", key, headers)
        case To(message=value, key=key, headers=headers):
            return _flaw_of_put(value, key, headers)
        case Message(value=value, key=key, headers=headers):
            return _flaw_of_put(value, key, headers)
    return ""


def _flaw_of_put(value: object, key: object, headers: object) -> str:
    if not isinstance(value, bytes | None):
        return f"the value {short_repr(value)}; use bytes, or `with_body`"
    if not isinstance(key, bytes | None):
        return f"the key {short_repr(key)}; use bytes"
    if headers is not None and not _are_headers(headers):
        return f"the headers {short_repr(headers)}; use a map of texts to bytes"
    return ""


def _are_headers(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(
        isinstance(name, str) and not _HALF.search(name) and isinstance(value, bytes)
        for name, value in headers.items()
    )


def _may_be_waited(after_s: Any) -> bool:  # noqa: ANN401 - a function has said it
    is_number = isinstance(after_s, int | float) and not isinstance(after_s, bool)
    return after_s is None or (is_number and 0 <= after_s <= FOR_EVER_S)


_HALF: Final = re.compile("[\ud800-\udfff]")
"""Of a surrogate pair, which cannot be encoded."""
