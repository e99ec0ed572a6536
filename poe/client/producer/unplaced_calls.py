"""Calls in memory whose partition cannot be chosen yet: no broker has told which ones there are."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import bytes_of
from poe.client.producer.delivery import Delivery, RequestOutcome, Result
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.payload import Message, Messages
from poe.errors import DeliveryTimeout, PoeError
from poe.errors.delivery import NEVER_SENT

if TYPE_CHECKING:
    from poe.client.producer.topic_queues import TopicQueues

UNPLACED = -1
"""Stands for the partition of what has none yet."""


class PendingCall(RequestOutcome):
    """A call whose partition cannot be chosen yet; settled with what its delivery then becomes."""

    __slots__ = ("begun_s", "is_due", "messages", "placed", "size")

    def __init__(self, messages: Messages, begun_s: float, *, is_due: bool) -> None:
        super().__init__()
        self.begun_s = begun_s
        self.messages = messages
        self.is_due = is_due
        self.size = bytes_of(messages)
        self.placed: Delivery | None = None
        """What became of it once its partition was known; its `value` too, when that is done."""

    def follow(self) -> None:
        """Settle, as what became of it is settled."""
        self.settle(self.placed)

    def result_of(self, end: int, count: int) -> Result:
        """Return the result of the call."""
        del end, count
        if isinstance(self.value, PoeError):
            raise self.value.with_traceback(None)
        return cast(Delivery, self.value).result(0)


class UnplacedCalls:
    """The calls of one topic; `UnplacedBatches` does the same with a spool.

    The lock with which the topic places calls guards it.
    """

    partition = UNPLACED

    def __init__(
        self, topic: "TopicQueues", accumulator: Accumulator, observer: Instrumentation
    ) -> None:
        self._topic = topic
        self._accumulator = accumulator
        self._observer = observer
        # In order, and each found at once; a dictionary looks longer for its first entry the more
        # were taken out before it.
        self._calls: OrderedDict[PendingCall, None] = OrderedDict()
        self.unsent_count = 0
        """Messages of all calls."""

    def add(self, messages: Messages, *, is_due: bool) -> Delivery:
        """Add a call.

        Raises:
            BufferFull, ProducerClosed: nothing was added.
        """
        call = PendingCall(messages, self._accumulator.scheduler.now_s(), is_due=is_due)
        with self._accumulator.lock:
            self._accumulator.take(len(messages), call.size)
            self._calls[call] = None
            self.unsent_count += len(messages)
        return Delivery(call, len(messages), len(messages))

    def buffered(self) -> tuple[int, int]:
        """Return how many messages there are, and their bytes."""
        calls = list(self._calls)
        return self.unsent_count, sum(call.size for call in calls)

    def batches(self) -> list[PendingCall]:
        """Return what is to be waited for."""
        return list(self._calls)

    unsettled = batches

    def flush(self) -> None:
        """Have them sent without waiting for more, once they are placed."""
        for call in list(self._calls):
            call.is_due = True

    def stop(self) -> None:
        """Take note that the partitions are known."""

    def place(self, place: Callable[[PendingCall], Delivery]) -> None:
        """Put them into partitions, in order."""
        placed_count = 0
        for call in list(self._calls):
            try:
                placed = place(call)
            except PoeError as error:
                self._give_up(call, error)
            else:
                placed_count += len(call.messages)
                call.placed = placed
                placed.when_done(call.follow)
        # Only now, for the sake of a fork.
        self._calls = OrderedDict()
        with self._accumulator.lock:
            self.unsent_count -= placed_count

    def drop(self, count: int, why: PoeError, *, newest: bool) -> list[bytes | Message]:
        """Take out that many messages or more, since calls go whole."""
        dropped: list[bytes | Message] = []
        while len(dropped) < count:
            try:
                call, _ = self._calls.popitem(last=newest)
            except KeyError:  # there is no other, or another thread was faster
                break
            dropped += call.messages
            self._settle(call, why)
        return dropped

    def withdraw(self, call: PendingCall, why: PoeError) -> bool:
        """Take a call back; False where it has ended."""
        if call not in self._calls:
            return False
        del self._calls[call]
        self._settle(call, why)
        return True

    def fail(self, error: PoeError) -> list[list[Any]]:
        """Give all up; return the messages of each."""
        calls, self._calls = self._calls, OrderedDict()
        for call in calls:
            self._give_up(call, error)
        return [list(call.messages) for call in calls]

    def expire(self) -> None:
        """Give up what is older than `delivery_timeout_s`."""
        limit_s = self._topic.options.delivery_timeout_s
        if limit_s is None or not self._calls:
            return
        reason = str(self._topic.last_error or "the partitions are not known")
        error = DeliveryTimeout(self._topic.topic, limit_s, NEVER_SENT, reason)
        begun_before_s = self._accumulator.scheduler.now_s() - limit_s
        while self._calls and next(iter(self._calls)).begun_s <= begun_before_s:
            call, _ = self._calls.popitem(last=False)
            self._give_up(call, error)

    def spool_all(self) -> None:
        """Do nothing: there is no spool."""

    def _settle(self, call: PendingCall, error: PoeError) -> None:
        with self._accumulator.lock:
            self.unsent_count -= len(call.messages)
            room = self._accumulator.free(len(call.messages), call.size)
        if room is not None:
            room.settle(value=True)
        call.settle(error)

    def _give_up(self, call: PendingCall, error: PoeError) -> None:
        """Settle a call that went into no queue, and tell whoever has not kept its delivery."""
        self._observer.refused(self._topic, len(call.messages), error)
        self._settle(call, error)
