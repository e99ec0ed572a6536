"""A partition's queue with a spool: in a downtime, its batches go there and come back in order."""

from typing import Any

from poe.client.producer.batch import Batch
from poe.client.producer.delivery import Outcome
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.send_window import in_order
from poe.client.producer.transport import Link, OutgoingBatch
from poe.client.producer.unplaced_calls import UNPLACED
from poe.client.producer.worker_record import WorkerRecord
from poe.client.spool.spooler import Spooler
from poe.errors import PoeError, ProducerFenced

_PAUSE_S = 1.0
"""After which the disk is tried again."""
_TURN_S = 5.0
"""How long the end waits for who has the turn: that may be the thread that ends, in a callback."""
_GATHER_MAX_S = 0.1
"""The longest that messages wait for others before they go into the spool."""


class SpooledQueue(PartitionQueue):
    """While it spools, it sends what comes out of the spool, and puts there what is new.

    Invariants:
        it spools while the spool has anything of its partition
        of what came out of the spool, one batch is under way at a time
        only who has the turn puts batches into the spool, in order

    The second is what lets a server know each of them again, see docs/decisions/0022.
    """

    def __init__(self, spooler: Spooler, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of a `PartitionQueue`
        super().__init__(*arguments, **options)
        self._spooler = spooler
        self._is_spooling = self.partition == UNPLACED or spooler.has(self.topic, self.partition)
        self._gather_s = min(self.options.linger_s, _GATHER_MAX_S)
        self._is_refused = False
        """Whether the disk has just refused a batch."""
        self._keeping: Batch | None = None
        """On its way into the spool; for those who wait for it, or are to be told of a fork."""

    # ---- downtime -----------------------------------------------------------------------------

    def begin_downtime(self) -> None:
        """Put into the spool what waits, and what was not answered by a connection that is lost."""
        with self._lock:
            if not self._is_spooling:
                self._is_spooling = True
                # What goes there with its number may be dropped, and would leave a gap.
                self.window.begin_epoch()
        self._spooler.recall()
        self.pump()

    def connect(self, worker: WorkerRecord) -> None:
        """Send over a worker's connection from now on, the spool's batches first."""
        super().connect(worker)
        self._spooler.fill()

    def spool_all(self) -> None:
        """Put into the spool all that is not delivered, however young: the producer ends."""
        self.disconnect()
        with self._lock:
            if self._open is not None:
                self._waiting.append(self._open)
                self._open = None
            self._is_refused = False
        self.begin_downtime()
        # What another thread has in hand would else be neither in the spool nor given up.
        if self._turn.acquire(timeout=_TURN_S):
            try:
                self._take()  # without a connection it only spools
            finally:
                self._turn.release()

    # ---- before the partitions are known --------------------------------------------------------

    def take_rest(self) -> list[Batch]:
        """Take out what is not in the spool, in order, once nobody puts anything there."""
        with self._turn, self._lock:
            rest = [*self.window.again, *self._unsent()]
            self.window.again = []
            self._waiting.clear()
            self._open = None
            self.unsent_count = 0
            for batch in rest:
                self.window.close(batch)
        return rest

    def take_over(self, batch: Batch) -> None:
        """Take a batch that is counted already, and goes before all that is added later."""
        with self._lock:
            self._waiting.append(batch)
            self.unsent_count += batch.count()

    # ---- sending ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send or spool whatever may be."""
        if self._is_spooling:
            self._arm()
        super().pump()

    def _arm(self) -> None:
        """Have small batches gather, of calls that want to send at once as well."""
        with self._lock:
            if self._open is not None and not self._is_armed:
                self._is_armed = True
                self._scheduler.call_later(self._gather_s, self._ring)

    def _spools(self) -> bool:
        return self._is_spooling and (
            self.link is None or self._spooler.has(self.topic, self.partition)
        )

    def _may_send(self) -> bool:
        if not self._spools():
            return super()._may_send()
        return self._may_replay() or (self._may_keep() and not self._is_refused)

    def _may_replay(self) -> bool:
        first = self.window.again[:1]
        return (
            self.link is not None
            and bool(first)
            and first[0].address is not None
            and not self.window.in_flight
            and self.window.has_room()
            and self._when_drained is None
        )

    def _may_keep(self) -> bool:
        last, batch = self.window.again[-1:], self._open
        if self._waiting or (last and last[0].address is None):
            return True
        age_s = 0.0 if batch is None else self._scheduler.now_s() - batch.begun_s
        return batch is not None and age_s >= self._gather_s

    def _take(self) -> tuple[Link, Batch] | None:
        """Spool what is new, and take the next batch to send."""
        while True:
            with self._lock:
                if not self._spools():
                    # Nobody else can put anything there meanwhile: it takes the turn.
                    self._is_spooling = False
                    break
                if self._may_replay():
                    assert self.link is not None
                    batch = self.window.again.pop(0)
                    self.window.begin(batch, self._scheduler.now_s())
                    return self.link, batch
                if self._is_refused or not self._may_keep():
                    return None
                batch = self._next_to_keep()
            self._keep(batch)
            self._keeping = None
        return super()._take()

    def batches(self) -> list[Batch]:
        """Return all that is not in the spool; with the lock held."""
        keeping = self._keeping
        return [*([] if keeping is None else [keeping]), *super().batches()]

    def _next_to_keep(self) -> Batch:
        again = self.window.again
        if again and again[-1].address is None:
            batch = again.pop(sum(each.address is not None for each in again))
        else:
            batch = self._take_oldest()
        self._keeping = batch
        self.window.close(batch)
        return batch

    def _keep(self, batch: Batch) -> None:
        """Put a batch into the spool; where the disk refuses it, it stays in memory for a while."""
        is_placed = self.partition != UNPLACED
        if self.options.massage is not None and is_placed and not batch.is_massaged:
            try:
                batch.massaged(self._observer.massaged(self, batch.messages))
            except PoeError as error:
                with self._lock:
                    room = self._accumulator.free(batch.living_count, batch.size)
                self._end(batch, error, room)
                return
        if self._spooler.keep(self, batch):
            self._accumulator.release(batch.living_count, batch.size)
        else:
            with self._lock:
                self.window.again.append(batch)
                self.window.again.sort(key=in_order)
                self._is_refused = True
            self._scheduler.call_later(_PAUSE_S, self._keep_again)

    def _keep_again(self) -> None:
        self._is_refused = False
        self.pump()

    # ---- what comes out of the spool ----------------------------------------------------------

    def replay(
        self, batch: Batch, address: int, outgoing: OutgoingBatch, *, is_massaged: bool
    ) -> None:
        """Take a batch out of the spool, to be sent; it counts as in the buffer meanwhile."""
        _, _, messages, put_id, size = outgoing
        with self._lock:
            batch.address = address
            batch.messages = list(messages)
            batch.put_id = put_id if self.window.producer is not None else None
            batch.size = size
            batch.is_massaged = is_massaged
            batch.living_count = batch.living_count or len(messages)
            self._accumulator.count += batch.living_count
            self._accumulator.size += size
            self.window.replay(batch)

    def recall(self, batch: Batch) -> None:
        """Give a batch back to the spool."""
        with self._lock:
            if not self._remove(batch):
                return
            batch.messages = []
            room = self._accumulator.free(batch.living_count, batch.size)
        if room is not None:
            room.settle(value=True)

    def _end(self, batch: Batch, value: int | PoeError, room: Outcome | None) -> None:
        if batch.address is not None and isinstance(value, ProducerFenced):
            value = 0  # it was stored before one behind it was, in an earlier attempt
        super()._end(batch, value, room)
        if batch.address is not None:
            self._spooler.done(batch)
