"""A disk whose power is cut comes back as it was left, whatever else runs on the machine."""

import multiprocessing
import os
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from torture.disk import powered_disk

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
]


@pytest.mark.slow
def test_who_is_given_mounts_of_its_own_meanwhile_does_not_keep_a_disk_without_power(tmp_path):
    # In a process of its own: this one's mounts are its own already where a disk was made before.
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    cutting = spawn.Process(target=_cut_once_told, args=(tmp_path / "d", there))
    cutting.start()
    assert here.poll(30)
    here.recv()

    # As whoever makes a network of its own beside it does.
    other = ["unshare", "--mount", "sh", "-c", "echo; read _"]
    with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        here.send("cut")
        cutting.join()
        process.communicate(b"\n")

    assert cutting.exitcode == 0


def _cut_once_told(folder: Path, there: Connection) -> None:
    with powered_disk(folder) as disk:
        there.send("mounted")
        there.recv()
        disk.cut()
        disk.restore()
        (disk.folder / "behind").write_bytes(b"")
