"""What a group has given up: put back where it was, or let go.

Letters stay in the dead letter topic; the group GROUP.redrive knows which were dealt with. A queue
across nodes lets them go, once no other group wants them.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from poe.client.consumer.consumer import Consumer
from poe.client.consumer.source import Received
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.queue import Queue
from poe.client.producer.partitioner import KeyHash
from poe.errors import CorruptRecord, InvalidEnvelope, OptionError, UnknownGroup
from poe.errors.short_text import short_repr
from poe.errors.timeout import FOR_EVER_S
from poe.protocol import DescribedTopic, Socket
from poe.protocol.envelope import decode, encode
from poe.record import POINTER_MAX
from poe.topic_name import topic_text
from poe.topic_properties import partition_of

_log = logging.getLogger(__name__)

BATCH: Final = 1000
"""Letters that come again at most, where whoever puts them back is killed."""
_LETTERS_S: Final = 2.0
"""A queue that has handed out no letter for so long has none."""
_BY_KEY: Final = KeyHash(1)
"""As mappings and producers share keys out."""


def dead_letter_topic(group: str, options: Mapping[str, Any]) -> bytes:
    """Return the dead letter topic of a group by its options."""
    return os.fsencode(options["dead_letter_topic"] or f"{group}.dead")


def redriver(group: str) -> str:
    """Return the group that knows which letters of another one were dealt with."""
    return f"{group}.redrive"


class Letter(NamedTuple):
    """A message of a dead letter topic, as it is stored."""

    pointer: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which letters are dealt with; those in front of them, that are not, go to the end.

    So a letter that was not chosen is as open as before, with a new pointer.
    """

    reason: str = ""
    """A text that the reason holds, in whatever case."""

    pointer: int | None = None
    """Of the one letter; None for all."""

    def takes(self, letter: Letter) -> bool:
        """Return whether a letter is dealt with; what is no letter is not."""
        if self.pointer is not None and letter.pointer != self.pointer:
            return False
        with suppress(InvalidEnvelope):
            return self.reason.casefold() in DeadLetter.of(letter.content).reason.casefold()
        return False


class Redriven(NamedTuple):
    """What has become of letters that were dealt with."""

    done_count: int
    """Messages that were put back, or letters that were let go."""

    passed_count: int = 0
    """Letters that were not put back, since the group takes nothing from where they were."""

    def plus(self, other: "Redriven") -> "Redriven":
        """Return both together."""
        done_count, passed_count = other
        return Redriven(self.done_count + done_count, self.passed_count + passed_count)


def redrive(
    connection: Socket, url: str, group: str, entry: Mapping[str, Any], choice: Choice | None = None
) -> Redriven:
    """Put what a group has given up until now back where it was.

    What is given up again meanwhile comes the next time, but for the rest of the last batch. What
    it is at when it is killed, `BATCH` at most, is put back again the next time.

    Args:
        connection: to the server.
        url: of the same.
        group: whose letters.
        entry: `tls` and `credentials`, as a consumer takes them.
        choice: which letters; None: all.

    Raises:
        OptionError: of a queue across nodes all letters are dealt with, or none.
    """
    put = partial(put_back, connection, _taken_by(connection, group))
    return _deal(connection, url, group, entry, put, choice)


def discard(
    connection: Socket, url: str, group: str, entry: Mapping[str, Any], choice: Choice | None = None
) -> int:
    """Have letters of a group not put back that are there now; return how many. As `redrive`."""

    def let_go(letters: list[Letter]) -> Redriven:
        return Redriven(len(letters))

    return _deal(connection, url, group, entry, let_go, choice).done_count


def _taken_by(connection: Socket, group: str) -> dict[bytes, set[bytes]]:
    """Return what a group takes from, by what letters may call it.

    They name a partition, or a queue, or the topic; a mapping's all the topic.
    """
    taken: dict[bytes, set[bytes]] = {}
    for unit in connection.control("group_lag", group=group):
        part = partition_of(unit)
        for name in {unit, part[0] if part else unit}:
            taken.setdefault(name, set()).add(unit)
    for topic in connection.control("group", group=group)["topics"]:
        taken.setdefault(topic, set()).add(topic)
    return taken


class _Place(NamedTuple):
    """Where messages are put back."""

    parts: Sequence[bytes]
    """All that there are: producers choose among them, whatever the group has."""

    has_envelope: bool


def put_back(
    connection: Socket, taken: Mapping[bytes, AbstractSet[bytes]], letters: list[Letter]
) -> Redriven:
    """Put messages back where they were.

    Only onto what their group takes from: who may put among the letters may say anything there, and
    is to have nothing put by the rights of who puts them back.
    """
    places: dict[bytes, _Place | None] = {}
    shared_out: dict[bytes, list[bytes]] = {}
    done_count = passed_count = 0
    for each in letters:
        try:
            letter = DeadLetter.of(each.content)
        except InvalidEnvelope:
            continue
        origin = letter.origin
        if origin not in places:
            places[origin] = _place(connection, taken, origin)
        place = places[origin]
        if place is None:
            passed_count += bool(origin)
        elif message := _message(connection, letter, place.parts):
            part = _part_of(place.parts, message, origin)
            content = _boxed(message) if place.has_envelope else message
            done_count += 1
            if letter.message is None:  # alone: few such letters tell of more than a frame holds
                connection.write(part, [content])
            else:
                shared_out.setdefault(part, []).append(content)
    for part, messages in shared_out.items():
        connection.write(part, messages)
    return Redriven(done_count, passed_count)


def _place(
    connection: Socket, taken: Mapping[bytes, AbstractSet[bytes]], origin: bytes
) -> _Place | None:
    """Return where messages of an origin belong; None where the group takes nothing from there."""
    if units := taken.get(origin):
        found = connection.find_topic(origin)
        parts = [origin]
        if found is not None and found.partitions:
            parts = [each.topic for each in found.partitions]
        # What is called like a partition may be a topic of its own.
        if not units.isdisjoint({origin, *parts}):
            return _Place(parts, found is not None and found.properties.envelope)
    if origin:
        why = "the group takes nothing from there"
        _log.warning("letters of topic %s are not put back: %s", short_repr(origin), why)
    return None


def _boxed(message: bytes) -> bytes:
    """Return a message in an envelope, unless it is in one.

    A letter of a mapping on Spark does not tell so of one without key and headers.
    """
    try:
        decode(message)
    except InvalidEnvelope:
        return encode(None, message)
    return message


def _part_of(parts: Sequence[bytes], message: bytes, origin: bytes) -> bytes:
    """Return the one of several partitions that a message belongs onto, by its key."""
    key = None
    if len(parts) > 1:
        with suppress(InvalidEnvelope):
            key = decode(message).key
    if key is None and origin in parts:
        return origin
    return parts[_BY_KEY.pick(key or b"", range(len(parts)))]


def _message(connection: Socket, letter: DeadLetter, parts: Sequence[bytes]) -> bytes | None:
    """Return the message of a letter; one that it has no room for is read where it was.

    Two partitions may have the same pointer: where it is not known which is meant, neither is.
    """
    if letter.message is not None or not letter.pointer:
        return letter.message
    # A mapping's tell the topic, and of late the partition, a queue's the stream.
    if letter.topic != letter.origin:
        parts = [letter.topic]
    elif letter.partition:
        parts = [each for each in parts if each == letter.partition]
    found = []
    for part in parts:
        with suppress(CorruptRecord):
            for pointer, message in connection.read(part, letter.pointer - 1, 1):
                if pointer == letter.pointer:
                    found.append(message)
    if len(found) > 1:
        _log.warning(
            "a letter of topic %s, pointer %d, is not put back: several partitions have such one",
            short_repr(letter.topic),
            letter.pointer,
        )
    return found[0] if len(found) == 1 else None


def _deal(  # noqa: PLR0913, PLR0917 - as `redrive`, and what is done
    connection: Socket,
    url: str,
    group: str,
    entry: Mapping[str, Any],
    handle: Callable[[list[Letter]], Redriven],
    choice: Choice | None,
) -> Redriven:
    dealt = Redriven(0)
    topic = dead_letter_topic(group, connection.control("group", group=group)["options"])
    found = connection.find_topic(topic)
    if found is None:  # a group on it now would be in the way of one on a queue later
        return dealt
    if found.queue is not None:
        if choice is not None:
            allowed = "none: of a queue across nodes all letters are dealt with"
            raise OptionError("choice", topic_text(topic), allowed)
        with Queue(url, topic, group=redriver(group), **entry) as letters:
            # How long it takes to join says nothing of letters.
            letters._loop.run(letters._core.has_joined(FOR_EVER_S))  # noqa: SLF001 - nobody else asks
            while (job := letters.get(timeout_s=_LETTERS_S)) is not None:
                with job:
                    dealt = dealt.plus(handle([Letter(0, job.value or b"")]))
        return dealt
    one = choice is not None and choice.pointer is not None
    left = _left(connection, group, found, choice)
    # Of one letter alone only those in front of it are to be moved.
    options = {**entry, "commit": "manual", "batch": 1 if one else BATCH}
    # Of letters that are damaged, or were deleted, nothing can be put back.
    options |= {"on_corrupt": "skip", "on_lost": "skip"}
    with Consumer(url, topic, group=redriver(group), **options) as consumer:
        for batch in consumer.batches() if left else ():
            parts = [found.partitions[each.partition].topic for each in batch]
            got = list(map(_letter, batch))
            dealt = dealt.plus(_sort(connection, parts, got, handle, choice))
            consumer.commit()
            for part, each in zip(parts, got, strict=True):
                if each.pointer >= left.get(part, POINTER_MAX):
                    del left[part]
            if not left:
                break
    return dealt


def _left(
    connection: Socket, group: str, found: DescribedTopic, choice: Choice | None
) -> dict[bytes, int]:
    """Return up to where each partition is to be gone through; what is put behind comes later."""
    done: dict[bytes, int] = {}
    with suppress(UnknownGroup):
        lag = connection.control("group_lag", group=redriver(group))
        done = {unit: row["position"] or 0 for unit, row in lag.items()}
    most = POINTER_MAX if choice is None or choice.pointer is None else choice.pointer
    ends = {each.topic: min(each.newest or 0, most) for each in found.partitions}
    return {topic: end for topic, end in ends.items() if end > done.get(topic, 0)}


def _sort(
    connection: Socket,
    parts: list[bytes],
    letters: list[Letter],
    handle: Callable[[list[Letter]], Redriven],
    choice: Choice | None,
) -> Redriven:
    """Deal with those that are chosen, and put the others behind all of their partition."""
    if choice is None:
        return handle(letters)
    chosen = [each for each in letters if choice.takes(each)]
    dealt = handle(chosen) if chosen else Redriven(0)
    others: dict[bytes, list[bytes]] = {}
    for part, each in zip(parts, letters, strict=True):
        if not choice.takes(each):
            others.setdefault(part, []).append(each.content)
    for part, contents in others.items():
        connection.write(part, contents)
    return dealt


def _letter(received: Received) -> Letter:
    """Return a letter as it is stored, whether its topic is known to hold envelopes or not."""
    if received.headers is None:
        return Letter(received.pointer, received.value or b"")
    return Letter(received.pointer, encode(received.key, received.value, received.headers))
