"""The asyncio consumer: `Consumer` with `await`."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Self, TypeVar

from poe.client.consumer.cursor import Cursor
from poe.client.consumer.loop_thread import LoopThread, until_closed
from poe.client.consumer.source import ConsumerStatistics, Fetched, Received, Start
from poe.client.given_topics import Topics
from poe.client.local_server import LocalServer
from poe.errors import ConsumerClosed
from poe.errors.timeout import limit_of

T = TypeVar("T")


class AsyncConsumer:
    """Reads a topic from where one likes, follows it, and reconnects by itself; for asyncio.

    Arguments, methods and errors are those of `Consumer`. It belongs to one event loop. One task at
    a time may read; any task may close it, and a task that waits then is told so. That of a group
    has a thread beside it, so that it is heard of while the event loop is busy.
    """

    def __init__(self, url: str | LocalServer, topics: Topics, /, **options: Any) -> None:  # noqa: ANN401 - checked by `ConsumerOptions`
        self._cursor = Cursor(url, topics, options)
        self._loop: LoopThread | None = None
        if self._cursor.is_member:
            self._loop = LoopThread(f"consumer of {topics!r}", self._cursor.close, ConsumerClosed)

    async def __aenter__(self) -> Self:
        try:
            await self._run(self._cursor.open())
        except BaseException:
            await self.close()  # who has not entered does not leave
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._cursor.settle()
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Yield each message, until `receive` would return none or the consumer is closed."""
        self._cursor.check_open()
        with until_closed():
            while await self._run(self._cursor.fill()):
                for received in self._cursor.each():
                    yield received

    async def batches(self) -> AsyncIterator[list[Received]]:
        """Yield what `receive` returns, until that is nothing or the consumer is closed."""
        self._cursor.check_open()
        with until_closed():
            while await self._run(self._cursor.fill()):
                yield self._cursor.take()

    async def columns(self) -> AsyncIterator[Fetched]:
        """Yield messages side by side, see `Consumer.columns`."""
        self._cursor.check_open()
        with until_closed():
            while await self._run(self._cursor.fill()):
                yield self._cursor.take_columns()

    async def receive(self, timeout_s: float | None = None) -> list[Received]:
        """Return the next messages, see `Consumer.receive`."""
        await self._run(self._cursor.fill(limit_of(timeout_s)))
        return self._cursor.take()

    async def position(self) -> dict[Any, int]:
        """Return how far it was read, see `Consumer.position`."""
        if self._cursor.position is None:
            await self._run(self._cursor.open())
        return self._cursor.position or {}

    async def seek(self, start: Start) -> None:
        """Read on from somewhere else, see `Consumer.seek`."""
        await self._run(self._cursor.seek(start))

    async def commit(self, data: bytes = b"") -> dict[bytes, int]:
        """Tell the group that all that was handed out is dealt with, see `Consumer.commit`."""
        return await self._run(self._cursor.commit(data))

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted so far."""
        return self._cursor.statistics

    async def close(self) -> None:
        """Close all connections; a task that waits for messages is told."""
        if self._loop is None:
            await self._cursor.close()
        else:
            await asyncio.to_thread(self._loop.close)

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine of the cursor returns, on the event loop that has it."""
        return await (coroutine if self._loop is None else self._loop.wait(coroutine))
