"""Readiness of one descriptor, as messages to the actor that owns it.

Only actors that are `pinned_to_loop` may use it. The event loop reports readiness as long as it
lasts, so when its actor stays busy a watch takes itself off the loop: the kernel's buffers then
slow the peer down, and `resume` puts it back.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial

from poe.actors.call import Wait
from poe.actors.gen_server import GenServer
from poe.actors.message import TIMED_OUT
from poe.actors.server_cell import cell_of_actor

_DISCARDED_BYTES = 128 * 1024
_VAIN_MAX = 8
"""How often the loop may tell a busy actor before its watch is paused. Mostly a peer says nothing
before it has its answer, or the actor is free again soon: being told costs 1 us, off the loop and
on again 25 us."""


class Readiness(Enum):
    """What a watch tells its actor; it arrives in `handle_info`."""

    READABLE = "there is something to receive or to accept"


READABLE = Readiness.READABLE
"""The message to an actor with a `SocketWatch` when its socket has something to read."""


class SocketWatch:
    """Watches one socket for one actor, and closes it when the actor ends, however it ends.

    `when_closed` is called after that, in the event loop's thread, as by an actor.
    """

    def __init__(
        self,
        actor: GenServer,
        watched: socket.socket,
        when_closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._when_closed = when_closed
        self.cell = cell_of_actor(actor)
        self._socket = watched
        self.descriptor = watched.fileno()
        self._run_queue = self.cell.run_queue
        event_loop = self._run_queue.event_loop()
        self._loop, self._turns = event_loop.loop, event_loop.turns
        self._arrivals = event_loop.arrivals
        self.is_paused = False
        self._vain_count = 0
        self._is_closed = False
        self._listen()
        # The loop may be told in its own thread only, and an actor may be killed in any.
        close = partial(self._run_queue.run_outside, self.close)
        self.cell.on_end = partial(event_loop.wake, close)

    def _listen(self) -> None:
        self._loop.add_reader(self.descriptor, self._run_queue.tell_readable, self, READABLE)

    def tell_in_vain(self) -> None:
        """Note that the actor was busy; at each eighth time stop telling."""
        self._vain_count += 1
        if self._vain_count >= _VAIN_MAX:
            self.pause()

    def tell_anew(self) -> None:
        """Have told once more what a busy actor was told in vain: a reset is told but once."""
        if self._vain_count:
            self.pause()
            self.resume()

    def pause(self) -> None:
        """Stop telling; twice is harmless."""
        self._vain_count = 0
        if not self.is_paused:
            self.is_paused = True
            self._loop.remove_reader(self.descriptor)

    def resume(self) -> None:
        """Tell again, at once if there is something."""
        if self.is_paused and not self._is_closed:
            self.is_paused = False
            self._listen()

    def tell_while(self, has_more: Callable[[], bool]) -> None:
        """Tell in the next turn of the loop, if `has_more` is true then.

        For who receives by way of a buffer, of which the loop knows nothing.
        """
        self._loop.call_soon(self._tell, has_more)

    def _tell(self, has_more: Callable[[], bool]) -> None:
        if not self._is_closed and has_more():
            self._run_queue.tell_readable(self, READABLE)

    def look_for_reset(self) -> None:
        """Make sure that the peer's reset is still told; for who has received, and waits for more.

        libuv stops to watch a descriptor on which it finds an error, and uvloop tells it but once,
        as something to receive. Where bytes came before a reset, that is taken for them.
        """
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) and not self.is_paused:
            self.pause()
            self.resume()

    async def say_goodbye(self, timeout_s: float) -> None:
        """End the stream, and wait until the peer has taken it and closes; the watch is paused.

        Closed before, with bytes that were not received, the socket would be reset.
        """
        run_queue, loop = self._run_queue, self._loop
        self.pause()
        deadline_s = run_queue.monotonic_s() + timeout_s
        with suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := deadline_s - run_queue.monotonic_s()) > 0:
                is_there = await self._wait(loop.add_reader, loop.remove_reader, left_s)
                if not (is_there and self._socket.recv(_DISCARDED_BYTES)):
                    return

    async def wait_arrival_turn(self) -> None:
        """Wait until it is this actor's turn to go on with somebody who only arrives.

        Those who are served come first: the loop looks for what they ask before each such turn.
        """
        wait = Wait(self.cell)
        self._arrivals.add(partial(self._run_queue.run_outside, partial(wait.finish, None)))
        await wait

    async def wait_writable(self, timeout_s: float) -> bool:
        """Wait until the descriptor takes bytes again; False when it did not in time.

        Where many can go on at a time, they take turns.
        """
        loop = self._loop
        return await self._wait(loop.add_writer, loop.remove_writer, timeout_s)

    async def _wait(
        self,
        add: Callable[[int, Callable[[], object]], object],
        remove: Callable[[int], object],
        timeout_s: float,
    ) -> bool:
        wait = Wait(self.cell)
        run_queue = self._run_queue

        def ready() -> None:
            if not self._is_closed:
                remove(self.descriptor)
                self._turns.add(partial(run_queue.run_outside, partial(wait.finish, None)))

        wait.timer = self.cell.own().add_timer(timeout_s, wait.expire)
        add(self.descriptor, ready)
        try:
            return await wait is not TIMED_OUT
        finally:
            if not self._is_closed:
                remove(self.descriptor)

    def close(self) -> None:
        """Stop for good and close the socket; twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            # Cell and watch would otherwise hold each other until the next garbage collection.
            self.cell.on_end = None
            self._loop.remove_reader(self.descriptor)
            self._loop.remove_writer(self.descriptor)
            self._socket.close()
            # It leads back here by way of the actor, and both would wait for the collector.
            when_closed, self._when_closed = self._when_closed, _do_nothing
            when_closed()


def _do_nothing() -> None:
    """Stand in for what was called already."""
