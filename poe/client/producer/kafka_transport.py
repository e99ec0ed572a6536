"""Kafka for a producer: batches go to librdkafka, and its reports to the producer.

Strategy: librdkafka keeps the order, retries, and with `enable.idempotence` (the default) stores
nothing twice, so a batch is given to it once. What it has when the last broker is lost stays with
it, and leaves when one is back; the producer sends again what a lost link has not answered, and
then gets the answer to the first time. Only what comes later waits in the producer.

librdkafka reports message by message, and a batch may leave in two requests of which one fails. So
what runs for each report is as little as possible.
"""

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from poe.client.in_thread import in_thread
from poe.client.kafka_library import (
    error_of,
    kafka_name,
    keep_in_forks,
    message_timeout_ms,
    open_client,
    reconnect_ms,
    socket_timeout_ms,
    tell_raised,
)
from poe.client.producer.delivery import Outcome
from poe.client.producer.kafka_answers import Answers, Sending
from poe.client.producer.producer_options import OTHERS, ProducerOptions
from poe.client.producer.transport import (
    Broker,
    Done,
    LastPointer,
    OutgoingBatch,
    Partition,
    PartlyStored,
    TopicMetadata,
)
from poe.errors import (
    ConnectionClosed,
    DeliveryTimeout,
    KafkaRefused,
    PoeError,
    ProducerClosed,
)
from poe.errors.delivery import MAYBE_STORED
from poe.protocol.server import Server

_log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[KafkaError | None, Any], None]
"""Told of each message of a batch what became of it: an error, or None, and which message it is, as
librdkafka shows it; of one that librdkafka did not take, its place."""

_THREAD = "poe-kafka-call"

_POLL_S = 0.2
"""How long the thread waits for a report before it looks whether it is to end."""

_METADATA_S = 5.0
"""How long a question for metadata waits for a broker to come back, unless requests wait less."""

_NEW_TOPIC_S = 0.1
"""Between two looks at a topic that was just created, and has no leader yet."""

_PURGE_S = 5.0
_KILOBYTES_MAX = 2**31 - 1
_UNSENT = {KafkaError._PURGE_QUEUE, KafkaError._FATAL}  # noqa: SLF001 - librdkafka's own codes begin so
"""What becomes of messages that a library still has, or is given, when it has given up."""

_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001
_FORMING = {None, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE}


class KafkaTransport:
    """The one librdkafka producer of a producer, and the thread that hears its reports.

    Links share its connections: librdkafka has one to each broker that it needs. It ends with the
    last reference to it, which a forked process keeps for ever: its copy would wait for threads
    that only the parent has.
    """

    numbers_puts = False
    times_out_requests = True
    takes_empty = True

    def __init__(self, servers: Sequence[Server], options: ProducerOptions) -> None:
        """Start librdkafka, which connects by itself, and is heard once it is asked for anything.

        Raises:
            ConfigError: a setting in option `kafka` is not acceptable.
        """
        self._servers = servers
        self._options = options
        self._timeout_s = _delivery_timeout_s(options)
        self._request_timeout_s = options.of(OTHERS).request_timeout_s
        self._metadata_s = min(_METADATA_S, self._request_timeout_s)
        self._answers = Answers()
        self._links: set[KafkaLink] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_error = ""
        self._is_down = False
        self._is_dead = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._start()
        keep_in_forks(self)

    async def metadata(self, topic: bytes) -> TopicMetadata:
        """Ask for the partitions of a topic, which is created where the brokers do so.

        Raises:
            ConnectFailed: no broker answers.
            UnknownTopic: there is none, and the brokers create none.
            KafkaNotReady: none of its partitions has a leader yet.
            KafkaRefused: for instance, it must not be written.
        """
        self._serve()
        name = kafka_name(topic)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._metadata_s
        while True:
            cluster = await self._ask(name)
            found = cluster.topics[name]
            # One that is not there, as while its partitions have no other yet, takes nothing.
            leaders = {
                each.id: each.leader if each.leader in cluster.brokers else None
                for each in found.partitions.values()
            }
            if any(leader is not None for leader in leaders.values()):
                break
            code = found.error and found.error.code()
            if code not in _FORMING or loop.time() > deadline_s:
                raise error_of(topic, found.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            await asyncio.sleep(_NEW_TOPIC_S)
        return TopicMetadata(
            topic,
            tuple(Broker(each.id, each.host, each.port) for each in cluster.brokers.values()),
            tuple(Partition(*each) for each in sorted(leaders.items())),
        )

    async def connect(
        self, topic: bytes, broker: Broker, on_lost: Callable[[str], None]
    ) -> "KafkaLink":
        """Return a link as soon as any broker answers; `on_lost` tells that none does any more.

        Raises:
            ConnectFailed: none does.
        """
        del broker  # librdkafka itself knows where a partition's messages go
        self._loop = asyncio.get_running_loop()
        if self._is_dead:
            await self._replace()
        if self._is_down:
            await self._ask(kafka_name(topic))
        link = KafkaLink(self, on_lost)
        self._links.add(link)
        return link

    def close(self) -> None:
        """Give up what librdkafka still has; its thread ends a moment later."""
        self._producer = None
        self._stop.set()

    # ---- for links ----------------------------------------------------------------------------

    def send(self, link: "KafkaLink", batch: OutgoingBatch, done: Done) -> None:
        """Give a batch to librdkafka, unless it has it already; any thread."""
        producer = self._producer
        if producer is None or link.is_over:
            over = ConnectionClosed(f"the link is over ({self._last_error or 'it was closed'})")
            self._in_loop(partial(done, over))
            return
        sending = self._answers.begin(link, batch, done)
        if sending is None:
            self._tell()
            return
        report = self._reporter(batch, sending)
        failures = _produce(producer, batch, report)
        for place, error in failures.items():
            report(error, place)
        if failures:
            self._tell()

    def forget(self, link: "KafkaLink") -> None:
        """Note that a link was closed."""
        self._links.discard(link)

    # ---- librdkafka ---------------------------------------------------------------------------

    def held(self) -> object | None:
        """Return the producer of librdkafka, None while there is none."""
        return self._producer

    def _start(self) -> None:
        self._is_down = self._is_dead = False
        self._stop = threading.Event()
        self._producer = open_client(Producer, self._servers, self._settings(), self._options.kafka)
        self._thread = None

    async def _replace(self) -> None:
        """Start another one once this one has reported on all that it had.

        Raises:
            ProducerClosed: nothing begins any more.
        """
        thread = self._thread
        assert thread is not None, "it has told that the library gave up"
        self._stop.set()
        await in_thread(thread.join, _THREAD)
        if self._producer is None:
            raise ProducerClosed
        if self._thread is thread:  # another link may have been faster
            doomed = [self._producer]
            self._start()
            self._serve()
            await in_thread(doomed.clear, _THREAD)  # it waits for threads of its own

    def _serve(self) -> None:
        if self._thread is None and self._producer is not None:
            self._thread = threading.Thread(
                target=self._hear, args=(self._producer, self._stop), name="poe-kafka", daemon=True
            )
            self._thread.start()

    def _settings(self) -> dict[str, Any]:
        options = self._options
        return {
            "client.id": options.client_id,
            "enable.idempotence": True,
            # What comes is gathered already, and bounded by the options of the buffer.
            "linger.ms": 0,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": _KILOBYTES_MAX,
            "message.timeout.ms": message_timeout_ms(self._timeout_s),
            "socket.timeout.ms": socket_timeout_ms(self._request_timeout_s),
            "reconnect.backoff.ms": reconnect_ms(options.reconnect_min_s),
            "reconnect.backoff.max.ms": reconnect_ms(options.reconnect_max_s),
            "error_cb": self._note_error,
        }

    async def _ask(self, topic: str) -> Any:  # noqa: ANN401 - librdkafka's metadata has no type
        """Return what the brokers say of a topic."""
        if self._producer is None:
            raise ProducerClosed
        list_topics = partial(self._producer.list_topics, topic, timeout=self._metadata_s)
        try:
            found = await in_thread(list_topics, _THREAD)
        except KafkaException as error:
            reason = self._last_error or error.args[0].str()
            raise self._servers[0].unreachable(reason) from error
        self._is_down = False
        self._last_error = ""
        return found

    def _reporter(self, batch: OutgoingBatch, sending: Sending) -> Report:
        """Return what takes the report of each message, and answers after the last."""
        count = len(batch.messages)
        # An iterator counts in one atomic step: two threads may report.
        waiting = iter(range(count - 1, -1, -1))
        failures: list[tuple[KafkaError, Message | int]] = []
        # Without acknowledgements (acks=0) librdkafka knows none.
        offsets: list[int] = []

        def report(error: KafkaError | None, which: Any) -> None:  # noqa: ANN401 - see `Report`
            if error is not None:
                failures.append((error, which))
            else:
                offsets.append(which.offset() or 0)
            # One that was given just when a signal came is reported twice.
            if next(waiting, 1):
                return
            if self._is_unsent([error for error, _ in failures], count):
                self._answers.forget(sending)
                return
            if failures:
                answer = self._answer(batch, failures, offsets)
            elif offsets[-1] - offsets[0] < count:
                answer = max(offsets[-1], 0)
            else:
                answer = LastPointer(offsets)
            self._answers.end(sending, answer)

        return report

    def _answer(
        self,
        batch: OutgoingBatch,
        failures: list[tuple[KafkaError, Message | int]],
        offsets: list[int],
    ) -> int | PoeError:
        """Return what became of a batch of which at least one message has failed."""
        errors = [error for error, _ in failures]
        failure = self._failure(batch.topic, errors, len(batch.messages))
        # Where the first was too late it may be stored: all are told so, and a spool keeps them.
        if not offsets or not isinstance(failure, KafkaRefused):
            return failure
        refused = _places(batch.messages, failures)
        if len(refused) + len(offsets) != len(batch.messages):
            return failure
        stored = iter(offsets)
        pointers = [0 if place in refused else next(stored) for place in range(len(batch.messages))]
        return PartlyStored.of(pointers, refused, partial(self._failure, batch.topic))

    def _is_unsent(self, errors: list[KafkaError], count: int) -> bool:
        """Return whether a library that has given up has sent nothing of a batch.

        Its links are lost, or about to be, and the batch goes to the next library.
        """
        is_open = self._producer is not None
        return is_open and len(errors) == count and all(each.code() in _UNSENT for each in errors)

    def _failure(self, topic: bytes, errors: list[KafkaError], count: int) -> PoeError:
        """Return the error of so many messages, of which at least one has failed."""
        first = next((each for each in errors if each.code() not in _UNSENT), errors[0])
        code = first.code()
        if self._producer is None and code in _PURGED:
            return ProducerClosed()
        if code == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001
            reason = self._last_error or "the brokers did not acknowledge them"
            return DeliveryTimeout(topic, self._timeout_s or 0.0, MAYBE_STORED, reason)
        if len(errors) == count:
            return error_of(topic, first)
        reason = f"{first.str()}, for {len(errors)} of {count} messages; the others are stored"
        return KafkaRefused(topic, code, reason)

    # ---- its thread ---------------------------------------------------------------------------

    def _hear(self, producer: Producer, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                producer.poll(_POLL_S)
            except KafkaException as error:  # so it says that it will never send anything again
                self._tell()  # before the links are over, and what it reported with them
                self._is_dead = True
                self._note_down(error.args[0].str())
            except BaseException:  # noqa: BLE001 - whatever a function of the user's raises
                tell_raised()
            self._tell()
        if self._is_dead:
            _hear_all(producer)  # what is under way has been stored, or not
        producer.purge()
        _hear_all(producer)
        self._tell()

    def _note_error(self, error: KafkaError) -> None:
        """Take what librdkafka tells of its connections; it does so while it is polled."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._note_down(self._last_error or error.str())
        else:
            self._last_error = error.str()

    def _note_down(self, reason: str) -> None:
        self._is_down = True
        self._in_loop(partial(self._lose_links, reason))

    def _lose_links(self, reason: str) -> None:
        links, self._links = self._links, set()
        for link in links:
            link.lose(reason)

    def _tell(self) -> None:
        if self._answers.are_due:
            self._in_loop(self._answers.tell)

    def _in_loop(self, call: Callable[[], object]) -> None:
        # A loop that was closed has nobody left to be told.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)


def _hear_all(producer: Producer) -> None:
    """Have all be reported that a library still has, if it can."""
    give_up_s = time.monotonic() + _PURGE_S
    while (left_s := give_up_s - time.monotonic()) > 0:
        try:
            producer.flush(left_s)
        except KafkaException:
            pass
        except BaseException:  # noqa: BLE001 - as above
            tell_raised()
            continue
        break


class KafkaLink:
    """The right to send until all brokers are lost. What is under way then is not answered here.

    It is answered when it is sent over the next link; librdkafka has it meanwhile.
    """

    is_served = True

    def __init__(self, transport: KafkaTransport, on_lost: Callable[[str], None]) -> None:
        self.is_over = False
        self._transport = transport
        self._on_lost = on_lost

    def send(self, batch: OutgoingBatch, done: Done) -> None:
        """Send a batch; `done` gets the offset of its last message."""
        self._transport.send(self, batch, done)

    def assist(self, outcome: Outcome, timeout_s: float) -> None:
        """Do nothing: librdkafka receives in threads of its own."""

    def lose(self, reason: str) -> None:
        """Tell that no broker can be reached."""
        self.is_over = True
        self._on_lost(reason)

    def close(self) -> None:
        """Send no more."""
        self.is_over = True
        self._transport.forget(self)


def _produce(producer: Producer, batch: OutgoingBatch, report: Report) -> dict[int, KafkaError]:
    """Give the messages to librdkafka; return by their places why it does not take some."""
    topic = kafka_name(batch.topic)
    messages: list[Any] = batch.messages
    records: list[dict[str, Any]] = []
    errors: dict[int, KafkaError] = {}
    given_count = 0
    try:
        if type(messages[0]) is bytes:
            records = [{"value": value} for value in messages]
        elif not any(headers for _, _, headers in messages):
            records = [{"value": value, "key": key} for value, key, _ in messages]
        if records:
            given_count = len(records)
            producer.produce_batch(topic, records, batch.partition, on_delivery=report)
        for message in () if records else messages:  # with headers it takes them one by one only
            error = _produce_one(producer, topic, batch.partition, message, report)
            if error is not None:
                errors[given_count] = error
            given_count += 1
    except BaseException:  # a signal's: nobody else reports the rest, and all behind would wait
        interrupted = KafkaError(KafkaError._INTR)  # noqa: SLF001 - librdkafka's own codes begin so
        errors |= dict.fromkeys(range(given_count, len(messages)), interrupted)
        for place, error in (errors | _refused(records)).items():
            report(error, place)
        raise
    return errors | _refused(records)


def _refused(records: list[dict[str, Any]]) -> dict[int, KafkaError]:
    return {place: each["_error"] for place, each in enumerate(records) if "_error" in each}


def _places(
    messages: Sequence[Any], failures: list[tuple[KafkaError, Message | int]]
) -> dict[int, KafkaError]:
    """Return the errors by the places of the messages that have failed.

    librdkafka shows a message and no place; of several that are alike any will do.
    """
    found = {which: error for error, which in failures if isinstance(which, int)}
    alike: defaultdict[tuple[bytes, bytes], deque[int]] = defaultdict(deque)
    for place, message in enumerate(messages):
        if place not in found:
            value, key, _ = (message, None, None) if type(message) is bytes else message
            alike[value or b"", key or b""].append(place)
    for error, which in failures:
        if not isinstance(which, int):
            places = alike[which.value() or b"", which.key() or b""]
            if places:
                found[places.popleft()] = error
    return found


def _produce_one(
    producer: Producer,
    topic: str,
    partition: int,
    message: Any,  # noqa: ANN401 - value, key, headers
    report: Report,
) -> KafkaError | None:
    value, key, headers = message
    try:
        producer.produce(
            topic, value, key, partition, on_delivery=report, headers=dict(headers or {})
        )
    except KafkaException as error:
        return error.args[0]  # type: ignore[no-any-return]  # a `KafkaError`
    except BufferError:
        return KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 - as above
    return None


def _delivery_timeout_s(options: ProducerOptions) -> float | None:
    """Return the longest of all topics; None for no limit. librdkafka has one for them all."""
    named = options.topics.get("delivery_timeout_s", {})
    limits = [options.of(topic).delivery_timeout_s for topic in {OTHERS, *named}]
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None
