"""Take over segments that another program has locked, on the word of somebody that it has ended.

The lock of the original is an empty file. A start takes over one whose program is known to be gone;
this does so where that program might run out of sight, and leaves the folder to either program.
"""

import os

from poe.storage.failure import reading, writing
from poe.storage.files import Files
from poe.storage.formats.segment_lock import find_lock, mark_unlocked
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.store.folder_watch import LOCK_FILE
from poe.storage.store.store_lock import is_same_boot
from poe.storage.store.topic_folders import TOPICS_FOLDER, segment_file
from poe.topic_name import topic_in


def foreign_locks(files: Files) -> list[str]:
    """Return the segments, as paths below the base folder, that have the lock of another program.

    Raises:
        SegmentLocked: that program lives.
        ReadFailed: a folder cannot be listed, or a file not be opened.
    """
    found = []
    with reading(TOPICS_FOLDER):
        for folder_name, is_folder in sorted(files.list_folder(TOPICS_FOLDER)):
            if not is_folder or topic_in(folder_name) is None:
                continue
            folder = f"{TOPICS_FOLDER}/{folder_name}"
            for name, _ in sorted(files.list_folder(folder)):
                file = segment_file(name)
                if file and file[1] == "lock" and not files.size(f"{folder}/{name}"):
                    find_lock(files, f"{folder}/{name}")
                    found.append(f"{folder}/{file[0]}")
    return found


def unlock_segments(files: Files, paths: list[str]) -> None:
    """Recover segments that have the lock of another program, and remove that.

    Only removed, it would say that all was closed in good order, and what is not in the index would
    be cut off.

    Raises:
        FormatNotSupported, ReadFailed, StorageFull, WriteFailed: as `repair_segments`.
    """
    with reading(LOCK_FILE):
        meta = StoreMeta(files, os.urandom(16), is_same_boot=is_same_boot(files))
    for path in paths:
        with writing(path + "_lock"):
            # From here on a start takes it over, too, should this be interrupted.
            mark_unlocked(files, path + "_lock")
        SegmentFiles(files, path, meta).recover("point-in-time")
