"""Write to a file all, or nothing: in place of what it held, or behind that."""

import contextlib

from poe.storage.files import Files, OpenFile


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Give a file this content, so that at any time the old one is there, or the new one whole.

    On an error nothing is left behind. The content survives a power cut; for its name the folder
    has to be synced.

    Raises:
        OSError: as reported by the file layer.
    """
    try:
        file = files.open(path + "_new", "w+")
        file.write_at(content, 0)
        file.sync()
        files.rename(path + "_new", path)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(path + "_new")
        raise


def append_whole(file: OpenFile, content: bytes | bytearray, end: int) -> None:
    """Write behind what a file holds; what a write that fails has left would look like damage.

    Raises:
        OSError: as reported by the file layer.
    """
    try:
        file.write_at(content, end)
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise
