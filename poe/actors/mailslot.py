"""A way to an actor for threads that the runtime does not know, such as those of a library.

Such a thread must not wait: for the lock of the run queue, behind whatever actor runs just then,
its library would stand still. What it posts lies in a queue until the event loop comes for it, and
all that is there by then is handed over at once.
"""

from collections import deque
from functools import partial

from poe.actors.event_loop import EventLoop
from poe.actors.gen_server import GenServer
from poe.actors.server_cell import cell_of_actor
from poe.errors import LoopSystemOnly


class Mailslot:
    """Takes messages for one actor, from any thread; they arrive in `handle_info`, in order.

    Raises:
        LoopSystemOnly: on construction; a process of Thespian's has no event loop.
    """

    def __init__(self, actor: GenServer) -> None:
        self._cell = cell_of_actor(actor)
        self._run_queue = self._cell.run_queue
        self._waiting: deque[object] = deque()
        self._is_told = False
        self._event_loop: EventLoop | None = None
        if not self._run_queue.is_simulated:
            event_loop: object = self._run_queue.event_loop()
            if not isinstance(event_loop, EventLoop):
                raise LoopSystemOnly("Mailslot", "use run_blocking, or Work")
            self._event_loop = event_loop

    def post(self, message: object) -> None:
        """Leave a message; returns at once. Nobody hears of it if the actor has ended."""
        if self._event_loop is None:
            if self._run_queue.is_running_here():
                self._cell.post(message)
            else:
                self._run_queue.post_from_outside(self._cell, message, None)
            return
        self._waiting.append(message)
        # First the message, then the look at the mark; the loop does both the other way round. So
        # what comes at the same moment is taken now, or told again.
        if not self._is_told:
            self._is_told = True
            self._event_loop.wake(partial(self._run_queue.run_outside, self._hand_over))

    def _hand_over(self) -> None:
        self._is_told = False
        waiting = self._waiting
        while waiting:
            self._cell.post(waiting.popleft())
