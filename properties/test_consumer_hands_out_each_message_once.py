"""However a consumer is read, sought and cut off, each partition's messages come once, in order.

A real node behind the proxy of a test broker, which resets connections; the model is a list for
each partition, and how far it was handed out.
"""

from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poe.client import Consumer
from poe.testing import broker

PARTITIONS = st.integers(0, 2)
COUNTS = st.integers(1, 12)
CUTS_MAX = 2
"""Each costs the wait before the next attempt."""


class ConsumerAgreement(RuleBasedStateMachine):
    """A consumer of three partitions against the model."""

    def make_broker(self):
        """Return what it reads from, and how it gets in."""
        return broker(), {}

    @initialize(batch=st.integers(1, 5), fetch_bytes=st.sampled_from([1, 60, 1 << 20]))
    def begin(self, batch, fetch_bytes):
        self.broker, ways = self.make_broker()
        self.batch = batch
        self.options = {"partitions": 3, "batch": batch, "fetch_bytes": fetch_bytes, **ways}
        self.consumer = Consumer(self.broker.url, "t", **self.options)
        self.stored: list[list[tuple[int, bytes]]] = [[], [], []]
        self.begins = [0, 0, 0]
        """How many messages of each partition were handed out."""
        self.cut_count = 0

    @rule(partition=PARTITIONS, count=COUNTS)
    def put(self, partition, count):
        messages = [b"%d.%d" % (partition, len(self.stored[partition]) + i) for i in range(count)]
        last = self.broker.node.put_many(f"t-{partition}", messages)
        pointers = range(last - count + 1, last + 1)
        self.stored[partition] += zip(pointers, messages, strict=True)

    @rule()
    def receive(self):
        received = self.consumer.receive()
        assert len(received) <= self.batch
        assert len({each.partition for each in received}) <= 1
        self.check(received)

    @rule(count=COUNTS)
    def iterate(self, count):
        self.check(list(islice(self.consumer, count)), count)

    @rule()
    def read_columns(self):
        fetched = next(self.consumer.columns(), None)
        if fetched is None:
            self.check([])
        else:
            rows = zip(fetched.pointers, fetched.values, strict=True)
            self.check_rows([(fetched.partition, *row) for row in rows])

    @rule(partition=PARTITIONS, data=st.data())
    def seek(self, partition, data):
        index = data.draw(st.integers(0, len(self.stored[partition])))
        self.consumer.seek({partition: self.stored[partition][index - 1][0] if index else 0})
        self.begins[partition] = index

    @rule()
    def seek_newest(self):
        self.consumer.seek("newest")
        self.begins = [len(rows) for rows in self.stored]

    @rule()
    def resume(self):
        self.consumer.close()
        position = self.consumer.position()
        self.consumer = Consumer(self.broker.url, "t", start=position, **self.options)

    @precondition(lambda self: self.cut_count < CUTS_MAX)
    @rule()
    def cut(self):
        self.cut_count += 1
        self.broker.cut()

    @invariant()
    def position_is_that_of_the_last_message(self):
        if hasattr(self, "consumer"):
            position = self.consumer.position()
            for partition, (rows, begin) in enumerate(zip(self.stored, self.begins, strict=True)):
                assert position[partition] == (rows[begin - 1][0] if begin else 0)

    def teardown(self):
        if hasattr(self, "consumer"):
            with self.broker, self.consumer:
                self.check(list(self.consumer))
                assert self.begins == [len(rows) for rows in self.stored]

    def check(self, received, count=1):
        self.check_rows([(each.partition, each.pointer, each.value) for each in received])
        if len(received) < count:
            at_end = [len(rows) for rows in self.stored]
            assert self.begins == at_end, "there was more"

    def check_rows(self, rows):
        for partition, pointer, value in rows:
            assert (pointer, value) == self.stored[partition][self.begins[partition]]
            self.begins[partition] += 1


TestConsumerAgreement = ConsumerAgreement.TestCase
TestConsumerAgreement.settings = settings(max_examples=max(5, settings().max_examples // 4))
