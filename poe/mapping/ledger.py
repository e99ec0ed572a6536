"""Collects what becomes of the messages of one batch, and makes decisions of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import TypeVar

from poe.mapping.decision import Decisions, Fallen, Later, Put
from poe.mapping.message import Columns

T = TypeVar("T")
Headers = Mapping[str, bytes] | None


class Ledger:
    """What is noted of the messages of a batch, in any order."""

    def __init__(self, batch: Columns, failed: list[Fallen]) -> None:
        self.batch = batch
        self.failed = failed
        self._puts: defaultdict[bytes, list[Put]] = defaultdict(list)
        self._noted: list[tuple[str, str, Sequence[int]]] = []
        self._dead: list[Fallen] = []
        self._dropped: list[tuple[str, str, Sequence[int]]] = []
        self._retries: list[Later] = []
        self._stops: list[Fallen] = []

    def note(self, rule: str, fate: str, places: Sequence[int]) -> None:
        """Count messages of which nothing else is to be kept."""
        self._noted.append((rule, fate, places))

    def put_as_they_came(self, topics: Iterable[bytes], places: Sequence[int]) -> None:
        """Put messages onto topics."""
        batch = self.batch
        put = Put(
            places,
            _of(batch.values, places),
            None if batch.keys is None else _of(batch.keys, places),
            None if batch.headers is None else _of(batch.headers, places),
        )
        for topic in topics:
            self._puts[topic].append(put)

    def put(
        self, topic: bytes, place: int, value: bytes | None, key: bytes | None, headers: Headers
    ) -> None:
        """Put one message, which has changed, onto a topic."""
        self._puts[topic].append(Put([place], [value], [key], [headers]))

    def bury(self, rule: str, places: Iterable[int], why: str) -> None:
        """Give messages up."""
        self._dead += [Fallen(place, rule, why) for place in places]

    def drop(self, rule: str, places: Sequence[int], why: str) -> None:
        """Throw messages away."""
        self._dropped.append((rule, why, places))

    def retry(self, rule: str, places: Iterable[int], after_s: float | None) -> None:
        """Have messages tried again."""
        self._retries += [Later(place, rule, after_s) for place in places]

    def stop(self, rule: str, place: int, why: str) -> None:
        """Wait before a message."""
        self._stops.append(Fallen(place, rule, why))

    def fail(self, rule: str, place: int, why: str) -> None:
        """Note an error of a rule."""
        self.failed.append(Fallen(place, rule, why))

    def decisions(self) -> Decisions:
        """Return what was collected, of the messages before the first stop.

        A message that has failed is left out everywhere else.
        """
        stopped = min(self._stops, default=None)
        end = len(self.batch.pointers) if stopped is None else stopped.place
        failed = {each.place: each for each in sorted(self.failed) if each.place < end}
        out = Decisions(stopped=stopped, failed=list(failed.values()))
        is_whole = stopped is None and not failed

        def counts(place: int) -> bool:
            return place < end and place not in failed

        def count(places: Sequence[int]) -> int:
            return len(places) if is_whole else sum(map(counts, places))

        out.dead = sorted(each for each in self._dead if counts(each.place))
        out.retries = sorted(
            (each for each in self._retries if counts(each.place)), key=lambda each: each.place
        )
        for topic, puts in self._puts.items():
            put = _merged(puts)
            if not is_whole:
                put = _selected(put, list(map(counts, put.places)))
            if put.places:
                out.puts[topic] = put
        for rule, fate, places in self._noted:
            out.counts[rule, fate] += count(places)
        for fate, fallen in (("dead", out.dead), ("retry", out.retries), ("error", out.failed)):
            out.counts.update((each.rule, fate) for each in fallen)
        for rule, why, places in self._dropped:
            out.counts[rule, "drop"] += count(places)
            out.reasons[rule, why] += count(places)
        # Without what nothing is left of.
        out.counts, out.reasons = +out.counts, +out.reasons
        return out


def _of(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """Return what stands at some places of a column."""
    if len(places) == len(column):
        return column
    if len(places) == 1:
        return [column[places[0]]]
    return itemgetter(*places)(column) if places else ()


def _merged(puts: Sequence[Put]) -> Put:
    """Return several puts to one topic as one, in the order of the messages."""
    if len(puts) == 1:
        return puts[0]
    places = [place for put in puts for place in put.places]
    order = sorted(range(len(places)), key=places.__getitem__)

    def merged(columns: Sequence[Sequence[T | None] | None]) -> list[T | None] | None:
        if not any(columns):
            return None
        filled = [
            column or [None] * len(put.places) for column, put in zip(columns, puts, strict=True)
        ]
        flat = [each for column in filled for each in column]
        return [flat[at] for at in order]

    return Put(
        [places[at] for at in order],
        merged([put.values for put in puts]) or (),
        merged([put.keys for put in puts]),
        merged([put.headers for put in puts]),
    )


def _selected(put: Put, is_kept: Sequence[bool]) -> Put:
    """Return a part of a put."""
    return Put(
        list(compress(put.places, is_kept)),
        list(compress(put.values, is_kept)),
        None if put.keys is None else list(compress(put.keys, is_kept)),
        None if put.headers is None else list(compress(put.headers, is_kept)),
    )
