"""Reads a topic of Kafka for a consumer, by librdkafka, which fetches ahead and reconnects itself.

librdkafka blocks, so a thread of its own makes all calls, one at a time. There is no consumer
group: partitions are assigned from the pointers that the consumer knows, and nothing is committed.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from poe.client.consumer.source import (
    ConsumerOptions,
    ConsumerStatistics,
    Fetched,
    Start,
    seconds_at,
)
from poe.client.kafka_library import (
    error_of,
    kafka_name,
    keep_in_forks,
    open_client,
    socket_timeout_ms,
    tell_raised,
)
from poe.errors import KafkaRefused, MessagesLost, OptionError, PoeError
from poe.protocol.server import Server

T = TypeVar("T")

_log = logging.getLogger(__name__)

_POLL_S = 0.2
"""How long a poll waits; `close` waits for one."""

_ASK_S = 2.0
"""How long a question to the brokers waits for them, before it is asked again."""

_PAUSE_S = 0.1
"""Between two questions."""

_LOOK_FOR_PARTITIONS_S = 30.0
"""How often it is looked whether the topic has more partitions, while it is followed."""

_FETCH_BATCHES = 10
"""Batches to take at a time: each time, threads wait for each other."""

_CONSUME_MAX = 1_000_000
"""librdkafka's limit."""

_OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001 - librdkafka's own codes begin so
_PASSING = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    # When a connection was lost meanwhile: of a partition that the brokers have just told.
    KafkaError._DESTROY_BROKER,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    # While a partition gets another leader.
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""Errors after which a question is asked again."""


class KafkaSource:
    """The partitions of a topic; see `Source`."""

    def __init__(self, servers: Sequence[Server], topic: bytes, options: ConsumerOptions) -> None:
        """Start librdkafka, which connects by itself.

        Raises:
            ConfigError: a setting in option `kafka` is not acceptable.
            LocalProtocolError: Kafka has no topics of such a name.
        """
        self.statistics = ConsumerStatistics()
        self._first = servers[0]
        self._topic = topic
        self._name = kafka_name(topic)
        self._options = options
        self._more_max = min(_FETCH_BATCHES * options.batch, _CONSUME_MAX)
        own = {
            "group.id": "poe",  # must be there, and is not used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "max.partition.fetch.bytes": options.fetch_bytes,
            # At the end brokers wait as long for more, before they tell that it is the end.
            "fetch.wait.max.ms": 500 if options.follow else 50,
            "socket.timeout.ms": socket_timeout_ms(options.request_timeout_s),
            "reconnect.backoff.max.ms": 1000,
            "error_cb": self._note_error,
        }
        self._consumer = open_client(Consumer, servers, own, options.kafka)
        self._thread = ThreadPoolExecutor(1, "poe-kafka-consumer")
        self._polling: asyncio.Future[list[Any] | None] | None = None
        self._fetched: deque[Fetched] = deque()
        self._errors: deque[PoeError] = deque()
        self._next: dict[int, int] = {}
        """Offset of the next message by partition."""
        self._ended: dict[int, int] = {}
        """Offset of the end of each partition that was read up to there."""
        self._lost: set[int] = set()
        self._last_error = ""
        self._down_since_s: float | None = None
        self._looked_s = 0.0
        """When it was looked last which partitions there are, in monotonic time."""
        keep_in_forks(self)

    async def open(self, start: Start) -> dict[int, int]:
        """Begin at `start`; see `Source`.

        Raises:
            OptionError: a partition that there is not.
            UnknownTopic: there is no such topic.
            PoeError: as `fetch`.
        """
        partitions = await self._find_partitions()
        if isinstance(start, Mapping) and not start.keys() <= set(partitions):
            raise OptionError("start", start, f"partitions up to {partitions[-1]}")
        begin = {}
        for partition in partitions:
            place = start.get(partition, "oldest") if isinstance(start, Mapping) else start
            if isinstance(place, str):
                end = OFFSET_BEGINNING if place == "oldest" else OFFSET_END
                place = await self._ask(self._offset_at, partition, end) - 1
            elif isinstance(place, datetime):
                time_ms = int(seconds_at(place) * 1000)
                place = await self._ask(self._offset_at, partition, time_ms) - 1
            begin[partition] = place + 1
        await self._begin(begin)
        return {partition: offset - 1 for partition, offset in begin.items()}

    async def fetch(self) -> Fetched | None:
        """Return what has come, partition by partition; see `Source`.

        Raises:
            MessagesLost, PoeError: see `Source`.
        """
        has_looked = False
        while True:
            if self._fetched:
                fetched = self._fetched.popleft()
                self.statistics.received_count += len(fetched.pointers)
                return fetched
            if self._errors:
                raise self._errors.popleft()
            if self._lost:
                await self._go_on_behind_lost()
            if self._options.follow:
                is_due = time.monotonic() >= self._looked_s + _LOOK_FOR_PARTITIONS_S
                if is_due and self._down_since_s is None:
                    await self._look_for_more()
                await self._receive()
            elif self._ended.keys() < self._next.keys():
                await self._receive()
            elif has_looked:
                return None
            else:
                await self._look_anew()
                has_looked = True

    async def close(self) -> None:
        """Let go of all connections."""
        await self._in_thread(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        try:
            self._consumer.close()
        except BaseException:  # noqa: BLE001 - of a function of the user's; it is closed all the same
            tell_raised()

    def held(self) -> object:
        """Return the consumer of librdkafka."""
        return self._consumer

    # ---- inside -------------------------------------------------------------------------------

    async def _begin(self, offsets: dict[int, int]) -> None:
        """Read on from these offsets, and forget what was read ahead."""
        self._next = offsets
        self._polling = None
        for each in (self._fetched, self._errors, self._ended, self._lost):
            each.clear()
        places = [TopicPartition(self._name, each, offset) for each, offset in offsets.items()]
        await self._in_thread(self._consumer.assign, places)

    async def _receive(self) -> None:
        """Wait for messages, and keep them to be fetched.

        Raises:
            ConnectFailed: no broker was reached for `timeout_s`.
        """
        if self._polling is None:
            self._polling = self._in_thread(self._poll)
        # Who gives up waiting does not take the messages along: they are there the next time.
        try:
            messages = await asyncio.shield(self._polling)
        except KafkaException as error:
            self._polling = None
            raise error_of(self._topic, error.args[0]) from error
        self._polling = None
        if messages is None:
            await self._begin(self._next)
        else:
            self._take(messages)
        down_since_s, limit_s = self._down_since_s, self._options.timeout_s
        if down_since_s is not None and limit_s is not None:
            now_s = time.monotonic()
            if now_s >= down_since_s + limit_s:
                self._down_since_s = now_s
                raise self._first.unreachable(self._last_error)

    def _take(self, messages: list[Any]) -> None:
        """Keep messages, and what librdkafka tells in the place of some."""
        by_partition = defaultdict(list)
        for message in messages:
            partition, fault = message.partition(), message.error()
            if fault is None:
                by_partition[partition].append(message)
                self._ended.pop(partition, None)
            elif fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._ended[partition] = message.offset()
            elif fault.code() in _OUT_OF_RANGE:
                self._lost.add(partition)
            else:
                self._errors.append(error_of(self._topic, fault))
        for partition, rows in by_partition.items():
            self._fetched.append(_side_by_side(partition, rows))
            self._next[partition] = self._fetched[-1].pointers[-1] + 1

    async def _look_anew(self) -> None:
        """Find out which partitions go on behind the end that they had, perhaps long ago."""
        await self._add(await self._find_partitions())
        for partition, end in list(self._ended.items()):
            if await self._ask(self._offset_at, partition, OFFSET_END) > end:
                del self._ended[partition]

    async def _look_for_more(self) -> None:
        """Look once for new partitions, while those that are known are followed.

        What is in the way is logged: a broker that has just started may know of no topic yet, and
        who may not read any more is told that by the reads.
        """
        self._looked_s = time.monotonic()
        try:
            found = await self._in_thread(self._partitions)
        except KafkaException as error:
            reason = error_of(self._topic, error.args[0])
            _log.warning("cannot look for new partitions: %s; will look again", reason)
        else:
            await self._add(found)

    async def _find_partitions(self) -> list[int]:
        self._looked_s = time.monotonic()
        return await self._ask(self._partitions)

    async def _add(self, partitions: list[int]) -> None:
        """Read those, too, that the topic has got meanwhile, from their begin."""
        begins = dict.fromkeys(partitions, 0)
        if begins.keys() > self._next.keys():
            await self._begin({**begins, **self._next})

    async def _go_on_behind_lost(self) -> None:
        """Go on where a partition begins now.

        Raises:
            MessagesLost: it begins behind what was next, and that is an error.
            KafkaRefused: it ends before what was next.
        """
        partition = min(self._lost)
        wanted = self._next[partition]
        oldest = await self._ask(self._offset_at, partition, OFFSET_BEGINNING)
        newest = await self._ask(self._offset_at, partition, OFFSET_END)
        if wanted > newest:
            reason = f"partition {partition} ends before offset {wanted}, at {newest}"
            raise KafkaRefused(self._topic, KafkaError.OFFSET_OUT_OF_RANGE, reason)
        if wanted < oldest:
            lost = MessagesLost(self._topic, partition, wanted, oldest - 1)
            if self._options.on_lost == "error":
                raise lost
            self.statistics.lost_count += 1
            _log.warning("%s", lost)
        await self._begin({**self._next, partition: max(wanted, oldest)})

    async def _ask(self, question: Callable[..., T], *arguments: object) -> T:
        """Return what the brokers answer, as soon as one does.

        Raises:
            ConnectFailed: none did for `timeout_s`.
            PoeError: their refusal.
        """
        limit_s = self._options.timeout_s
        give_up_s = time.monotonic() + (math.inf if limit_s is None else limit_s)
        while True:
            try:
                return await self._in_thread(question, *arguments)
            except KafkaException as error:
                told: KafkaError = error.args[0]
                if told.code() not in _PASSING:
                    raise error_of(self._topic, told) from error
                if time.monotonic() >= give_up_s:
                    raise self._first.unreachable(self._last_error or told.str()) from error
            await asyncio.sleep(_PAUSE_S)

    def _in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments))

    # ---- in the thread ------------------------------------------------------------------------

    def _poll(self) -> list[Any] | None:  # of `Message`, whose types say None for what is there
        """Return what there is, as soon as there is something; nothing after a while.

        None: what librdkafka was about to hand out is gone, since a callback has raised.
        """
        try:
            message = self._consumer.poll(_POLL_S)
            if message is not None:
                self._down_since_s = None
                # Whatever else is there already: with a time, it would wait for so many.
                return [message, *self._consumer.consume(self._more_max, 0)]
        except KafkaException:
            raise
        except BaseException:  # noqa: BLE001 - whatever a function of the user's raises
            tell_raised()
            return None
        if self._down_since_s is not None:
            with suppress(KafkaException):
                self._consumer.list_topics(self._name, timeout=_POLL_S)
                self._down_since_s = None
        return []

    def _partitions(self) -> list[int]:
        found = self._consumer.list_topics(self._name, timeout=_ASK_S).topics[self._name]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _offset_at(self, partition: int, time_ms: int) -> int:
        """Return the offset of the first message of a time or later; that of the end without.

        The constants of librdkafka for the begin and the end count as times. It has a question for
        both at once; that takes one for the other where only one of its two requests is answered.
        """
        place = TopicPartition(self._name, partition, time_ms)
        found = self._consumer.offsets_for_times([place], timeout=_ASK_S)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        is_behind = time_ms >= 0 and found.offset < 0
        return self._offset_at(partition, OFFSET_END) if is_behind else found.offset

    def _note_error(self, error: KafkaError) -> None:
        """Take what librdkafka tells of its connections; it does so while it is polled."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last_error = error.str()
        elif self._down_since_s is None:
            self._down_since_s = time.monotonic()
            self.statistics.reconnect_count += 1


def _side_by_side(partition: int, messages: list[Any]) -> Fetched:
    keys = [message.key() for message in messages]
    headers = [message.headers() for message in messages]
    offsets = [message.offset() for message in messages]
    return Fetched(
        partition,
        offsets,
        offsets,
        [message.value() for message in messages],
        None if keys.count(None) == len(keys) else keys,
        [each and {name: value or b"" for name, value in each} for each in headers]
        if any(headers)
        else None,
    )
