"""What falls out of the buffer of a downtime is told at once, while the broker stays away."""

import asyncio
import random
import sys
import threading
from functools import partial

import pytest

from poe.client import AsyncProducer, Delivery, Producer, Sent
from poe.errors import CallTimeout, Dropped
from poe.testing import broker
from tests.client.simulated import QueueWorld
from tests.waiting import wait_until

SIDES = pytest.mark.parametrize("side", ["oldest", "newest"])
WHY = Dropped(b"t", "oldest")


def options(tmp_path, side, **more):
    return {"downtime_count": 10, "downtime_drop": side, "close_timeout_s": 0, **more}


def is_down(producer, *topics):
    return all(producer.info(topic).state == "downtime" for topic in topics)


def outcomes_of(deliveries):
    """What each delivery is: its error's name, or None while it is pending."""
    names = []
    for each in deliveries:
        error = each.exception(0) if each.done() else None
        names.append(None if error is None else type(error).__name__)
    return names


def expected(side, count, kept):
    dropped = ["Dropped"] * (count - kept)
    return [*dropped, *[None] * kept] if side == "oldest" else [*[None] * kept, *dropped]


@SIDES
@pytest.mark.parametrize("known", [False, True], ids=["new topic", "known partitions"])
@pytest.mark.parametrize("name", ["produce_async", "produce_async_batched"])
def test_each_delivery_that_was_dropped_is_done(side, known, name):
    with broker() as stopped, Producer(stopped.url, **options(None, side)) as producer:
        if known:
            producer.produce_sync("t", b"first")
        stopped.stop()
        if not known:
            producer.produce_async("t", b"x").add_done_callback(lambda _: None)
        wait_until(lambda: is_down(producer, "t"))
        kept = 10 if known or side == "oldest" else 9
        deliveries = [getattr(producer, name)("t", b"%d" % i) for i in range(25)]
        assert outcomes_of(deliveries) == expected(side, 25, kept)


@SIDES
def test_those_who_wait_for_what_is_dropped_go_on(side, away):
    """A thread, a callback and a task wait for each call before it is dropped."""

    async def run(producer):
        tasks, called, woken = [], [], []
        for i in range(25):
            delivery = await producer.produce_async_batched("t", b"%d" % i)
            tasks.append(asyncio.ensure_future(asyncio.wait_for(delivery, 60)))
            delivery.add_done_callback(lambda _, i=i: called.append(i))
            thread = threading.Thread(
                target=lambda d=delivery, i=i: woken.append((d.exception(60), i)), daemon=True
            )
            thread.start()
        dropped = range(15) if side == "oldest" else range(10, 25)
        gone = await asyncio.gather(*(tasks[i] for i in dropped), return_exceptions=True)
        assert {type(each) for each in gone} == {Dropped}
        assert sum(task.done() for task in tasks) == 15
        await asyncio.to_thread(wait_until, lambda: len(called) == len(woken) == 15)
        assert sorted(called) == sorted(i for _, i in woken) == list(dropped)
        assert await producer.close() != []
        await asyncio.gather(*tasks, return_exceptions=True)

    async def main():
        producer = AsyncProducer(away.url, **options(None, side))
        with pytest.raises(Exception, match="no broker"):
            await producer.prepare("t", timeout_s=0.2)
        await asyncio.wait_for(run(producer), 60)

    asyncio.run(main())


def test_a_call_that_waits_in_a_batch_is_woken_when_it_is_dropped(away):
    """Of `produce_sync`, too, which would else wait for all of its time."""
    with Producer(away.url, **options(None, "oldest", downtime_count=3)) as producer:
        producer.produce_async("t", b"x")
        wait_until(lambda: is_down(producer, "t"))
        errors: list[BaseException] = []

        def call():
            try:
                producer.produce_sync("t", b"waits", timeout_s=60)
            except Dropped as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        wait_until(lambda: producer.info("t").buffered_count >= 2)
        for _ in range(4):
            producer.produce_async("t", b"y")
        thread.join(20)
        assert [type(each) for each in errors] == [Dropped]


@SIDES
def test_what_was_taken_before_the_downtime_was_noticed_is_bounded_too(side):
    with broker() as stopped, Producer(stopped.url, **options(None, side)) as producer:
        stopped.stop()
        deliveries = [producer.produce_async_batched("t", b"%d" % i) for i in range(100)]
        wait_until(lambda: is_down(producer, "t"))
        # Who waits is told just behind that.
        wait_until(lambda: outcomes_of(deliveries) == expected(side, 100, 10))
        assert producer.info("t").buffered_count == 10
        assert producer.statistics()["messages_dropped"] == 90
        stopped.start()
        kept = [each for each in deliveries if not each.done() or each.exception(0) is None]
        assert {type(each.result(60)) for each in kept} == {Sent}
        values = [int(each.value or b"") for each in stopped.collected("t")]
        assert values == (list(range(90, 100)) if side == "oldest" else list(range(10)))


@SIDES
def test_messages_that_wait_for_a_connection_that_goes_are_bounded(side):
    """Partitions are known, nothing is under way, and the batch is not due for long."""
    with (
        broker() as stopped,
        Producer(stopped.url, **options(None, side), linger_s=300.0) as producer,
    ):
        producer.produce_sync("t", b"first")
        deliveries = [producer.produce_async_batched("t", b"%d" % i) for i in range(100)]
        stopped.stop()
        # Who waits is told just behind that.
        wait_until(lambda: outcomes_of(deliveries) == expected(side, 100, 10))
        assert producer.info("t").buffered_count == 10


@SIDES
def test_a_list_is_done_when_all_of_it_is_dropped(side):
    """What becomes of the rest is not known before, and may be waited for as ever."""
    with (
        broker() as stopped,
        Producer(stopped.url, **options(None, side), batch_count=4, linger_s=300.0) as producer,
    ):
        producer.produce_sync("t", b"first")
        stopped.stop()
        wait_until(lambda: is_down(producer, "t"))
        lists = [producer.produce_async_batched("t", [b"%d" % i] * 9) for i in range(4)]
        assert outcomes_of(lists) == (
            ["Dropped"] * 2 + [None] * 2 if side == "oldest" else [None] * 2 + ["Dropped"] * 2
        )
        stopped.start()
        assert producer.flush(60)
        with pytest.raises(Dropped):
            lists[2 if side == "oldest" else 1].result(60)
        assert isinstance(lists[3 if side == "oldest" else 0].result(60), Sent)
        assert len(stopped.collected("t")) == 11


@SIDES
def test_a_bounded_spool_tells_at_once_too(side, away, tmp_path):
    with Producer(
        away.url,
        spool_dir=tmp_path,
        spool_bytes=1 << 20,
        downtime_drop=side,
        close_timeout_s=0,
    ) as producer:
        deliveries = [producer.produce_async("t", bytes(100_000)) for _ in range(40)]
        wait_until(lambda: "Dropped" in outcomes_of(deliveries))
        wait_until(lambda: producer.statistics()["messages_buffered"] == 0)
        told = outcomes_of(deliveries)
        assert told.count("Dropped") == producer.statistics()["messages_dropped"] > 20
        assert told.count(None) == producer.statistics()["messages_spooled"]


def counts(world):
    queue = world.queue
    return queue.unsent_count, sum(batch.count() for batch in queue.unsettled() if not batch.serial)


@pytest.mark.parametrize("seed", range(40))
def test_a_queue_knows_its_deliveries_one_by_one(seed):
    """Whatever is added, dropped, withdrawn and sent, in whatever order."""
    chance = random.Random(seed)
    world = QueueWorld(batch_count=5, linger_s=60.0, downtime_count=1)
    told: dict[int, int] = {}
    deliveries: list[Delivery] = []
    for step in range(200):
        action = chance.choice(["add"] * 4 + ["drop", "drop", "withdraw", "connect", "lose"])
        if action == "add":
            messages = [b"%d" % step] * chance.randint(1, 7)
            for each in world.queue.add(messages, is_due=chance.random() < 0.3):
                told[len(deliveries)] = 0
                number = len(deliveries)

                def note(_, number=number):
                    told[number] += 1

                each.add_done_callback(note)
                deliveries.append(each)
        elif action == "drop":
            before = world.queue.unsent_count
            count = chance.randint(1, 9)
            gone = world.queue.drop(count, WHY, newest=chance.random() < 0.5)
            assert len(gone) == min(count, before)
            assert world.queue.unsent_count == before - len(gone)
        elif action == "withdraw" and deliveries:
            world.queue.withdraw(chance.choice(deliveries), CallTimeout("x", 1.0))
        elif action == "connect":
            world.connect().run()
        elif action == "lose":
            world.disconnect()
        known, found = counts(world)
        assert known == found == world.queue.buffered()[0]
        assert [told[i] for i in range(len(deliveries))] == [int(d.done()) for d in deliveries]
    world.disconnect()
    world.connect()
    for _ in range(50):
        world.queue.flush()
        world.link.run()
        world.time.advance(60.0)
    assert all(each.done() for each in deliveries)
    assert set(told.values()) == {1}
    assert world.accumulator.count == world.accumulator.size == world.queue.unsent_count == 0


def calls_of(function):
    """How many functions, of Python or C, a call makes: what time it takes, but for noise."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@SIDES
@pytest.mark.parametrize("known", [False, True], ids=["new topic", "known partitions"])
def test_a_call_that_drops_one_costs_the_same_however_many_wait(side, known):
    costs = []
    for kept in (100, 5000):
        more = {"downtime_count": kept, "batch_count": 50}
        with (
            broker() as stopped,
            Producer(stopped.url, **options(None, side) | more, linger_s=300.0) as producer,
        ):
            if known:
                producer.produce_sync("t", b"first")
            stopped.stop()
            producer.produce_async_batched("t", b"x")
            wait_until(partial(is_down, producer, "t"))
            for _ in range(kept + 60):
                producer.produce_async_batched("t", b"x")
            call = partial(producer.produce_async_batched, "t", b"x")
            costs.append(sum(calls_of(call) for _ in range(100)))
    assert costs[1] < 1.3 * costs[0], costs
