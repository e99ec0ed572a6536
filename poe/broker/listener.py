"""The listener: acceptors, and the supervisors of acceptors and connections.

`listener_sup` binds the port when it starts, which is after recovery; under it lives
`connection_sup` with a connection for each client, and ten acceptors that share the port.

Source: poe_appendix_sup.erl, poe_tcp.erl; Ranch for connections that outlive an acceptor's crash.
"""

import errno
import logging
import socket
from dataclasses import dataclass, field
from typing import Any, ClassVar

from poe.actors import READABLE, GenServer, Reason, SocketWatch
from poe.broker.connection import Connection, ConnectionOptions, Scratch
from poe.broker.routing_table import RoutingTable
from poe.errors import OptionError, Overloaded, PortInUse
from poe.protocol import ErrorReply
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    count_children,
    start_dynamic_child,
)

logger = logging.getLogger("poe.broker")

CONNECTION_SUP = "connection_sup"
ACCEPTORS_COUNT = 10

_BACKLOG = 1024
_ACCEPTS_PER_TURN = 16
_PAUSE_S = 0.2
_LOOPBACK = ("127.", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """Where clients connect, and how many may.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    host: str = "127.0.0.1"
    """Address to listen on; others than loopback need `insecure`, for nothing is encrypted."""

    port: int | None = 5555
    """0 takes any free port; None means no listener."""

    insecure: bool = False
    """Allow an address that others can reach."""

    connections_max: int = 10_000
    """Clients at a time; more are told so and closed."""

    def __post_init__(self) -> None:
        """Reject addresses that would open the node to others by accident."""
        if self.port is not None and not 0 <= self.port <= 65535:  # noqa: PLR2004 - 16 bits
            raise OptionError("port", self.port, "0 to 65535, or None for no listener")
        if not self.insecure and not self.host.startswith(_LOOPBACK):
            allowed = "a loopback address such as 127.0.0.1, or set insecure as well"
            raise OptionError("host", self.host, allowed)
        if self.connections_max < 1:
            raise OptionError("connections_max", self.connections_max, "1 or more")


@dataclass(slots=True)
class BoundPort:
    """The port that the node listens on; kept so that a restarted listener takes the same."""

    port: int | None = None


@dataclass(frozen=True, slots=True)
class ListenerParts:
    """What the listener's actors share."""

    routes: RoutingTable
    options: ListenerOptions
    connection_options: ConnectionOptions
    bound: BoundPort = field(default_factory=BoundPort)
    scratch: Scratch = field(default_factory=Scratch)


class ListenerSup(Supervisor):
    """rest_for_one: connection_sup, then the acceptors; owns the listening socket."""

    def configure(self, parts: ListenerParts) -> Any:  # noqa: ANN401 - flags and specs
        """Bind the port and describe the children.

        Raises:
            PortInUse: somebody else has it.
        """
        self._listening = _listen(parts)
        template = ChildSpec(id="connection", actor=Connection, restart=Restart.TEMPORARY)
        flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
        connection_sup = ChildSpec(
            id=CONNECTION_SUP,
            actor=Supervisor,
            args=(flags, [template]),
            kind=ChildKind.SUPERVISOR,
            name=CONNECTION_SUP,
        )
        acceptors = [
            ChildSpec(id=("acceptor", number), actor=Acceptor, args=(self._listening, parts))
            for number in range(ACCEPTORS_COUNT)
        ]
        return (
            SupervisorFlags(strategy=Strategy.REST_FOR_ONE, intensity=10, period_s=1),
            [connection_sup, *acceptors],
        )

    async def terminate(self, reason: Reason) -> None:
        """Stop the children, then free the port."""
        await super().terminate(reason)
        self._listening.close()


def _listen(parts: ListenerParts) -> socket.socket:
    options, bound = parts.options, parts.bound
    port = bound.port or options.port or 0
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise PortInUse(options.host, port, error.strerror or str(error)) from error
    bound.port = listening.getsockname()[1]
    return listening


class Acceptor(GenServer):
    """Takes clients from the listening socket and starts a connection for each."""

    trap_exits = True
    pinned_to_loop: ClassVar[bool] = True

    def init(self, listening: socket.socket, parts: ListenerParts) -> None:
        """Watch a descriptor of its own for the shared socket."""
        self._parts = parts
        self._listening = listening.dup()
        self._watch = SocketWatch(self, self._listening.fileno())

    async def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Accept what is there, a few at a turn so that clients already served go on."""
        if message is not READABLE:
            super().handle_info(message)
            return
        for _ in range(_ACCEPTS_PER_TURN):
            if not await self._accept():
                break
        self._watch.resume()

    def terminate(self, reason: Reason) -> None:
        """Close this acceptor's descriptor."""
        del reason
        self._watch.close()
        self._listening.close()

    async def _accept(self) -> bool:
        """Accept one client; False when there is none, or no descriptor for it."""
        try:
            peer, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                raise
            logger.error("no more clients for now: %s", error.strerror)  # noqa: TRY400 - no crash
            await self.sleep(_PAUSE_S)
            return False
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        parts = self._parts
        connections_max = parts.options.connections_max
        if (await count_children(self, CONNECTION_SUP)).active >= connections_max:
            peer.send(ErrorReply.from_error(Overloaded("connections_max", connections_max)).encode())
            peer.close()
            return True
        await start_dynamic_child(
            self,
            CONNECTION_SUP,
            peer,
            parts.routes,
            parts.scratch,
            parts.connection_options,
        )
        return True
