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
    from collections.abc import Sequence
    from typing import Any, TextIO

    from poe import protocol
    from poe.actors import ActorRef
    from poe.broker import SegmentInfo
    from poe.errors import PoeError
    from poe.node import Node
    from poe.protocol import PutId

__all__ = [
    "Node",
    "PoeError",
    "PutId",
    "__version__",
    "info",
    "next",
    "print_status",
    "protocol",
    "put",
    "put_many",
    "start",
    "status",
    "stop",
    "sync",
    "topics",
]

__version__: str
"""Of Poe, as `poe --version` tells it."""

_LATE = {
    "Node": ("poe.node", "Node"),
    "PoeError": ("poe.errors", "PoeError"),
    "PutId": ("poe.protocol", "PutId"),
    "__version__": ("poe.version", "VERSION"),
}
"""Loaded when they are first needed: a client needs neither the actor system nor the broker, and
Ctrl-C during what is loaded here is no quiet end of a command."""

_node: Node | None = None


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Load what is not loaded yet."""
    from importlib import import_module  # noqa: PLC0415 - late on purpose, see `_LATE`

    if name == "protocol":
        return import_module("poe.protocol")
    if name in _LATE:
        module, attribute = _LATE[name]
        return getattr(import_module(module), attribute)
    msg = f"module 'poe' has no attribute {name!r}"
    raise AttributeError(msg)


def start(options: dict[str, Any] | None = None, /, **arguments: Any) -> Node:  # noqa: ANN401
    """Start the node of this process and return it.

    Args:
        options: options by name.
        arguments: the same as keywords; see `docs/configuration.md`.

    Raises:
        OptionError: an unknown option or a value that is not allowed.
        NodeRunning: the node of this process runs already.
        StoreLocked: another server runs on the folder.
        PortInUse: the port is taken.
    """
    global _node  # noqa: PLW0603 - the original's `poe:start()`: one default node a process
    from poe.errors import NodeRunning  # noqa: PLC0415 - late on purpose, see `_LATE`
    from poe.node import Node  # noqa: PLC0415

    if _node is not None and _node.is_running:
        raise NodeRunning
    stop()  # one that has given up still holds its folder
    _node = Node(options, **arguments).start()
    return _node


def stop() -> None:
    """Stop the node of this process; nothing happens when none runs."""
    global _node
    node, _node = _node, None
    if node is not None:
        node.stop()


def _started() -> Node:
    if _node is None:
        from poe.errors import NodeNotRunning  # noqa: PLC0415 - late on purpose, see `_LATE`

        raise NodeNotRunning
    return _node


def put(topic: bytes | str, message: bytes) -> int:
    """Append a message and return its pointer; see `Node.put`."""
    return _started().put(topic, message)


def put_many(topic: bytes | str, messages: Sequence[bytes], put_id: PutId | None = None) -> int:
    """Append messages, all or none, and return the last pointer; see `Node.put_many`."""
    return _started().put_many(topic, messages, put_id)


def next(topic: bytes | str, pointer: int) -> tuple[int, bytes] | None:  # noqa: A001 - `poe:next/2`
    """Return the message that follows `pointer`, with its pointer; see `Node.next`."""
    return _started().next(topic, pointer)


def topics() -> list[bytes]:
    """Return all topics, sorted."""
    return _started().topics()


def status() -> list[tuple[bytes, list[tuple[ActorRef | None, str]]]]:
    """Return each topic's appendix servers with their roles; see `Node.status`."""
    return _started().status()


def info() -> list[tuple[bytes, list[tuple[ActorRef | None, SegmentInfo]]]]:
    """Return each topic's appendix servers with their segments; see `Node.info`."""
    return _started().info()


def print_status(file: TextIO | None = None) -> None:
    """Print a line for each topic; see `Node.print_status`."""
    _started().print_status(file)


def sync() -> None:
    """Make everything acknowledged so far survive a power cut."""
    _started().sync()
