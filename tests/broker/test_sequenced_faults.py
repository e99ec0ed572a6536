"""Numbered puts on a disk that fails, and from actors that die: answered alike, stored once."""

import errno
from typing import Any

import pytest

from poe.broker import AppendixOptions
from poe.errors import SequenceGap, StorageFull, SyncFailed
from poe.storage import check_segments
from tests.broker.faulty_broker import FaultyBroker, started
from tests.broker.putters import Putter
from torture.layers.watched import WatchedFiles

TOPIC = b"t"
P = b"p" * 16

pytestmark = pytest.mark.usefixtures("quiet")


class Broker(FaultyBroker):
    def __init__(self, folder, appendix=None, **options: Any):
        super().__init__(folder, appendix, **options)
        self.start()
        self.control("create", topic=TOPIC)

    def begin(self, *numbers):
        """Have a connection put these, and tell its answers when nothing more happens."""
        putter: Any = self.system.start(Putter, self.routes, TOPIC)

        def tell():
            for number in numbers:
                putter.cell.instance.cast(putter, (b"%d" % number, (P, 0, number)))

        self.system.run_outside(tell)
        return putter.cell.instance.answers

    def put_one(self, number):
        [answer] = self.begin(number)
        return answer

    def last(self):
        last = self.control("last_put", topic=TOPIC, producer=P)
        return None if last is None else last.sequence

    def writer(self):
        return self.routes[TOPIC].writer


@pytest.fixture
def start(tmp_path):
    with started(Broker, tmp_path) as start:
        yield start


@pytest.fixture
def broker(start):
    return start(ack="fsync")


def expect(broker, count):
    """Expect so many messages, each once, now and after a restart."""
    expected = [b"%d" % number for number in range(count)]
    assert broker.texts(TOPIC) == expected
    assert broker.last() == count - 1
    broker.stop()
    assert [check.damage for check in check_segments(broker.files) if check.damage] == []
    broker.start()
    assert broker.texts(TOPIC) == expected
    assert broker.last() == count - 1


def test_what_waits_for_a_sync_that_fails_is_put_again_under_its_number(broker):
    first = broker.put_one(0)
    broker.fail("sync")
    second = broker.put_one(1)
    assert broker.files.failed_count == 1
    assert [broker.put_one(0), broker.put_one(1)] == [first, second]
    broker.put_one(2)
    expect(broker, 3)


def test_a_repeat_waits_for_the_sync_of_what_it_repeats(broker):
    """Should that fail, both are put again: one is stored, and the other one is its repeat."""
    broker.put_one(0)
    broker.fail("sync")
    answers = broker.begin(1, 1, 1, 2)
    assert broker.files.failed_count == 1
    assert len(set(answers[:3])) == 1
    assert answers[3] > answers[0]
    expect(broker, 3)


def test_a_put_that_is_refused_since_its_disk_fails_is_put_again_later(broker):
    broker.put_one(0)
    broker.fail("sync", is_for_ever=True)
    assert isinstance(broker.put_one(1), SyncFailed)
    broker.files.heal()
    broker.system.advance(2)
    assert broker.last() == 0
    broker.put_one(1)
    expect(broker, 2)


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
@pytest.mark.parametrize("nth", range(10))
def test_wherever_a_sync_fails_while_segments_change_nobody_puts_into_the_failed_one(
    start, ack, nth
):
    """Whether it was a thread's, or that of what the next segment is to be told of."""
    broker = start(appendix=AppendixOptions(count_limit=2, sync_interval=1.0), ack=ack)
    broker.put_one(0)
    broker.fail("sync", nth)
    broker.put_one(1)
    broker.system.advance(0.6)
    assert type(broker.put_one(2)) is int
    for segment in broker.store.topics[TOPIC]:
        assert not (segment.is_writer and segment.durability.has_failed), segment.path
        assert segment.failure or not segment.durability.has_failed
    broker.system.advance(3)
    broker.files.heal()
    expect(broker, 3)


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
@pytest.mark.parametrize("nth", [0, 1])
def test_where_there_is_no_room_a_put_and_those_behind_it_are_refused(start, ack, nth):
    broker = start(ack=ack)
    broker.put_one(0)
    broker.fail("write_at", nth, errno.ENOSPC)
    answers = broker.begin(1, 2)
    assert isinstance(answers[0], StorageFull)
    assert isinstance(answers[1], SequenceGap)
    assert all(isinstance(answer, int) for answer in broker.begin(1, 2))
    expect(broker, 3)


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
@pytest.mark.parametrize("nth", [0, 1])
def test_after_a_write_that_fails_a_put_goes_to_the_next_segment(start, ack, nth):
    broker = start(ack=ack)
    broker.put_one(0)
    broker.fail("write_at", nth)
    [refused] = broker.begin(1)
    assert not isinstance(refused, int)
    broker.put_one(1)
    assert len(broker.control("segments", topic=TOPIC)) == 2
    expect(broker, 2)


def test_the_last_put_is_told_once_it_is_durable(broker):
    """A producer that goes on behind it does not put again what a failing sync then takes."""
    broker.put_one(0)
    broker.fail("sync")
    asked = []

    def ask():
        asked.append(broker.last())

    answers = broker.begin(1)
    ask()
    assert broker.files.failed_count == 1
    assert isinstance(answers[0], int)
    assert asked == [1]
    expect(broker, 2)


@pytest.mark.parametrize("reason", ["kill", "some bug"])
def test_an_appendix_server_that_dies_leaves_its_successor_all_numbers(broker, reason):
    pointers = broker.begin(*range(5))
    broker.system.exit(broker.writer(), reason)
    assert broker.begin(*range(5)) == pointers
    broker.put_one(5)
    expect(broker, 6)


def test_a_full_segment_is_synced_before_the_registry_has_to_wait_for_it(start):
    """What its successor is told of must be durable: it is synced twice, first in a thread."""
    broker = start(ack="flushed", appendix=AppendixOptions(count_limit=5, sync_interval=0))
    synced = []

    def note(operation):
        if operation.name == "sync" and operation.path.endswith("_data"):
            synced.append(operation.path)

    broker.files.real = WatchedFiles(broker.files.real, note)
    broker.begin(*range(5))
    assert synced == []
    broker.system.advance(1)
    assert len(synced) == 2
    assert len(set(synced)) == 1
    assert len(broker.control("segments", topic=TOPIC)) == 2
    expect(broker, 5)


def test_a_full_segment_that_goes_on_being_put_to_gets_a_successor_all_the_same(start):
    broker = start(ack="flushed", appendix=AppendixOptions(count_limit=5, sync_interval=0))
    for number in range(200):
        broker.put_one(number)
    assert len(broker.control("segments", topic=TOPIC)) > 10
    expect(broker, 200)
