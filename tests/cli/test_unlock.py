"""`poe unlock`: tells of the locks of other programs, and removes them when it is told to."""

import pytest

from tests.cli.processes import Server, complaint, poe

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    """The folder of a server that was stopped, with a lock of the original."""
    with Server(tmp_path / "data") as server:
        poe("put", "t", "one", port=server.port)
        assert server.end()[0] == 0
    (data,) = (tmp_path / "data/topics/t").glob("*_data")
    data.with_name(data.name.replace("data", "lock")).touch()
    return tmp_path / "data"


def locks(folder):
    return list(folder.rglob("*_lock"))


def test_locks_are_told_and_then_removed(folder):
    run = poe("unlock", folder)
    assert run.returncode == 1
    assert b": locked by another program\n1 lock of other programs\n" in run.stdout
    assert len(locks(folder)) == 1
    run = poe("unlock", "--force", folder)
    assert run.returncode == 0
    assert run.stdout.endswith(b": unlocked\n1 lock of other programs removed\n")
    assert locks(folder) == []
    run = poe("unlock", folder)
    assert (run.returncode, run.stdout) == (0, b"0 locks of other programs\n")
    assert b"all sound" in poe("check", folder).stdout


def test_a_running_server_is_left_in_peace(tmp_path, server):
    run = poe("unlock", "--force", tmp_path / "data")
    assert run.returncode == 2
    assert f"in use by the server with pid {server.process.pid}" in complaint(run)
