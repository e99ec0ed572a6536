"""What both queues share: leases come in, jobs go out, and the group is told what became of them.

All that waits runs on one event loop, in a thread of its own. Jobs are handed out, and ended, by
any thread, under a lock, without waiting for that loop: what is done is told with the next request
for messages, or a moment later. Of a lease whose messages were tried before, each is told at once,
and before the next one is handed out, so that a crash shows which one it was.
"""

import asyncio
import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, cycle
from typing import Any, NamedTuple

from poe.client.async_retrying_socket import LEFT
from poe.client.async_socket import AsyncSocket
from poe.client.consumer.loop_thread import FORKED
from poe.client.given_topics import Topics, topic_names
from poe.client.group.held_lease import HeldLease
from poe.client.group.job import Job
from poe.client.group.membership import MemberInfo, Membership, Reach
from poe.client.group.queue_options import QueueOptions
from poe.client.local_server import LocalServer
from poe.client.patience import pause_after
from poe.client.server_order import ServerOrder
from poe.client.timeouts import left_s
from poe.client.underway import Underway
from poe.client.url import servers_of
from poe.errors import (
    ClusterError,
    GroupFenced,
    InvalidEnvelope,
    LeaseLost,
    OptionError,
    PoeError,
    PropertyMismatch,
    QueueClosed,
    QueueMismatch,
    SequenceGap,
)
from poe.errors.timeout import check_delay
from poe.option import load_options
from poe.protocol import Done, Failed, LeaseReply, LeaseRequest, PutId
from poe.protocol.envelope import decode, encode_all
from poe.protocol.leases import Verdict
from poe.protocol.put import check_messages

_log = logging.getLogger(__name__)

COPIES_MAX = 64
DEADLINE_MAX_S = 60.0
"""What a queue across nodes may be asked for."""
DELAY_MAX_S = 10 * 365 * 86_400

_WAIT_S = 5.0
"""How long a request for messages waits for some."""
_PAUSE_S = 0.2
"""After a request that has failed."""
_TELL_MAX = 256
"""Ranges that are done in one request, and ranges that have failed: with the longest reasons less
than a server refuses."""
_ENVELOPES_MAX = 1000
"""Of so many topics it is kept whether their messages are envelopes."""
_CLOSE_S = 5.0
"""The end waits no longer for a server that does not answer."""
_PUT_GIVEN_UP = "it was closed, and what was being put may be stored"


_COUNTS = ("received", "done", "retry", "dead", "release", "late", "reconnect")

Call = Callable[[Callable[[AsyncSocket], Awaitable[LeaseReply]], float], Awaitable[LeaseReply]]
"""How a request is sent, and how long it lets the server wait."""


class _Destination(NamedTuple):
    """What a topic has for who puts onto it."""

    partitions: Iterator[bytes]
    has_envelope: bool
    is_queue: bool = False
    """Whether it is a queue across nodes."""


class PutTerms(NamedTuple):
    """When a put is to come, and what of a queue across nodes it asks for; see `Queue.put`."""

    delay_s: float = 0
    copies: int | None = None
    deadline_s: float | None = None

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            OptionError: names it.
        """
        check_delay(self.delay_s)
        if self.delay_s > DELAY_MAX_S:
            raise OptionError("delay_s", self.delay_s, f"0 to {DELAY_MAX_S} (seconds)")
        if self.copies is not None and not (
            type(self.copies) is int and 0 < self.copies <= COPIES_MAX
        ):
            raise OptionError("copies", self.copies, f"1 to {COPIES_MAX}")
        if self.deadline_s is not None:
            check_delay(self.deadline_s, "deadline_s")
            if self.deadline_s > DEADLINE_MAX_S:
                raise OptionError("deadline_s", self.deadline_s, f"0 to {DEADLINE_MAX_S} (seconds)")

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of `queue_put`, for what comes later."""
        due_us = time.time_ns() // 1000 + round(self.delay_s * 1e6)
        return {"due_us": due_us, **({"copies": self.copies} if self.copies else {})}


class _Told(NamedTuple):
    """What the group is told of leases."""

    done: list[Done]
    failed: list[Failed]
    is_again: bool = False
    """Whether it may have been told before."""

    @property
    def is_something(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.done or self.failed)


class QueueCore:
    """The work of one member of a group of mode `shared`.

    Always, under the lock: a lease is in `_leases` until all that became of it was told, and in
    `_ready` while some of its messages are there to be handed out.
    """

    def __init__(
        self,
        url: str | LocalServer,
        topics: Topics,
        group: str,
        arguments: Mapping[str, Any],
    ) -> None:
        self._options = options = load_options(QueueOptions, arguments)
        scheme, servers = servers_of(url, options.entry)
        if scheme != "poe":
            raise OptionError("url", url, "poe://host:port; Kafka has no queues")
        if not group or not isinstance(group, str):
            raise OptionError("group", group, 'a name, as in group="mailers"')
        self.group = group
        self._topics = topic_names(topics)
        reach = Reach(ServerOrder(servers), options.timeout_s, options.request_timeout_s)
        info = MemberInfo(
            group=group,
            mode="shared",
            topics=self._topics,
            instance=options.instance,
            options=options.group_options,
        )
        self._membership = Membership(reach, info, self, self._note_lost_connection)
        self._lease_socket = reach.socket(self._note_lost_connection)
        # Puts are no member's, and go anywhere.
        self._put_socket = reach._replace(servers=ServerOrder(servers)).socket(
            self._note_lost_connection
        )
        self._putting = asyncio.Lock()
        self._puts = Underway(partial(QueueClosed, _PUT_GIVEN_UP))
        self._destination: _Destination | None = None
        self._put_ids: dict[bytes, PutId] = {}
        self._envelopes: dict[bytes, bool] = {}

        self._lock = threading.RLock()
        self._leases: dict[int, HeldLease] = {}
        self._ready: deque[HeldLease] = deque()
        self._counts: Counter[str] = Counter()
        self._why = ""
        self._is_closed = False
        self._pid = os.getpid()
        self._failure: PoeError | None = None

        self._joining: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._asked = asyncio.Event()
        """Set when more messages are wanted."""
        self._ended = asyncio.Event()
        """Set when there is something to tell."""
        self._urgent = asyncio.Event()
        """Set when that is not to wait."""
        self._again: deque[_Told] = deque()
        """What may have been told or not, each as it was."""
        self._changed = asyncio.Event()
        """Set when a lease ends at another time than was known."""
        self._telling = asyncio.Lock()

    # ---- for any thread -----------------------------------------------------------------------

    def take(self) -> Job | None:
        """Hand a job out, if one is there.

        Raises:
            QueueClosed: it was closed, or this is a fork: the other process hands its jobs out.
            PoeError: the group could not be asked; it is asked again.
        """
        self._check_process()
        with self._lock:
            if self._is_closed:
                raise QueueClosed
            job = self._take()
            if job is None and self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            waiting_count = sum(each.waiting_count for each in self._ready)
        if job is not None and self._options.batch > 1 and waiting_count < self._options.batch // 2:
            self._set(self._asked)
        return job

    def finish(
        self,
        lease: HeldLease,
        number: int,
        failed: tuple[Verdict, float | None, str] | None = None,
    ) -> None:
        """Note what became of a job; see `Office`.

        Raises:
            LeaseLost: it is known already that the job is not this member's any more.
            QueueClosed: this is a fork.
        """
        self._check_process()
        with self._lock:
            if lease.is_lost:
                lease.working_count -= 1
                self._counts["late"] += 1
                raise LeaseLost(self.group, lease.id)
            lease.finish(number, failed)
            self._counts["done" if failed is None else failed[0]] += 1
        if failed is not None or lease.attempts:
            self._set(self._urgent)
        self._set(self._ended)

    def extend(self, lease: HeldLease, seconds: float) -> None:
        """Have a lease end later; see `Office`."""
        self._check_process()
        with self._lock:
            if lease.is_lost or self._loop is None:
                raise LeaseLost(self.group, lease.id)
            lease.extend_at_s = time.monotonic()
            lease.length_s = seconds
        self._set(self._changed)

    def statistics(self) -> dict[str, int]:
        """Return counts since it was made, and how many messages are held now."""
        self._check_process()
        with self._lock:
            leases = self._leases.values()
            return {
                **{key: self._counts[key] for key in _COUNTS},
                "leases": len(leases),
                "waiting": sum(each.waiting_count for each in leases),
                "working": sum(each.working_count for each in leases),
            }

    def is_in_call(self) -> bool:
        """Return whether this thread is in one of these calls; for what interrupts it."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 - as in `threading.Condition`

    def _check_process(self) -> None:
        """Refuse a fork: the other process works on all there is, and nobody here tells its group.

        Before the lock, which nobody here may ever give back.

        Raises:
            QueueClosed: it is one.
        """
        if self._pid != os.getpid():
            raise QueueClosed(FORKED)

    # ---- on the event loop --------------------------------------------------------------------

    async def has_joined(self, timeout_s: float) -> bool:
        """Join the group, if that was not done; False where it takes longer.

        Raises:
            QueueClosed: it is closed, or was while this waited.
            PoeError: a refusal, or no server could be reached; the next call tries it again.
        """
        if self._is_closed:
            raise QueueClosed
        joining = self._joining
        if joining is None:
            joining = self._joining = asyncio.create_task(self._join())
        if not joining.done():
            # It goes on when this has given up: who looks often and shortly would else never join.
            await asyncio.wait((joining,), timeout=timeout_s)
        if not joining.done():
            return False
        if joining.cancelled():
            raise QueueClosed
        if joining.exception() is not None and self._joining is joining:
            self._joining = None
        joining.result()
        return True

    async def wait(self, timeout_s: float) -> bool:
        """Wait until there may be a job; False where there was none in time.

        Raises:
            GroupMismatch: the group is of another mode, or of other topics.
            QueueClosed: it is closed, or was while this waited.
            PoeError: another refusal, or no server could be reached.
        """
        deadline_s = time.monotonic() + timeout_s
        if not await self.has_joined(timeout_s):
            return False
        if self._has_some():
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._asked.set()
        try:
            async with asyncio.timeout(left_s(deadline_s)):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True

    async def put(self, messages: Sequence[bytes], terms: PutTerms) -> int | None:
        """Put messages onto the topic, each once, however often it is tried; or onto the queue.

        Raises:
            OptionError: a term that cannot be, or it is a queue of several topics, or of a pattern.
            PropertyMismatch: the option `envelope` contradicts what the topic has.
            QueueClosed: it was closed while this waited for a server.
            PoeError: as `Queue.put`.
        """
        return await self._puts.run(self._put(messages, terms))

    async def _put(self, messages: Sequence[bytes], terms: PutTerms) -> int | None:
        terms.check()
        messages = list(map(bytes, check_messages(messages)))  # which nobody changes meanwhile
        if len(self._topics) != 1 or b"*" in self._topics[0]:
            raise OptionError("topics", self._topics, "one topic, to put onto it")
        (topic,) = self._topics
        async with self._putting:
            try:
                return await self._put_onto(topic, messages, terms)
            except (SequenceGap, PropertyMismatch):
                # It was made anew, or has forgotten who puts so rarely; nothing was stored there.
                self._destination = None
                self._put_ids.clear()
                return await self._put_onto(topic, messages, terms)

    async def _put_onto(
        self, topic: bytes, messages: Sequence[bytes], terms: PutTerms
    ) -> int | None:
        where = self._destination or await self._find_destination(topic)
        if where.has_envelope:
            messages = encode_all(messages)
        partition = next(where.partitions)
        if not where.is_queue and (terms.copies or 1) > 1:
            raise QueueMismatch(topic, "copies", terms.copies, 1)
        if terms.delay_s:
            later = {"topic": partition, "messages": messages, **terms.arguments()}
            if where.is_queue:
                later["queue"] = True
            await self._put_socket.call(lambda socket: socket.control("queue_put", **later))
            return None
        if not where.is_queue:
            return await self._put_once(partition, messages)
        return await self._put_onto_queue(topic, messages, terms)

    async def close(self) -> None:
        """Tell what became of the jobs, leave the group, and let go of all connections."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._ready.clear()
        self._wake_all()  # not only behind what is told, which may fail
        tasks = [*self._tasks, *([self._joining] if self._joining else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self._tasks:
                async with asyncio.timeout(_CLOSE_S):
                    while not self._let_go(are_told=True):
                        await self._tell()
        except (PoeError, TimeoutError) as error:
            _log.warning("group %s: messages that are done may come again: %s", self.group, error)
            self._let_go(are_told=False)
        await asyncio.gather(self._membership.close(), self._puts.end(_CLOSE_S))
        await asyncio.gather(self._lease_socket.close(), self._put_socket.close())

    # ---- for the membership -------------------------------------------------------------------

    def owned(self) -> list[bytes]:
        """Return no units: in this mode nobody owns any."""
        return []

    async def heard(self, granted: Mapping[bytes, Sequence[Any]], revoke: Sequence[bytes]) -> bool:
        """Note nothing: there are no units; see `Work`."""
        return bool(granted or revoke)

    async def lost(self) -> None:
        """Let go of all leases: the group has returned them."""
        with self._lock:
            for lease in self._leases.values():
                lease.is_lost = True
            self._leases.clear()
            self._ready.clear()

    def failed(self, error: PoeError) -> None:
        """Have the next one who asks for a job be told."""
        with self._lock:
            self._failure = error
        self._wake_all()

    # ---- inside -------------------------------------------------------------------------------

    async def _join(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._membership.open()
        steps = (self._lease_often(), self._tell_often(), self._keep_often())
        self._tasks = [asyncio.create_task(each) for each in steps]

    def _take(self) -> Job | None:
        now_s = time.monotonic()
        for lease in list(self._ready):
            if not lease.waiting_count or now_s >= lease.deadline_s:
                self._ready.remove(lease)
            while lease.may_hand_out(now_s):
                job = Job(self, lease, lease.take())
                if not lease.has_envelopes or self._open_envelope(job):
                    return job
        return None

    def _has_some(self) -> bool:
        """Return whether there is something to hand out, or to raise."""
        with self._lock:
            if self._is_closed or self._failure is not None:
                return True
            return any(each.may_hand_out(time.monotonic()) for each in self._ready)

    def _open_envelope(self, job: Job) -> bool:
        """Take a message out of its envelope; without one, nobody can ever work on it."""
        try:
            job.key, job.value, job.headers = decode(job.value or b"")
        except InvalidEnvelope as error:
            _log.warning("group %s: %s is a dead letter: %s", self.group, job, error)
            job.dead(str(error))
            return False
        return True

    def _let_go(self, *, are_told: bool) -> bool:
        """Have jobs end too late from now on; False where first something is to be told.

        Args:
            are_told: only if all that became of others is told.
        """
        with self._lock:  # since any thread may end one just now
            leases = self._leases.values()
            if are_told and (self._again or any(each.has_outcomes for each in leases)):
                return False
            for lease in leases:
                lease.is_lost = True
        return True

    def _set(self, event: asyncio.Event) -> None:
        """Set an event of the loop, from any thread."""
        loop = self._loop
        if not event.is_set() and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    def _wake_all(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _lease_often(self) -> None:
        """Ask for messages whenever there are too few."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            if not self._is_short():
                continue
            try:
                await self._lease()
            except PoeError as error:
                if isinstance(error, GroupFenced):
                    self._membership.hurry()  # it joins anew
                else:
                    self.failed(error)
                await asyncio.sleep(pause_after(error, _PAUSE_S))
            if self._waiters:
                self._asked.set()

    def _is_short(self) -> bool:
        """Return whether more messages are to be asked for, before there are none."""
        with self._lock:
            waiting_count = sum(each.waiting_count for each in self._ready)
        return waiting_count < max(1, self._options.batch // 2)

    async def _lease(self) -> None:
        """Ask for messages, and tell what became of others."""
        options = self._options
        told = self._collect(are_tried=False)
        limits = options.batch, options.fetch_bytes, _WAIT_S
        reply = await self._send(self._lease_socket.call, told, *limits)
        lease = HeldLease(reply.lease, reply.records, time.monotonic())
        self._tell_why(reply.lease.why)
        if not lease.id:
            return
        with self._lock:
            self._leases[lease.id] = lease
        try:
            lease.has_envelopes = await self._has_envelopes(lease)
        except PoeError:
            with self._lock:
                lease.give_back()
            self._ended.set()
            raise
        with self._lock:
            self._ready.append(lease)
            self._counts["received"] += lease.end
        self._changed.set()
        if lease.has_outcomes:
            self._ended.set()
        self._wake_all()

    def _tell_why(self, why: str) -> None:
        """Say in the log what keeps messages back, once each time that it is something else."""
        if why and why != self._why:
            _log.warning("nothing is handed out: %s", why)
        self._why = why

    async def _has_envelopes(self, lease: HeldLease) -> bool:
        topic = lease.topic
        if self._options.envelope is not None:
            return self._options.envelope
        known = self._envelopes.get(topic)
        # A topic may be deleted and made anew, as one of the other kind.
        if known is not None and (not lease.end or known != lease.begins_without_envelope()):
            return known
        if len(self._topics) == 1 and topic.startswith(self._topics[0] + b"@"):
            return False  # the stream of a queue across nodes, of which nobody tells
        found = await self._membership.call(lambda socket: socket.find_topic(topic))
        has_envelopes = found is not None and found.properties.envelope
        if len(self._envelopes) >= _ENVELOPES_MAX:
            self._envelopes.clear()
        self._envelopes[topic] = has_envelopes
        return has_envelopes

    async def _tell_often(self) -> None:
        """Tell what became of jobs: at once, or when it did not ride on another request."""
        while True:
            await self._ended.wait()
            self._ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.ack_interval_s):
                    await self._urgent.wait()
            self._urgent.clear()
            try:
                await self._tell()
            except PoeError as error:
                _log.warning("group %s: %s", self.group, error)
                await asyncio.sleep(pause_after(error, _PAUSE_S))
                self._ended.set()

    async def _tell(self) -> None:
        """Tell what became of jobs; messages that waited for it may be handed out then."""
        async with self._telling:
            while (told := self._collect(are_tried=True)).is_something:
                await self._send(self._membership.call, told, 0, 0, 0.0)
            with self._lock:
                for lease in self._ready:
                    lease.is_telling = False
        self._wake_all()

    def _collect(self, *, are_tried: bool) -> _Told:
        """Return what is to be told; of leases that were tried before only if that is asked for."""
        if self._again:
            self._ended.set()  # the rest follows
            return self._again.popleft()
        told, room = _Told([], []), _TELL_MAX
        with self._lock:
            for lease in list(self._leases.values()):
                if not lease.has_outcomes or (lease.attempts and not are_tried):
                    continue
                if not room:
                    self._ended.set()
                    break
                done, failed = lease.take_outcomes(room)
                told.done.extend(done)
                told.failed.extend(failed)
                ranges_count = sum(len(each.ranges or ((),)) for each in done)
                room -= min(room, max(ranges_count, len(failed)))
                lease.is_telling = True
                if lease.is_over:
                    del self._leases[lease.id]
        return told

    async def _send(
        self, call: Call, told: _Told, limit: int, bytes_max: int, wait_s: float
    ) -> LeaseReply:
        """Send a request for messages; what could not be told is told again.

        Raises:
            PoeError: the group's refusal, or no server could be reached.
        """
        member = self.group, self._membership.id
        request = LeaseRequest(*member, limit, bytes_max, wait_s, told.done, told.failed)
        attempts = count(int(told.is_again))

        async def ask(socket: AsyncSocket) -> LeaseReply:
            next(attempts)
            return await socket.lease(request)

        try:
            reply = await call(ask, wait_s)
        except BaseException:  # cancelled, too: it may be on its way, or not
            if told.is_something:
                self._again.append(told._replace(is_again=True))
            raise
        # What was told twice is not held any more, and not lost.
        if next(attempts) == 1 and reply.lease.lost:
            self._note_lost(reply.lease.lost)
        return reply

    def _note_lost(self, leases: Iterable[int]) -> None:
        """Note leases whose end was told too late; that costs nothing else."""
        with self._lock:
            for each in leases:
                self._counts["late"] += 1
                lease = self._leases.pop(each, None)
                if lease is not None:
                    lease.is_lost = True
                _log.warning("%s", LeaseLost(self.group, each))

    async def _keep_often(self) -> None:
        """Extend the leases of jobs that run; give back what nobody has taken for long."""
        while True:
            now_s = time.monotonic()
            with self._lock:
                leases = list(self._leases.values())
            due = [each for each in leases if each.extend_at_s <= now_s]
            if due:
                await self._keep(due)
                continue
            self._changed.clear()
            wait_s = min((each.extend_at_s for each in leases), default=math.inf) - now_s
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                    await self._changed.wait()

    async def _keep(self, leases: Iterable[HeldLease]) -> None:
        by_length: dict[float, list[HeldLease]] = {}
        with self._lock:
            for lease in leases:
                lease.extend_at_s = math.inf
                if lease.is_stuck():
                    lease.give_back()
                if lease.has_outcomes:  # of which nobody knows when the lease has ended
                    self._ended.set()
                    self._urgent.set()
                if lease.working_count:
                    by_length.setdefault(lease.length_s, []).append(lease)
        for length_s, held in by_length.items():
            ids = [each.id for each in held]
            now_s = time.monotonic()
            try:
                lost = await self._membership.ask("group_extend", leases=ids, seconds=length_s)
            except PoeError as error:
                _log.warning("group %s: leases are not extended: %s", self.group, error)
                for lease in held:
                    lease.extend_at_s = now_s + _PAUSE_S
                continue
            for lease in held:
                lease.deadline_s = now_s + length_s
                lease.extend_at_s = now_s + length_s / 2
            self._note_lost(lost)

    async def _find_destination(self, topic: bytes) -> _Destination:
        """Ask what the topic has; where it is not there yet, the next put asks again."""
        found = await self._put_socket.call(lambda socket: socket.find_topic(topic, is_queue=True))
        has_envelope = bool(self._options.envelope)
        if found is None:
            return _Destination(cycle([topic]), has_envelope)
        if found.queue is not None:
            self._destination = _Destination(cycle([topic]), has_envelope, is_queue=True)
            return self._destination
        found.check({"envelope": self._options.envelope})
        if found.is_told:
            has_envelope = found.properties.envelope
        partitions = [each.topic for each in found.partitions] or [topic]
        self._destination = _Destination(cycle(partitions), has_envelope)
        return self._destination

    async def _put_onto_queue(
        self, queue: bytes, messages: Sequence[bytes], terms: PutTerms
    ) -> int:
        """Have a node put messages; where its answer is lost, another one, and they come twice.

        Raises:
            PoeError: a refusal. What a queue refuses, its own deadline was tried for already.
        """
        copies, deadline_s = terms.copies or 0, terms.deadline_s or 0.0

        async def ask(socket: AsyncSocket) -> int | ClusterError:
            try:
                return await socket.put_onto_queue(queue, messages, copies, deadline_s)
            except LEFT:
                raise
            except ClusterError as error:
                return error

        told = await self._put_socket.call(ask, deadline_s)
        if isinstance(told, ClusterError):
            raise told
        return told

    async def _put_once(self, topic: bytes, messages: Sequence[bytes]) -> int:
        put_id = self._put_ids.pop(topic, None) or PutId(os.urandom(16), 0, 0)
        pointer = await self._put_socket.call(lambda socket: socket.write(topic, messages, put_id))
        # Not before: a number that may have been used, and was not answered, is not used again.
        self._put_ids[topic] = put_id._replace(sequence=put_id.sequence + 1)
        return pointer

    def _note_lost_connection(self) -> None:
        with self._lock:
            self._counts["reconnect"] += 1
