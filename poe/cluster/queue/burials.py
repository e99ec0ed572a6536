"""Messages that have failed for good: put onto another queue, and done by that.

A dead letter has an id that comes from that of its message: so it is held once, though two sides of
a split may bury it, or one node again because it was not told that it is held.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from xxhash import xxh64_digest

from poe.broker.coordinator.dead_letters import dead_letter
from poe.broker.groups.dead_letters import Dying
from poe.broker.groups.ranges import Bounds
from poe.cluster.batch import BATCH_BYTES_MAX, STARTS, Batch
from poe.cluster.identity import StreamId
from poe.cluster.queue.effects import Bury
from poe.cluster.queue.ledger import Ledger
from poe.cluster.queue_record import GroupRecord
from poe.cluster.ranges import minus
from poe.record import RECORD_HEADER_BYTES
from poe.storage.formats.record import decode_records

REPEAT_US: Final = 5_000_000
"""After so long without a word that letters are held, it is asked for again."""

Batches = Callable[[StreamId, int, int], Sequence[Batch]]


class Burials:
    """Has the dying ranges of a group buried, one after the other."""

    def __init__(self, ledger: Ledger, batches: Batches) -> None:
        self._ledger = ledger
        self._batches = batches
        self._number = 0
        """Of what is buried; they go with the time, and none is that of the group as it was."""
        self._dying: Dying | None = None
        """What is being buried."""
        self._put: list[Bounds] = []
        """What of it was here to be put aside."""
        self._repeat_us = 0

    def bury(self, now_us: int) -> list[Bury]:
        """Return what is to be buried now: nothing while that is under way."""
        shared = self._ledger.shared
        while (dying := shared.next_dying()) is not None:
            if dying is self._dying and now_us < self._repeat_us:
                break
            found = self._batches(self._ledger.stream(dying.unit), dying.after, dying.last)
            self._put = [(batch.after, batch.last) for batch in found]
            batches = self._letters(dying, found)
            if batches:
                self._dying = dying
                self._number = max(self._number + 1, now_us)
                self._repeat_us = now_us + REPEAT_US
                record = self._ledger.record
                stream = letters_of(record, self._ledger.stream(dying.unit))
                queue = self._ledger.state.definition.dead_letter_topic
                return [Bury(record.name, self._number, queue, stream, batches)]
            self._end(dying)  # nothing is left of it to be put aside
        return []

    def buried(self, number: int) -> None:
        """Note that letters are held."""
        if self._dying is not None and number == self._number:
            self._end(self._dying)

    def next_deadline_us(self) -> int | None:
        """Return when to ask again; None where nothing is being buried."""
        return None if self._dying is None else self._repeat_us

    def _end(self, dying: Dying) -> None:
        """Have it done; but what was borrowed, and is here no more, others have and hand out."""
        stream, bounds = self._ledger.stream(dying.unit), (dying.after, dying.last)
        gone = minus(self._ledger.not_owned(stream, *bounds), self._put)
        self._ledger.shared.buried(dying)
        for each in minus([bounds], gone):
            self._ledger.knowledge.finish(stream, *each)
        self._dying = None

    def _letters(self, dying: Dying, found: Sequence[Batch]) -> tuple[Batch, ...]:
        letters: list[Batch] = []
        for batch in found:
            messages = [
                dead_letter(dying, pointer, message, is_enveloped=True)
                for pointer, message in decode_records(batch.records)
            ]
            letters += _in_batches(messages, batch.first)
        return tuple(letters)


def _in_batches(letters: list[bytes], first: int) -> Iterator[Batch]:
    """Yield letters as batches that each may be held; what is larger alone nobody can hold."""
    begin = size_bytes = 0
    for number, letter in enumerate(letters):
        record_bytes = len(letter) + RECORD_HEADER_BYTES + STARTS.itemsize
        if size_bytes + record_bytes > BATCH_BYTES_MAX and number > begin:
            yield Batch.encode(letters[begin:number], first + begin - 1, first + begin)
            begin, size_bytes = number, 0
        if record_bytes > BATCH_BYTES_MAX:
            begin = number + 1
        else:
            size_bytes += record_bytes
    if begin < len(letters):
        yield Batch.encode(letters[begin:], first + begin - 1, first + begin)


def letters_of(group: GroupRecord, stream: StreamId) -> StreamId:
    """Return the stream of a group's dead letters of a stream; no node has it as origin.

    Several groups may bury in one queue, and a node's streams of several queues have one name: none
    of their letters may pass for another's.
    """
    place = len(group.queue), group.queue, group.name.encode()
    return StreamId(
        xxh64_digest(b"dead letters of %b %d %b %b" % (stream.origin, *place)), stream.epoch
    )
