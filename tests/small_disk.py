"""A disk that tests can fill: a file system of its own, small and in memory."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK_BYTES = 1 << 20


class SmallDisk:
    """A file system that is small; `ballast` takes what room there is."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ballast = folder / "ballast"

    def fill(self):
        with contextlib.suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def free(self):
        self.ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int = DISK_BYTES) -> Iterator[SmallDisk]:
    """Mount a small disk on a new folder; the test is skipped where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "poe", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
