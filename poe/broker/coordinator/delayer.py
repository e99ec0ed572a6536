"""Messages that are to be put later: kept in the topic `poe.delayed` until they are due.

Of a message that waits only place and time are in memory, see `Waiting`. What is due is put batch
by batch, each by an actor of its own, `DelayedPut`, which writes down before what it is about to
do: who dies in between puts it once all the same. What is put, and on its disk, is trimmed.
"""

import logging
from typing import Any, Final, NamedTuple, cast
from weakref import proxy

from poe.actors import KILL, ActorRef, Call, Error, Exit, GenServer
from poe.actors.alarm_clock import AlarmClock
from poe.broker.appendix.message import GetRange
from poe.broker.coordinator.delayed_log import (
    DELAYED_TOPIC,
    DelayedHistory,
    Later,
    encode_later,
)
from poe.broker.coordinator.delayed_put import (
    DelayedMarks,
    DelayedPut,
    Marked,
    PutEnded,
    Stored,
    Voided,
)
from poe.broker.coordinator.registry import GroupParts
from poe.broker.coordinator.waiting import Batch, Waiting, entry
from poe.broker.registry.topic_registry import Trim
from poe.broker.requests.delayed import PutLater
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import CorruptRecord, Overloaded, PoeError
from poe.record import POINTER_MAX

logger = logging.getLogger("poe.broker")

DELAYED_MAX: Final = 1_000_000
"""Messages that may wait at one time."""

_WORKING_MAX: Final = 16
"""Topics that are put onto at one time."""
_READ_COUNT: Final = 5000
_READ_BYTES: Final = 1024 * 1024
_TURN_S: Final = 0.001
"""Between parts of the log that are read, while others are served."""
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
"""Before a topic that refuses what is due is tried again: the first time, and at most."""
_SLEEP_S: Final = 60.0
_MARK_S: Final = 30.0
_TRIM_COUNT: Final = 1000
"""Records of a segment that is still written to, from which on it is worth to begin another."""
_LOOK = object()
_MARK = object()


class _PauseOver(NamedTuple):
    """A topic that has refused what is due is to be tried again, if that is still waited for."""

    waiting: Waiting
    batch: Batch


class Delayer(GenServer):
    """Knows all that waits, and has it put when it is due.

    Always: what was answered is in the log; `_working` has the actors that put batches,
    or mark what is put.
    """

    trap_exits = True

    def init(self, parts: GroupParts) -> None:
        """Begin without anything; what waits is read behind this, so that nobody waits for it."""
        self._routes = parts.routes
        self._clock = parts.clock
        self._wall = parts.wall or parts.clock
        """The machine's time, by which clients say when something is due. The node's own may be
        hours behind it: it does not follow a clock that was set, and stands while the machine is
        suspended."""
        self._check_sizes = parts.check_sizes
        self._topics_max = parts.topics_max
        self._handler = RequestHandler(cast("GenServer", proxy(self)), parts.routes)
        self._waiting: Waiting | None = None
        self._working: dict[ActorRef, type[GenServer]] = {}
        self._pauses_s: dict[bytes, float] = {}
        self._records_count = 0
        self._alarm = AlarmClock(self, _LOOK)
        self._alarm.ring_after(0)
        self.send_after(_MARK_S, _MARK)

    def describe_role(self) -> str:
        """Return how many messages wait."""
        count = 0 if self._waiting is None else self._waiting.messages_count
        return f"{count} waiting" if count else ""

    # ---- messages -------------------------------------------------------------------------------

    async def handle_call(self, request: PutLater, caller: Call) -> Any:  # noqa: ANN401
        """Keep messages until they are due."""
        del caller
        try:
            waiting = self._waiting or await self._read()
            await self._keep(waiting, request)
        except PoeError as error:
            return Error(error)
        count = waiting.messages_count
        await self._go_on(waiting)
        return count

    async def handle_cast(self, message: PutEnded | Marked) -> None:
        """Hear what has become of a batch, or of marks."""
        waiting = self._waiting
        if self._working.pop(message.ref, None) is None or waiting is None:
            return  # it was told to end
        match message:
            case PutEnded(_, batch, Stored(next_number)):
                self._pauses_s.pop(batch.topic, None)
                waiting.stored(batch, next_number, self._wall.now_us())
            case PutEnded(_, batch, Voided()):
                waiting.voided(batch)
            case PutEnded(_, batch, PoeError() as error):
                self._pause(_PauseOver(waiting, batch), error)
            case Marked(_, done, failed, pointer):
                for each in done:
                    waiting.release(each)
                for each in failed:
                    waiting.give_back(each)
                waiting.forget()
                await self._trim(waiting, pointer)
        await self._go_on(waiting)

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Read the log, put what is due, and mark what is put."""
        if message is _MARK:
            self.send_after(_MARK_S, _MARK)
            await self._mark()
        elif message is _LOOK:
            self._alarm.rang()
            await self._look()
        elif isinstance(message, _PauseOver):
            if message.waiting is self._waiting:  # else the log was read again
                message.waiting.refused(message.batch)
                await self._go_on(message.waiting)
        elif isinstance(message, Exit):
            self._ended(message)
        else:
            super().handle_info(message)

    async def _look(self) -> None:
        """Have what is due put; what waits is read before, where that is not known."""
        try:
            waiting = self._waiting or await self._read()
        except PoeError as error:  # who puts something later is told, too
            logger.error("topic poe.delayed cannot be read: %s", error)
            self._alarm.ring_after(_PAUSE_MAX_S)
        else:
            await self._go_on(waiting)

    def _ended(self, message: Exit) -> None:
        """Begin anew after the crash of one that was at work: the log knows how far it was."""
        if message.ref not in self._working:
            return  # it has said what it did
        logger.error("%s, which puts delayed messages, ended: %r", message.ref, message.reason)
        for ref in self._working:
            self.exit(ref, KILL)
        self._working = {}
        self._waiting = None
        self._alarm.ring_after(_PAUSE_S)

    # ---- what is due ----------------------------------------------------------------------------

    async def _go_on(self, waiting: Waiting) -> None:
        """Have what is due put, and set the alarm for what is not."""
        now_us = self._wall.now_us()
        while len(self._working) < _WORKING_MAX and (batch := waiting.take(now_us)) is not None:
            await self._start(DelayedPut, batch, self._clock)
        due_us = waiting.next_us()
        if due_us is not None and len(self._working) < _WORKING_MAX:
            wait_s = max(0, due_us - self._wall.now_us()) / 1e6
            self._alarm.ring_after(min(wait_s, _SLEEP_S))  # the clock may be set

    async def _start(self, actor: type[GenServer], *arguments: object) -> None:
        ref = await self.start_link(actor, self._routes, *arguments)
        assert ref is not None
        self._working[ref] = actor

    def _pause(self, refused: _PauseOver, error: PoeError) -> None:
        """Have a topic that refuses what is due tried again, after longer and longer pauses.

        Until then it counts as being put onto. A time of the machine's would not do: after that was
        set back, the pause would be longer by as much.
        """
        topic = refused.batch.topic
        pause_s = min(2 * self._pauses_s.get(topic, _PAUSE_S / 2), _PAUSE_MAX_S)
        self._pauses_s[topic] = pause_s
        self.send_after(pause_s, refused)
        logger.error("what is due for topic %r is not put: %s", topic, error)

    # ---- the log --------------------------------------------------------------------------------

    async def _keep(self, waiting: Waiting, wanted: PutLater) -> None:
        if not wanted.is_moved:
            if waiting.messages_count + len(wanted.messages) > DELAYED_MAX:
                raise Overloaded("delayed_max", DELAYED_MAX)
            if waiting.topics_count >= self._topics_max and wanted.topic not in waiting:
                raise Overloaded("topics_max", self._topics_max)
        self._check_sizes(wanted.messages)
        later = Later(wanted.topic, wanted.due_us, wanted.messages)
        records, counts = encode_later(later)
        last = await self._handler.put(DELAYED_TOPIC, records)
        self._records_count += len(records)
        pointers = range(last - len(records) + 1, last + 1)
        for pointer, record, count in zip(pointers, records, counts, strict=True):
            waiting.add(wanted.topic, entry(wanted.due_us, pointer, count, len(record)))

    async def _read(self) -> Waiting:
        """Read what waits.

        Raises:
            PoeError: the topic cannot be read.
        """
        history, pointer, self._records_count = DelayedHistory(), 0, 0
        while True:
            asked = GetRange(pointer, POINTER_MAX, _READ_COUNT, _READ_BYTES)
            try:
                found = await self._handler.get_range(DELAYED_TOPIC, asked)
                if found is None:
                    break
                records = read_records(DELAYED_TOPIC, found)
            except CorruptRecord as error:
                logger.error("topic poe.delayed is damaged: %s", error)
                if (error.pointer or 0) <= pointer:
                    raise  # what waits behind is not known, and would be trimmed
                pointer = error.pointer or 0
                continue
            pointer = int(records.pointers[-1])
            self._records_count += len(records)
            for each in records.pairs():
                history.add(*each)
            await self.sleep(_TURN_S)
        self._waiting = waiting = history.waiting()
        return waiting

    async def _mark(self) -> None:
        """Have noted what is put and on its disk, unless that is under way."""
        if self._waiting is None or DelayedMarks in self._working.values():
            return
        done = self._waiting.take_done()
        if done:
            await self._start(DelayedMarks, done)
        else:
            self._waiting.forget()

    async def _trim(self, waiting: Waiting, newest: int) -> None:
        """Delete the segments that nobody needs; all of them only where that is worth the while."""
        route = self._routes.get(DELAYED_TOPIC)
        needed = waiting.floor()
        pointer = newest if needed is None else needed - 1
        if route is None:
            return
        is_any_over = bool(route.bounds) and pointer >= route.bounds[0]
        if is_any_over or (needed is None and self._records_count >= _TRIM_COUNT):
            self._records_count = 0
            try:
                await self._handler.ask_registry(Trim(DELAYED_TOPIC, pointer))
            except PoeError as error:  # the next time
                logger.error("topic poe.delayed is not trimmed: %s", error)
