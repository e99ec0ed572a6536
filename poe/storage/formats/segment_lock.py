"""The `_lock` file of a segment: says that it is open for writing, and how far it is flushed.

The original's lock file is empty and counts by being there. Ours also tells, in memory that is
mapped from the file, how many bytes of data were written by whole batches. Storing that number
after each write costs no system call, and what is stored survives the death of the process, since
the page cache belongs to the kernel. So after a crash the half of a batch is known for what it is.
After a reboot the number may be older than the data, and is not believed.

Layout (64 bytes header, big endian, then the number; allocated in full, since a store to a page
for which the disk has no room would kill the process):
    magic           8 bytes  "poe-lock"
    version         u32      1
    pid             u32      of the writer, for people who look into the file
    boot id         48       ASCII, zero padded
    flushed offset  u64      native byte order, as only the boot that wrote it reads it
"""

import contextlib
import struct
from dataclasses import dataclass

from poe.errors import SegmentLocked
from poe.storage.files import Files

_HEADER = struct.Struct(">8sII48s")
_FLUSHED_OFFSET = struct.Struct("=Q")
_MAGIC = b"poe-lock"
_VERSION = 1
LOCK_BYTES = _HEADER.size + _FLUSHED_OFFSET.size
_UNLOCKED = b"unlocked\n"


@dataclass(frozen=True, slots=True)
class FoundLock:
    """A lock file that its writer has left behind."""

    flushed_offset: int | None
    """Bytes of data that whole batches have written; None when the file does not say, or says it
    of another boot."""

    is_ours: bool = False
    """Whether a writer of this program has left it, be it torn by a power cut."""

    is_out_of_sight: bool = False
    """Whether it may be of another program that lives, but where it cannot be seen."""


def make_lock(files: Files, path: str, flushed_offset: int) -> None:
    """Make the lock file of a segment; on an error none is left behind.

    It does not survive a power cut by itself. An empty one would be the original's, behind whose
    lock all that looks like records is taken in, or that keeps us from starting: so it gets its
    name when it is whole, and who is killed meanwhile leaves none.

    Raises:
        OSError: as reported by the file layer.
    """
    boot_id = files.boot_id.encode("ascii")
    header = _HEADER.pack(_MAGIC, _VERSION, files.process_id, boot_id)
    try:
        file = files.open(path + "_new", "w+")
        file.allocate(LOCK_BYTES)
        # The number is believed as soon as the header is whole; so the header comes behind it.
        file.write_at(_FLUSHED_OFFSET.pack(flushed_offset), _HEADER.size)
        file.write_at(header, 0)
        files.rename(path + "_new", path)
    except BaseException:  # Ctrl-C, too
        with contextlib.suppress(OSError):
            files.unlink(path + "_new")
        raise


def open_lock(files: Files, path: str) -> memoryview:
    """Map the lock file that this process made; item 0 of what it returns is the flushed offset.

    Raises:
        OSError: as reported by the file layer.
    """
    map_ = files.open(path, "r+").map(LOCK_BYTES, is_writable=True)
    return memoryview(map_)[_HEADER.size :].cast("Q")


def mark_unlocked(files: Files, path: str) -> None:
    """Note in the lock of another program that it has ended: a start takes it over from now on.

    Raises:
        OSError: as reported by the file layer.
    """
    file = files.open(path, "r+")
    file.write_at(_UNLOCKED, 0)
    file.sync()


def find_lock(files: Files, path: str) -> FoundLock | None:
    """Read a lock file left behind; None when there is none.

    Raises:
        SegmentLocked: it is not ours, and its writer lives.
        OSError: as reported by the file layer.

    Source: appendix_server.erl, which refuses every lock file; a live original keeps it open.
    """
    try:
        content = files.open(path, "r").read_at(LOCK_BYTES, 0)
    except FileNotFoundError:
        return None
    if not content.startswith(_MAGIC) or len(content) < LOCK_BYTES:
        is_open = files.is_open_elsewhere(path)
        if is_open:
            raise SegmentLocked(path=f"{files.base}/{path}")
        if content and not _is_mark(content):
            # Ours is never synced before it is needed, so a power cut may have taken what it says.
            return FoundLock(None, is_ours=True)
        return FoundLock(None, is_out_of_sight=is_open is None and not content)
    # Ours needs no look for a live writer: the lock on the whole store is held by now.
    _, version, _, boot_id = _HEADER.unpack_from(content)
    is_this_boot = files.boot_id != "" and boot_id.rstrip(b"\0") == files.boot_id.encode("ascii")
    if version != _VERSION or not is_this_boot:
        return FoundLock(None, is_ours=True)
    return FoundLock(_FLUSHED_OFFSET.unpack_from(content, _HEADER.size)[0], is_ours=True)


def _is_mark(content: bytes) -> bool:
    """Return whether it is what `mark_unlocked` wrote, or what a power cut has left of that."""
    written = content.rstrip(b"\0")
    return len(content) <= len(_UNLOCKED) and _UNLOCKED.startswith(written)
