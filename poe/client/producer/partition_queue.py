"""One partition's messages in their order: gathered into batches, sent, delivered or given up.

Whoever adds a message that is due sends it, in its own thread: `produce_sync` costs one switch of
threads less. Answers come in the loop's thread. See `send_window` for what is sent again, and
`spooler` for the disk that takes what is new in a downtime.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import TypeAlias

from poe.client.patience import REFUSED_WAIT_MAX_S
from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch, bytes_of, size_of
from poe.client.producer.delivery import UNPLACED, Delivery, Outcome
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.send_window import SendWindow, Verdict
from poe.client.producer.topic_info import Carrier
from poe.client.producer.transport import Link, OutgoingBatch
from poe.client.spool.spooler import Spooler
from poe.errors import (
    DeliveryTimeout,
    FrameTooLarge,
    NotAuthorized,
    PoeError,
    ProducerFenced,
    RepeatedPut,
)
from poe.errors.delivery import MAYBE_STORED, NEVER_SENT

_PAUSE_S = 0.05
_PAUSE_MAX_S = 2.0
"""Before what was refused is sent again; twice as long each time. Also after an interrupt."""
_DISK_PAUSE_S = 1.0
"""After which a disk that has refused a batch is tried again."""
_TURN_S = 5.0
"""How long the end waits for who has the turn: that may be the thread that ends, in a callback."""
_AROUND_BATCH_BYTES = 280
"""Room for what a frame has around a batch: its type, the number of the put, the longest topic."""
_GATHER_MAX_S = 0.1
"""The longest that messages wait for others before they go into the spool."""
_SPANS = 32
"""Into so many batches what waits for `delivery_timeout_s` is divided at least."""


CallSoon: TypeAlias = Callable[[Callable[[], object]], object]
"""Has a loop call something in its next turn."""


class _Storage(Enum):
    """Where messages wait that cannot be sent."""

    MEMORY = "in memory"
    SPOOL = "in the spool: it is sent first, and what is new goes behind it"
    FULL = "the same, but the disk has just refused a batch, and is left alone for a moment"


_MEMORY = _Storage.MEMORY  # asked for with each request, and a class is slow to tell


class PartitionQueue:
    """The batches of one partition, and the connection that takes them.

    A message is in `_open`, then in `_waiting`, then in the window, then it is settled; where the
    storage is the spool, it may be there in between. The lock of the accumulator guards all of it.
    A call's messages stay in one batch where they can.

    While its partition is not known (`UNPLACED`) it has no connection, and `unload` takes out what
    is in memory once it is; without a spool each call has a batch to itself until then, since calls
    may go to several partitions.

    Invariants of each other batch, unless it is one message that is larger:
        messages <= options.batch_count
        bytes <= options.batch_bytes, and less where the server has refused frames of so many
    With a spool:
        its storage is not memory while the spool has anything of its partition
        of what came out of the spool, one batch is under way at a time
        only who has the turn puts batches into the spool, in order
    The second is what lets a server know each of them again, see docs/decisions/0022.
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
        spooler: Spooler | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.options = options
        self.worker: Carrier | None = None
        """Who sends its batches at present."""
        self.link: Link | None = None
        self.window = SendWindow(options.in_flight, is_numbered=is_numbered)
        self.last_error: PoeError | None = None
        self.unsent_count = 0
        """Messages in the batches that were never sent."""
        self._accumulator = accumulator
        self._scheduler = accumulator.scheduler
        self._lock = accumulator.lock
        self._observer = observer
        self._spooler = spooler
        is_spooling = spooler is not None and (
            partition == UNPLACED or spooler.has(topic, partition)
        )
        self._storage = _Storage.SPOOL if is_spooling else _MEMORY
        self._gather_s = min(options.linger_s, _GATHER_MAX_S)
        self._has_single_calls = partition == UNPLACED and spooler is None
        self._open: Batch | None = None
        # In order, and each found at once: there may be one for each call.
        self._waiting: OrderedDict[Batch, None] = OrderedDict()
        self._in_hand: Batch | None = None
        """On its way to the connection, the spool or a partition; to be told of a fork, too."""
        self._rings_s = math.inf
        """When it is looked next whether the open batch is old enough."""
        self._batch_count = options.batch_count
        self._batch_bytes = options.batch_bytes
        # It knows its thread, so that an interrupt, such as Ctrl-C, never leaves it taken.
        self._turn = threading.RLock()
        self._pause_s = 0.0
        self._when_drained: Callable[[], object] | None = None

    # ---- what is in it ------------------------------------------------------------------------

    def buffered(self) -> tuple[int, int]:
        """Return how many messages wait to be sent, and their bytes."""
        with self._lock:
            unsent = self._unsent()
            return self.unsent_count, sum(batch.size for batch in unsent)

    def waiting(self) -> list[bytes | Message]:
        """Return the messages that wait to be sent for the first time."""
        with self._lock:
            return [each for batch in self._unsent() for each in batch.messages if each is not None]

    def has_backlog(self) -> bool:
        """Return whether more is full and waits than the connection may have under way."""
        return len(self._waiting) > self.options.in_flight

    def unsettled(self) -> list[Batch]:
        """Return all batches that are not in the spool, in their order."""
        with self._lock:
            return self.batches()

    def batches(self) -> list[Batch]:
        """Return the same; with the lock held."""
        in_hand, in_flight = self._in_hand, self.window.in_flight
        first = [] if in_hand is None or in_hand in in_flight else [in_hand]
        return [*first, *self.window.again, *in_flight, *self._unsent()]

    def _unsent(self) -> list[Batch]:
        return [*self._waiting, self._open] if self._open is not None else list(self._waiting)

    def in_flight_count(self) -> int:
        """Return how many requests are not answered."""
        return len(self.window.in_flight)

    def is_overdue(self) -> bool:
        """Return whether a request has been without an answer for longer than it may."""
        with self._lock:
            in_flight = self.window.in_flight
            limit_s = self.options.request_timeout_s
            return bool(in_flight) and self._scheduler.now_s() - in_flight[0].sent_s > limit_s

    # ---- gathering ----------------------------------------------------------------------------

    def add_one(
        self, message: bytes, *, is_due: bool, call_soon: CallSoon | None = None
    ) -> Delivery:
        """Add one plain message, to be sent at once or with its batch.

        With `call_soon`, of the loop that the caller is a task of, what is due waits for the end of
        the loop's turn while anything is under way: other tasks have messages for the same request.
        Nothing is lost where the loop ends before: the next answer sends what is due, too.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        size = len(message)
        is_closed = False
        with self._lock:
            self._accumulator.take(1, size)
            batch = self._open
            if batch is not None and batch.size + size > self._batch_bytes:
                self._waiting[batch] = None
                batch = self._open = None
                is_closed = True
            if batch is None:
                batch = self._open = self._begin(is_due=is_due)
            messages = batch.messages
            batch.size += size
            self.unsent_count += 1
            messages.append(message)
            end = len(messages)
            if end >= self._batch_count or batch.size >= self._batch_bytes:
                self._waiting[batch] = None
                self._open = None
                is_closed = True
            elif is_due:
                batch.is_due = True
        if is_closed or (is_due and (call_soon is None or not self.window.in_flight)):
            self.pump()
        elif is_due and call_soon is not None and not batch.is_gathering:
            batch.is_gathering = True
            call_soon(self.pump)
        return Delivery(batch, end, 1)

    def add(self, messages: Messages, *, is_due: bool, is_counted: bool = False) -> list[Delivery]:
        """Add the messages of one call, all or none; in one request, if they fit into one.

        `is_counted` says that the accumulator has counted them before.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        deliveries = []
        with self._lock:
            if not is_counted:
                self._accumulator.take(len(messages), bytes_of(messages))
            if self._has_single_calls:
                return [self._add_apart(messages, is_due=is_due)]
            start, unsent_count = 0, self.unsent_count
            try:
                while start < len(messages):
                    start, delivery = self._add_some(messages, start, is_due=is_due)
                    deliveries.append(delivery)
            except BaseException:  # a signal's
                rest = messages[self.unsent_count - unsent_count :]
                self._scheduler.call_later(0.0, partial(self._let_go, rest))
                raise
            if is_due and self._open is not None:
                self._open.is_due = True
        self.pump()
        return deliveries

    def _add_some(self, messages: Messages, start: int, *, is_due: bool) -> tuple[int, Delivery]:
        """Add what goes into one batch; return where the rest starts."""
        count = min(len(messages) - start, self._batch_count)
        part = messages if count == len(messages) else messages[start : start + count]
        size = bytes_of(part)
        while size > self._batch_bytes and count > 1:
            count = max(1, count * self._batch_bytes // (size + 1))
            part = part[:count]
            size = bytes_of(part)
        batch = self._open
        if batch is not None and (
            len(batch.messages) + count > self._batch_count or batch.size + size > self._batch_bytes
        ):
            self._waiting[batch] = None
            batch = self._open = None
        if batch is None:
            batch = self._open = self._begin(is_due=is_due)
        batch.is_plain = batch.is_plain and type(part[0]) is bytes
        batch.size += size
        self.unsent_count += count
        batch.messages.extend(part)
        end = len(batch.messages)
        if end >= self._batch_count or batch.size >= self._batch_bytes:
            self._waiting[batch] = None
            self._open = None
        return start + count, Delivery(batch, end, count)

    def _let_go(self, rest: Messages) -> None:
        """After an interrupted call, send what of it is in, and give back the room of the rest."""
        self._accumulator.release(len(rest), sum(map(size_of, rest)))
        self.flush()

    def _add_apart(self, messages: Messages, *, is_due: bool) -> Delivery:
        batch = Batch(self, self._scheduler.now_s())
        batch.is_due = is_due
        batch.messages, batch.size = list(messages), bytes_of(messages)
        batch.is_plain = type(messages[0]) is bytes
        self._waiting[batch] = None
        self.unsent_count += len(messages)
        return Delivery(batch, len(messages), len(messages))

    def _begin(self, *, is_due: bool) -> Batch:
        if not is_due:
            self._arm(self._patience_s())
        return Batch(self, self._scheduler.now_s())

    def _patience_s(self) -> float:
        """Return how long an open batch waits for more messages; less if a disk is to have it."""
        return self.options.linger_s if self._storage is _MEMORY else self._gather_s

    def _arm(self, delay_s: float) -> None:
        """Have the open batch looked at in a while, or before; with the lock held."""
        # Once for many batches: with a queue that is always busy it rings at the linger's pace.
        rings_s = self._scheduler.now_s() + delay_s
        if rings_s < self._rings_s:
            self._rings_s = rings_s
            self._scheduler.call_later(delay_s, partial(self._ring, rings_s))

    def _ring(self, rings_s: float) -> None:
        """Send the open batch if it is old enough."""
        with self._lock:
            if rings_s != self._rings_s:
                return  # it was done before, or is to be
            self._rings_s = math.inf
            batch = self._open
            if batch is not None and not batch.is_due:
                left_s = batch.begun_s + self._patience_s() - self._scheduler.now_s()
                if left_s <= 0:
                    batch.is_due = True
                else:
                    self._arm(left_s)
        self.pump()

    def flush(self) -> None:
        """Send what waits without waiting for more."""
        with self._lock:
            for batch in self._unsent():
                batch.is_due = True
        self.pump()

    def unload(self) -> Iterator[Batch]:
        """Take out, one by one and in order, what is in memory, now that partitions are known."""
        with self._turn:  # nobody puts anything into the spool meanwhile, nor afterwards
            self._storage = _MEMORY
        while True:
            with self._lock:
                again = self.window.again
                if not again and not self._unsent():
                    break
                batch = self._take_again(0) if again else self._take_oldest()
                self.window.close(batch)
            yield batch
            self._in_hand = None

    # ---- sending ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send or spool whatever may be sent or spooled now.

        One thread does so at a time. Another that comes meanwhile leaves it to that one, which
        looks again after it has let go.
        """
        if self._storage is not _MEMORY:
            self._gather()
        if self._has_turn():
            return  # this is a callback, in the middle of it
        try:
            while self._may_take() and self._turn.acquire(blocking=False):
                taken = self._take()
                if taken is not None:
                    self._send(*taken)
                self._turn.release()
        except BaseException:  # a signal's
            if self._has_turn():
                self._put_back()
                self._turn.release()
            raise

    def _has_turn(self) -> bool:
        """Return whether this thread sends or spools at present."""
        return self._turn._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 - as in `threading.Condition`

    def _put_back(self) -> None:
        """Have the loop go on with what was in hand when a signal's exception came."""
        with self._lock:
            batch, self._in_hand = self._in_hand, None
            window = self.window
            if batch in window.in_flight:  # and the connection has not got it
                window.in_flight.remove(batch)
            if batch is not None and batch.messages and batch not in self.batches():
                window.take_back(batch)
        if batch is not None and not batch.messages and batch.value is None:  # it is in the spool
            self._accumulator.release(batch.living_count, batch.size)
        self._scheduler.call_later(_PAUSE_S, self.pump)

    def _may_take(self) -> bool:
        if self._storage is not _MEMORY and self._uses_spool():
            return self._may_replay() or self._may_keep()
        open_ = self._open
        is_any = self._waiting or self.window.again or (open_ is not None and open_.is_due)
        return bool(is_any) and self._may_send()

    def _may_send(self) -> bool:
        return self.link is not None and self._when_drained is None and self.window.has_room()

    def _take(self) -> tuple[Link, Batch] | None:
        """Take the next batch in order, after what is new is in the spool, if that takes it."""
        while True:
            with self._lock:
                if self._storage is _MEMORY or not self._uses_spool():
                    # Nobody else can put anything there meanwhile: it takes the turn.
                    self._storage = _MEMORY
                    return self._next_to_send() if self._may_take() else None
                if self._may_replay():
                    return self._next_to_send()
                if not self._may_keep():
                    return None
                batch = self._next_to_keep()
            self._keep(batch)
            self._in_hand = None

    def _next_to_send(self) -> tuple[Link, Batch]:
        assert self.link is not None
        batch = self._take_again(0) if self.window.again else self._take_oldest()
        if batch.size > self._batch_bytes and batch.is_divisible():
            self._divide(batch)
            batch = self._take_again(0)
        self.window.begin(batch, self._scheduler.now_s())
        return self.link, batch

    def _divide(self, batch: Batch) -> None:
        """Put parts of the batch in hand in its place, each of the bytes that a batch may have now.

        With the lock held. Only where the server has refused a larger one: see `_learn`.
        """
        window = self.window
        window.close(batch)
        parts = batch.divided(self._batch_bytes)
        window.number(parts)
        # Nothing is called from here on, so that no signal comes between.
        window.again[:0] = parts
        batch.messages = []
        self._in_hand = None

    def _learn(self, batch: Batch, refusal: FrameTooLarge) -> None:
        """Make batches smaller from now on, as their server wants them; with the lock held.

        What stands around the messages of one is taken to be in proportion to their bytes. Where it
        is more, as around shorter ones, the next refusal tells so.
        """
        room_bytes = max(refusal.frame_max - _AROUND_BATCH_BYTES, 1)
        fitting = batch.size * room_bytes // max(refusal.size_bytes, 1)
        self._batch_bytes = max(1, min(self._batch_bytes, batch.size - 1, fitting))

    def _take_again(self, number: int) -> Batch:
        """Take in hand one of those that go again; with the lock held."""
        batch = self._in_hand = self.window.again[number]
        del self.window.again[number]
        return batch

    def _take_oldest(self) -> Batch:
        """Take in hand the oldest batch that was never sent; there is one, and the lock is held."""
        batch = next(iter(self._waiting)) if self._waiting else self._open
        assert batch is not None
        count = batch.count()
        self._in_hand = batch
        # Nothing is called from here on, so that no signal comes between.
        if batch is self._open:
            self._open = None
        else:
            del self._waiting[batch]
        self.unsent_count -= count
        return batch

    def _send(self, link: Link, batch: Batch) -> None:
        if self.options.massage is not None and not batch.is_massaged:
            try:
                batch.massaged(self._observer.massaged(batch))
            except PoeError as error:
                self._in_hand = None
                self._answered(link, batch, error)
                return
        outgoing = batch.outgoing()
        done = partial(self._answered, link, batch)
        is_again = batch.is_again  # asked now: its answer may be faster
        self._in_hand = None
        if outgoing.messages:  # or the loop has given it up, or back to the spool, in this moment
            link.send(outgoing, done)
            self._observer.sent(batch, is_again=is_again)

    # ---- answers ------------------------------------------------------------------------------

    def _answered(self, link: Link, batch: Batch, value: int | PoeError) -> bool:
        """Take the answer to a batch; False: it comes over a connection that was given up."""
        try:
            return self._take_answer(link, batch, value)
        except BaseException:  # a signal's, in a thread that receives for others, too
            self._scheduler.call_later(0.0, partial(self._finish, batch, value))
            raise

    def _finish(self, batch: Batch, value: int | PoeError) -> None:
        """Go on with an answer that was interrupted; its connection is lost."""
        is_stored = isinstance(value, int | RepeatedPut)
        with self._lock:
            window = self.window
            is_again = batch in window.in_flight or batch in window.again
            if batch.messages and not (is_again or is_stored):
                window.take_back(batch)
                is_again = True
        if batch.value is not None:
            batch.settle(batch.value)  # for who was not told yet
        elif not is_again:
            self._end(batch, 0 if isinstance(value, RepeatedPut) else value, None)
        self.pump()

    def _take_answer(self, link: Link, batch: Batch, value: int | PoeError) -> bool:
        room: Outcome | None = None
        with self._lock:
            window = self.window
            if isinstance(value, FrameTooLarge) and link is self.link and batch.living_count > 1:
                self._learn(batch, value)
            verdict = window.answer(batch, value) if link is self.link else Verdict.STALE
            if verdict is Verdict.STALE:
                return False
            if verdict is Verdict.DONE:
                self._pause_s = 0.0
                room = self._accumulator.free(batch.living_count, batch.size)
            if window.is_held and not window.in_flight and not window.go_on():
                is_refused = isinstance(value, NotAuthorized)
                limit_s = REFUSED_WAIT_MAX_S if is_refused else _PAUSE_MAX_S
                self._pause_s = min(max(2 * self._pause_s, _PAUSE_S), limit_s)
                self._scheduler.call_later(self._pause_s, self._release)
        if verdict is Verdict.DONE:
            self._end(batch, 0 if isinstance(value, RepeatedPut) else value, room)
        elif isinstance(value, PoeError):
            self.last_error = value
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
        if batch.address is not None and isinstance(value, ProducerFenced):
            value = 0  # it was stored before one behind it was, in an earlier attempt
        self._observer.ended(batch, value)
        batch.messages = []
        batch.settle(value)
        if room is not None:
            room.settle(value=True)
        if batch.address is not None and self._spooler is not None:
            self._spooler.done(batch)

    # ---- the spool ----------------------------------------------------------------------------

    def begin_downtime(self) -> None:
        """Put into the spool what waits, and what was not answered by a connection that is lost.

        Without a spool all stays where it is.
        """
        if self._spooler is None:
            return
        with self._lock:
            if self._storage is _MEMORY:
                self._storage = _Storage.SPOOL
                # What goes there with its number may be dropped, and would leave a gap.
                self.window.begin_epoch()
        self._spooler.recall()
        self.pump()

    def spool_all(self) -> None:
        """Put into the spool, if there is one, all that is not delivered: the producer ends."""
        if self._spooler is None:
            return
        self.disconnect()
        with self._lock:
            if self._open is not None:
                self._waiting[self._open] = None
                self._open = None
            if self._storage is _Storage.FULL:
                self._storage = _Storage.SPOOL
        self.begin_downtime()
        # What another thread has in hand would else be neither in the spool nor given up.
        if not self._has_turn() and self._turn.acquire(timeout=_TURN_S):
            try:
                self._take()  # without a connection it only spools
            finally:
                self._turn.release()

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

    def _uses_spool(self) -> bool:
        """Return whether what is new goes there, where storage is not memory."""
        return self.link is None or (
            self._spooler is not None and self._spooler.has(self.topic, self.partition)
        )

    def _gather(self) -> None:
        """Have small batches gather, of calls that want to send at once as well."""
        with self._lock:
            # One that is old enough waits for something else, which looks again by itself.
            if self._open is not None and self._open_age_s() < self._gather_s:
                self._arm(self._gather_s)

    def _may_replay(self) -> bool:
        first = self.window.again[:1]
        return (
            bool(first)
            and first[0].address is not None
            and not self.window.in_flight
            and self._may_send()
        )

    def _may_keep(self) -> bool:
        if self._storage is _Storage.FULL:
            return False
        last, batch = self.window.again[-1:], self._open
        if self._waiting or (last and last[0].address is None):
            return True
        return batch is not None and self._open_age_s() >= self._gather_s

    def _open_age_s(self) -> float:
        batch = self._open
        return 0.0 if batch is None else self._scheduler.now_s() - batch.begun_s

    def _next_to_keep(self) -> Batch:
        again = self.window.again
        if again and again[-1].address is None:
            batch = self._take_again(sum(each.address is not None for each in again))
        else:
            batch = self._take_oldest()
        self.window.close(batch)
        return batch

    def _keep(self, batch: Batch) -> None:
        """Put a batch into the spool; where the disk refuses it, it stays in memory for a while."""
        assert self._spooler is not None
        is_placed = self.partition != UNPLACED
        if self.options.massage is not None and is_placed and not batch.is_massaged:
            try:
                batch.massaged(self._observer.massaged(batch))
            except PoeError as error:
                with self._lock:
                    room = self._accumulator.free(batch.living_count, batch.size)
                self._end(batch, error, room)
                return
        if self._spooler.keep(batch, is_connected=self.link is not None):
            self._in_hand = None
            self._accumulator.release(batch.living_count, batch.size)
        else:
            with self._lock:
                self.window.take_back(batch)
                self._storage = _Storage.FULL
            self._scheduler.call_later(_DISK_PAUSE_S, self._keep_again)

    def _keep_again(self) -> None:
        with self._lock:
            if self._storage is _Storage.FULL:
                self._storage = _Storage.SPOOL
        self.pump()

    # ---- the connection -----------------------------------------------------------------------

    def connect(self, worker: Carrier) -> None:
        """Send over a worker's connection from now on, the spool's batches first."""
        with self._lock:
            self.worker, self.link = worker, worker.link
            self._when_drained = None
        self.pump()
        if self._spooler is not None:
            self._spooler.fill()

    def disconnect(self) -> None:
        """Take back what was not answered by a connection that is lost."""
        with self._lock:
            self.worker = self.link = None
            self._when_drained = None
            self.window.lose()

    def drain(self, action: Callable[[], object]) -> bool:
        """Send nothing more, to change the connection; tell whether nothing is under way.

        If something is, `action` is called in the loop's thread once all of it is answered.
        """
        with self._lock:
            self._when_drained = action
            return not self.window.in_flight

    def stay(self) -> None:
        """Go on with the connection that it has, whatever `drain` was to change."""
        with self._lock:
            self._when_drained = None
        self.pump()

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
            if batch is self._open or batch in self._waiting:
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
        """Take out that many messages that were never sent, or as many as there are.

        Of calls without a partition it may be more: without a spool they go whole.
        """
        dropped: list[Message | bytes] = []
        ended: list[Batch] = []
        shortened: list[tuple[Batch, tuple[int, int]]] = []
        with self._lock:
            room = None
            while len(dropped) < count and self.unsent_count:
                batch = self._open
                if batch is None or (self._waiting and not newest):
                    batch = next(reversed(self._waiting) if newest else iter(self._waiting))
                limit = len(batch.messages) if self._has_single_calls else count - len(dropped)
                gone, size, places = batch.cut_some(limit, why, newest=newest)
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
            late = self._open
            if late is not None and late.is_due and now_s - late.begun_s > limit_s / _SPANS:
                # A batch is as old as its first message, and the others should not fail early.
                self._waiting[late] = None
                self._open = None
            old = [
                batch
                for batch in self.batches()
                if batch.begun_s <= begun_before_s and batch.address is None
            ]
            under_way = [batch for batch in old if batch in self.window.in_flight]
        reason = str(self.last_error or self._want())
        for batch in old:
            fate = MAYBE_STORED if batch.is_unknown or batch in under_way else NEVER_SENT
            self.give_up(batch, DeliveryTimeout(self.topic, limit_s, fate, reason))
        return bool(under_way)

    def _want(self) -> str:
        if self.partition == UNPLACED:
            return "the partitions are not known"
        return "no connection" if self.link is None else "no answer"

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
            del self._waiting[batch]
            self.unsent_count -= batch.count()
            return True
        for batches in (self.window.again, self.window.in_flight):
            if batch in batches:
                batches.remove(batch)
                return True
        return False
