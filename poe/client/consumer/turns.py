"""Reads partitions by turns, so that one which is far behind does not keep the others waiting."""

import asyncio
from collections.abc import Collection
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from poe.client.consumer.source import Fetched


class Reader(Protocol):
    """Reads one partition, wherever its connection goes; one task at a time calls it."""

    async def read(self) -> Fetched | None:
        """Return what follows; None where nothing does. May be cancelled, and called again then."""

    async def close(self) -> None:
        """Let go of the connection."""


R = TypeVar("R", bound=Reader)


class Turn(NamedTuple, Generic[R]):
    """What one reader has read."""

    reader: R
    fetched: Fetched


class Turns(Generic[R]):
    """The readers of some partitions, one fetch ahead in each; belongs to one event loop.

    They may come and go at any time, while somebody waits for the next turn, too.
    """

    def __init__(self) -> None:
        self._readers: list[R] = []
        # In the order of their turns; those that are in neither have come to their end.
        self._tasks: dict[R, asyncio.Task[Fetched | None]] = {}
        self._idle: list[R] = []
        self._changed: asyncio.Future[None] | None = None

    def add(self, reader: R) -> None:
        """Read from a partition, too."""
        self._readers.append(reader)
        self._idle.append(reader)
        self.wake()

    async def remove(self, reader: R) -> None:
        """Read from a partition no more, and close its reader; nothing more of it comes."""
        self._readers.remove(reader)
        if reader in self._idle:
            self._idle.remove(reader)
        task = self._tasks.pop(reader, None)
        self.wake()
        await _give_up([] if task is None else [task])
        await reader.close()

    def wake(self) -> None:
        """Have who waits for the next turn look again at which readers there are."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def next(self) -> Turn[R] | None:
        """Return what the reader has read whose turn it is.

        None is the end: all have come to theirs, and the next call looks anew. May be cancelled at
        any time; nothing is lost by it.

        Raises:
            PoeError: as `Reader.read`; the next call has it tried again.
        """
        looked_anew: set[R] = set()
        while True:
            looked_anew.update(self._idle)
            while self._idle:
                self._begin_read(self._idle.pop())
            if self._tasks:
                turn = await self._next_read()
                if turn is not None:
                    return turn
            else:
                # An end that was found before, or ahead, may be none any more.
                self._idle = [each for each in self._readers if each not in looked_anew]
                if not self._idle:
                    self._idle = self._readers.copy()
                    return None

    async def close(self) -> None:
        """Give up what was begun, and close all readers; cancelled, it is to be called again."""
        tasks, self._tasks, self._idle = self._tasks, {}, []
        await _give_up(tasks.values())
        await asyncio.gather(*(reader.close() for reader in self._readers))
        self._readers = []

    async def _next_read(self) -> Turn[R] | None:
        """Return what the first that is done of the reads under way has come to."""
        done = self._done()
        if done is None:
            # Not before: of thousands, each turn would wait for each of those that are done.
            self._changed = asyncio.get_running_loop().create_future()
            waited: list[asyncio.Future[Any]] = [*self._tasks.values(), self._changed]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            done = self._done()
        if done is None:
            return None
        reader, task = done
        del self._tasks[reader]
        error = task.exception()
        if error is not None:
            self._idle.append(reader)
            raise error
        fetched = task.result()
        if fetched is None:
            return None
        self._begin_read(reader)
        return Turn(reader, fetched)

    def _done(self) -> tuple[R, asyncio.Task[Fetched | None]] | None:
        """Return the first read that is done, in the order of turns."""
        return next((each for each in self._tasks.items() if each[1].done()), None)

    def _begin_read(self, reader: R) -> None:
        """Read on in a partition, whose turn comes behind all others."""
        self._tasks[reader] = asyncio.create_task(reader.read())


async def _give_up(tasks: Collection[asyncio.Task[Fetched | None]]) -> None:
    """Cancel tasks; errors that nobody has fetched are taken note of, or they would be logged."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
