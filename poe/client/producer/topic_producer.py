"""The actor of one topic: finds its brokers, has workers for its queues, and looks after downtime.

It moves no message. Its queues send by themselves whenever they have a connection; it decides which
connection that is, and what happens while there is none.
"""

import logging
import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

from poe.actors import ActorRef, AsyncWork, Down, GenServer, Monitor, Reason, Timer
from poe.actors.server_cell import cell_of_actor
from poe.client.patience import REFUSED_WAIT_MAX_S
from poe.client.producer.callbacks import Event
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicState, WorkerState
from poe.client.producer.topic_queues import TopicQueues
from poe.client.producer.transport import Transport
from poe.client.producer.worker import Connected, Worker
from poe.client.producer.worker_record import WorkerRecord
from poe.errors import ConnectionClosed, PoeError, SecurityError
from poe.errors.short_text import short_repr
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    start_dynamic_child,
)

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_LOG_S = 30.0
"""Between two lines in the log on one and the same failure."""
_BACKLOGS = 2
"""Ticks with a backlog, in a row, that lead to one worker more."""
_TICK = object()
_REFRESH = object()
_RETRY = object()


class ProducerParts(NamedTuple):
    """What the actors of a producer share."""

    transport: Transport
    options: ProducerOptions
    observer: Instrumentation


class _Drained(NamedTuple):
    """A queue that is to change its worker has nothing under way any more."""

    queue: PartitionQueue
    record: WorkerRecord


class _Slot(NamedTuple):
    """A place for a worker: the broker, and which of those for it."""

    broker: int
    number: int


class _Hired(NamedTuple):
    """A worker that has not ended."""

    slot: _Slot
    record: WorkerRecord
    ref: ActorRef


class TopicSup(Supervisor):
    """The supervisor of one topic: its workers' supervisor, and its actor."""

    def configure(self, parts: ProducerParts, topic: TopicQueues) -> Any:  # noqa: ANN401
        """Describe the children in start order."""
        workers = f"workers of {topic.topic!r}"
        template = ChildSpec(id="worker", actor=Worker, restart=Restart.TEMPORARY)
        children = [
            ChildSpec(
                id="worker_sup",
                actor=Supervisor,
                args=(SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE), [template]),
                kind=ChildKind.SUPERVISOR,
                name=workers,
            ),
            ChildSpec(id="topic_producer", actor=TopicProducer, args=(parts, topic, workers)),
        ]
        return SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=10, period_s=10), children


class TopicProducer(GenServer):
    """Owns the workers of one topic; its states are those of `TopicState`.

    Partitions are dealt out to the workers of their leader, each to one worker, so that a
    partition's messages take one way at a time. Restarted after a crash, it begins with no worker
    and with the queues as they are: their batches keep their numbers.
    """

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(self, parts: ProducerParts, topic: TopicQueues, worker_sup: str) -> None:
        """Ask for the partitions."""
        self._transport, self._producer_options, self._observer = parts
        self._topic = topic
        self._options = topic.options
        self._worker_sup = worker_sup
        self._hired: dict[Monitor, _Hired] = {}
        self._slots: dict[_Slot, _Hired] = {}
        self._next_id = 1
        self._target = self._options.workers
        self._failures = 0
        self._is_retrying = False
        self._refresh: Timer | None = None
        self._down_since_s: float | None = None
        self._logged: set[type[PoeError]] = set()
        self._next_log_s = 0.0
        self._backlogs = 0
        self._last_backlog_s = self.monotonic_s()
        for record in topic.workers:  # of an actor before this one that was killed
            if record.link is not None:
                record.link.close()
        topic.workers.clear()
        for queue in topic.queues():
            queue.disconnect()
        self._ask()
        self.send_after(_TICK_S, _TICK)

    def describe_role(self) -> str:
        """Return the state."""
        return self._topic.state

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take metadata, the ends of workers, and what is due."""
        if isinstance(message, AsyncWork):
            await self._take_metadata(message)
        elif isinstance(message, Down):
            self._take_end(message)
        elif message is _TICK:
            self.send_after(_TICK_S, _TICK)
            await self._look_around()
        elif message is _RETRY:
            self._is_retrying = False
            self._ask()
        elif message is _REFRESH:
            self._ask()
        else:
            super().handle_info(message)

    async def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Take the news of a worker, or of a queue."""
        if isinstance(message, Connected):
            self._take_connected(*message)
        elif isinstance(message, _Drained):
            self._take_drained(*message)

    def terminate(self, reason: Reason) -> None:
        """Ask nobody any more."""
        del reason
        self._asking.cancel()

    # ---- brokers ------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._asking = AsyncWork(self, self._transport.metadata(self._topic.topic))

    async def _take_metadata(self, asked: AsyncWork) -> None:
        if asked.error is None:
            is_new = self._topic.metadata is None
            self._topic.learn(asked.result)
            if is_new:
                self._warn_of_workers()
            if self._refresh is not None:
                self._refresh.cancel()
            delay_s = self._options.metadata_refresh_s
            if any(partition.leader is None for partition in asked.result.partitions):
                delay_s = min(delay_s, self._producer_options.reconnect_max_s)  # a new one is due
            self._refresh = self.send_after(delay_s, _REFRESH)
            await self._arrange()
        elif not isinstance(asked.error, PoeError):
            raise asked.error
        else:
            if not asked.error.retriable and self._topic.metadata is None:
                self._topic.refuse(asked.error)
            self._note_failure(asked.error)

    def _warn_of_workers(self) -> None:
        limit = self._topic.info().workers_limit
        if limit is not None and limit < self._options.workers:
            _log.warning(
                "topic %s: of %d workers %d can be of use, one for each partition; "
                "ordered=False allows more",
                short_repr(self._topic.topic),
                self._options.workers,
                limit,
            )

    async def _arrange(self) -> None:
        """Start the workers that are wanting, and give each queue to the right one."""
        wanted = self._plan()
        for slot, queues in wanted.items():
            hired = self._slots.get(slot) or await self._start(slot)
            hired.record.queues = list(queues)
            self._hand_over(hired.record)
        for slot, hired in list(self._slots.items()):
            if slot not in wanted:
                hired.record.state = WorkerState.DRAINING
                hired.record.queues = []
                del self._slots[slot]
        self._retire()

    def _plan(self) -> dict[_Slot, list[PartitionQueue]]:
        """Return which queues each worker is to have: those of its broker, dealt out in turn."""
        metadata = self._topic.metadata
        assert metadata is not None
        if not self._options.ordered:
            self._topic.widen(math.ceil(self._target / len(metadata.partitions)))
        leaders = {partition.id: partition.leader for partition in metadata.partitions}
        queues = self._topic.present_queues()
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in queues:
            leader = leaders[queue.partition]
            if leader is not None:
                by_leader.setdefault(leader, []).append(queue)
        wanted: dict[_Slot, list[PartitionQueue]] = {}
        for leader, led in by_leader.items():
            count = min(len(led), max(1, math.ceil(self._target * len(led) / len(queues))))
            for i, queue in enumerate(led):
                wanted.setdefault(_Slot(leader, i % count), []).append(queue)
        return wanted

    async def _start(self, slot: _Slot) -> _Hired:
        metadata = self._topic.metadata
        assert metadata is not None
        broker = next(broker for broker in metadata.brokers if broker.id == slot.broker)
        record = WorkerRecord(self._next_id, f"{broker.host}:{broker.port}")
        self._next_id += 1
        ref = await start_dynamic_child(
            self, self._worker_sup, self._transport, metadata.topic, broker, record, self.ref
        )
        assert ref is not None
        hired = self._slots[slot] = self._hired[self.monitor(ref)] = _Hired(slot, record, ref)
        self._topic.workers.append(record)
        return hired

    def _hand_over(self, record: WorkerRecord) -> None:
        """Give a worker that is ready its queues; from another one once nothing is under way."""
        if record.state is not WorkerState.READY:
            return
        for queue in record.queues:
            if queue.worker is None:
                queue.connect(record)
            elif queue.worker is record:
                queue.stay()  # it was to go elsewhere, maybe, and still is here
            else:
                drained = _Drained(queue, record)
                if queue.drain(partial(cell_of_actor(self).cast_from_outside, drained)):
                    self._take_drained(queue, record)

    def _take_drained(self, queue: PartitionQueue, record: WorkerRecord) -> None:
        is_wanted = queue in record.queues and record.state is WorkerState.READY
        # The news may be of an earlier change, which was taken back.
        if is_wanted and not queue.in_flight_count():
            queue.disconnect()
            queue.connect(record)
        self._retire()

    def _retire(self) -> None:
        """End workers that have no queue any more."""
        busy = {id(queue.worker) for queue in self._topic.queues()}
        for hired in list(self._hired.values()):
            if hired.record.state is WorkerState.DRAINING and id(hired.record) not in busy:
                self.exit(hired.ref, "shutdown")

    # ---- the lives of workers -----------------------------------------------------------------

    def _take_connected(self, record: WorkerRecord, time_us: int) -> None:
        topic, observer = self._topic, self._observer
        if record.state is not WorkerState.READY:
            return  # it has ended, or is to
        waiting = [message for queue in topic.queues() for message in queue.waiting()]
        topic.enter(TopicState.READY)
        self._hand_over(record)
        observer.workers(topic.topic)
        observer.worker_event(Event.TIME_TO_CONNECT, topic.topic, record, time_us)
        observer.worker_event(Event.WORKER_UP, topic.topic, record, None)
        if self._down_since_s is not None and waiting:
            observer.topic_event(Event.DOWNTIME_REPLAYED, topic.topic, waiting)

    def _look_at(self, record: WorkerRecord) -> None:
        """Note a connection that serves; one without requests is as good after a while."""
        link = record.link
        if link is not None and not record.is_served:
            age_s = self.monotonic_s() - record.connected_s
            is_idle = not any(queue.in_flight_count() for queue in record.queues)
            has_stood = is_idle and age_s >= self._producer_options.reconnect_max_s
            if link.is_served or has_stood:
                self._note_served(record)

    def _note_served(self, record: WorkerRecord) -> None:
        """End a downtime: not when connected, for a server may take connections to refuse them."""
        record.is_served = True
        self._failures = 0
        self._topic.last_error = None
        down_since_s, self._down_since_s = self._down_since_s, None
        if down_since_s is not None:
            time_down_s = record.connected_s - down_since_s
            self._observer.topic_event(Event.TIME_DOWN, self._topic.topic, int(time_down_s * 1e6))

    def _take_end(self, down: Down) -> None:
        slot, record, _ = self._hired.pop(down.monitor)
        was = record.state
        if record.link is not None:
            if record.link.is_served and not record.is_served:
                self._note_served(record)
            record.link.close()  # one that was killed has not done so
        record.state, record.link = WorkerState.DOWN, None
        self._topic.workers.remove(record)
        for queue in self._topic.queues():
            if queue.worker is record:
                queue.disconnect()
        if was is not WorkerState.CONNECTING:
            self._observer.worker_event(Event.WORKER_DOWN, self._topic.topic, record, down.reason)
            self._observer.workers(self._topic.topic)
        if was is not WorkerState.DRAINING:
            self._slots.pop(slot, None)
            self._note_failure(_error_of(down.reason, record))

    def _note_failure(self, error: PoeError) -> None:
        """Try again after a while, at once after the first; without any worker it is downtime."""
        topic = self._topic
        if not any(worker.state is WorkerState.READY for worker in topic.workers):
            topic.enter(TopicState.DOWNTIME, error)
            now_s = self.monotonic_s()
            if self._down_since_s is None:
                self._down_since_s = now_s
            else:
                self._observer.topic_event(Event.WORKER_STILL_DOWN, topic.topic, error)
            if now_s >= self._next_log_s:
                self._logged.clear()
                self._next_log_s = now_s + _LOG_S
            if type(error) not in self._logged:
                self._logged.add(type(error))
                _log.warning("topic %s: %s; trying again", short_repr(topic.topic), error)
        if not self._is_retrying:
            self._is_retrying = True
            options = self._producer_options
            limit_s, delay_s = options.reconnect_max_s, 0.0
            if isinstance(error, SecurityError) and not error.retriable:
                limit_s = max(limit_s, REFUSED_WAIT_MAX_S)
                delay_s = 1.0
            if self._failures:
                least_s = max(options.reconnect_min_s, delay_s)
                delay_s = least_s * 2.0 ** min(self._failures - 1, 30)
            self._failures += 1
            self.send_after(min(delay_s, limit_s), _RETRY)

    # ---- what is due --------------------------------------------------------------------------

    async def _look_around(self) -> None:
        """Give up what is too old, hang up on brokers that say nothing, and look at the backlog."""
        for record in self._topic.workers:
            self._look_at(record)
        silent = dict.fromkeys(self._topic.expire(), self._options.delivery_timeout_s)
        if not self._transport.times_out_requests:
            for queue in self._topic.queues():
                if queue.is_overdue():
                    silent[queue.worker] = self._options.request_timeout_s
        for hired in self._hired.values():
            if hired.record in silent:
                reason = f"no answer for {silent[hired.record]} s"
                self.exit(hired.ref, ("shutdown", reason))
        self._observer.buffered()
        await self._scale()

    async def _scale(self) -> None:
        """Have one worker more while there is a backlog, and one less some time after it."""
        options, now_s = self._options, self.monotonic_s()
        if any(queue.has_backlog() for queue in self._topic.queues()):
            self._last_backlog_s = now_s
            self._backlogs += 1
        else:
            self._backlogs = 0
        target = self._target
        if self._backlogs >= _BACKLOGS and target < options.workers_max:
            target += 1
        elif now_s - self._last_backlog_s >= options.worker_idle_s and target > options.workers:
            target -= 1
            self._last_backlog_s = now_s
        if target != self._target and self._topic.metadata is not None:
            self._target, self._backlogs = target, 0
            await self._arrange()


def _error_of(reason: Reason, record: WorkerRecord) -> PoeError:
    """Return why a worker has ended, as an error."""
    cause = reason[1] if isinstance(reason, tuple) else reason
    if isinstance(cause, PoeError):
        return cause
    msg = f"the connection to {record.broker} is lost ({cause})"
    return ConnectionClosed(msg)
