"""A disk whose power is cut comes back as it was left, whatever else runs on the machine."""

import os
import subprocess

import pytest

from torture.disk import powered_disk

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
]


def test_who_is_given_mounts_of_its_own_meanwhile_does_not_keep_a_disk_without_power(tmp_path):
    # As whoever makes a network of its own beside it does.
    command = "read _; exec unshare --mount sh -c 'echo; read _'"
    with subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        with powered_disk(tmp_path / "d") as disk:
            other.stdin.write(b"\n")
            other.stdout.readline()
            disk.cut()
            disk.restore()
            (disk.folder / "behind").write_bytes(b"")
        other.stdin.write(b"\n")
