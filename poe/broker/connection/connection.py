"""The connection: the actor that owns one client socket.

It turns received bytes into requests, has each carried out by one call, and sends the replies in
order. Records of a small reply are read, and leave with the head by one call, so that the peer
wakes up once; those of a large one leave by `sendfile`, and never enter Python. What the peer does
not take waits in the kernel: the connection then reads nothing more from it, so a slow reader costs
no memory here. A peer with many requests at once is served a few at a turn, so that others are too.
"""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias

from poe.actors import SHUTDOWN, Call, Exit, GenServer, Reason, Stop
from poe.actors.server_cell import ServerCell, cell_of_actor
from poe.actors.socket_watch import READABLE, SocketWatch
from poe.broker.access.access import GATEKEEPER, Access
from poe.broker.access.authentication import Channel
from poe.broker.access.meter import Meter
from poe.broker.access.permission import ALL_PERMISSIONS
from poe.broker.access.strangers import Place
from poe.broker.appendix.message import Get, Put
from poe.broker.connection.arrival import Arrival, ArrivalAlarm, HandshakeStep
from poe.broker.connection.input_deadline import TURN, InputAlarm, InputDeadline
from poe.broker.connection.peer import Peer, TlsPeer, cut_short
from poe.broker.connection.reply import error_reply, held_lease, make_reply
from poe.broker.connection.session import (
    AUTH,
    STRANGER_FRAME_MAX,
    ServesNothing,
    Session,
    SessionAlarm,
    SessionEnded,
)
from poe.broker.connection.stream import Stream
from poe.broker.registry.present import peer_name, traffic
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.byte_budget import ByteBudget, Holding, Room
from poe.broker.requests.groups import begin_lease, tell_undelivered
from poe.broker.requests.queue_messages import HeldRecords
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    AuthenticationExpired,
    AuthenticationFailed,
    AuthenticationRequired,
    ConnectionClosed,
    Overloaded,
    PoeError,
    ReadFailed,
    RemoteProtocolError,
    SecurityError,
)
from poe.errors.tracebacks import drop_tracebacks
from poe.option import Range, check_options
from poe.protocol import (
    FRAME_MAX,
    ControlReply,
    ControlRequest,
    DataReply,
    ErrorReply,
    FrameReader,
    LeaseReply,
    LeaseRequest,
    Messages,
    PointerRequest,
    PutReply,
    PutRequest,
    Request,
)
from poe.protocol.frame_memory import FrameMemory
from poe.protocol.leases import Lease
from poe.protocol.messages import REQUESTS
from poe.protocol.put import PUTS
from poe.storage import FileSlice, PutKey

logger = logging.getLogger("poe.broker")

Waiting: TypeAlias = Coroutine[Any, Any, None]
"""What is left to do of a request that has to wait for something."""
Ending: TypeAlias = Coroutine[Any, Any, Stop | None]
"""Something to wait for that may end in the end of the connection."""

_TOLD: Final = (RemoteProtocolError, SecurityError, Overloaded)
"""What ends a connection, and its peer is told of."""
_ENDINGS: Final = (*_TOLD, ConnectionClosed, OSError)

_PAYMENT_S: Final = 0.5
"""How long a peer that has used too much waits at once; then it is looked whether it still does."""

_TURN = range(32)
"""Requests that are served before other connections have their turn. Without a bound, 200 clients
that each sent 100 kB of small requests kept everybody else waiting for 12 s."""

_LINGER_S = 2.0
"""How long a peer that was told of its error has to take the news and to close."""

DRAIN_S = 3.0
"""How long a connection may go on once the node is to stop: with requests that have come, and with
a peer that takes its replies slowly."""
_GOODBYE_S = 0.5
"""How long a peer then has to take its last replies and to close; one that only idles, too."""

_AFTER_STALL_S = 0.1
_TURN_S = 1.0
_TURN_BYTES = 1024 * 1024
"""What a frame must grow by in each second while others wait for the memory that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Limits of one client connection.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    frame_max: Annotated[int, Range(1024, 2**31, unit="bytes")] = FRAME_MAX
    """Bytes in one frame, received or sent."""

    frame_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 10.0
    """Seconds that an unfinished frame may take, plus a second for each 16 KiB received of it."""

    send_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds that a peer may take no bytes of a reply."""

    put_timeout: Annotated[float, Range(is_above=True, unit="seconds")] = 30.0
    """Seconds that a put or a sync may wait for its disk; then the peer is told: it may be done."""

    idle_timeout: Annotated[float, Range(0, unit="seconds")] = 600.0
    """Seconds without a request until a connection is closed; 0 keeps it for ever."""

    def __post_init__(self) -> None:
        """Reject limits that no frame could keep."""
        check_options(self)


class ConnectionParts(NamedTuple):
    """What the connections of a listener share."""

    routes: RoutingTable
    memory: FrameMemory
    budget: ByteBudget
    options: ConnectionOptions
    access: Access | None = None
    """None: whoever connects may do everything."""


class Connection(GenServer):
    """Owns one client socket until either side closes it.

    Started by an acceptor through connection_sup; temporary: nobody restarts a connection but its
    client. Pinned to the event loop's thread.
    """

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(
        self,
        peer: Peer,
        parts: ConnectionParts,
        leave: Callable[[], object],
        place: Place | None = None,
        arrive: Callable[[GenServer], Arrival] | None = None,
    ) -> None:
        """Take over an accepted client; `leave` is called once it is closed.

        `place` is what it takes until it is let in; `arrive` begins its handshake, if there is one.
        """
        self._options = options = parts.options
        self._deadline = InputDeadline(self, options.frame_timeout, options.idle_timeout)
        self._budget = parts.budget
        self._holding = Holding(parts.budget, self._receive_again)
        self._room = Room(self._holding, options.frame_max)
        self._frames = FrameReader(options.frame_max, parts.memory)
        self._peer = peer
        self._receive_into, self._send, self._sendmsg = peer.receive_into, peer.send, peer.sendmsg
        self._copied_max = peer.copied_max
        self._encrypted = peer if isinstance(peer, TlsPeer) else None
        self._turn_bytes: int | None = None
        self._last_lease: tuple[str, Lease] | None = None
        """Of what group, if it was the last reply. A peer that had closed before it was sent never
        reads it; of one whose connection is cut, or that has asked for more, nobody knows, and it
        may well work on it."""
        self._leave = leave
        self._watch = SocketWatch(self, peer.client, self._closed)
        timeout_s = options.send_timeout
        self._stream = Stream(peer, self._frames, self._holding, self._watch, timeout_s)
        self._own_cell = cell_of_actor(self)
        self._routes = parts.routes
        is_open, put_timeout_s = peer.is_open, options.put_timeout
        self._session = None
        if parts.access is not None:
            self._session = Session(parts.access, parts.routes.topics_of_group, self)
        permissions = self._session or ALL_PERMISSIONS
        self._handler = RequestHandler(
            self, parts.routes, is_open, put_timeout_s, self._room, permissions, self._who
        )
        self._since_us = parts.routes.events.now_us()
        self._own_ref = str(self.ref)
        parts.routes.present.enter(self._own_ref, self._tell)
        self._place = place
        self._arrival = None if arrive is None else arrive(self)
        if self._arrival is None:
            self._arrived(Channel.of(peer.client))

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401 - a coroutine or a directive
        """Take readiness, the deadlines of the peer, and the parent's exit."""
        if message is READABLE:
            return self._receive() if self._arrival is None else self._arrive(self._arrival)
        if isinstance(message, InputAlarm):
            return self._check_peer(message)
        if isinstance(message, ArrivalAlarm):
            return None if self._arrival is None else self._arrival.refuse("it took too long")
        if isinstance(message, Exit):
            return Stop(message.reason)
        if isinstance(message, SessionAlarm):
            return self._check_session(message)
        super().handle_info(message)
        return None

    def terminate(self, reason: Reason) -> Waiting | None:
        """Close the socket; where the node stops, what has come is served before."""
        session = self._session
        is_served = self._arrival is None and (session is None or session.is_served)
        if reason == SHUTDOWN and is_served:
            return self._drain()
        self._peer.close_notify()
        self._watch.close()
        return None

    async def _drain(self) -> None:
        """Serve the requests that were received whole, say goodbye, and let the peer close."""
        try:
            # No more than this: who sends a request for each reply would never come to an end.
            left_bytes = self._peer.waiting_bytes()
            while left_bytes > 0 and not self._budget.is_full:
                try:
                    size = self._frames.receive(self._receive_into)
                except BlockingIOError:
                    break  # what has come is a part of a TLS record
                if not size:
                    break
                left_bytes -= size
                while (waiting := self._serve_frames()) is not None:
                    await waiting
                self._stream.release()
        except _ENDINGS as error:
            ending = self._give_up(error)
            if isinstance(ending, Coroutine):
                await ending
        else:
            self._stream.discard()
            self._peer.close_notify()
            await self._watch.say_goodbye(_GOODBYE_S)
        self._watch.close()

    def _closed(self) -> None:
        """Leave nothing behind, however this connection ends.

        What it has received may be many MiB, and must not wait for the garbage collector: these
        parts refer to the connection, and with them it would be a cycle.
        """
        self._deadline.cancel()
        self._routes.present.leave(self._own_ref)
        if self._arrival is not None:
            self._arrival.end()
        self._peer.drop_rest()
        self._stream.discard()
        if self._session is not None:
            self._session.leave()
        self._leave()
        del self._deadline, self._handler

    def _who(self) -> str:
        session, address = self._session, peer_name(self._peer.client)
        identity = None if session is None else session.identity
        return address if identity is None else f"{identity.principal} at {address}"

    def _tell(self) -> dict[str, Any]:
        """Return what who administers the node may know of the connection."""
        session = self._session
        identity = None if session is None else session.identity
        return {
            "address": peer_name(self._peer.client),
            "since_us": self._since_us,
            "user": "" if identity is None else identity.principal,
            "tls": self._encrypted is not None,
            "in_flight_bytes": self._holding.size_bytes,
            "is_paused": self._watch.is_paused,
            **traffic(self._peer.client),
        }

    # ---- arriving -----------------------------------------------------------------------------

    async def _arrive(self, arrival: Arrival) -> Stop | None:
        """Shake hands as far as the client has got; who is through is served from now on."""
        try:
            # A handshake is dear: thousands who come at once take turns with each part of it.
            await self._watch.wait_arrival_turn()
            arrival.shake_hands()
            while arrival.step is HandshakeStep.SEND:
                if not await self._watch.wait_writable(arrival.timeout_s):
                    return arrival.refuse("it does not read")
                arrival.shake_hands()
        except OSError as error:
            # OpenSSL has told the peer by an alert, which a reset would take away again.
            self._peer.close_notify()
            await self._watch.say_goodbye(_GOODBYE_S)
            return arrival.refuse(error.strerror or str(error))
        if arrival.step is HandshakeStep.DONE:
            self._arrival = None
            arrival.end()
            self._arrived(arrival.channel)
            if self._encrypted is not None:
                self._look_at_record(self._encrypted)
        self._watch.look_for_reset()
        if self._watch.is_paused:
            self._watch.resume()
        return None

    def _arrived(self, channel: Channel) -> None:
        """Serve the client from now on, or find out first who it is."""
        session = self._session
        if session is None:
            self._let_in()
            return
        session.arrived(channel)
        self._frames.limit(STRANGER_FRAME_MAX)

    def _let_in(self) -> None:
        self._frames.limit(self._options.frame_max)
        if self._place is not None:
            self._place.leave()

    # ---- receiving ----------------------------------------------------------------------------

    def _receive(self) -> Stop | Ending | None:
        """Receive once, then serve all whole frames; mostly without having to wait."""
        if self._budget.is_full and not self._may_receive():
            return None
        try:
            room_bytes = self._holding.room_bytes if self._budget.is_full else None
            size = self._frames.receive(self._receive_into, room_bytes)
            self._deadline.quiet_parts = 0
            if not size:
                return self._give_up(None)
            waiting = self._serve_frames()
        except BlockingIOError:
            self._stream.release()
        except _ENDINGS as error:
            return self._give_up(error)
        else:
            if waiting is not None:
                return self._serve_rest(waiting)
        self._await_more()
        return None

    async def _serve_rest(self, waiting: Waiting | None) -> Stop | None:
        """Serve the rest of the frames behind one that has to wait."""
        try:
            while waiting is not None:
                await waiting
                waiting = self._serve_frames()
        except _ENDINGS as error:
            ending = self._give_up(error)
            return await ending if isinstance(ending, Coroutine) else ending
        self._deadline.quiet_parts = 0  # a long poll is no silence of the peer's
        self._watch.tell_anew()
        self._await_more()
        return None

    def _await_more(self) -> None:
        frames = self._frames
        frames.release()
        if frames.pending_bytes or self._holding.size_bytes:
            self._holding.set(frames.held_bytes)
        if frames.pending_bytes:
            self._deadline.watch_frame()
            # Without a rest there was a reply to send, which would have met the reset.
            self._watch.look_for_reset()
        if self._watch.is_paused:
            self._watch.resume()
        if self._encrypted is not None and self._encrypted.is_owing:
            self._look_at_record(self._encrypted)

    def _look_at_record(self, peer: TlsPeer) -> None:
        """Make sure of what the event loop knows nothing of: what OpenSSL holds of a record."""
        if peer.is_mid_record:
            self._deadline.watch_frame()
        if peer.has_pending():
            self._watch.tell_while(peer.has_pending)

    def _has_more(self) -> bool:
        """Return whether there is something to receive."""
        if self._arrival is not None:
            return True  # that has a time of its own
        has_more = self._peer.has_more()
        if self._encrypted is not None:
            self._look_at_record(self._encrypted)
        return has_more

    def _give_up(self, error: Exception | None) -> Stop | Ending | None:
        """End the connection: the peer is gone, or has broken the protocol and is told so.

        Return None where it is told later.
        """
        if self._last_lease is not None:
            is_refused = isinstance(error, BrokenPipeError | ConnectionClosed)
            if is_refused or (error is None and self._peer.is_reset()):
                group, lease = self._last_lease
                tell_undelivered(self, self._routes, group, lease)
        # Not in a `finally`: if this actor is killed, whoever serves its request has views into it.
        self._stream.release()
        if error is not None:
            drop_tracebacks(error)  # their frames hold what was received
        if isinstance(error, AuthenticationFailed) and self._session is not None:
            self._punish()
            return None
        return self._hang_up(error) if isinstance(error, _TOLD) else Stop("normal")

    def _serve_frames(self) -> Waiting | None:
        """Serve what was received, up to a request that has to wait or the end of a turn.

        Raises:
            RemoteProtocolError: the stream cannot be followed any more.
            AuthenticationRequired, AuthenticationExpired: nobody knows who the peer is.
            ConnectionClosed, OSError: a reply cannot be sent.
        """
        frames = self._frames
        for _ in _TURN:
            if not frames.pending_bytes or (frame := frames.next_frame()) is None:
                return None
            self._deadline.unfinished_since_s = None
            self._last_lease = None
            message_type, body = frame
            request = REQUESTS[message_type].decode(body)
            session = self._session
            if session is None:
                waiting = self._serve(request)
            else:
                waiting = self._serve_allowed(session, request, len(body))
            if waiting is not None:
                return waiting
        return self._end_turn()

    def _serve_allowed(self, session: Session, request: Request, size_bytes: int) -> Waiting | None:
        """Serve a request if the peer may make it.

        Raises:
            AuthenticationRequired, AuthenticationExpired: nobody knows who it is.
            OSError: the reply cannot be sent.
        """
        if session.admits(request):
            waiting = self._serve(request)
        elif isinstance(request, ControlRequest) and request.op == AUTH:
            waiting = self._authenticate(session, request)
        else:
            waiting = self._serve_checked(session, request)
        if session.meter is None:
            return waiting
        return self._serve_metered(session, session.meter, request, size_bytes, waiting)

    def _serve_checked(self, session: Session, request: Request) -> Waiting | None:
        try:
            session.check(request)
        except (AuthenticationRequired, AuthenticationExpired):
            raise
        except PoeError as error:
            return self._reply(error_reply(error, request, self._routes))
        return self._serve(request)

    def _authenticate(self, session: Session, request: ControlRequest) -> Waiting | None:
        """Take a step of finding out who the peer is.

        Raises:
            AuthenticationFailed, Overloaded, RemoteProtocolError: it is not to be served.
            OSError: the reply cannot be sent.
        """
        told = session.authenticate(request.arguments)
        if not session.is_stranger:
            self._let_in()
        return self._reply(ControlReply(request.id, told).encode())

    def _punish(self) -> None:
        """Hear no more of who did not prove who it is; it is told later, and keeps its place."""
        self._deadline.unfinished_since_s = None
        self._stream.discard()
        self._watch.pause()
        if self._place is not None:
            self._place.is_kept = True

    def _serve_metered(
        self,
        session: Session,
        meter: Meter,
        request: Request,
        size_bytes: int,
        waiting: Waiting | None,
    ) -> Waiting | None:
        """Count a request that was served; where the peer owes time, have it wait."""
        meter.asked()
        if isinstance(request, PUTS):
            meter.wrote(size_bytes)
        return None if waiting is None and not meter.owed_s() else self._pay(session, waiting)

    async def _pay(self, session: Session, waiting: Waiting | None) -> None:
        if waiting is not None:
            await waiting
        self._stream.release()
        while owed_s := min(session.owed_s(), _PAYMENT_S):
            # Who has gone waits for nothing. Who only says that nothing more comes is answered what
            # has come, and were all of that served at once, there would be no quota.
            is_there = self._frames.pending_bytes or self._peer.is_open()
            if self._routes.is_closing or not is_there:
                break
            session.throttled(owed_s)
            await self.sleep(owed_s)

    async def _end_turn(self) -> None:
        """Let other connections have their turn."""
        self._stream.release()
        await self._stream.wait_room()

    def _serve(self, request: Request) -> Waiting | None:
        """Carry a request out and reply at once if nothing has to be waited for.

        Raises:
            OSError: the reply cannot be sent.
        """
        begun = None
        if type(request) is PointerRequest:
            topic, pointer, limit = request
            bytes_max = self._options.frame_max - 2
            begun = begin_get(self._own_cell, self._routes, topic, pointer, limit, bytes_max)
            if begun is not None and begun.is_done and (found := begun.value) is not None:
                return self._reply(DataReply.header(found.length), found)
        elif isinstance(request, PutRequest):
            begun = begin_put(self._own_cell, self._routes, *request)
            if begun is not None and begun.is_done and type(begun.value) is int:
                return self._reply(PutReply.frame(begun.value))
        elif type(request) is LeaseRequest:
            begun = begin_lease(self._own_cell, self._routes, request, self._room)
            if begun is not None and begun.is_done and (leased := begun.value) is not None:
                lease, found = leased
                if found is not None:
                    self._last_lease = request.group, lease
                    if type(found) is HeldRecords:
                        return self._reply(held_lease(lease, found))
                    size = found.records.length
                    head = LeaseReply.head(lease, found.entries, size, found.ordinal)
                    return self._reply(head, found.records)
        return self._serve_waiting(request, begun)

    def _reply(self, head: bytes | memoryview, records: FileSlice | None = None) -> Waiting | None:
        """Send a reply: `head`, then the bytes of `records`; return what is left to do.

        Raises:
            OSError: the peer is gone.
            ConnectionClosed: the data file was cut by another program, or cannot be read.
        """
        sent = 0
        if self._session is not None and self._session.meter is not None:
            self._session.meter.read(len(head) + (0 if records is None else records.length))
        try:
            if records is None:
                sent = self._send(head)
                if sent == len(head):
                    return None
            elif records.length <= self._copied_max:
                try:
                    content = records.content or records.file.read_at(
                        records.length, records.offset
                    )
                except OSError as error:  # nothing is sent yet
                    failed = ReadFailed("the records", error.strerror or str(error))
                    return self._reply(ErrorReply.from_error(failed).encode())
                if len(content) < records.length:
                    raise cut_short()
                sent = self._sendmsg((head, content))
                if sent == len(head) + records.length:
                    return None
        except BlockingIOError:
            pass
        rest = head[sent:]
        if records is None:
            is_out = self._peer.push(rest)
        else:
            start, end = records.offset, records.offset + records.length
            start += max(sent - len(head), 0)
            is_out = self._peer.push(rest, records.file, start, end)
        return None if is_out else self._stream.finish()

    async def _serve_waiting(self, request: Request, begun: Call | None) -> None:
        """Carry a request out, of which a first call may have begun, and reply.

        Raises:
            ConnectionClosed, OSError: the reply cannot be sent.
        """
        if begun is None or not begun.is_done or isinstance(request, PutRequest):
            # It may wait for news for a minute, for a slow disk, or for a put to be made again, and
            # 10 000 clients that do so must not have a buffer each.
            request = self._stream.release_for(request, begun)
        # Not given a name here: it may be large, and is to be gone once it is sent.
        rest = self._reply(*await make_reply(self._handler, request, begun, self._room))
        if rest is not None:
            await rest
        if isinstance(request, ControlRequest) and self._frames.pending_bytes:
            # It may have asked all topics, and so takes a whole turn.
            await self._end_turn()

    async def _hang_up(self, error: PoeError) -> Stop:
        """Say why nothing more is received, then wait for the peer to close.

        Closed at once, with bytes that were not received, the socket would be reset, and replies
        that are still on their way be lost: those to earlier requests, and this one.
        """
        logger.info("%s is hung up on: %s", self.ref, type(error).__name__)
        self._deadline.unfinished_since_s = None
        self._stream.discard()
        try:
            rest = self._reply(ErrorReply.from_error(error).encode())
            if rest is not None:
                await rest
            self._peer.close_notify()
            await self._watch.say_goodbye(_LINGER_S)
        except (ConnectionClosed, OSError):
            pass  # the peer has gone, which is what we wanted
        return Stop("normal")

    def handle_cast(self, message: SessionEnded) -> Any:  # noqa: ANN401 - a coroutine
        """Hang up on a peer that is not to be served any more."""
        del message
        self.cast(GATEKEEPER, ServesNothing(self.ref))
        return self._hang_up(AuthenticationExpired())

    def _check_session(self, alarm: SessionAlarm) -> Stop | Ending | None:
        """Look whether the time of a stranger, or of what has proved who the peer is, is over."""
        ending = None if self._session is None else self._session.ending(alarm)
        return self._hang_up(ending) if isinstance(ending, PoeError) else ending

    def _check_peer(self, alarm: InputAlarm) -> Stop | Ending | None:
        """Look whether the peer has had enough of our patience."""
        match alarm:
            case InputAlarm.LATE:
                return self._check_late()
            case InputAlarm.QUIET:
                return self._check_idle()
            case InputAlarm.TURN:
                return self._check_turn()

    async def _check_late(self) -> Stop | None:
        """Close a connection whose frame makes no progress."""
        elapsed_s = self._deadline.overdue_s(self._frames.pending_bytes)
        if elapsed_s is None:
            return None
        if self._has_more():
            # Its bytes are here: it is this process that was late.
            self._deadline.look_again_after(_AFTER_STALL_S)
            return None
        msg = (
            f"a frame is not whole after {elapsed_s:.0f} s; send it within frame_timeout, "
            f"{self._options.frame_timeout:.0f} s and a second for each 16 KiB"
        )
        return await self._hang_up(RemoteProtocolError(msg))

    def _check_idle(self) -> Stop | None:
        """Close a connection whose peer says nothing."""
        return Stop("normal") if self._deadline.is_idle() and not self._has_more() else None

    # ---- back-pressure ------------------------------------------------------------------------

    def _may_receive(self) -> bool:
        """Return whether there is room for more; if not, the socket's buffers slow the peer."""
        if self._holding.may_receive():
            if self._holding.is_going and self._turn_bytes is None:
                self._begin_turn()
            return True
        self._deadline.unfinished_since_s = None  # from now on it is us who take our time
        self._watch.pause()
        return False

    def _receive_again(self) -> None:
        """Receive again, as the budget says."""
        self._deadline.watch_frame()
        if self._turn_bytes is None:
            self._begin_turn()
        self._watch.resume()
        if self._encrypted is not None:
            self._look_at_record(self._encrypted)

    def _begin_turn(self) -> None:
        self._turn_bytes = self._frames.pending_bytes
        self.send_after(_TURN_S, TURN)

    async def _check_turn(self) -> Stop | None:
        """Hang up on a peer that is slow to finish its frame while others wait for the memory."""
        before_bytes, self._turn_bytes = self._turn_bytes or 0, None
        if not self._holding.is_going:
            return None
        is_slow = self._frames.pending_bytes - before_bytes < _TURN_BYTES
        if is_slow and self._budget.has_line and not self._has_more():
            return await self._hang_up(Overloaded("in_flight_max", self._budget.bytes_max))
        self._begin_turn()
        return None


def begin_put(
    cell: ServerCell,
    routes: RoutingTable,
    topic: bytes,
    messages: Messages,
    put_id: PutKey | None = None,
) -> Call | None:
    """Make the call that a put usually takes; None when the topic has no writer yet.

    Mostly it is done at once, and its value the pointer. `RequestHandler.put` goes on from it if
    not; nor is it made for a name that may be reserved, at which that looks.
    """
    route = routes.get(topic)
    if route is None or topic[:4] == b"poe.":
        return None
    return cell.call_leaf(route.refs[-1], Put(messages, put_id))


def begin_get(  # noqa: PLR0913, PLR0917 - who asks, and what
    cell: ServerCell,
    routes: RoutingTable,
    topic: bytes,
    pointer: int,
    limit: int,
    bytes_max: int,
) -> Call | None:
    """Make the call that a get usually takes; None when the topic has no route.

    Mostly it is done at once, and its value the `FileSlice`. `RequestHandler.get` goes on from it
    if not.
    """
    route = routes.get(topic)
    if route is None:
        return None
    # Of most topics there is one segment, and nothing to look for.
    reader = route.reader(pointer) if route.bounds else route.refs[-1]
    return cell.call_leaf(reader, Get(pointer, limit, bytes_max))
