"""Turn what is known of the sequenced puts of a topic into an answer for the next one.

A producer numbers its puts from 0 within an epoch, and puts again what was not answered. Strategy:
of each producer the newest epoch is kept, and where its newest puts ended. Nothing here touches a
file: `receipts.py` keeps this on the disk.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from poe.errors import ProducerFenced, RepeatedPut, SequenceGap
from poe.storage.formats.receipt_file import PutKey

PRODUCER_BYTES = 16

WINDOW_COUNT = 64
"""Puts of a producer whose pointers are kept: as many as a client may have under way."""

PRODUCERS_COUNT_MAX = 1000
"""Producers of a topic that a new segment is told of; those that put last."""

PRODUCERS_FULL_COUNT = 10 * PRODUCERS_COUNT_MAX
"""Producers with which a segment is full: each takes some 400 bytes of memory, or 5 KB if busy."""

PRODUCER_IDLE_MAX_US = 7 * 24 * 3600 * 1_000_000
"""A new segment is told of no producer that has put nothing for so long."""

PINNED_PREFIX = b"map\0"
"""Begin of the names of producers that are kept however long they are idle: those of mappings."""

FAMILY_BYTES = 9
"""Of a pinned producer's name; what follows is its life, a number. Producers of one family come one
after the other: whoever has a greater life shuts out the others, as a greater epoch does."""

PINNED_COUNT_MAX = 4000
"""Families that a new segment is told of, each by its newest put; those that put last."""

_EPOCH_BITS = 32
_EPOCH_MASK = (1 << _EPOCH_BITS) - 1


class LastPut(NamedTuple):
    """The newest put of a producer that is stored."""

    epoch: int
    sequence: int
    pointer: int
    """Of its last message."""


class _Producer:
    """Always: `newest` is the last and the greatest key of `pointers`, of 64 at most."""

    __slots__ = ("epoch", "newest", "pointers")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        """Of a pinned one, above these 32 bits, its life."""
        self.newest = -1
        self.pointers: dict[int, int] = {}


def _placed(producer: bytes, epoch: int) -> tuple[bytes, int]:
    """Return under which name a producer is known, and its epoch there."""
    if producer[: len(PINNED_PREFIX)] != PINNED_PREFIX:
        return producer, epoch
    life = int.from_bytes(producer[FAMILY_BYTES:])
    return producer[:FAMILY_BYTES], life << _EPOCH_BITS | epoch


def _put_key(name: bytes, epoch: int, sequence: int) -> PutKey:
    """Return a put as `_placed` was given it."""
    if len(name) != FAMILY_BYTES:
        return name, epoch, sequence
    life = (epoch >> _EPOCH_BITS).to_bytes(PRODUCER_BYTES - FAMILY_BYTES)
    return name + life, epoch & _EPOCH_MASK, sequence


class Producers:
    """The producers of one topic."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Producer] = {}

    @property
    def is_full(self) -> bool:
        """Return whether a new segment is due, which is told of the newest only."""
        return len(self._known) >= PRODUCERS_FULL_COUNT

    def find(self, put: PutKey) -> int | None:
        """Return the pointer of a put that is stored; None where it is the next one to store.

        Raises:
            RepeatedPut: it is stored, and its pointer is not known any more.
            SequenceGap: it is not stored, and not the next one either.
            ProducerFenced: its producer has put with a greater epoch since.
        """
        producer, epoch, sequence = put
        name, placed = _placed(producer, epoch)
        known = self._known.get(name)
        expected = 0
        if known is not None and placed <= known.epoch:
            if placed < known.epoch:
                raise ProducerFenced(producer, epoch, known.epoch & _EPOCH_MASK)
            if sequence <= known.newest:
                pointer = known.pointers.get(sequence)
                if pointer is None:
                    raise RepeatedPut(producer, epoch, sequence)
                return pointer
            expected = known.newest + 1
        if sequence != expected:
            raise SequenceGap(producer, epoch, sequence, expected)
        return None

    def add(self, put: PutKey, pointer: int) -> None:
        """Note that a put is stored; of one producer, puts come in their order."""
        producer, epoch, sequence = put
        name, placed = _placed(producer, epoch)
        known = self._known.get(name)
        if known is None or known.epoch != placed:
            known = self._known[name] = _Producer(placed)
        known.newest = sequence
        known.pointers[sequence] = pointer
        if len(known.pointers) > WINDOW_COUNT:
            del known.pointers[next(iter(known.pointers))]

    def last(self, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer; None where none is known."""
        name, least = _placed(producer, 0)
        known = self._known.get(name)
        if known is None or known.epoch - least not in range(1 << _EPOCH_BITS):
            return None
        return LastPut(known.epoch - least, known.newest, known.pointers[known.newest])

    def newest(self, count: int) -> list[tuple[bytes, LastPut]]:
        """Return up to `count` producers with their newest puts, the one that put last first."""
        ages = sorted(
            ((known.pointers[known.newest], producer) for producer, known in self._known.items()),
            reverse=True,
        )
        return [self._named(name, pointer) for pointer, name in islice(ages, count)]

    def _named(self, name: bytes, pointer: int) -> tuple[bytes, LastPut]:
        known = self._known[name]
        producer, epoch, sequence = _put_key(name, known.epoch, known.newest)
        return producer, LastPut(epoch, sequence, pointer)

    def known(self) -> Iterator[tuple[PutKey, int]]:
        """Yield all puts that are known, and their pointers; those of a producer in their order."""
        for name, known in self._known.items():
            for sequence, stored in known.pointers.items():
                yield _put_key(name, known.epoch, sequence), stored

    def live(self, now_us: int) -> Iterator[tuple[PutKey, int]]:
        """Yield the puts, and their pointers, that a new segment is to know of.

        A pointer tells when it was given, so it tells who has been idle for long, too.
        """
        ages = sorted(
            ((known.pointers[known.newest], name) for name, known in self._known.items()),
            reverse=True,
        )
        others = (each for each in ages if len(each[1]) == PRODUCER_BYTES)
        for pointer, name in islice(others, PRODUCERS_COUNT_MAX):
            if pointer < now_us - PRODUCER_IDLE_MAX_US:
                break
            known = self._known[name]
            for sequence, stored in known.pointers.items():
                yield (name, known.epoch, sequence), stored
        pinned = (each for each in ages if len(each[1]) == FAMILY_BYTES)
        for pointer, name in islice(pinned, PINNED_COUNT_MAX):
            known = self._known[name]
            yield _put_key(name, known.epoch, known.newest), pointer
