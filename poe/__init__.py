"""Poe: a supervised, append-only topic server.

    import poe
    poe.start(dir="data")
    p1 = poe.put(b"the_topic", b"hello")
    poe.next(b"the_topic", 0)  # -> (p1, b"hello")

The module's functions speak to the node that `start` started; several nodes may live in one process
as `poe.Node` objects. Remote nodes are reached by `poe.protocol.socket(host, port)`.
"""

from __future__ import annotations

# As `typing` has it, which takes 5 ms to load.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from poe import protocol
    from poe.errors import PoeError
    from poe.node import (
        Node,
        alter_topic,
        consumer,
        create_topic,
        describe,
        info,
        next,  # noqa: A004 - `poe:next/2`
        print_status,
        put,
        put_many,
        queue,
        start,
        status,
        stop,
        sync,
        topics,
    )
    from poe.protocol import PutId

__all__ = [
    "Node",
    "PoeError",
    "PutId",
    "__version__",
    "alter_topic",
    "consumer",
    "create_topic",
    "describe",
    "info",
    "next",
    "print_status",
    "protocol",
    "put",
    "put_many",
    "queue",
    "start",
    "status",
    "stop",
    "sync",
    "topics",
]

__version__: str
"""Of Poe, as `poe --version` tells it."""

_MODULES = {"PoeError": "poe.errors", "PutId": "poe.protocol"}
"""Of the names that are not those of `poe.node`."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Load what is not loaded yet, once.

    A client needs neither the actor system nor the broker, and Ctrl-C during what is loaded here is
    no quiet end of a command.
    """
    from importlib import import_module  # noqa: PLC0415 - late on purpose, see above

    if name == "protocol":
        return import_module("poe.protocol")
    if name == "__version__":
        value = import_module("poe.version").VERSION
    elif name in __all__:
        value = getattr(import_module(_MODULES.get(name, "poe.node")), name)
    else:
        msg = f"module 'poe' has no attribute {name!r}"
        raise AttributeError(msg)
    globals()[name] = value
    return value
