"""Whatever is done to a spool, and however its process ends, it agrees with a plain list."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from poe.client.spool.spool import Spool, SpooledBatch
from tests.client.spool_work import names_of
from tests.client.spools import batch_of, live, take_all
from torture.layers.memory import MemoryFiles


class SpoolAgreement(RuleBasedStateMachine):
    """The list holds what was appended and is neither done with nor dropped, in order.

    A kill may bring back what is done with behind a batch that is not, and nothing else.
    """

    def __init__(self):
        super().__init__()
        self.files = MemoryFiles()
        self.left: list[bytes] = []
        """First messages of batches, which stand for them."""
        self.counts: dict[bytes, int] = {}
        """Of the messages in each batch there ever was."""
        self.order: list[bytes] = []
        self.taken: list[SpooledBatch] = []
        self.done: set[bytes] = set()
        """Done with, and behind a batch that is not."""
        self.number = self.epoch = 0

    @initialize(bytes_max=st.sampled_from([600, 2000]), drop=st.sampled_from(["oldest", "newest"]))
    def open(self, bytes_max, drop):
        self.options = {"bytes_max": bytes_max, "drop": drop}
        self.spool = Spool(self.files, **self.options)

    def add(self, batch):
        size = self.spool.size
        appended = self.spool.append(batch)
        name = batch.messages[0]
        self.order.append(name)
        self.counts[name] = len(batch.messages)
        if appended.address is None:
            assert not appended.dropped
            assert self.taken or self.options["drop"] == "newest" or is_large(batch, self.options)
            return False
        self.left.append(name)
        gone = names_of(appended.dropped)
        assert gone == self.left[: len(gone)]
        del self.left[: len(gone)]
        if gone:
            assert size > 0
            assert self.options["drop"] == "oldest"
            self.done.clear()
        return name not in gone

    @rule(topic=st.sampled_from([b"a", b"b"]), count=st.integers(1, 20))
    def append(self, topic, count):
        self.number += 1
        self.add(batch_of(self.number, topic=topic, count=count))

    @rule(count=st.integers(1, 4))
    def append_what_was_under_way(self, count):
        self.epoch += 1
        is_whole = True
        for sequence in range(count):
            self.number += 1
            put_id = live(sequence, self.epoch).put_id
            batch = batch_of(self.number, put_id=put_id)
            before = len(self.left)
            if is_whole:
                is_whole = self.add(batch)
            else:
                assert self.spool.append(batch) == (None, [])
                assert len(self.left) == before

    @rule()
    def take(self):
        taken = self.spool.take()
        names = names_of(self.taken)
        rest = [name for name in self.left if name not in names]
        if taken is None:
            assert not rest
        else:
            assert taken.batch.messages[0] == rest[0]
            self.taken.append(taken)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def deliver(self, data):
        spooled = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.spool.done(spooled)
        (name,) = names_of([spooled])
        self.done.add(name)
        self.left.remove(name)
        if self.left:
            oldest = self.order.index(self.left[0])
            self.done = {each for each in self.done if self.order.index(each) > oldest}
        else:
            self.done.clear()

    @rule()
    def rewind(self):
        self.spool.rewind()
        self.taken.clear()

    @rule()
    def close_and_open(self):
        self.spool.close()
        self.begin_another_life()

    @rule()
    def kill_and_open(self):
        self.files = self.files.copy("boot")
        self.begin_another_life()

    def begin_another_life(self):
        self.taken.clear()
        self.spool = Spool(self.files, **self.options)
        found = names_of(take_all(self.spool))
        assert [name for name in found if name in self.left] == self.left
        assert set(found) <= {*self.left, *self.done}
        assert sorted(found, key=self.order.index) == found
        self.left = found
        self.done.clear()
        self.spool.rewind()

    @invariant()
    def count_and_size_are_right(self):
        if hasattr(self, "spool"):
            assert self.spool.size <= self.options["bytes_max"]
            assert self.spool.damage.count == 0
            assert self.spool.count == sum(map(self.counts.__getitem__, self.left))
            if not self.left and not self.taken:
                assert self.spool.take() is None
                assert self.spool.is_empty


def is_large(batch, options):
    return batch.size > options["bytes_max"] // 2


def agree(**bounds):
    case = SpoolAgreement.TestCase
    checks = [HealthCheck.too_slow]  # how slow it is depends on what else the machine does
    case.settings = settings(deadline=None, suppress_health_check=checks, **bounds)
    case().runTest()


def test_a_spool_agrees_with_a_list_at_first_sight():
    agree(max_examples=5, stateful_step_count=15, derandomize=True, database=None)


@pytest.mark.slow
@pytest.mark.timeout(300)  # so that a failure can be made small and be told
def test_a_spool_agrees_with_a_list():
    agree(max_examples=75, stateful_step_count=40)
