"""A node together with its offer to Thespian programs: `poe serve --thespian-port`.

Thespian's processes unpickle what reaches them. They are no part of the node: a process of their
own starts them, under a supervisor, and they have no more of the node than its socket.
"""

import contextlib
from collections.abc import Callable

from poe.actors import ActorRef, LoopSystem, OsProcess, Reason, StartFailed
from poe.actors.python_process import python_command
from poe.broker import BoundPort, ListenerOptions, bind_port
from poe.cli.gateway_arguments import GatewayArguments
from poe.cli.service import Served
from poe.config import ServiceOptions
from poe.errors import ActorDead
from poe.node import root_cause
from poe.supervision import Backoff, ChildSpec, Supervisor, SupervisorFlags

_FLAGS = SupervisorFlags(
    intensity=10_000,
    period_s=1_000_000,
    backoff=Backoff(first_s=0.1, max_s=30.0, reset_after_s=120.0),
)
"""Restarted for days on end, ever more slowly; the node works without the gateway."""
_READY_TIMEOUT_S = 60.0
_GRACE_S, _SHUTDOWN_S, _STOP_TIMEOUT_S = 0.3, 0.4, 0.5
"""Together with the node's time they stay below five seconds."""


class ThespianGateway:
    """Starts the node, then the gateway's process, and ends them in the reverse order.

    Used by `Service` as a node is; the service ends when the node has given up.
    """

    def __init__(self, node: Served, options: ServiceOptions, log_level: str) -> None:
        self._node = node
        self._options = ListenerOptions(port=options.thespian_port)
        token = options.thespian_token
        self._token_path = None if token is None else str(token.absolute())
        self._bound = BoundPort()
        self._log_level = log_level
        self._system: LoopSystem | None = None
        self._sup: ActorRef | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Return (host, port) of the node."""
        return self._node.address

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Return (host, port) of the node, by TLS."""
        return self._node.tls_address

    def start(self, system: LoopSystem) -> None:
        """Listen, then start both.

        Raises:
            PortInUse: somebody else has the Thespian port; nothing is started.
            PoeError: as the node; `ProcessStartFailed` holds the gateway's sentence.
        """
        self._bound = bind_port(self._options)
        self._node.start(system)
        self._system = system
        host, port = self._node.address or ("", 0)
        assert self._bound.port is not None
        assert self._bound.listening is not None
        descriptor = self._bound.listening.fileno()
        arguments = GatewayArguments(
            host, port, self._bound.port, descriptor, self._log_level, self._token_path
        )
        spec = ChildSpec(
            id="thespian_gateway",
            actor=OsProcess,
            args=(python_command("poe.cli.thespian_process", arguments.encode()),),
            kwargs={
                "ready_timeout_s": _READY_TIMEOUT_S,
                "grace_s": _GRACE_S,
                "descriptors": (descriptor,),
            },
            shutdown_s=_SHUTDOWN_S,
            name="thespian_gateway",
        )
        try:
            self._sup = system.start(Supervisor, _FLAGS, [spec], name="thespian_gateway_sup")
        except StartFailed as failed:
            raise root_cause(failed) from failed

    def stop(self, timeout_s: float) -> None:
        """Stop both, the gateway first, so that nobody asks a node that is going.

        Raises:
            CallTimeout: one of them had not ended in time; it is killed.
        """
        self._bound.close()
        try:
            if self._system is not None and self._sup is not None:
                with contextlib.suppress(ActorDead):  # it has given up
                    self._system.stop(self._sup, "shutdown", _STOP_TIMEOUT_S)
        finally:
            self._node.stop(timeout_s)

    def reload(self) -> object:
        """Have the node read its files anew."""
        return self._node.reload()

    def when_ended(self, action: Callable[[Reason], object]) -> None:
        """Call `action` when the node has ended; the end of the gateway is none of it."""
        self._node.when_ended(action)
