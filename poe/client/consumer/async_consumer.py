"""The asyncio consumer: `Consumer` with `await`."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

from poe.client.consumer.cursor import Cursor
from poe.client.consumer.source import ConsumerStatistics, Fetched, Received, Start
from poe.errors import ConsumerClosed
from poe.errors.timeout import check_timeout


class AsyncConsumer:
    """Reads a topic from where one likes, follows it, and reconnects by itself; for asyncio.

    Arguments, methods and errors are those of `Consumer`. It belongs to one event loop. One task at
    a time may read; any task may close it, and a task that waits then is told so.
    """

    def __init__(self, url: str, topic: bytes | str, /, **options: Any) -> None:  # noqa: ANN401 - checked by `ConsumerOptions`
        self._cursor = Cursor(url, topic, options)

    async def __aenter__(self) -> Self:
        try:
            await self._cursor.open()
        except BaseException:
            await self.close()  # who has not entered does not leave
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Yield each message, until `receive` would return none or the consumer is closed."""
        self._cursor.check_open()
        with suppress(ConsumerClosed):
            while await self._cursor.fill():
                for received in self._cursor.each():
                    yield received

    async def batches(self) -> AsyncIterator[list[Received]]:
        """Yield what `receive` returns, until that is nothing or the consumer is closed."""
        self._cursor.check_open()
        with suppress(ConsumerClosed):
            while await self._cursor.fill():
                yield self._cursor.take()

    async def columns(self) -> AsyncIterator[Fetched]:
        """Yield messages side by side, see `Consumer.columns`."""
        self._cursor.check_open()
        with suppress(ConsumerClosed):
            while await self._cursor.fill():
                yield self._cursor.take_columns()

    async def receive(self, timeout_s: float | None = None) -> list[Received]:
        """Return the next messages, see `Consumer.receive`."""
        check_timeout(timeout_s)
        await self._cursor.fill(timeout_s)
        return self._cursor.take()

    async def position(self) -> dict[int, int]:
        """Return how far it was read, see `Consumer.position`."""
        if self._cursor.position is None:
            await self._cursor.open()
        return self._cursor.position or {}

    async def seek(self, start: Start) -> None:
        """Read on from somewhere else, see `Consumer.seek`."""
        await self._cursor.seek(start)

    def statistics(self) -> ConsumerStatistics:
        """Return what was counted so far."""
        return self._cursor.statistics

    async def close(self) -> None:
        """Close all connections; a task that waits for messages is told."""
        await self._cursor.close()
