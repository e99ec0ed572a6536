"""What callers see of a spool: in a downtime, of drops, of a full disk, and at the end."""

import errno
import os
import threading
from functools import partial

import pytest

from poe.client import Producer
from poe.client.producer.callbacks import Event
from poe.client.producer.delivery import Buffered, Sent
from poe.client.producer.payload import parse
from poe.client.producer.topic_queues import buffered_of
from poe.client.producer.transport import Partition, TopicMetadata
from poe.client.spool.spool import Spool
from poe.errors import (
    CallTimeout,
    DeliveryTimeout,
    Dropped,
    InvalidMessage,
    InvalidTopicName,
    OptionError,
    Overloaded,
    PickerFailed,
    ProducerClosed,
    SegmentLocked,
)
from poe.errors.delivery import MAYBE_STORED
from poe.testing.broker import broker
from tests.client.simulated import MemorySink
from tests.client.spooled_life import Life, World, numbers
from tests.forks import exit_code_of, fork
from tests.interrupts import places
from tests.waiting import wait_until

NOWHERE = "poe://127.0.0.1:1"


def test_messages_of_a_downtime_leave_memory_and_their_deliveries_resolve_afterwards():
    world = World()
    deliveries = world.add(numbers(0, 20))
    world.time.advance(1.0)
    life = world.life
    assert (life.accumulator.count, life.accumulator.size, life.spooler.count) == (0, 0, 20)
    assert life.topic.info().spooled_count == 20
    assert not any(delivery.done() for delivery in deliveries)
    world.deliver()
    assert world.log == numbers(0, 20)
    assert [delivery.result(0).pointer for delivery in deliveries] == list(range(1, 21))
    assert life.topic.info().spooled_count == 0


def test_small_calls_of_a_downtime_share_batches():
    world = World(batch_count=100)
    world.add(numbers(0, 250))
    world.time.advance(1.0)
    world.life.connect(world.servers)
    assert [len(batch.messages) for batch, _ in world.life.links[0].sent] == [100]
    world.life.run(world.time)
    assert world.log == numbers(0, 250)


@pytest.mark.parametrize("is_downtime", [True, False])
def test_what_lingers_for_long_is_on_disk_soon_in_a_downtime(is_downtime):
    world = World(linger_s=60.0)
    if not is_downtime:
        world.life.connect(world.servers)
    [delivery] = world.queue.add([b"a"], is_due=False)
    if not is_downtime:
        world.life.disconnect()
    world.time.advance(1.0)
    assert world.life.spooler.count == 1
    world.life.connect(world.servers)
    world.queue.add([b"b"], is_due=False)
    world.time.advance(1.0)
    world.life.links[0].run()
    assert delivery.done()
    assert world.log[:1] == [b"a"]


def test_what_comes_while_the_spool_empties_goes_behind_it():
    world = World()
    world.add(numbers(0, 30))
    world.time.advance(1.0)
    world.life.connect(world.servers)
    deliveries = world.add(numbers(30, 40))
    world.time.advance(1.0)
    assert world.life.spooler.count == 40
    world.life.run(world.time)
    assert world.log == numbers(0, 40)
    assert all(delivery.done() for delivery in deliveries)


def test_once_the_spool_is_empty_messages_go_straight_to_the_connection():
    world = World(linger_s=5.0)
    world.add(numbers(0, 5))
    world.time.advance(1.0)
    world.deliver()
    world.add(numbers(5, 6))
    assert len(world.life.links[0].sent) == 1
    assert world.life.spooler.count == 0


def test_what_was_under_way_when_the_connection_was_lost_is_spooled_with_its_number():
    world = World()
    world.life.connect(world.servers)
    deliveries = world.add(numbers(0, 3))
    link = world.life.links[0]
    put_ids = [batch.put_id for batch, _ in link.sent]
    link.store()
    world.life.disconnect()
    assert world.life.spooler.count == 3
    world.life.connect(world.servers)
    assert world.life.links[0].sent[0][0].put_id == put_ids[0]
    world.life.run(world.time)
    assert world.log == numbers(0, 3)
    assert all(delivery.done() for delivery in deliveries)


def test_what_was_delivered_before_a_kill_counts_as_delivered_when_it_comes_again():
    world = World()
    world.add(numbers(0, 3))
    world.time.advance(1.0)
    world.life.queues[1].add(numbers(0, 9), is_due=True)
    world.time.advance(1.0)
    world.life.connect(world.servers)
    world.life.links[1].run()
    assert world.servers[1].log == numbers(0, 9)
    world.life = Life(world.disk.copy("boot"), world.time)
    assert world.life.spooler.count == 12
    world.deliver()
    assert [server.log for server in world.servers] == [numbers(0, 3), numbers(0, 9)]
    totals = world.life.observer.totals
    assert (totals["messages_delivered"], totals["messages_failed"]) == (12, 0)


def test_what_is_there_for_a_partition_that_there_is_not_any_more_is_told_once(caplog):
    world = World()
    world.life.queues[1].add([b"for another partition"], is_due=True)
    world.time.advance(1.0)
    world.life = Life(world.disk.copy("boot"), world.time, knows_partitions=False)
    world.life.topic.learn(TopicMetadata(b"t", (), (Partition(0, 0),)))
    world.life.queues = world.life.topic.queues()
    assert "partition" not in caplog.text
    for _ in range(2):
        world.life.connect(world.servers[:1])
        world.life.disconnect()
    [told] = [each for each in caplog.messages if "partition" in each]
    assert told.startswith("topic b't': the spool has messages for partition 1, which there is not")


def test_what_is_there_for_a_partition_that_has_gone_meanwhile_is_told_once(caplog):
    world = World()
    world.life.queues[1].add([b"for another partition"], is_due=True)
    world.time.advance(1.0)
    world.life.topic.learn(TopicMetadata(b"t", (), (Partition(0, 0),)))
    world.life.queues = world.life.queues[:1]
    for _ in range(2):
        world.life.connect(world.servers[:1])
        world.life.disconnect()
    [told] = [each for each in caplog.messages if "partition" in each]
    assert told.startswith("topic b't': the spool has messages for partition 1, which there is not")


def test_a_drop_of_what_was_under_way_costs_nothing_that_is_under_way_later():
    world = World(bytes_max=1000)
    world.life.connect(world.servers)
    under_way = world.add(numbers(0, 3))
    for _ in range(3):
        world.life.links[0].store()
    world.life.disconnect()
    number = 3
    while not under_way[0].done():
        world.add(numbers(number, number + 1))
        world.time.advance(1.0)
        number += 1
    with pytest.raises(Dropped, match="may be stored"):
        under_way[0].result(0)
    world.deliver()
    assert world.log == numbers(0, number)
    world.add(numbers(number, number + 3))
    world.life.disconnect()
    assert world.life.spooler.count == 3
    world.deliver()
    assert world.log == numbers(0, number + 3)


@pytest.mark.parametrize("drop", ["oldest", "newest"])
def test_what_the_spool_drops_fails_is_counted_and_called_back(drop):
    events = []

    def note(event, worker, state, data, extra):
        events.append((event, extra))

    callbacks = {
        "max_downtime_buffer_reached": note,
        "dropped": note,
    }
    world = World(bytes_max=1000, drop=drop, callbacks=callbacks)
    deliveries = world.add(numbers(0, 100))
    world.time.advance(1.0)
    failed = [number for number, delivery in enumerate(deliveries) if delivery.done()]
    assert failed
    with pytest.raises(Dropped, match=f"were the {drop} .* were not stored; raise spool_bytes"):
        deliveries[failed[0]].result(0)
    dropped = sum(extra for event, extra in events if event == Event.DROPPED)
    reached = [each for event, extra in events if event != Event.DROPPED for each in extra]
    assert dropped == len(failed)
    assert reached == [b"%d" % number for number in failed]
    assert world.life.observer.totals["messages_dropped"] == len(failed)
    world.deliver()
    kept = [number for number in range(100) if number not in failed]
    assert world.log == [b"%d" % number for number in kept]
    assert kept[-1 if drop == "oldest" else 0] == (99 if drop == "oldest" else 0)


def test_what_a_full_disk_refuses_stays_in_memory_and_keeps_its_order(caplog):
    world = World()
    world.add(numbers(0, 9))
    world.time.advance(1.0)
    world.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    world.add(numbers(9, 21))
    world.time.advance(5.0)
    assert (world.life.spooler.count, world.life.accumulator.count) == (9, 12)
    assert caplog.text.count("stay in memory") == 1
    world.files.heal()
    world.add(numbers(21, 24))
    world.time.advance(5.0)
    assert (world.life.spooler.count, world.life.accumulator.count) == (24, 0)
    world.deliver()
    assert world.log == numbers(0, 24)


def test_what_waits_for_a_full_disk_keeps_nobody_busy(monkeypatch):
    world = World()
    world.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    world.add(numbers(0, 4))
    call_later, delays_s = world.time.call_later, []

    def noted(delay_s, action):
        delays_s.append(delay_s)
        call_later(delay_s, action)

    monkeypatch.setattr(world.time, "call_later", noted)
    world.time.advance(10.0)
    assert len(delays_s) <= 3 * 10
    world.files.heal()
    world.time.advance(2.0)
    assert world.life.spooler.count == 4


def test_on_a_full_disk_the_broker_gets_what_is_in_memory_behind_what_is_in_the_spool():
    world = World()
    world.add(numbers(0, 9))
    world.time.advance(1.0)
    world.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    world.add(numbers(9, 21))
    world.deliver()
    assert world.log == numbers(0, 21)


def test_what_follows_a_gap_in_the_spool_is_stored_once_though_a_kill_brings_it_back():
    world = World()
    world.life.queues[1].add([b"keeps the mark where it is"], is_due=True)
    world.time.advance(1.0)
    world.life.connect(world.servers)
    world.add(numbers(0, 3))
    world.life.disconnect()
    world.add(numbers(3, 4))
    world.time.advance(1.0)
    world.life.connect(world.servers)
    world.life.links[0].refuse(InvalidMessage(1, 0))
    world.life.links[0].run()
    assert world.log == numbers(1, 4)
    world.life = Life(world.disk.copy("boot"), world.time)
    assert world.life.spooler.count == 5
    world.deliver()
    assert world.log == numbers(1, 4)


@pytest.mark.parametrize("written_count", range(8))
@pytest.mark.parametrize("refusal", [InvalidMessage(1, 0), Overloaded("in_flight_max", 1)])
def test_what_was_under_way_when_the_disk_became_full_stays_in_front(written_count, refusal):
    world = World()
    world.life.connect(world.servers)
    world.add(numbers(0, 3))
    world.files.fail(written_count, errno.ENOSPC, "write_at", is_for_ever=True)
    world.life.disconnect()
    world.life.connect(world.servers)
    world.add(numbers(3, 5))
    world.life.links[0].refuse(refusal)
    world.life.run(world.time)
    assert world.log == numbers(0 if refusal.retriable else 1, 5)
    totals = world.life.observer.totals
    assert totals["messages_failed"] == (0 if refusal.retriable else 1)


def test_a_disk_that_cannot_be_read_is_read_again(caplog):
    world = World()
    world.add(numbers(0, 9))
    world.time.advance(1.0)
    world.files.fail(0, errno.EIO, "read_at", is_for_ever=True)
    world.life.connect(world.servers)
    assert "trying again" in caplog.text
    assert not world.life.links[0].sent
    world.files.heal()
    world.time.advance(2.0)
    world.life.run(world.time)
    assert world.log == numbers(0, 9)


def test_a_disk_that_cannot_be_read_is_read_again_at_the_same_pace_whatever_comes(caplog):
    world = World()
    world.add(numbers(0, 9))
    world.time.advance(1.0)
    world.files.fail(0, errno.EIO, "read_at", is_for_ever=True)
    world.life.connect(world.servers)
    for number in range(9, 30):
        world.add(numbers(number, number + 1))
        world.time.advance(0.2)
    caplog.clear()
    world.time.advance(10.0)
    assert len(caplog.messages) <= 12
    world.files.heal()
    world.time.advance(2.0)
    world.life.run(world.time)
    assert world.log == numbers(0, 30)


def test_a_massage_is_done_before_the_spool_and_once():
    def massage(topic, messages):
        return [b"<" + b"".join(messages) + b">"]

    world = World(massage=massage)
    world.add(numbers(0, 6))
    world.time.advance(1.0)
    world.deliver()
    assert world.log == [b"<012>", b"<345>"]


def test_a_massage_that_raises_fails_its_batch_in_a_downtime_too():
    def massage(topic, messages):
        raise KeyError(messages[0])

    world = World(massage=massage)
    deliveries = world.add(numbers(0, 2))
    world.time.advance(1.0)
    assert all(delivery.exception(0) for delivery in deliveries)
    assert (world.life.spooler.count, world.life.accumulator.count) == (0, 0)


def test_nothing_in_the_spool_is_too_old():
    world = World(delivery_timeout_s=10.0)
    world.add(numbers(0, 3))
    world.time.advance(100.0)
    world.life.topic.expire()
    world.life.connect(world.servers)
    world.time.advance(100.0)
    world.life.topic.expire()
    world.life.run(world.time)
    assert world.log == numbers(0, 3)


def test_what_a_library_has_given_up_in_time_is_sent_again_from_the_spool():
    world = World()
    deliveries = world.add(numbers(0, 3))
    world.time.advance(1.0)
    world.life.connect(world.servers)
    world.life.links[0].refuse(DeliveryTimeout(b"t", 1.0, MAYBE_STORED, "no broker"))
    world.life.run(world.time)
    assert world.log == numbers(0, 3)
    assert all(delivery.exception(0) is None for delivery in deliveries)


def test_a_fork_fails_the_copy_of_what_is_on_its_way_into_the_spool():
    def massage(topic, messages):
        world.life.topic.forget(ProducerClosed())  # as the child does, at this moment
        return messages

    world = World(massage=massage)
    [delivery] = world.add([b"a"])
    world.time.advance(1.0)
    assert isinstance(delivery.exception(0), ProducerClosed)


@pytest.mark.slow
def test_the_end_waits_for_what_another_thread_is_putting_into_the_spool():
    def end():
        world.life.topic.spool_all()
        world.life.spooler.close()
        for queue in world.life.queues:
            for batch in queue.unsettled():
                queue.give_up(batch, ProducerClosed("it is not in the spool"))

    ending = threading.Thread(target=end)

    def massage(_topic, messages):
        if not ending.ident:
            ending.start()
            ending.join(0.3)  # it must not get to its end
        return messages

    world = World(massage=massage)
    deliveries = world.add(numbers(0, 7))
    world.time.advance(1.0)
    ending.join()
    for delivery in deliveries:
        with pytest.raises(ProducerClosed, match="in spool_dir for the next producer"):
            delivery.result(0)
    assert Life(world.files, world.time).spooler.count == 7


# ---- before the partitions are known -------------------------------------------------------------


def by_key(_topic, key, _partitions):
    return 1 if key == b"one" else 0


def unassigned_world(**options):
    return World(knows_partitions=False, **options)


def call(world, data):
    return world.life.topic.add(parse(data), is_due=True)


def test_what_is_added_before_the_partitions_are_known_survives_in_the_spool():
    world = unassigned_world(picker=by_key)
    for number in range(20):
        call(world, [(b"one", b"%d" % number), (b"zero", b"-%d" % number)])
    world.time.advance(1.0)
    assert (world.life.accumulator.count, world.life.spooler.count) == (0, 40)
    world.life = Life(world.disk.copy("boot"), world.time, knows_partitions=False, picker=by_key)
    call(world, (b"one", b"20"))
    world.life.learn()
    call(world, (b"one", b"21"))
    world.deliver()
    values = [[message.value for message in server.log] for server in world.servers]
    assert values == [[b"-%d" % number for number in range(20)], numbers(0, 22)]


@pytest.mark.parametrize("pause_s", [0.0, 1.0])
def test_calls_before_the_partitions_are_known_get_the_results_that_others_get(pause_s):
    world = unassigned_world(picker=by_key)
    plain = call(world, numbers(0, 4))
    keyed = call(world, [(b"one", b"a"), (b"zero", b"b"), (b"one", b"c"), (b"one", b"d")])
    assert buffered_of(plain) == Buffered(-1, 1)
    assert buffered_of(keyed) == [Buffered(-1, 3), Buffered(-1, 1)]
    world.time.advance(pause_s)
    world.life.learn()
    world.deliver()
    assert plain.result(0) == Sent(b"t", 0, 4, 4)
    places = [(each.partition, each.pointer, each.count) for each in keyed.result(0)]
    assert places == [(1, 1, 1), (0, 5, 1), (1, 2, 1), (1, 3, 1)]
    assert (world.life.accumulator.count, world.life.accumulator.size) == (0, 0)


@pytest.mark.parametrize("pause_s", [0.0, 1.0])
def test_a_picker_that_fails_later_fails_its_messages_and_no_others(pause_s):
    def picker(_topic, key, _partitions):
        return 7 if key == b"bad" else 0

    world = unassigned_world(picker=picker)
    mixed = call(world, [(b"bad", b"a"), (b"good", b"b")])
    bad = call(world, (b"bad", b"c"))
    world.time.advance(pause_s)
    world.life.learn()
    world.deliver()
    failed, sent = mixed.result(0)
    assert isinstance(failed.error, PickerFailed)
    assert sent.pointer == 1
    with pytest.raises(PickerFailed):
        bad.result(0)
    assert world.life.observer.totals["messages_failed"] == 2
    assert (world.life.accumulator.count, world.life.accumulator.size) == (0, 0)


@pytest.mark.parametrize("pause_s", [0.0, 1.0])
def test_a_topic_that_is_refused_for_good_is_not_kept_in_the_spool(pause_s):
    world = unassigned_world()
    delivery = call(world, b"a")
    world.time.advance(pause_s)
    world.life.topic.refuse(InvalidTopicName(b"t"))
    with pytest.raises(InvalidTopicName):
        delivery.result(0)
    assert (world.life.accumulator.count, world.life.spooler.count) == (0, 0)
    assert world.life.observer.totals["messages_failed"] == 1


def test_what_a_full_disk_refuses_before_the_partitions_are_known_keeps_its_order():
    world = unassigned_world()
    world.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    deliveries = [call(world, each) for each in numbers(0, 7)]
    world.time.advance(5.0)
    assert (world.life.accumulator.count, world.life.spooler.count) == (7, 0)
    world.life.learn()
    deliveries.append(call(world, b"7"))
    world.deliver()
    assert sorted(world.servers[0].log + world.servers[1].log) == numbers(0, 8)
    assert all(isinstance(delivery.result(0), Sent) for delivery in deliveries)


def test_a_partition_that_was_assigned_has_only_what_was_not_answered_sent_again():
    world = unassigned_world(picker=by_key)
    delivery = call(world, [(b"one", b"a"), (b"zero", b"b")])
    world.time.advance(1.0)
    world.life.learn()
    world.life.connect(world.servers)
    world.life.links[1].run()
    world.life.disconnect()
    assert not delivery.done()
    world.life.connect(world.servers)
    assert [len(link.sent) for link in world.life.links] == [1, 0]
    world.life.run(world.time)
    assert [each.partition for each in delivery.result(0)] == [1, 0]


@pytest.mark.parametrize("stored", [0, 1])
def test_a_batch_that_a_kill_has_shared_out_in_another_way_loses_nothing(stored):
    """By its number alone, what a partition gets then would be taken for what it has."""

    def otherwise(_topic, _key, _partitions):
        return stored

    world = unassigned_world(picker=by_key)
    call(world, [(b"one", b"a"), (b"zero", b"b")])
    world.time.advance(1.0)
    world.life.learn()
    world.life.connect(world.servers)
    world.life.links[stored].run()
    options = {"knows_partitions": False, "picker": otherwise}
    world.life = Life(world.disk.copy("boot"), world.time, **options)
    world.life.learn()
    world.deliver()
    assert {each.value for server in world.servers for each in server.log} == {b"a", b"b"}


def test_a_batch_that_a_kill_has_shared_out_in_the_same_way_is_stored_once():
    world = unassigned_world(picker=by_key)
    call(world, [(b"one", b"a"), (b"zero", b"b")])
    world.time.advance(1.0)
    world.life.learn()
    world.life.connect(world.servers)
    world.life.links[1].run()
    options = {"knows_partitions": False, "picker": by_key}
    world.life = Life(world.disk.copy("boot"), world.time, **options)
    world.life.learn()
    world.deliver()
    assert [[each.value for each in server.log] for server in world.servers] == [[b"b"], [b"a"]]


def test_an_answer_that_comes_while_a_partition_is_chosen_has_none_chosen_twice():
    chosen = []

    def picker(_topic, key, _partitions):
        chosen.append(key)
        if len(chosen) == 2:
            world.life.links[0].run()  # as a thread does that receives at this moment
        return 0

    world = unassigned_world(picker=picker)
    for key in (b"a", b"b"):
        call(world, (key, key))
        world.time.advance(1.0)
    world.life.learn()
    world.deliver()
    assert chosen == [b"a", b"b"]
    assert [message.value for message in world.log] == [b"a", b"b"]


def test_messages_that_are_massaged_are_so_once_their_partition_is_known():
    world = unassigned_world(massage=lambda topic, messages: [b"<" + b"".join(messages) + b">"])
    delivery = call(world, [b"a", b"b"])
    world.time.advance(1.0)
    world.life.learn()
    world.deliver()
    assert world.servers[0].log + world.servers[1].log == [b"<ab>"]
    assert delivery.result(0).count == 2


def test_what_was_partly_delivered_when_it_is_dropped_may_be_stored():
    world = unassigned_world(bytes_max=1000, picker=by_key)
    delivery = call(world, [(b"one", b"a"), (b"zero", b"b")])
    world.time.advance(1.0)
    world.life.learn()
    world.life.connect(world.servers)
    world.life.links[1].run()
    world.life.disconnect()
    number = 0
    while not delivery.done():
        world.add(numbers(number, number + 1))
        world.time.advance(1.0)
        number += 1
    error = delivery.exception(0)
    assert isinstance(error, Dropped)
    assert "may be stored" in error.fate


# ---- real producers ------------------------------------------------------------------------------


def test_close_leaves_to_the_next_producer_what_is_not_delivered(tmp_path):
    with Producer(NOWHERE, spool_dir=tmp_path / "spool") as producer:
        producer.metadata("t")
        delivery = producer.produce_async("t", numbers(0, 10))
        assert producer.close(timeout_s=0) == []
        with pytest.raises(ProducerClosed, match="in spool_dir for the next producer"):
            delivery.result(0)
    with Producer(NOWHERE, spool_dir=tmp_path / "spool") as producer:
        assert producer.statistics()["messages_spooled"] == 10
        assert producer.info("t").spooled_count == 10
        producer.close(timeout_s=0)


def test_a_flush_waits_for_what_an_earlier_producer_has_left(tmp_path):
    with broker() as server:
        server.stop()
        with Producer(server.url, spool_dir=tmp_path / "spool") as earlier:
            for topic in ("t", "u"):
                earlier.produce_async(topic, numbers(0, 10))
            earlier.close(timeout_s=0)
        with Producer(server.url, spool_dir=tmp_path / "spool") as heir:
            assert not heir.flush(timeout_s=0.01)
            server.start()
            assert heir.flush(timeout_s=30)
            assert heir.statistics()["messages_spooled"] == 0
        for topic in ("t", "u"):
            assert [each.value for each in server.collected(topic)] == numbers(0, 10)


def test_the_end_of_a_producer_ends_a_flush_of_what_was_left(tmp_path):
    with Producer(NOWHERE, spool_dir=tmp_path / "spool") as earlier:
        earlier.produce_async("t", b"message")
        earlier.close(timeout_s=0)
    heir = Producer(NOWHERE, spool_dir=tmp_path / "spool")
    flushing = threading.Thread(target=heir.flush)
    flushing.start()
    heir.close(timeout_s=0)
    flushing.join(timeout=10)
    assert not flushing.is_alive()


def test_a_sync_call_that_is_not_answered_says_that_it_may_be_delivered(tmp_path):
    with Producer(NOWHERE, spool_dir=tmp_path / "spool") as producer:
        wait_until(lambda: producer.info("t").state == "downtime")
        with pytest.raises(CallTimeout):
            producer.produce_sync("t", b"message", timeout_s=0.2)
        assert producer.info("t").spooled_count == 1
        assert not producer.flush(timeout_s=0)
        producer.close(timeout_s=0)


def test_a_second_producer_on_the_folder_is_refused_when_it_is_made(tmp_path):
    with Producer(NOWHERE, spool_dir=tmp_path) as producer:
        with pytest.raises(SegmentLocked, match="use another spool_dir"):
            Producer(NOWHERE, spool_dir=tmp_path)
        producer.close(timeout_s=0)
    Producer(NOWHERE, spool_dir=tmp_path).close(timeout_s=0)


def test_a_folder_of_something_else_is_refused_when_the_producer_is_made(tmp_path):
    (tmp_path / "notes.txt").write_text("content")
    with pytest.raises(OptionError, match="notes"):
        Producer(NOWHERE, spool_dir=tmp_path)


def test_a_forked_process_leaves_the_spool_to_its_parent(tmp_path):
    with Producer(NOWHERE, spool_dir=tmp_path) as producer:
        producer.metadata("t")
        delivery = producer.produce_async("t", b"of the parent")
        wait_until(lambda: producer.statistics()["messages_spooled"] == 1)

        def go_on():
            assert isinstance(delivery.exception(0), ProducerClosed)
            with pytest.raises(SegmentLocked):
                producer.produce_async("t", b"of the child")

        assert exit_code_of(fork(go_on)) == 0
        producer.produce_async("t", b"more")
        wait_until(lambda: producer.statistics()["messages_spooled"] == 2)
        assert not delivery.done()
        producer.close(timeout_s=0)


def test_a_forked_process_keeps_no_spool_that_its_parent_has_closed(tmp_path):
    wait_fd, go_on_fd = os.pipe()
    ready_fd, tell_fd = os.pipe()
    with Producer(NOWHERE, spool_dir=tmp_path) as producer:

        def live_on():
            os.close(go_on_fd)
            os.write(tell_fd, b"!")
            os.read(wait_fd, 1)

        pid = fork(live_on)
        try:
            assert os.read(ready_fd, 1) == b"!"
            with pytest.raises(SegmentLocked):
                Producer(NOWHERE, spool_dir=tmp_path)
            producer.close(timeout_s=0)
            Producer(NOWHERE, spool_dir=tmp_path).close(timeout_s=0)
        finally:
            os.close(go_on_fd)
            assert exit_code_of(pid) == 0
            for fd in (wait_fd, ready_fd, tell_fd):
                os.close(fd)


@pytest.mark.parametrize("others", [[], [b"other"]])
@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("pause_s", [0.0, 1.0])
def test_a_call_behind_one_that_was_withdrawn_is_withdrawn_and_no_other(pause_s, is_sent, others):
    world = unassigned_world(batch_count=10)
    earlier, doomed = call(world, b"earlier"), call(world, b"doomed")
    later = [call(world, each) for each in others]
    assert world.life.topic.withdraw(earlier, ProducerClosed())
    world.time.advance(pause_s)
    world.life.learn()
    if is_sent:
        world.life.connect(world.servers)
    is_withdrawn = not is_sent and not pause_s
    assert world.life.topic.withdraw(doomed, ProducerClosed()) == is_withdrawn
    if not is_sent:
        world.life.connect(world.servers)
    world.life.run(world.time)
    left = others if is_withdrawn else [b"doomed", *others]
    assert world.servers[0].log + world.servers[1].log == left
    assert isinstance(doomed.exception(0), ProducerClosed) == is_withdrawn
    assert all(isinstance(delivery.result(0), Sent) for delivery in later)


@pytest.mark.parametrize(
    ("drop", "left"), [("oldest", [b"second", b"later"]), ("newest", [b"earlier", b"first"])]
)
def test_a_call_of_which_some_was_dropped_before_the_partitions_were_known_stays(drop, left):
    world = unassigned_world(batch_count=10, downtime_count=2, downtime_drop=drop)
    call(world, b"earlier")
    halved = call(world, [b"first", b"second"])
    call(world, b"later")
    world.life.learn()
    assert not world.life.topic.withdraw(halved, ProducerClosed())
    world.deliver()
    assert world.servers[0].log + world.servers[1].log == left
    with pytest.raises(Dropped):
        halved.result(0)


def test_a_call_that_the_picker_has_refused_in_part_is_withdrawn():
    def picker(_topic, key, _partitions):
        return 7 if key == b"bad" else 0

    world = unassigned_world(batch_count=10, picker=picker)
    earlier = call(world, b"earlier")
    mixed = call(world, [(b"bad", b"a"), (b"good", b"b")])
    later = call(world, b"later")
    assert world.life.topic.withdraw(earlier, ProducerClosed())
    world.life.learn()
    assert world.life.topic.withdraw(mixed, ProducerClosed())
    world.deliver()
    assert later.result(0) == Sent(b"t", 0, 1, 1)
    assert [message.value for message in world.servers[0].log] == [b"later"]
    assert isinstance(mixed.exception(0), PickerFailed)


def test_what_an_earlier_producer_has_left_on_disk_is_measured_at_once():
    world = World()
    world.add(numbers(0, 3))
    world.time.advance(1.0)
    sink = MemorySink()
    Life(world.disk.copy("boot"), world.time, metrics=[sink])
    assert sink.gauges["messages_spooled"] == 3


DISK_FILES = (
    "poe/client/producer/partition_queue.py",
    "poe/client/spool/spool.py",
    "poe/client/spool/spooler.py",
    "poe/storage/slab_log/writer.py",
    "poe/storage/slab_log/slab_writer.py",
    "torture/layers/memory.py",
)


@pytest.mark.slow
def test_an_interrupt_while_a_call_puts_what_waits_into_the_spool_loses_and_doubles_nothing():
    for interrupted in places(*DISK_FILES):
        world = World()
        others = world.add([b"a"])
        interrupted(partial(world.queue.add, [b"1", b"2", b"3"], is_due=True))
        others += world.add([b"z"])
        world.time.advance(1.0)
        world.deliver()
        assert [each.result(0).count for each in others] == [1, 1]
        found = [each for each in world.log if each in {b"a", b"z"}]
        assert found == [b"a", b"z"]
        assert len(world.log) in {2, 5}
        assert world.life.spool.count == 0
        assert world.life.accumulator.count == 0


@pytest.mark.slow
def test_an_interrupt_while_a_full_spool_makes_room_loses_and_doubles_nothing():
    """Who waits for what is dropped for it hears of that."""
    for interrupted in places(*DISK_FILES, "<string>"):
        world = World(bytes_max=4000)
        others = world.add([b"%d" % number * 300 for number in range(9)])
        interrupted(partial(world.queue.add, [b"x" * 300, b"y" * 300, b"v" * 300], is_due=True))
        others += world.add([b"z" * 300])
        world.time.advance(1.0)
        world.deliver()
        stored = [each[:1] for each in world.log]
        assert stored == sorted(set(stored), key=b"012345678xyvz".index)
        failed = [each.exception(0) is not None for each in others]
        assert failed.count(False) == len(set(stored) - {b"x", b"y", b"v"})
        assert (world.life.spool.count, world.life.accumulator.count) == (0, 0)


def test_a_spool_that_ctrl_c_has_kept_from_beginning_keeps_no_lock(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "_count_all", interrupt)
        with pytest.raises(KeyboardInterrupt) as told:
            Producer(NOWHERE, spool_dir=tmp_path)
    Producer(NOWHERE, spool_dir=tmp_path).close(timeout_s=0)
    assert told.value.__traceback__ is not None
