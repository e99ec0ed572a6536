"""The layout of an archive: which Parquet file holds which messages of which segment.

It turns manifests into bytes and back, and finds them; the Parquet files themselves are the matter
of `poe/spark`. A segment lies in a file for each date (UTC) on which it took messages. Its manifest
gets its name after all of them: what no manifest names does not count, and is replaced when the
segment is archived anew. What one names stays: a segment that went on has only the rest added.

Layout:
    <archive>/topic=<name>/date=YYYY-MM-DD/<timestamp>.parquet  pointer, timestamp, message
    <archive>/topic=<name>/date=YYYY-MM-DD/<timestamp>_<pointer>.parquet  what followed that pointer
                                                                when the segment was archived again
    <archive>/topic=<name>/_manifest/<timestamp>.json           see `Manifest`
    <archive>/topic=<name>/_place.json                          see `ArchivedPlace`
    <archive>/_new/                                             files that are being written
    <archive>/_lock                                             locked by the archiver at work

The name is that of the topic's folder with `names="escape"`. Spark passes over names that begin
with an underscore, and so can read the whole as a table.
"""

import contextlib
import errno
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from poe.errors import FormatNotSupported, OptionError, PoeError, ReadFailed
from poe.storage.failure import reading, writing
from poe.storage.files import Files, FolderEntry, OpenFile
from poe.storage.foreign import check_no_foreign, foreign_names
from poe.storage.real_files import RealFiles
from poe.topic_name import folder_name, topic_of
from poe.topic_properties import partition_of

NEW_FOLDER = "_new"
LOCK_FILE = "_lock"

_TOPIC_PREFIX = "topic="
_SUFFIX = ".json"
_PLACE_FILE = "_place.json"
_VERSION = 1
_WRONG_NAME = frozenset({errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG})
"""Failures to list a folder that are not of its disk, but of whoever has named it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Neighbouring messages in a Parquet file: the least of it that can be read alone."""

    first: int
    last: int
    count: int
    size_bytes: int
    """Of the messages."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file and what lies in it, by rising pointers."""

    path: str
    """Below the folder of the topic."""

    groups: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the archive has of a segment.

    Layout, in JSON:
        version                         1
        first, last, count, size_bytes  pointers, messages and their bytes
        files                           [{path, groups: [{first, last, count, size_bytes}, …]}, …]
        envelope                        whether messages are in envelopes
    """

    first: int
    last: int
    count: int
    size_bytes: int
    files: tuple[ArchivedFile, ...]
    envelope: bool | None = None
    """Topics of one name may differ in it, one made after the other; None: see `ArchivedPlace`."""

    @classmethod
    def of(cls, files: tuple[ArchivedFile, ...], *, envelope: bool | None = None) -> Self:
        """Sum up the files of a segment, of which there is one or more."""
        groups = [group for file in files for group in file.groups]
        count = sum(group.count for group in groups)
        size_bytes = sum(group.size_bytes for group in groups)
        return cls(groups[0].first, groups[-1].last, count, size_bytes, files, envelope)

    def reaches_into(self, first: int, last: int) -> bool:
        """Return whether the archive has the begin of a segment of these pointers, not its end.

        The segment went on after it was archived, since a power cut took the one behind it, or its
        store was restored from an older copy.
        """
        return self.first <= first and self.last < last

    def covers(self, first: int, last: int, count: int) -> bool:
        """Return whether a segment of these messages is archived whole.

        It may have been archived with more of them, before its disk has lost some.
        """
        return self.first <= first and last <= self.last and count <= self.count

    def encode(self) -> bytes:
        """Return the content of its file."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, content: bytes, path: str) -> Self:
        """Take the content of its file.

        Raises:
            FormatNotSupported: a newer version has written it.
            ReadFailed: it is none.
        """
        try:
            values = _values(content, path)
            files = tuple(
                ArchivedFile(file["path"], tuple(RowGroup(**group) for group in file["groups"]))
                for file in values.pop("files")
            )
            return cls(**values, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ReadFailed(path, "it is no manifest of a segment") from error


@dataclass(frozen=True, slots=True)
class ArchivedPlace:
    """Which partition of which topic an archived one is; of topics that nobody described, none.

    Layout, in JSON:
        version    1
        topic      the name of that topic's folder, were it one
        partition  its number
        envelope   whether messages are in envelopes, of which no manifest tells it
    """

    topic: bytes
    partition: int
    envelope: bool

    def encode(self) -> bytes:
        """Return the content of its file."""
        named = {"version": _VERSION, "topic": folder_name(self.topic, "escape")}
        told = {"partition": self.partition, "envelope": self.envelope}
        return json.dumps(named | told).encode()

    @classmethod
    def decode(cls, content: bytes, path: str) -> Self:
        """Take the content of its file.

        Raises:
            FormatNotSupported: a newer version has written it.
            ReadFailed: it is none.
        """
        unknown = ReadFailed(path, "it does not tell the place of a topic")
        try:
            values = _values(content, path)
            topic = topic_of(values["topic"])
            partition, envelope = int(values["partition"]), bool(values["envelope"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise unknown from error
        if topic is None:
            raise unknown
        return cls(topic, partition, envelope)


def _values(content: bytes, path: str) -> dict[str, Any]:
    """Return what a file of ours tells, but for its version.

    Raises:
        FormatNotSupported: a newer version has written it.
        ValueError, TypeError, KeyError, AttributeError: it is none.
    """
    values: dict[str, Any] = json.loads(content)
    if (version := values.pop("version")) != _VERSION:
        raise FormatNotSupported(path, f"version {version}")
    return values


class Archive:
    """The manifests below one folder; made anew for each look, and by each process that looks."""

    __slots__ = ("files",)

    def __init__(self, files: Files) -> None:
        self.files = files

    @classmethod
    def existing(cls, folder: Path) -> Self:
        """Open an archive to read it.

        Raises:
            ReadFailed: it is not there, or closed to this user.
        """
        with reading(str(folder)):
            return cls(RealFiles.existing(folder))

    @staticmethod
    def check(key: str, folder: Path) -> None:
        """Refuse a folder that holds something else; one that is not there will be made.

        One on a disk that fails is away, and may be back before anything is archived.

        Args:
            key: the option that names the folder.
            folder: where the archive is to be.

        Raises:
            OptionError: it does, or is no folder that this user may read.
        """
        try:
            entries = [FolderEntry(each.name, each.is_dir()) for each in folder.iterdir()]
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in _WRONG_NAME:
                _log.error("the archive %s is away: %s", folder, error.strerror or error)
                return
            allowed = f"a folder that this user may read ({error.strerror or error})"
            raise OptionError(key, str(folder), allowed) from error
        foreign = foreign_names(entries, _is_of_archive)
        check_no_foreign(key, str(folder), foreign, "an archive")

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Open an archive to write it, making the folder when missing.

        Raises:
            OptionError: it is no folder, or this user may not write it.
        """
        try:
            return cls(RealFiles.at(folder))
        except OptionError as error:
            raise OptionError("archive", str(folder), error.allowed) from error

    def begin(self) -> OpenFile:
        """Keep other archivers out for as long as the result is referenced.

        What an archiver that was killed has left unfinished is removed.

        Raises:
            OptionError: another archiver is at work.
            WriteFailed: the folder cannot be written; other errors as by `writing`.
        """
        files = self.files
        with writing(files.base):
            try:
                lock = files.lock(LOCK_FILE)
            except BlockingIOError as error:
                allowed = "a folder that no other archiver works on now"
                raise OptionError("archive", files.base, allowed) from error
            files.make_folder(NEW_FOLDER)
            for name, _ in files.list_folder(NEW_FOLDER):
                files.unlink(f"{NEW_FOLDER}/{name}")
        return lock

    def publish(self, topic: bytes, timestamp: int, manifest: Manifest, new: list[str]) -> None:
        """Give the files of a segment their names, its manifest last; all is durable then.

        Args:
            topic: name of the topic.
            timestamp: that of the segment.
            manifest: what the files hold, those that are new last.
            new: the present paths of these, below the archive.

        Raises:
            StorageFull, WriteFailed: no manifest was made, or the one before is still there.
        """
        folder = topic_folder(topic)
        path = manifest_path(topic, timestamp)
        new_files = manifest.files[len(manifest.files) - len(new) :]
        try:
            with writing(path):
                for new_path, file in zip(new, new_files, strict=True):
                    self.files.open(new_path, "r+").sync()
                    self._put(new_path, f"{folder}/{file.path}")
                self._write(manifest.encode(), path)
        except BaseException:
            with contextlib.suppress(PoeError):
                self._remove_unnamed(topic, timestamp, new_files)
            raise

    def _remove_unnamed(self, topic: bytes, timestamp: int, files: Iterable[ArchivedFile]) -> None:
        """Remove those of a segment's files that its manifest, if there is any, does not name."""
        manifest = self.manifest(topic, timestamp)
        named = set() if manifest is None else {each.path for each in manifest.files}
        for file in files:
            if file.path not in named:
                with contextlib.suppress(OSError):
                    self.files.unlink(f"{topic_folder(topic)}/{file.path}")

    def note_place(self, topic: bytes, place: ArchivedPlace) -> None:
        """Note which partition of which topic one is, if that is not known yet; durable then.

        Raises:
            StorageFull, WriteFailed: it cannot be noted.
            ReadFailed: what is noted cannot be read.
        """
        path = _place_path(topic)
        content = place.encode()
        if self._read(path) != content:
            with writing(path):
                self._write(content, path)

    def place(self, topic: bytes) -> ArchivedPlace | None:
        """Return which partition of which topic one is; None where nothing is noted of that.

        Raises:
            ReadFailed: what is noted cannot be read.
            FormatNotSupported: a newer version has written it.
        """
        path = _place_path(topic)
        content = self._read(path)
        return None if content is None else ArchivedPlace.decode(content, path)

    def partitions(self, topic: bytes) -> list[bytes]:
        """Return the archived partitions of a topic, by their numbers; itself where none is noted.

        One of which nothing is noted is its own, also where it was made anew with others.

        Raises:
            ReadFailed, FormatNotSupported: as `place`.
        """
        places = {each: self.place(each) for each in self.topics() if _may_be_of(each, topic)}
        found = [
            (at.partition if at else 0, each)
            for each, at in places.items()
            if (at.topic if at else each) == topic
        ]
        return [each for _, each in sorted(found)] or [topic]

    def _read(self, path: str) -> bytes | None:
        with reading(path):
            try:
                file = self.files.open(path, "r")
            except FileNotFoundError:
                return None
            return file.read_at(file.size(), 0)

    def _write(self, content: bytes, path: str) -> None:
        """Write a small file as a whole, durably."""
        new_path = f"{NEW_FOLDER}/{uuid4().hex}{_SUFFIX}"
        written = self.files.open(new_path, "x+")
        written.write_at(content, 0)
        written.sync()
        self._put(new_path, path)

    def _put(self, new_path: str, path: str) -> None:
        """Give a file that is durable its name, durably."""
        folders = path.split("/")[:-1]
        for depth in range(len(folders)):
            self.files.make_folder("/".join(folders[: depth + 1]))
            # Even where it was there: who made it may have been killed in between.
            self.files.sync_folder("/".join(folders[:depth]))
        self.files.rename(new_path, path)
        self.files.sync_folder("/".join(folders))

    def topics(self) -> list[bytes]:
        """Return the topics that have a folder, sorted.

        Raises:
            ReadFailed: the folder cannot be listed.
        """
        with reading(self.files.base):
            entries = self.files.list_folder("")
        names = [entry.name for entry in entries if entry.is_folder]
        stems = (n.removeprefix(_TOPIC_PREFIX) for n in names if n.startswith(_TOPIC_PREFIX))
        return sorted(topic for topic in map(topic_of, stems) if topic is not None)

    def manifest(self, topic: bytes, timestamp: int) -> Manifest | None:
        """Read the manifest of a segment; None where there is none.

        Raises:
            ReadFailed: it is there, and cannot be read.
            FormatNotSupported: a newer version has written it.
        """
        path = manifest_path(topic, timestamp)
        content = self._read(path)
        return None if content is None else Manifest.decode(content, path)

    def manifests(self, topic: bytes) -> Iterator[tuple[int, Manifest]]:
        """Read all manifests of a topic, with the timestamps of their segments, oldest first.

        Raises:
            ReadFailed: one cannot be read.
            FormatNotSupported: a newer version has written one.
        """
        folder = manifest_path(topic, 0).rpartition("/")[0]
        with reading(folder):
            try:
                names = [entry.name for entry in self.files.list_folder(folder)]
            except FileNotFoundError:
                return
        stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        for timestamp in sorted(int(stem) for stem in stems if stem.isdecimal()):
            found = self.manifest(topic, timestamp)
            if found is not None:
                yield timestamp, found


def _may_be_of(topic: bytes, holder: bytes) -> bool:
    """Return whether one may be a partition of another by its name."""
    part = partition_of(topic)
    return topic == holder or (part is not None and part[0] == holder)


def _place_path(topic: bytes) -> str:
    return f"{topic_folder(topic)}/{_PLACE_FILE}"


def _is_of_archive(entry: FolderEntry) -> bool:
    return entry.name.startswith((_TOPIC_PREFIX, "_"))


def topic_folder(topic: bytes) -> str:
    """Return where the archive keeps a topic.

    Raises:
        InvalidTopicName: it is empty or too long.
    """
    return _TOPIC_PREFIX + folder_name(topic, "escape")


def manifest_path(topic: bytes, timestamp: int) -> str:
    """Return where the manifest of a segment lies; raises as `topic_folder`."""
    return f"{topic_folder(topic)}/_manifest/{timestamp}{_SUFFIX}"


def file_path(date: str, timestamp: int, after: int = 0) -> str:
    """Return where the messages of a date lie, below the folder of their topic.

    Args:
        date: theirs.
        timestamp: of their segment.
        after: pointer up to which other files hold it; 0: it is new in the archive.
    """
    name = f"{timestamp}_{after}" if after else f"{timestamp}"
    return f"date={date}/{name}.parquet"
