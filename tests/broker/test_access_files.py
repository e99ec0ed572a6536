"""The files that a node goes by, as they are read."""

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
