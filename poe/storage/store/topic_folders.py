"""Turn the names found in `topics/` into topics, and a topic into its folder."""

import contextlib
import logging
import re
from collections.abc import Iterable

from poe.record import POINTER_MAX
from poe.storage.failure import writing
from poe.storage.files import Files, FolderEntry
from poe.topic_name import (
    NamePolicy,
    folder_bytes,
    folder_name,
    is_plain,
    original_topic_of,
    topic_of,
)

_log = logging.getLogger(__name__)

TOPICS_FOLDER = "topics"
# `_new` are files that were about to be put in place. No leading zero: a timestamp has one name
# only.
_SEGMENT_FILE = re.compile(
    r"(0|[1-9][0-9]{0,16})_(data|index|sum|seq|lock|index_new|sum_new|seq_new|lock_new)", re.ASCII
)


def segment_file(name: str) -> tuple[int, str] | None:
    """Return timestamp and kind of a segment's file by its name; None when it is no such name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > POINTER_MAX:
        return None
    return int(match[1]), match[2]


class TopicFolders:
    """The folders of topics; those that the original has made keep their names.

    Always, for the folders found: topics are as many as folders, and no two share one.
    """

    __slots__ = ("_are_names_synced", "_files", "_found", "_names", "_others")

    def __init__(self, files: Files, names: NamePolicy) -> None:
        """Know no folder yet; see `find`."""
        self._files = files
        self._names = names
        self._found: dict[bytes, str] = {}
        self._others: set[str] = set()
        self._are_names_synced = True  # those found: the start has done so

    def find(self, entries: list[FolderEntry]) -> list[bytes]:
        """Return the topics with folders among the names found, sorted; also those not allowed."""
        folders = [name for name, is_folder in entries if is_folder]
        for find in (topic_of, original_topic_of):  # where there are both, ours counts
            for name in folders:
                topic = find(name)
                if topic is not None and (is_plain(topic) or self._holds_segments(name)):
                    self._found.setdefault(topic, name)
        strays = {name for name, _ in entries} - set(self._found.values())
        for name in sorted(strays):
            way_out = self._way_out(name) if name in folders else ""
            _log.warning("%r in %s is no topic and is left alone%s", name, TOPICS_FOLDER, way_out)
        self._others = strays & set(folders)
        return sorted(self._found)

    def path_of(self, topic: bytes) -> str:
        """Return the path of a topic's folder.

        Raises:
            InvalidTopicName: the policy does not allow the name.
        """
        found = self._found.get(topic)
        if found is None or self._names == "strict":
            found = folder_name(topic, self._names)
        return f"{TOPICS_FOLDER}/{found}"

    def make(self, path: str) -> None:
        """Make a topic's folder where it is missing; a power cut may take its name until `sync`.

        Raises:
            StorageFull: no room for it.
            WriteFailed: another failure.
        """
        with writing(path):
            if self._files.make_folder(path):
                self._are_names_synced = False

    def sync(self) -> None:
        """Have the folders that were made since the start keep their names in a power cut.

        Raises:
            WriteFailed: the disk did not take them; to be tried again.
        """
        if not self._are_names_synced:
            with writing(TOPICS_FOLDER):
                self._files.sync_folder(TOPICS_FOLDER)
            self._are_names_synced = True

    def unserved(self, failed: Iterable[bytes]) -> set[bytes]:
        """Return the names of the folders that are left alone, or of topics that have failed."""
        return {folder_bytes(self._found[topic]) for topic in failed} | {
            folder_bytes(name) for name in self._others
        }

    def _way_out(self, name: str) -> str:
        """Return what is to be done for the segments of a folder that is left alone."""
        if not self._holds_segments(name):
            return ""
        other = self._found.get(original_topic_of(name) or b"")
        if other is not None:
            return f"; it holds segments of the topic that has the folder {other!r}"
        return (
            "; it holds segments: stop the server and give it the name of their topic, each byte "
            "other than A-Z a-z 0-9 . _ - as %XX"
        )

    def _holds_segments(self, name: str) -> bool:
        """Return whether a folder that is no topic's at first sight has files of segments."""
        with contextlib.suppress(OSError):
            entries = self._files.list_folder(f"{TOPICS_FOLDER}/{name}")
            return any(segment_file(entry.name) for entry in entries)
        return False
