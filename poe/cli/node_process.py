"""The process that a node has to itself with `poe serve --isolation process`.

It is started by `IsolatedNode`: options come as an argument, listening sockets are inherited, and
readiness, or the error that kept the node from starting, goes back through the ready pipe.
"""

import json
import os
import socket
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

from poe.actors import end_with_parent, report_failure, report_ready
from poe.broker import BoundPort, BoundPorts
from poe.cli.end import end_process
from poe.cli.exit_code import ExitCode
from poe.cli.log import start_logging
from poe.cli.sentence import sentence_of
from poe.cli.service import Service
from poe.config import Config
from poe.errors import PoeError
from poe.node import Node


class InheritedPort(NamedTuple):
    """A socket that the process finds open, and where it listens."""

    descriptor: int
    port: int

    @classmethod
    def of(cls, bound: BoundPort) -> Self | None:
        """Return what a process is to inherit; None: nobody listens."""
        if bound.listening is None or bound.port is None:
            return None
        return cls(bound.listening.fileno(), bound.port)

    def bind(self) -> BoundPort:
        """Take the socket over."""
        return BoundPort(self.port, socket.socket(fileno=self.descriptor))


@dataclass(frozen=True, slots=True)
class NodeArguments:
    """What the process is told."""

    options: dict[str, Any]
    """All options of the node by name."""
    origins: dict[str, str]
    """Where those were given that were."""
    log_level: str
    plain: InheritedPort | None
    """Where it listens in plaintext."""
    tls: InheritedPort | None
    """Where it listens with TLS."""
    drain_s: float
    """Time that clients get after SIGTERM."""

    def encode(self) -> str:
        """Return them as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Take them from the argument."""
        values = json.loads(text)
        for name in ("plain", "tls"):
            values[name] = None if values[name] is None else InheritedPort(*values[name])
        return cls(**values)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the process inherits."""
        return tuple(each.descriptor for each in (self.plain, self.tls) if each is not None)

    def bind(self) -> BoundPorts:
        """Take the sockets over."""
        plain, tls = (each.bind() if each else BoundPort() for each in (self.plain, self.tls))
        return BoundPorts(plain, tls)


def main() -> int:
    """Run the node until SIGTERM, or until its tree gives up."""
    end_with_parent()
    # The service manager hears of the service from the process that it has started.
    os.environ.pop("NOTIFY_SOCKET", None)
    arguments = NodeArguments.decode(sys.argv[1])
    start_logging(arguments.log_level)
    bound = arguments.bind()
    try:
        config = Config.load(arguments.options, environment={}, toml_path=os.devnull)
        config = replace(config, origins=arguments.origins)
        node = Node(config, bound=bound)
        code = Service(node, lambda _: report_ready(), arguments.drain_s).run()
    except (PoeError, OSError) as error:
        report_failure(sentence_of(error))
        return ExitCode.of(error) if isinstance(error, PoeError) else ExitCode.FAILURE
    end_process(code)
    return code
