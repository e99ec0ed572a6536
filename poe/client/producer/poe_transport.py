"""Batches to this project's own server, as sequenced puts over one connection.

Strategy: whoever sends writes to the socket in its own thread, and who then only waits for the
answer receives there, too: each switch of threads would cost as much as the server's work. All else
is the loop's. Replies keep the order of the requests, so a queue of those who wait is all the
matching there is.
"""

import asyncio
import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from poe.actors.run_queue import HAS_SPARE_PROCESSOR
from poe.client.async_socket import connect_to
from poe.client.in_thread import in_thread
from poe.client.kept_login import KeptLogin
from poe.client.partition_topic import partition_topics
from poe.client.producer.delivery import Outcome
from poe.client.producer.payload import Message
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.shared_tls import SharedTls
from poe.client.producer.transport import Broker, Done, OutgoingBatch, Partition, TopicMetadata
from poe.client.server_order import ServerOrder
from poe.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionClosed,
    InvalidTopicName,
    LocalProtocolError,
    NoQuorum,
    OriginalServer,
    PoeError,
    PropertyMismatch,
    PutUnconfirmed,
    RemoteProtocolError,
    SecurityError,
    TlsFailed,
)
from poe.protocol import (
    FRAME_MAX,
    ControlReply,
    DescribedTopic,
    ErrorReply,
    PutReply,
    decode_reply,
    frame_header,
)
from poe.protocol.envelope import encode_all
from poe.protocol.exchange import Exchange
from poe.protocol.frames import SEQUENCED_PUT_REQUEST
from poe.protocol.original import ReplyReader
from poe.protocol.put import put_frame
from poe.protocol.server import Server
from poe.protocol.wire import Wire, connect_failure, find_cause, open_wire
from poe.topic_name import is_plain

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_MUTE_COUNT_MIN = 3
"""A server that was killed is mute, too, but not so often."""
_SEQUENCED_HEAD = frame_header(SEQUENCED_PUT_REQUEST, 0)
_SPIN_S = 100e-6
"""How long a call that waits looks for its answer before it sleeps."""
_LOOK_S = 0.1
"""How often who receives looks whether another thread has settled what it waits for."""
_INTERRUPTED = "a call was interrupted"


Shape: TypeAlias = tuple[tuple[bytes, ...], bool]
"""The topics that hold the partitions of a topic, and whether its messages are in envelopes."""


class PoeTransport:
    """One server, or the nodes of a cluster: at the first address that answers, until it fails.

    One that has left requests unanswered, or is cut off from the other nodes, has failed, too: a
    process that is stopped still takes connections.

    It tells what partitions a topic has, and whether its messages are in envelopes. Where it does
    not know, since nobody has said so or it is too old, the options count; so they do while it
    cannot be reached, but no message leaves before it was asked, and none is placed by its key.
    Of an unusual name it is asked whether it takes it, which its option `names` says.
    """

    numbers_puts = True
    times_out_requests = False
    takes_empty = False

    def __init__(self, servers: Sequence[Server], options: ProducerOptions) -> None:
        self._order = ServerOrder(servers)
        self._options = options
        self._links: dict[Server, PoeLink] = {}
        """The last one to each address."""
        self._asked: set[bytes] = set()
        self._known: dict[bytes, DescribedTopic | None] = {}
        """What it has told of those topics; None: nothing that counts."""
        self._mute_counts: Counter[Server] = Counter()
        """How many to each address were lost before any answer, one after the other."""

    async def metadata(self, topic: bytes) -> TopicMetadata:
        """Return the partitions that the server tells, or the options.

        Raises:
            PropertyMismatch: the options contradict what the topic has.
            SecurityError, ConfigError: the producer is not let in, or must not know the topic.
            ConnectFailed: nobody can be asked, and messages are placed by their keys.
        """
        self._asked.add(topic)
        failure: ConnectFailed | None = None
        for server in self._order.all:
            try:
                await self._learn(server, topic)
            except (PropertyMismatch, SecurityError, ConfigError):
                raise
            except PoeError as error:
                self._order.failed(server)
                failure = server.unreachable(str(error))
                if isinstance(error, ConnectFailed):
                    failure = error
                continue  # a worker's connection will tell of it
            failure = None
            break
        if failure is not None and self._must_be_told(topic):
            raise failure
        brokers = tuple(Broker(i, each.host, each.port) for i, each in enumerate(self._order.all))
        names, envelope = shape_of(topic, self._known.get(topic), self._options)
        partitions = tuple(Partition(i, 0) for i in range(len(names)))
        return TopicMetadata(topic, brokers, partitions, await self._refusal(names[-1]), envelope)

    def _must_be_told(self, topic: bytes) -> bool:
        """Return whether calls wait until a server has told: a key chooses among all partitions."""
        own = self._options.of(topic)
        is_by_key = own.strategy == "custom" or own.picker is not None
        return is_by_key and own.partitions is None and topic not in self._known

    async def _learn(self, server: Server, topic: bytes) -> None:
        """Ask a server what a topic has.

        Raises:
            PropertyMismatch: the options contradict it.
            PoeError: it cannot be asked.
        """
        async with await connect_to(server, timeout_s=_CONNECT_TIMEOUT_S) as connection:
            try:
                found = await connection.find_topic(topic)
            except (OriginalServer, LocalProtocolError):  # a name that is none is told later
                found = None
        if found is not None:
            options = self._options.of(topic)
            found.check({"partitions": options.partitions, "envelope": options.envelope})
        self._known[topic] = found if found is not None and found.is_told else None

    async def _refusal(self, name: bytes) -> PoeError | None:
        if is_plain(name):
            return None
        for server in self._order.all:
            try:
                async with await connect_to(server, timeout_s=_CONNECT_TIMEOUT_S) as connection:
                    await connection.wait(name, 0, 0.0)
            except (InvalidTopicName, LocalProtocolError) as error:
                return error
            except SecurityError:
                raise
            except PoeError:
                continue  # a worker's connection will tell of it
            break
        return None

    async def connect(
        self, topic: bytes, broker: Broker, on_lost: Callable[[str], None]
    ) -> "PoeLink":
        """Connect to the first address that answers.

        Raises:
            ConnectFailed, TlsFailed: none does as it should; it tells of the last one.
            SecurityError, ConfigError: the producer is not let in.
            PropertyMismatch: the options contradict what the topic has, about which nobody could
                be asked before.
        """
        del broker  # any address will do
        failure: ConnectFailed | TlsFailed | None = None
        for server in self._order.all:
            try:
                await self._check_server(server)
                # Of no other topic: what is wrong with that is not to keep this one waiting.
                if topic in self._asked - self._known.keys():
                    await self._learn(server, topic)
                wire = await _open(server)
            except (ConnectFailed, TlsFailed) as error:
                failure = error
                self._order.failed(server)
                continue
            except PoeError as error:
                if error.retriable:
                    self._order.failed(server)
                raise
            shared = _Shared(self._options, self._known, self._order)
            link = PoeLink(wire, server, shared, on_lost)
            self._links[server] = link
            return link
        assert failure is not None, "a url has an address"
        raise failure

    async def _check_server(self, server: Server) -> None:
        """Look what a server is that closes each connection without any answer.

        Raises:
            ConnectFailed: it is the original, which knows no sequenced puts.
            TlsFailed: it speaks TLS.
        """
        last = self._links.pop(server, None)
        if last is not None:
            count = self._mute_counts[server]
            self._mute_counts[server] = count + 1 if last.is_mute else 0
        if self._mute_counts[server] < _MUTE_COUNT_MIN:
            return
        found = await in_thread(partial(find_cause, server, _SEQUENCED_HEAD), "poe-cause")
        if isinstance(found, OriginalServer):
            raise server.unreachable(str(found))
        if found is not None:
            raise found

    def close(self) -> None:
        """Do nothing: there is nothing but links."""


async def _open(server: Server) -> Wire:
    """Connect, and log in, in a thread: a name, a file or a function may take their time.

    Raises:
        PoeError: as `open_wire`; ConnectFailed also where it takes too long.
    """
    opening = partial(open_wire, server, _CONNECT_TIMEOUT_S)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await in_thread(opening, "poe-connect", _drop)
    except TimeoutError as error:
        raise server.unreachable(connect_failure(error)) from error


def _drop(wire: Wire) -> None:
    wire.close("nobody waits for it any more")


def shape_of(topic: bytes, told: DescribedTopic | None, options: ProducerOptions) -> Shape:
    """Return what a topic has, as its server tells, or else as the options say."""
    if told is not None:
        return tuple(each.topic for each in told.partitions), told.properties.envelope
    own = options.of(topic)
    return partition_topics(topic, own.partitions or 1), bool(own.envelope)


class _Question:
    """A request that is no batch, with who waits for its reply; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.reply: asyncio.Future[ControlReply] = loop.create_future()

    def __call__(self, reply: Any) -> bool:  # noqa: ANN401 - a `ControlReply`, or an error
        """Take the reply, in any thread."""
        self._loop.call_soon_threadsafe(self._settle, reply)
        return True

    def _settle(self, reply: ControlReply | PoeError) -> None:
        if self.reply.done():
            return  # nobody waits any more
        if isinstance(reply, PoeError):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


def _decode(
    done: Callable[[Any], bool], message_type: int, body: memoryview
) -> int | ControlReply | PoeError:
    """Return the reply to what `done` waits for.

    Raises:
        RemoteProtocolError: it is none.
    """
    if type(done) is _Question:
        return decode_reply(ControlReply, message_type, body)
    reply = decode_reply(PutReply, message_type, body)
    return reply if isinstance(reply, PoeError) else reply.pointer


class _Shared(NamedTuple):
    """What all links of a producer share."""

    options: ProducerOptions
    known: Mapping[bytes, DescribedTopic | None]
    order: ServerOrder[Server]


class PoeLink:
    """One connection to a server; made in the loop's thread.

    Invariant: `_waiting` holds the `done` of each request that was written or waits in `_unsent`,
    in the order in which they go out; `_sending` guards both. `_receiving` guards what is received.
    """

    def __init__(
        self, wire: Wire, server: Server, shared: _Shared, on_lost: Callable[[str], None]
    ) -> None:
        self._options, self._known, self._order = shared
        self._server = server
        connection = wire.connection
        self._tls = SharedTls(connection) if isinstance(connection, ssl.SSLSocket) else None
        self._socket = self._tls or connection
        connection.setblocking(False)
        self._peer = str(server)
        self._on_lost = on_lost
        self.is_served = False
        self.is_mute = False
        """Whether it was lost before anything was answered that had been sent."""
        self._loop = asyncio.get_running_loop()
        self._reader = ReplyReader()
        self._sending = threading.Lock()
        self._waiting: deque[Callable[[Any], bool]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._is_torn = False
        """Whether nobody knows what of the last frame is out: an interrupt, such as Ctrl-C or the
        time limit of a task, has come between, or the connection is lost. Nothing is sent behind
        it, which the server would take for the rest of it, and store."""
        self._shapes: dict[bytes, tuple[DescribedTopic | None, Shape]] = {}
        self._warned: set[bytes] = set()
        self._closed_because = ""
        self._last_words = ""
        self._receiving = threading.Lock()
        # The loop watches an epoll of our own, of which any thread may take the socket out.
        self._epoll = select.epoll()
        self._epoll.register(connection, select.EPOLLIN)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._spins = HAS_SPARE_PROCESSOR
        self._loop.add_reader(self._epoll.fileno(), self._receive)
        self._login = KeptLogin(server, wire.channel, self._ask)
        self._login.keep(wire.renewal)

    # ---- sending, in any thread ---------------------------------------------------------------

    def send(self, batch: OutgoingBatch, done: Done) -> None:
        """Write a batch to the socket, or keep what it does not take."""
        try:
            frame = self._frame(batch)
        except PoeError as error:
            self._loop.call_soon_threadsafe(done, error)
            return
        except BaseException:  # a signal's: the batch counts as sent, and nobody would answer it
            self._loop.call_soon_threadsafe(self._lose, _INTERRUPTED)
            raise
        self._write(frame, done)

    def _write(self, frame: bytes, done: Callable[[Any], bool]) -> None:
        with self._sending:
            if self._closed_because:
                self._loop.call_soon_threadsafe(done, self._closed_error())
                return
            if self._is_torn:
                self._waiting.append(done)  # it is told with all others, in a moment
                return
            try:
                self._is_torn = True
                self._waiting.append(done)
                if self._unsent:
                    self._unsent.append(memoryview(frame))
                else:
                    self._send_some(frame)
                self._is_torn = False
            except BaseException as error:
                if isinstance(error, ssl.SSLError) or getattr(error, "errno", None) is not None:
                    # What the server has said before it closed can still be received, and then the
                    # end of the connection.
                    return
                # It is none of the socket's, though it may be a TimeoutError: a signal's.
                self._loop.call_soon_threadsafe(self._lose, _INTERRUPTED)
                raise

    def _send_some(self, frame: bytes) -> None:
        try:
            size = self._socket.send(frame)
        except BlockingIOError:
            size = 0
        if size < len(frame):
            self._unsent.append(memoryview(frame)[size:])
            self._loop.call_soon_threadsafe(self._watch_room)

    async def _ask(self, asked: Exchange[Any]) -> Any:  # noqa: ANN401 - of any exchange
        """Send a request that is no batch behind those under way; return what it comes to."""
        question = _Question(self._loop)
        self._write(asked.frame, question)
        return asked.finish(await question.reply)

    def _frame(self, batch: OutgoingBatch) -> bytes:
        known = self._shapes.get(batch.topic)
        if known is None or known[0] is not self._known.get(batch.topic):
            known = self._look_up(batch.topic)
        names, has_envelope = known[1]
        if batch.partition >= len(names):  # the topic is another one than it was
            asked = f"partition {batch.partition}"
            raise PropertyMismatch(batch.topic, "partitions", asked, len(names))
        name = names[batch.partition]
        values = batch.messages
        if has_envelope:
            values = encode_all(batch.messages)
        elif isinstance(values[0], Message):
            values = self._values(batch.topic, values)
        return put_frame(name, values, batch.put_id, FRAME_MAX)

    def _look_up(self, topic: bytes) -> tuple[DescribedTopic | None, Shape]:
        """Keep what is known of a topic: options are checked anew each time that one asks."""
        told = self._known.get(topic)
        self._shapes[topic] = found = told, shape_of(topic, told, self._options)
        return found

    def _values(self, topic: bytes, messages: Sequence[Message]) -> list[bytes]:
        """Return the values alone: a plain message of this server has nothing else."""
        if topic not in self._warned and any(each.key or each.headers for each in messages):
            self._warned.add(topic)
            _log.warning("keys and headers of %r are not stored; use envelope=True", topic)
        return [each.value or b"" for each in messages]

    # ---- the loop's thread --------------------------------------------------------------------

    def _watch_room(self) -> None:
        if not self._closed_because:
            self._loop.add_writer(self._socket, self._send_rest)

    def _send_rest(self) -> None:
        with self._sending:
            try:
                while self._unsent:
                    size = self._socket.send(self._unsent[0])
                    if size < len(self._unsent[0]):
                        self._unsent[0] = self._unsent[0][size:]
                        return
                    self._unsent.popleft()
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()  # as in `send`
            self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        if self._receiving.acquire(blocking=False):
            try:
                end = self._receive_once()
            finally:
                self._receiving.release()
            if end:
                self._lose(end)

    def _receive_once(self) -> str:
        """Receive what is there, and hand out replies; return why it was the end, or nothing."""
        try:
            while True:
                size = self._reader.receive(self._socket.recv_into)
                if not size:
                    return f"{self._peer} closed the connection{self._last_words}"
                while (frame := self._reader.next_frame()) is not None:
                    self._take(*frame)
                # Nobody is told of what OpenSSL has decrypted.
                if self._tls is None or not self._tls.pending():
                    break
        except BlockingIOError:
            pass
        except RemoteProtocolError as error:
            return str(self._reader.explained(error, self._peer))
        except OSError as error:
            return f"{self._peer} is gone ({error}){self._last_words}"
        return ""

    def assist(self, outcome: Outcome, timeout_s: float) -> None:
        """Receive in the caller's thread, any but the loop's, until `outcome` is settled.

        It returns earlier where another thread does so already, or the connection ends.
        """
        if not self._receiving.acquire(blocking=False):
            return
        end = ""
        is_whole = True
        try:
            deadline_s = time.monotonic() + timeout_s
            self._watch(0)
            while outcome.value is None and not self._closed_because and not end:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                if self._wait_readable(min(left_s, _LOOK_S)):
                    is_whole = False
                    end = self._receive_once()
                    is_whole = True
        finally:
            if not is_whole:  # nobody knows which replies were handed out
                end = _INTERRUPTED
            self._watch(select.EPOLLIN)
            self._receiving.release()
            if self._closed_because:
                self._close_socket()
            elif end:
                self._loop.call_soon_threadsafe(self._lose, end)

    def _wait_readable(self, timeout_s: float) -> bool:
        """Wait for bytes; for a moment without sleep, where that lately was enough.

        A thread that sleeps on a processor that has nothing else to do is woken late, in a virtual
        machine by tens of microseconds: as long as all the rest of a call takes.
        """
        begun_s = time.monotonic()
        if self._spins:
            while not self._poll.poll(0):
                if time.monotonic() - begun_s > _SPIN_S:
                    break
            else:
                return True
        is_readable = bool(self._poll.poll(1000 * timeout_s))
        self._spins = HAS_SPARE_PROCESSOR and time.monotonic() - begun_s < 2 * _SPIN_S
        return is_readable

    def _watch(self, events: int) -> None:
        if not self._closed_because:
            # Twice a call, and `contextlib.suppress` takes as long as the system call.
            try:  # noqa: SIM105 - see above
                self._epoll.modify(self._socket, events)
            except OSError:
                pass  # closed in this moment

    def _take(self, message_type: int, body: memoryview) -> None:
        """Hand one reply to the request it answers.

        Raises:
            RemoteProtocolError: it makes no sense.
        """
        if not self._waiting:
            if message_type != ErrorReply.MESSAGE_TYPE:
                msg = f"frame type {message_type} came without a request"
                raise RemoteProtocolError(msg)
            # A server that refuses the connection says why, and then closes it.
            self._last_words = f", after: {ErrorReply.decode(body).message}"
            return
        try:
            done = self._waiting[0]
            value = _decode(done, message_type, body)
            self._waiting.popleft()
        except IndexError:
            return  # the connection was closed in this moment, and all were told
        if not isinstance(value, PoeError):
            self.is_served, self._last_words = True, ""
        elif not self.is_served:
            # Maybe it refuses the connection, and the request was quicker.
            self._last_words = f", after: {value}"
        done(value)
        if isinstance(value, NoQuorum | PutUnconfirmed) and self._order.others_count:
            # Other nodes may reach each other, and have what this one does not take.
            self._loop.call_soon_threadsafe(self._leave, str(value))

    def close(self) -> None:
        """Close the connection; what was not answered may be stored."""
        self._end("it was closed here")

    def _leave(self, reason: str) -> None:
        self._order.failed(self._server)
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if not self._closed_because:
            self._end(reason)
            self._on_lost(reason)

    def _end(self, reason: str) -> None:
        self._login.end()
        with self._sending:
            if self._closed_because:
                return
            self._closed_because = reason
            self._unsent.clear()
            self._loop.remove_reader(self._epoll.fileno())
            self._loop.remove_writer(self._socket)
            with contextlib.suppress(OSError):  # the peer may have reset it
                self._socket.shutdown(socket.SHUT_RDWR)
            waiting, self._waiting = self._waiting, deque()
        if waiting:
            self._order.failed(self._server)
        self.is_mute = bool(waiting) and not (self.is_served or self._last_words)
        self._close_socket()
        for done in waiting:
            done(self._closed_error())

    def _close_socket(self) -> None:
        """Close it, unless a thread still receives: it has been woken, and then closes it.

        It is not waited for: it may itself wait for what the loop's thread holds now.
        """
        if self._receiving.acquire(blocking=False):
            try:
                self._epoll.close()
                self._socket.close()
            finally:
                self._receiving.release()

    def _closed_error(self) -> ConnectionClosed:
        msg = f"{self._closed_because}; the messages may have been stored"
        return ConnectionClosed(msg)
