"""Moves the batches of a producer onto disk while no broker can be reached, and out again.

    downtime    queue ── keep ─> spool
    afterwards  spool ── fill ─> queue ─> connection; what is new goes behind it: queue ─> spool
    drained     queue ─> connection

Strategy: a batch in the spool leaves its messages there, and stays what callers wait for. It comes
back into its queue when it is to be sent, so that the queue's rules for answers hold for it, too.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch
from poe.client.producer.callbacks import Event
from poe.client.producer.delivery import UNPLACED, Outcome
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.transport import Link, OutgoingBatch
from poe.client.spool.spool import Spool, SpooledBatch
from poe.errors import Dropped, PoeError, ProducerClosed, SpoolDamaged, StorageError
from poe.errors.delivery import MAYBE_STORED, NEVER_SENT

_HAND_BYTES: Final = 16 * 1024 * 1024
_HAND_COUNT: Final = 256
_RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


class ReplayQueue(Protocol):
    """A queue that sends what comes out of the spool."""

    link: Link | None

    def replay(
        self, batch: Batch, address: int, outgoing: OutgoingBatch, *, is_massaged: bool
    ) -> None:
        """Take a batch out of the spool, to be sent; it counts as in the buffer meanwhile."""
        ...

    def recall(self, batch: Batch) -> None:
        """Give a batch back to the spool."""
        ...

    def pump(self) -> None:
        """Send whatever may be sent now."""
        ...


class Part(NamedTuple):
    """What of a spooled batch one partition is to send; mostly all of it."""

    queue: ReplayQueue
    batch: Batch
    outgoing: OutgoingBatch


class SpooledTopic(Protocol):
    """A topic that has batches in the spool."""

    def parts_of(self, spooled: OutgoingBatch, batch: Batch | None) -> list[Part] | None:
        """Return what each partition is to send of a batch, which `batch` stands for.

        None: the partitions are not known yet.
        """
        ...


class _InHand(NamedTuple):
    """A batch that was taken out of the spool, to be sent, in one part or several."""

    spooled: SpooledBatch
    parts: list[Part]


class Spooler:
    """The spool of one producer, and which of its batches callers wait for.

    Any thread may `keep`, and tell what is `done`; the loop's does all else. The lock is held for
    disk accesses and while batches change hands, and never while anything is sent or a user's
    function is called; the accumulator's is taken within it.
    """

    def __init__(
        self,
        spool: Spool,
        topics: Mapping[bytes | str, SpooledTopic],
        accumulator: Accumulator,
        observer: Instrumentation,
    ) -> None:
        self._spool = spool
        self._topics = topics
        self._scheduler = accumulator.scheduler
        self._observer = observer
        self._lock = threading.Lock()
        self._known: dict[int, Batch] = {}
        """By address: the batches that callers wait for."""
        self._parts: dict[int, list[Part]] = {}
        """By address: of batches that were added before the partitions were known."""
        self._in_hand: dict[int, _InHand] = {}
        self._hand_bytes = 0
        self._next: SpooledBatch | None = None
        """Taken, but its queue has no connection yet."""
        self._is_failing = False
        self._is_unreadable = False
        """Whether a read has failed, and is tried again in a while."""
        self._is_closed = False
        self._left_end = spool.end
        self._left = Outcome()
        """Settled once all is delivered or dropped that an earlier producer has left."""
        self._look_at_left()
        observer.spooled(self.count)

    # ---- what is in it ------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._spool.count

    def topics(self) -> set[bytes]:
        """Return the topics of what there is."""
        with self._lock:
            return {topic for topic, _ in self._spool.counts}

    def has(self, topic: bytes, partition: int) -> bool:
        """Return whether anything is there that is, or may be, of a partition; without the lock."""
        counts = self._spool.counts
        return counts.get((topic, partition), 0) > 0 or counts.get((topic, UNPLACED), 0) > 0

    def count_of(self, topic: bytes) -> int:
        """Return how many messages of a topic there are."""
        with self._lock:
            return sum(count for (each, _), count in self._spool.counts.items() if each == topic)

    @property
    def damaged_count(self) -> int:
        """How many damaged places were skipped, each a batch or more."""
        return self._spool.damage.count

    def unsettled(self) -> list[Outcome]:
        """Return what a flush waits for: what callers wait for, and what there was at first."""
        with self._lock:
            return [self._left, *self._known.values()]

    # ---- in -----------------------------------------------------------------------------------

    def keep(self, batch: Batch, *, is_connected: bool) -> bool:
        """Store a closed batch, and drop others for it, or itself; False: the disk refuses it."""
        outgoing = batch.outgoing()
        try:
            with self._lock:
                address, gone = self._spool.append(outgoing)
                if address is not None:
                    self._known[address] = batch
                # Within the lock: from here on it may come back at any time.
                batch.messages = []
                dropped = [(each.batch, self._known.pop(each.address, None)) for each in gone]
                for spooled in gone:
                    self._parts.pop(spooled.address, None)
        except StorageError as error:
            if not self._is_failing:
                _log.error("batches stay in memory: %s", str(error))
            self._is_failing = True
            return False
        self._is_failing = False
        for each, known in dropped:
            self._tell_dropped(each, known, "oldest")
        if address is None:
            self._tell_dropped(outgoing, batch, "newest")
        self._tell_damaged()
        self._observer.spooled(self.count)
        self._look_at_left()
        if is_connected:
            self._scheduler.call_later(0.0, self.fill)
        return True

    def _tell_dropped(self, dropped: OutgoingBatch, batch: Batch | None, side: str) -> None:
        topic, partition, messages, *_ = dropped
        self._observer.dropped(topic, partition, len(messages))
        self._observer.overflowing(topic, list(messages))
        if batch is not None:
            fate = MAYBE_STORED if batch.is_unknown else NEVER_SENT
            batch.settle(Dropped(topic, side, "raise spool_bytes", fate))

    def _tell_damaged(self) -> None:
        """Tell those who wait for what cannot be read any more."""
        with self._lock:
            places = self._spool.damage.take()
            if not places:
                return
            lost = [each for each in self._known if any(each in place for place in places)]
            batches = [self._known.pop(address) for address in lost]
            for address, batch in zip(lost, batches, strict=True):
                self._parts.pop(address, None)
                self._spool.count_lost(batch.queue.topic, batch.queue.partition, batch.living_count)
        for batch in batches:
            topic = batch.queue.topic
            self._observer.dropped(topic, batch.queue.partition, batch.living_count)
            fate = MAYBE_STORED if batch.is_unknown else NEVER_SENT
            batch.settle(SpoolDamaged(topic, self._spool.path, fate))
        self._observer.spooled(self.count)
        self._look_at_left()

    # ---- out ----------------------------------------------------------------------------------

    def fill(self) -> None:
        """Give queues what they are to send, as far as the next one has a connection."""
        while (taken := self._take()) is not None:
            for part in taken.parts:
                part.queue.pump()
            topic, _, messages, *_ = taken.spooled.batch
            self._observer.topic_event(Event.DOWNTIME_REPLAYED, topic, messages)
            if not taken.parts:
                self._done(taken.spooled.address)
        self._tell_damaged()

    def _take(self) -> _InHand | None:
        """Move the next batch into its queue."""
        with self._lock:
            is_full = self._hand_bytes >= _HAND_BYTES or len(self._in_hand) >= _HAND_COUNT
            if is_full or self._is_closed or self._is_unreadable:
                return None
            try:
                self._next = self._next or self._spool.take()
            except StorageError as error:
                _log.error("%s; trying again", str(error))
                self._is_unreadable = True
                self._scheduler.call_later(_RETRY_S, self._read_again)
            spooled = self._next
        parts = None if spooled is None else self._parts_of(spooled)
        if spooled is None or parts is None or any(part.queue.link is None for part in parts):
            return None  # when a queue gets one, it asks
        with self._lock:
            if self._next is not spooled:
                return None  # it was given back meanwhile
            self._next = None
            taken = self._in_hand[spooled.address] = _InHand(spooled, parts)
            self._hand_bytes += spooled.batch.size
            is_massaged = spooled.batch.partition != UNPLACED
            for queue, batch, outgoing in parts:
                queue.replay(batch, spooled.address, outgoing, is_massaged=is_massaged)
            return taken

    def _read_again(self) -> None:
        self._is_unreadable = False
        self.fill()

    def _parts_of(self, spooled: SpooledBatch) -> list[Part] | None:
        """Return what of a batch is to be sent, and by whom; None: that is not known yet.

        Without the lock: a user's function may be asked for partitions.
        """
        address, batch = spooled
        parts = self._parts.get(address)
        if parts is None:
            topic = self._topics.get(batch.topic)
            parts = None if topic is None else topic.parts_of(batch, self._known.get(address))
            if parts is None or batch.partition != UNPLACED:
                return parts
            self._parts[address] = parts
        return [part for part in parts if part.batch.value is None]

    def done(self, batch: Batch) -> None:
        """Note that a batch was delivered, or will never be."""
        assert batch.address is not None
        self._done(batch.address)

    def _done(self, address: int) -> None:
        with self._lock:
            in_hand = self._in_hand.get(address)
            if in_hand is None:
                return  # it was given back meanwhile
            if any(part.batch.value is None for part in in_hand.parts):
                return
            del self._in_hand[address]
            self._known.pop(address, None)
            self._parts.pop(address, None)
            self._hand_bytes -= in_hand.spooled.batch.size
            self._spool.done(in_hand.spooled)
        self._observer.spooled(self.count)
        # By the loop: this may be a thread that receives, and two would assign one batch twice.
        self._scheduler.call_later(0.0, self.fill)
        self._look_at_left()

    def _look_at_left(self) -> None:
        """Tell those who wait for what was left that there is nothing of it any more."""
        if self._left.value is None:
            with self._lock:
                is_done = self._spool.is_done_to(self._left_end)
            if is_done:
                self._left.settle(value=True)

    def recall(self) -> None:
        """Take back what is not sent, unless there is still a connection that sends it."""
        with self._lock:
            parts = [part for each in self._in_hand.values() for part in each.parts]
            if not any(part.queue.link is not None for part in parts):
                self._rewind()

    def _rewind(self) -> None:
        for in_hand in self._in_hand.values():
            known = self._known.get(in_hand.spooled.address)
            for queue, batch, _ in in_hand.parts:
                queue.recall(batch)
                if known is not None and (batch.is_unknown or batch.value is not None):
                    known.is_unknown = True
        self._in_hand.clear()
        self._hand_bytes = 0
        self._next = None
        self._spool.rewind()

    def forget(self, error: PoeError) -> None:
        """Tell the copies of deliveries that a fork has made; takes no lock, and calls nobody."""
        self._spool.forget()
        for batch in self._known.values():
            batch.abandon(error)

    def close(self) -> None:
        """Leave what there is to the next producer, and tell those who wait. Twice is harmless."""
        self._tell_damaged()
        with self._lock:
            if self._is_closed:
                return
            known = list(self._known.values())
            self._rewind()
            self._known.clear()
            self._is_closed = True
            self._spool.close()
        error: PoeError = ProducerClosed("the messages are in spool_dir for the next producer")
        for outcome in (self._left, *known):
            outcome.settle(error)
