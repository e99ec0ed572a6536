import asyncio
import threading
from functools import partial

import pytest

from poe.client.producer.batch import Batch
from poe.client.producer.delivery import (
    Delivery,
    Gathering,
    Outcome,
    RequestOutcome,
    Sent,
    in_a_row,
    resolve_soon,
)
from poe.errors import CallTimeout, ProducerClosed
from tests.client.simulated import QueueWorld


class Pointer(RequestOutcome):
    """Settles with the pointer of its last message."""

    __slots__ = ()

    def result_of(self, end, count):
        if isinstance(self.value, Exception):
            raise self.value
        return Sent(b"t", 0, self.value, count)

    def results_of(self, end, count):
        return [self.result_of(end, 1)] * count


def test_result_waits_for_another_thread():
    outcome = Pointer()
    timer = threading.Timer(0.02, outcome.settle, [7])
    timer.start()
    assert Delivery(outcome, 1, 1).result(5.0) == Sent(b"t", 0, 7, 1)
    timer.join()


def test_result_in_vain_is_a_time_out_and_the_delivery_goes_on():
    outcome = Pointer()
    delivery = Delivery(outcome, 1, 1)
    with pytest.raises(CallTimeout):
        delivery.result(0.001)
    assert not delivery.done()
    outcome.settle(7)
    assert delivery.done()
    assert delivery.exception() is None


def test_a_failure_is_raised_to_each_who_asks():
    outcome = Pointer()
    deliveries = [Delivery(outcome, i, 1) for i in (1, 2)]
    outcome.settle(ProducerClosed())
    for delivery in deliveries:
        assert isinstance(delivery.exception(), ProducerClosed)
        with pytest.raises(ProducerClosed):
            delivery.result()


def test_callbacks_are_called_once_in_their_order_before_and_after_the_end():
    outcome = Pointer()
    delivery = Delivery(outcome, 1, 1)
    called: list[int] = []
    for i in range(3):
        delivery.add_done_callback(partial(note, called, i))
    outcome.settle(7)
    delivery.add_done_callback(partial(note, called, 3))
    assert called == [0, 1, 2, 3]


def note(called, number, delivery):
    assert delivery.done()
    called.append(number)


def test_a_callback_that_raises_keeps_nobody_from_the_answer(caplog):
    outcome = Pointer()
    delivery = Delivery(outcome, 1, 1)
    delivery.add_done_callback(lambda _: 1 / 0)
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    outcome.settle(7)
    assert called == [delivery]
    assert "ZeroDivisionError" in caplog.text


async def test_a_thousand_tasks_are_woken_by_one_wake_up_of_their_loop(monkeypatch):
    outcome = Pointer()
    loop = asyncio.get_running_loop()
    woken = []
    wake = loop.call_soon_threadsafe

    def counted(callback, *args):
        woken.append(callback)
        return wake(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    async def wait(i):
        return await Delivery(outcome, i, 1)

    tasks = [asyncio.create_task(wait(i)) for i in range(1000)]
    await asyncio.sleep(0)
    thread = threading.Thread(target=outcome.settle, args=[7])
    thread.start()
    thread.join()
    assert [sent.pointer for sent in await asyncio.gather(*tasks)] == [7] * 1000
    assert len(woken) == 1


async def test_a_task_that_is_cancelled_does_not_disturb_others():
    outcome = Pointer()

    async def wait():
        return await Delivery(outcome, 1, 1)

    gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    gone.cancel()
    outcome.settle(7)
    assert (await stays).pointer == 7
    assert gone.cancelled()


def test_loops_of_several_threads_may_wait_for_one_delivery():
    outcome = Pointer()
    begun = threading.Barrier(3)
    results = []

    async def wait():
        delivery = Delivery(outcome, 1, 1)
        future = asyncio.ensure_future(_awaited(delivery))
        await asyncio.sleep(0)
        begun.wait(5)
        results.append(await future)

    threads = [threading.Thread(target=asyncio.run, args=[wait()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(5)
    outcome.settle(7)
    for thread in threads:
        thread.join(5)
    assert [sent.pointer for sent in results] == [7, 7]


async def _awaited(delivery):
    return await delivery


def test_a_gathering_is_done_when_all_its_parts_are():
    outcomes = [Pointer(), Pointer()]
    parts = [Delivery(outcome, 1, 1) for outcome in outcomes]
    whole = Delivery(Gathering(in_a_row(parts), {}, is_keyed=False), 2, 2)
    outcomes[1].settle(2)
    assert not whole.done()
    outcomes[0].settle(1)
    assert whole.result(0) == Sent(b"t", 0, 2, 2)


def test_what_follows_from_an_abandoned_outcome_fails_too_and_nobody_is_called():
    outcomes = [Pointer(), Pointer()]
    parts = [Delivery(outcome, 1, 1) for outcome in outcomes]
    whole = Delivery(Gathering(in_a_row(parts), {}, is_keyed=False), 2, 2)
    called: list[int] = []
    for delivery in (*parts, whole):
        delivery.add_done_callback(partial(note, called, 0))
    outcomes[0].abandon(ProducerClosed())
    outcomes[1].abandon(ProducerClosed())
    assert isinstance(whole.exception(0), ProducerClosed)
    assert not called


def test_who_gives_up_waiting_leaves_nothing_behind():
    """In a downtime of hours many calls find the buffer full, or ask again and again."""
    world = QueueWorld(buffer_count=1)
    [delivery] = world.queue.add([b"a"], is_due=True)
    room = world.accumulator.room()
    for _ in range(100):
        for outcome in (room, delivery):
            with pytest.raises(CallTimeout):
                outcome.wait(0.0)
    assert not room._actions  # noqa: SLF001 - what it keeps
    batch = delivery.outcome
    assert isinstance(batch, Batch)
    assert not any(batch.calls.values())
    world.connect().run()
    assert delivery.result(0).count == 1


async def test_of_tasks_that_give_up_waiting_no_more_is_kept_than_of_those_that_wait():
    outcome = Outcome()
    waiting = [outcome.future() for _ in range(3)]
    for _ in range(1000):
        outcome.future().cancel()
    kept = outcome._futures or {}  # noqa: SLF001 - what it keeps
    assert 3 <= len(kept[asyncio.get_running_loop()]) < 100
    outcome.settle(value=True)
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_nor_is_anything_kept_of_tasks_that_give_up_waiting_for_a_call():
    """As those that look each second of a downtime whether a delivery is done."""
    world = QueueWorld()
    [delivery] = world.queue.add([b"a"], is_due=True)
    waiting = asyncio.ensure_future(_awaited(delivery))
    for _ in range(100):
        task = asyncio.ensure_future(_awaited(delivery))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    batch = delivery.outcome
    assert isinstance(batch, Batch)
    assert len(batch.calls[1]) == 1
    world.connect().run()
    assert (await asyncio.wait_for(waiting, 5)).count == 1


def test_a_loop_that_is_closed_in_this_moment_is_no_error_of_who_tells_it(monkeypatch):
    loop = asyncio.new_event_loop()
    future: asyncio.Future[None] = loop.create_future()
    monkeypatch.setattr(loop, "is_closed", lambda: False)  # so it was when it was asked
    loop.close()
    resolve_soon(loop, [future])
    assert not future.done()
