"""Whatever the network and the server do, messages are stored in order and once."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from poe.client.producer.batch import Batch
from poe.client.producer.delivery import Delivery, Sent
from poe.errors import FrameTooLarge, InvalidMessage, Overloaded, PutUnconfirmed
from poe.errors.delivery import MAYBE_STORED
from tests.client.simulated import QueueWorld


def is_divided(delivery):
    """Tell whether the batch of a call was sent in parts."""
    assert isinstance(delivery.outcome, Batch)
    return delivery.outcome.placed is not None


class QueueAgainstServer(RuleBasedStateMachine):
    """A queue, a server with the real rules for numbered puts, and connections that break.

    What the server has stored is at any time a part of what was added, in the same order, with
    nothing twice; what was acknowledged is stored where the result says.
    """

    def __init__(self):
        super().__init__()
        self.world = QueueWorld(batch_count=3, in_flight=4, linger_s=1.0, delivery_timeout_s=9.0)
        self.is_up = False
        self.added: list[bytes] = []
        self.deliveries: list[tuple[bytes, Delivery]] = []
        self.withdrawn: set[bytes] = set()

    @rule(is_due=st.booleans())
    def add_one(self, is_due):
        message = b"%d" % len(self.added)
        self.added.append(message)
        self.deliveries.append((message, self.world.queue.add_one(message, is_due=is_due)))

    @rule(count=st.integers(1, 7), is_due=st.booleans())
    def add_list(self, count, is_due):
        messages = [b"%d" % (len(self.added) + i) for i in range(count)]
        self.added += messages
        end = 0
        for delivery in self.world.queue.add(messages, is_due=is_due):
            end += delivery.count
            self.deliveries.append((messages[end - 1], delivery))

    @precondition(lambda self: not self.is_up)
    @rule()
    def connect(self):
        self.world.connect()
        self.is_up = True

    @precondition(lambda self: self.is_up)
    @rule(is_told_first=st.booleans())
    def lose_connection(self, is_told_first):
        if is_told_first:
            self.world.link.close()
            self.world.queue.disconnect()
        else:
            self.world.disconnect()
        self.is_up = False

    @precondition(lambda self: self.is_up and self.world.link.sent)
    @rule()
    def store(self):
        self.world.link.store()

    @precondition(lambda self: self.is_up and self.world.link.sent)
    @rule()
    def refuse_for_now(self):
        self.world.link.refuse(Overloaded("in_flight_max", 1))

    @precondition(lambda self: self.is_up and self.world.link.is_next_new())
    @rule()
    def refuse_for_good(self):
        self.world.link.refuse(InvalidMessage(1, 0))

    @precondition(lambda self: self.is_up and self.world.link.sent)
    @rule()
    def refuse_for_its_size(self):
        """The server answers what came before, reads nothing of what is behind, and hangs up."""
        link = self.world.link
        while link.answers:
            link.answer()
        if link.is_next_new():
            size = self.world.queue.window.in_flight[0].size
            link.refuse(FrameTooLarge(1000 + size, 1024))
            link.answer()
            self.lose_connection(is_told_first=True)

    @precondition(lambda self: self.is_up and self.world.link.sent)
    @rule(is_stored=st.booleans())
    def leave_open_what_became_of_it(self, is_stored):
        self.world.link.leave_open(PutUnconfirmed("t", 20.0), is_stored=is_stored)

    @precondition(lambda self: self.is_up and self.world.link.answers)
    @rule()
    def answer(self):
        self.world.link.answer()

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0]))
    def let_time_pass(self, seconds):
        self.world.time.advance(seconds)

    @rule()
    def expire(self):
        if self.world.queue.expire():
            self.world.disconnect()
            self.is_up = False

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def withdraw(self, data):
        last, delivery = data.draw(st.sampled_from(self.deliveries))
        if self.world.queue.withdraw(delivery, InvalidMessage(2, 0)):
            end = self.added.index(last) + 1
            self.withdrawn |= set(self.added[end - delivery.count : end])

    @invariant()
    def what_is_stored_is_in_order_and_there_once(self):
        numbers = list(map(int, self.world.server.log))
        assert numbers == sorted(set(numbers))
        assert not self.withdrawn & set(self.world.server.log)

    @invariant()
    def what_is_acknowledged_is_stored_where_it_says(self):
        for last, delivery in self.deliveries:
            if delivery.done() and delivery.exception(0) is None:
                sent = delivery.result(0)
                assert isinstance(sent, Sent)
                assert self.world.server.log[sent.pointer - 1] == last

    def teardown(self):
        """With a server that takes everything in the end, everything ends, one way or the other."""
        world = self.world
        if not self.is_up:
            world.connect()
        world.queue.flush()
        for _ in range(50):
            world.link.run()
            world.time.advance(3.0)
        self.what_is_stored_is_in_order_and_there_once()
        self.what_is_acknowledged_is_stored_where_it_says()
        assert all(delivery.done() for _, delivery in self.deliveries)
        assert world.accumulator.count == world.accumulator.size == 0
        stored = set(world.server.log)
        failed = {
            message
            for last, delivery in self.deliveries
            if (error := delivery.exception(0)) is not None and MAYBE_STORED not in str(error)
            for message in self.added[: self.added.index(last) + 1][-delivery.count :]
            # Of a call whose batch was divided, a part may be refused for good.
            if message not in stored or not is_divided(delivery)
        }
        unknown = {
            message
            for last, delivery in self.deliveries
            if MAYBE_STORED in str(delivery.exception(0))
            for message in self.added[: self.added.index(last) + 1][-delivery.count :]
        }
        kept = [each for each in self.added if each not in failed]
        assert world.server.log == [each for each in kept if each in stored or each not in unknown]


TestQueueAgainstServer = pytest.mark.slow(QueueAgainstServer.TestCase)
TestQueueAgainstServer.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.parametrize("left", range(6))
def test_before_its_epochs_run_out_a_queue_begins_to_count_anew(left):
    world = QueueWorld(batch_count=1, in_flight=3)
    world.queue.window.epoch = 2**32 - 1 - left
    link = world.connect()
    messages = [b"%d" % number for number in range(12)]
    for message in messages:
        world.queue.add_one(message, is_due=True)
    link.refuse(InvalidMessage(1, 0))  # so that those behind it need another epoch
    for _ in range(20):
        link.run()
        world.time.advance(1.0)
        if len(world.server.log) == 5:
            world.disconnect()
            link = world.connect()
    assert world.server.log == messages[1:]
    assert world.accumulator.count == 0
