"""Turn what happens to delayed messages into messages of the topic `poe.delayed`, and back.

Layout (msgpack), one of:
    [1, topic, due, [message, …]]           to be put at a time, in microseconds since the epoch
    [2, topic, epoch, sequence, [pointer, …]]   what is there is being put, under this number
    [3, topic, epoch, sequence]             all up to this number is put, and survives a power cut
    [4, topic, epoch, sequence]             nothing is ever put under this number

A put is written down with its number before it is made. Who finds it there and does not know what
became of it makes it again under the same number: so it is stored once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.coordinator.waiting import Batch, Entry, Number, Waiting, entry, pointer_of
from poe.record import POINTER_MAX

DELAYED_TOPIC: Final = b"poe.delayed"

_RECORD_BYTES: Final = 1024 * 1024
_COUNT_MAX: Final = 10_000


class _Kind(IntEnum):
    LATER = 1
    INTENT = 2
    DONE = 3
    VOID = 4


class Later(NamedTuple):
    """Messages that are to be put at a time."""

    topic: bytes
    due_us: int
    messages: list[bytes]


def encode_later(later: Later) -> tuple[list[bytes], list[int]]:
    """Return the records that hold messages, and how many each holds."""
    topic, due_us, messages = later
    if sum(map(len, messages)) <= _RECORD_BYTES and len(messages) <= _COUNT_MAX:
        parts = [messages]
    else:
        parts = list(_parts(messages))
    records = [msgpack.packb((_Kind.LATER, topic, due_us, part)) for part in parts]
    return records, [len(part) for part in parts]


def decode_later(record: bytes | memoryview) -> Later | None:
    """Return the messages that a record holds; None where it is none of messages."""
    values = _decode(record)
    return Later(*values[1:]) if values and values[0] == _Kind.LATER else None


def encode_intent(batch: Batch, number: Number) -> bytes:
    """Return the record of a put that is about to be made."""
    pointers = [pointer_of(each) for each in batch.entries]
    record: bytes = msgpack.packb((_Kind.INTENT, batch.topic, *number, pointers))
    return record


def encode_done(topic: bytes, number: Number) -> bytes:
    """Return the record of puts that need not be made again."""
    record: bytes = msgpack.packb((_Kind.DONE, topic, *number))
    return record


def encode_void(topic: bytes, number: Number) -> bytes:
    """Return the record of a put that cannot be made under its number."""
    record: bytes = msgpack.packb((_Kind.VOID, topic, *number))
    return record


@dataclass(slots=True)
class _TopicHistory:
    """What the log tells of one topic."""

    entries: list[Entry] = field(default_factory=list)
    """All of its records, waiting or not."""

    intents: dict[Number, list[int]] = field(default_factory=dict)
    """The pointers of what may have been put, or not."""

    done: set[int] = field(default_factory=set)

    def begun(self, topic: bytes) -> list[Batch]:
        """Return the puts that may have been made, oldest first."""
        by_pointer = {pointer_of(each): each for each in self.entries}
        begun = []
        for number, pointers in self.intents.items():
            entries = tuple(by_pointer[each] for each in pointers if each in by_pointer)
            if entries:
                begun.append(Batch(topic, entries, number))
        return begun

    def waiting(self) -> list[Entry]:
        """Return what nobody has begun to put."""
        gone = self.done.union(*self.intents.values())
        return [each for each in self.entries if pointer_of(each) not in gone]


class DelayedHistory:
    """What the log tells, record by record."""

    def __init__(self) -> None:
        self._topics: dict[bytes, _TopicHistory] = {}

    def add(self, pointer: int, record: bytes | memoryview) -> None:
        """Take the next record; one that means nothing is left out."""
        values = _decode(record)
        if not values:
            return
        history = self._topics.setdefault(values[1], _TopicHistory())
        match values:
            case [_Kind.LATER, _, due_us, messages]:
                history.entries.append(entry(due_us, pointer, len(messages), len(record)))
            case [_Kind.INTENT, _, epoch, sequence, pointers]:
                history.intents[Number(epoch, sequence)] = pointers
            case [_Kind.VOID, _, epoch, sequence]:
                history.intents.pop(Number(epoch, sequence), None)
            case [_Kind.DONE, _, epoch, sequence]:
                newest = Number(epoch, sequence)
                for number in [each for each in history.intents if each <= newest]:
                    history.done.update(history.intents.pop(number))

    def waiting(self) -> Waiting:
        """Return all that is still to be put, or may be."""
        waiting = Waiting()
        pointers: list[int] = []
        for topic, history in self._topics.items():
            begun, entries = history.begun(topic), history.waiting()
            waiting.restore(topic, begun, entries)
            pointers += map(pointer_of, chain(entries, *(batch.entries for batch in begun)))
        waiting.need(sorted(pointers))
        return waiting


def _decode(record: bytes | memoryview) -> list[Any]:
    """Return the fields of a record, checked; none where it means nothing."""
    try:
        values = msgpack.unpackb(record)
    except (ValueError, msgpack.UnpackException):
        return []
    match values:
        case [_Kind.LATER, bytes(), int(due_us), list(messages)]:
            is_sound = 0 <= due_us <= POINTER_MAX and set(map(type, messages)) <= {bytes}
        case [_Kind.INTENT, bytes(), int(), int(), list(pointers)]:
            is_sound = set(map(type, pointers)) <= {int}
        case [_Kind.DONE | _Kind.VOID, bytes(), int(), int()]:
            is_sound = True
        case _:
            is_sound = False
    return values if is_sound else []


def _parts(messages: list[bytes]) -> Iterator[list[bytes]]:
    """Split what is too much for one record."""
    part: list[bytes] = []
    size_bytes = 0
    for message in messages:
        if part and (size_bytes + len(message) > _RECORD_BYTES or len(part) == _COUNT_MAX):
            yield part
            part, size_bytes = [], 0
        part.append(message)
        size_bytes += len(message)
    yield part
