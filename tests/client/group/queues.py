"""Both queues behind one interface, so that a test runs on each."""

import asyncio
from typing import Any

from poe.client import AsyncQueue, Queue
from tests.client.consumers import url

GROUP_OPTIONS = {"retry_s": 0, "session_s": 2}


class BlockingAsyncQueue:
    """An `AsyncQueue` with the interface of a `Queue`."""

    def __init__(self, runner: asyncio.Runner, *arguments: Any, **options: Any):
        self._runner = runner
        self._queue = AsyncQueue(*arguments, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def put(self, *arguments, **options):
        return self._runner.run(self._queue.put(*arguments, **options))

    def get(self, timeout_s=None):
        return self._runner.run(self._queue.get(timeout_s))

    def statistics(self):
        return self._queue.statistics()

    def close(self):
        self._runner.run(self._queue.close())


class Queues:
    """Makes queues of one kind, `blocking` or `asyncio`, and closes them."""

    def __init__(self, kind: str):
        self.kind = kind
        self._runner = asyncio.Runner()
        self._made: list[Any] = []

    def __call__(self, place: Any, topics: Any = "jobs", **options: Any):
        options = {"group_options": GROUP_OPTIONS, **options}
        where = (place if isinstance(place, str) else url(place), topics)
        made: Any
        if self.kind == "blocking":
            made = Queue(*where, **options)
        else:
            made = BlockingAsyncQueue(self._runner, *where, **options)
        self._made.append(made)
        return made

    def close(self):
        with self._runner:
            for each in self._made:
                each.close()
