"""The listener: acceptors, and the supervisors of acceptors and connections.

`listener_sup` binds the ports when it starts, which is after recovery; under it lives
`connection_sup` with a connection for each client, and acceptors, several of which share a port:
one of them is for plaintext, and one for TLS.

Source: poe_appendix_sup.erl, poe_tcp.erl; Ranch for connections that outlive an acceptor's crash.
"""

import contextlib
import errno
import logging
import resource
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NamedTuple

from poe.actors import KILL, SHUTDOWN, GenServer, Reason
from poe.actors.socket_watch import READABLE, SocketWatch
from poe.broker.access.access import Access
from poe.broker.access.listen_address import ListenAddress
from poe.broker.access.options import SecurityOptions
from poe.broker.access.strangers import Place, Strangers
from poe.broker.access.tls_holder import TlsHolder
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.connection.arrival import Arrival
from poe.broker.connection.client_count import ClientCount
from poe.broker.connection.connection import DRAIN_S, Connection, ConnectionOptions, ConnectionParts
from poe.broker.connection.peer import PlainPeer, TlsPeer
from poe.broker.connection.spare_descriptor import SpareDescriptor
from poe.broker.log_limit import ONCE_A_MINUTE
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.byte_budget import ByteBudget
from poe.broker.requests.events import EVENTS
from poe.broker.requests.groups import GROUPS
from poe.errors import Overloaded, PoeError
from poe.option import Range, check_options
from poe.protocol import ErrorReply
from poe.protocol.frame_memory import FrameMemory
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    dynamic_supervisor,
    start_dynamic_child,
)

logger = logging.getLogger("poe.broker")

_SCRATCHES_MAX = 16
_BLOCKS_MAX = 6
"""Scratches, and blocks for large frames, that stay when all clients have gone: 2 and some 6 MiB.
"""

CONNECTION_SUP = "connection_sup"
ACCEPTORS_COUNT = 10
TLS_ACCEPTORS_COUNT = 2
"""Fewer: what comes after the accept takes longer, and others are to be served between."""

_ACCEPTS_MAX = 4
"""Clients that an acceptor takes before it hears what else it was told, such as to end."""
_REFUSALS_MAX = 16
"""Clients that it turns away at once where there is no descriptor for them."""
_PAUSE_S = 0.2
_FILES_RESERVED = 16
"""Descriptors that clients leave to segments: what one needs to be opened, a few times over."""
_LINGER_S = 1.0
"""How long a client that was refused has to read why."""
_LEAVING_MAX = 100
_DISCARDED_BYTES = 1 << 20
_CLOSE_OLDEST = object()
_PEERS_FAULTS = frozenset(
    {
        errno.ENETDOWN,
        errno.EPROTO,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.EPERM,
    }
)
"""What accept reports of a client that is gone already, or that a firewall refuses (accept(2))."""


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps what was looked up
class ListenerOptions:
    """Where clients connect, and how many may.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    host: str = "127.0.0.1"
    """Address to listen on; others than loopback need `insecure`, for nothing is encrypted."""

    port: Annotated[int | None, Range(0, 65535)] = 5555
    """0 takes any free port.

    None means no listener, for a node that only its own process uses.
    """

    insecure: bool = False
    """Allow an address that others can reach."""

    connections_max: Annotated[int, Range(1, unit="connections")] = 10_000
    """Clients at a time; more are told so and closed."""

    connections_per_address_max: Annotated[int | None, Range(1, unit="connections")] = None
    """The same for each address that clients come from; None sets no limit."""

    in_flight_max: Annotated[int, Range(65536, unit="bytes")] = 268_435_456
    """Bytes in memory of unfinished requests and replies, of all clients together."""

    def __post_init__(self) -> None:
        """Reject addresses that would open the node to others by accident."""
        check_options(self)
        if not self.insecure:
            self.address  # noqa: B018 - refuses one that others can reach

    @cached_property
    def address(self) -> ListenAddress:
        """Where `host` leads.

        Raises:
            OptionError: nowhere, or to others, and `insecure` is not set.
        """
        return ListenAddress.of(self.host, is_public=self.insecure)


@dataclass(slots=True)
class BoundPort:
    """The port that the node listens on, and the socket that does.

    Both outlive a listener_sup that crashes: the next one goes on with the socket. Binding anew
    would fail as long as an acceptor of the old one holds its copy.
    """

    port: int | None = None
    listening: socket.socket | None = None

    def listen(self, address: ListenAddress, port: int) -> None:
        """Listen, at the port of before if there was one, unless that is done already.

        Raises:
            PortInUse, OptionError: as for `ListenAddress.listen`.
        """
        if self.listening is None:
            self.listening = address.listen(self.port or port)
            self.port = self.listening.getsockname()[1]

    def close(self) -> None:
        """Listen no more; the port is remembered."""
        if self.listening is not None:
            self.listening.close()
            self.listening = None


@dataclass(frozen=True, slots=True)
class BoundPorts:
    """The ports that a node listens on: in plaintext, and with TLS."""

    plain: BoundPort = field(default_factory=BoundPort)
    tls: BoundPort = field(default_factory=BoundPort)

    def close(self) -> None:
        """Listen no more."""
        self.plain.close()
        self.tls.close()


@dataclass(frozen=True, slots=True)
class ListenerParts:
    """What the listener's actors share."""

    routes: RoutingTable
    options: ListenerOptions
    connection_options: ConnectionOptions
    security: SecurityOptions = field(default_factory=SecurityOptions)
    tls: TlsHolder | None = None
    """With `tls_port`."""

    access: Access | None = None
    """With `users`; None: whoever connects may do everything."""

    bound: BoundPorts = field(default_factory=BoundPorts)
    memory: FrameMemory = field(
        default_factory=lambda: FrameMemory(blocks_max=_BLOCKS_MAX, scratches_max=_SCRATCHES_MAX)
    )
    """What connections receive into."""

    @property
    def is_needed(self) -> bool:
        """Whether clients can come by any port."""
        return self.options.port is not None or self.security.tls_port is not None


class ListenerSup(Supervisor):
    """rest_for_one: connection_sup, then the acceptors; opens and closes the listening socket."""

    async def init(self, parts: ListenerParts) -> Any:  # noqa: ANN401 - the runtime's directive
        """Make way for our children, then start them.

        A listener_sup that was killed leaves a connection_sup that says goodbye to its clients, and
        as long as it does, its name is taken.
        """
        leftover = self.whereis(CONNECTION_SUP)
        if leftover is not None:
            self.exit(leftover, KILL)
            await self.wait_down(self.monitor(leftover))
        return await super().init(parts)

    def configure(self, parts: ListenerParts) -> Any:  # noqa: ANN401 - flags and specs
        """Bind the port and describe the children.

        Raises:
            PortInUse: somebody else has it.
        """
        self._bound = parts.bound
        self._routes = parts.routes
        self._routes.is_closing = False
        options = parts.options
        # New ones with each listener_sup: the connections of the last one are gone.
        clients = ClientCount(options.connections_max, options.connections_per_address_max)
        budget = ByteBudget(options.in_flight_max, options.connections_max)
        parts.routes.present.in_flight_bytes = lambda: budget.held_bytes
        self._spare = SpareDescriptor()
        strangers = Strangers(
            parts.security.unauthenticated_max, parts.security.unauthenticated_per_address_max
        )
        connection_options, access = parts.connection_options, parts.access
        shared = ConnectionParts(parts.routes, parts.memory, budget, connection_options, access)
        template = ChildSpec(
            id="connection",
            actor=Connection,
            restart=Restart.TEMPORARY,
            # A slow reader is cut off then, so that the store can be closed in good order.
            shutdown_s=DRAIN_S,
        )
        connection_sup = dynamic_supervisor(CONNECTION_SUP, template)
        acceptors = [
            ChildSpec(
                id=("acceptor", number),
                actor=Acceptor,
                args=(door, self._spare, Clients(clients, strangers), shared),
                # Were it longer than the period, acceptors that hang could be restarted for ever.
                shutdown_s=1,
            )
            for number, door in enumerate(_open_doors(parts))
        ]
        return (
            SupervisorFlags(strategy=Strategy.REST_FOR_ONE, intensity=10, period_s=1),
            [connection_sup, *acceptors],
        )

    async def terminate(self, reason: Reason) -> None:
        """Stop the children, then free the port.

        A connection that waits for news would sit out its shutdown time, so nobody waits any more.
        """
        self._routes.is_closing = True
        for _, route in self._routes.sorted_items():
            self.cast(route.writer, ReleaseWaiting())
        self.cast(GROUPS, ReleaseWaiting())
        self.cast(EVENTS, ReleaseWaiting())
        started_s = self.monotonic_s()
        await super().terminate(reason)
        if self.monotonic_s() - started_s >= DRAIN_S:
            logger.warning("clients were cut off after %s s; all acknowledged is kept", DRAIN_S)
        self._bound.close()
        self._spare.close()


def check_ports_are_free(options: ListenerOptions, security: SecurityOptions) -> None:
    """Find out, before anything is made on disk, whether the listener could start now.

    Raises:
        PortInUse: somebody else has a port.
        OptionError: host or port are none that this process can have.
    """
    # Both at a time: two that are the same are found out.
    with contextlib.ExitStack() as bound:
        if options.port is not None:
            bound.enter_context(options.address.bind(options.port))
        if security.tls_port is not None:
            bound.enter_context(security.tls_address.bind(security.tls_port))


def bind_port(options: ListenerOptions) -> BoundPort:
    """Listen in plaintext alone; see `bind_ports`.

    Raises:
        PortInUse, OptionError: as there.
    """
    bound = BoundPort()
    bound.listen(options.address, options.port or 0)
    return bound


def bind_ports(options: ListenerOptions, security: SecurityOptions) -> BoundPorts:
    """Listen for clients on behalf of a node that is still to start; they wait until it does.

    Raises:
        PortInUse, OptionError: as `check_ports_are_free`.
    """
    bound = BoundPorts()
    try:
        _listen(bound, options, security)
    except PoeError:
        bound.close()
        raise
    return bound


def _listen(bound: BoundPorts, options: ListenerOptions, security: SecurityOptions) -> None:
    if options.port is not None:
        bound.plain.listen(options.address, options.port)
    if security.tls_port is not None:
        bound.tls.listen(security.tls_address, security.tls_port)


def _open_doors(parts: ListenerParts) -> list["Door"]:
    """Listen, and return a door for each acceptor."""
    _listen(parts.bound, parts.options, parts.security)
    doors: list[Door] = []
    if parts.bound.plain.listening is not None:
        doors += [Door(parts.bound.plain.listening)] * ACCEPTORS_COUNT
    if parts.bound.tls.listening is not None:
        assert parts.tls is not None
        way = TlsWay(parts.tls, parts.security.handshake_timeout)
        doors += [Door(parts.bound.tls.listening, way)] * TLS_ACCEPTORS_COUNT
    return doors


class Clients(NamedTuple):
    """Who there is: all, and of these the ones that are not let in yet."""

    all: ClientCount
    strangers: Strangers


class TlsWay(NamedTuple):
    """How clients come in by TLS."""

    holder: TlsHolder
    timeout_s: float


class Door(NamedTuple):
    """A socket where clients connect, and how they come in there."""

    listening: socket.socket
    tls: TlsWay | None = None
    """None: in plaintext."""

    def refuse(self, client: socket.socket, refusal: PoeError) -> None:
        """Tell a client why it is not served, where it would understand that.

        Raises:
            OSError: it may have gone meanwhile.
        """
        if self.tls is None:
            client.send(ErrorReply.from_error(refusal).encode())
        client.shutdown(socket.SHUT_WR)


class Acceptor(GenServer):
    """Takes clients from the listening socket and starts a connection for each."""

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(
        self,
        door: Door,
        spare: SpareDescriptor,
        clients: Clients,
        shared: ConnectionParts,
    ) -> None:
        """Watch a descriptor of its own for the shared socket."""
        self._clients = clients
        self._shared = shared
        self._door = door
        self._listening = door.listening.dup()
        self._watch = SocketWatch(self, self._listening)
        self._leaving: deque[socket.socket] = deque()
        self._spare = spare

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Accept what is there, one at a turn so that clients already served go on."""
        if message is _CLOSE_OLDEST:
            self._close_oldest()
            return
        if message is not READABLE:
            super().handle_info(message)
            return
        for _ in range(_ACCEPTS_MAX):
            # The first without a turn: mostly nobody is there, as another acceptor was faster.
            # Nor any where the node stops: `terminate` takes all who are left at once.
            if self._shared.routes.is_closing or not await self._accept():
                break
            await self._watch.wait_arrival_turn()
        self._watch.resume()

    async def terminate(self, reason: Reason) -> None:
        """Serve those who have connected already, then close this acceptor's descriptors."""
        if reason == SHUTDOWN:
            while await self._accept():
                pass
        self._watch.close()
        while self._leaving:
            self._leaving.popleft().close()

    async def _accept(self) -> bool:
        """Accept one client; False when there is none, or no descriptor for it."""
        try:
            peer, (address, *_) = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno in _PEERS_FAULTS:
                return True
            if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                raise
            # All acceptors meet it, each five times a second.
            logger.error("no more clients for now: %s", error.strerror, extra=ONCE_A_MINUTE)
            self._refuse_waiting()
            await self.sleep(_PAUSE_S)
            return False
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if peer.fileno() >= limit - _FILES_RESERVED:
            self._turn_away(peer, limit)
            return True
        # Closed if anything goes wrong, and at once: a client of a socket that merely nobody refers
        # to any more would wait until the next garbage collection.
        with contextlib.ExitStack() as until_handed_over:
            until_handed_over.enter_context(peer)
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A peer that vanished without a word is found out, and does not count for ever.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            refusal = self._clients.all.admit(address)
            if refusal is None:
                until_handed_over.callback(self._clients.all.leave, address)
                if not await self._let_in(peer, address, until_handed_over):
                    return True
            else:
                self._see_off(peer, refusal)
            until_handed_over.pop_all()
        return True

    async def _let_in(
        self, client: socket.socket, address: str, until_handed_over: contextlib.ExitStack
    ) -> bool:
        """Start a connection for a client; False: it has gone, or there is no place for it."""
        leave = partial(self._clients.all.leave, address)
        way, place = self._door.tls, None
        if way is not None or self._shared.access is not None:
            admitted = self._clients.strangers.admit(address, self.monotonic_s())
            if admitted is None:
                return False
            place, taken = admitted
            until_handed_over.callback(place.leave)
            if taken is not None:
                self._turn_out(taken)
            leave = partial(_each, leave, place.leave)
        if way is None:
            arguments: tuple[Any, ...] = (PlainPeer(client), self._shared, leave, place)
        else:
            context = way.holder.now
            try:
                peer = TlsPeer.of(client, context.context)
            except OSError:
                return False  # it has gone meanwhile
            until_handed_over.enter_context(peer.client)
            leave = partial(_each, leave, partial(way.holder.forget, peer))
            arrive = partial(
                Arrival, peer=peer, holder=way.holder, context=context, timeout_s=way.timeout_s
            )
            arguments = peer, self._shared, leave, place, arrive
        connection = await start_dynamic_child(self, CONNECTION_SUP, *arguments)
        if place is not None:
            place.connection = connection
            if place.is_taken_away:
                self._turn_out(place)
        return True

    def _turn_out(self, stranger: Place) -> None:
        """Close a client without a word whose place another one has now."""
        if stranger.connection is not None:
            self.exit(stranger.connection, "normal")

    def _refuse_waiting(self) -> None:
        """Without a descriptor to serve them, tell the clients that wait, and close them."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError):  # nobody waits any more, or one has gone meanwhile
            for _ in range(_REFUSALS_MAX):
                with self._spare.lent():
                    self._turn_away(self._listening.accept()[0], limit)

    def _turn_away(self, peer: socket.socket, limit: int) -> None:
        """Tell a client that there is no descriptor for it, and close it at once."""
        with peer, contextlib.suppress(OSError):  # it may have gone meanwhile
            peer.setblocking(False)
            self._door.refuse(peer, Overloaded("of open files", limit))
            peer.recv(_DISCARDED_BYTES)

    def _see_off(self, peer: socket.socket, refusal: PoeError) -> None:
        """Let a client that is refused read why: closed with its request unread, it is reset."""
        with contextlib.suppress(OSError):  # it may have gone meanwhile
            self._door.refuse(peer, refusal)
        self._leaving.append(peer)
        if len(self._leaving) > _LEAVING_MAX:
            self._leaving.popleft().close()
        self.send_after(_LINGER_S, _CLOSE_OLDEST)

    def _close_oldest(self) -> None:
        if self._leaving:
            peer = self._leaving.popleft()
            with contextlib.suppress(OSError):
                peer.recv(_DISCARDED_BYTES)
            peer.close()


def _each(*actions: Callable[[], object]) -> None:
    """Do one after the other."""
    for action in actions:
        action()
