"""The file layer stays below its folder, writes in full and closes what it opened."""

import ctypes
import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from poe.storage import Clock, RealFiles, SystemClock, real_files
from poe.storage.files import FolderEntry
from poe.storage.open_beneath import walk_to
from tests.forks import exit_code_of, fork
from tests.storage.segments import names_in
from tests.waiting import wait_until


@pytest.fixture
def files(tmp_path):
    return RealFiles.at(tmp_path)


def test_a_short_write_goes_on_until_all_is_written(files, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    file = files.open("f", "x+")
    file.write_at(b"0123456789", 2)
    assert file.read_at(100, 0) == b"\0\x000123456789"


def test_a_write_that_stands_still_is_an_error(files, monkeypatch):
    file = files.open("f", "x+")
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no bytes"):
        file.write_at(b"0123456789", 2)


def test_a_short_read_goes_on_until_the_end_of_the_file(files, monkeypatch):
    file = files.open("f", "x+")
    file.write_at(b"0123456789", 0)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 3), at))
    assert file.read_at(8, 1) == b"12345678"
    assert file.read_at(100, 1) == b"123456789"


def test_a_file_that_reaches_a_limit_is_an_error_that_storage_knows(tmp_path):
    program = textwrap.dedent(
        f"""
        import resource, signal
        from pathlib import Path
        from poe.errors import StorageFull
        from tests.storage.segments import NOW, create, files_at, read_all
        files = files_at(Path({str(tmp_path)!r}))
        segment = create(files)
        segment.append([b"x" * 100], NOW)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
        try:
            segment.append([b"y" * 100] * 20, NOW)
        except StorageFull as error:
            print(error, files.size(segment.path + "_data"), len(read_all(segment)))
        segment.append([b"z"], NOW)
        print(len(read_all(segment)))
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    first, second = run.stdout.splitlines()
    assert first.endswith("111 1")
    assert "File too large" in first
    assert second == "2"


@pytest.mark.parametrize("path", ["../f", "a/../f", "/etc/f", "a//f", ".", "..", "", "a/.", "a/"])
def test_a_path_that_could_lead_elsewhere_is_a_bug(tmp_path, path):
    (tmp_path / "base/a").mkdir(parents=True)
    files = RealFiles.at(tmp_path / "base")
    with pytest.raises(AssertionError):
        files.open(path, "w+")
    assert names_in(tmp_path) == ["base"]


def test_links_are_never_followed(tmp_path):
    base = tmp_path / "base"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("precious")
    files = RealFiles.at(base)
    (base / "folder").symlink_to(tmp_path / "outside")
    (base / "file").symlink_to(tmp_path / "outside/f")
    for action in (
        lambda: files.open("folder/f", "w+"),
        lambda: files.open("file", "w+"),
        lambda: files.unlink("folder/f"),
        lambda: files.list_folder("folder"),
        lambda: files.make_folder("folder"),
        lambda: files.make_folder("folder/new"),
        lambda: files.lock("file"),
        lambda: files.sync_folder("folder"),
        lambda: files.rename("folder/f", "f"),
    ):
        with pytest.raises(OSError, match=r"symbolic|directory|exists"):
            action()
    assert (tmp_path / "outside/f").read_text() == "precious"
    assert names_in(tmp_path / "outside") == ["f"]
    assert files.list_folder("") == [FolderEntry(n, is_folder=False) for n in names_in(base)]


def test_names_are_made_listed_renamed_and_removed(tmp_path, files):
    assert files.make_folder("a")
    assert not files.make_folder("a")
    files.open("a/f", "x+").write_at(b"xyz", 0)
    with pytest.raises(FileExistsError):
        files.open("a/f", "x+")
    files.sync_folder("a")
    files.sync_folder("")
    assert files.size("a/f") == 3
    assert files.size("a/g") is None
    assert files.size("b/g") is None
    files.rename("a/f", "a/g")
    assert files.list_folder("a") == [FolderEntry("g", is_folder=False)]
    assert files.list_folder("") == [FolderEntry("a", is_folder=True)]
    files.unlink("a/g")
    files.unlink("a/g")
    files.remove_folder("a")
    assert names_in(tmp_path) == []


def test_no_operation_leaves_a_descriptor_open(tmp_path, files):
    files.make_folder("a")
    before = names_in(Path("/proc/self/fd"))
    files.open("a/f", "x+").allocate(10)
    for action in (
        lambda: files.open("a/none", "r"),
        lambda: files.open("none/f", "r"),
        lambda: files.list_folder("none"),
        lambda: files.make_folder("a/b"),
        lambda: files.lock("a/l"),
        lambda: files.remove_folder("a"),
        lambda: files.is_open_elsewhere("a/f"),
    ):
        try:
            action()
        except OSError:
            continue
    # Threads that other tests have left open and close descriptors of their own meanwhile.
    wait_until(lambda: len(names_in(Path("/proc/self/fd"))) <= len(before))


def test_allocated_bytes_are_backed_by_the_disk(tmp_path, files):
    files.open("f", "x+").allocate(72)
    assert (tmp_path / "f").stat().st_size == 72
    assert (tmp_path / "f").stat().st_blocks > 0


def test_the_system_clock_tells_microseconds_since_the_epoch():
    clock: Clock = SystemClock()
    first = clock.now_us()
    assert 1_700_000_000_000_000 < first <= clock.now_us() < 2**56


def test_all_is_synced_at_once_where_the_system_tells_of_failures(files, monkeypatch):
    synced: list[int] = []

    def syncfs(fd):
        synced.append(fd)
        return 0

    monkeypatch.setattr(real_files, "_syncfs", syncfs)
    monkeypatch.setattr(RealFiles, "file_system", lambda _: "ext4")
    files.sync_all()
    assert len(synced) == 1
    for kind in ("", "tmpfs", "overlay", "nfs4", "ext2"):
        monkeypatch.setattr(RealFiles, "file_system", lambda _, kind=kind: kind)
        with pytest.raises(OSError, match="not supported") as caught:
            files.sync_all()
        assert caught.value.errno == errno.EOPNOTSUPP
    assert len(synced) == 1


def test_a_sync_of_all_that_fails_is_told(files, monkeypatch):
    monkeypatch.setattr(RealFiles, "file_system", lambda _: "xfs")

    def fail(_):
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(real_files, "_syncfs", fail)
    with pytest.raises(OSError, match="Input/output") as caught:
        files.sync_all()
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    ("release", "is_told"),
    [("5.16.9", False), ("5.17.0-rc1", True), ("6.8.0-31-generic", True), ("4.19", False)],
)
def test_an_older_kernel_is_not_believed(monkeypatch, release, is_told):
    name = os.uname_result(("Linux", "host", release, "", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: name)
    assert (real_files._find_syncfs() is not None) == is_told  # noqa: SLF001 - asked once at import


def test_a_walk_takes_one_open_for_each_name_of_a_path(files, monkeypatch):
    monkeypatch.setattr(real_files, "open_beneath", walk_to)
    files.make_folder("topics")
    files.make_folder("topics/t")
    opened = []
    real = os.open

    def count(path, *arguments, **keywords):
        opened.append(path)
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", count)
    files.open("f", "x+")
    assert opened == ["f"]
    opened.clear()
    files.open("topics/t/f", "x+")
    assert opened == ["topics", "t", "f"]
    opened.clear()
    assert files.size("topics/t/f") == 0
    assert opened == ["topics", "t"]


def test_a_lock_ends_although_a_fork_has_not_closed_its_copy_yet(files):
    held = [files.lock("l")]
    reading, writing = os.pipe()

    def wait():
        os.close(writing)
        os.read(reading, 1)
        held.clear()  # which is not to end the lock that its parent has by now

    child = fork(wait)
    os.close(reading)
    held.clear()
    lock = files.lock("l")
    os.close(writing)
    assert exit_code_of(child) == 0
    with pytest.raises(BlockingIOError):
        files.lock("l")
    del lock
    files.lock("l")


def test_a_copy_of_a_lock_ends_and_leaves_the_lock(files):
    held = [files.lock("l")]
    assert exit_code_of(fork(held.clear)) == 0
    with pytest.raises(BlockingIOError):
        files.lock("l")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_makes_belongs_to_the_owner_of_the_base_folder(tmp_path):
    os.chown(tmp_path, 4711, 4712)
    files = RealFiles.at(tmp_path)
    files.make_folder("a")
    files.open("a/f", "x+")
    files.open("a/g", "w+")
    files.lock("l")
    made = [(tmp_path / name).stat() for name in ("a", "a/f", "a/g", "l")]
    assert {(each.st_uid, each.st_gid) for each in made} == {(4711, 4712)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_gives_nothing_away_that_has_another_name_elsewhere(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    os.chown(base, 4711, 4712)
    secret = tmp_path / "secret"
    secret.touch()
    (base / "l").hardlink_to(secret)
    (base / "m").write_text("was elsewhere, and is its only name")
    files = RealFiles.at(base)
    for name in ("l", "m"):
        files.lock(name)
        assert (base / name).stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_may_not_give_away_stays_its_own(tmp_path, monkeypatch):
    os.chown(tmp_path, 4711, 4712)

    def refuse(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchown", refuse)
    files = RealFiles.at(tmp_path)
    files.open("f", "x+").write_at(b"xyz", 0)
    assert files.size("f") == 3
