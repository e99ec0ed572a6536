"""A disk that fails: nothing is acknowledged that is not there, and puts go on."""

import errno
import itertools
from typing import Any

import pytest

from poe.broker import AppendixOptions
from poe.broker.appendix.message import Seal, Unseal
from poe.broker.registry.topic_registry import Delete
from poe.errors import (
    CorruptRecord,
    ReadFailed,
    StorageFull,
    SyncFailed,
    TopicDamaged,
    TopicReadOnly,
    WriteFailed,
)
from poe.storage import check_segments
from poe.storage.store import store
from poe.storage.store.removals import REMOVED_FILE, RemovedExtent
from tests.broker.faulty_broker import FaultyBroker, started
from tests.broker.nodes import read_by_frames
from tests.broker.putters import put_at_once

TOPIC = b"t"

pytestmark = pytest.mark.usefixtures("quiet")


class Broker(FaultyBroker):
    """A broker whose topic has taken a message."""

    def __init__(self, folder, **options: Any):
        super().__init__(folder, **options)
        self.start()
        self.put(TOPIC, b"first")

    def put_at_once(self, messages):
        """Have several clients put before anything else happens, and tell their answers."""
        return put_at_once(self.system, self.routes, TOPIC, messages)

    def records(self):
        return read_by_frames(self.read, TOPIC)

    def segment_paths(self):
        return sorted((self.folder / "topics/t").glob("*_data"))

    def roles(self):
        return "".join(role for _, role in self.control("status")[TOPIC])


@pytest.fixture
def start(tmp_path):
    with started(Broker, tmp_path) as start:
        yield start


@pytest.fixture
def broker(start):
    return start(ack="fsync")


def check_after_restart(broker, expected):
    """Expect the same messages after a restart, each once, and nothing that looks like damage."""
    broker.stop()
    assert not any(check.damage for check in check_segments(broker.files))
    broker.start()
    assert broker.texts(TOPIC) == expected


# ---- a sync of what nobody was promised yet -----------------------------------------------------


def test_what_waits_for_a_sync_that_fails_is_put_again_and_acknowledged(broker):
    broker.fail("sync")
    pointers = broker.put_at_once([b"1", b"2", b"3"])
    assert broker.files.failed_count == 1
    assert broker.records()[1:] == list(zip(pointers, [b"1", b"2", b"3"], strict=True))
    old, new = broker.segment_paths()
    assert old.read_bytes().endswith(b"first")
    assert new.read_bytes().endswith(b"3")
    assert broker.roles() in {"rw", "hw"}
    broker.put(TOPIC, b"4")
    check_after_restart(broker, [b"first", b"1", b"2", b"3", b"4"])


def test_nothing_is_left_of_a_segment_that_never_was_durable(start):
    broker = start(ack="fsync")
    broker.control("create", topic=b"new")
    broker.fail("sync")
    broker.put(b"new", b"1")
    assert broker.texts(b"new") == [b"1"]
    assert len(list((broker.folder / "topics/new").iterdir())) == 4
    assert len(broker.routes[b"new"].refs) == 1


@pytest.mark.parametrize("nth", range(4))
def test_a_put_that_fills_a_segment_is_there_though_the_sync_cannot_begin(start, nth):
    broker = start(ack="fsync", appendix=AppendixOptions(count_limit=5))
    producer = b"p" * 16, 0, 0
    broker.request(lambda handler: handler.put(TOPIC, [b"second"], put_id=producer))
    messages = [b"%d" % number for number in range(9)]
    broker.fail("write_at", nth)  # of the data, the index, the sums or the receipts
    is_refused = nth == 0
    if is_refused:
        with pytest.raises(WriteFailed):
            broker.request(lambda handler: handler.put(TOPIC, messages))
    else:
        broker.request(lambda handler: handler.put(TOPIC, messages))
    assert broker.files.failed_count == 1
    expected = [b"first", b"second"] + ([] if is_refused else messages)
    assert broker.texts(TOPIC) == expected
    check_after_restart(broker, expected)


def test_a_topic_is_deleted_with_a_segment_that_could_not_be_removed_before(start, monkeypatch):
    broker = start(ack="fsync")
    producer, open_file = (b"p" * 16, 0, 0), broker.files.open

    def put(message):
        return broker.request(lambda handler: handler.put(TOPIC, [message], put_id=producer))

    def open_all_but_notes(path, mode):
        if path == REMOVED_FILE:
            raise OSError(errno.EIO, "it cannot be noted what goes")
        return open_file(path, mode)

    broker.control("trim", topic=TOPIC, pointer=put(b"1"))
    empty = broker.store.topics[TOPIC][-1]
    empty.fail("its disk has failed")
    with monkeypatch.context() as patched:
        patched.setattr(broker.files, "open", open_all_but_notes)
        broker.put(TOPIC, b"2")
    assert empty in broker.store.topics[TOPIC]
    broker.request(lambda handler: handler.ask_registry(Delete(TOPIC)))
    assert TOPIC not in broker.store.topics
    put(b"3")
    assert broker.texts(TOPIC) == [b"3"]


def test_a_deletion_of_which_the_end_cannot_be_noted_fails_and_may_be_asked_for_again(
    broker, monkeypatch
):
    opened, open_file = [], broker.files.open

    def open_notes_twice(path, mode):
        if path == REMOVED_FILE:
            opened.append(path)
            if len(opened) == 2:  # for the sync: what is put now is not in the notes
                broker.store.topics[TOPIC][-1].append([b"late"], 0)
            if len(opened) > 2:
                raise OSError(errno.EIO, "it cannot be noted what goes")
        return open_file(path, mode)

    def delete():
        broker.request(lambda handler: handler.ask_registry(Delete(TOPIC)))

    broker.store.removals.note_lost(b"other", [RemovedExtent(1, 1, 1)])  # there are notes already
    with monkeypatch.context() as patched:
        patched.setattr(broker.files, "open", open_notes_twice)
        with pytest.raises(WriteFailed):
            delete()
    assert len(opened) > 2
    assert broker.texts(TOPIC) == [b"first", b"late"]
    broker.put(TOPIC, b"more")
    delete()
    assert TOPIC not in broker.store.topics
    broker.put(TOPIC, b"new")
    assert broker.texts(TOPIC) == [b"new"]


def test_consumers_may_see_a_message_again_but_never_another_one_at_its_pointer(broker):
    """They may have read it before its sync has failed; the clock stands still meanwhile."""
    seen: list[tuple[int, bytes]] = []
    check = broker.files.check

    def read_before_the_sync(operation):
        if operation == "sync" and not seen:
            segment = broker.store.topics[TOPIC][-1]
            seen.append(segment.next(segment.last_pointer - 1))
        check(operation)

    broker.files.check = read_before_the_sync
    broker.fail("sync")
    pointer = broker.put(TOPIC, b"again")
    ((seen_pointer, message),) = seen
    assert message == b"again"
    assert seen_pointer < pointer
    assert broker.read(TOPIC, seen_pointer, 10) == [(pointer, b"again")]


def test_who_asked_for_a_sync_that_failed_is_told_and_may_ask_again(broker):
    broker.restart()  # of what a server finds it does not know whether it was synced
    broker.fail("sync")
    with pytest.raises(SyncFailed):
        broker.control("sync")
    broker.control("sync")
    broker.put(TOPIC, b"1")
    assert broker.texts(TOPIC) == [b"first", b"1"]


def test_a_sync_without_a_descriptor_costs_no_segment_and_stores_nothing_twice(broker):
    broker.restart()  # so that the next sync opens the folder
    broker.fail("sync_folder", nth=1, error_number=errno.EMFILE)  # behind that of the lock
    with pytest.raises(SyncFailed, match="may then be there twice"):
        broker.put(TOPIC, b"1")
    broker.put(TOPIC, b"2")
    assert broker.texts(TOPIC) == [b"first", b"1", b"2"]
    assert len(broker.segment_paths()) == 1


def test_a_segment_that_is_followed_by_none_for_want_of_a_descriptor_is_no_second_failure(broker):
    broker.store.topics[TOPIC][-1].fail("I/O error")
    broker.fail("open", error_number=errno.EMFILE)
    broker.put(TOPIC, b"1")
    assert broker.files.failed_count == 1
    assert broker.texts(TOPIC) == [b"first", b"1"]
    assert broker.control("health")["read_only"] == []


# ---- the second failure -------------------------------------------------------------------------


def fail_syncs(files, *numbers):
    """Let the syncs with these numbers fail, the next one being 1."""
    must_fail, count = files.must_fail, itertools.count(1)

    def fail(operation):
        return must_fail(operation) or (operation == "sync" and next(count) in numbers)

    files.must_fail = fail
    files.error_number = errno.EIO


def test_a_put_is_made_again_once_and_then_refused(broker):
    """Else its client might wait for as long as the disk takes to fail, again and again."""
    # Between them, the cut syncs data, index and sums, these again when they say where it ends, and
    # the note of where the ordinals go on.
    fail_syncs(broker.files, 1, 7)
    (answer,) = broker.put_at_once([b"1"])
    assert type(answer) is SyncFailed
    with pytest.raises(TopicReadOnly):
        broker.put(TOPIC, b"2")
    broker.system.advance(1.0)
    broker.put(TOPIC, b"3")
    check_after_restart(broker, [b"first", b"3"])


def test_a_segment_that_has_worked_may_fail_as_its_predecessor_did(broker):
    fail_syncs(broker.files, 1, 10)
    broker.put(TOPIC, b"1")
    broker.system.advance(1.0)
    broker.put(TOPIC, b"2")
    check_after_restart(broker, [b"first", b"1", b"2"])


def break_for_good(broker):
    """Let all syncs fail, and the topic notice it."""
    broker.fail("sync", is_for_ever=True)
    for message in (b"1", b"2"):
        with pytest.raises(SyncFailed):
            broker.put(TOPIC, message)


def test_after_a_second_failure_the_topic_can_only_be_read(broker):
    break_for_good(broker)
    assert broker.control("health")["read_only"] == [TOPIC]
    for _ in range(3):
        with pytest.raises(TopicReadOnly, match=r"Input/output error.*mend the disk"):
            broker.put(TOPIC, b"3")
    assert broker.texts(TOPIC) == [b"first"]
    assert "w" not in broker.roles()


def test_a_read_only_topic_takes_messages_again_when_its_disk_is_mended(broker):
    break_for_good(broker)
    broker.files.heal()
    with pytest.raises(TopicReadOnly):
        broker.put(TOPIC, b"too early")
    broker.system.advance(1.0)
    broker.put(TOPIC, b"3")
    assert broker.control("health")["read_only"] == []
    check_after_restart(broker, [b"first", b"3"])


def test_a_read_only_topic_whose_server_is_replaced_is_so_no_more(broker):
    """What is recovered is on files of its own, and takes messages without another segment."""
    break_for_good(broker)
    broker.files.heal()
    broker.system.exit(broker.routes[TOPIC].writer, "kill")
    broker.put(TOPIC, b"3")
    assert broker.control("health")["read_only"] == []


@pytest.mark.parametrize("operation", ["rename", "allocate"])
def test_a_topic_without_room_for_a_lock_file_is_read_when_its_server_has_crashed(
    broker, operation
):
    broker.fail(operation, error_number=errno.ENOSPC, is_for_ever=True)
    broker.system.exit(broker.routes[TOPIC].writer, "kill")
    assert broker.texts(TOPIC) == [b"first"]
    with pytest.raises(StorageFull):
        broker.put(TOPIC, b"1")
    broker.files.heal()
    broker.put(TOPIC, b"2")
    assert broker.texts(TOPIC) == [b"first", b"2"]


def damage_the_first_segment(broker):
    """Leave a topic of two segments, of which a start finds the first one damaged."""
    broker.fail("sync")
    broker.put(TOPIC, b"second")
    broker.stop()
    first, _ = broker.segment_paths()
    first.write_bytes(first.read_bytes()[:-1] + b"!")
    first.with_name(first.name.replace("_data", "_index")).unlink()
    broker.start()


def test_a_crash_behind_damage_is_no_way_around_strict(start):
    broker = start(ack="fsync", recovery="strict")
    damage_the_first_segment(broker)
    for _ in range(2):
        with pytest.raises(TopicDamaged):
            broker.put(TOPIC, b"third")
        pointer = broker.store.topics[TOPIC][1].pointer_low
        assert broker.next(TOPIC, pointer - 1) == b"second"
        broker.system.exit(broker.routes[TOPIC].writer, "kill")


def test_a_new_segment_is_tried_once_a_second_and_none_is_left(broker):
    break_for_good(broker)
    tries = 0
    for _ in range(12):
        broker.system.advance(0.25)
        before = broker.files.failed_count
        with pytest.raises((SyncFailed, TopicReadOnly)):
            broker.put(TOPIC, b"x")
        tries += broker.files.failed_count > before
        assert len(broker.segment_paths()) == 2
    assert tries == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_for_ever", [False, True])
@pytest.mark.parametrize("first", ["sync", "write_at"])
def test_whatever_fails_behind_a_failure_each_put_is_there_once_or_refused(
    start, tmp_path, first, is_for_ever
):
    for nth in range(200):
        broker = Broker(tmp_path / str(nth), ack="fsync")
        fail_first_then_nth(broker.files, first, nth, is_for_ever=is_for_ever)
        answers = broker.put_at_once([b"1", b"2"])
        is_over = broker.files.failed_count == 0
        broker.files.heal()
        del broker.files.must_fail
        broker.system.advance(1.0)
        broker.put(TOPIC, b"3")
        for _ in range(2):
            texts = broker.texts(TOPIC)
            assert texts[0] == b"first"
            assert texts[-1] == b"3"
            for message, answer in zip([b"1", b"2"], answers, strict=True):
                if isinstance(answer, int):
                    assert texts.count(message) == 1
                elif not isinstance(answer, SyncFailed):
                    assert message not in texts
                assert texts.count(message) <= 1
            broker.restart()
        broker.stop()
        if is_over:
            break
    assert 10 < nth < 200


def fail_first_then_nth(files, first, nth, *, is_for_ever):
    """Let the next operation of a kind fail, and then any one that `nth` others go before."""
    must_fail = files.must_fail

    def fail(operation):
        if files.countdown < 0 and operation == first and not files.failed_count:
            files.fail(nth, errno.EIO, is_for_ever=is_for_ever)
            return True
        return must_fail(operation)

    files.must_fail = fail


# ---- a sync of what is acknowledged -------------------------------------------------------------


@pytest.mark.parametrize("ack", ["flushed", "memory"])
def test_what_is_acknowledged_is_never_cut_off(start, ack):
    broker = start(ack=ack)
    broker.put(TOPIC, b"1")
    broker.fail("sync")
    broker.system.advance(1.1)
    assert broker.files.failed_count == 1
    broker.put(TOPIC, b"2")
    assert broker.roles() in {"rw", "hw"}
    check_after_restart(broker, [b"first", b"1", b"2"])


def test_what_the_disk_has_lost_of_it_is_not_served(start):
    broker = start()
    broker.fail("sync")
    broker.system.advance(1.1)
    assert broker.texts(TOPIC) == [b"first"]
    (old, _) = broker.segment_paths()
    old.write_bytes(bytes(old.stat().st_size))
    with pytest.raises(CorruptRecord):
        broker.texts(TOPIC)


def test_consumers_of_what_is_synced_get_by_a_sync_that_failed(start):
    """What it should have covered is acknowledged: hidden for ever, it would be lost."""
    broker = start(appendix=AppendixOptions(read="synced"))
    broker.system.advance(1.1)
    broker.put(TOPIC, b"1")
    broker.fail("sync")
    broker.system.advance(1.1)
    broker.put(TOPIC, b"2")
    assert broker.texts(TOPIC) == [b"first", b"1"]
    broker.system.advance(1.1)
    assert broker.texts(TOPIC) == [b"first", b"1", b"2"]


def test_on_a_full_disk_nobody_waits_for_ever_for_a_segment_to_end(start):
    """Where consumers see only what is synced, a sealed one is synced to its end; if it can."""
    broker = start(appendix=AppendixOptions(read="synced"))
    writer = broker.routes.get(TOPIC).writer
    pointer = broker.system.call(writer, Seal())
    broker.fail("write_at", error_number=errno.ENOSPC, is_for_ever=True)
    assert broker.system.call(writer, Seal()) == pointer
    with pytest.raises(StorageFull):
        broker.system.call(writer, Unseal())
    broker.files.heal()
    broker.put(TOPIC, b"1")
    broker.system.advance(1.1)
    assert broker.texts(TOPIC) == [b"first", b"1"]


# ---- a write ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_a_write_that_fails_refuses_its_batch_and_the_next_one_goes_to_a_new_segment(start, ack):
    broker = start(ack=ack)
    broker.fail("write_at")
    with pytest.raises(WriteFailed):
        broker.put(TOPIC, b"refused")
    broker.put(TOPIC, b"1")
    old, new = broker.segment_paths()
    assert old.read_bytes().endswith(b"first")
    assert new.read_bytes().endswith(b"1")
    check_after_restart(broker, [b"first", b"1"])


def test_a_full_disk_is_no_reason_for_a_new_segment(broker):
    broker.fail("write_at", error_number=errno.ENOSPC)
    with pytest.raises(StorageFull):
        broker.put(TOPIC, b"refused")
    broker.put(TOPIC, b"1")
    assert len(broker.segment_paths()) == 1


def test_a_disk_that_takes_no_writes_makes_the_topic_read_only(broker):
    broker.fail("write_at", is_for_ever=True)
    with pytest.raises(WriteFailed):
        broker.put(TOPIC, b"1")
    for _ in range(3):
        with pytest.raises(TopicReadOnly):
            broker.put(TOPIC, b"2")
    assert broker.texts(TOPIC) == [b"first"]
    assert broker.control("health")["read_only"] == [TOPIC]
    broker.files.heal()
    broker.system.advance(1.0)
    broker.put(TOPIC, b"3")
    check_after_restart(broker, [b"first", b"3"])


@pytest.mark.parametrize("put_id", [None, (b"p" * 16, 0, 0)], ids=["plain", "sequenced"])
def test_a_topic_that_sleeps_is_read_from_a_disk_that_is_read_only_and_goes_on_after_it(
    start, put_id
):
    broker = start()
    broker.request(lambda handler: handler.put(TOPIC, [b"1"], put_id=put_id))
    expected = [b"first", b"1"]
    broker.system.advance(5)
    broker.files.is_read_only = True
    assert broker.texts(TOPIC) == expected
    with pytest.raises(ReadFailed, match="Read-only file system"):
        broker.put(TOPIC, b"2")
    for _ in range(2):
        with pytest.raises(TopicReadOnly):
            broker.put(TOPIC, b"2")
        assert broker.texts(TOPIC) == expected
        broker.system.advance(5)
    assert broker.control("health")["read_only"] == [TOPIC]
    broker.files.is_read_only = False
    broker.put(TOPIC, b"3")
    assert broker.control("health")["read_only"] == []
    check_after_restart(broker, [*expected, b"3"])


@pytest.mark.parametrize("is_full", [False, True])
def test_a_topic_that_rests_is_read_from_a_disk_that_takes_no_lock_file(
    start, monkeypatch, is_full
):
    monkeypatch.setattr(store, "FEW_TOPICS", 0)
    broker = start()
    broker.stop()
    broker.start()
    if is_full:
        broker.fail("allocate", error_number=errno.ENOSPC, is_for_ever=True)
    else:
        broker.files.is_read_only = True
    assert broker.texts(TOPIC) == [b"first"]
    with pytest.raises(StorageFull if is_full else WriteFailed):
        broker.put(TOPIC, b"2")
    broker.files.heal()
    broker.files.is_read_only = False
    broker.put(TOPIC, b"3")
    check_after_restart(broker, [b"first", b"3"])
