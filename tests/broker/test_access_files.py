"""The files that a node goes by, as they are read."""

import errno
import os
import sys

import pytest

from poe.broker.access import files
from poe.broker.access.files import AccessFiles
from poe.broker.access.options import SecurityOptions
from poe.errors import SecurityFileError
from poe.security.security import read_security

USERS = "version = 1\n[users.alice]\n"


@pytest.mark.parametrize("text", [USERS, USERS + "password = 1\n"])
def test_threads_change_often_while_files_are_read_and_as_before_afterwards(
    tmp_path, monkeypatch, text
):
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    seen = []

    def read(*paths):
        seen.append(sys.getswitchinterval())
        return read_security(*paths)

    monkeypatch.setattr(files, "read_security", read)
    before_s = sys.getswitchinterval()
    try:
        AccessFiles(SecurityOptions(users=path)).read()
    except SecurityFileError:
        assert text != USERS
    assert seen[0] <= 0.001 < before_s == sys.getswitchinterval()


@pytest.mark.parametrize(
    ("reason", "is_tried_again"),
    [(errno.EMFILE, True), (errno.EIO, True), (errno.ENOENT, False), (errno.EACCES, False)],
)
def test_files_that_cannot_be_read_for_the_moment_count_as_changed(
    tmp_path, monkeypatch, reason, is_tried_again
):
    path = tmp_path / "users.toml"
    path.write_text(USERS)
    path.chmod(0o600)
    read = AccessFiles(SecurityOptions(users=path))

    def fail(*arguments):
        raise OSError(reason, os.strerror(reason))

    with monkeypatch.context() as patch:
        patch.setattr("poe.security.small_file.os.open", fail)
        with pytest.raises(SecurityFileError, match=os.strerror(reason)):
            read.read()
    assert read.have_changed() == is_tried_again
    read.read()
    assert not read.have_changed()
