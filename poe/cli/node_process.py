"""The process that a node has to itself with `poe serve --isolation process`.

It is started by `IsolatedNode`: options come as an argument, the listening socket is inherited, and
readiness, or the error that kept the node from starting, goes back through the ready pipe.
"""

import json
import os
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any, Self

from poe.actors import end_with_parent, report_failure, report_ready
from poe.broker import BoundPort
from poe.cli.exit_code import ExitCode
from poe.cli.log import start_logging
from poe.cli.sentence import sentence_of
from poe.cli.service import Service
from poe.config import Config
from poe.errors import PoeError
from poe.node import Node


@dataclass(frozen=True, slots=True)
class NodeArguments:
    """What the process is told."""

    options: dict[str, Any]
    """All options of the node by name."""
    log_level: str
    descriptor: int
    """The listening socket."""
    port: int
    """Where that listens."""
    drain_s: float
    """Time that clients get after SIGTERM."""

    def encode(self) -> str:
        """Return them as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Take them from the argument."""
        return cls(**json.loads(text))


def main() -> int:
    """Run the node until SIGTERM, or until its tree gives up."""
    end_with_parent()
    # The service manager hears of the service from the process that it has started.
    os.environ.pop("NOTIFY_SOCKET", None)
    arguments = NodeArguments.decode(sys.argv[1])
    start_logging(arguments.log_level)
    bound = BoundPort(arguments.port, socket.socket(fileno=arguments.descriptor))
    try:
        config = Config.load(arguments.options, environment={}, toml_path=os.devnull)
        node = Node(config, bound=bound)
        return Service(node, lambda _: report_ready(), arguments.drain_s).run()
    except (PoeError, OSError) as error:
        report_failure(sentence_of(error))
        return ExitCode.of(error) if isinstance(error, PoeError) else ExitCode.FAILURE
