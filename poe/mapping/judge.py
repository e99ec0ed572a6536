"""Says what becomes of the messages that rules leave over: errors, retries, dead letters.

`retries = "ordered"`: the first such message holds those behind it in its partition. `"unordered"`:
it goes onto the topic `<mapping>.retry`, which the mapping reads as one of its own, and waits there
until it is due; so it is put on exactly once, too. Nobody is overtaken there: a message waits for
as long as the one in front of it does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from poe.mapping.decision import Decisions, Fallen, Put
from poe.mapping.matcher import DECODING
from poe.mapping.message import Columns
from poe.mapping.plan import Decided
from poe.mapping.rule_set import ORIGIN, Compiled, number_in, onward
from poe.mapping.unit import Held, Judged
from poe.protocol.envelope import decode, encode

RETRY_TOPIC: Final = "poe-retry-topic"
"""Header of a message that waits: the topic that it came from."""
RETRY_DUE: Final = "poe-retry-due"
"""When it is tried again, in microseconds since the epoch."""
RETRY_ATTEMPTS: Final = "poe-retry-attempts"

_RETRY_HEADERS: Final = frozenset({RETRY_TOPIC, RETRY_DUE, RETRY_ATTEMPTS})
_PIECE_COUNT: Final = 1024
_DOUBLINGS_MAX: Final = 30
_REASON_MAX: Final = 10_000

Headers = Mapping[str, bytes] | None


class _Again(NamedTuple):
    """A message that is tried again, for itself."""

    fallen: Fallen
    after_s: float | None


class Judge:
    """Rules, and what is written beside them; see `Rules`."""

    def __init__(self, compiled: Compiled, now_us: Callable[[], int]) -> None:
        self._compiled = compiled
        self._rules = compiled.rules
        self._now_us = now_us
        self.hash = compiled.hash[:16]
        self.dead_topic = compiled.rules.dead_topic
        self.retry_topic = compiled.rules.retry_topic

    def close(self) -> None:
        """End the processes of functions; nobody asks it again."""
        self._compiled.close()

    def judge(self, batch: Columns) -> Judged:
        """Decide about a batch; see `Rules`."""
        attempts = None
        if batch.topic == self.retry_topic:
            attempts = [number_in(each, RETRY_ATTEMPTS) for each in batch.headers or ()]
            batch = _as_it_came(batch)
        decisions = self._decide(batch)
        if not (decisions.failed or decisions.retries or decisions.dead or decisions.stopped):
            return Judged(Decided(batch, decisions.puts), decisions.counts)
        held = self._held(decisions)
        if held is not None:
            return Judged(Decided(batch, {}), {}, held)
        letters, again = self._sorted(decisions, attempts)
        if batch.topic == self.dead_topic:  # it is there: a copy would come again, and for ever
            letters = []
        puts, counts = dict(decisions.puts), Counter(decisions.counts)
        if letters:
            fallen = {each.place: each for each in sorted(letters)}
            tried = {place: 1 if attempts is None else attempts[place] + 1 for place in fallen}
            put = self._letters(batch, fallen.values(), tried, has_waited=attempts is not None)
            _add(puts, self.dead_topic, put)
        if again:
            _add(puts, self.retry_topic, self._waiting(batch, again, attempts))
        own = frozenset((self.dead_topic, self.retry_topic))
        return Judged(Decided(batch, puts, own), counts)

    def give_up(self, batch: Columns, rule: str, reason: str, attempts: int) -> Judged:
        """Return what becomes of one message that is given up; see `Rules`."""
        has_waited = batch.topic == self.retry_topic
        if has_waited:
            batch = _as_it_came(batch)
        then = self._rules.on_error.then if rule else "dead"
        if then != "dead" or batch.topic == self.dead_topic:
            return Judged(Decided(batch, {}), {(rule, then): 1})
        letter = Fallen(0, rule, reason)
        put = self._letters(batch, [letter], {0: attempts}, has_waited=has_waited)
        own = frozenset((self.dead_topic,))
        return Judged(Decided(batch, {self.dead_topic: put}, own), {(rule, "dead"): 1})

    def pause_s(self, held: Held, attempts: int) -> float:
        """Return how long to wait before the next attempt; see `Rules`."""
        return self._pause_s(held.after_s, attempts)

    # ---- inside -------------------------------------------------------------------------------

    def _decide(self, batch: Columns) -> Decisions:
        """Decide, where functions are called piece by piece: they get messages as objects.

        With 32 thousand of these at a time the garbage collector looks at all of them again and
        again.
        """
        count = len(batch.pointers)
        if count <= _PIECE_COUNT or not self._compiled.has_functions:
            return self._compiled.decide(batch)
        topic, *columns = batch
        pieces: list[tuple[int, Decisions]] = []
        for begin in range(0, count, _PIECE_COUNT):
            part = slice(begin, begin + _PIECE_COUNT)
            piece = Columns(topic, *(None if each is None else each[part] for each in columns))  # type: ignore[arg-type]  # as they were
            pieces.append((begin, self._compiled.decide(piece)))
            if pieces[-1][1].stopped is not None:
                break
        return _joined(pieces)

    def _held(self, decisions: Decisions) -> Held | None:
        """Return the first message that holds the others."""
        on_error = self._rules.on_error
        found = []
        if decisions.stopped is not None:
            place, rule, why = decisions.stopped
            found.append(Held(place, "stop", rule, why))
        is_ordered = self._rules.retries == "ordered"
        failed = decisions.failed
        if on_error.then != "stop":
            failed = [each for each in failed if self._is_retried(each)]
        if failed and (is_ordered or not on_error.retry):
            place, rule, why = failed[0]
            if on_error.retry:
                most = None if on_error.then == "stop" else on_error.retry + 1
                found.append(Held(place, "retry", rule, why, attempts_max=most))
            elif on_error.then == "stop":
                found.append(Held(place, "stop", rule, why))
        if decisions.retries and is_ordered:
            place, rule, after_s = decisions.retries[0]
            found.append(Held(place, "retry", rule, "the rule says so", after_s))
        return min(found, key=lambda each: each.place, default=None)

    def _is_retried(self, failed: Fallen) -> bool:
        """Return whether it may be otherwise next time; what is no JSON stays that."""
        return bool(self._rules.on_error.retry) and failed.rule != DECODING

    def _sorted(
        self, decisions: Decisions, attempts: list[int] | None
    ) -> tuple[list[Fallen], list[_Again]]:
        """Return the dead letters of a batch, and what is tried again for itself."""
        on_error = self._rules.on_error
        letters = list(decisions.dead)
        again = [
            _Again(Fallen(each.place, each.rule, "the rule says so"), each.after_s)
            for each in decisions.retries
        ]
        for each in decisions.failed:
            tried = 1 if attempts is None else attempts[each.place] + 1
            if (self._is_retried(each) and tried <= on_error.retry) or (
                on_error.retry and on_error.then == "stop"
            ):
                again.append(_Again(each, None))
            elif on_error.then == "dead":
                letters.append(each)
        return letters, sorted(again, key=lambda each: each.fallen.place)

    def _waiting(self, batch: Columns, again: list[_Again], attempts: list[int] | None) -> Put:
        """Return messages that are to wait on the retry topic."""
        now_us = self._now_us()
        headers = []
        for (place, _, _), after_s in again:
            tried = 1 if attempts is None else attempts[place] + 1
            came = _headers(batch, place)
            origin = onward(batch, place, came)[ORIGIN]
            due_us = now_us + round(self._pause_s(after_s, tried) * 1e6)
            waiting = {
                ORIGIN: origin,
                RETRY_TOPIC: batch.topic,
                RETRY_DUE: b"%d" % due_us,
                RETRY_ATTEMPTS: b"%d" % tried,
            }
            headers.append({**came, **waiting})
        return _put(batch, [each.fallen.place for each in again], headers)

    def _letters(
        self,
        batch: Columns,
        letters: Iterable[Fallen],
        tried: Mapping[int, int],
        *,
        has_waited: bool,
    ) -> Put:
        """Return dead letters, with all that is known of them.

        Of one that has waited its origin tells where it was, unless that is another topic: another
        mapping, or whoever has put it, may have said so.
        """
        letters = list(letters)
        time = b"%d" % self._now_us()
        headers = []
        for place, rule, why in letters:
            pointer = b"%d" % batch.pointers[place]
            if has_waited:
                origin, _, pointer = onward(batch, place, None)[ORIGIN].rpartition(b"/")
                pointer = pointer if origin == batch.topic else b"0"
            told = {
                "poe.topic": batch.topic,
                "poe.pointer": pointer,
                "poe.attempts": b"%d" % tried[place],
                "poe.reason": why[-_REASON_MAX:].encode("utf-8", "backslashreplace"),
                "poe.rule": rule.encode("utf-8", "backslashreplace"),
                "poe.mapping": self._rules.name.encode("utf-8", "backslashreplace"),
                "poe.time_us": time,
            }
            if _was_in_envelope(batch, place, has_waited=has_waited):
                told["poe.envelope"] = b""
            headers.append({**_headers(batch, place), **told})
        return _put(batch, [each.place for each in letters], headers)

    def _pause_s(self, after_s: float | None, attempts: int) -> float:
        if after_s is not None:
            return after_s
        first_s, most_s = self._rules.on_error.backoff_s
        return min(most_s, first_s * (1 << min(max(attempts - 1, 0), _DOUBLINGS_MAX)))


def _joined(pieces: list[tuple[int, Decisions]]) -> Decisions:
    """Return what was decided about pieces of a batch, each with the place where it begins."""
    whole = Decisions()
    puts: dict[bytes, list[tuple[int, Put]]] = {}
    for begin, piece in pieces:
        whole.failed += (each._replace(place=begin + each.place) for each in piece.failed)
        whole.dead += (each._replace(place=begin + each.place) for each in piece.dead)
        whole.retries += (each._replace(place=begin + each.place) for each in piece.retries)
        if piece.stopped is not None:
            whole.stopped = piece.stopped._replace(place=begin + piece.stopped.place)
        whole.counts.update(piece.counts)
        whole.reasons.update(piece.reasons)
        for topic, put in piece.puts.items():
            puts.setdefault(topic, []).append((begin, put))
    for topic, parts in puts.items():
        places = list(chain.from_iterable(map(begin.__add__, put.places) for begin, put in parts))
        values, keys, headers = (
            _column([(put[column], len(put.places)) for _, put in parts]) for column in (1, 2, 3)
        )
        whole.puts[topic] = Put(places, values or (), keys, headers)
    return whole


def _column(parts: list[tuple[Any, int]]) -> list[Any] | None:
    """Return the parts of a column as one; None where none is there."""
    if all(part is None for part, _ in parts):
        return None
    columns = ([None] * count if part is None else part for part, count in parts)
    return list(chain.from_iterable(columns))


def due_s(headers: Headers, now_us: int) -> float:
    """Return in how many seconds a message of the retry topic is due."""
    return (number_in(headers, RETRY_DUE) - now_us) / 1e6


def run_of(batch: Columns) -> int:
    """Return how many messages at the begin of a batch of the retry topic came from one topic."""
    headers = batch.headers or ()
    source = _source(headers[0]) if headers else b""
    return next(
        (place for place, each in enumerate(headers) if _source(each) != source),
        len(batch.pointers),
    )


def letter_that_fits(letter: bytes, size_max: int, partition: bytes | None) -> bytes:
    """Return a letter, without its message where there is no room for that: it is where it was.

    Pointers are those of a partition: of one that another message has, too, the letter names it.
    """
    if len(letter) <= size_max:
        return letter
    told = {
        name: value
        for name, value in (decode(letter).headers or {}).items()
        if name.startswith("poe.") and name not in {"poe.envelope", "poe.partition"}
    }
    if partition is not None:
        told["poe.partition"] = partition
    return encode(None, b"", {**told, "poe.large": b"1"})


def _source(headers: Headers) -> bytes:
    return (headers or {}).get(RETRY_TOPIC, b"")


def _as_it_came(batch: Columns) -> Columns:
    """Return messages of the retry topic as they were on the topic that they came from."""
    headers = [
        {name: value for name, value in each.items() if name not in _RETRY_HEADERS}
        if each
        else None
        for each in batch.headers or [None] * len(batch.pointers)
    ]
    source = _source(batch.headers[0]) if batch.headers else b""
    return batch._replace(topic=source or batch.topic, headers=headers)


def _was_in_envelope(batch: Columns, place: int, *, has_waited: bool) -> bool:
    """Return whether a message was in an envelope where it came from.

    While it waits each is in one, and tells its origin: so what else is there has to tell. Of one
    with nothing else, letters of topics with envelopes are put back in one all the same.
    """
    if not has_waited:
        return batch.keys is not None or batch.headers is not None
    has_key = batch.keys is not None and batch.keys[place] is not None
    return has_key or batch.values[place] is None or bool(_headers(batch, place).keys() - {ORIGIN})


def _headers(batch: Columns, place: int) -> Mapping[str, bytes]:
    return (batch.headers[place] if batch.headers else None) or {}


def _put(batch: Columns, places: Sequence[int], headers: Sequence[Headers]) -> Put:
    keys = None if batch.keys is None else [batch.keys[place] for place in places]
    return Put(places, [batch.values[place] for place in places], keys, headers)


def _add(puts: dict[bytes, Put], topic: bytes, put: Put) -> None:
    """Put more onto a topic, which a rule may name, too."""
    before = puts.get(topic)
    if before is None:
        puts[topic] = put
        return
    nothing = [None] * len(before.places)
    puts[topic] = Put(
        [*before.places, *put.places],
        [*before.values, *put.values],
        [*(before.keys or nothing), *(put.keys or [None] * len(put.places))],
        [*(before.headers or nothing), *(put.headers or ())],
    )
