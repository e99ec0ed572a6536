"""Opens the base folder of a store, unless it is not the one that was meant or cannot be guarded.

A folder is a store's if `store.meta` says so, or a segment lies below `topics/`, as in one of the
original or one whose `store.meta` was lost.
Nothing is written into a folder that is refused.
"""

import contextlib
from pathlib import Path

from poe.errors import OptionError
from poe.storage.file_system import NETWORK_FILE_SYSTEMS
from poe.storage.files import Files, FolderEntry
from poe.storage.foreign import check_no_foreign, foreign_names
from poe.storage.formats.store_meta import META_FILE, read_store_id
from poe.storage.real_files import RealFiles
from poe.storage.store.store_options import StoreOptions
from poe.storage.store.topic_folders import TOPICS_FOLDER, segment_file

_OWN = {
    META_FILE: False,
    META_FILE + "_new": False,
    "store.bound": False,
    "store.bound_new": False,
    "store.lock": False,
    "store.removed": False,
    "store.removed_new": False,
    "store.reserve": False,
    "store.topics": False,
    "store.topics_new": False,
    "node.identity": False,
    "node.identity_new": False,
    "node.members": False,
    "node.members_new": False,
    "node.queues": False,
    "node.queues_new": False,
    "poe.toml": False,
    "log": True,
    "quarantine": True,
    TOPICS_FOLDER: True,
}
"""Names of ours, and whether they are folders."""


def open_base(base: Path | Files, options: StoreOptions) -> Files:
    """Open a base folder, making it when missing and no certain store is expected there.

    Raises:
        OptionError: it lies on a network file system, does not hold the store that is expected,
            holds files of others and no store, or cannot be opened.
        FormatNotSupported: a newer version has written it.
        OSError: it cannot be read.
    """
    if isinstance(base, Path):
        if options.store_id is not None and not base.is_dir():
            raise _no_store(str(base), options.store_id)
        base = RealFiles.at(base)
    kind = base.file_system()
    if kind in NETWORK_FILE_SYSTEMS and not options.allow_network_file_system:
        allowed = f"a folder on a local disk: this is {kind}, where a server on another host could "
        allowed += "write to the same files; or set allow_network_file_system"
        raise OptionError("dir", base.base, allowed)
    if not options.adopt_folder and not (_has_meta(base) or _has_segments(base)):
        foreign = foreign_names(base.list_folder(""), _is_ours) or _foreign_topics(base)
        check_no_foreign("dir", base.base, foreign, "a store")
    if options.store_id is not None:
        found = read_store_id(base)
        if found is None:
            raise _no_store(base.base, options.store_id)
        if found != options.store_id:
            raise OptionError("store_id", options.store_id, f"{found} for the store in {base.base}")
    return base


def _has_meta(base: Files) -> bool:
    """Return whether `store.meta` says that it is a store's."""
    try:
        return read_store_id(base) is not None
    except OSError:
        return True  # that it cannot be read is told by who needs its events


def _has_segments(base: Files) -> bool:
    """Return whether a segment lies in the folder of a topic."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return any(
            any(segment_file(entry.name) for entry in _entries(base, topic))
            for topic, is_folder in base.list_folder(TOPICS_FOLDER)
            if is_folder
        )
    return False


def _is_ours(entry: FolderEntry) -> bool:
    """Return whether a server may have made a file or folder before there was a first segment."""
    return entry.is_folder == _OWN.get(entry.name)


def _foreign_topics(base: Files) -> list[str]:
    """Return what is below `topics/` where no segment is; a server first makes empty folders."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        entries = base.list_folder(TOPICS_FOLDER)
        inner = [
            FolderEntry(f"{topic}/{each.name}", each.is_folder)
            for topic, is_folder in entries
            if is_folder
            for each in _entries(base, topic)
        ]
        found = foreign_names([*entries, *inner], lambda each: each in entries and each.is_folder)
        return [f"{TOPICS_FOLDER}/{each}" for each in found]
    return []


def _entries(base: Files, topic: str) -> list[FolderEntry]:
    """List the folder of a topic; one that is closed to this user is told by recovery."""
    with contextlib.suppress(OSError):
        return base.list_folder(f"{TOPICS_FOLDER}/{topic}")
    return []


def _no_store(folder: str, store_id: str) -> OptionError:
    allowed = f"the folder of that store: {folder} holds none (is its disk mounted?); without "
    return OptionError("store_id", store_id, allowed + "store_id a new one is made")
