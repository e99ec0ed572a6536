"""The lock of a log: keeps a second writer out, and tells in which boot the last one worked.

Within one boot of the machine the page cache knows all that was written, whatever is on the disk.
The first writer of another boot has only what the disk has, and must settle that before it builds
on it; when it has, it notes its boot here. Should it die before, the next one finds no boot.

Layout, lines of text:
    pid   of the writer, for people
    boot  of the machine, as `Files.boot_id` tells it; missing until the newest slab is settled,
          and in what earlier versions wrote
"""

import logging

from poe.errors import OptionError, PoeError, SegmentLocked, WriteFailed
from poe.storage.failure import as_storage_error
from poe.storage.files import Files, OpenFile
from poe.storage.slab_log.slab_name import LOCK_FILE

_log = logging.getLogger(__name__)

_READ_BYTES = 100


def lock_log(files: Files) -> tuple[OpenFile, bool]:
    """Take the lock of a log, and tell whether its last writer worked in this boot.

    Raises:
        SegmentLocked: the log has a writer.
        StorageFull, NoDescriptors: of what is needed for the lock there is none left.
        OptionError: the folder cannot be written.
    """
    try:
        lock = files.lock(LOCK_FILE)
        boot_id = _lines(lock)[1]
    except BlockingIOError as error:
        pid = _lines(files.open(LOCK_FILE, "r"))[0]
        raise SegmentLocked(files.base, f"the writer with pid {pid}") from error
    except OSError as error:
        raise _refused(error, files.base) from error
    is_this_boot = files.boot_id != "" and boot_id == files.boot_id
    note_boot(lock, files.process_id, boot_id if is_this_boot else "")
    return lock, is_this_boot


def _refused(error: OSError, base: str) -> PoeError:
    """Name what keeps a lock from being taken: no room or no descriptor passes."""
    failure = as_storage_error(error, base)
    if not isinstance(failure, WriteFailed):
        return failure
    return OptionError(
        "path", base, f"a folder that this user may write ({error.strerror or error})"
    )


def note_boot(lock: OpenFile, pid: int, boot_id: str) -> None:
    """Note who works on the log, and that what was there before this boot is settled, or not."""
    try:
        _write(lock, pid, boot_id)
    except OSError as error:
        # It is for people, and saves the next writer some syncs: a full disk may have room for what
        # the writer is to write. As text: the traceback of an error that a log handler keeps would
        # keep the lock, too.
        _log.warning("%s does not tell of this boot: %s", LOCK_FILE, str(error))


def _lines(lock: OpenFile) -> tuple[str, str]:
    lines = lock.read_at(_READ_BYTES, 0).decode("ascii", "replace").split("\n")
    return lines[0].strip(), lines[1].strip() if len(lines) > 1 else ""


def _write(lock: OpenFile, pid: int, boot_id: str) -> None:
    lock.truncate(0)
    lock.write_at(f"{pid}\n{boot_id}\n".encode("ascii", "replace"), 0)
