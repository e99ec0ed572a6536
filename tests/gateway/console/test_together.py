"""What several tabs ask at the same time is asked once, and nobody gets an old answer."""

import asyncio

from poe.errors import ConnectFailed
from poe.gateway.console.together import Together


class Asked:
    """Answers how often it was asked, when it is told to."""

    def __init__(self):
        self.count = 0
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def find(self):
        self.count += 1
        count, error = self.count, await self.answers.get()
        if error is not None:
            raise error
        return count


async def begun(count):
    """Let tasks go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_at_the_same_time_shares_an_answer_and_who_comes_later_the_next_one():
    together, asked = Together(), Asked()
    first = [asyncio.create_task(together.ask("q", asked.find)) for _ in range(3)]
    await begun(3)
    later = [asyncio.create_task(together.ask("q", asked.find)) for _ in range(2)]
    await begun(3)
    assert asked.count == 1
    asked.answers.put_nowait(None)
    asked.answers.put_nowait(None)
    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await asyncio.gather(*later) == [2, 2]
    other = asyncio.create_task(together.ask("q", asked.find))
    asked.answers.put_nowait(None)
    assert await other == 3
    assert not len(together)


async def test_who_goes_away_takes_the_answer_from_nobody_and_another_question_waits_for_none():
    together, asked = Together(), Asked()
    tasks = [asyncio.create_task(together.ask("q", asked.find)) for _ in range(2)]
    await begun(3)
    tasks[0].cancel()
    await begun(2)
    other = asyncio.create_task(together.ask("other", asked.find))
    await begun(3)
    assert asked.count == 2
    asked.answers.put_nowait(None)
    asked.answers.put_nowait(None)
    assert await tasks[1] == 1
    assert await other == 2


async def test_an_error_is_told_to_all_who_asked_and_the_next_one_asks_anew():
    together, asked = Together(), Asked()
    tasks = [asyncio.create_task(together.ask("q", asked.find)) for _ in range(2)]
    await begun(3)
    later = asyncio.create_task(together.ask("q", asked.find))
    asked.answers.put_nowait(ConnectFailed("h", 1, "it is away"))
    asked.answers.put_nowait(None)
    failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, ConnectFailed) for each in failed)
    assert await later == 2
