"""What the two producers share: topics, the buffer, the actor system behind it, its begin and end.

producer_sup               rest_for_one
├── topic_sup              simple_one_for_one
│   └── topic's supervisor one_for_all, for each topic
│       ├── worker_sup     simple_one_for_one, temporary workers
│       └── topic_producer
└── topic_starter          has topics started that are used for the first time
"""

import asyncio
import atexit
import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from poe.actors import ActorRef, Continue, GenServer, LoopSystem
from poe.client.metrics.metrics import sinks_of
from poe.client.producer.accumulator import Accumulator
from poe.client.producer.batch import Batch
from poe.client.producer.block_end import log_undelivered
from poe.client.producer.delivery import Delivery, Outcome, callback_threads
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import CallSoon
from poe.client.producer.payload import parse
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicState, Undelivered, WorkerInfo
from poe.client.producer.topic_producer import ProducerParts, TopicSup
from poe.client.producer.topic_queues import TopicQueues
from poe.client.producer.transport import TopicMetadata, Transport, transport_of
from poe.client.spool.spool import Spool
from poe.client.spool.spooler import Spooler
from poe.client.timeouts import deadline_of
from poe.errors import (
    ActorDead,
    BrokerDown,
    BufferFull,
    CallTimeout,
    DeliveryTimeout,
    PoeError,
    ProducerClosed,
)
from poe.errors.delivery import NEVER_SENT
from poe.errors.short_text import short_repr
from poe.protocol import topic_bytes
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Strategy,
    Supervisor,
    SupervisorFlags,
    dynamic_supervisor,
    start_dynamic_child,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TOPIC_SUP = "topic_sup"
_TOPIC_STARTER = "topic_starter"
_TIMEOUT_S = 5.0
"""As long as ekaf's calls wait."""

_of_parents: list[object] = []
"""What a fork has copied of the parent: never used again, and never torn down, since its event loop
shares descriptors with the parent's."""


class ProducerSup(Supervisor):
    """The root of a producer's tree."""

    def configure(self, parts: ProducerParts, topics: Callable[[], list[TopicQueues]]) -> Any:  # noqa: ANN401 - flags and specs
        """Describe the children in start order; `topics` tells those that are to be served."""
        template = ChildSpec(id="topic", actor=TopicSup, args=(parts,), kind=ChildKind.SUPERVISOR)
        flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE, intensity=10, period_s=10)
        children = [
            dynamic_supervisor(_TOPIC_SUP, template, flags),
            ChildSpec(id=_TOPIC_STARTER, actor=TopicStarter, args=(topics,), name=_TOPIC_STARTER),
        ]
        return SupervisorFlags(strategy=Strategy.REST_FOR_ONE, intensity=10, period_s=10), children


class TopicStarter(GenServer):
    """Starts topics for whoever cannot wait for it; all of them, if their supervisor has ended."""

    pinned_to_loop: ClassVar[bool] = True

    def init(self, topics: Callable[[], list[TopicQueues]]) -> Continue:
        """Begin with those that there were."""
        self._started: set[bytes] = set()
        return Continue(topics)

    async def handle_continue(self, argument: Callable[[], list[TopicQueues]]) -> None:
        """Start all that there are."""
        for topic in argument():
            await self._start(topic)

    async def handle_cast(self, message: TopicQueues) -> None:
        """Start one."""
        await self._start(message)

    async def _start(self, topic: TopicQueues) -> None:
        if topic.topic not in self._started:
            self._started.add(topic.topic)
            await start_dynamic_child(self, _TOPIC_SUP, topic)


class LoopScheduler:
    """The event loop's time, for queues."""

    def __init__(self, system: LoopSystem) -> None:
        event_loop = system.run_queue.event_loop()
        self._loop = event_loop.loop
        self._thread_ident = event_loop.thread_ident
        callback_threads.add(self._thread_ident)

    now_s = staticmethod(time.monotonic)
    """Return the monotonic time."""

    def call_later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call `action` in the loop's thread; from any thread."""
        loop = self._loop
        # Its end may come in between, and then nothing is due any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.call_later, delay_s, action)

    def close(self) -> None:
        """Note that the loop has ended."""
        callback_threads.discard(self._thread_ident)


class Wait(NamedTuple):
    """What a call waits for, and until when by the monotonic clock."""

    outcome: Outcome
    deadline_s: float


Steps: TypeAlias = Generator[Wait, bool, T]
"""A call that waits, as data: it yields a `Wait` each time, and gets whether that was in time."""


class ProducerCore:
    """One producer without its callers' style: it says what to wait for, and they wait."""

    _transport: Transport | None

    def __init__(self, url: str, arguments: Mapping[str, Any]) -> None:
        self.url = url
        options = ProducerOptions.load(arguments)
        # Now, so that what is wrong is told at once.
        self.options = replace(options, metrics=sinks_of(options.metrics))
        transport = transport_of(url, self.options)  # likewise, what is missing
        self.takes_empty = transport.takes_empty
        self.topics: dict[bytes | str, TopicQueues] = {}
        """By the names that callers have used."""
        self._reset()
        self._transport = transport
        _live.add(self)
        if self.options.spool_dir is not None:
            try:
                self._begin_with_spool()
            except BaseException:
                transport.close()
                raise

    def _reset(self) -> None:
        self._starting = threading.Lock()
        self._closed: ProducerClosed | None = None
        """Why nothing is taken any more: it is closed, or has failed."""
        self._is_refusing = False
        self._system: LoopSystem | None = None
        self._sup: ActorRef | None = None
        self._transport = None
        self._last_statistics: dict[str, Any] = {}
        self.spooler: Spooler | None = None
        self.topics.clear()

    # ---- begin --------------------------------------------------------------------------------

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the actors, which begins now if it has not.

        Raises:
            ProducerClosed: nothing begins any more.
        """
        with self._starting:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            if self._system is None:
                self._start()
            assert self._system is not None
            return self._system.run_queue.event_loop().loop

    def topic(self, name: bytes | str) -> TopicQueues:
        """Return a topic, which begins when it is first asked for.

        Raises:
            LocalProtocolError: it is no name.
            ProducerClosed: nothing begins any more.
        """
        try:
            found = self.topics.get(name)
        except (TypeError, ValueError):  # no dictionary key; maybe no name
            return self.topic(topic_bytes(name))
        return self._begin(name) if found is None else found

    def _begin_with_spool(self) -> None:
        """Send what an earlier producer has left.

        Raises:
            PoeError: the spool cannot be opened.
        """
        with self._starting:
            self._start()
        assert self.spooler is not None
        for topic in self.spooler.topics():
            self.topic(topic)

    def _begin(self, name: bytes | str) -> TopicQueues:
        encoded = topic_bytes(name)
        with self._starting:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            topic = self.topics.get(encoded)
            if topic is None:
                if self._system is None:
                    self._start()
                assert self._system is not None
                assert self._transport is not None
                topic = TopicQueues(
                    encoded,
                    self.options.of(encoded),
                    self.accumulator,
                    self.observer,
                    is_numbered=self._transport.numbers_puts,
                    spooler=self.spooler,
                )
                self.topics[encoded] = topic
                # By the loop: a callback may ask for a topic while actors run.
                self.scheduler.call_later(0.0, partial(self._system.cast, _TOPIC_STARTER, topic))
            self.topics[name] = topic
            return topic

    def _start(self) -> None:
        options = self.options
        spool = None
        if options.spool_dir is not None:
            spool = Spool(
                options.spool_dir,
                bytes_max=options.spool_bytes,
                drop=options.of(b"").downtime_drop,
                fsync=options.spool_fsync,
            )
        system = LoopSystem()
        self.scheduler = LoopScheduler(system)
        self.accumulator = Accumulator(self.scheduler, options.buffer_count, options.buffer_bytes)
        self.observer = Instrumentation(options, self.accumulator, takes_empty=self.takes_empty)
        if spool is not None:
            self.spooler = Spooler(spool, self.topics, self.accumulator, self.observer)
        if self._transport is None:
            self._transport = transport_of(self.url, options)
        parts = ProducerParts(self._transport, options, self.observer)
        self._sup = system.start(ProducerSup, parts, self.all_topics)
        self._system = system
        assert self._sup is not None
        system.when_ended(self._sup, self._note_end)

    def _note_end(self, reason: object) -> None:
        """Leave nobody waiting when the tree has given up."""
        if self._closed is None:
            self._closed = ProducerClosed(f"the producer has failed ({reason})")
            self.accumulator.close(self._closed)
            self.give_up_all(self._closed)

    # ---- calls --------------------------------------------------------------------------------

    def add(
        self, name: bytes | str, data: object, *, is_due: bool, call_soon: CallSoon | None = None
    ) -> Delivery:
        """Add the messages of a call, or raise at once; `call_soon` as for `add_one` of a queue.

        Raises:
            InvalidPayload, LocalProtocolError, PickerFailed: nothing was added.
            BufferFull: nothing was added; `room` tells when to try again.
            ProducerClosed: nothing was added.
        """
        if type(data) is bytes and data:
            # The usual case, by the shortest way: it is what the speed of a producer is made of.
            try:
                queues = self.topics.get(name)
            except (TypeError, ValueError):  # no dictionary key; maybe no name
                queues = None
            if queues is not None and queues.only is not None:
                return queues.only.add_one(data, is_due=is_due, call_soon=call_soon)
        topic = self.topic(name)
        messages = parse(data, empty=self.takes_empty or topic.has_envelope)
        return topic.add(messages, is_due=is_due)

    def add_when_room(
        self, name: bytes | str, data: object, *, is_due: bool, deadline_s: float | None = None
    ) -> Steps[Delivery]:
        """Do the same, waiting for room; up to `deadline_s`, and no longer than the options say."""
        options = self.topic(name).options
        end_s = time.monotonic()
        if options.on_full != "raise" and threading.get_ident() not in callback_threads:
            end_s = min(end_s + options.block_timeout_s, deadline_s or math.inf)
        while True:
            room = self.accumulator.room()
            try:
                return self.add(name, data, is_due=is_due)
            except BufferFull:
                if not (yield Wait(room, end_s)):
                    raise

    def wait(self, delivery: Delivery, deadline_s: float) -> None:
        """Block until a call is answered; receive the answer in this thread, if that is possible.

        Raises:
            CallTimeout: it was not in time.
        """
        outcome = delivery.outcome
        if outcome.value is None and isinstance(outcome, Batch):
            worker = outcome.queue.worker
            link = worker.link if worker is not None else None
            if link is not None:
                me = threading.get_ident()
                try:
                    callback_threads.add(me)
                    link.assist(outcome, deadline_s - time.monotonic())
                finally:
                    callback_threads.discard(me)
        delivery.wait(deadline_s - time.monotonic())

    def give_up_waiting(
        self, name: bytes | str, delivery: Delivery, timeout_s: float
    ) -> PoeError | None:
        """Return the error for a call that was not answered in time; None: it just was.

        What was not sent is withdrawn, so that it is not delivered after the error.
        """
        topic = self.topic(name)
        reason = str(topic.last_error or topic.state)
        why: PoeError
        if topic.state is TopicState.READY:
            why = DeliveryTimeout(topic.topic, timeout_s, NEVER_SENT, reason)
        else:
            why = BrokerDown(topic.topic, reason)
        if topic.withdraw(delivery, why):
            return why
        if delivery.done():
            return None
        seen = f" ({topic.last_error})" if topic.last_error else ""
        return CallTimeout(f"the broker of topic {topic.topic!r}{seen}", timeout_s)

    # ---- topics -------------------------------------------------------------------------------

    def ready(self, name: bytes | str, timeout_s: float | None) -> Steps[TopicQueues]:
        """Return a topic once it has a worker, or raise as `Producer.prepare`."""
        deadline_s = deadline_of(timeout_s)
        topic = self.topic(name)
        topic.check_taken()
        self._check_open()
        if not (yield Wait(topic.up, deadline_s)):
            raise topic.unreachable()
        self._check_open()
        topic.check_taken()
        return topic

    def pick(self, name: bytes | str) -> Steps[WorkerInfo]:
        """Return the worker of the next call without a key, or raise as `Producer.pick`."""
        topic = yield from self.ready(name, _TIMEOUT_S)
        worker = topic.pick()
        if worker is None:
            raise BrokerDown(topic.topic, "its partition has no worker")
        return worker

    def metadata(self, name: bytes | str, timeout_s: float | None) -> Steps[TopicMetadata]:
        """Return brokers and partitions of a topic, or raise as `Producer.metadata`."""
        deadline_s = deadline_of(timeout_s)
        topic = self.topic(name)
        if not (yield Wait(topic.known, deadline_s)):
            raise topic.unreachable()
        if topic.metadata is None:
            self._check_open()
        assert topic.metadata is not None
        return topic.metadata

    def _check_open(self) -> None:
        """Refuse to wait for brokers that are not asked any more.

        Raises:
            ProducerClosed: it is closed, or has failed.
        """
        if self._closed is not None:
            raise self._closed.with_traceback(None)

    # ---- end ----------------------------------------------------------------------------------

    def all_topics(self) -> list[TopicQueues]:
        """Return each topic once."""
        return list({id(topic): topic for topic in list(self.topics.values())}.values())

    def flush(self, timeout_s: float | None) -> Steps[bool]:
        """Send all that waits, and wait for the answers; False where some do not come in time."""
        deadline_s = deadline_of(timeout_s)
        outcomes = [outcome for topic in self.all_topics() for outcome in topic.flush()]
        if self.spooler is not None:
            outcomes += self.spooler.unsettled()
        for outcome in outcomes:
            if not (yield Wait(outcome, deadline_s)):
                return False
        return True

    def refuse(self) -> bool:
        """Take no more calls; False where this was called before: who did so ends it."""
        with self._starting:
            if self._is_refusing:
                return False
            self._is_refusing = True
            if self._closed is None:
                self._closed = ProducerClosed()
                if self._system is not None:
                    self.accumulator.close(self._closed)
            return True

    def end(self) -> list[Undelivered]:
        """Give up what is left, and end all actors and threads; blocks for a moment."""
        error = ProducerClosed("the producer was closed before an answer")
        undelivered = self.give_up_all(error)
        _live.discard(self)
        if self._system is not None:
            self._last_statistics = {**self._count(), "workers": 0}
        system, self._system = self._system, None
        transport, self._transport = self._transport, None
        if system is not None:
            assert self._sup is not None
            try:
                with contextlib.suppress(ActorDead):  # it has given up
                    system.stop(self._sup, "shutdown", timeout_s=5.0)
            except PoeError as failure:
                # What is left is told all the same; a task of the user's may have ended the loop.
                _log.error("the producer's actors have not ended: %s", failure)
            except BaseException:  # Ctrl-C: whoever has called does not get what is returned
                log_undelivered(undelivered)
                raise
            finally:
                system.shutdown()
                self.scheduler.close()
                for topic in self.all_topics():
                    # What was on its way to its partition then, as where a picker takes its time.
                    undelivered += topic.give_up_all(error)
                    topic.workers.clear()
                    self.observer.workers(topic.topic)
                self._last_statistics = self._count()
                self.observer.close()
        if transport is not None:
            transport.close()
        return undelivered

    def give_up_all(self, error: PoeError) -> list[Undelivered]:
        """Fail all that is not delivered, and return it; what the spool takes is not among it."""
        if self.spooler is not None:
            for topic in self.all_topics():
                topic.spool_all()
            self.spooler.close()
        return [each for topic in self.all_topics() for each in topic.give_up_all(error)]

    def log_rest(self) -> None:
        """Tell the log what the end of the program loses, where nobody has closed the producer."""
        for topic in self.all_topics():
            batches = [batch for queue in topic.all_queues() for batch in queue.unsettled()]
            count = sum(batch.count() for batch in batches)
            if count:
                why = "the program ends and has not closed its producer"
                name = short_repr(topic.topic)
                _log.error("topic %s: %d messages were not delivered: %s", name, count, why)

    def statistics(self) -> dict[str, Any]:
        """Return what was counted, and what there is now, or was at the end."""
        return self._last_statistics if self._system is None else self._count()

    def _count(self) -> dict[str, Any]:
        return {
            **self.observer.totals,
            "messages_buffered": self.accumulator.count,
            "bytes_buffered": self.accumulator.size,
            "messages_spooled": 0 if self.spooler is None else self.spooler.count,
            "workers": sum(len(topic.workers) for topic in self.all_topics()),
            "callbacks_raised": self.observer.callbacks.raised_count,
        }

    def forget(self) -> None:
        """Begin afresh in a process that was forked: what is undelivered stays the parent's."""
        if self._transport is None:
            return
        error = ProducerClosed("the messages are those of the process that has forked this one")
        _of_parents.append((self._system, self._transport, self.all_topics(), self.spooler))
        if self.spooler is not None:
            self.spooler.forget(error)
        for topic in self.all_topics():
            topic.forget(error)
        self._reset()


_live: "weakref.WeakSet[ProducerCore]" = weakref.WeakSet()


def _forget_all() -> None:
    callback_threads.clear()
    for core in list(_live):
        core.forget()


def _log_rests() -> None:
    for core in list(_live):
        core.log_rest()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_log_rests)
