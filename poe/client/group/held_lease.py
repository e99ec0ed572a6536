"""One lease of this member: its messages, and what became of them."""

import numpy as np

from poe.errors import InvalidEnvelope
from poe.protocol import Done, Failed, IndexedRecords, Lease
from poe.protocol.envelope import decode
from poe.protocol.leases import Verdict
from poe.record import RECORD_HEADER_BYTES

_OPEN, _DONE, _TOLD = 0, 1, 2


class HeldLease:
    """The messages of a lease, handed out in order; whoever calls holds the lock of the queue.

    Always: handed_count <= end <= messages of the lease. What is behind `end` was given back.
    """

    def __init__(self, lease: Lease, records: IndexedRecords, now_s: float) -> None:
        self.id = lease.id
        self.topic = lease.topic
        self.attempts = lease.attempts
        self.length_s = lease.left_s
        self.deadline_s = now_s + lease.left_s
        """By the clock of the event loop."""
        self.handed_count = 0
        self.working_count = 0
        self.end = len(records)
        self.has_envelopes = False
        """Whether its messages are in envelopes."""
        self.is_lost = False
        self.is_telling = False
        """Whether something of it is on its way to the group."""
        self.extend_at_s = now_s + lease.left_s / 2
        """When to look whether somebody works on it; infinite while that is done."""
        self._handed_before = 0
        # Lists, since an item of an array costs five times as much.
        self._pointers: list[int] = records.pointers.tolist()
        self._starts: list[int] = records.starts.tolist()
        self._data = records.data
        self._first_ordinal = records.ordinal
        self._after = lease.after
        self._last = lease.last
        self._marks = bytearray(self.end)
        self._failed: list[Failed] = []
        self._open_count = self.end
        self._is_whole = True
        if self.end and self._pointers[-1] < lease.last:
            self._last = self._pointers[-1]
            why = "the record is damaged on its way"
            self._failed.append(Failed(self.id, self._last, lease.last, "retry", None, why))
            self._is_whole = False

    @property
    def waiting_count(self) -> int:
        """How many messages are there to be handed out."""
        return 0 if self.is_lost else self.end - self.handed_count

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.is_lost or not (self._open_count or self.has_outcomes)

    @property
    def has_outcomes(self) -> bool:
        """Whether there is something to tell the group."""
        return bool(self._failed) or _DONE in self._marks

    def may_hand_out(self, now_s: float) -> bool:
        """Return whether the next message may be handed out now.

        One that follows others which were tried before waits until what became of those is told.
        """
        if not self.waiting_count or now_s >= self.deadline_s:
            return False
        return not (self.attempts and (self.is_telling or self.has_outcomes))

    def take(self) -> int:
        """Hand the next message out; return its number in the lease."""
        number = self.handed_count
        self.handed_count += 1
        self.working_count += 1
        return number

    def ordinal(self, number: int) -> int:
        """Return the ordinal of a message."""
        return self._first_ordinal + number

    def pointer(self, number: int) -> int:
        """Return the pointer of a message."""
        return self._pointers[number]

    def message(self, number: int) -> bytes:
        """Return the bytes of a message."""
        begin, end = self._starts[number] + RECORD_HEADER_BYTES, self._starts[number + 1]
        return bytes(self._data[begin:end])

    def begins_without_envelope(self) -> bool:
        """Return whether its first message is in none."""
        if not self.end:
            return False
        try:
            decode(self.message(0))
        except InvalidEnvelope:
            return True
        return False

    def finish(self, number: int, failed: tuple[Verdict, float | None, str] | None) -> None:
        """Note what became of a message that was handed out; None: it is done."""
        self.working_count -= 1
        if failed is None:
            self._marks[number] = _DONE
            self._open_count -= 1
        else:
            self._fail(number, number + 1, failed)

    def give_back(self) -> bool:
        """Give back, uncounted, what nobody was handed yet; whether there was something."""
        begin, end = self.handed_count, self.end
        if begin == end:
            return False
        self.end = begin
        self._fail(begin, end, ("release", None, ""))
        return True

    def is_stuck(self) -> bool:
        """Return whether nobody works on it, or was handed a message since it was last asked."""
        before, self._handed_before = self._handed_before, self.handed_count
        return not self.working_count or before == self.handed_count

    def take_outcomes(self, ranges_max: int) -> tuple[list[Done], list[Failed]]:
        """Return what is to be told, each range once; so many ranges that are done, or failed."""
        failed, self._failed = self._failed[:ranges_max], self._failed[ranges_max:]
        if _DONE not in self._marks:
            return [], failed
        if self._is_whole and not self._open_count:
            done, runs = Done(self.id), [(0, self.end)]
        else:
            runs = self._done_runs()[:ranges_max]
            done = Done(self.id, [self._range(*each) for each in runs])
        self._is_whole = False
        for begin, end in runs:
            self._marks[begin:end] = bytes((_TOLD,)) * (end - begin)
        return [done], failed

    def _done_runs(self) -> list[tuple[int, int]]:
        """Return what is done and not told: runs of messages, one more than there are holes."""
        is_done = np.frombuffer(self._marks, np.uint8) == _DONE
        edges = np.flatnonzero(np.diff(is_done, prepend=False, append=False)).tolist()
        return list(zip(edges[::2], edges[1::2], strict=True))

    def _range(self, begin: int, end: int) -> tuple[int, int]:
        """Return the bounds of some messages: neighbours touch, and all fill the lease."""
        after = self._pointers[begin - 1] if begin else self._after
        last = self._pointers[end - 1] if end < len(self._pointers) else self._last
        return after, last

    def _fail(self, begin: int, end: int, failed: tuple[Verdict, float | None, str]) -> None:
        self._is_whole = False
        self._marks[begin:end] = bytes((_TOLD,)) * (end - begin)
        self._open_count -= end - begin
        verdict, delay_s, reason = failed
        self._failed.append(Failed(self.id, *self._range(begin, end), verdict, delay_s, reason))
