"""A reader gives every record once, in order, from any address, also while the log grows."""

import logging
import os

import pytest

from poe.errors import OptionError
from poe.storage import RealFiles
from poe.storage.slab_log import (
    CorruptRecord,
    CorruptSlabRecord,
    EndOfLog,
    OutOfBounds,
    Reader,
    Writer,
    expire,
)
from poe.storage.slab_log.slab_writer import SlabWriter
from tests.storage.slab_log.logs import (
    flip,
    messages,
    read_all,
    read_past_damage,
    record,
    slab_of,
    slabs_in,
    sum_of,
    write_foreign,
    write_log,
)


def test_every_address_leads_to_its_message(tmp_path):
    batch = messages(200)
    addresses = write_log(tmp_path, [batch[:3], batch[3:90], batch[90:]], slab_size_hint=500)
    for number, address in enumerate(addresses[:-1]):
        reader = Reader(tmp_path, address)
        assert (reader.address, reader.read()) == (address, batch[number])
        assert reader.address == addresses[number + 1]
    assert read_all(tmp_path, addresses[77]) == batch[77:]


def test_seek_goes_back_and_forth(tmp_path):
    batch = messages(100)
    addresses = write_log(tmp_path, [batch], slab_size_hint=300)
    reader = Reader(tmp_path)
    for number in (99, 0, 50, 49, 99, 1):
        reader.seek(addresses[number])
        assert reader.read() == batch[number]
    reader.seek(None)
    assert reader.read() == batch[0]


def test_an_iteration_goes_on_where_its_reader_was_sent_meanwhile(tmp_path):
    batch = messages(10)
    addresses = write_log(tmp_path, [batch])
    reader, found = Reader(tmp_path), []
    for message in reader:
        number = batch.index(message)
        assert reader.address == addresses[number + 1]
        found.append(number)
        if len(found) in {3, 5}:
            reader.seek(addresses[7] if len(found) == 3 else None)
    assert found == [0, 1, 2, 7, 8, *range(10)]


@pytest.mark.parametrize("is_foreign", [False, True])
def test_an_address_within_a_record_is_an_error_with_a_way_on(tmp_path, is_foreign):
    batch = [b"message %d" % number for number in range(9)]
    if is_foreign:
        write_foreign(tmp_path, batch)
    else:
        write_log(tmp_path, [batch])
    size = len(record(batch[0]))
    for address in range(1, 8 * size):
        reader = Reader(tmp_path, address)
        if address % size == 0:
            assert reader.read() == batch[address // size]
            continue
        with pytest.raises(CorruptSlabRecord) as caught:
            reader.read()
        assert caught.value.next_address == (address // size + 1) * size
        assert reader.address == address


def test_addresses_outside_the_log_are_out_of_bounds(tmp_path):
    end = write_log(tmp_path, [messages(50)], slab_size_hint=100)[-1]
    assert list(Reader(tmp_path, end)) == []
    with pytest.raises(OutOfBounds) as caught:
        Reader(tmp_path, end + 1)
    assert (caught.value.lowest, caught.value.highest) == (0, end)
    lowest = expire(tmp_path, bytes_max=0)
    with pytest.raises(OutOfBounds, match=f"use {lowest} to {end}") as caught:
        Reader(tmp_path, 0)
    assert (caught.value.lowest, caught.value.highest) == (lowest, end)


def test_a_failed_seek_leaves_the_reader_where_it_was(tmp_path):
    addresses = write_log(tmp_path, [messages(5)])
    reader = Reader(tmp_path, addresses[2])
    with pytest.raises(OutOfBounds):
        reader.seek(10_000)
    assert reader.read() == messages(5)[2]


def test_the_end_of_the_log_is_an_error_of_read_and_nothing_else_of_the_others(tmp_path):
    write_log(tmp_path, [])
    reader = Reader(tmp_path)
    for _ in range(2):
        with pytest.raises(EndOfLog, match="read again later"):
            reader.read()
        assert reader.read_many() == []
        assert list(reader) == []


def test_a_reader_follows_a_writer_through_slabs(tmp_path):
    with Writer(tmp_path, slab_size_hint=100) as writer:
        readers = [Reader(tmp_path) for _ in range(3)]
        for each in messages(100):
            for reader in readers:
                with pytest.raises(EndOfLog):
                    reader.read()
            address = writer.write(each)
            writer.flush()
            assert readers[0].read() == each
            assert readers[1].read_many() == list(readers[2]) == [each]
            assert {reader.address for reader in readers} == {writer.address} != {address}


def test_read_many_gives_no_more_than_the_limit(tmp_path):
    write_log(tmp_path, [messages(10)])
    reader = Reader(tmp_path)
    assert reader.read_many(0) == []
    assert reader.read_many(4) == messages(4)
    assert reader.read() == messages(5)[4]
    assert reader.read_many() == messages(5, 5)


def test_a_message_larger_than_a_window_is_read(tmp_path):
    batch = [b"small", b"x" * 1_000_000, b"small again"]
    write_log(tmp_path, [batch])
    assert read_all(tmp_path) == batch
    sum_of(tmp_path).unlink()
    assert read_all(tmp_path) == batch


def test_a_slab_of_the_original_is_read(tmp_path):
    batch = messages(300)
    write_foreign(tmp_path, batch[:200])
    write_foreign(tmp_path, batch[200:], start=slab_of(tmp_path).stat().st_size)
    assert read_all(tmp_path) == batch


def test_what_the_original_adds_to_a_closed_log_is_read(tmp_path):
    write_log(tmp_path, [messages(5)])
    with slab_of(tmp_path).open("ab") as slab:
        slab.write(b"".join(map(record, messages(5, 5))) + b"\x09\0\0\0half")
    assert read_all(tmp_path) == messages(10)
    write_log(tmp_path, [messages(5, 10)])
    assert read_all(tmp_path) == messages(15)


def test_the_growing_slab_of_a_live_original_is_followed_byte_by_byte(tmp_path):
    batch = messages(12)
    write_foreign(tmp_path, [])
    reader = Reader(tmp_path)
    found = []
    with slab_of(tmp_path).open("ab", buffering=0) as slab:
        for byte in b"".join(map(record, batch)):
            slab.write(bytes([byte]))
            found += list(reader)
    assert found == batch


def test_a_missing_slab_is_an_error_that_names_the_next_one(tmp_path):
    write_log(tmp_path, [messages(50)], slab_size_hint=100)
    slabs = slabs_in(tmp_path)
    slab_of(tmp_path, slabs[2]).unlink()
    reader = Reader(tmp_path)
    with pytest.raises(CorruptRecord, match="go on") as caught:
        list(reader)
    assert (caught.value.address, caught.value.next_address) == (slabs[2], slabs[3])  # type: ignore[attr-defined]


def test_a_reader_of_removed_slabs_is_told_the_lowest_address(tmp_path):
    write_log(tmp_path, [messages(50)], slab_size_hint=100)
    reader = Reader(tmp_path)
    lowest = expire(tmp_path, bytes_max=0)
    # The slab that is open is read to its end.
    with pytest.raises(OutOfBounds) as caught:
        list(reader)
    assert reader.address == caught.value.address > 100
    reader.seek(caught.value.lowest)
    assert reader.address == lowest
    assert list(reader) == messages(50)[-len(list(Reader(tmp_path))) :]


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_a_log_is_an_error_and_stays_as_it_is(tmp_path, name):
    (tmp_path / "empty").mkdir()
    for open_ in (Reader, expire):
        with pytest.raises(OptionError, match="a Writer makes one"):
            open_(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_what_only_looks_like_a_slab_is_ignored_with_a_warning(tmp_path, caplog):
    write_log(tmp_path, [messages(3)])
    for name in ("x.slab", f"{5:019}.slab", f"{'9' * 20}.slab", f"{5:020}.slabs", "[*?.slab"):
        (tmp_path / name).write_bytes(b"stray")
    (tmp_path / f"{7:020}.slab").mkdir()
    with caplog.at_level(logging.WARNING):
        assert list(Reader(tmp_path)) == messages(3)
    assert "'x.slab'" in caplog.text
    assert "'[*?.slab'" in caplog.text
    assert len(caplog.records) == 5
    write_log(tmp_path, [messages(3, 3)])
    assert read_all(tmp_path) == messages(6)


def test_any_path_will_do(tmp_path):
    folder = tmp_path / "[a-]*?{} \n\u00e9"
    write_log(str(folder), [messages(3)])
    assert read_all(folder) == messages(3)


@pytest.mark.parametrize("use", [Writer, Reader, expire])
def test_an_empty_path_does_not_mean_the_current_folder(tmp_path, monkeypatch, use):
    """Such is the path that a script takes from a variable that is empty by mistake."""
    write_log(tmp_path, [messages(3)])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="option 'path' is ''; use the folder of a slab log"):
        use("")


def test_a_damaged_length_does_not_make_the_reader_allocate_it(tmp_path):
    write_foreign(tmp_path, messages(9))
    flip(slab_of(tmp_path), 3, 0x7F)
    lengths = []

    class MeasuredFile:
        def __init__(self, file):
            self.file = file
            self.size = file.size

        def read_at(self, length, offset):
            lengths.append(length)
            return self.file.read_at(length, offset)

    class MeasuredFiles(RealFiles):
        def open(self, path, mode):
            return MeasuredFile(super().open(path, mode))

    with pytest.raises(CorruptSlabRecord) as caught:
        Reader(MeasuredFiles.at(tmp_path)).read()
    assert caught.value.next_address == len(record(messages(1)[0]))
    assert max(lengths) <= slab_of(tmp_path).stat().st_size


def test_a_message_above_the_limit_in_a_foreign_slab_is_damage(tmp_path):
    write_foreign(tmp_path, [b"short", b"x" * 100, b"short"])
    reader = Reader(tmp_path, message_max=99)
    assert reader.read() == b"short"
    assert list(Reader(tmp_path, message_max=100))[1] == b"x" * 100


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("is_next_empty", [True, False])
def test_what_an_earlier_life_left_beyond_the_next_slab_is_not_read(
    tmp_path, is_cut, is_next_empty
):
    """Before a power cut this slab had gone further than in the life that began the next one."""
    addresses = write_log(tmp_path, [messages(4), messages(4, 4)])
    next_start = addresses[6]
    if is_cut:
        os.truncate(slab_of(tmp_path), addresses[5])
    slab = SlabWriter.create(RealFiles.at(tmp_path), next_start)
    if not is_next_empty:
        slab.append(record(b"next"), next_start, 1)
    found, damages = read_past_damage(tmp_path)
    assert found == messages(5 if is_cut else 6) + ([] if is_next_empty else [b"next"])
    assert damages == ([(addresses[5], next_start)] if is_cut else [])
    # The middle of a record that this slab no longer has.
    with pytest.raises(CorruptSlabRecord) as told:
        Reader(tmp_path, addresses[5] + 1).read()
    assert told.value.next_address == next_start


def test_a_reader_learns_where_the_slab_ends_that_it_has_open(tmp_path):
    addresses = write_log(tmp_path, [messages(4), messages(4, 4)])
    reader = Reader(tmp_path)
    assert reader.read_many() == messages(8)
    reader.seek(addresses[4])
    next_start = addresses[6]
    slab = SlabWriter.create(RealFiles.at(tmp_path), next_start)
    slab.append(record(b"next"), next_start, 1)
    reader.seek(addresses[4])
    assert list(reader) == [*messages(2, 4), b"next"]
