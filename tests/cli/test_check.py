"""`poe check`: tells damage from what a kill leaves behind, and changes nothing."""

import shutil

import pytest

from poe import protocol
from tests.cli.processes import Server, complaint, poe, poe_here

pytestmark = pytest.mark.slow


def content_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    """The folder of a server that was stopped."""
    with Server(tmp_path / "data") as server:
        poe("put", "t", "one", "two", "three", port=server.port)
        assert server.end()[0] == 0
    return tmp_path / "data"


def test_a_stopped_folder_is_sound_and_unchanged(folder):
    before = content_of(folder)
    run = poe("check", folder, "--verbose")
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1] == b"1 segment, 3 messages, 44 bytes: all sound"
    assert b": 3 messages, 44 bytes" in run.stdout.splitlines()[0]
    assert content_of(folder) == before


def test_a_killed_server_leaves_no_damage(tmp_path):
    with Server(tmp_path / "data") as server:
        poe("put", "t", "one", "two", port=server.port)
        server.process.kill()
        server.process.wait()
    before = content_of(tmp_path / "data")
    run = poe("check", tmp_path / "data")
    assert run.returncode == 0
    assert b"note: was not closed; the next start recovers it" in run.stdout
    assert content_of(tmp_path / "data") == before


def test_damage_is_named_and_left_alone(folder):
    data = next(folder.rglob("*_data"))
    content = bytearray(data.read_bytes())
    content[14] = 0xFF  # the size of the second record
    data.write_bytes(content)
    before = content_of(folder)
    run = poe("check", folder)
    assert run.returncode == 1
    assert b"DAMAGED: no valid record at offset 14 of the data file; 30 bytes" in run.stdout
    assert run.stdout.endswith(b" bytes: 1 damaged\n")
    assert content_of(folder) == before


def test_a_running_server_is_left_in_peace(tmp_path, server):
    run = poe("check", tmp_path / "data")
    assert run.returncode == 2
    assert f"in use by the server with pid {server.process.pid}" in complaint(run)


def test_a_folder_that_is_none_of_ours_is_told_and_not_made(tmp_path):
    run = poe("check", tmp_path / "nothing")
    assert run.returncode == 2
    assert "use a server's folder" in complaint(run)
    assert not (tmp_path / "nothing").exists()


def test_no_folder_is_not_the_current_one():
    run = poe("check", "")
    assert run.returncode == 2
    assert complaint(run) == "poe: option 'DIR' is ''; use the path of a folder"


@pytest.mark.parametrize(
    "command", [["check"], ["unlock"], ["certificates", "--host", "localhost"]]
)
def test_a_folder_in_nobodys_home_is_told(command):
    run = poe_here(*command, "~no-such-user/data")
    assert run.returncode == 2
    assert complaint(run) == (
        "poe: option 'DIR' is '~no-such-user/data'; use a path; there is no user with such a home"
    )


def test_foreign_files_are_told_until_somebody_acts(tmp_path):
    """By each check, each start's log, `health` and `status`; and no message of them is read."""
    folder = tmp_path / "data"
    with Server(folder) as server:
        poe("put", "t", "one", "two", port=server.port)
        poe("put", "u", "three", port=server.port)
        assert server.end()[0] == 0
    shutil.copytree(folder / "topics/u", folder / "topics/t", dirs_exist_ok=True)
    (folder / "topics/t").rename(folder / "topics/new")
    run = poe("check", folder)
    assert run.returncode == 1
    assert run.stdout.count(b"DAMAGED: its files are those of another topic") == 2
    for _ in range(2):
        with Server(folder) as server:
            assert poe("topics", port=server.port).stdout == b"u\n"
            assert poe("read", "u", port=server.port).stdout == b"three\n"
            told = b"server:\tquarantine/foreign/new holds 2 segments found under the name of"
            assert told in poe("status", port=server.port).stdout
            with protocol.socket("127.0.0.1", server.port) as client:
                [found] = client.control("health")["foreign"]
            assert found.startswith("quarantine/foreign/new holds 2 segments")
            code, _, log = server.end()
            assert code == 0
            assert b"quarantine/foreign/new holds 2 segments" in log
        for arguments in (("check", folder), ("check", folder, "--repair")):
            run = poe(*arguments)
            assert run.returncode == 1
            assert b"DAMAGED: quarantine/foreign/new holds 2 segments" in run.stdout
            assert run.stdout.endswith(b" bytes: 1 damaged\n")
    shutil.rmtree(folder / "quarantine/foreign")
    assert poe("check", folder).returncode == 0


def test_a_repair_puts_foreign_files_into_quarantine(folder):
    (folder / "topics/t").rename(folder / "topics/new")
    run = poe("check", folder, "--repair")
    assert run.returncode == 1
    assert b"DAMAGED: quarantine/foreign/new holds a segment" in run.stdout
    assert not list(folder.glob("topics/*/*_data"))
    (folder / "quarantine/foreign/new").rename(folder / "topics/t")
    run = poe("check", folder, "--repair")
    assert run.returncode == 0
    assert run.stdout.endswith(b"1 segment, 3 messages, 44 bytes: all sound\n")
