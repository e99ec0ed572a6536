"""What several tabs ask at the same time, asked of the node once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any


class Together:
    """Asks a question once for all who come before it is asked; belongs to one event loop.

    Who comes while it is being asked shares the next answer with all others who do: none gets one
    that is older than what it has just done. A question that nobody asks takes no room.
    """

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        """Return how many questions are asked, or about to be."""
        return len(self._asked.keys() | self._next.keys())

    async def ask(self, question: Hashable, find: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - as it finds
        """Return what `find` of one of those returns who ask this question.

        Raises:
            PoeError: as `find` does.
        """
        task = self._next.get(question)
        if task is None:
            task = self._next[question] = asyncio.create_task(self._find(question, find))
            task.add_done_callback(_take_note)
        return await asyncio.shield(task)  # who goes away takes the answer from nobody

    async def _find(self, question: Hashable, find: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        before = self._asked.get(question)
        if before is not None:
            await asyncio.wait({before})
        task = self._asked[question] = self._next.pop(question)
        try:
            return await find()
        finally:
            if self._asked.get(question) is task and question not in self._next:
                del self._asked[question]


def _take_note(task: asyncio.Task[Any]) -> None:
    """Have nobody told of an error that all who asked have gone away from."""
    if not task.cancelled():
        task.exception()
