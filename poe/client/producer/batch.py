"""The messages of one request on their way: from the first call that adds one to the answer."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from poe.client.producer.delivery import (
    Delivery,
    Failed,
    Gathering,
    RequestOutcome,
    Result,
    Sent,
    resolve_soon,
    run_all,
)
from poe.client.producer.payload import Message, Messages
from poe.client.producer.producer_options import TopicOptions
from poe.client.producer.topic_info import Carrier
from poe.client.producer.transport import LastPointer, OutgoingBatch, PartlyStored
from poe.errors import PoeError
from poe.protocol import PutId

_Waiting: TypeAlias = "tuple[int, Callable[[], object] | asyncio.Future[None]]"
"""Where a call begins, and who waits for it."""


class Owner(Protocol):
    """The queue of a batch, as others see it."""

    topic: bytes
    partition: int
    options: TopicOptions
    worker: Carrier | None
    """Whose connection takes its batches at present."""

    def withdraw(self, delivery: Delivery, why: PoeError) -> bool:
        """Take back the messages of a call; False where they may be stored, or will be."""
        ...

    def drop(self, count: int, why: PoeError, *, newest: bool) -> list[Message | bytes]:
        """Take out that many messages that were never sent, or as many as there are."""
        ...


class Batch(RequestOutcome):
    """Calls add to it until it is closed; its queue owns it, under the lock of the accumulator.

    A call knows its messages by their places, so places never change: what is withdrawn or dropped
    leaves a hole. Its value is the pointer of its last message, or an error, or where its messages
    went, if they were added before the partitions were known.
    """

    __slots__ = (
        "address",
        "begun_s",
        "calls",
        "error",
        "first_sent_s",
        "holes",
        "is_due",
        "is_gathering",
        "is_massaged",
        "is_plain",
        "is_unknown",
        "living_count",
        "longest",
        "messages",
        "placed",
        "places",
        "put_id",
        "queue",
        "sent_s",
        "serial",
        "size",
        "start",
    )

    def __init__(self, queue: Owner, begun_s: float) -> None:
        super().__init__()
        self.queue = queue
        self.begun_s = begun_s
        self.messages: list[Any] = []
        """`bytes` or `Message`; given up when it is settled."""
        self.places = 0
        """Messages that were added; set by `close`. 0 too where nobody knows which one is whose."""
        self.living_count = 0
        """Messages that are left of them; set by `close`."""
        self.is_due = False
        """Whether it is to leave though it is neither full nor old."""
        self.is_gathering = False
        """Whether the end of a turn of a loop is to send it."""
        self.is_massaged = False
        self.size = 0
        """Bytes."""
        self.is_plain = True
        """Whether all messages are `bytes`."""
        self.holes: list[tuple[int, int, PoeError]] = []
        """(start, end, why) of messages that were taken out."""
        self.start = 0
        """Before this place all were taken out."""
        self.calls: dict[int, list[_Waiting]] = {}
        """By the end of a call: who waits for it."""
        self.longest = 0
        """Messages of the longest of these calls."""
        self.put_id: PutId | None = None
        self.serial = 0
        """Orders batches of a queue by their first send; 0 before it."""
        self.first_sent_s = 0.0
        """0 before it was sent."""
        self.sent_s = 0.0
        """When it was sent last."""
        self.is_unknown = False
        """Whether it was sent over a connection that was lost before the answer."""
        self.error: PoeError | None = None
        """Why it is to be sent again."""
        self.address: int | None = None
        """Where it lies in the spool; None where it came from memory."""
        self.placed: Gathering | None = None
        """Where its messages went once the partitions were known; its places count no holes."""

    def result_of(self, end: int, count: int) -> Result:
        """Return the `Sent` of the messages before place `end`."""
        value = self.value
        if type(value) is int and value and not self.holes and end <= self.places:  # as mostly
            queue = self.queue
            return Sent(queue.topic, queue.partition, value - self.places + end, count)
        if self.holes:
            why = self.hole_in(end - count, end)
            if why is not None:
                raise why.with_traceback(None)
        if isinstance(value, PoeError):
            raise value.with_traceback(None)
        if isinstance(value, Gathering):
            return value.result_of(end - self.gone_before(end), count)
        if isinstance(value, PartlyStored):
            return self._part_of(value, end - self.gone_before(end), count)
        if value and end < self.places:
            behind = self.places - end - sum(e - s for s, e, _ in self.holes if s >= end)
            # Pointers of one request are consecutive.
            value = value.all[-1 - behind] if type(value) is LastPointer else value - behind
        return Sent(self.queue.topic, self.queue.partition, int(value), count)

    def _part_of(self, value: PartlyStored, end: int, count: int) -> Sent:
        error = value.error_in(end - count, end) if self.places else value.error
        if error is not None:
            raise error
        return Sent(self.queue.topic, self.queue.partition, value.all[end - 1], count)

    def results_of(self, end: int, count: int) -> list[Sent | Failed]:
        """Return the `Sent` of each message, or why there is none."""
        value = self.value
        if type(value) is int and value and not self.holes and end <= self.places:  # as mostly
            topic, partition, last = self.queue.topic, self.queue.partition, self.places - end
            pointers = range(value - last - count + 1, value - last + 1)
            return [Sent(topic, partition, pointer, 1) for pointer in pointers]
        return [self._result_at(place) for place in range(end - count + 1, end + 1)]

    def _result_at(self, end: int) -> Sent | Failed:
        value = self.value
        if isinstance(value, Gathering) and self.hole_in(end - 1, end) is None:
            return value.results_of(end - self.gone_before(end), 1)[0]
        try:
            return self.result_of(end, 1)  # type: ignore[return-value]  # not with keys: a `Sent`
        except PoeError as error:
            return Failed(self.queue.partition, error)

    def gone_before(self, end: int) -> int:
        """Return how many messages were taken out before a call that ends there and is whole.

        Its end in `placed` is less by that.
        """
        return sum(e - s for s, e, _ in self.holes if e < end)

    def place(self, placed: Gathering) -> None:
        """Note where its messages went; it is settled as that is."""
        self.placed = placed
        placed.when_settled(self._follow)

    def _follow(self) -> None:
        self.settle(self.placed)

    # ---- calls of which it is known before the batch is settled -------------------------------

    def is_known(self, end: int, count: int) -> bool:
        """Return whether it is known what became of a call, of which nothing may be left."""
        if self.value is not None:
            return True
        if not self.holes or not count:
            return False
        gone = (min(e, end) - max(s, end - count) for s, e, _ in self.holes)
        return sum(each for each in gone if each > 0) == count

    def when_known(self, end: int, count: int, action: Callable[[], object]) -> None:
        """Call `action` once that is known."""
        waiting = self._enter(end, count, action)
        if self.is_known(end, count):
            self._run(waiting)

    def forget_known(
        self, end: int, count: int, waiter: "Callable[[], object] | asyncio.Future[None]"
    ) -> None:
        """Call an action of `when_known` no more, or resolve a future of `future_of`."""
        # The list stays: another thread may be about to add to it.
        with contextlib.suppress(ValueError):  # it was called in this moment
            self.calls.get(end, []).remove((end - count, waiter))

    def future_of(self, end: int, count: int) -> "asyncio.Future[None]":
        """Return a future of the running loop that is done when that is known."""
        # A loop is woken once when the batch is settled, and for each of those taken out before.
        future = self.future()
        self._enter(end, count, future)
        if self.is_known(end, count) and not future.done():
            future.set_result(None)
        return future

    def _enter(
        self, end: int, count: int, waiter: "Callable[[], object] | asyncio.Future[None]"
    ) -> "list[_Waiting]":
        self.longest = max(self.longest, count)
        waiting = self.calls.setdefault(end, [])
        waiting.append((end - count, waiter))
        return waiting

    def wake(self, start: int, end: int) -> None:
        """Wake who waits for calls of which nothing is left, now that these messages are gone."""
        if not self.calls:
            return
        for each in range(start + 1, end + self.longest):
            waiting = self.calls.get(each, ())
            if waiting and waiting[0][0] < end and self.is_known(each, each - waiting[0][0]):
                self._run(self.calls.pop(each, []))

    def _run(self, waiting: "list[_Waiting]") -> None:
        """Wake who waits for one call, each once, though several threads may do so."""
        actions: list[Callable[[], object]] = []
        while waiting:
            try:
                _, waiter = waiting.pop(0)
            except IndexError:  # another thread was faster
                break
            if isinstance(waiter, asyncio.Future):
                resolve_soon(waiter.get_loop(), [waiter])
            else:
                actions.append(waiter)
        run_all(actions)

    def _run_actions(self) -> None:
        super()._run_actions()
        for end in list(self.calls):
            waiting = self.calls.pop(end, None) or []
            # The futures among them are woken with all others of their loop.
            run_all([each for _, each in waiting if not isinstance(each, asyncio.Future)])

    def _take_actions(self) -> list[Callable[[], object]]:
        calls, self.calls = self.calls, {}
        waiters = [waiter for waiting in calls.values() for _, waiter in waiting]
        actions = [each for each in waiters if not isinstance(each, asyncio.Future)]
        return [*super()._take_actions(), *actions]

    # ---- messages that are taken out ----------------------------------------------------------

    def hole_in(self, start: int, end: int) -> PoeError | None:
        """Return why some of these messages were taken out; None where all are there."""
        for hole_start, hole_end, why in self.holes:
            if hole_start < end and start < hole_end:
                return why
        return None

    def cut(self, start: int, end: int, why: PoeError) -> tuple[int, int]:
        """Take messages out; return how many there were, and their bytes."""
        count = size = 0
        for place in range(start, end):
            message = self.messages[place]
            if message is not None:
                count += 1
                size += size_of(message)
                self.messages[place] = None
        last = self.holes[-1] if self.holes else None
        if last is not None and last[1] == start and last[2] is why:
            self.holes[-1] = (last[0], end, why)
        elif last is not None and last[0] == end and last[2] is why:
            self.holes[-1] = (start, last[1], why)
        else:
            self.holes.append((start, end, why))
        self.size -= size
        return count, size

    def cut_some(
        self, count: int, why: PoeError, *, newest: bool
    ) -> tuple[list[bytes | Message], int, tuple[int, int]]:
        """Take out the oldest or newest messages, so many or all.

        Returns:
            Them, in their order; their bytes; and the places from the first to the last of them.
        """
        messages, size = self.messages, self.size
        places = range(len(messages) - 1, -1, -1) if newest else range(self.start, len(messages))
        gone: list[bytes | Message] = []
        first = last = places[0] if places else 0
        for place in places:
            if len(gone) == count:
                break
            last = place
            message = messages[place]
            if message is not None:
                gone.append(message)
                self.cut(place, place + 1, why)
        if newest:
            gone.reverse()
            return gone, size - self.size, (last, first + 1)
        self.start = last + 1
        return gone, size - self.size, (first, self.start)

    def reply(self, value: int | PoeError) -> Sent | PoeError:
        """Return the answer to the whole batch, for those who are told of batches."""
        if isinstance(value, PoeError):
            return value
        if isinstance(value, PartlyStored):
            return value.error
        return Sent(self.queue.topic, self.queue.partition, int(value), self.living_count)

    @property
    def is_again(self) -> bool:
        """Whether it was sent before."""
        return self.is_unknown or self.error is not None

    def count(self) -> int:
        """Return how many messages of callers it has."""
        if self.serial:
            return self.living_count
        count = len(self.messages)
        return count - sum(end - start for start, end, _ in self.holes) if self.holes else count

    def close(self) -> None:
        """Make the messages what is sent: without holes, and all of one kind.

        After a signal's exception in the middle of it, it may be called again.
        """
        self.places = self.places or len(self.messages)
        if self.holes:
            self.messages = [message for message in self.messages if message is not None]
        self.living_count = len(self.messages)
        if not self.is_plain:
            self.messages = [
                message if type(message) is Message else Message(message)
                for message in self.messages
            ]

    def is_divisible(self) -> bool:
        """Return whether it may be sent in parts instead.

        What may be stored already would be stored twice; what the spool has is known to the server
        by the number that it has there; and nobody knows what parts a massage has left.
        """
        is_own = self.address is None and not (self.is_unknown or self.is_massaged)
        return is_own and len(self.messages) > 1

    def divided(self, bytes_max: int) -> "list[Batch]":
        """Return batches of its messages, of so many bytes or one message each; it is settled so.

        It is closed, and divisible; they are not closed.
        """
        parts: list[Batch] = []
        placed: list[tuple[Delivery, range]] = []
        for message in self.messages:
            size = size_of(message)
            if not parts or parts[-1].size + size > bytes_max:
                parts.append(part := Batch(self.queue, self.begun_s))
                part.is_plain, part.first_sent_s = self.is_plain, self.first_sent_s
            parts[-1].messages.append(message)
            parts[-1].size += size
        start = 0
        for part in parts:
            count = len(part.messages)
            placed.append((Delivery(part, count, count), range(start, start + count)))
            start += count
        self.place(Gathering(placed, {}, is_keyed=False))
        return parts

    def massaged(self, messages: list[Any]) -> None:
        """Send other messages in place of these, unless they were given up meanwhile."""
        if not self.messages:
            return
        if len(messages) != len(self.messages):
            self.places = 0
        self.messages = messages
        self.is_massaged = True

    def outgoing(self) -> OutgoingBatch:
        """Return what a transport is given."""
        queue = self.queue
        return OutgoingBatch(queue.topic, queue.partition, self.messages, self.put_id, self.size)


def size_of(message: bytes | Message) -> int:
    """Return how many bytes of buffer a message takes."""
    if not isinstance(message, Message):
        return len(message)
    size = len(message.value or b"") + len(message.key or b"")
    if message.headers:
        size += sum(len(name) + len(content) for name, content in message.headers.items())
    return size


def bytes_of(messages: Messages) -> int:
    """Return how many bytes of buffer the messages of one call take."""
    return sum(map(len if type(messages[0]) is bytes else size_of, messages))


def batches_of(delivery: Delivery) -> Iterator[tuple[Delivery, Batch]]:
    """Return what of a call is in each batch."""
    outcome = delivery.outcome
    for part in outcome.parts() if isinstance(outcome, Gathering) else [delivery]:
        assert isinstance(part.outcome, Batch)
        yield part, part.outcome
