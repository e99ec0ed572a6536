from functools import partial
from typing import Any

import pytest

from poe.client import Sent
from poe.client.producer.batch import Batch
from poe.client.producer.payload import Message
from poe.client.producer.transport import LastPointer, PartlyStored
from poe.errors import (
    BufferFull,
    DeliveryTimeout,
    Dropped,
    FrameTooLarge,
    InvalidMessage,
    MassageFailed,
    Overloaded,
    ProducerClosed,
    TopicReadOnly,
)
from poe.errors.delivery import NEVER_SENT
from tests.client.simulated import MemorySink, QueueWorld, StoringServer
from tests.interrupts import places


def add(world, *messages, is_due=False):
    return [world.queue.add_one(message, is_due=is_due) for message in messages]


def batches(link):
    return [batch.messages for batch, _ in link.sent]


def test_a_batch_leaves_when_it_has_enough_messages():
    world = QueueWorld(batch_count=3, linger_s=10.0)
    link = world.connect()
    add(world, b"a", b"b")
    assert batches(link) == []
    add(world, b"c", b"d")
    assert batches(link) == [[b"a", b"b", b"c"]]


def test_a_batch_leaves_when_it_has_enough_bytes():
    world = QueueWorld(batch_bytes=10, linger_s=10.0)
    link = world.connect()
    add(world, b"x" * 4, b"y" * 4)
    assert batches(link) == []
    add(world, b"z" * 4)
    assert batches(link) == [[b"x" * 4, b"y" * 4]]


def test_a_lone_message_leaves_when_it_is_old_and_not_before():
    world = QueueWorld(linger_s=0.5)
    link = world.connect()
    add(world, b"a")
    world.time.advance(0.49)
    assert batches(link) == []
    world.time.advance(0.02)
    assert batches(link) == [[b"a"]]


def test_each_batch_has_its_own_age():
    world = QueueWorld(linger_s=0.5, batch_count=2)
    link = world.connect()
    add(world, b"a")
    world.time.advance(0.3)
    add(world, b"b", b"c")
    world.time.advance(0.3)
    assert batches(link) == [[b"a", b"b"]]
    world.time.advance(0.3)
    assert batches(link) == [[b"a", b"b"], [b"c"]]


def test_a_message_that_is_due_takes_along_what_lingers():
    world = QueueWorld(linger_s=10.0)
    link = world.connect()
    add(world, b"a")
    add(world, b"b", is_due=True)
    assert batches(link) == [[b"a", b"b"]]


def test_what_is_due_while_the_window_is_full_goes_together_with_the_next_answer():
    world = QueueWorld(in_flight=2)
    link = world.connect()
    add(world, b"a", b"b", b"c", b"d", b"e", is_due=True)
    assert batches(link) == [[b"a"], [b"b"]]
    link.store()
    link.answer()
    assert batches(link) == [[b"b"], [b"c", b"d", b"e"]]


def test_what_tasks_have_to_send_in_one_turn_of_their_loop_leaves_together():
    world = QueueWorld(in_flight=5)
    link = world.connect()
    turn: list[Any] = []
    for message in (b"a", b"b", b"c"):
        world.queue.add_one(message, is_due=True, call_soon=turn.append)
    assert batches(link) == [[b"a"]]
    assert len(turn) == 1
    turn.pop()()
    assert batches(link) == [[b"a"], [b"b", b"c"]]
    world.queue.add_one(b"d", is_due=True, call_soon=turn.append)
    turn.pop()()
    assert batches(link)[-1] == [b"d"]


def test_a_lone_task_waits_for_no_turn():
    world = QueueWorld(in_flight=5)
    link = world.connect()
    turn: list[Any] = []
    for message in (b"a", b"b"):
        world.queue.add_one(message, is_due=True, call_soon=turn.append)
        link.run()
    assert batches(link) == []
    assert turn == []


def test_where_a_turn_never_ends_the_next_answer_sends_what_is_due():
    world = QueueWorld(in_flight=5)
    link = world.connect()
    for message in (b"a", b"b", b"c"):
        world.queue.add_one(message, is_due=True, call_soon=lambda _: None)
    link.store()
    link.answer()
    assert batches(link) == [[b"b", b"c"]]


def test_results_tell_each_call_its_own_pointer():
    world = QueueWorld(linger_s=1.0)
    link = world.connect()
    one = add(world, b"a", b"b")
    several = world.queue.add([b"c", b"d"], is_due=False)[0]
    world.time.advance(1.1)
    link.run()
    assert [each.result(0) for each in one] == [Sent(b"t", 0, 1, 1), Sent(b"t", 0, 2, 1)]
    assert several.result(0) == Sent(b"t", 0, 4, 2)


def test_a_list_that_fits_into_one_request_is_not_torn():
    world = QueueWorld(batch_count=4, linger_s=10.0)
    link = world.connect()
    add(world, b"a", b"b")
    assert len(world.queue.add([b"c", b"d", b"e"], is_due=True)) == 1
    assert batches(link) == [[b"a", b"b"], [b"c", b"d", b"e"]]


def test_a_list_that_is_too_large_goes_in_several_requests_in_order():
    world = QueueWorld(batch_count=1000, batch_bytes=25, in_flight=64)
    link = world.connect()
    messages = [b"%010d" % i for i in range(9)]
    deliveries = world.queue.add(messages, is_due=True)
    assert max(sum(map(len, each)) for each in batches(link)) <= 25
    link.run()
    assert world.server.log == messages
    assert [each.result(0).count for each in deliveries] == [2, 2, 2, 2, 1]


def test_messages_with_keys_make_all_of_their_batch_messages():
    world = QueueWorld(linger_s=1.0)
    link = world.connect()
    add(world, b"a")
    world.queue.add([Message(b"b", b"k")], is_due=True)
    assert batches(link) == [[Message(b"a"), Message(b"b", b"k")]]


def test_buffer_is_full_until_messages_are_answered():
    world = QueueWorld(buffer_count=2)
    link = world.connect()
    add(world, b"a", b"b", is_due=True)
    with pytest.raises(BufferFull, match="buffer_count allows"):
        add(world, b"c")
    room = world.accumulator.room()
    assert room.value is None
    link.run()
    assert room.value is not None
    add(world, b"c")


def test_buffer_bounds_bytes_as_well():
    world = QueueWorld(buffer_bytes=10)
    add(world, b"x" * 8)
    with pytest.raises(BufferFull, match="buffer_bytes"):
        add(world, b"y" * 3)
    with pytest.raises(BufferFull, match="buffer_bytes"):
        world.queue.add([b"y", b"y", b"y"], is_due=False)


def test_a_call_larger_than_the_buffer_is_taken_by_an_empty_one():
    world = QueueWorld(buffer_count=2)
    link = world.connect()
    assert world.queue.add([b"a", b"b", b"c"], is_due=True)
    with pytest.raises(BufferFull):
        add(world, b"d")
    link.run()
    assert world.accumulator.count == world.accumulator.size == 0


def test_what_is_refused_goes_again_in_order_with_what_was_sent_behind_it():
    world = QueueWorld()
    link = world.connect()
    deliveries = add(world, b"a", b"b", b"c", is_due=True)
    link.refuse(Overloaded("in_flight_max", 1))
    link.store()
    link.store()
    for _ in range(3):
        link.answer()
    assert batches(link) == []  # not before a pause
    world.time.advance(1.0)
    link.run()
    assert world.server.log == [b"a", b"b", b"c"]
    assert [each.result(0).pointer for each in deliveries] == [1, 2, 3]


def test_new_messages_wait_behind_those_that_go_again():
    world = QueueWorld()
    link = world.connect()
    add(world, b"a", is_due=True)
    link.refuse(TopicReadOnly(b"t", "disk is full"))
    link.answer()
    add(world, b"b", is_due=True)
    assert batches(link) == []
    world.time.advance(1.0)
    assert batches(link) == [[b"a"], [b"b"]]


def test_a_batch_that_is_refused_for_good_fails_alone():
    world = QueueWorld()
    link = world.connect()
    first, second, third = add(world, b"a", b"b", b"c", is_due=True)
    link.refuse(InvalidMessage(1, 0))
    link.run()
    with pytest.raises(InvalidMessage):
        first.result(0)
    assert (second.result(0).pointer, third.result(0).pointer) == (1, 2)
    assert world.server.log == [b"b", b"c"]
    assert world.accumulator.count == 0


def test_what_a_lost_connection_has_stored_is_not_stored_twice():
    world = QueueWorld()
    link = world.connect()
    deliveries = add(world, b"a", b"b", b"c", is_due=True)
    link.store()
    link.store()
    link.answer()
    world.disconnect()
    add(world, b"d", is_due=True)
    world.connect().run()
    assert world.server.log == [b"a", b"b", b"c", b"d"]
    assert [each.result(0).pointer for each in deliveries] == [1, 2, 3]


def test_an_answer_of_a_connection_that_is_lost_is_dropped():
    world = QueueWorld()
    old = world.connect()
    (delivery,) = add(world, b"a", is_due=True)
    old.store()
    world.queue.disconnect()
    link = world.connect()
    old.answer()
    assert not delivery.done()
    link.run()
    assert delivery.result(0).pointer == 1


def test_a_server_that_has_forgotten_gets_a_new_epoch():
    world = QueueWorld()
    link = world.connect()
    add(world, b"a", is_due=True)
    link.run()
    link.server = world.server = StoringServer()  # the topic was deleted
    deliveries = add(world, b"b", b"c", is_due=True)
    link.run()
    assert world.server.log == [b"b", b"c"]
    assert [each.result(0).pointer for each in deliveries] == [1, 2]
    assert world.queue.window.epoch > 0


def test_what_was_not_sent_can_be_withdrawn_and_others_keep_their_pointers():
    world = QueueWorld()
    first, second, third = add(world, b"a", b"b", b"c", is_due=True)
    assert world.queue.withdraw(second, DeliveryTimeout(b"t", 1.0, NEVER_SENT, "x"))
    world.connect().run()
    assert world.server.log == [b"a", b"c"]
    assert (first.result(0).pointer, third.result(0).pointer) == (1, 2)
    with pytest.raises(DeliveryTimeout, match="not stored"):
        second.result(0)
    assert world.accumulator.count == world.accumulator.size == 0


def test_what_was_sent_cannot_be_withdrawn():
    world = QueueWorld()
    world.connect()
    (delivery,) = add(world, b"a", is_due=True)
    why = ProducerClosed()
    assert not world.queue.withdraw(delivery, why)
    world.disconnect()
    assert not world.queue.withdraw(delivery, why)  # it may be stored


def test_what_was_refused_each_time_can_be_withdrawn():
    world = QueueWorld()
    link = world.connect()
    (delivery,) = add(world, b"a", is_due=True)
    link.refuse(Overloaded("in_flight_max", 1))
    link.answer()
    assert world.queue.withdraw(delivery, ProducerClosed())
    world.time.advance(1.0)
    (after,) = add(world, b"b", is_due=True)
    link.run()
    assert world.server.log == [b"b"]
    assert after.result(0).pointer == 1


@pytest.mark.parametrize(("newest", "left"), [(False, [b"c", b"d"]), (True, [b"a", b"b"])])
def test_the_asked_side_is_dropped_from_a_full_downtime_buffer(newest, left):
    world = QueueWorld(batch_count=3)
    deliveries = add(world, b"a", b"b", b"c", b"d")
    dropped = world.queue.drop(2, Dropped(b"t", "oldest"), newest=newest)
    assert sorted([*dropped, *left]) == [b"a", b"b", b"c", b"d"]
    world.queue.flush()
    world.connect().run()
    assert world.server.log == left
    assert sum(isinstance(each.exception(0), Dropped) for each in deliveries) == 2
    assert world.accumulator.count == world.accumulator.size == 0


def test_what_is_too_old_is_given_up_with_the_reason():
    world = QueueWorld(delivery_timeout_s=10.0)
    (old,) = add(world, b"a")
    world.time.advance(6.0)
    (young,) = add(world, b"b" * (1 << 20))
    world.time.advance(6.0)
    world.queue.expire()
    assert "not stored" in str(old.exception(0))
    assert not young.done()


def test_what_comes_later_is_not_given_up_with_what_is_too_old():
    world = QueueWorld(delivery_timeout_s=10.0)
    deliveries = []
    for _ in range(11):
        deliveries += add(world, b"a", is_due=True)
        world.queue.expire()
        world.time.advance(1.0)
    world.queue.expire()
    assert [each.done() for each in deliveries] == [True] * 2 + [False] * 9


def test_what_is_given_up_while_it_may_be_stored_says_so_and_the_rest_goes_on():
    world = QueueWorld(delivery_timeout_s=10.0)
    world.connect()
    (lost,) = add(world, b"a", is_due=True)
    world.disconnect()
    world.time.advance(11.0)
    (after,) = add(world, b"b", is_due=True)
    world.queue.expire()
    assert "may be stored" in str(lost.exception(0))
    world.connect().run()
    assert world.server.log == [b"b"]
    assert after.result(0).pointer == 1


def test_massage_decides_what_is_sent():
    world = QueueWorld(massage=lambda _, messages: [b",".join(messages)], linger_s=1.0)
    link = world.connect()
    deliveries = add(world, b"a", b"b")
    world.queue.flush()
    link.run()
    assert world.server.log == [b"a,b"]
    assert [each.result(0).pointer for each in deliveries] == [1, 1]
    assert world.accumulator.count == 0


def test_massage_is_not_asked_again_for_what_is_sent_again():
    calls = []

    def massage(_, messages):
        calls.append(messages)
        return [b"<" + messages[0] + b">"]

    world = QueueWorld(massage=massage)
    world.connect()
    add(world, b"a", is_due=True)
    world.disconnect()
    world.connect().run()
    assert world.server.log == [b"<a>"]
    assert calls == [[b"a"]]


def test_what_is_given_up_just_before_it_would_be_sent_is_not_sent():
    def slow(_topic, messages):
        world.time.advance(10.0)
        world.queue.expire()
        return messages

    world = QueueWorld(massage=slow, delivery_timeout_s=5.0)
    link = world.connect()
    delivery = add(world, b"a", is_due=True)[0]
    assert isinstance(delivery.exception(0), DeliveryTimeout)
    assert batches(link) == []


class EmptiedByAnotherThread(list[Batch]):
    """A list that is empty as soon as it was found not to be."""

    def __len__(self):
        count = super().__len__()
        self.clear()
        return count


def test_an_answer_may_come_while_another_thread_looks_whether_it_may_send():
    world = QueueWorld()
    world.connect()
    add(world, b"a", is_due=True)
    world.queue.window.in_flight = EmptiedByAnotherThread(world.queue.window.in_flight)
    add(world, b"b", is_due=True)  # with another's answer, it raised an IndexError


def test_a_massage_that_raises_fails_its_batch_alone():
    def massage(_, messages):
        return [b"ok" if messages[0] == b"b" else 1 / 0]

    world = QueueWorld(massage=massage)
    link = world.connect()
    bad, good = add(world, b"a", b"b", is_due=True)
    link.run()
    with pytest.raises(MassageFailed):
        bad.result(0)
    assert good.result(0).count == 1
    assert world.server.log == [b"ok"]


def test_a_queue_that_drains_sends_nothing_and_tells_when_all_is_answered():
    world = QueueWorld()
    link = world.connect()
    add(world, b"a", is_due=True)
    drained: list[bool] = []
    assert not world.queue.drain(lambda: drained.append(True))
    add(world, b"b", is_due=True)
    assert batches(link) == [[b"a"]]
    assert not drained
    link.run()
    world.time.advance(0.0)
    assert drained == [True]
    assert world.queue.drain(drained.clear)
    world.queue.disconnect()
    assert batches(world.connect()) == [[b"b"]]


def test_what_takes_too_long_is_overdue():
    world = QueueWorld(request_timeout_s=5.0)
    world.connect()
    add(world, b"a", is_due=True)
    world.time.advance(4.0)
    assert not world.queue.is_overdue()
    world.time.advance(2.0)
    assert world.queue.is_overdue()


def test_messages_that_are_given_up_are_logged_once_a_second(caplog):
    world = QueueWorld(in_flight=1, batch_count=1)
    world.server.invalid = {b"bad"}
    add(world, *[b"bad"] * 5)
    link = world.connect()
    link.run()
    assert [each.getMessage().split(": ")[1] for each in caplog.records] == [
        "1 messages are given up"
    ]
    world.time.advance(1.0)
    add(world, b"bad")
    link.run()
    world.time.advance(10.0)
    counts = [int(each.getMessage().split()[2]) for each in caplog.records]
    assert counts == [1, 4, 1]
    assert world.observer.totals["messages_failed"] == sum(counts)


def test_callbacks_are_told_of_batches():
    events = []
    names = ("flush", "flushed_replied", "failed")
    world = QueueWorld(callbacks={name: lambda *args: events.append(args) for name in names})
    link = world.connect()
    add(world, b"a", is_due=True)
    link.run()
    add(world, b"b", is_due=True)
    link.refuse(InvalidMessage(1, 0))
    link.answer()
    assert [(event, type(extra).__name__) for event, _, _, _, extra in events] == [
        ("flush", "int"),
        ("flushed_replied", "Sent"),
        ("flush", "int"),
        ("flushed_replied", "InvalidMessage"),
        ("failed", "InvalidMessage"),
    ]
    assert {state for _, _, state, _, _ in events} == {"ready"}


def test_pointers_with_others_in_between_are_each_its_own_message_s():
    world = QueueWorld(batch_count=5, linger_s=10.0)
    deliveries = add(world, b"a", b"b", b"c")
    [pair] = world.queue.add([b"d", b"e"], is_due=False)
    assert world.queue.withdraw(deliveries[1], InvalidMessage(1, 0))
    link = world.connect()
    world.queue.flush()
    _, done = link.sent.popleft()
    done(LastPointer([3, 5, 6, 9]))
    assert [deliveries[0].result(0), deliveries[2].result(0), pair.result(0)] == [
        Sent(b"t", 0, 3, 1),
        Sent(b"t", 0, 5, 1),
        Sent(b"t", 0, 9, 2),
    ]


def test_of_a_batch_of_which_some_was_refused_each_call_is_told_of_its_own():
    world = QueueWorld(batch_count=6, linger_s=10.0)
    gone, first, refused, last = add(world, b"gone", b"a", b"b", b"c")
    [pair] = world.queue.add([b"d", b"e"], is_due=False)
    assert world.queue.withdraw(gone, InvalidMessage(1, 0))
    link = world.connect()
    world.queue.flush()
    _, done = link.sent.popleft()
    why = InvalidMessage(1, 0)
    done(PartlyStored.of([3, 0, 4, 0, 5], {1: why, 3: why}, lambda errors, _: errors[0]))
    assert [first.result(0), last.result(0)] == [Sent(b"t", 0, 3, 1), Sent(b"t", 0, 4, 1)]
    assert [refused.exception(0), pair.exception(0)] == [why, why]
    totals = world.observer.totals
    assert (totals["messages_delivered"], totals["messages_failed"]) == (3, 2)


def test_of_a_massaged_batch_of_which_some_was_refused_nobody_knows_whose_it_is():
    world = QueueWorld(massage=lambda _, messages: [*messages, b"more"])
    link = world.connect()
    deliveries = add(world, b"a", b"b")
    world.queue.flush()
    _, done = link.sent.popleft()
    why = InvalidMessage(1, 0)
    done(PartlyStored.of([3, 4, 0], {2: why}, lambda errors, _: errors[0]))
    assert [each.exception(0) for each in deliveries] == [why, why]
    assert world.observer.totals["messages_failed"] == 2


@pytest.mark.parametrize("is_told", [True, False])
def test_what_is_sent_again_is_counted_as_that_whether_its_link_has_answered_or_not(is_told):
    world = QueueWorld()
    world.connect()
    add(world, b"a", is_due=True)
    if is_told:
        world.link.close()
    world.queue.disconnect()
    add(world, b"b", is_due=True)
    world.connect().run()
    totals = world.observer.totals
    assert (totals["messages_sent"], totals["messages_retried"]) == (3, 1)
    assert totals["messages_delivered"] == 2


def test_the_time_of_a_delivery_begins_with_the_first_send():
    sink = MemorySink()
    world = QueueWorld(metrics=[sink])
    world.connect()
    add(world, b"a", is_due=True)
    world.time.advance(3.0)
    world.disconnect()
    world.connect()
    world.time.advance(4.0)
    world.link.run()
    assert sink.observed == [7.0]


QUEUE_FILES = tuple(
    f"poe/client/producer/{name}.py"
    for name in ("partition_queue", "send_window", "batch", "accumulator")
)


@pytest.mark.parametrize("count", [1, 6])
def test_an_interrupt_at_any_place_of_a_call_costs_others_nothing(count):
    torn = [b"%d" % number for number in range(count)]
    for interrupted in places(*QUEUE_FILES):
        world = QueueWorld(batch_count=4, in_flight=2, linger_s=0.01)
        world.connect()
        queue = world.queue
        others = add(world, b"a", b"b")
        interrupted(
            partial(queue.add_one, torn[0], is_due=True)
            if count == 1
            else partial(queue.add, torn, is_due=True)
        )
        others += add(world, b"y", b"z", is_due=True)
        for _ in range(5):
            world.link.run()
            world.time.advance(1.0)
        assert [each.result(0).count for each in others] == [1, 1, 1, 1]
        log = world.server.log
        assert [each for each in log if each not in torn] == [b"a", b"b", b"y", b"z"]
        assert [each for each in log if each in torn] == torn[: len(log) - 4]
        assert not queue.unsettled()
        assert queue.unsent_count == 0
        assert world.accumulator.count <= (count == 1)


@pytest.mark.parametrize("refusal", [None, Overloaded("in_flight_max", 1), InvalidMessage(1, 0)])
def test_an_interrupt_at_any_place_of_an_answer_keeps_nobody_waiting_for_it(refusal):
    """It may come to a thread that receives what others have sent; its connection ends then."""
    for interrupted in places(*QUEUE_FILES, "poe/client/producer/instrumentation.py"):
        world = QueueWorld(batch_count=1, in_flight=2)
        link = world.connect()
        sent = add(world, b"a", b"b", b"c", is_due=True)
        if refusal is None:
            link.store()
        else:
            link.refuse(refusal)
        interrupted(link.answer)
        world.disconnect()
        world.time.advance(0.0)
        world.connect()
        for _ in range(5):
            world.link.run()
            world.time.advance(1.0)
        assert [each.done() for each in sent] == [True, True, True]
        is_stored = [each.exception(0) is None for each in sent]
        assert len(world.server.log) == sum(is_stored)
        assert is_stored == [True] * 3 or (type(refusal) is InvalidMessage and is_stored[1:])
        assert not world.queue.unsettled()


def test_messages_that_fit_are_stored_though_the_server_takes_smaller_frames_than_their_batch():
    """It reads nothing of what is behind a frame that it refuses, and hangs up."""
    world = QueueWorld(batch_count=8, linger_s=10.0, in_flight=2)
    link = world.connect()
    names = [b"%02d" % number for number in range(24)]
    deliveries = add(world, *names)
    assert [len(each) for each in batches(link)] == [8, 8]
    link.refuse(FrameTooLarge(1000, 1024))
    link.answer()
    world.disconnect()
    link = world.connect()
    assert [len(each) for each in batches(link)] == [5, 3]
    world.queue.flush()
    link.run()
    assert world.server.log == names
    assert [each.result(0).pointer for each in deliveries] == list(range(1, 25))
    assert (world.accumulator.count, world.accumulator.size) == (0, 0)


def test_one_message_that_no_frame_of_the_server_takes_is_refused():
    world = QueueWorld()
    link = world.connect()
    [lone] = add(world, b"x" * 2000, is_due=True)
    link.refuse(FrameTooLarge(2100, 1024))
    link.answer()
    with pytest.raises(FrameTooLarge):
        lone.result(0)


def test_a_batch_that_may_be_stored_is_not_divided():
    """Its parts would be stored again."""
    world = QueueWorld(batch_count=2, linger_s=10.0)
    world.connect()
    deliveries = add(world, b"a", b"b")
    world.disconnect()
    link = world.connect()
    link.refuse(FrameTooLarge(2000, 1024))
    link.answer()
    for each in deliveries:
        with pytest.raises(FrameTooLarge):
            each.result(0)
