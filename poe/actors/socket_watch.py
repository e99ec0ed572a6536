"""Readiness of one descriptor, as messages to the actor that owns it.

Only actors that are `pinned_to_loop` may use it. The event loop reports readiness as long as it
lasts, so while its actor is busy a watch takes itself off the loop: the kernel's buffers then slow
the peer down, and `resume` puts it back.
"""

from enum import Enum
from typing import TYPE_CHECKING

from poe.actors.call import Wait
from poe.actors.message import TIMED_OUT

if TYPE_CHECKING:
    from poe.actors.gen_server import GenServer


class Readiness(Enum):
    """What a watch tells its actor; it arrives in `handle_info`."""

    READABLE = "there is something to receive or to accept"


READABLE = Readiness.READABLE


class SocketWatch:
    """Watches one descriptor for one actor, from its construction until `close`."""

    def __init__(self, actor: "GenServer", descriptor: int) -> None:
        self._actor = actor
        self._cell = actor._myRef  # noqa: SLF001 - part of the runtime
        self._descriptor = descriptor
        self._system = self._cell.system
        self._loop = self._system.event_loop().loop
        self.is_paused = False
        self._loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        if self._cell.instance is None:
            # Killed without a chance to close this watch; the loop would call it for ever.
            self.close()
            return
        self._cell.system.post_from_outside(self._cell, READABLE, None)
        if self._actor._coroutine is not None and not self.is_paused:  # noqa: SLF001
            self.pause()

    def pause(self) -> None:
        """Stop telling."""
        self.is_paused = True
        self._loop.remove_reader(self._descriptor)

    def resume(self) -> None:
        """Tell again, at once if there is something."""
        if self.is_paused:
            self.is_paused = False
            self._loop.add_reader(self._descriptor, self._readable)

    async def wait_writable(self, timeout_s: float) -> bool:
        """Wait until the descriptor takes bytes again; False when it did not in time."""
        wait = Wait(self._cell)
        system = self._system

        def writable() -> None:
            self._loop.remove_writer(self._descriptor)
            system.run_outside(lambda: wait.finish(None))

        wait.timer = system.add_timer(timeout_s, wait.expire)
        self._loop.add_writer(self._descriptor, writable)
        try:
            return await wait is not TIMED_OUT
        finally:
            self._loop.remove_writer(self._descriptor)

    def close(self) -> None:
        """Stop for good; call it before the descriptor is closed."""
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
