import asyncio

from poe.client.timeouts import TimeoutQueue


async def test_waits_end_in_their_turn_and_those_that_were_not_in_vain_do_not_ring():
    loop = asyncio.get_running_loop()
    queue = TimeoutQueue(0.02)
    done, first, second = (loop.create_future() for _ in range(3))
    for future in (done, first):
        queue.limit(future)
    done.set_result(None)
    await asyncio.wait_for(first, 5)
    queue.limit(second)
    await asyncio.wait_for(second, 5)


async def test_what_is_done_is_not_kept():
    loop = asyncio.get_running_loop()
    queue = TimeoutQueue(30.0)
    for _ in range(100):
        future = loop.create_future()
        queue.limit(future)
        future.set_result(None)
    assert len(queue._waits) == 1  # noqa: SLF001 - nothing else shows it


async def test_what_is_done_is_not_kept_behind_what_is_not_either():
    """One topic may have to wait while others are served."""
    loop = asyncio.get_running_loop()
    queue = TimeoutQueue(30.0)
    waiting = loop.create_future()
    queue.limit(waiting)
    for _ in range(1000):
        future = loop.create_future()
        queue.limit(future)
        future.set_result(None)
    kept = [future for _, future in queue._waits]  # noqa: SLF001 - nothing else shows it
    assert waiting in kept
    assert len(kept) < 200
