"""The actor that any Thespian program can ask: requests of plain values in, plain values out.

It turns a dictionary into one request to the node's socket and its reply into a dictionary. It
keeps nothing, not even the connection: asking takes Thespian many times longer than connecting,
and a connection that was kept would be found dead by the first put after a restart of the node.
"""

import os
from collections.abc import Callable
from operator import methodcaller
from typing import Any

from thespian.actors import Actor, ActorSystemMessage

from poe import protocol
from poe.errors import LocalProtocolError, PoeError
from poe.protocol.client import open_socket
from poe.protocol.server import Server
from poe.security import Entry, TokenFile

SERVICE_NAME = "poe"
"""Global name of the actor."""

NODE_CAPABILITY = "poe node"
"""Capability of the actor system that holds host and port of the node, and the path of a token."""

_TIMEOUT_S = 30.0
_ARGUMENTS: dict[str, set[str]] = {
    "put": {"topic", "messages"},
    "next": {"topic", "pointer"},
    "read": {"topic", "pointer", "limit"},
    "topics": set(),
    "status": set(),
    "info": set(),
    "segments": {"topic"},
    "create": {"topic"},
    "sync": set(),
    "health": set(),
    "pid": set(),
}
_REQUESTS = "; ".join(" ".join([op, *sorted(names)]) for op, names in _ARGUMENTS.items())


class ThespianService(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Answers `{"result": …}`, or `{"error": {"code", "name", "message", "retriable"}}`.

    Requests:
        put       topic, messages: a list of bytes; all or none -> pointer of the last
        next      topic, pointer -> (pointer, message), or None when nothing follows
        read      topic, pointer, limit -> list of (pointer, message)
        topics, status, info, segments, sync, create, health: as the socket's control requests
        pid       of the process that the actor lives in

    A topic is bytes or str. What is put when the answer is an error that is not the node's own
    (`ConnectionClosed`, `CallTimeout`) may be stored.
    """

    def __init__(self, capabilities: dict[str, Any]) -> None:
        host, port, token_path = capabilities[NODE_CAPABILITY]
        credentials = None if token_path is None else TokenFile(token_path)
        self._node = Server(host, port, Entry(credentials=credentials))

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: ANN401, N802
        """Answer whatever is not of Thespian's own making."""
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, _answer(message, self._node))


def _answer(message: Any, node: Server) -> dict[str, Any]:  # noqa: ANN401 - of a client
    """Serve one request; what is raised here Thespian would try a second time."""
    try:
        request = _request_of(message)
        with open_socket(node, _TIMEOUT_S) as connection:
            return {"result": request(connection)}
    except PoeError as error:
        told = {
            "code": error.code,
            "name": type(error).__name__,
            "message": str(error),
            "retriable": error.retriable,
        }
        return {"error": told}


def _request_of(message: Any) -> Callable[[protocol.Socket], Any]:  # noqa: ANN401
    """Return what is to be asked of the node.

    Raises:
        LocalProtocolError: the message is no request.
    """
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise _refusal(type(message).__name__)
    op = message.get("op")
    arguments = {key: value for key, value in message.items() if key != "op"}
    if not isinstance(op, str) or _ARGUMENTS.get(op) != arguments.keys():
        raise _refusal(f"op {op!r}" if isinstance(op, str) else "no op")
    match op:
        case "pid":
            return lambda _: os.getpid()
        case "put":
            return lambda node: node.write(**arguments)
        case "next":
            return lambda node: next(iter(node.read(**arguments, limit=1)), None)
        case "read":
            return lambda node: node.read(**arguments)
        case "info":
            return methodcaller(op)
        case _:
            return lambda node: node.control(op, **arguments)


def _refusal(got: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"{got:.100} with these arguments is no request; use a dictionary with op and arguments: "
        + _REQUESTS
    )
