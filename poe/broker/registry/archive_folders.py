"""Which folder the segments of a topic are archived into before they expire."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from poe.storage import TopicOptions
from poe.topic_name import folder_bytes
from poe.topic_properties import is_reserved


@dataclass(frozen=True, slots=True)
class ArchiveFolders:
    """A folder for the topics that have one of their own, and one for all others."""

    others: Path | None = None
    """None: they expire without being archived."""

    named: Mapping[bytes, Path | None] = field(default_factory=dict)
    """Of topics by name."""

    @classmethod
    def of(cls, archive_dir: Path | None, topics: Iterable[TopicOptions]) -> Self:
        """Take them from the option of a node and those of its topics."""
        named = {
            folder_bytes(each.topic): None if each.archive_dir == "none" else each.archive_dir
            for each in topics
            if each.archive_dir is not None
        }
        return cls(archive_dir, named)

    def folder(self, topic: bytes) -> Path | None:
        """Return where a topic is archived; None where it is not, as the node's own are not."""
        return self.named.get(topic, None if is_reserved(topic) else self.others)

    def archives(self, topic: bytes) -> bool:
        """Return whether a topic is archived."""
        return self.folder(topic) is not None

    def folders(self) -> list[Path]:
        """Return all folders, sorted."""
        return sorted({each for each in (self.others, *self.named.values()) if each is not None})

    def encode(self) -> str:
        """Return them as an argument of a command."""
        named = {os.fsdecode(topic): _text(folder) for topic, folder in self.named.items()}
        return json.dumps({"others": _text(self.others), "named": named})

    @classmethod
    def decode(cls, text: str) -> Self:
        """Take them from the argument."""
        values = json.loads(text)
        named = {os.fsencode(topic): _path(folder) for topic, folder in values["named"].items()}
        return cls(_path(values["others"]), named)


def _text(folder: Path | None) -> str | None:
    return None if folder is None else str(folder)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
