"""The fabric between processes and machines: one session of zenoh after the other.

A session is the node's own, inside of its process. Here is what becomes of it when the process is
forked, or ends.
"""

import os
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from poe.cluster.fabric.interface import FabricEvent
from poe.cluster.fabric.zenoh_config import RUNTIME
from poe.cluster.fabric.zenoh_session import COUNTED, ZenohSession
from poe.cluster.identity import NodeRef, Peer
from poe.cluster.options import ClusterOptions
from poe.errors import FabricFailed

_fabrics: Final[set["ZenohFabric"]] = set()
"""Those that are open; in a process that was forked they are kept, and left alone."""
_was_used = False
_forked = False


class ZenohFabric:
    """A `Fabric` by zenoh."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._session: ZenohSession | None = None
        self._numbers = count(1)
        self._counts = dict.fromkeys(("asks", *COUNTED), 0)

    def open(self, me: Peer, hear: Callable[[FabricEvent], None]) -> None:
        """Join; see `Fabric.open`.

        Raises:
            FabricFailed: it cannot listen, its certificates are none, or this process is a copy of
                one that has used zenoh.
        """
        if _forked:
            why = "this process was forked from one of a cluster; start it anew (spawn) instead"
            raise FabricFailed(why)
        os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        _begin_use()
        self._session = ZenohSession(self._options, me, hear, self._numbers, self._counts)
        _fabrics.add(self)

    def close(self) -> None:
        """Leave; see `Fabric.close`."""
        session = self._usable()
        if session is not None:
            self._session = None
            _fabrics.discard(self)
            session.close()

    def ask(
        self,
        node: NodeRef,
        payload: bytes,
        deadline_s: float,
        answered: Callable[[bytes | None], None],
    ) -> None:
        """Ask a peer, or this node itself; see `Fabric.ask`."""
        self._counts["asks"] += 1
        session = self._usable()
        if session is None:
            self._counts["asks_failed"] += 1
            answered(None)
        else:
            session.ask(node, payload, deadline_s, answered)

    def publish(self, payload: bytes) -> None:
        """Send something small to all peers; see `Fabric.publish`."""
        session = self._usable()
        if session is not None:
            session.publish(payload)

    def seek(self, locators: Sequence[str]) -> None:
        """Introduce nodes to this one as a seed does; see `Fabric.seek`."""
        session = self._usable()
        if session is not None:
            session.seek(locators)

    def metrics(self) -> dict[str, int]:
        """Return counts since it was made, and how much is under way."""
        session = self._session
        now = {"peers": 0, "under_way": 0} if session is None else session.metrics()
        return self._counts | now

    def _usable(self) -> ZenohSession | None:
        """Return the session that is open; none in a forked process, which has no threads of it."""
        return None if _forked else self._session


def _begin_use() -> None:
    """Have all fabrics closed when the program ends, however that comes.

    Python waits then for the threads in which zenoh calls, which end with their session only, and
    calls what is registered by `atexit` afterwards. It waits for the thread that closes, too.
    """
    global _was_used  # noqa: PLW0603 - zenoh's threads are those of the process, too
    if not _was_used:
        _was_used = True
        threading.Thread(target=_close_all, name="poe-fabric-exit").start()


def _close_all() -> None:
    threading.main_thread().join()
    for fabric in list(_fabrics):
        fabric.close()


def _note_fork() -> None:
    """Have a forked process leave alone what belongs to its parent.

    Zenoh's threads are not there: to close a session, or to let go of it, would wait for them.
    """
    global _forked  # noqa: PLW0603 - a process is forked or not
    _forked = _forked or _was_used


os.register_at_fork(after_in_child=_note_fork)
