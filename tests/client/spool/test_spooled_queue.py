"""Whatever becomes of a producer with a spool, what it has spooled is stored once, and in order."""

import errno

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from poe.client.producer.payload import Message
from poe.errors import Overloaded
from tests.client.simulated import SimulatedLink, SimulatedTime, StoringServer
from tests.client.spooled_life import Life
from tests.client.spools import messages_of, take_all
from tests.storage.faulty_files import FaultyFiles
from torture.layers.memory import MemoryFiles

PARTITIONS = st.sampled_from([0, 1])


class SpooledProducer(RuleBasedStateMachine):
    """Lives of a producer, one after the other, and servers with the real rules for numbered puts.

    What is stored is in the order in which it was added, with nothing twice. A kill loses what was
    neither stored nor in the spool, and nothing else; a close loses nothing.
    """

    def __init__(self):
        super().__init__()
        self.time = SimulatedTime()
        self.is_disk_full = False
        self.begin_with(MemoryFiles())
        self.servers = [StoringServer(), StoringServer()]
        self.added: list[list[bytes]] = [[], []]
        self.owed: list[set[bytes]] = [set(), set()]
        """Of earlier lives; to be stored in the end."""
        self.refused: set[bytes] = set()
        """For good; a kill may bring them back from the spool, to be refused again."""
        self.delayed: list[SimulatedLink] = []
        """Connections that are lost, of which the server may still have something to read."""
        self.life = Life(self.files, self.time)

    @precondition(lambda self: not self.life.queues)
    @rule()
    def learn(self):
        self.life.learn()

    @rule(partition=PARTITIONS, count=st.integers(1, 7), is_due=st.booleans())
    def add(self, partition, count, is_due):
        added = self.added[partition]
        messages = [b"%d:%d" % (partition, len(added) + i) for i in range(count)]
        added += messages
        if not self.life.queues:
            pairs = [Message(message, b"%d" % partition) for message in messages]
            self.life.topic.add(pairs, is_due=is_due)
            return
        queue = self.life.queues[partition]
        if count == 1:
            queue.add_one(messages[0], is_due=is_due)
        else:
            queue.add(messages, is_due=is_due)

    @precondition(lambda self: self.life.queues and not self.life.links)
    @rule()
    def connect(self):
        self.life.connect(self.servers)

    @precondition(lambda self: self.life.links)
    @rule(is_told_first=st.booleans())
    def lose_connections(self, is_told_first):
        self.delayed += self.life.links
        self.life.disconnect(is_told_first=is_told_first)

    @precondition(lambda self: self.life.links)
    @rule(partition=PARTITIONS, count=st.integers(1, 5))
    def store(self, partition, count):
        link = self.life.links[partition]
        for _ in range(min(count, len(link.sent))):
            link.store()

    @precondition(lambda self: self.life.links)
    @rule(partition=PARTITIONS, count=st.integers(1, 5))
    def answer(self, partition, count):
        link = self.life.links[partition]
        for _ in range(min(count, len(link.answers))):
            link.answer()

    @precondition(lambda self: self.life.links)
    @rule(partition=PARTITIONS)
    def deliver_all_of_a_partition(self, partition):
        self.life.links[partition].run()

    @precondition(lambda self: self.delayed)
    @rule()
    def store_what_a_lost_connection_has_brought(self):
        if self.delayed[-1].sent:
            self.delayed[-1].store()
        else:
            self.delayed.pop()

    @precondition(lambda self: self.life.links)
    @rule(partition=PARTITIONS)
    def refuse_for_now(self, partition):
        if self.life.links[partition].sent:
            self.life.links[partition].refuse(Overloaded("in_flight_max", 1))

    @precondition(lambda self: self.life.links)
    @rule(partition=PARTITIONS)
    def refuse_for_good(self, partition):
        link = self.life.links[partition]
        if link.is_next_new():
            messages = link.sent[0][0].messages
            self.refused.update(map(value_of, messages))
            link.server.invalid.update(messages)
            link.store()

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0]))
    def let_time_pass(self, seconds):
        self.time.advance(seconds)

    @rule()
    def fill_or_free_the_disk(self):
        self.is_disk_full = not self.is_disk_full
        if self.is_disk_full:
            self.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
        else:
            self.files.heal()

    @rule(knows_partitions=st.booleans())
    def kill(self, knows_partitions):
        self.begin_another_life(knows_partitions=knows_partitions)

    @rule(knows_partitions=st.booleans())
    def close(self, knows_partitions):
        queues = self.life.topic.all_queues()
        unsettled = by_partition(m for q in queues for b in q.unsettled() for m in b.messages)
        self.life.topic.spool_all()
        self.life.spooler.close()
        is_disk_full = self.is_disk_full
        self.begin_another_life(knows_partitions=knows_partitions)
        for owed, messages in zip(self.owed, unsettled, strict=True):
            assert messages <= owed or is_disk_full

    def begin_with(self, disk):
        self.disk = disk
        self.files = FaultyFiles(disk)
        self.is_disk_full = False

    def begin_another_life(self, *, knows_partitions):
        self.delayed = []
        self.time = SimulatedTime()
        self.begin_with(self.disk.copy("boot"))
        self.life = Life(self.files, self.time, knows_partitions=knows_partitions, picker=by_key)
        for owed, spooled in zip(
            self.owed, by_partition(messages_of(take_all(self.life.spool))), strict=True
        ):
            owed.update(spooled)
        self.life.spool.rewind()

    @invariant()
    def all_is_stored_in_order_and_once(self):
        for server, added in zip(self.servers, self.added, strict=True):
            places = {message: place for place, message in enumerate(added)}
            stored = [places[value_of(message)] for message in server.log]
            assert stored == sorted(set(stored)), server.log

    @invariant()
    def nothing_has_failed_that_was_not_refused(self):
        assert self.refused or self.life.observer.totals["messages_failed"] == 0

    def teardown(self):
        if not self.life.queues:
            self.life.learn()
        if not self.life.links:
            self.life.connect(self.servers)
        self.life.run(self.time)
        self.all_is_stored_in_order_and_once()
        self.nothing_has_failed_that_was_not_refused()
        for server, owed in zip(self.servers, self.owed, strict=True):
            assert owed - self.refused <= set(map(value_of, server.log))


def by_key(_topic, key, _partitions):
    return int(key)


def value_of(message):
    return message.value if isinstance(message, Message) else message


def by_partition(messages):
    """Return the values of each partition, which they begin with."""
    values = set(map(value_of, messages))
    return [{each for each in values if each.startswith(b"%d:" % number)} for number in (0, 1)]


@pytest.mark.slow
@pytest.mark.timeout(300)  # so that a failure can be made small and be told
def test_what_was_spooled_is_stored_once_and_in_order_over_lives_and_connections():
    case = SpooledProducer.TestCase
    checks = [HealthCheck.too_slow]  # how slow it is depends on what else the machine does
    case.settings = settings(
        max_examples=75, stateful_step_count=40, deadline=None, suppress_health_check=checks
    )
    case().runTest()
