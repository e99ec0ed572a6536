"""Two producers that number their puts and one that does not, on a topic whose files are recorded.

`History.play` does steps by chance; `survivors` tells, of any disk that they may have left, what of
each producer is there, and makes sure that it is a beginning of what it put, each message once.
"""

import errno
from random import Random

import pytest

from poe.errors import WriteFailed
from poe.storage import SegmentOptions, Store, decode_records
from tests.storage.faulty_files import FaultyFiles
from torture.checker import Put
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder

NOW = 1_700_000_000_000_000
TOPIC = b"t"
A, B = b"a" * 16, b"b" * 16


def messages_of(producer, sequence):
    """What a producer puts, of which the length depends on nothing else."""
    rng = Random(f"{producer!r} {sequence}")
    count = rng.choice([1, 1, 2, 5])
    filling = rng.choice([0, 0, 30, 700]) if count < 5 else 20
    return [b"%c %d %d " % (producer[0], sequence, n) + b"." * filling for n in range(count)]


class History:
    """The life of one process; of a second one `begun_with` is the disk that it finds."""

    def __init__(self, ack, seed, begun_with=None):
        self.ack = ack
        self.rng = Random(seed)
        self.begun_with = begun_with or MemoryFiles()
        files = self.begun_with.copy(self.begun_with.boot_id)
        self.failing = FaultyFiles(files)
        self.recorder = Recorder(self.failing)
        # Producer and sequence: its pointer, and how many events there were when it was answered.
        self.acked: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.unsynced: dict[tuple[bytes, int], int] = {}
        self.store = open_store(self.recorder.files, ack)
        self.next = {A: 0, B: 0} if begun_with is None else self.found()
        self.found_count = len(self.events)

    @property
    def events(self):
        return self.recorder.events

    @property
    def segment(self):
        return self.store.topics[TOPIC][-1]

    def play(self, count):
        writer_of(self.store)
        for _ in range(count):
            puts = [self.put, self.put, self.put, self.put_plainly, self.put_again]
            others = [self.flush, self.sync, self.rotate, self.hibernate, self.fail_to_sync]
            self.rng.choice([*puts, *others])()
        return self

    def found(self):
        """Ask where to go on, and take for acknowledged what is there: a start has synced it."""
        newest = survivors(self.store)
        for producer, last in newest.items():
            for sequence in range(last + 1):
                pointer = self.segment.append([b"?"], NOW, (producer, 0, sequence))
                self.acked[producer, sequence] = (pointer, len(self.events))
        return {producer: last + 1 for producer, last in newest.items()}

    def put(self):
        producer = self.rng.choice([A, B])
        self.answer(producer, self.next[producer])
        self.next[producer] += 1

    def answer(self, producer, sequence):
        put = (producer, 0, sequence)
        pointer = self.segment.append(messages_of(producer, sequence), NOW, put)
        if self.ack == "fsync":
            self.unsynced[producer, sequence] = pointer
        else:
            self.note(producer, sequence, pointer)

    def note(self, producer, sequence, pointer):
        self.recorder.ack(Put(TOPIC, producer[0], sequence, []), pointer)
        known, _ = self.acked.setdefault((producer, sequence), (pointer, len(self.events)))
        assert known == pointer

    def put_plainly(self):
        self.segment.append([b"plain"] * self.rng.choice([1, 3]), NOW)

    def put_again(self):
        producer = self.rng.choice([A, B])
        if self.next[producer]:
            self.answer(producer, self.rng.randrange(self.next[producer]))

    def flush(self):
        self.segment.flush()

    def sync(self):
        self.segment.sync()
        for key, pointer in self.unsynced.items():
            self.note(*key, pointer)
        self.unsynced.clear()

    def rotate(self):
        if self.ack == "fsync":
            self.sync()
        if self.segment.count:
            self.store.create_segment(TOPIC, NOW)

    def fail_to_sync(self):
        """Where that is allowed, have what was not promised put again onto a new segment."""
        if self.ack != "fsync" or not self.unsynced:
            return
        self.failing.fail(0, errno.EIO, "sync")
        with pytest.raises(WriteFailed):
            self.segment.sync()
        self.segment.begin_cut("I/O error")()
        self.store.create_segment(TOPIC, NOW)
        for producer, sequence in list(self.unsynced):
            self.answer(producer, sequence)

    def hibernate(self):
        self.segment.hibernate()

    def acked_before(self, event_count):
        return {key: pointer for key, (pointer, at) in self.acked.items() if at <= event_count}


def open_store(files, ack):
    return Store.open(files, SegmentOptions(ack=ack))


def writer_of(store):
    """The segment that takes puts, of a topic whose store was opened."""
    if TOPIC not in store.topics:
        return store.create_segment(TOPIC, NOW)
    segment = store.topics[TOPIC][-1]
    segment.unseal()
    # One that has lost its end takes no more.
    return segment if segment.takes_puts else store.create_segment(TOPIC, NOW)


def survivors(store):
    """Tell the newest put of each producer, once all before it were found, each once and whole."""
    found: dict[bytes, list[bytes]] = {A: [], B: []}
    pointers: dict[bytes, int] = {}
    for segment in store.topics.get(TOPIC, []):
        assert not any("receipts" in finding for finding in segment.damage)
        pointer = 0
        while (slice_ := segment.read(pointer, 100, 1 << 20)) is not None:
            for pointer, message in decode_records(slice_.read()):
                if message != b"plain":
                    producer = message[:1] * 16
                    found[producer].append(message)
                    pointers[producer] = pointer
    newest = {}
    for producer, messages in found.items():
        last = writer_of(store).last_put(producer)
        expected = (
            [m for n in range(last.sequence + 1) for m in messages_of(producer, n)] if last else []
        )
        assert messages == expected
        if last:
            assert last.pointer == pointers[producer]
        newest[producer] = last.sequence if last else -1
    return newest


def replay(store, history, acked):
    """Let both producers put again what they were not answered, and more; all is there once."""
    writer = writer_of(store)
    for producer, count in history.next.items():
        first = next((n for n in range(count) if (producer, n) not in acked), count)
        for sequence in range(max(first - 3, 0), count + 2):
            pointer = writer.append(messages_of(producer, sequence), NOW, (producer, 0, sequence))
            assert acked.get((producer, sequence), pointer) == pointer
    assert survivors(store) == {producer: count + 1 for producer, count in history.next.items()}
