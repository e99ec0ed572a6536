"""Thespian beside Poe's own runtime: its bases, its sockets, its programs.

`ThespianBase` runs Thespian's programs among the actors of a `LoopSystem`. `HostedSystem` runs
GenServers on Thespian's own bases, with a process for each actor. `loopback_tcp_system` is
Thespian's TCP base with every socket on 127.0.0.1. `ThespianService` is the actor by which
Thespian's programs put and read topics.
"""

import importlib
from typing import TYPE_CHECKING, Any

from poe.errors import LoopSystemOnly, NotPicklable, RemoteFailure

if TYPE_CHECKING:
    from poe.thespian.hosted_system import HostedSystem
    from poe.thespian.loop.base import ThespianBase
    from poe.thespian.loopback_tcp import loopback_tcp_system
    from poe.thespian.service import ThespianService

_LATE = {
    "HostedSystem": "hosted_system",
    "ThespianBase": "loop.base",
    "ThespianService": "service",
    "loopback_tcp_system": "loopback_tcp",
}
"""Imported when first used: nobody needs all of them, and some load multiprocessing, 3 MB."""

__all__ = [
    "HostedSystem",
    "LoopSystemOnly",
    "NotPicklable",
    "RemoteFailure",
    "ThespianBase",
    "ThespianService",
    "loopback_tcp_system",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as Python has it
    if name in _LATE:
        return getattr(importlib.import_module(f"poe.thespian.{_LATE[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
