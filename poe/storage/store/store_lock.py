"""Who holds a base folder, by a lock: its file tells the pid, and the boot of who recovered it."""

import logging
import os

from poe.errors import StoreLocked
from poe.storage.files import Files, OpenFile
from poe.storage.store.folder_watch import LOCK_FILE

_log = logging.getLogger(__name__)


def lock_base(files: Files) -> tuple[OpenFile, str]:
    """Take the lock of the base folder, write our pid into it, and tell who was there before.

    The boot of the machine stays that of whoever was there before.
    """
    try:
        lock = files.lock(LOCK_FILE)
    except BlockingIOError as error:
        raise StoreLocked(files.base, locked_by(files)) from error
    owner = lock.read_at(100, 0).decode("ascii", "replace")
    write_owner(lock, files.process_id, owner.partition("\n")[2].strip())
    return lock, owner


def write_owner(lock: OpenFile, pid: int, boot_id: str) -> None:
    """Write down who holds the lock; where that fails it is held all the same."""
    try:
        lock.truncate(0)
        lock.write_at(f"{pid}\n{boot_id}\n".encode("ascii", "replace"), 0)
    except OSError as error:
        # It is for people and the log: a full disk can be served from all the same.
        _log.warning("%s does not tell who holds it: %s", LOCK_FILE, error)


def is_same_boot(files: Files) -> bool:
    """Return whether the last server on a folder worked in this boot of the machine, or none did.

    Raises:
        OSError: as reported by the file layer.
    """
    try:
        owner = files.open(LOCK_FILE, "r").read_at(100, 0).decode("ascii", "replace")
    except FileNotFoundError:
        return True
    return files.boot_id != "" and files.boot_id in owner


def locked_by(files: Files) -> int | None:
    """Return the pid that the holder of a base folder's lock wrote; None where it wrote none.

    A server may not have yet. A check writes none, and so that of the last server is there.
    """
    content = files.open(LOCK_FILE, "r").read_at(20, 0).partition(b"\n")[0]
    if not content.isdigit():
        return None
    try:
        os.kill(int(content), 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:  # it is another user's
        pass
    return int(content)
