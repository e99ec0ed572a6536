"""One partition's messages in their order: gathered into batches, sent, delivered or given up.

Whoever adds a message that is due sends it, in its own thread: `produce_sync` costs one switch of
threads less. Answers come in the loop's thread. See `send_window` for what is sent again.
"""

import threading
from collections.abc import Callable
from functools import partial

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch
from poe.client.producer.batch_gatherer import BatchGatherer
from poe.client.producer.delivery import Delivery, Outcome
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.payload import Message
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.send_window import SendWindow, Verdict
from poe.client.producer.transport import Link
from poe.client.producer.worker_record import WorkerRecord
from poe.errors import DeliveryTimeout, PoeError, RepeatedPut
from poe.errors.delivery import MAYBE_STORED, NEVER_SENT

_PAUSE_S = 0.05
_PAUSE_MAX_S = 2.0
"""Before what was refused is sent again; twice as long each time."""
_SPANS = 32
"""Into so many batches what waits for `delivery_timeout_s` is divided at least."""


class PartitionQueue(BatchGatherer):
    """The batches of one partition, and the connection that takes them.

    A message is in `_open`, then in `_waiting`, then in the window, then it is settled. The lock of
    the accumulator guards all of it.
    """

    def __init__(  # noqa: PLR0913 - what it is, what it has, whom it tells
        self,
        topic: bytes,
        partition: int,
        options: TopicOptions,
        accumulator: Accumulator,
        observer: Instrumentation,
        *,
        is_numbered: bool,
    ) -> None:
        super().__init__(topic, partition, options, accumulator)
        self.link: Link | None = None
        self.window = SendWindow(options.in_flight, is_numbered=is_numbered)
        self.last_error: PoeError | None = None
        self._observer = observer
        self._turn = threading.Lock()
        self._pause_s = 0.0
        self._when_drained: Callable[[], object] | None = None

    # ---- what is in it ------------------------------------------------------------------------

    def has_backlog(self) -> bool:
        """Tell whether more is full and waits than the connection may have under way."""
        return len(self._waiting) > self.options.in_flight

    def unsettled(self) -> list[Batch]:
        """Return all batches, in their order."""
        with self._lock:
            return self.batches()

    def batches(self) -> list[Batch]:
        """Return the same; with the lock held."""
        return [*self.window.again, *self.window.in_flight, *self._unsent()]

    def in_flight_count(self) -> int:
        """Return how many requests are not answered."""
        return len(self.window.in_flight)

    def is_overdue(self) -> bool:
        """Tell whether a request has been without an answer for longer than it may."""
        with self._lock:
            in_flight = self.window.in_flight
            limit_s = self.options.request_timeout_s
            return bool(in_flight) and self._scheduler.now_s() - in_flight[0].sent_s > limit_s

    def flush(self) -> None:
        """Send what waits without waiting for more."""
        with self._lock:
            self._is_due = self._open is not None
        self.pump()

    # ---- sending ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send whatever may be sent now.

        One thread does so at a time. Another that comes meanwhile leaves it to that one, which
        looks again after it has let go.
        """
        while self._may_send() and self._turn.acquire(blocking=False):
            try:
                while (taken := self._take()) is not None:
                    self._send(*taken)
                    if not (self._is_due or self._waiting or self.window.again):
                        break
            finally:
                self._turn.release()

    def _may_send(self) -> bool:
        window = self.window
        is_any = self._waiting or (self._is_due and self._open is not None) or window.again
        return (
            bool(is_any)
            and self.link is not None
            and self._when_drained is None
            and window.has_room()
        )

    def _take(self) -> tuple[Link, Batch] | None:
        """Take the next batch in order."""
        with self._lock:
            link = self.link
            if link is None or not self._may_send():
                return None
            again = self.window.again
            batch = again.pop(0) if again else self._take_oldest()
            self.window.begin(batch, self._scheduler.now_s())
            return link, batch

    def _send(self, link: Link, batch: Batch) -> None:
        if self.options.massage is not None and not batch.is_massaged:
            try:
                batch.massaged(self._observer.massaged(self, batch.messages))
            except PoeError as error:
                self._answered(link, batch, error)
                return
        outgoing = batch.outgoing()
        if outgoing.messages:  # or the loop has given it up, or back to the spool, in this moment
            link.send(outgoing, partial(self._answered, link, batch))
            self._observer.sent(self, batch)

    # ---- answers ------------------------------------------------------------------------------

    def _answered(self, link: Link, batch: Batch, value: int | PoeError) -> bool:
        """Take the answer to a batch; False: it comes over a connection that was given up."""
        room: Outcome | None = None
        with self._lock:
            window = self.window
            verdict = window.answer(batch, value) if link is self.link else Verdict.STALE
            if verdict is Verdict.STALE:
                return False
            if verdict is Verdict.DONE:
                self._pause_s = 0.0
                room = self._accumulator.free(batch.living_count, batch.size)
            if window.is_held and not window.in_flight and not window.go_on():
                self._pause_s = min(max(2 * self._pause_s, _PAUSE_S), _PAUSE_MAX_S)
                self._scheduler.call_later(self._pause_s, self._release)
        if verdict is Verdict.DONE:
            self._end(batch, 0 if isinstance(value, RepeatedPut) else value, room)
        elif isinstance(value, PoeError):
            self.last_error = value
            self._observer.retried(self, batch)
        when_drained = self._when_drained
        if when_drained is not None and not self.window.in_flight:
            # Not at once: it is for actors, and this may be called by one.
            self._scheduler.call_later(0.0, when_drained)
        self.pump()
        return True

    def _release(self) -> None:
        with self._lock:
            self.window.release()
        self.pump()

    def _end(self, batch: Batch, value: int | PoeError, room: Outcome | None) -> None:
        """Tell all who wait; without the lock."""
        self._observer.ended(self, batch, value)
        batch.messages = []
        batch.settle(value)
        if room is not None:
            room.settle(value=True)

    # ---- the connection -----------------------------------------------------------------------

    def connect(self, worker: WorkerRecord) -> None:
        """Send over a worker's connection from now on."""
        with self._lock:
            self.worker, self.link = worker, worker.link
            self._when_drained = None
        self.pump()

    def disconnect(self) -> None:
        """Take back what was not answered by a connection that is lost."""
        with self._lock:
            self.worker = self.link = None
            self._when_drained = None
            self.window.lose()

    def begin_downtime(self) -> None:
        """Take note that no broker can be reached: what waits stays where it is."""

    def spool_all(self) -> None:
        """Do nothing: there is no spool."""

    def drain(self, action: Callable[[], object]) -> bool:
        """Send nothing more, to change the connection; tell whether nothing is under way.

        If something is, `action` is called in the loop's thread once all of it is answered.
        """
        with self._lock:
            self._when_drained = action
            return not self.window.in_flight

    # ---- giving up ----------------------------------------------------------------------------

    def withdraw(self, delivery: Delivery, why: PoeError) -> bool:
        """Take back the messages of a call; False where they may be stored, or will be."""
        batch = delivery.outcome
        if not isinstance(batch, Batch) or batch.queue is not self:
            return False
        with self._lock:
            if batch.value is not None:
                return False
            start = delivery.end - delivery.count
            if batch.hole_in(start, delivery.end) is not None:
                return False
            if not batch.serial:
                freed = batch.cut(start, delivery.end, why)
                self.unsent_count -= freed[0]
            elif (
                batch in self.window.again
                and not batch.is_unknown
                and batch.address is None
                and batch.living_count == delivery.count
            ):
                freed = batch.living_count, batch.size  # refused each time it was sent
            else:
                return False
            is_gone = batch.serial > 0 or not batch.count()
            if is_gone:
                self._remove(batch)
            room = self._accumulator.free(*freed)
        if is_gone:
            batch.settle(why)
        else:
            batch.wake(start, delivery.end)
        if room is not None:
            room.settle(value=True)
        return True

    def drop(self, count: int, why: PoeError, *, newest: bool) -> list[Message | bytes]:
        """Take out that many messages that were never sent, or as many as there are."""
        dropped: list[Message | bytes] = []
        ended: list[Batch] = []
        shortened: list[tuple[Batch, tuple[int, int]]] = []
        with self._lock:
            room = None
            while len(dropped) < count and self.unsent_count:
                batch = self._waiting[-1 if newest else 0] if self._waiting else self._open
                if newest:
                    batch = self._open or batch
                assert batch is not None
                gone, size, places = batch.cut_some(count - len(dropped), why, newest=newest)
                dropped += gone
                self.unsent_count -= len(gone)
                room = self._accumulator.free(len(gone), size) or room
                if batch.count():
                    shortened.append((batch, places))
                else:
                    self._remove(batch)
                    ended.append(batch)
        for batch in ended:
            batch.settle(why)
        for batch, places in shortened:
            batch.wake(*places)
        if room is not None:
            room.settle(value=True)
        return dropped

    def expire(self) -> bool:
        """Give up what is older than `delivery_timeout_s`.

        True: some of it is under way, and the connection must be given up as well. What was sent
        behind it is sent again then, in a new epoch where the server finds a gap.
        """
        limit_s = self.options.delivery_timeout_s
        if limit_s is None:
            return False
        with self._lock:
            now_s = self._scheduler.now_s()
            begun_before_s = now_s - limit_s
            late = self._open if self._is_due else None
            if late is not None and now_s - late.begun_s > limit_s / _SPANS:
                # A batch is as old as its first message, and the others should not fail early.
                self._waiting.append(late)
                self._open = None
            old = [
                batch
                for batch in self.batches()
                if batch.begun_s <= begun_before_s and batch.address is None
            ]
            under_way = [batch for batch in old if batch in self.window.in_flight]
        reason = str(self.last_error or ("no answer" if self.link else "no connection"))
        for batch in old:
            fate = MAYBE_STORED if batch.is_unknown or batch in under_way else NEVER_SENT
            self.give_up(batch, DeliveryTimeout(self.topic, limit_s, fate, reason))
        return bool(under_way)

    def give_up(self, batch: Batch, error: PoeError) -> list[bytes | Message]:
        """Fail a batch wherever it is, unless it has just been answered; return its messages."""
        with self._lock:
            if not self._remove(batch):
                return []
            if not batch.serial:
                batch.close()
            room = self._accumulator.free(batch.living_count, batch.size)
        messages = batch.messages
        self._end(batch, error, room)
        return messages

    def _remove(self, batch: Batch) -> bool:
        if batch is self._open:
            self._open = None
            self.unsent_count -= batch.count()
            return True
        if batch in self._waiting:
            self.unsent_count -= batch.count()
        for batches in (self._waiting, self.window.again, self.window.in_flight):
            if batch in batches:
                batches.remove(batch)
                return True
        return False
