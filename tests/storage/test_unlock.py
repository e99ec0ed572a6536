"""Behind a lock whose owner is out of sight nothing starts, until somebody says that it is gone."""

import errno
import shutil

import pytest

from poe.errors import SegmentLocked
from poe.storage import (
    RealFiles,
    Store,
    check_segments,
    foreign_locks,
    stopped_store,
    unlock_segments,
)
from tests.storage.faulty_files import FaultyFiles
from tests.storage.other_sight import opened, run_in_container
from tests.storage.segments import NOW, names_in, read_all

MESSAGES = [b"a", b"b", b"c"]
KILLED = """
import os, signal, sys
from pathlib import Path
from poe.storage import Store
store = Store.open(Path(sys.argv[1]))
print(sorted(store.topics), sum(each.count for each in store.topics.get(b"t", [])))
if b"t" in store.topics:
    store.topics[b"t"][-1].unseal()
else:
    store.create_segment(b"t", 1)
store.topics[b"t"][-1].append([b"x"], 1)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


class OutOfSight(FaultyFiles):
    """A file layer of a container: it cannot tell who has a file open."""

    def is_open_elsewhere(self, path):
        return True if self.real.is_open_elsewhere(path) else None


@pytest.fixture
def left(tmp_path):
    """What a killed original leaves: a segment of ours, opened again, with a record and a lock."""
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append(MESSAGES, NOW)
    store.create_segment(b"u", NOW).append(MESSAGES, NOW)
    store.close()
    record = (7 + 5).to_bytes(4, "big") + (NOW + 100).to_bytes(7, "big") + b"later"
    with (tmp_path / f"topics/t/{NOW}_data").open("ab") as data:
        data.write(record)  # its index is not written yet
    (tmp_path / f"topics/t/{NOW}_lock").touch()
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in (folder / "topics").rglob("*") if path.is_file()}


def messages(store, topic=b"t"):
    return [message for segment in store.topics[topic] for _, message in read_all(segment)]


def test_a_start_is_refused_with_the_way_out_and_changes_nothing(left):
    before = contents(left)
    with pytest.raises(SegmentLocked, match=f"if it has ended run `poe unlock --force {left}`"):
        Store.open(OutOfSight(RealFiles.at(left)))
    assert contents(left) == before


def test_a_lock_whose_program_is_seen_to_be_gone_is_taken_over_and_told(left, caplog):
    assert messages(Store.open(left)) == [*MESSAGES, b"later"]
    assert "has the lock of a program that is gone, and is taken over" in caplog.text


def test_after_unlocking_all_that_was_written_is_there(left):
    with stopped_store(left) as files:
        hidden = OutOfSight(files)
        locked = foreign_locks(hidden)
        assert locked == [f"topics/t/{NOW}"]
        unlock_segments(hidden, locked)
        assert foreign_locks(hidden) == []
    assert not (left / f"topics/t/{NOW}_lock").exists()
    store = Store.open(OutOfSight(RealFiles.at(left)))
    assert messages(store) == [*MESSAGES, b"later"]
    assert messages(store, b"u") == MESSAGES
    assert not (left / "quarantine").exists()


@pytest.mark.parametrize("is_refused_before", [False, True])
def test_of_what_the_original_has_removed_nothing_is_known_after_unlocking(left, is_refused_before):
    for path in left.glob("store.*"):
        path.unlink()
    if is_refused_before:
        with pytest.raises(SegmentLocked):
            Store.open(OutOfSight(RealFiles.at(left)))
    with stopped_store(left) as files:
        hidden = OutOfSight(files)
        unlock_segments(hidden, foreign_locks(hidden))
    store = Store.open(OutOfSight(RealFiles.at(left)))
    assert store.removals.unknown_high >= NOW + 100


@pytest.mark.slow
def test_unlocking_that_is_interrupted_anywhere_keeps_all(left, tmp_path_factory):
    """Whichever call fails, the next start finds everything, or the lock as it was."""
    for nth in range(100):
        base = tmp_path_factory.mktemp("left") / "data"
        shutil.copytree(left, base)
        files = OutOfSight(RealFiles.at(base))
        locked = foreign_locks(files)
        files.fail(nth, errno.EIO, is_for_ever=True)
        try:
            unlock_segments(files, locked)
        except Exception:  # noqa: BLE001 - of several kinds
            files.heal()
        else:
            break
        if foreign_locks(files):
            unlock_segments(files, foreign_locks(files))
        assert messages(Store.open(files)) == [*MESSAGES, b"later"]
    assert 5 < nth < 99


def test_the_lock_of_a_live_program_is_not_removed(left):
    before = contents(left)
    with (
        opened(left / f"topics/t/{NOW}_lock"),
        stopped_store(left) as files,
        pytest.raises(SegmentLocked, match="stop it first"),
    ):
        foreign_locks(files)
    assert contents(left) == before


def test_a_check_tells_of_such_a_lock(left):
    files = OutOfSight(RealFiles.at(left))
    notes = [note for segment in check_segments(files) for note in segment.notes]
    assert "has the lock of another program, which may run out of sight of here" in notes


@pytest.mark.parametrize("content", [bytes(72), b"poe-lock"])
def test_a_lock_of_ours_that_a_power_cut_has_torn_is_in_nobody_s_way(left, content):
    (left / f"topics/t/{NOW}_lock").write_bytes(content)
    assert messages(Store.open(OutOfSight(RealFiles.at(left))))[:3] == MESSAGES


@pytest.mark.slow
def test_a_container_that_was_killed_starts_again(tmp_path):
    """Its locks are ours, whoever else cannot be seen."""
    counts = []
    for _ in range(3):
        run = run_in_container(KILLED, tmp_path)
        assert run.stderr.count("Traceback") == 0
        counts.append(run.stdout)
        assert any(name.endswith("_lock") for name in names_in(tmp_path / "topics/t"))
    assert counts == ["[] 0\n", "[b't'] 1\n", "[b't'] 2\n"]


@pytest.mark.slow
def test_a_container_does_not_start_behind_a_lock_of_the_original(left):
    run = run_in_container(KILLED, left)
    assert f"if it has ended run `poe unlock --force {left}`" in run.stderr
