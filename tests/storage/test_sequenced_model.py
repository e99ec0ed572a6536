"""Whatever becomes of a store, producers that put again have each message there once, in order."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from poe.errors import ProducerFenced, RepeatedPut, SequenceGap
from poe.storage import SegmentOptions, Store, decode_records
from tests.storage.segments import NOW
from torture.layers.memory import MemoryFiles

TOPIC = b"t"
PRODUCERS = st.sampled_from([b"p" * 16, b"q" * 16])
ACKS = ["memory", "flushed", "fsync"]


class SequencedAgreement(RuleBasedStateMachine):
    """A store, and for each producer the list of what it has put in its epoch."""

    @initialize(ack=st.sampled_from(ACKS))
    def begin(self, ack):
        self.files = MemoryFiles()
        self.options = SegmentOptions(ack=ack, buffer_count_max=5)
        self.store = Store.open(self.files, self.options)
        self.store.create_segment(TOPIC, NOW)
        self.messages: list[tuple[int, bytes]] = []
        self.puts: dict[bytes, tuple[int, list[int]]] = {}
        self.gone = 0  # messages of segments that have expired
        self.count = 0

    @property
    def writer(self):
        return self.store.topics[TOPIC][-1]

    def append(self, count, put=None):
        messages = [b"%d" % (self.count + n) for n in range(count)]
        pointer = self.writer.append(messages, NOW, put)
        self.count += count
        first = pointer - count + 1
        self.messages += [(first + n, message) for n, message in enumerate(messages)]
        return pointer

    @rule(count=st.integers(1, 4))
    def put_plainly(self, count):
        self.append(count)

    @rule(producer=PRODUCERS, counts=st.lists(st.integers(1, 4), min_size=1, max_size=40))
    def put(self, producer, counts):
        epoch, pointers = self.puts.setdefault(producer, (0, []))
        for count in counts:
            pointers.append(self.append(count, (producer, epoch, len(pointers))))

    @rule(producer=PRODUCERS, step=st.integers(1, 3))
    def begin_an_epoch(self, producer, step):
        epoch, _ = self.puts.get(producer, (0, []))
        self.puts[producer] = (epoch + step, [self.append(1, (producer, epoch + step, 0))])

    @rule(producer=PRODUCERS, back=st.integers(0, 70))
    def put_again(self, producer, back):
        epoch, pointers = self.puts.get(producer, (0, []))
        sequence = len(pointers) - 1 - back
        if sequence >= 0:
            put = (producer, epoch, sequence)
            if back < 64:
                assert self.writer.append([b"?"], NOW, put) == pointers[sequence]
            else:
                with pytest.raises(RepeatedPut):
                    self.writer.append([b"?"], NOW, put)

    @rule(producer=PRODUCERS, ahead=st.integers(1, 5))
    def put_too_early(self, producer, ahead):
        epoch, pointers = self.puts.get(producer, (0, []))
        with pytest.raises(SequenceGap):
            self.writer.append([b"?"], NOW, (producer, epoch, len(pointers) + ahead))
        if epoch:
            with pytest.raises(ProducerFenced):
                self.writer.append([b"?"], NOW, (producer, epoch - 1, len(pointers)))

    @rule(action=st.sampled_from(["flush", "hibernate", "sync"]))
    def live(self, action):
        getattr(self.writer, action)()

    @precondition(lambda self: self.writer.count)
    @rule()
    def rotate(self):
        self.store.create_segment(TOPIC, NOW)

    @precondition(lambda self: len(self.store.topics[TOPIC]) > 1)
    @rule()
    def expire(self):
        oldest = self.store.topics[TOPIC][0]
        self.gone += oldest.count
        self.store.destroy_segment(TOPIC, oldest)

    @rule(is_killed=st.booleans(), is_rebooted=st.booleans())
    def start_again(self, is_killed, is_rebooted):
        if is_rebooted:
            self.writer.sync()
        elif is_killed:
            self.writer.flush()
        if not is_killed:
            self.store.close()
        self.files = self.files.copy(self.files.boot_id + "'" * is_rebooted)
        self.store = Store.open(self.files, self.options)
        self.writer.unseal()

    @rule()
    def all_is_there_once(self):
        found = []
        for segment in self.store.topics[TOPIC]:
            assert not segment.damage
            pointer = 0
            while (slice_ := segment.read(pointer, 100, 1 << 20)) is not None:
                found += decode_records(slice_.read())
                pointer = slice_.last_pointer
        assert found == self.messages[self.gone :]

    @rule(producer=PRODUCERS)
    def the_last_put_is_known(self, producer):
        last = self.writer.last_put(producer)
        epoch, pointers = self.puts.get(producer, (0, []))
        assert last == ((epoch, len(pointers) - 1, pointers[-1]) if pointers else None)

    def teardown(self):
        if hasattr(self, "store"):
            self.all_is_there_once()


@pytest.mark.slow
def test_a_store_agrees_with_lists_of_what_producers_have_put():
    case = SequencedAgreement.TestCase
    case.settings = settings(max_examples=75, stateful_step_count=40, deadline=None)
    case().runTest()
