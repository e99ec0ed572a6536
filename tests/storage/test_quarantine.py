"""What recovery takes out of service is kept, once, and not without bound."""

import errno
import random

import pytest

from poe.storage.recovery import quarantine
from poe.storage.recovery.quarantine import keep_bytes, keep_file
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import names_in
from torture.layers.simulated_disk import SimulatedDisk

PATH = "topics/t/5"


def data_of(files, content):
    file = files.open(PATH + "_data", "w+")
    file.write_at(content, 0)
    return file


def test_the_bytes_are_kept_once_however_often_recovery_began(tmp_path, files):
    data = data_of(files, b"keepTHESE")
    for _ in range(3):
        keep_bytes(files, PATH, data, 4, 9)
    [name] = names_in(tmp_path / "quarantine")
    assert name.startswith("5_4_")
    assert name.endswith("_t")
    assert (tmp_path / "quarantine" / name).read_bytes() == b"THESE"


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_what_is_kept_is_durable_before_it_is_cut_off(files, operation):
    layer = FaultyFiles(files)
    data = data_of(layer, b"keepTHESE")
    layer.fail(0, errno.EIO, operation)
    with pytest.raises(OSError, match="Input/output error"):
        keep_bytes(layer, PATH, data, 4, 9)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_bytes_that_are_kept_survive_a_power_cut_with_their_folder(seed):
    disk = SimulatedDisk()
    files = disk.files()
    for folder in ("topics", "topics/t"):
        files.make_folder(folder)
    keep_bytes(files, PATH, data_of(files, b"keepTHESE"), 4, 9)
    disk.cut_power(random.Random(seed))
    [kept] = [each for path, each in disk.memory.inodes.items() if path.startswith("quarantine/")]
    assert bytes(kept.content) == b"THESE"


def test_zeros_are_not_kept(tmp_path, files):
    keep_bytes(files, PATH, data_of(files, bytes(3 << 20)), 0, 3 << 20)
    assert not (tmp_path / "quarantine").exists()


def test_a_tail_without_end_is_not_read_to_its_end(tmp_path, files, monkeypatch):
    monkeypatch.setattr(quarantine, "_BYTES_MAX", 100)
    data = data_of(files, b"x")
    data.truncate(1 << 43)  # to read it would take an hour
    keep_bytes(files, PATH, data, 0, 1 << 43)
    [name] = names_in(tmp_path / "quarantine")
    assert (tmp_path / "quarantine" / name).read_bytes() == b"x" + bytes(99)


def test_a_file_is_moved_and_one_that_is_missing_is_fine(tmp_path, files):
    files.open(PATH + "_index", "w+").write_at(b"index", 0)
    keep_file(files, PATH, "_index")
    keep_file(files, PATH, "_sum")
    assert names_in(tmp_path / "quarantine") == ["5_index_t"]
    assert names_in(tmp_path / "topics/t") == []


def test_what_is_of_the_oldest_segments_makes_room(tmp_path, files, monkeypatch):
    monkeypatch.setattr(quarantine, "_BYTES_MAX", 100)
    for timestamp in (7, 100, 30):
        path = f"topics/t/{timestamp}"
        files.open(path + "_data", "w+").write_at(b"x" * 40, 0)
        keep_bytes(files, path, files.open(path + "_data", "r"), 0, 40)
    kept = sorted(int(name.partition("_")[0]) for name in names_in(tmp_path / "quarantine"))
    assert kept == [30, 100]
    large = data_of(files, b"y" * 500)
    keep_bytes(files, PATH, large, 0, 500)
    [name] = names_in(tmp_path / "quarantine")
    assert (tmp_path / "quarantine" / name).stat().st_size == 100


def test_what_could_not_be_kept_as_a_whole_takes_no_room(tmp_path, files):
    layer = FaultyFiles(files)
    data = data_of(layer, b"keep" + b"THESE" * 100)
    layer.fail(0, errno.ENOSPC, "write_at")
    with pytest.raises(OSError, match="No space left"):
        keep_bytes(layer, PATH, data, 4, 504)
    assert names_in(tmp_path / "quarantine") == []
