"""What of one partition was sent and is not answered: its numbers, its order, and what goes again.

A batch gets its number (`PutId`) when it is first sent and keeps it, whatever happens to the
connection, so that the broker stores it once. What is refused waits until all that was sent behind
it is answered too, and then goes again, in the old order, before anything new. A refusal for a gap
with nothing missing in front means that the broker has forgotten, or that a batch in front was
given up: then a new epoch begins, since none of these can ever be stored in the old one.

A batch that keeps a number of an earlier epoch, such as one from the spool, goes alone: were it
refused, a newer epoch behind it would be stored first. After a gap it gets an epoch to itself,
which follows from its old number, so that a later life of the spool gives it the same one. A new
epoch leaves out those that the batches of the last one may need. Before the epochs, of 32 bits, run
out, the numbers begin anew under another producer id, once nothing is under way.

Pure: no lock, no clock, no socket; its queue calls it with the accumulator's lock held.
"""

import uuid
from collections.abc import Sequence
from enum import Enum
from typing import TypeGuard

from poe.client.producer.batch import Batch
from poe.errors import (
    DeliveryTimeout,
    FrameTooLarge,
    NotAuthorized,
    PoeError,
    ProducerFenced,
    RepeatedPut,
    SequenceGap,
)
from poe.errors.delivery import OUTCOME_UNKNOWN
from poe.protocol import PutId

_EPOCH_MAX = 2**32 - 1


class Verdict(Enum):
    """What becomes of a batch that was answered."""

    DONE = "it was delivered or is given up"
    AGAIN = "it will be sent again"
    STALE = "the answer comes from a connection that was given up"


class SendWindow:
    """The batches under way of one partition.

    Invariants:
        len(in_flight) <= limit, and 1 if it has a number of an earlier epoch
        those in flight are in the order of their first sends, and so are those in `again`
        nothing is sent while it is held, and `again` goes before anything new
    """

    def __init__(self, limit: int, *, is_numbered: bool) -> None:
        self.in_flight: list[Batch] = []
        self.again: list[Batch] = []
        self.has_stored = False
        """Whether anything was stored: a right that is missing now was there, and may be back."""
        self.is_held = False
        """Whether something was refused: nothing is sent until it is decided how to go on."""
        self.producer = uuid.uuid4().bytes if is_numbered else None
        self.epoch = 0
        self._limit = limit
        self._sequence = 0
        self._serial = 0

    def has_room(self) -> bool:
        """Return whether a batch may be sent now; without the lock it is a guess."""
        in_flight = self.in_flight
        return not self.is_held and (
            not in_flight
            or (
                len(in_flight) < self._limit
                and not self._is_used_up()
                and not self._has_old_in_flight()
            )
        )

    def begin(self, batch: Batch, now_s: float) -> None:
        """Take a batch that is sent now: a new one, or the first of `again`."""
        self.close(batch)
        if batch.put_id is None and self.producer is not None:
            if self._is_used_up():
                self.producer, self.epoch, self._sequence = uuid.uuid4().bytes, 0, 0
            batch.put_id = PutId(self.producer, self.epoch, self._sequence)
            self._sequence += 1
        batch.sent_s = now_s
        batch.first_sent_s = batch.first_sent_s or now_s
        self.in_flight.append(batch)

    def answer(self, batch: Batch, value: int | PoeError) -> Verdict:
        """Take the answer to a batch: the pointer of its last message, or an error."""
        if batch not in self.in_flight:
            return Verdict.STALE
        self.in_flight.remove(batch)
        if isinstance(value, int | RepeatedPut):
            self.has_stored = True
            return Verdict.DONE
        if isinstance(value, FrameTooLarge) and batch.is_divisible():
            # The server hangs up, and reads nothing of what was sent behind it.
            batch.error = value
            self.again += [batch, *self.in_flight]
            self.in_flight = []
            self.is_held = True
            return Verdict.AGAIN
        is_gap = isinstance(value, SequenceGap)
        is_unknown = isinstance(value, OUTCOME_UNKNOWN) or self._is_kept(batch, value)
        is_passing = value.retriable or is_gap or is_unknown
        if not (is_passing or self._is_shut_out(batch, value) or self._may_be_back(batch, value)):
            return Verdict.DONE
        batch.error = value
        # What would have been stored before is no gap now.
        batch.is_unknown = is_unknown or (batch.is_unknown and not is_gap)
        self.again.append(batch)
        self.is_held = True
        return Verdict.AGAIN

    def go_on(self) -> bool:
        """Decide how it goes on, once nothing is in flight; False: after a pause, by `release`."""
        self.again.sort(key=_in_order)
        if self.again:
            first = self.again[0]
            if not isinstance(first.error, SequenceGap | ProducerFenced):
                return False
            if self._is_old(first.put_id):
                producer, epoch, sequence = first.put_id
                first.put_id = PutId(producer, epoch + sequence, 0)
            else:
                self.begin_epoch()
                for batch in self.again:
                    batch.put_id = None
        self.is_held = False
        return True

    def close(self, batch: Batch) -> None:
        """Give a batch its place among those that were sent, and close it."""
        if not batch.serial:
            batch.close()
            self._serial += 1
            batch.serial = self._serial

    def number(self, parts: Sequence[Batch]) -> None:
        """Give the parts of a batch their places among those that were sent, before all of `again`.

        The last ones first: whatever interrupts it, those of `again` keep their order.
        """
        for batch in parts:
            batch.close()
        self._serial += len(parts) + len(self.again)
        for number, batch in enumerate(reversed([*parts, *self.again])):
            batch.serial = self._serial - number

    def replay(self, batch: Batch) -> None:
        """Take a batch out of the spool; it goes behind others from there, before any other."""
        self._serial += 1
        batch.serial = self._serial
        self.take_back(batch)

    def take_back(self, batch: Batch) -> None:
        """Have a batch sent again, or for the first time, in its order."""
        self.close(batch)
        self.again.append(batch)
        self.again.sort(key=_in_order)

    def begin_epoch(self) -> None:
        """Number in another epoch what is sent for the first time from now on."""
        self.epoch += max(self._sequence, 1)
        self._sequence = 0

    def release(self) -> None:
        """Go on after a pause."""
        if not self.in_flight:
            self.is_held = False

    def lose(self) -> None:
        """Take back what was sent over a connection that is lost: it may be stored, or not."""
        for batch in self.in_flight:
            batch.is_unknown = True
            batch.error = None
        self.again = sorted((*self.again, *self.in_flight), key=_in_order)
        self.in_flight = []
        self.is_held = False

    def _is_used_up(self) -> bool:
        """Return whether the next batch could not have an epoch to itself."""
        return self.epoch + self._sequence > _EPOCH_MAX

    def _has_old_in_flight(self) -> bool:
        # Not by its place: without the lock, another thread may take it out meanwhile.
        for oldest in self.in_flight:
            return self._is_old(oldest.put_id)
        return False

    def _is_old(self, put_id: PutId | None) -> TypeGuard[PutId]:
        """Return whether it is the number of an epoch that is over, or of an earlier producer."""
        return put_id is not None and put_id[:2] != (self.producer, self.epoch)

    def _may_be_back(self, batch: Batch, error: PoeError) -> bool:
        """Return whether a right was taken away, or is missing for what has long been accepted."""
        was_there = self.has_stored or batch.address is not None
        return was_there and isinstance(error, NotAuthorized)

    def _is_kept(self, batch: Batch, error: PoeError) -> bool:
        """Return whether a library has given up in time what the disk keeps until it is stored."""
        return batch.address is not None and isinstance(error, DeliveryTimeout)

    def _is_shut_out(self, batch: Batch, error: PoeError) -> bool:
        """Return whether one in front, or an earlier attempt, got its own epoch after a gap."""
        put_id = batch.put_id
        return isinstance(error, ProducerFenced) and self._is_old(put_id) and put_id.sequence > 0


def _in_order(batch: Batch) -> tuple[bool, int]:
    """Order batches by their first send; what the spool has is older than all that it has not."""
    return batch.address is None, batch.serial
