"""A node in a process of its own, under a supervisor: `poe serve --isolation process`.

The listening sockets belong to this process, and each node process inherits them. So ports stay,
and a client that connects while there is no node waits instead of being refused.

A node process that hangs is left alone: what could be asked of it from outside also takes long
while it recovers or waits for a disk, and killing it then would do harm.
"""

import contextlib
import os
import signal
from collections.abc import Callable

from poe.actors import ActorRef, GetPid, LoopSystem, OsProcess, Reason, StartFailed
from poe.actors.python_process import python_command
from poe.broker import BoundPorts, bind_ports
from poe.cli.node_process import InheritedPort, NodeArguments
from poe.config import Config
from poe.errors import ActorDead
from poe.node import root_cause
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags

RESTARTS_MAX = 4
RESTARTS_PERIOD_S = 60
"""A node that has died once more within this time would not be healed by another restart."""

READY_TIMEOUT_S = 3600.0
"""Recovery reads the newest segment of each topic; an hour is for disks that are in trouble."""

_PROCESS = "node_process"
_DRAIN_S, _GRACE_S, _SHUTDOWN_S = 4.0, 4.3, 4.4
"""Each allows for the one before, and all for the service's own limit of 4.5 s."""


class IsolatedNode:
    """Starts, watches and ends node processes; used by `Service` as a node is.

    Life: `start`, any number of processes, one at a time, and `stop`, or the supervisor gives up.
    """

    def __init__(self, config: Config, log_level: str) -> None:
        self._config = config
        self._log_level = log_level
        self._bound = BoundPorts()
        self._system: LoopSystem | None = None
        self._sup: ActorRef | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Return (host, port) of the listener; None before `start`."""
        port = self._bound.plain.port
        return None if port is None else (self._config.listener.host, port)

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Return (host, port) of the listener with TLS; None before `start`, or without one."""
        port = self._bound.tls.port
        return None if port is None else (self._config.security.tls_host, port)

    def start(self, system: LoopSystem) -> None:
        """Listen, and start the first process; clients are served when this returns.

        Raises:
            PortInUse, OptionError: there is no listening at the address.
            ProcessStartFailed: the node did not start in its process; it holds the node's sentence.
        """
        self._bound = bind_ports(self._config.listener, self._config.security)
        self._system = system
        flags = SupervisorFlags(intensity=RESTARTS_MAX, period_s=RESTARTS_PERIOD_S)
        try:
            self._sup = system.start(Supervisor, flags, [self._spec()], name="node_process_sup")
        except StartFailed as failed:
            raise root_cause(failed) from failed

    def stop(self, timeout_s: float) -> None:
        """End the process in good order.

        Raises:
            CallTimeout: it had not ended after `timeout_s`; it is killed.
        """
        # Clients that are still to come are refused, as soon as the process has closed its own.
        self._bound.close()
        system, sup = self._system, self._sup
        if system is None:
            return
        try:
            if sup is not None:
                with contextlib.suppress(ActorDead):  # it has given up
                    system.stop(sup, "shutdown", timeout_s)
        finally:
            system.shutdown()

    def reload(self) -> None:
        """Have the process read its files anew.

        Raises:
            ActorDead: there is no process at the moment.
        """
        assert self._system is not None
        with contextlib.suppress(ProcessLookupError):  # the next one reads them at its start
            os.kill(self._system.call(_PROCESS, GetPid()), signal.SIGHUP)

    def when_ended(self, action: Callable[[Reason], object]) -> None:
        """Call `action` once the supervisor has ended, by `stop` or because it gave up."""
        assert self._system is not None
        assert self._sup is not None
        self._system.when_ended(self._sup, action)

    def _spec(self) -> ChildSpec:
        options = self._config.as_dict()
        # Looked up already: no other answer is to keep the process from starting later.
        options["host"] = self._config.listener.address.text
        if self._config.security.tls_port is not None:
            options["tls_host"] = self._config.security.tls_address.text
        # As they stand in a file: JSON knows no options of topics.
        options["topics"] = {each.topic: each.as_row() for each in options["topics"]}
        arguments = NodeArguments(
            options=options,
            origins=dict(self._config.origins),
            log_level=self._log_level,
            plain=InheritedPort.of(self._bound.plain),
            tls=InheritedPort.of(self._bound.tls),
            drain_s=_DRAIN_S,
        )
        return ChildSpec(
            id="node_process",
            actor=OsProcess,
            args=(python_command("poe.cli.node_process", arguments.encode()),),
            kwargs={
                "ready_timeout_s": READY_TIMEOUT_S,
                "grace_s": _GRACE_S,
                "descriptors": arguments.descriptors,
            },
            shutdown_s=_SHUTDOWN_S,
            name=_PROCESS,
        )
