"""A spool gives out what was put into it, in order, once, over restarts."""

import errno
import logging
import os
import struct
import subprocess
import sys

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from xxhash import xxh3_64_digest

from poe.client.producer.payload import Message
from poe.client.producer.transport import OutgoingBatch
from poe.client.spool.spool import Spool, SpooledBatch
from poe.errors import FormatNotSupported, OptionError, SegmentLocked
from poe.protocol import PutId
from poe.storage import RealFiles
from poe.storage.slab_log import Writer
from tests.client.spools import (
    LIVE,
    batch_of,
    batches,
    empty,
    fill,
    live,
    messages_in,
    messages_of,
    sequence_of,
    take,
    take_all,
)
from tests.python_process import environment
from tests.storage.faulty_files import FaultyFiles


def test_batches_come_out_as_they_went_in(tmp_path):
    plain = batch_of(1, topic=b"plain", partition=3)
    keyed = OutgoingBatch(
        b"keyed", 0, [Message(b"v", b"k", {"h": b"1"}), Message(None, b"k"), Message(b"")], None, 2
    )
    with Spool(tmp_path) as spool:
        for batch in (plain, keyed):
            spool.append(batch)
        found = take_all(spool)
        assert [each.batch._replace(put_id=None) for each in found] == [plain, keyed]
        assert type(found[1].batch.messages[0]) is Message


def test_what_is_not_done_with_comes_again_in_another_life_with_the_same_numbers(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 5)
        spool.append(live(7))
        before = take_all(spool)
        spool.done(before[0])
    with Spool(tmp_path) as spool:
        assert spool.count == 10
        assert take_all(spool) == before[1:]


def test_numbers_of_a_spool_are_epochs_and_those_that_batches_have_are_kept(tmp_path):
    with Spool(tmp_path) as spool:
        for batch in (batch_of(0), live(3), live(4), batch_of(1)):
            spool.append(batch)
        numbers = [each.batch.put_id for each in take_all(spool)]
        assert numbers == [
            PutId(spool.producer, 1, 0),
            PutId(LIVE, 0, 3),
            PutId(LIVE, 0, 4),
            PutId(spool.producer, 2, 0),
        ]
        assert len(spool.producer) == 16


def test_before_its_epochs_run_out_a_spool_begins_to_count_anew(tmp_path):
    with Spool(tmp_path) as spool:
        spool._epoch = 2**32 - 2  # noqa: SLF001 - nobody can wait for it
        fill(spool, 3)
        put_ids = [each.batch.put_id for each in take_all(spool)]
    assert [put_id.epoch for put_id in put_ids] == [2**32 - 1, 1, 2]
    assert len({put_id.producer for put_id in put_ids}) == 2


def test_two_lives_number_as_different_producers(tmp_path):
    with Spool(tmp_path) as spool:
        first = spool.producer
    with Spool(tmp_path) as spool:
        assert spool.producer != first


def test_batches_of_several_lives_keep_their_order(tmp_path):
    for life in range(4):
        with Spool(tmp_path) as spool:
            fill(spool, 3, life * 3)
    with Spool(tmp_path) as spool:
        assert empty(spool) == messages_in(batches(12))


def test_batches_may_be_done_with_in_any_order(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 5)
        taken = take_all(spool)
        for number in (3, 1, 0):
            spool.done(taken[number])
        spool.done(taken[1])  # told twice
        assert spool.count == 4
        spool.rewind()
        assert take_all(spool) == [taken[2], taken[4]]
        spool.done(taken[4])
        spool.done(taken[2])
        assert (spool.count, spool.size, spool.is_empty) == (0, 0, True)


def test_what_was_under_way_before_a_rewind_may_be_told_done_after_it(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 3)
        taken = take_all(spool)
        spool.rewind()
        spool.done(taken[0])
        spool.done(taken[1])
        assert take_all(spool) == taken[2:]
        spool.done(taken[2])
        assert spool.is_empty


def test_what_is_done_with_does_not_come_again_once_all_before_it_is_done_with(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 3)
        first, second = take(spool), take(spool)
        spool.done(second)
        spool.rewind()
        spool.done(take(spool))
    assert first.address < second.address
    with Spool(tmp_path) as spool:
        assert messages_of(take_all(spool)) == batch_of(2).messages


def test_batches_that_come_while_others_are_sent_come_behind_them(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 2)
        first = take(spool)
        fill(spool, 2, 2)
        spool.done(first)
        assert empty(spool) == messages_in(batches(4))[2:]
        fill(spool, 1, 9)
        assert empty(spool) == messages_in(batches(1, 9))


def test_slabs_that_are_done_with_are_removed(tmp_path):
    with Spool(tmp_path, bytes_max=8000) as spool:
        for first in range(0, 1000, 50):
            fill(spool, 50, first)
            assert len(empty(spool)) == 100
            assert len(list(tmp_path.glob("*.slab"))) <= 3
    assert len(list(tmp_path.glob("*.slab"))) == 1


def test_count_and_size_tell_what_is_left(tmp_path):
    with Spool(tmp_path) as spool:
        assert (spool.count, spool.size, spool.is_empty) == (0, 0, True)
        fill(spool, 3)
        size = spool.size
        assert (spool.count, spool.is_empty) == (6, False)
        assert size > sum(batch.size for batch in batches(3))
        spool.done(take(spool))
        assert spool.count == 4
        assert 0 < spool.size < size


# ---- bounds -------------------------------------------------------------------------------------


def test_a_full_spool_drops_the_oldest(tmp_path):
    with Spool(tmp_path, bytes_max=1000) as spool:
        dropped: list[SpooledBatch] = []
        for batch in batches(100):
            appended = spool.append(batch)
            dropped += appended.dropped
            assert spool.size <= 1000
        left = take_all(spool)
        assert messages_of(dropped + left) == messages_in(batches(100))
        assert len(left) > 5
        assert spool.count == len(messages_of(left))
    with Spool(tmp_path, bytes_max=1000) as spool:
        assert take_all(spool) == left


def test_a_full_spool_drops_the_newest_by_choice(tmp_path):
    with Spool(tmp_path, bytes_max=1000, drop="newest") as spool:
        addresses = fill(spool, 100)
        left = take_all(spool)
        assert [address for address in addresses if address is not None] == [
            each.address for each in left
        ]
        assert messages_of(left) == messages_in(batches(len(left)))
        assert 5 < len(left) < 100
        spool.done(left[0])
        assert spool.append(batch_of(1)).address is not None


def test_what_is_being_sent_is_not_dropped_for_what_comes(tmp_path):
    with Spool(tmp_path, bytes_max=1000) as spool:
        fill(spool, 50)
        first = take(spool)
        assert spool.append(batch_of(50)) == (None, [])
        assert spool.count == 2 * len([first, *take_all(spool)])
        spool.rewind()
        assert spool.append(batch_of(51)).dropped[0] == first


def test_a_batch_larger_than_the_spool_is_dropped_and_nothing_for_it(tmp_path):
    with Spool(tmp_path, bytes_max=1000) as spool:
        fill(spool, 3)
        assert spool.append(batch_of(9, count=1000)) == (None, [])
        assert empty(spool) == messages_in(batches(3))


def test_batches_that_may_have_been_sent_in_one_epoch_are_dropped_together(tmp_path):
    """The rest of them would be refused as a gap in their sequence."""
    with Spool(tmp_path, bytes_max=1000) as spool:
        for sequence in range(5, 9):
            spool.append(live(sequence))
        dropped: list[SpooledBatch] = []
        while not dropped:
            dropped = spool.append(batch_of(0)).dropped
        assert [sequence_of(each) for each in dropped] == [5, 6, 7, 8]
        assert spool.append(live(9)) == (None, [])
        assert spool.append(live(0, epoch=1)).address is not None
        assert all(each.batch.put_id[:2] != (LIVE, 0) for each in take_all(spool))


def test_of_one_epoch_nothing_comes_behind_what_was_dropped_as_the_newest(tmp_path):
    with Spool(tmp_path, bytes_max=1000, drop="newest") as spool:
        spool.append(live(0))
        assert spool.append(live(1, count=200)).address is None
        assert spool.append(live(2)).address is None
        assert spool.append(batch_of(3)).address is not None


# ---- folders ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_process_is_refused_and_told_by_whom(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 1)
        code = "import sys; from poe.client.spool.spool import Spool; Spool(sys.argv[1])"
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"the writer with pid {os.getpid()}; stop it, or use another spool_dir" in (
            second.stderr
        )
        with pytest.raises(SegmentLocked):
            Spool(tmp_path)
        assert empty(spool) == messages_in(batches(1))


def listing(path):
    return {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000.slab", "orders"])
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path, name):
    if name == "orders":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(b"content")
    before = listing(tmp_path)
    with pytest.raises(OptionError, match=f"spool_dir.*an empty folder.*{name}"):
        Spool(tmp_path)
    assert listing(tmp_path) == before


def test_what_a_new_disk_holds_is_nobody_s(tmp_path):
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".snapshot").mkdir()
    with Spool(tmp_path) as spool:
        fill(spool, 1)
    with Spool(tmp_path) as spool:
        assert empty(spool) == messages_in(batches(1))


def test_a_slab_log_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    with Writer(tmp_path) as writer:
        writer.write(b"theirs")
    before = listing(tmp_path)
    with pytest.raises(OptionError, match="empty folder, or that of a spool"):
        Spool(tmp_path)
    assert listing(tmp_path) == before


def test_a_spool_with_messages_that_are_no_batches_is_refused_and_keeps_them(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 1)
    with Writer(tmp_path) as writer:
        writer.write(b"theirs")
    for _ in range(2):
        with pytest.raises(FormatNotSupported, match="newer version"):
            Spool(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        (1, b"topic", 0, bytes(24), 1, []),
        (1, b"topic", 0, bytes(24), 1, {b"a": b"b"}),
        (1, b"topic", 0, bytes(24), 1, b"message"),
        (1, b"topic", 0, "x" * 24, 1, [b"message"]),
        (1, "topic", 0, bytes(24), 1, [b"message"]),
        (1, b"topic", 0, bytes(24), b"1", [b"message"]),
        (2, b"topic", 0, bytes(24), 1, [b"message"]),
        (1, b"topic", 0, bytes(24), 1),
    ],
    ids=lambda fields: repr(fields[1:])[-30:],
)
def test_a_batch_with_fields_that_are_not_ours_is_refused(tmp_path, fields):
    with Spool(tmp_path) as spool:
        fill(spool, 1)
    with Writer(tmp_path) as writer:
        writer.write(msgpack.packb(fields))
    with pytest.raises(FormatNotSupported, match="newer version"):
        Spool(tmp_path)


@pytest.mark.parametrize("path", ["", "file", "file/below"])
def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path, path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OptionError, match="spool_dir"):
        Spool(str(tmp_path / path) if path else path)


def test_a_folder_whose_lock_is_another_user_s_is_told_by_the_option_that_names_it(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    layer.fail(0, errno.EACCES, "lock")
    with pytest.raises(OptionError, match=r"option 'spool_dir' is .*Permission denied"):
        Spool(layer)


@pytest.mark.parametrize("options", [{"bytes_max": 0}, {"drop": "random"}])
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    with pytest.raises(OptionError, match="use"):
        Spool(tmp_path / "spool", **options)
    assert not (tmp_path / "spool").exists()


# ---- damage -------------------------------------------------------------------------------------


def test_damaged_batches_are_told_counted_and_skipped(tmp_path, caplog):
    with Spool(tmp_path) as spool:
        addresses = fill(spool, 9)
    slab = tmp_path / f"{0:020}.slab"
    data = bytearray(slab.read_bytes())
    for number in (2, 3, 8):
        data[addresses[number] + 12] ^= 0x55
    slab.write_bytes(data)
    with caplog.at_level(logging.ERROR), Spool(tmp_path) as spool:
        assert spool.damage.count == 3
        assert spool.count == 12
        good = [batch_of(number) for number in (0, 1, 4, 5, 6, 7)]
        assert empty(spool) == messages_in(good)
        assert (spool.damage.count, spool.count, spool.is_empty) == (3, 0, True)
        fill(spool, 1, 10)
        assert empty(spool) == messages_in(batches(1, 10))
    assert caplog.text.count("batches are lost") == 3


def test_a_slab_that_is_gone_is_told_and_the_rest_comes(tmp_path, caplog):
    with Spool(tmp_path, bytes_max=4000) as spool:
        fill(spool, 40)
    slabs = sorted(tmp_path.glob("*.slab"))
    assert len(slabs) > 3
    slabs[1].unlink()
    with caplog.at_level(logging.ERROR), Spool(tmp_path, bytes_max=4000) as spool:
        found = empty(spool)
        assert spool.damage.count == 1
        assert spool.is_empty
    whole = messages_in(batches(40))
    assert [message for message in whole if message in found] == found
    assert found[0] == whole[0]
    assert found[-1] == whole[-1]
    assert "batches are lost" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"\0" * 600, b"x" * 2000])
def test_a_mark_that_is_damaged_costs_a_repetition_and_no_batch(tmp_path, damage, caplog):
    with Spool(tmp_path) as spool:
        fill(spool, 5)
        spool.done(take(spool))
    (tmp_path / "spool.mark").write_bytes(damage)
    with caplog.at_level(logging.ERROR), Spool(tmp_path) as spool:
        assert empty(spool) == messages_in(batches(5))
    assert "may be so again" in caplog.text
    with Spool(tmp_path) as spool:
        assert spool.is_empty


def test_half_of_a_mark_is_as_good_as_the_one_before(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 9)
        for _ in range(5):
            spool.done(take(spool))
    mark = tmp_path / "spool.mark"
    content = mark.read_bytes()
    for slot, left in ((0, 5), (512, 4)):
        mark.write_bytes(content[: slot + 20] + b"\xff" * 20 + content[slot + 40 :])
        with Spool(tmp_path) as spool:
            assert len(take_all(spool)) in (left, 4, 5)
        mark.write_bytes(content)


def test_a_mark_of_a_newer_version_is_refused(tmp_path):
    Spool(tmp_path).close()
    content = struct.pack(">8sI4xQQ", b"poe-spol", 2, 5, 0)
    (tmp_path / "spool.mark").write_bytes(content + xxh3_64_digest(content))
    with pytest.raises(FormatNotSupported, match=r"version 2 of spool\.mark"):
        Spool(tmp_path)
