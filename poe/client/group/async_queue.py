"""The asyncio work queue: `Queue` with `await`."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self, overload

from poe.client.consumer.loop_thread import LoopThread, until_closed
from poe.client.group.job import Job
from poe.client.group.queue_core import PutTerms, QueueCore
from poe.client.local_server import LocalServer
from poe.client.timeouts import deadline_of, left_s
from poe.errors import QueueClosed


class AsyncQueue:
    """Hands out the messages of a topic as jobs, for asyncio; arguments and errors are `Queue`'s.

        job = await queue.get()
        async with job:
            await work(job.value)

    Tasks of any event loop may use one: it has a thread of its own, so that it is heard of while
    an event loop is busy.
    """

    def __init__(
        self,
        url: str | LocalServer,
        topics: bytes | str | Iterable[bytes | str],
        /,
        *,
        group: str = "workers",
        **options: Any,  # noqa: ANN401 - checked by `QueueOptions`
    ) -> None:
        self._core = QueueCore(url, topics, group, options)
        self._loop = LoopThread(
            f"queue of {group}", self._core.close, QueueClosed, self._core.is_in_call
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Job]:
        """Yield jobs until the queue is closed; each is to be acknowledged, or entered."""
        with until_closed():
            while True:
                yield await self.get()

    async def put(
        self,
        messages: bytes | list[bytes],
        delay_s: float = 0,
        *,
        copies: int | None = None,
        deadline_s: float | None = None,
    ) -> int | None:
        """Put one message or several, see `Queue.put`."""
        several = [messages] if isinstance(messages, bytes) else messages
        return await self._loop.wait(self._core.put(several, PutTerms(delay_s, copies, deadline_s)))

    @overload
    async def get(self, timeout_s: None = None) -> Job: ...

    @overload
    async def get(self, timeout_s: float) -> Job | None: ...

    async def get(self, timeout_s: float | None = None) -> Job | None:
        """Return the next job; None where none came within `timeout_s`, see `Queue.get`."""
        deadline_s = deadline_of(timeout_s)
        while (job := self._core.take()) is None:
            if not await self._loop.wait(self._core.wait(left_s(deadline_s))):
                return None
        return job

    def statistics(self) -> dict[str, int]:
        """Return counts since it was made, and how many messages wait here and are worked on."""
        return self._core.statistics()

    async def close(self) -> None:
        """Tell what became of the jobs, and leave, see `Queue.close`."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Do the same where there is no event loop: it blocks."""
        self._loop.close()
