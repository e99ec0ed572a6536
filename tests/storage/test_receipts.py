"""The receipts of sequenced puts: what a disk that fails, is damaged or is full makes of them."""

import contextlib
import errno
import logging
from random import Random

import pytest
from xxhash import xxh3_64_intdigest

from poe.errors import (
    FormatNotSupported,
    RepeatedPut,
    SequenceGap,
    StorageError,
    StorageFull,
    TopicDamaged,
    WriteFailed,
)
from poe.storage import RealFiles, SegmentOptions, Store, check_segments
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import RECEIPT_MAGIC, RECEIPTS, read_receipts
from poe.storage.recovery.scrub import scrub
from poe.storage.segment.producers import PRODUCER_IDLE_MAX_US, PRODUCERS_COUNT_MAX
from poe.storage.store.repair import repair_segments
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import (
    FOLDER,
    NOW,
    create,
    files_at,
    names_in,
    path_of,
    read_all,
    reopen,
    some_of,
)
from torture.layers.crash_state import after_kill, store_after_power_cut
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Recorder

P, Q = b"p" * 16, b"q" * 16
ENTRY = FILE_HEADER_BYTES  # where the first receipt lies


def put(number, producer=P):
    return (producer, 0, number)


def last_of(segment):
    last = segment.last_put(P)
    assert last is not None
    return last


def texts(segment):
    return [message for _, message in read_all(segment)]


def receipts_of(base, timestamp=NOW):
    files = RealFiles.at(base)
    found = read_receipts(files, f"{FOLDER}/{timestamp}", bytes(16))
    assert found is not None
    return found


def filled(layer, count=3, **options):
    """A writer with so many puts, and a plain one behind the first."""
    segment = create(layer, **options)
    for number in range(count):
        segment.append([b"%d" % number, b"x"], NOW, put(number))
        if number == 0:
            segment.append([b"plain"], NOW)
    return segment


# ---- the file -----------------------------------------------------------------------------------


def test_a_segment_without_sequenced_puts_has_no_receipts(tmp_path, layer):
    segment = create(layer)
    segment.append([b"a"], NOW)
    segment.close()
    assert not any(name.endswith("_seq") for name in names_in(tmp_path / FOLDER))


def test_a_receipt_is_byte_exact(tmp_path, layer):
    segment = create(layer)
    segment.append([b"plain"], NOW)
    pointer = segment.append([b"a", b"bc"], NOW, (P, 7, 0))
    content = path_of(tmp_path, "seq").read_bytes()
    assert len(content) == 64 + 2 * 72
    assert content[:8] == b"poe-seq\0"
    covered, receipt = content[64:136], content[136:]
    assert covered[:64] == bytes(24) + b"\0\0\0\x03" + bytes(12) + b"\0" * 7 + b"\x10" + bytes(16)
    assert receipt[:28] == P + b"\0\0\0\x07" + bytes(4) + b"\0\0\0\x01"
    assert receipt[28:32] == (12 + 13).to_bytes(4, "big")
    assert receipt[32:40] == pointer.to_bytes(8, "big")
    assert receipt[40:48] == (16 + 12 + 13).to_bytes(8, "big")
    assert receipt[56:64] == bytes(8)


def test_a_receipt_of_a_replicated_topic_tells_its_place(tmp_path, layer):
    segment = create(layer)
    segment.append([b"a"], NOW, (P, 7, 0), 3)
    segment.append([b"b"], NOW, None, 5)
    content = path_of(tmp_path, "seq").read_bytes()
    first, second = content[64:136], content[136:]
    assert first[:28] == P + b"\0\0\0\x07" + bytes(4) + b"\0\0\0\x01"
    assert first[56:64] == (3).to_bytes(8, "big")
    assert second[:28] == bytes(24) + b"\0\0\0\x04"
    assert second[56:64] == (5).to_bytes(8, "big")


# ---- places -------------------------------------------------------------------------------------


def test_a_segment_knows_its_place_after_each_way_to_end(layer):
    segment = create(layer)
    assert segment.place() == 0
    segment.append([b"a"], NOW, put(0), 3)
    segment.append([b"b"], NOW, None, 5)
    assert segment.place() == 5
    segment.hibernate()
    assert segment.place() == 5
    segment.close()
    segment = reopen(layer)
    assert (segment.place(), last_of(segment).sequence) == (5, 0)
    segment.unseal()
    segment.append([b"c"], NOW, None, 6)
    segment.pass_place(7)
    del segment  # as by a kill
    segment = reopen(layer)
    assert (segment.place(), texts(segment)) == (7, [b"a", b"b", b"c"])


def test_a_new_segment_knows_the_place_of_the_one_before(tmp_path):
    store = Store.open(tmp_path)
    segment = store.create_segment(b"t", NOW, agreed_base=0)
    segment.append([b"a"], NOW, put(0), 3)
    segment.append([b"b"], NOW, None, 5)
    behind = store.create_segment(b"t", segment.last_pointer + 1, agreed_base=2)
    assert (behind.place(), behind.timestamp, behind.base) == (5, NOW + 2, 2)
    store.close()
    store = Store.open(tmp_path)
    assert store.topics[b"t"][-1].place() == 5


def test_a_batch_with_a_place_gets_its_pointer_again_where_others_go_on_behind(tmp_path):
    """A copy that is made anew is to be what it was; a topic of one node never gives one twice."""
    store = Store.open(tmp_path)
    segment = store.create_segment(b"t", NOW, agreed_base=0)
    segment.append([b"a", b"b"], NOW, None, 1)
    store.destroy_segment(b"t", segment)
    again = store.create_segment(b"t", NOW, agreed_base=0)
    assert again.append([b"a", b"b"], NOW, None, 1) == NOW + 1
    assert store.removals.extents(b"t") == []
    other = store.create_segment(b"u", NOW)
    other.append([b"a"], NOW)
    store.destroy_segment(b"u", other)
    assert store.create_segment(b"u", NOW).append([b"a"], NOW) == NOW + 1
    store.close()


@pytest.mark.parametrize("is_numbered", [False, True])
def test_whenever_a_node_dies_its_place_is_that_of_its_data(is_numbered):
    """At whichever operation: what is there is what was stored up to that place."""
    recorder = Recorder(MemoryFiles())
    store = Store.open(recorder.files)
    store.create_segment(b"t", NOW, agreed_base=0)
    for number in range(6):
        if number == 3:
            before = store.topics[b"t"][-1]
            store.create_segment(b"t", before.last_pointer + 1, agreed_base=before.next_ordinal)
        key = put(number) if is_numbered else None
        store.topics[b"t"][-1].append([b"%d" % number], NOW, key, number + 1)
    for at in range(len(recorder.events) + 1):
        found = Store.open(after_kill(recorder.events[:at], 0.5))
        segments = found.topics.get(b"t", [])
        stored = [m for segment in segments for m in texts(segment)]
        assert stored == [b"%d" % number for number in range(len(stored))]
        if segments:
            assert segments[-1].place() == len(stored)


@pytest.mark.parametrize("is_cut", [False, True])
def test_whenever_a_node_dies_it_has_passed_no_place_whose_data_it_lost(is_cut):
    recorder = Recorder(MemoryFiles())
    store = Store.open(recorder.files)
    segment = store.create_segment(b"t", NOW, agreed_base=0)
    for number in range(4):
        segment.append([b"%d" % number], NOW, None, 2 * number + 1)
        segment.pass_place(2 * number + 2)
        if number == 1:
            segment.sync()
    for at in range(len(recorder.events) + 1):
        events = recorder.events[:at]
        left = store_after_power_cut(events, Random(at)) if is_cut else after_kill(events, 0.5)
        for found in Store.open(left).topics.get(b"t", []):
            count = len(texts(found))
            assert found.place() in {max(2 * count - 1, 0), 2 * count}


def test_closing_leaves_receipts_of_all_data_and_nothing_else(tmp_path, layer):
    segment = filled(layer)
    segment.append([b"plain"], NOW)
    segment.close()
    found = receipts_of(tmp_path)
    assert [each.entry.kind for each in found.receipts] == [1, 1, 1, 3]
    assert found.reach == path_of(tmp_path, "data").stat().st_size
    assert (found.damaged_count, found.torn_bytes) == (0, 0)
    assert [check.damage for check in check_segments(layer)] == [[]]


def test_a_segment_goes_with_its_receipts(tmp_path, layer):
    segment = filled(layer)
    segment.destroy()
    assert names_in(tmp_path / FOLDER) == []


def test_receipts_of_a_newer_version_are_left_alone(tmp_path, layer):
    filled(layer).close()
    newer = bytearray(FileHeader(bytes(16), NOW).encode(RECEIPT_MAGIC))
    newer[9] = 2
    whole = path_of(tmp_path, "seq").read_bytes()

    newer[-8:] = xxh3_64_intdigest(bytes(newer[:-8])).to_bytes(8, "big")
    path_of(tmp_path, "seq").write_bytes(bytes(newer) + whole[64:])
    segment = reopen(layer)
    with pytest.raises(FormatNotSupported):
        segment.unseal()
    assert texts(segment)


# ---- a failing disk -----------------------------------------------------------------------------


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("nth", "suffix"), [(0, "_seq"), (1, "_data")])
def test_a_receipt_or_data_that_cannot_be_written_refuses_the_put(
    tmp_path, layer, error_number, nth, suffix
):
    segment = filled(layer)
    before = read_all(segment)
    layer.fail(nth, error_number, "write_at")
    expected = StorageFull if error_number == errno.ENOSPC else WriteFailed
    with pytest.raises(expected, match=suffix):
        segment.append([b"refused"], NOW, put(3))
    assert read_all(segment) == before
    assert last_of(segment).sequence == 2
    segment.append([b"3", b"x"], NOW, put(3))
    segment.append([b"4", b"x"], NOW, put(4))
    del segment
    segment = reopen(layer)
    assert texts(segment) == [b"0", b"x", b"plain", b"1", b"x", b"2", b"x", b"3", b"x", b"4", b"x"]
    assert last_of(segment).sequence == 4
    assert path_of(tmp_path, "seq").stat().st_size == ENTRY + 5 * RECEIPTS.size_bytes


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_put_that_was_refused_is_not_known_when_plain_ones_took_its_place(layer, is_killed):
    """Its receipt lies in the file, as if its data had followed: the disk took nothing back."""
    segment = filled(layer, 1)
    layer.fail(1, errno.EIO, "write_at", "truncate", is_for_ever=True)
    with pytest.raises(WriteFailed, match="_seq"):
        segment.append([b"refused"], NOW, put(1))
    layer.heal()
    segment.append([b"as long"], NOW)
    if not is_killed:
        segment.close()
    del segment
    segment = reopen(layer)
    assert last_of(segment).sequence == 0
    segment.unseal()
    segment.append([b"again"], NOW, put(1))
    assert texts(segment)[-2:] == [b"as long", b"again"]


def test_when_the_first_receipt_cannot_be_made_nothing_is_stored(tmp_path, layer):
    for nth in range(20):
        segment = create(layer, NOW + nth)
        segment.append([b"plain"], NOW)
        layer.fail(nth, errno.ENOSPC)
        try:
            segment.append([b"a"], NOW, put(0))
        except StorageError:
            assert len(read_all(segment)) == 1
            has_file = path_of(tmp_path, "seq", NOW + nth).exists()
            assert has_file == (segment.receipts is not None)
            assert segment.append([b"a"], NOW, put(0)) == last_of(segment).pointer
        else:
            break
        finally:
            layer.heal()
        assert texts(segment) == [b"plain", b"a"]
        segment.close()
    assert 5 < nth < 20
    assert not any(name.endswith("_new") for name in names_in(tmp_path / FOLDER))


@pytest.mark.parametrize("ack", ["memory", "flushed", "fsync"])
@pytest.mark.parametrize("is_for_ever", [False, True])
def test_whichever_call_fails_what_was_taken_is_there_once(ack, is_for_ever):
    """Then the process dies, and what was not taken is put again."""
    for nth in range(200):
        files = MemoryFiles()
        layer = FaultyFiles(files)
        store = Store.open(layer, SegmentOptions(ack=ack, buffer_count_max=2))
        store.create_segment(b"t", NOW)
        layer.fail(nth, errno.EIO, is_for_ever=is_for_ever)
        taken: list[int] = []
        for number in range(6):
            with contextlib.suppress(StorageError):
                if number == 3:
                    store.create_segment(b"t", NOW)
                writer = store.topics[b"t"][-1]
                writer.append([b"%d" % number], NOW, put(len(taken)))
                taken.append(number)
                writer.sync()
        failed_count = layer.failed_count
        store = Store.open(files.copy(files.boot_id), SegmentOptions(ack=ack))
        writer = store.topics[b"t"][-1]
        writer.unseal()
        last = writer.last_put(P)
        stored = [m for segment in store.topics[b"t"] for m in texts(segment)]
        assert stored == [b"%d" % number for number in taken][: len(stored)]
        assert (last.sequence + 1 if last else 0) == len(stored)
        assert ack == "memory" or len(stored) == len(taken)
        if not failed_count:
            break
    assert 20 < nth < 200


# ---- a sync that fails --------------------------------------------------------------------------


def unsynced(layer, kind, doubtful=b"doubtful"):
    """A segment of which a sync has failed, with what was put before it and meanwhile."""
    segment = create(layer, ack="fsync")
    number = 0
    if kind == "something synced":
        segment.append([b"0"], NOW, put(0))
        number = 1
    elif kind == "made meanwhile":
        segment.append([b"0"], NOW)
    segment.sync()
    if kind == "made meanwhile":
        segment.append([doubtful], NOW)
        sync = segment.begin_sync()
    else:
        segment.append([doubtful], NOW, put(number))
        sync = segment.begin_sync()
        number += 1
    segment.append([b"behind"], NOW, put(number))
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        sync()
    layer.heal()
    return segment


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("kind", ["something synced", "nothing synced", "made meanwhile"])
def test_a_cut_takes_the_receipts_of_what_is_given_up_too(tmp_path, layer, kind, is_killed):
    segment = unsynced(layer, kind)
    cut = segment.begin_cut("I/O error")
    if not is_killed:
        cut()
        assert not path_of(tmp_path, "lock").exists()
        assert [check.damage for check in check_segments(layer)] == [[]]
    number = 1 if kind == "something synced" else 0
    expected = [] if kind == "nothing synced" else [b"0"]
    assert texts(segment) == expected
    last = segment.last_put(P)
    assert (last.sequence + 1 if last else 0) == number
    del segment
    segment = reopen(layer)
    segment.unseal()
    segment.append([b"again"], NOW, put(number))
    segment.append([b"and on"], NOW, put(number + 1))
    del segment
    segment = reopen(layer)
    assert texts(segment) == [*expected, b"again", b"and on"]
    assert last_of(segment).sequence == number + 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_kill_in_the_midst_of_a_cut_looks_like_no_damage(share):
    recorder = Recorder(layer := FaultyFiles(MemoryFiles()))
    store = Store.open(recorder.files, SegmentOptions(ack="fsync"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"plain"], NOW)
    segment.append([b"0"], NOW, put(0))
    segment.append([b"1"], NOW, put(1))
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()
    begun = len(recorder.events)
    segment.begin_cut("I/O error")()
    assert len(recorder.events) > begun + 5
    for number in range(begun, len(recorder.events) + 1):
        left = after_kill(recorder.events[:number], share)
        [found] = Store.open(left, SegmentOptions(ack="fsync")).topics[b"t"]
        assert not found.damage


def test_what_is_given_up_is_taken_by_the_next_segment(tmp_path, layer):
    store = Store.open(layer, SegmentOptions(ack="fsync"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"0"], NOW, put(0))
    segment.sync()
    segment.append([b"1"], NOW, put(1))
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        segment.sync()
    segment.begin_cut("I/O error")()
    following = store.create_segment(b"t", NOW)
    assert following.append([b"0"], NOW, put(0)) == NOW
    assert following.append([b"1"], NOW, put(1)) > segment.given_pointer
    assert texts(segment) + texts(following) == [b"0", b"1"]


def test_receipts_that_cannot_be_synced_fail_the_sync(layer):
    segment = filled(layer, ack="fsync")
    layer.fail(1, errno.EIO, "sync")
    with pytest.raises(WriteFailed, match="_seq"):
        segment.sync()
    assert segment.durability.has_failed


# ---- what a new segment is told of --------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path)


def test_a_new_segment_knows_what_was_put_before(tmp_path, store):
    segment = store.create_segment(b"t", NOW)
    pointers = [segment.append([b"%d" % n], NOW, put(n)) for n in range(100)]
    segment = store.create_segment(b"t", NOW)
    assert [segment.append([b"?"], NOW, put(n)) for n in range(36, 100)] == pointers[36:]
    with pytest.raises(RepeatedPut):
        segment.append([b"?"], NOW, put(35))
    assert segment.count == 0
    store.destroy_segment(b"t", store.topics[b"t"][0])
    store.close()
    [segment] = Store.open(tmp_path).topics[b"t"]
    assert last_of(segment).pointer == pointers[-1]


def test_a_new_segment_begins_when_what_it_is_told_of_is_durable(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer)
    segment = store.create_segment(b"t", NOW)
    segment.append([b"a"], NOW, put(0))
    layer.fail(0, errno.EIO, "sync")
    with pytest.raises(WriteFailed):
        store.create_segment(b"t", NOW)
    assert store.topics[b"t"] == [segment]


def test_producers_that_were_idle_for_long_are_forgotten_by_a_new_segment(store):
    segment = store.create_segment(b"t", NOW)
    segment.append([b"a"], NOW, put(0))
    later = NOW + PRODUCER_IDLE_MAX_US
    segment.append([b"b"], later, put(0, Q))
    segment = store.create_segment(b"t", later + 2)
    assert segment.last_put(P) is None
    assert segment.last_put(Q) is not None
    with pytest.raises(SequenceGap):
        segment.append([b"?"], later, put(1))


def test_of_too_many_producers_those_that_put_last_are_told(store):
    segment = store.create_segment(b"t", NOW)
    names = [b"%016d" % number for number in range(PRODUCERS_COUNT_MAX + 2)]
    for name in names:
        segment.append([b"a"], NOW, put(0, name))
    segment.append([b"b"], NOW, put(1, names[0]))
    segment = store.create_segment(b"t", NOW)
    unknown = [name for name in names if segment.last_put(name) is None]
    assert unknown == names[1:3]


def test_where_nobody_is_known_any_more_a_new_segment_has_no_receipts(tmp_path, store):
    segment = store.create_segment(b"t", NOW)
    segment.append([b"a"], NOW, put(0))
    segment = store.create_segment(b"t", NOW + 2 * PRODUCER_IDLE_MAX_US)
    assert segment.receipts is None
    segment.append([b"b"], NOW, put(0))
    assert last_of(segment).sequence == 0


def test_a_repaired_segment_knows_its_puts(store):
    first = store.create_segment(b"t", NOW)
    first.append([b"a"], NOW, put(0))
    second = store.create_segment(b"t", NOW)
    second.append([b"b"], NOW, put(1))
    repaired = store.repair_segment(b"t", second)
    repaired.unseal()
    assert last_of(repaired).sequence == 1
    assert repaired.append([b"a"], NOW, put(0)) == NOW


def test_a_segment_without_receipts_of_its_own_makes_them_when_it_is_written_to(tmp_path, store):
    """A kill in the midst of a rotation leaves one; the segment before it may expire then."""
    store.create_segment(b"t", NOW).append([b"a"], NOW, put(0))
    timestamp = store.create_segment(b"t", NOW).timestamp
    store.close()
    (tmp_path / f"{FOLDER}/{timestamp}_seq").unlink()
    store = Store.open(tmp_path)
    older, newest = store.topics[b"t"]
    assert last_of(newest).sequence == 0
    newest.unseal()
    store.destroy_segment(b"t", older)
    store.close()
    [segment] = Store.open(tmp_path).topics[b"t"]
    assert last_of(segment).sequence == 0


# ---- damage -------------------------------------------------------------------------------------


def damaged(base, offset):
    content = bytearray(path_of(base, "seq").read_bytes())
    content[offset] ^= 1
    path_of(base, "seq").write_bytes(content)


def test_a_flipped_bit_or_a_cut_of_the_receipts_is_found(tmp_path, layer):
    filled(layer).close()
    path = path_of(tmp_path, "seq")
    whole = path.read_bytes()
    [check] = check_segments(layer)
    assert not check.damage
    cuts = [whole[:size] for size in some_of(len(whole))]
    flips = [
        whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :]
        for bit in some_of(8 * len(whole))
    ]
    for content in (*cuts, *flips, whole + bytes(64)):
        path.write_bytes(content)
        [check] = check_segments(layer)
        assert check.damage
        assert not check.notes


@pytest.mark.parametrize("offset", [0, ENTRY + 3, ENTRY + 100, -1])
def test_damaged_receipts_are_told_by_the_scrubber_and_repaired(tmp_path, layer, offset):
    filled(layer).close()
    assert list(scrub(layer, f"{FOLDER}/{NOW}"))
    damaged(tmp_path, offset)
    with pytest.raises(StorageError, match="_seq"):
        list(scrub(layer, f"{FOLDER}/{NOW}"))
    list(repair_segments(files_at(tmp_path)))
    [check] = check_segments(layer)
    assert not check.damage
    segment = reopen(layer)
    assert len(texts(segment)) == 7
    assert segment.last_put(P) is not None


def test_a_damaged_receipt_costs_its_own_put_only(tmp_path, layer, caplog):
    segment = filled(layer)
    pointer = last_of(segment).pointer
    segment.close()
    damaged(tmp_path, ENTRY + RECEIPTS.size_bytes)
    segment = reopen(layer)
    segment.unseal()
    with caplog.at_level(logging.ERROR), pytest.raises(RepeatedPut):
        segment.append([b"1", b"x"], NOW, put(1))
    assert f"_seq is damaged at offset {ENTRY + RECEIPTS.size_bytes}" in caplog.text
    assert segment.append([b"2", b"x"], NOW, put(2)) == pointer
    segment.append([b"3"], NOW, put(3))


@pytest.mark.parametrize("boot_id", [None, "another boot"])
def test_a_damaged_receipt_found_by_recovery_is_told_and_cuts_nothing_that_was_synced(
    tmp_path, layer, boot_id
):
    segment = filled(layer, ack="fsync")
    for number in (3, 4):
        segment.sync()
        segment.append([b"%d" % number], NOW, put(number))
    segment.sync()
    stored = texts(segment)
    del segment
    damaged(tmp_path, ENTRY + RECEIPTS.size_bytes)
    segment = reopen(FaultyFiles(layer, boot_id=boot_id), recovery="strict")
    assert texts(segment) == stored
    assert segment.damage == ("1 receipts of puts are damaged",)
    assert last_of(segment).sequence == 4
    with pytest.raises(TopicDamaged):
        segment.unseal()
    [check] = check_segments(layer)
    assert not check.damage


def test_damaged_receipts_at_the_end_of_what_was_synced_are_told(tmp_path, layer):
    segment = filled(layer, ack="fsync")
    segment.sync()
    segment.append([b"3"], NOW, put(3))
    segment.sync()
    stored = texts(segment)
    del segment
    damaged(tmp_path, ENTRY + 2 * RECEIPTS.size_bytes)
    damaged(tmp_path, ENTRY + 3 * RECEIPTS.size_bytes)
    segment = reopen(FaultyFiles(layer, boot_id="another boot"))
    assert texts(segment) == stored[:-1]
    assert segment.damage == ("2 receipts of puts are damaged",)


def test_receipts_that_are_gone_are_told_and_the_topic_goes_on(tmp_path, layer, caplog):
    """Nothing but the file tells that it should be there: it looks like a topic that had none."""
    filled(layer).close()
    path_of(tmp_path, "seq").unlink()
    segment = reopen(layer)
    segment.unseal()
    assert segment.last_put(P) is None
    segment.append([b"a"], NOW, put(0))
    assert len(texts(segment)) == 8


# ---- others -------------------------------------------------------------------------------------


@pytest.mark.parametrize("boot_id", [None, "another boot"])
def test_what_others_append_behind_receipts_is_taken_in_and_survives_a_power_cut(
    tmp_path, layer, boot_id
):
    """The original, and versions before receipts, leave the file alone."""
    filled(layer).close()
    held = path_of(tmp_path, "seq").rename(tmp_path / "held")
    segment = reopen(layer)
    segment.unseal()
    segment.append([b"of another version"], NOW)
    segment.close()
    held.rename(path_of(tmp_path, "seq"))
    segment = reopen(layer)
    segment.unseal()
    stored = texts(segment)
    assert stored[-1] == b"of another version"
    segment.append([b"not synced"], NOW)
    segment.flush()
    del segment
    segment = reopen(FaultyFiles(layer, boot_id=boot_id))
    assert texts(segment)[: len(stored)] == stored
    assert last_of(segment).sequence == 2
    segment.unseal()
    segment.append([b"3"], NOW, put(3))
    assert texts(segment)[-1] == b"3"


@pytest.mark.parametrize("torn", ["none", "one", "all"])
def test_receipts_of_which_a_power_cut_took_the_data_are_not_cut_off_before_what_is_left(
    tmp_path, torn
):
    """The first one says that what was put plainly before it, and is not left whole, has none."""
    layer = FaultyFiles(files_at(tmp_path), boot_id="one")
    segment = create(layer)
    segment.append([b"synced"], NOW)
    segment.close()
    segment = reopen(layer)
    segment.unseal()
    segment.append([b"plain"], NOW)
    for number in range(3):
        segment.append([b"numbered"], NOW, put(number))
    del segment
    if torn == "one":
        damaged(tmp_path, ENTRY + 2 * RECEIPTS.size_bytes)
    elif torn == "all":
        content = path_of(tmp_path, "seq").read_bytes()
        begin = ENTRY + RECEIPTS.size_bytes
        path_of(tmp_path, "seq").write_bytes(content[:begin] + bytes(len(content) - begin))
    with path_of(tmp_path, "data").open("r+b") as data:
        data.truncate(17)
    layer.boot_id = "two"
    segment = reopen(layer)
    assert texts(segment) == [b"synced"]
    assert segment.damage == ()
    [check] = check_segments(layer)
    assert check.damage == []


def test_what_was_covered_and_then_given_up_vouches_for_nothing_that_comes_later(tmp_path, layer):
    """The first receipts were made behind data whose sync then failed."""
    segment = unsynced(layer, "made meanwhile", b"doubtful" * 100)
    segment.begin_cut("I/O error")()
    del segment
    segment = reopen(layer)
    segment.unseal()
    segment.append([b"again"], NOW, put(0))
    segment.flush()
    del segment
    content = path_of(tmp_path, "seq").read_bytes()
    path_of(tmp_path, "seq").write_bytes(content[: -RECEIPTS.size_bytes])
    segment = reopen(FaultyFiles(layer, boot_id="another boot"))
    assert texts(segment) == [b"0"]
    assert segment.last_put(P) is None


def test_receipts_that_are_made_anew_while_a_segment_is_written_to_go_on_where_they_end(
    tmp_path, layer
):
    """A read that finds the index damaged has the segment recovered, and the receipts with it."""
    filled(layer).close()
    damaged(tmp_path, ENTRY + RECEIPTS.size_bytes)
    index = bytearray(path_of(tmp_path, "index").read_bytes())
    index[3 * 12 + 3] ^= 1
    path_of(tmp_path, "index").write_bytes(index)
    segment = reopen(layer)
    segment.unseal()
    assert last_of(segment).sequence == 2
    assert len(texts(segment)) == 7
    pointers = [segment.append([b"3"], NOW, put(3)), segment.append([b"4"], NOW, put(4))]
    del segment
    segment = reopen(layer)
    assert not segment.damage
    segment.unseal()
    assert [segment.append([b"?"], NOW, put(number)) for number in (3, 4)] == pointers
