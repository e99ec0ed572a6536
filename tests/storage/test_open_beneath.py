"""A path beneath a folder is opened in one call or name by name; no link leads anywhere else."""

import ctypes
import errno
import os
import stat

import pytest

from poe.storage import RealFiles, real_files
from poe.storage.open_beneath import FOLDER, WALK, find_openat2, walk_to
from tests.broker.nodes import descriptors

OPENAT2 = find_openat2()
WAYS = {"walked": walk_to} | ({"openat2": OPENAT2} if OPENAT2 else {})
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def way(request):
    return request.param


@pytest.fixture
def base_fd(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("precious")
    base = tmp_path / "base"
    (base / "a/b").mkdir(parents=True)
    (base / "a/b/file").write_text("content")
    (base / "a/link").symlink_to(tmp_path / "outside")
    (base / "a/inside").symlink_to("b")
    (base / "a/b/link").symlink_to("file")
    fd = os.open(base, os.O_RDONLY)
    yield fd
    os.close(fd)


def content(fd):
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_a_file_below_folders_is_opened_and_closed_in_other_programs(way, base_fd):
    fd = way(base_fd, "a/b/file", READ)
    assert not os.get_inheritable(fd)
    assert content(fd) == b"content"


def test_a_file_that_is_made_is_its_owners_alone(way, base_fd):
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = way(base_fd, "a/b/new", flags)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    os.close(fd)
    with pytest.raises(FileExistsError):
        way(base_fd, "a/b/new", flags)


@pytest.mark.parametrize("path", ["a/link/file", "a/inside/file", "a/b/link", "a/link"])
def test_no_link_is_followed_wherever_it_leads(way, base_fd, path):
    with pytest.raises(OSError, match=r"symbolic|directory"):
        way(base_fd, path, READ)
    with pytest.raises(OSError, match=r"symbolic|directory"):
        way(base_fd, path, WALK)


def test_what_is_not_there_is_said_to_be_missing(way, base_fd):
    with pytest.raises(FileNotFoundError, match="missing"):
        way(base_fd, "a/missing", READ)
    with pytest.raises(FileNotFoundError):
        way(base_fd, "missing/file", READ)


def test_a_file_in_the_place_of_a_folder_is_an_error(way, base_fd):
    with pytest.raises(NotADirectoryError):
        way(base_fd, "a/b/file/x", READ)
    with pytest.raises(NotADirectoryError):
        way(base_fd, "a/b/file", WALK)


def test_no_descriptor_is_left_behind(way, base_fd):
    before = len(descriptors())
    for path, flags in (("a/b", WALK), ("a/b", os.O_RDONLY | FOLDER), (".", os.O_RDONLY | FOLDER)):
        os.close(way(base_fd, path, flags))
    for path in ("a/missing", "a/link/file"):
        with pytest.raises(OSError, match=r"No such|symbolic|directory"):
            way(base_fd, path, READ)
    assert len(descriptors()) == before


def test_a_file_layer_without_the_call_does_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(real_files, "open_beneath", walk_to)
    files = RealFiles.at(tmp_path)
    files.make_folder("a")
    files.open("a/f", "x+").write_at(b"xyz", 0)
    assert files.open("a/f", "r").read_at(9, 0) == b"xyz"
    files.sync_folder("a")
    assert files.list_folder("a")[0].name == "f"


class Refusing:
    """A libc whose calls by number fail, the first of them maybe not."""

    def __init__(self, error_number, *results):
        self.error_number = error_number
        self.results = list(results)

    def __getattr__(self, name):
        if name != "syscall":
            raise AttributeError(name)
        return self

    def __call__(self, *_):
        if self.results:
            return self.results.pop()
        ctypes.set_errno(self.error_number)
        return -1


def test_where_the_call_is_refused_it_is_not_used(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Refusing(errno.EPERM))
    assert find_openat2() is None


def test_a_call_that_a_signal_has_interrupted_is_made_again(monkeypatch, base_fd):
    libc = Refusing(errno.EINTR, os.open(".", os.O_RDONLY))
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    interrupted = find_openat2()
    assert interrupted is not None
    assert content(interrupted(base_fd, "a/b/file", READ)) == b"content"
