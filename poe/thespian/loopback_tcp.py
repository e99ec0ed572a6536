"""Thespian's TCP base with every socket on loopback, in processes that end with their starter.

On `multiprocTCPBase` each actor, the admin, the logger and each client listens on all interfaces
and unpickles what arrives: whoever can connect can run code. Here all of them listen on 127.0.0.1.
A transport of our own does it: Thespian hands the class of the transport on to every process that
it starts, so nothing is patched, and other systems of the same program stay as they are.

Thespian's admin outlives its starter. This one does not: the admin is a child process, and each
process of the system gets SIGKILL when the one that started it ends.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from thespian.actors import ActorAddress, ActorExitRequest, ActorSystem, InvalidActorAddress
from thespian.system.messages.admin import SystemShutdown, SystemShutdownCompleted
from thespian.system.messages.multiproc import EndpointConnected
from thespian.system.multiprocCommon import (
    MAX_ADMIN_STARTUP_DELAY,
    MultiProcAdmin,
    _startLogger,
    child_exit_signals,
    set_signal_handler,
)
from thespian.system.multiprocTCPBase import ActorSystemBase
from thespian.system.transport import ReceiveEnvelope, TransmitIntent, TransmitOnly
from thespian.system.transport.IPBase import TCPv4ActorAddress
from thespian.system.transport.TCPTransport import (
    DEFAULT_ADMIN_PORT,
    ExternalTransportCopy,
    TCPEndpoint,
    TCPTransport,
)

from poe.actors.parent_process import end_with_parent

_LOOPBACK = "127.0.0.1"
_LISTENER = "Admin Listener"
"""Capability that holds the descriptor of a socket which listens for the admin already."""
_ADMIN_JOIN_S = 5.0


def loopback_tcp_system(
    admin_port: int,
    capabilities: Mapping[str, object] | None = None,
    *,
    log_definitions: dict[str, Any] | None = None,
    listening: int | None = None,
) -> ActorSystem:
    """Join the system whose admin has a port of 127.0.0.1, or start it.

    Whoever can connect to loopback can still run code as this user. The thread that starts the
    system must last as long as the system is to.

    Args:
        admin_port: 1 to 65535.
        capabilities: as Thespian's, besides; those that reach for other hosts come to nothing.
        log_definitions: as Thespian's `logDefs`.
        listening: descriptor of a socket that listens on the port already, for a system that is
            started again and again: clients wait meanwhile. Thespian's own clients would start
            an admin of their own on a port that is free. Only the starter can end such a system:
            a client's `shutdown()` and `ActorExitRequest` come to nothing.

    Raises:
        thespian.actors.InvalidActorAddress: another program has the port.
    """
    given = {**(capabilities or {}), "Admin Port": admin_port}
    if listening is not None:
        given[_LISTENER] = listening
    base = _LoopbackBase(SimpleNamespace(capabilities=given), log_definitions)
    return ActorSystem(base, given, transientUnique=True)


class LoopbackTransport(TCPTransport):  # type: ignore[misc]  # Thespian is untyped
    """A TCP transport that listens on 127.0.0.1, whatever it is made for.

    The original binds the address it is given, but all interfaces where it makes one itself. So
    each of its three ways of construction becomes the one where an address is given.
    """

    socket: Any
    _is_admin_missing = False

    def __init__(self, kind: Any, *args: Any) -> None:  # noqa: ANN401 - Thespian's constructor
        is_of_system = isinstance(kind, TCPEndpoint)
        if is_of_system:
            number, assigned, *rest = kind.args
        else:
            number = assigned = parent = None
            if isinstance(kind, ExternalTransportCopy):
                admin, is_outbound, is_routed = args
            else:
                admin, is_outbound, is_routed = self.getAdminAddr(args[0]), False, False
                self._is_admin_missing = _LISTENER in args[0]
            rest = [parent, admin, is_routed, is_outbound]
        super().__init__(TCPEndpoint(number, assigned or _at_loopback(0), *rest))
        starter = multiprocessing.parent_process()
        if is_of_system and starter is not None:
            end_with_parent(starter.pid)

    @staticmethod
    def getAdminAddr(capabilities: dict[str, Any]) -> ActorAddress:  # noqa: N802 - Thespian's name
        """Return where the admin of a system listens."""
        return _at_loopback(capabilities.get("Admin Port", DEFAULT_ADMIN_PORT))

    def probeAdmin(self, address: ActorAddress) -> bool:  # noqa: N802 - Thespian's name
        """Return whether the admin is there: not yet, where its port is that of our socket."""
        is_missing, self._is_admin_missing = self._is_admin_missing, False
        return not is_missing and bool(super().probeAdmin(address))

    def listen_with(self, descriptor: int, address: ActorAddress) -> None:
        """Take an open socket instead of the one that was made; for an admin."""
        self.socket.close()
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(True)
        self.myAddress = address

    def close(self) -> None:
        """Close all sockets, which the original leaves open; closing twice is harmless."""
        open_sockets = [getattr(self, "socket", None)]
        for kept in ("_openSockets", "_incomingSockets"):
            open_sockets += [each.socket for each in getattr(self, kept, {}).values()]
        super().close()
        for each in open_sockets:
            if each is not None:
                each.close()

    def external_transport_clone(self) -> "LoopbackTransport":
        """Return a transport for another thread of a client; the original's would be its own."""
        return LoopbackTransport(ExternalTransportCopy(), self._adminAddr, self.txOnly, False)


class _KeptTransport(LoopbackTransport):
    """A transport whose process takes a goodbye from the one that started it alone.

    Thespian's programs usually end with `system.shutdown()`, which ends everybody's system.
    """

    def run(self, handler: Any, duration: Any = None) -> Any:  # noqa: ANN401 - as Thespian's
        """Serve what comes, but for the goodbyes of strangers."""
        is_served = handler is not None and handler is not TransmitOnly
        return super().run(self._without_goodbyes(handler) if is_served else handler, duration)

    def _without_goodbyes(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def handle(envelope: Any) -> Any:  # noqa: ANN401 - Thespian is untyped
            message, sender = envelope.message, envelope.sender
            if sender != self._parentAddr:
                if isinstance(message, SystemShutdown):
                    # Whoever asked would wait for this, and then for ten seconds.
                    self.scheduleTransmit(None, TransmitIntent(sender, SystemShutdownCompleted()))
                    return True
                if isinstance(message, ActorExitRequest):
                    return True
            return handler(envelope)

        return handle


class _LoopbackBase(ActorSystemBase):  # type: ignore[misc]  # Thespian is untyped
    """`multiprocTCPBase` with that transport, and with an admin that is a child process."""

    transportType = LoopbackTransport  # noqa: N815 - Thespian's name
    admin_process: Any = None
    """A child of this process; None where the system was joined and not started."""

    def _startAdmin(  # noqa: N802 - Thespian's name
        self,
        address: ActorAddress,
        starter: ActorAddress,
        capabilities: dict[str, Any],
        log_definitions: Any,  # noqa: ANN401
    ) -> None:
        """Start the admin, and wait until it answers.

        Source: thespian 4.0.1, multiprocCommon.py, _startAdmin; without `detach_child`.
        """
        endpoint = self.transport.prepEndpoint(address, capabilities)
        self.admin_process = self.mpcontext.Process(
            target=_run_admin,
            args=(endpoint, starter, capabilities, log_definitions, self.mpcontext),
            daemon=True,
        )
        self.admin_process.start()
        self.transport.connectEndpoint(endpoint)
        answer = self.transport.run(None, MAX_ADMIN_STARTUP_DELAY)
        if not isinstance(answer, ReceiveEnvelope) or not isinstance(
            answer.message, EndpointConnected
        ):
            raise InvalidActorAddress(address, "not a valid ActorSystem admin")

    def shutdown(self) -> None:
        """End all actors, the logger and the admin."""
        super().shutdown()
        if self.admin_process is not None:
            self.admin_process.join(_ADMIN_JOIN_S)


def _run_admin(
    endpoint: TCPEndpoint,
    starter: ActorAddress,
    capabilities: dict[str, Any],
    log_definitions: Any,  # noqa: ANN401
    context: Any,  # noqa: ANN401
) -> None:
    """Be the admin of a system.

    Source: thespian 4.0.1, multiprocCommon.py, startAdmin; without becoming a daemon.
    """
    os.setsid()
    address = LoopbackTransport.getAdminAddr(capabilities)
    listener = capabilities.pop(_LISTENER, None)
    if listener is None:
        transport = LoopbackTransport(endpoint)
    else:
        transport = _KeptTransport(TCPEndpoint(None, None, *endpoint.args[2:]))
        transport.listen_with(listener, address)
    admin = MultiProcAdmin(transport, address, capabilities, log_definitions, context)
    admin.addrOfStarter = starter
    for number in child_exit_signals:
        set_signal_handler(number, admin.signalChildDied)
    _startLogger(LoopbackTransport, transport, admin, capabilities, log_definitions, context)
    transport.enableRXPauseFlowControl(False)
    admin.run()


def _at_loopback(port: int) -> ActorAddress:
    return ActorAddress(TCPv4ActorAddress(_LOOPBACK, port))
