"""Whether a file is open elsewhere: yes, no, or out of sight."""

import os
import tempfile
from pathlib import Path

import pytest

from poe.storage import RealFiles
from poe.storage.file_system import HOST_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS
from poe.storage.open_files import is_open_elsewhere
from tests.storage.other_sight import SOMEBODY, SOMEBODY_ELSE, opened, run_as, run_in_container

IN_CONTAINER = """
import sys
from pathlib import Path
from poe.storage.open_files import is_open_elsewhere
path = Path(sys.argv[1])
with path.open():  # by ourselves
    print(is_open_elsewhere(path.name, path.stat()))
"""


@pytest.fixture
def path():
    """A file of somebody, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "1_lock"
        path.touch()
        if os.geteuid() == 0:
            os.chown(path, SOMEBODY, SOMEBODY)
        yield path


def is_open(path):
    return is_open_elsewhere(path.name, path.stat())


def test_root_sees_who_has_a_file_open_and_that_nobody_has(path):
    if os.geteuid() != 0:
        pytest.skip("root alone sees all")
    with opened(path, SOMEBODY):
        assert is_open(path) is True
    assert is_open(path) is False


@pytest.mark.alone  # what this user runs elsewhere, it may not look at
def test_a_user_sees_who_has_a_file_of_its_own_open(path):
    with opened(path, SOMEBODY if os.geteuid() == 0 else None):
        assert run_as(SOMEBODY, lambda: is_open(path)) is True
    assert run_as(SOMEBODY, lambda: is_open(path)) is False


def test_a_user_cannot_tell_while_it_has_processes_that_it_may_not_look_at(path):
    if os.geteuid() != 0:
        pytest.skip("only root may be somebody else")
    with opened(path, SOMEBODY, SOMEBODY_ELSE):
        assert run_as(SOMEBODY, lambda: is_open(path)) is None


def test_a_user_cannot_tell_of_a_file_of_somebody_else(path):
    assert run_as(SOMEBODY_ELSE, lambda: is_open(path)) is None


@pytest.mark.slow
def test_a_container_cannot_tell(path):
    assert run_in_container(IN_CONTAINER, path).stdout == "None\n"
    with opened(path):
        assert run_in_container(IN_CONTAINER, path).stdout == "None\n"


@pytest.mark.parametrize("kind", ["nfs4", "9p"])
def test_where_other_machines_write_nothing_can_be_told(tmp_path, monkeypatch, kind):
    assert kind in NETWORK_FILE_SYSTEMS | HOST_FILE_SYSTEMS
    monkeypatch.setattr(RealFiles, "file_system", lambda _: kind)
    (tmp_path / "1_lock").touch()
    assert RealFiles.at(tmp_path).is_open_elsewhere("1_lock") is None
