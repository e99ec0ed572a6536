"""A secret in place of another file is for its owner alone, wherever a link there leads."""

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from poe.errors import SecurityFileError
from poe.security.replacement import SUFFIX, locked_folder, replace_files, replace_secret


def system(**calls):
    """The module `os` with other calls, for one module alone."""
    return SimpleNamespace(**(vars(os) | calls))


def test_a_secret_is_for_its_owner_alone_though_others_could_read_what_was_there(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_secret(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["secret", "secret" + SUFFIX])
def test_a_link_that_somebody_has_put_there_leads_no_secret_away(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / name).symlink_to(elsewhere)
    replace_secret(str(tmp_path / "secret"), b"new")
    assert (tmp_path / "secret").read_bytes() == b"new"
    assert elsewhere.read_bytes() == b"untouched"
    assert not (tmp_path / "secret").is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"elsewhere", "secret"}


def test_of_many_files_none_stays_open_while_the_others_are_written(tmp_path, monkeypatch):
    """So that their number is not bounded by that of open files."""
    opened = set()

    def look(source, target):
        for each in Path("/proc/self/fd").iterdir():
            try:
                path = each.readlink()
            except FileNotFoundError:  # it was this look's own
                continue
            if path.is_relative_to(tmp_path):
                opened.add(path)
        os.rename(source, target)  # noqa: PTH104 - as it is asked of the system

    monkeypatch.setattr("poe.security.replacement.os", system(rename=look))
    paths = [tmp_path / str(number) for number in range(3)]
    replace_files({str(path): (path.name.encode(), 0o644) for path in paths})
    assert opened == set()
    assert [path.read_bytes() for path in paths] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("call", ["fsync", "close", "rename"])
def test_of_files_that_could_not_be_replaced_nothing_is_left(tmp_path, monkeypatch, call):
    def fail(first, *others):
        if call == "close":
            os.close(first)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("poe.security.replacement.os", system(**{call: fail}))
        with pytest.raises(OSError, match="No space"):
            replace_files({str(tmp_path / each): (b"new", 0o600) for each in "ab"})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_told(tmp_path, monkeypatch):
    """As of some file systems of a network."""

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(SecurityFileError, match=r"it cannot be locked \(No locks available\)"),
        locked_folder(str(tmp_path)),
    ):
        pytest.fail("it is not locked")
