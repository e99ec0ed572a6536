"""What the gateway's process is told by the one that starts it.

Apart from both, so that a node without a gateway does not load Thespian's transports.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class GatewayArguments:
    """What the process is told."""

    host: str
    """Where the node listens."""
    port: int
    thespian_port: int
    descriptor: int
    """The socket that listens there."""
    log_level: str
    token_path: str | None
    """Of the file with what the service logs in by."""

    def encode(self) -> str:
        """Return them as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Take them from the argument."""
        return cls(**json.loads(text))
