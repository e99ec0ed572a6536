"""The engine of a node over NATS JetStream: `LogEngine` by one connection that is made anew.

All of it happens in one event loop, in a thread of its own unless it is given one. What other
threads want is left in a queue, for which the loop comes once.

An entry is a message with the header `Nats-Msg-Id`, by which the server knows it again; its
acknowledgement comes on a subject of its own number. What is under way when the connection is lost
may be stored; what was not sent yet is not.
"""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from poe.cluster.log.engine import (
    ENTRY_MAX_BYTES,
    CatalogChanged,
    Connected,
    Disconnected,
    EngineEvent,
    EngineState,
    NotStored,
    PeerAsked,
    Stored,
    StreamState,
)
from poe.cluster.log.names import Names
from poe.cluster.log.nats_api import (
    CREATE,
    DELETE,
    INFO,
    MEMBERS_CHANGE,
    NO_SUITABLE_PEERS,
    NOT_A_MEMBER,
    REMOVE_SERVER,
    REPLICAS_ALONE,
    STEP_DOWN,
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    UPDATE,
    WRONG_LAST_SEQUENCE,
    answer_to_publish,
    catalog_settings,
    changed_settings,
    check_answer,
    error_code,
    is_reached,
    stream_settings,
    unfit_stream,
)
from poe.cluster.log.nats_follow import CATCHING_UP_MAX, CatalogFollow, StreamFollow
from poe.cluster.log.nats_frames import Message, status_of
from poe.cluster.log.nats_link import Link, LinkLost, NoResponders, TooLarge
from poe.cluster.log.nats_server import check_version
from poe.cluster.log.nats_target import FindTarget, Login, NatsTarget
from poe.errors import (
    CatalogChangedMeanwhile,
    ClusterError,
    LogEngineUnfit,
    NoQuorum,
    PoeError,
    TooFewNodes,
    UnknownNode,
    UnknownStream,
)

try:
    from uvloop import new_event_loop
except ImportError:  # no uvloop on this platform
    from asyncio import new_event_loop  # type: ignore[assignment]  # the same for our purposes

logger = logging.getLogger("poe.cluster")

ADMIN_S: Final = 10.0
"""What making or deleting a stream, setting a key and forgetting a node may take."""
TRY_S: Final = 2.0
"""Until a question that has no answer is asked again."""
RETRY_FIRST_S: Final = 0.1
RETRY_LAST_S: Final = 2.0
_FAR_S: Final = 0.5
"""Until another server is asked for what this one has not answered."""
_CLOSE_S: Final = 5.0
_DELETES_MAX: Final = 8
"""Streams that are deleted at a time: a node that starts does so of all that ever were deleted."""
_ID: Final = "Nats-Msg-Id"
_ID_BYTES: Final = 16
_REVISION: Final = "Nats-Expected-Last-Subject-Sequence"
_NOT_REACHED: Final = "the node's engine is not reached"
_NOT_YET: Final = "nats-server does not listen yet; should that stay so, log/nats.log tells why"
_ENGINE: Final = "the engine"
_LEAD_LOOK_S: Final = 0.25
"""Between two looks whether a stream is led by whom it is to be."""

Told = Callable[[Stored | NotStored], None]


class _Publishing(NamedTuple):
    """An entry to be sent."""

    stream: str
    entry_id: str
    payload: bytes
    deadline_s: float
    told: Told


class _UnderWay(NamedTuple):
    """An entry that was sent, or waits for that."""

    told: Told
    reply: str
    """On which it is acknowledged."""
    alarm: asyncio.TimerHandle


class NatsEngine:
    """A `LogEngine`; see there for what its methods do.

    Args:
        name: what the node is called among engines: that of its server, where it has one of its
            own, and what others ask it by.
        cluster: the name of its cluster.
        servers: where the engine is.
        loop: an event loop that runs in some thread; None: one of its own, in its own thread.
    """

    def __init__(
        self,
        name: str,
        cluster: str,
        servers: FindTarget,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._name = name
        self._names = Names(cluster)
        self._servers = servers
        self._given_loop = loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._hear: Callable[[EngineEvent], None] = _ignore
        self._lock = threading.Lock()
        self._left: deque[Callable[[], object]] = deque()
        self._is_told = False
        self._is_open = False
        # Of the loop's thread alone.
        self._link: Link | None = None
        self._why = _NOT_REACHED
        self._under_way: dict[int, _UnderWay] = {}
        self._unsent: OrderedDict[int, _Publishing] = OrderedDict()
        """Of those the ones that wait to be sent, in order."""
        self._follows: dict[str, StreamFollow] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._revisions: dict[str, int] = {}
        """Of each key, the newest one that was heard."""
        self._following: dict[str, asyncio.Task[Any]] = {}
        self._counts = dict.fromkeys(
            (
                "asks", "asks_failed", "asks_heard", "connections", "duplicates", "entries",
                "entry_bytes", "published", "refused", "stored", "timed_out",
            ),
            0,
        )  # fmt: skip

    # ---- what any thread calls ------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the node is called."""
        return self._name

    def open(self, hear: Callable[[EngineEvent], None]) -> None:
        """Begin to reach the engine."""
        self.close()  # an owner that was killed has not
        self._servers.target()  # it raises what will never go well
        self._hear = hear
        # Each belongs to the first loop in which somebody waits for it.
        self._catching_up = asyncio.Semaphore(CATCHING_UP_MAX)
        self._deleting = asyncio.Semaphore(_DELETES_MAX)
        self._unsent_event = asyncio.Event()
        loop = self._given_loop
        if loop is None:
            loop = new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(loop,), name="poe-log-engine", daemon=True
            )
            self._thread.start()
        self._loop = loop
        self._is_open = True
        self._do(partial(self._start, self._live()))

    def close(self) -> None:
        """Leave; waits for what is told, unless it is called within the loop."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        loop, thread = self._loop, self._thread
        if not was_open or loop is None:
            return
        self._hear = _ignore
        done = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(partial(self._close, done.set))
            if not _is_running_here(loop):
                done.wait(_CLOSE_S)
        if thread is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join(_CLOSE_S)

    def publish(
        self, stream: str, entry_id: str, payload: bytes, deadline_s: float, told: Told
    ) -> None:
        """Append an entry."""
        publishing = _Publishing(stream, entry_id, payload, deadline_s, told)
        if len(payload) > ENTRY_MAX_BYTES:
            told(NotStored(True, f"an entry has {ENTRY_MAX_BYTES} bytes at most"))
        elif not self._do(partial(self._send_soon, publishing)):
            told(NotStored(True, _NOT_REACHED))

    def follow(self, stream: str, after_place: int, follow_id: int) -> None:
        """Hear the entries behind a place."""
        self._do(partial(self._follow, stream, after_place, follow_id))

    def taken(self, stream: str, follow_id: int, place: int) -> None:
        """Note that entries up to a place are done with."""
        self._do(partial(self._has_taken, stream, follow_id, place))

    def unfollow(self, stream: str) -> None:
        """Hear no more of a stream."""
        self._do(partial(self._unfollow, stream))

    def make_stream(
        self,
        stream: str,
        replicas: int,
        bytes_max: int,
        told: Callable[[PoeError | None], None],
    ) -> None:
        """Make a stream, if it is not there."""
        self._answer(self._make(stream, replicas, bytes_max), told, NoQuorum(stream))

    def delete_stream(self, stream: str, told: Callable[[PoeError | None], None]) -> None:
        """Delete a stream."""
        self._answer(self._delete(stream), told, NoQuorum(stream))

    def put_catalog(
        self, key: str, value: bytes, revision: int, told: Callable[[int | PoeError], None]
    ) -> None:
        """Set what all nodes agree on under a key, if its revision is still that one."""
        self._answer(self._put_catalog(key, value, revision), told, NoQuorum(key))

    def stream_state(
        self, stream: str, deadline_s: float, told: Callable[[StreamState | PoeError], None]
    ) -> None:
        """Look at a stream."""
        self._answer(self._stream_state(stream, deadline_s), told, NoQuorum(stream))

    def state(self, deadline_s: float, told: Callable[[EngineState | PoeError], None]) -> None:
        """Look at the engine itself."""
        self._answer(self._state(deadline_s), told, NoQuorum(_ENGINE))

    def ask(
        self,
        node: str,
        payload: bytes,
        deadline_s: float,
        told: Callable[[bytes | PoeError | None], None],
    ) -> None:
        """Ask another node."""
        self._answer(self._ask(node, payload, deadline_s), told, None)

    def forget_node(self, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Take a node out of the engine."""
        self._answer(self._forget(node), told, NoQuorum(_ENGINE))

    def lead(self, stream: str, node: str, told: Callable[[PoeError | None], None]) -> None:
        """Have a node lead a stream."""
        self._answer(self._lead(stream, node), told, NoQuorum(stream))

    def metrics(self) -> dict[str, Any]:
        """Return counts since `open`."""
        return self._counts | {
            "connected": int(self._link is not None),
            "follows": len(self._follows),
            "under_way": len(self._under_way),
        }

    # ---- the way into the loop ------------------------------------------------------------------

    def _do(self, action: Callable[[], object]) -> bool:
        """Have something done in the loop's thread, in order; False: it is closed."""
        with self._lock:
            if not self._is_open or self._loop is None:
                return False
            self._left.append(action)
            is_told, self._is_told = self._is_told, True
            if not is_told:
                try:
                    self._loop.call_soon_threadsafe(self._do_all)
                except RuntimeError:  # the loop has ended
                    self._left.pop()
                    return False
        return True

    def _do_all(self) -> None:
        self._is_told = False
        left = self._left
        while left:
            left.popleft()()

    def _answer(
        self,
        working: Coroutine[Any, Any, Any],
        told: Callable[[Any], None],
        otherwise: PoeError | None,
    ) -> None:
        """Tell what a coroutine returns, or the error that it raises; `otherwise`: it was ended."""
        if not self._do(partial(self._work, working, partial(_tell, told, otherwise))):
            working.close()
            told(otherwise)

    def _work(
        self, working: Coroutine[Any, Any, Any], tell: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        self._start(working).add_done_callback(tell)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PoeError):
            logger.error("the engine's client has failed", exc_info=error)

    def _close(self, done: Callable[[], None]) -> None:
        self._do_all()
        self._start(self._end(done))

    async def _end(self, done: Callable[[], None]) -> None:
        try:
            link, self._link = self._link, None
            self._lose("it was closed")
            for follow in self._follows.values():
                follow.stop()
            self._follows.clear()
            self._revisions.clear()
            me = asyncio.current_task()
            others = [task for task in self._tasks if task is not me]
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=_CLOSE_S / 2)
            if link is not None:
                async with asyncio.timeout(_CLOSE_S / 2):
                    await link.close()
        except TimeoutError:
            return
        finally:
            done()

    # ---- the connection -------------------------------------------------------------------------

    async def _live(self) -> None:
        """Connect, again and again."""
        wait_s, told, turn = RETRY_FIRST_S, "", 0
        while self._is_open:
            try:
                link = await self._connect(turn)
            except (LinkLost, PoeError) as error:
                self._why = str(error)
                if self._why != told:
                    told = self._why
                    self._hear(Disconnected(told))
                turn += 1
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_LAST_S)
                continue
            wait_s, told = RETRY_FIRST_S, ""
            self._counts["connections"] += 1
            session = await self._begin(link)
            try:
                await link.closed.wait()
            finally:
                for task in session:
                    task.cancel()
                for task in self._following.values():
                    task.cancel()
                self._following.clear()
                self._link = None
                self._lose(link.why)
                self._why = told = link.why
            self._hear(Disconnected(told))
            await link.close()

    async def _connect(self, turn: int) -> Link:
        target = self._servers.target()
        if target is None:
            raise LinkLost(_NOT_YET)
        link = await Link.connect(target, target.urls[turn % len(target.urls)], target.login)
        try:
            _check_fit(link)
            await link.subscribe(self._names.node(self._name), self._hear_ask)
            await link.subscribe(self._names.all_nodes, self._hear_roll)
        except BaseException:
            await link.close()
            raise
        return link

    async def _begin(self, link: Link) -> list[asyncio.Task[Any]]:
        self._link = link
        self._hear(Connected(str(link.info.get("version", ""))))
        for follow in self._follows.values():
            self._run_follow(follow)
        return [self._start(self._send(link)), self._start(self._read_catalog(link))]

    def _lose(self, why: str) -> None:
        """Tell what became of all that is under way without a connection."""
        unsent, self._unsent = self._unsent, OrderedDict()
        under_way, self._under_way = self._under_way, {}
        for number, each in under_way.items():
            each.alarm.cancel()
            is_unsent = number in unsent
            self._tell_not(each.told, NotStored(is_unsent, _NOT_REACHED if is_unsent else why))

    # ---- entries --------------------------------------------------------------------------------

    def _send_soon(self, publishing: _Publishing) -> None:
        link = self._link
        if link is None:
            self._tell_not(publishing.told, NotStored(True, self._why))
            return
        assert self._loop is not None
        number, reply = link.expect(self._acknowledged)
        alarm = self._loop.call_later(publishing.deadline_s, self._timed_out, link, number)
        self._under_way[number] = _UnderWay(publishing.told, reply, alarm)
        self._unsent[number] = publishing
        self._unsent_event.set()

    async def _send(self, link: Link) -> None:
        """Send what there is, one after the other: so it is also stored in that order."""
        while True:
            while self._unsent:
                number, each = self._unsent.popitem(last=False)
                reply = self._under_way[number].reply
                self._counts["published"] += 1
                subject = self._names.subject(each.stream)
                try:
                    await link.publish(subject, each.payload, reply, {_ID: each.entry_id})
                except TooLarge:
                    self._settle(number, NotStored(True, "the engine takes no entry so large"))
                except LinkLost as error:
                    self._settle(number, NotStored(False, str(error)))
            self._unsent_event.clear()
            await self._unsent_event.wait()

    def _acknowledged(self, message: Message) -> None:
        number = int(message.subject.rpartition(b".")[2])
        if status_of(message.headers):
            why = "no server leads its stream"
            self._settle(number, NotStored(True, why))
            return
        try:
            answer = json.loads(message.payload)
            self._counts["duplicates"] += bool(answer.get("duplicate"))
            became = answer_to_publish(answer)
        except (ValueError, AttributeError):
            became = NotStored(False, "the engine gave no answer that is one")
        self._settle(number, became)

    def _timed_out(self, link: Link, number: int) -> None:
        self._counts["timed_out"] += 1
        link.forget(number)
        is_unsent = self._unsent.pop(number, None) is not None
        self._settle(number, NotStored(is_unsent, "the engine has not acknowledged it in time"))

    def _settle(self, number: int, became: Stored | NotStored) -> None:
        sent = self._under_way.pop(number, None)
        if sent is None:
            return
        sent.alarm.cancel()
        if self._link is not None:
            self._link.forget(number)
        if isinstance(became, Stored):
            self._counts["stored"] += 1
            sent.told(became)
        else:
            self._tell_not(sent.told, became)

    def _tell_not(self, told: Told, became: NotStored) -> None:
        self._counts["refused"] += became.is_sure
        told(became)

    # ---- streams that are followed --------------------------------------------------------------

    def _follow(self, stream: str, after_place: int, follow_id: int) -> None:
        self._unfollow(stream)
        follow = StreamFollow(
            stream, self._names.stream(stream), after_place, follow_id, self._catching_up,
            self._hear_followed,
        )  # fmt: skip
        self._follows[stream] = follow
        if self._link is not None:
            self._run_follow(follow)

    def _run_follow(self, follow: StreamFollow) -> None:
        assert self._link is not None
        task = self._start(_follow_on(follow, self._link))
        self._following[follow.stream] = task

    def _hear_followed(self, event: EngineEvent) -> None:
        entries = getattr(event, "entries", ())
        self._counts["entries"] += len(entries)
        self._counts["entry_bytes"] += sum(len(each.payload) for each in entries)
        self._hear(event)

    def _has_taken(self, stream: str, follow_id: int, place: int) -> None:
        follow = self._follows.get(stream)
        if follow is not None and follow.follow_id == follow_id:
            follow.has_taken(place)

    def _unfollow(self, stream: str) -> None:
        follow = self._follows.pop(stream, None)
        if follow is not None:
            follow.stop()
        task = self._following.pop(stream, None)
        if task is not None:
            task.cancel()

    # ---- streams --------------------------------------------------------------------------------

    def _there(self, what: str) -> Link:
        """Return the connection, if there is one.

        Raises:
            NoQuorum: there is none.
        """
        if self._link is None:
            raise NoQuorum(what)
        return self._link

    async def _api(
        self,
        subject: str,
        question: dict[str, Any] | None,
        what: str,
        deadline_s: float = ADMIN_S,
    ) -> dict[str, Any]:
        """Return an answer, which may be an error.

        Where nobody leads, nobody answers; and who leads later knows nothing of the question.

        Raises:
            NoQuorum: there is none.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    with contextlib.suppress(TimeoutError):
                        return await self._there(what).ask(subject, question, TRY_S)
        except (LinkLost, NoResponders, TimeoutError, TooLarge, ValueError) as error:
            raise NoQuorum(what) from error

    async def _make(self, stream: str, replicas: int, bytes_max: int) -> None:
        name = self._names.stream(stream)
        wanted = stream_settings(name, self._names.subject(stream), replicas, bytes_max)
        await self._make_stream(stream, wanted)

    async def _make_stream(self, stream: str, wanted: dict[str, Any]) -> None:
        name, replicas = wanted["name"], wanted["num_replicas"]
        answer = await self._api(CREATE + name, wanted, stream)
        code = error_code(answer)
        if code in (NO_SUITABLE_PEERS, REPLICAS_ALONE):
            raise TooFewNodes(replicas, await self._live_count(replicas))
        what = f"stream {stream!r}"
        if code == STREAM_NAME_IN_USE:
            answer = await self._api(INFO + name, None, stream)
        check_answer(answer, what)
        found = answer["config"]
        theirs = {key: found[key] for key in ("num_replicas", "max_bytes")}
        changed = changed_settings(wanted | theirs, found)
        if changed:
            raise unfit_stream(name, changed)
        if changed_settings(wanted, found) or found["max_bytes"] != wanted["max_bytes"]:
            answer = await self._api(UPDATE + name, wanted, stream)
            if error_code(answer) in (NO_SUITABLE_PEERS, REPLICAS_ALONE):
                raise TooFewNodes(replicas, await self._live_count(replicas))
            check_answer(answer, what)

    async def _live_count(self, replicas: int) -> int:
        """Return how many nodes' engines are reached; too few of them, where nobody says it."""
        try:
            nodes = (await self._state(2.0)).nodes
        except PoeError:
            return replicas - 1
        return min(sum(nodes.values()), replicas - 1)

    async def _delete(self, stream: str) -> None:
        async with self._deleting:
            answer = await self._api(DELETE + self._names.stream(stream), None, stream)
        if error_code(answer) == STREAM_NOT_FOUND:
            return
        check_answer(answer, f"to delete stream {stream!r}")

    async def _stream_state(self, stream: str, deadline_s: float) -> StreamState:
        name = self._names.stream(stream)
        answer = await self._api(INFO + name, None, stream, deadline_s)
        if error_code(answer) == STREAM_NOT_FOUND:
            raise UnknownStream(stream)
        check_answer(answer, f"to look at stream {stream!r}")
        settings, state, cluster = answer["config"], answer["state"], answer.get("cluster", {})
        leader = str(cluster.get("leader", ""))
        replicas = {leader: 0} | {
            str(each["name"]): int(each.get("lag", 0)) if is_reached(each) else -1
            for each in cluster.get("replicas", ())
        }
        # Who has lost the others leads on for 10 s, and stores nothing.
        there = sum(behind >= 0 for behind in replicas.values())
        if not leader or 2 * there <= len(replicas):
            raise NoQuorum(stream)
        wanted = stream_settings(
            name, self._names.subject(stream), settings["num_replicas"], settings["max_bytes"]
        )
        last = int(state["last_seq"])
        first = int(state["first_seq"]) or last + 1
        changed = changed_settings(wanted, settings)
        return StreamState(first, last, int(state["bytes"]), leader, replicas, changed)

    # ---- the catalog ----------------------------------------------------------------------------

    async def _read_catalog(self, link: Link) -> None:
        """Make the catalog, if it is not there, then hear all of it and what changes."""
        wanted = catalog_settings(self._names.catalog, self._names.catalog_subject + "*")
        wait_s = RETRY_FIRST_S
        told = ""
        while True:
            try:
                await self._make_stream("catalog", wanted)
                break
            except PoeError as error:
                if str(error) != told and not error.retriable:
                    told = str(error)
                    logger.error("%s", error)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_LAST_S)
        reading = CatalogFollow(
            self._names.catalog,
            self._names.catalog_subject,
            self._catching_up,
            self._hear_catalog,
        )
        await reading.run(link)

    def _hear_catalog(self, changed: CatalogChanged) -> None:
        """Have a value heard, unless a newer one was: a server may be behind, as it starts."""
        if changed.revision >= self._revisions.get(changed.key, 0):
            self._revisions[changed.key] = changed.revision
            self._hear(changed)

    async def _put_catalog(self, key: str, value: bytes, revision: int) -> int:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ADMIN_S
        subject = self._names.catalog_subject + key
        # Again with the same id, where it is not known what became of it: it is stored once.
        # No time is part of the id: two values within a tick of a clock would count as one.
        headers = {_ID: os.urandom(_ID_BYTES).hex(), _REVISION: str(revision)}
        wait_s = RETRY_FIRST_S
        while True:
            link = self._there(key)
            with contextlib.suppress(TimeoutError, LinkLost, ValueError):
                try:
                    text = await link.request(subject, value, ADMIN_S / 4, headers)
                except (NoResponders, TooLarge) as error:
                    raise NoQuorum(key) from error
                answer = json.loads(text)
                became = answer_to_publish(answer)
                if isinstance(became, Stored):
                    return became.place
                if error_code(answer) in WRONG_LAST_SEQUENCE:
                    raise CatalogChangedMeanwhile(key)
            if loop.time() > deadline_s:
                raise NoQuorum(key)
            await asyncio.sleep(wait_s)
            wait_s *= 2

    # ---- other nodes ----------------------------------------------------------------------------

    async def _ask(self, node: str, payload: bytes, deadline_s: float) -> bytes | None:
        self._counts["asks"] += 1
        try:
            link = self._there(node)
            return await link.request(self._names.node(node), payload, deadline_s)
        except (NoQuorum, NoResponders):
            self._counts["asks_failed"] += 1
            raise UnknownNode(node) from None
        except (LinkLost, TimeoutError, TooLarge):
            self._counts["asks_failed"] += 1
            return None

    def _hear_ask(self, message: Message) -> None:
        self._counts["asks_heard"] += 1
        self._hear(PeerAsked(message.payload, partial(self._answer_ask, message.reply.decode())))

    def _hear_roll(self, message: Message) -> None:
        self._send_answer(message.reply.decode(), self._name.encode())

    def _answer_ask(self, reply: str, answer: bytes) -> None:
        if reply:
            self._do(partial(self._send_answer, reply, answer))

    def _send_answer(self, reply: str, answer: bytes) -> None:
        if self._link is not None:
            self._start(_say(self._link, reply, answer))

    # ---- the servers themselves -----------------------------------------------------------------

    async def _state(self, deadline_s: float) -> EngineState:
        link = self._there(_ENGINE)
        target = self._servers.target()
        if target is None or target.system is None:
            return await self._state_by_catalog(link, deadline_s)
        async with self._system_link(target, target.system) as system:
            me = system.info.get("server_id", "")
            ask = partial(system.ask, question={"leader_only": False}, deadline_s=deadline_s)
            try:
                own = (await ask(f"$SYS.REQ.SERVER.{me}.JSZ"))["data"]
            except (LinkLost, NoResponders, TimeoutError, ValueError, KeyError) as error:
                raise NoQuorum(_ENGINE) from error
            meta: dict[str, Any] = own.get("meta_cluster", {})
            leader = ""
            with contextlib.suppress(LinkLost, NoResponders, TimeoutError, ValueError, KeyError):
                answer = await system.ask(
                    "$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True}, min(_FAR_S, deadline_s)
                )
                meta = answer["data"]["meta_cluster"]
                leader = str(meta["leader"])
        named = {str(each["name"]): each for each in meta.get("replicas", ())}
        # Others than the leader know of no other node whether it is reached.
        nodes = {name: bool(leader) and is_reached(each) for name, each in named.items()}
        nodes |= ({leader: True} if leader else {}) | {self._name: True}
        # It notices after 10 s that it leads nobody.
        leads = 2 * sum(nodes.values()) > len(nodes)
        version = str(link.info.get("version", ""))
        return EngineState(version, leader if leads else "", nodes, int(own.get("storage", 0)))

    async def _state_by_catalog(self, link: Link, deadline_s: float) -> EngineState:
        """Return what a client may know of servers that are somebody else's."""
        name = self._names.catalog
        answer = await self._api(INFO + name, None, _ENGINE, deadline_s)
        cluster = answer.get("cluster") or {}
        leader = str(cluster.get("leader", ""))
        servers = {str(each["name"]): is_reached(each) for each in cluster.get("replicas", ())}
        used = await self._api("$JS.API.INFO", None, _ENGINE, deadline_s)
        try:
            nodes = await link.ask_all(self._names.all_nodes, min(_FAR_S, deadline_s))
        except LinkLost as error:
            raise NoQuorum(_ENGINE) from error
        return EngineState(
            str(link.info.get("version", "")),
            leader,
            servers | ({leader: True} if leader else {}),
            int(used.get("storage", 0)),
            {each.decode(errors="replace"): True for each in nodes},
        )

    async def _lead(self, stream: str, node: str) -> None:
        """Have a node lead; whoever is elected meanwhile may have heard nothing of it."""
        subject = STEP_DOWN + self._names.stream(stream)
        preferred = {"placement": {"preferred": node}}
        loop = asyncio.get_running_loop()
        heard_by_s = loop.time() + TRY_S  # who has been elected just now has heard of nobody yet
        try:
            async with asyncio.timeout(ADMIN_S):
                while True:
                    with contextlib.suppress(NoQuorum):
                        state = await self._stream_state(stream, ADMIN_S)
                        if state.leader == node:
                            return
                        if state.replicas.get(node, -1) >= 0:
                            heard_by_s = loop.time() + TRY_S
                            await self._api(subject, preferred, stream)
                        elif node not in state.replicas or loop.time() > heard_by_s:
                            raise UnknownNode(node)
                    await asyncio.sleep(_LEAD_LOOK_S)
        except TimeoutError:
            raise NoQuorum(stream) from None

    async def _forget(self, node: str) -> None:
        target = self._servers.target()
        if target is None:
            raise NoQuorum(_ENGINE)
        if target.system is None:
            raise UnknownNode(node)  # no node is one of servers that are somebody else's
        self._there(_ENGINE)
        async with self._system_link(target, target.system) as system:
            answer, tries = await self._remove(system, node)
        if error_code(answer) == NOT_A_MEMBER:
            if tries > 1:  # the one before was heard, and its answer was not
                return
            raise UnknownNode(node)
        check_answer(answer, f"to forget node {node!r}")

    async def _remove(self, system: Link, node: str) -> tuple[dict[str, Any], int]:
        """Return the answer to the removal of a node, and which try it answers.

        Nobody answers while no server leads; who leads then knows nothing of the question.
        """
        tries = 0
        try:
            async with asyncio.timeout(ADMIN_S):
                while True:
                    tries += 1
                    with contextlib.suppress(TimeoutError):
                        answer = await system.ask(REMOVE_SERVER, {"peer": node}, TRY_S)
                        if error_code(answer) != MEMBERS_CHANGE:  # else one comes or goes just now
                            return answer, tries
                        await asyncio.sleep(_LEAD_LOOK_S)
        except (LinkLost, NoResponders, TimeoutError, ValueError) as error:
            raise NoQuorum(_ENGINE) from error

    @contextlib.asynccontextmanager
    async def _system_link(self, target: NatsTarget, login: Login) -> AsyncIterator[Link]:
        try:
            link = await Link.connect(target, target.urls[0], login)
        except LinkLost as error:
            raise NoQuorum(_ENGINE) from error
        try:
            yield link
        finally:
            await link.close()


def _check_fit(link: Link) -> None:
    """Refuse servers that promises cannot be kept with.

    Raises:
        LogEngineUnfit: it is one.
    """
    info = link.info
    check_version(str(info.get("version", "")), f"server {info.get('server_name', '?')}")
    if not info.get("jetstream"):
        why = "its server has no JetStream"
        raise LogEngineUnfit(why, "set `jetstream` there")
    if not info.get("headers"):
        why = "its server sends no headers"
        raise LogEngineUnfit(why, "remove `no_header_support` there")
    if link.max_payload < ENTRY_MAX_BYTES + _AROUND_BYTES:
        why = f"its server takes messages of {link.max_payload} bytes at most"
        raise LogEngineUnfit(why, f"set `max_payload` to {ENTRY_MAX_BYTES + (1 << 20)} there")


_AROUND_BYTES: Final = 4096
"""What an entry's headers may take."""


def _tell(told: Callable[[Any], None], otherwise: PoeError | None, task: asyncio.Task[Any]) -> None:
    """Tell what has become of a task; also of one that was ended before it had begun."""
    error = None if task.cancelled() else task.exception()
    if task.cancelled():
        told(otherwise)
    elif error is None:
        told(task.result())
    elif isinstance(error, PoeError):
        told(error)
    else:
        told(ClusterError(f"the engine has answered what nobody understands ({error!r})"))


async def _follow_on(follow: StreamFollow, link: Link) -> None:
    if not follow.is_over:
        await follow.run(link)


async def _say(link: Link, subject: str, payload: bytes) -> None:
    with contextlib.suppress(LinkLost, TooLarge):
        await link.publish(subject, payload)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _ignore(event: EngineEvent) -> None:
    """Stand in for who hears no more."""
