"""A thread that sends to one peer what may have to wait for that peer, and for nobody else."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread


class Lane:
    """Makes calls one after the other in a thread, which starts with the first of them.

    How many wait is bounded by who asks: a `Sender` has a window.
    """

    def __init__(self, thread_name: str) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._thread_name = thread_name

    def do(self, call: Callable[[], object]) -> None:
        """Make a call, which raises nothing, after those before it."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._thread_name, daemon=True)
            self._thread.start()
        self._calls.put(call)

    def close(self) -> None:
        """End when all that was asked for is done; waits for nothing."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
