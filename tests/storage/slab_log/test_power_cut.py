"""What was synced survives a power cut, played through on a folder that forgets all else."""

import random
from pathlib import Path

import pytest

from poe.storage import RealFiles
from poe.storage.slab_log import Writer
from tests.storage.faulty_files import FaultyFile, FaultyFiles
from tests.storage.slab_log.logs import messages, read_all, read_past_damage


class ForgetfulFiles(FaultyFiles):
    """Remembers what was synced; `cut_power` leaves nothing else, or a random part of it."""

    def __init__(self, folder: Path, forgotten=""):
        super().__init__(RealFiles.at(folder))
        self.folder = folder
        self.forgotten = forgotten
        """Syncs of files with such names do nothing; "names" for those of the folder."""
        self.names: set[str] = set()
        self.contents: dict[str, bytes] = {}

    def open(self, path, mode):
        return ForgetfulFile(self, self.real.open(path, mode), path)

    def sync_folder(self, path):
        if self.forgotten != "names":
            self.names = {each.name for each in self.folder.iterdir()}

    def cut_power(self, rng=None):
        for path in self.folder.iterdir():
            kept = self.contents.get(path.name, b"")
            written = path.read_bytes()
            if rng is not None and rng.random() < 0.7:
                # The kernel had written some of what was not synced.
                kept = written[: rng.randint(len(kept), max(len(kept), len(written)))]
            elif path.name not in self.names:
                path.unlink()
                continue
            path.write_bytes(kept)


class ForgetfulFile(FaultyFile):
    def __init__(self, layer: ForgetfulFiles, file, path):
        super().__init__(layer, file)
        self.forgetful = layer
        self.path = path

    def sync(self):
        if not self.forgetful.forgotten or not self.path.endswith(self.forgetful.forgotten):
            self.forgetful.contents[self.path] = self.file.read_at(self.file.size(), 0)


def spool(layer):
    """Write with a sync per batch, and some more without one."""
    writer = Writer(layer, 100, fsync=True)
    for first in range(0, 40, 4):
        writer.write_many(messages(4, first))
        writer.flush()
    writer.write_many(messages(4, 40))


def test_a_power_cut_loses_nothing_that_was_synced(tmp_path):
    layer = ForgetfulFiles(tmp_path)
    spool(layer)
    layer.cut_power()
    assert read_all(tmp_path) == messages(40)
    spool(layer)
    assert read_all(tmp_path)[:40] == messages(40)


def test_sync_is_as_good_as_fsync_at_each_flush(tmp_path):
    layer = ForgetfulFiles(tmp_path)
    with Writer(layer, 100) as writer:
        writer.write_many(messages(40))
        writer.sync()
        writer.write_many(messages(9, 40))
    layer.cut_power()
    assert read_all(tmp_path) == messages(40)


@pytest.mark.parametrize("forgotten", [".slab", "names"])
def test_without_one_of_the_syncs_messages_are_lost(tmp_path, forgotten):
    layer = ForgetfulFiles(tmp_path, forgotten)
    spool(layer)
    layer.cut_power()
    found = read_past_damage(tmp_path)[0] if list(tmp_path.glob("*.slab")) else []
    assert len(found) < 40


@pytest.mark.slow
def test_whatever_part_reached_the_disk_what_was_synced_is_read_and_writing_goes_on(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for number in range(60):
        path = tmp_path / f"{number}"
        layer = ForgetfulFiles(path)
        writer = Writer(layer, 100)
        writer.write_many(messages(20))
        writer.sync()
        for first in range(20, 40, 5):
            writer.write_many(messages(5, first))
            writer.flush()
        del writer
        layer.cut_power(rng)
        assert read_past_damage(path)[0][:20] == messages(20)
        with Writer(path) as writer:
            writer.write(b"new")
        found, _ = read_past_damage(path)
        assert found[:20] == messages(20)
        assert found[-1] == b"new"
        assert [each for each in messages(40) if each in found] == found[:-1]
