"""Turn a base folder into topics, each a list of segments, oldest first.

It makes and recovers what lies under `<base>/topics`, keeps a second server out by a lock on
`<base>/store.lock`, and hands out new segments whose pointers are greater than all before. What
does not look like a topic or a segment is left alone with a warning.

Layout:
    <base>/store.lock                   pid and boot of the server, under flock while it lives
    <base>/store.meta                   see store_meta.py
    <base>/store.removed                see removals.py
    <base>/store.reserve                see reserve.py
    <base>/store.bound                  see pointer_bound.py
    <base>/store.topics                 see property_file.py
    <base>/topics/<topic>/<µs>_data     and `_index`, `_sum`, `_seq`, `_lock`: see segment.py
    <base>/quarantine/                  what recovery has taken out of service
"""

import contextlib
import logging
import os
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

from poe.errors import (
    InvalidTopicName,
    NoDescriptors,
    OptionError,
    SegmentLocked,
    StorageError,
    TopicFailed,
)
from poe.storage.failure import as_storage_error, reading, writing
from poe.storage.files import Files, FolderEntry, OpenFile
from poe.storage.formats.record import Messages, check_sizes
from poe.storage.formats.store_meta import META_FILE, Kind, OpenState, StoreMeta
from poe.storage.recovery.quarantine import foreign_folders, foreign_text
from poe.storage.recovery.scrub import scrub
from poe.storage.segment.segment import Role, Segment
from poe.storage.segment.segment_files import SegmentFiles
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.shared_sync import SharedSync
from poe.storage.store.base_folder import open_base
from poe.storage.store.closing import close_together
from poe.storage.store.floors import Floors
from poe.storage.store.folder_watch import FolderWatch
from poe.storage.store.free_space import FreeSpace
from poe.storage.store.pointer_bound import PointerBound
from poe.storage.store.property_file import PROPERTY_FILE, PropertyFile
from poe.storage.store.removals import REMOVED_FILE, Removals, RemovedExtent, base_of
from poe.storage.store.reserve import Reserve
from poe.storage.store.rest import is_left_open, left_behind_events, note_rest, resting_events
from poe.storage.store.store_lock import lock_base, write_owner
from poe.storage.store.store_options import StoreOptions
from poe.storage.store.topic_descriptions import TopicDescriptions
from poe.storage.store.topic_folders import TOPICS_FOLDER, TopicFolders, segment_file
from poe.storage.store.topic_reader import TopicReader, note_lost, remove_folder
from poe.storage.store.topic_table import TopicTable
from poe.topic_name import NamePolicy, folder_bytes, topic_in
from poe.topic_properties import TopicDescription, TopicProperties

_log = logging.getLogger(__name__)

FEW_TOPICS = 250
"""So many topics are all read at a start, which then tells what is wrong with them."""


class Store:
    """The segments of all topics under one base folder; owns its lock.

    Always, for neighbours `a`, `b` in a list of segments that we made:

        a.timestamp < b.timestamp
        a.pointer_high < b.timestamp <= b.pointer_low

    One thread at a time may call it. After `open` all segments are hibernating readers, and all
    locks but the store's are gone. Topics that rest are read from their folders when they are
    looked up.
    """

    __slots__ = (
        "_files",
        "_floors",
        "_folders",
        "_lock",
        "_meta",
        "_options",
        "_reader",
        "bound",
        "failed",
        "properties",
        "removals",
        "reserve",
        "shared_sync",
        "space",
        "topics",
    )

    def __init__(
        self,
        files: Files,
        options: SegmentOptions,
        lock: OpenFile,
        meta: StoreMeta,
        asked: StoreOptions,
    ) -> None:
        """Stand for a locked base folder; use `open`."""
        self.removals = Removals(files, meta.store_id, is_after_power_cut=meta.is_after_power_cut)
        self.reserve = Reserve(files, asked.min_free)
        self.space = FreeSpace(files, asked.min_free, FolderWatch(files, lock))
        self.shared_sync = SharedSync(files)
        self.bound = PointerBound(
            files,
            meta.store_id,
            was_closed=meta.was_closed,
            is_after_power_cut=meta.is_after_power_cut,
        )
        self._files = files
        self._floors = Floors()
        self._folders = TopicFolders(files, options.names)
        self._lock: OpenFile | None = lock
        self._meta = meta
        self._options = options
        notes = PropertyFile(
            files,
            meta.store_id,
            was_closed=meta.was_closed,
            is_after_power_cut=meta.is_after_power_cut,
        )
        self._reader = TopicReader(
            files,
            self._folders,
            options,
            meta,
            self.reserve,
            self.removals,
            notes.known,
            self.bound.floor,
        )
        self.topics = TopicTable(self._reader.read)
        self.properties = TopicDescriptions(notes, self.topics, options.names)
        self.failed = self.topics.failed

    @classmethod
    def open(
        cls,
        base: Path | Files,
        options: SegmentOptions | None = None,
        store_options: StoreOptions | None = None,
    ) -> Self:
        """Lock a base folder, making it when missing, and recover all its topics.

        A topic whose files cannot be read or repaired stands in `failed` with its error, and not
        in `topics`; `recover_topic` tries again.

        Args:
            base: the folder, or a file layer that stands for it.
            options: how segments store messages.
            store_options: what is asked of the folder and its disk.

        Raises:
            OptionError: the folder cannot be made or written, or is not what was asked for.
            StoreLocked: another server runs on it.
            SegmentLocked: a live program that is not a server of ours writes to a segment.
            FormatNotSupported: a newer version has written the folder.
            NoDescriptors: the process may open no more files.
        """
        asked = store_options or StoreOptions()
        with _usable(base):
            files = open_base(base, asked)
            lock, owner = lock_base(files)
        store: Self | None = None
        try:
            with _usable(base):
                meta, is_known = _begin(files, owner)
                if files.make_folder(TOPICS_FOLDER):
                    files.sync_folder("")
                store = cls(files, options or SegmentOptions(), lock, meta, asked)
                names = files.list_folder(TOPICS_FOLDER)
                if not meta.was_closed:
                    # What recovery makes durable is of no use in a folder that has no name.
                    files.sync_folder(TOPICS_FOLDER)
            store._recover_topics(sorted(names), is_known=is_known)
            # Not before: should this start die, the next one comes after the same power cut.
            write_owner(lock, files.process_id, files.boot_id)
        except BaseException as error:
            if isinstance(error, SegmentLocked) and not meta.is_after_power_cut:
                # Else the next start comes after it, too.
                write_owner(lock, files.process_id, files.boot_id)
            if store is not None:
                store.reserve.release()
                store.leave()
            # Be it Ctrl-C: who keeps the error keeps the frames, and is not to keep the lock.
            for each in (error, error.__cause__):
                if each is not None:
                    traceback.clear_frames(each.__traceback__)
            del lock
            raise
        return store

    @property
    def names(self) -> NamePolicy:
        """Return the policy for names of topics."""
        return self._options.names

    def recover_topic(self, topic: bytes) -> None:
        """Read the segments of a topic from its folder.

        Must not be called while segments of the topic are in use.

        Raises:
            TopicFailed, SegmentLocked: as `TopicTable.recover`.
        """
        self._floors.lift(topic, self.last_pointer(topic))
        for segment in self.topics.loaded.pop(topic, ()):
            with contextlib.suppress(StorageError):  # its server may not have been able to
                segment.hibernate()
            segment.durability.leave()
        self.topics.recover(topic)
        segments = self.topics.loaded.get(topic)
        if segments:
            segments[-1].skip_to(self._floors.of(topic))

    def check_sizes(self, messages: Messages) -> None:
        """Refuse a batch that no segment would take.

        Raises:
            InvalidMessage: a message is empty or larger than `message_max`, or there is none.
        """
        check_sizes(messages, self._options.message_max)

    def last_pointer(self, topic: bytes) -> int:
        """Return what the next pointer of a topic must exceed, as far as it was looked up."""
        segments = self.topics.loaded.get(topic, ())
        removed = self.removals.newest(topic) or 0
        floor = max(self._floors.of(topic), removed, self.bound.floor)
        given = (max(segment.last_pointer, segment.given_pointer) for segment in segments)
        return max(floor, *given, 0)

    def next_ordinal(self, topic: bytes) -> int:
        """Return what the ordinals of a new segment begin at; of one that nobody looked up: 0."""
        segments = self.topics.loaded.get(topic, ())
        behind = segments[-1].next_ordinal if segments else 0
        return max(behind, self.removals.next_ordinal(topic))

    def create_segment(
        self,
        topic: bytes,
        now_us: int,
        *,
        after_failure: bool = False,
        agreed_base: int | None = None,
    ) -> Segment:
        """Add a segment to a topic, new or known, as its writer; the one before it is sealed first.

        When it raises, the topic may be left without a writer; the next call tries again. Nothing
        is left of a new topic. `after_failure`: the disk has failed the one before it. Where nodes
        have agreed on the topic, its time stamp is `now_us` itself, and its first record has the
        ordinal `agreed_base`, whatever was there before.

        Raises:
            InvalidTopicName: the topic cannot be a folder.
            StorageFull: no room.
            WriteFailed: another failure.
            TopicFailed: the topic is out of service, see `recover_topic`.
            TopicDamaged: with `recovery="strict"`, data of it was found to be damaged.
        """
        folder = self._folders.path_of(topic)
        options = self._reader.options_of(topic)
        self.space.measure()
        if topic in self.failed:
            raise self.failed[topic].with_traceback(None)
        segments = self.topics.get(topic, [])
        if segments:
            segments[-1].check_damage()
            segments[-1].seal()
        timestamp = now_us
        if agreed_base is None:
            timestamp = max(now_us, self.last_pointer(topic) + 1)
            if segments:
                # An empty segment has a name, but no pointer that keeps others from taking it.
                timestamp = max(timestamp, segments[-1].timestamp + 1)
        try:
            self._folders.make(folder)
            if agreed_base is not None and all(each.timestamp != timestamp for each in segments):
                self._remove_rest(folder, timestamp)
            place = self._files, folder, timestamp, options, self._meta
            before = segments[-1] if segments else None
            base = self.next_ordinal(topic) if agreed_base is None else agreed_base
            segment = Segment.create(*place, base=base, before=before, is_retry=after_failure)
            if base != (before.base + before.count if before else 0):
                # What is in front of it would not tell, should its own files lose that.
                self.removals.note_lost(topic, [base_of(timestamp, base)])
        except StorageError:
            if not segments:
                remove_folder(self._files, folder)
            raise
        self.topics[topic] = [*segments, segment]
        self.removals.note_back(topic)
        if agreed_base is not None:
            self.removals.settle(topic, {timestamp})  # a copy that is made anew has it again
        return segment

    def _remove_rest(self, folder: str, timestamp: int) -> None:
        """Remove files of a segment that the disk has kept from being removed, or from being made.

        Others get a new name. One that nodes have agreed on has the same again.
        """
        rest = SegmentFiles(self._files, f"{folder}/{timestamp}", self._meta)
        with writing(rest.path):
            is_there = self._files.size(rest.path + "_data") is not None
        if is_there or rest.is_being_removed():
            rest.remove()

    def repair_segment(self, topic: bytes, segment: Segment) -> Segment | None:
        """Recover a segment whose owner died, and put the result in its place.

        Returns:
            A hibernating reader, or None when its data file is gone, however often it is asked.

        Raises:
            StorageError: what waited cannot be written, or the files not be repaired.
        """
        others = self.topics.get(topic, [])
        if segment not in others:
            return None
        self._folders.sync()  # or what recovery makes durable has no name that lasts
        at = others.index(segment)
        if at:
            others[at - 1].close()  # what is repaired ends, as far as anybody can see, by itself
        segment.hibernate()
        segment.durability.leave()
        folder = segment.path.rpartition("/")[0]
        options = self._reader.options_of(topic)
        place = self._files, folder, segment.timestamp, options, self._meta
        repaired = Segment.open(*place, base=segment.base)
        given = max(segment.last_pointer, segment.given_pointer)
        if repaired is None:
            self._floors.lift(topic, given)
            ordinals = base_of(0, segment.next_ordinal)
            self.removals.note_lost(topic, [*_extents([segment]), ordinals])
        if repaired is not None:
            repaired.skip_to(given)
            repaired.come_behind(segment.first_damage)
            if at:
                repaired.follow(others[at - 1])
        self.topics[topic] = others[:at] + ([repaired] if repaired else []) + others[at + 1 :]
        return repaired

    def note_removal(self, topic: bytes, segments: Iterable[Segment]) -> None:
        """Note that segments are about to be destroyed; who destroys many syncs the notes once.

        The newest one, if it stays and goes by the receipts of one of them, gets its own.

        Raises:
            StorageFull, WriteFailed, ReadFailed: it cannot be noted.
        """
        going = list(segments)
        is_going = partial(self.removals.is_going, topic)
        loaded = self.topics.loaded.get(topic, [])
        # Looked up for each that stays, of 100,000 maybe.
        timestamps = {segment.timestamp for segment in going}
        # Of those that go one by one, all was noted when it was decided.
        if not all(map(is_going, timestamps)):
            removed_us = timestamps | {
                each.timestamp for each in loaded if is_going(each.timestamp)
            }
            self.reserve.use(partial(self.properties.note_begun, topic, removed_us))
        newest = loaded[-1].receipts if loaded and loaded[-1].timestamp not in timestamps else None
        if newest is not None and any(segment.path == newest.path for segment in going):
            self.reserve.use(loaded[-1].keep_receipts)
        extents = _extents(going)
        if extents and self.removals.are_known(topic, extents):
            return
        staying = [
            each
            for each in loaded
            if each.timestamp not in timestamps and not is_going(each.timestamp)
        ]
        bases = _bases_behind(going, staying)
        self.reserve.use(partial(self.removals.note, topic, extents + bases))

    def sync_notes(self) -> None:
        """Make what was noted of removals survive a power cut.

        Raises:
            StorageFull, WriteFailed: the disk did not take it; no segment may be destroyed.
        """
        self.properties.sync()
        self.removals.sync()

    def destroy_segment(self, topic: bytes, segment: Segment) -> None:
        """Remove a segment and its files, and the topic with its last one, once that is noted.

        Raises:
            StorageFull, WriteFailed: it cannot be noted, and stays; or a file cannot be removed.
        """
        self.note_removal(topic, [segment])
        self.sync_notes()
        self.removals.finish(topic, segment.timestamp)
        # Should the clock step back, the topic goes on behind its old pointers all the same.
        self._floors.lift(topic, max(segment.last_pointer, segment.given_pointer))
        self.topics[topic] = others = self.topics[topic].copy()
        others.remove(segment)
        if not others:
            del self.topics[topic]  # before what may fail: a topic always has a segment
        segment.destroy()
        if not others:
            self.removals.note_gone(topic)
            holder = self.properties.holder(topic)
            if holder is not None and holder.properties.is_replicated:
                # Back after a power cut, it would be a topic of this node alone.
                self.sync_removed(topic)
            remove_folder(self._files, self._folders.path_of(topic))

    def destroy_rest(self, topic: bytes, segment: Segment) -> None:
        """Remove files that were kept from being removed, and the folder of a topic that is gone.

        Raises:
            StorageFull, WriteFailed: one cannot be removed still.
        """
        segment.destroy()
        if topic not in self.topics and topic not in self.failed:
            self.removals.note_gone(topic)
            remove_folder(self._files, self._folders.path_of(topic))

    def sync_removed(self, topic: bytes) -> None:
        """Have what was removed of a topic stay away after a power cut; else it may be back.

        Raises:
            StorageFull, WriteFailed: the disk did not take it.
        """
        folder = self._folders.path_of(topic)
        with writing(folder):
            self._files.sync_folder(folder)

    def create_topic(
        self, topic: bytes, properties: TopicProperties, now_us: int
    ) -> TopicDescription:
        """Make a topic that has these properties; see `TopicDescriptions.create`."""
        self.space.measure()
        newest = max(self.last_pointer(topic), self.removals.newest(topic) or 0)
        return self.properties.create(topic, properties, max(now_us, newest + 1))

    def forget_topic(self, topic: bytes) -> None:
        """Forget what a topic has, all messages of which are deleted.

        Raises:
            StorageFull, WriteFailed: it cannot be noted.
            ReadFailed, NoDescriptors: it cannot be seen whether anything is left.
        """
        # The next one of that name gets another id, even should the clock step back.
        known = self.properties.of(topic)
        self._floors.lift(topic, known.created_us)
        if known.properties.is_replicated:
            for each in known.partition_topics():
                self._remove_all_rest(each)
        self.reserve.use(partial(self.properties.delete, topic))

    def _remove_all_rest(self, topic: bytes) -> None:
        """Remove files of segments that a topic without any has: the next start would find one."""
        folder = self._folders.path_of(topic)
        if topic in self.topics or topic in self.failed:
            return
        names: list[str] = []
        with reading(folder), contextlib.suppress(FileNotFoundError):
            names = [each.name for each in self._files.list_folder(folder)]
        found = {file[0] for name in names if (file := segment_file(name))}
        for timestamp in found:
            SegmentFiles(self._files, f"{folder}/{timestamp}", self._meta).remove()
        if found:
            self.sync_removed(topic)
            remove_folder(self._files, folder)

    def segment_options(self, topic: bytes) -> SegmentOptions:
        """Return how the segments of a topic store messages."""
        return self._reader.options_of(topic)

    def newest_pointer(self) -> int:
        """Return the greatest pointer of all topics; 0 where there is none."""
        loaded = max(map(self.last_pointer, self.topics.loaded), default=0)
        resting = (event for each in self.topics.resting.values() for event in each)
        return max(loaded, *(max(event.pointer_high, event.timestamp) for event in resting), 0)

    def left_open(self) -> list[bytes]:
        """Return the topics that a killed server left open, and that were not recovered yet."""
        return [topic for topic, events in self.topics.resting.items() if is_left_open(events)]

    def settle(self, topic: bytes) -> bool:
        """Recover a topic, no segment of which is in use, and have it rest, if that may be.

        Raises:
            TopicFailed: it cannot be read or repaired.
            SegmentLocked: a live program that is not a server of ours writes to it.
        """
        self.recover_topic(topic)
        segments = self.topics.loaded.get(topic)
        events = note_rest(self._files, self._meta, segments) if segments else None
        if events is None:
            return False
        del self.topics.loaded[topic]
        self.topics.resting[topic] = events
        return True

    def foreign(self) -> list[str]:
        """Return what in quarantine belongs elsewhere; none where the folder cannot be read."""
        with contextlib.suppress(OSError):
            return [foreign_text(*each) for each in foreign_folders(self._files)]
        return []

    def health(self) -> dict[str, Any]:
        """Return what is not as it should be: why nothing can be put, which files are foreign."""
        return {"refusal": str(self.space.gone() or ""), "foreign": self.foreign()}

    def closed_segments(self) -> list[str]:
        """Return the paths of all segments that are not written to, or not yet."""
        return [
            segment.path
            for segments in self.topics.loaded.values()
            for segment in segments
            if segment.role is not Role.WRITER
        ] + [
            f"{self._folders.path_of(topic)}/{event.timestamp}"
            for topic, events in self.topics.resting.items()
            for event in events
            if event.kind is Kind.SEAL
        ]

    def scrub(self, path: str) -> Iterator[int]:
        """Compare a closed segment with its sums, see `scrub.scrub`."""
        return scrub(self._files, path)

    def close(self) -> None:
        """Close all segments and release the lock; what cannot be closed is left to recovery."""
        topics = self.topics.loaded.values()
        segments = [segment for topic in topics for segment in topic]
        close_together(self.shared_sync, segments, self._meta, self._files.unlink_threads)
        for segment in segments:
            try:
                self.reserve.use(segment.close)
            except StorageError as error:
                _log.error("segment %s is not closed: %s", segment.path, error)
        with self._meta.together():
            for topic in topics:
                note_rest(self._files, self._meta, topic)
        self.reserve.release()
        # A change that was refused may lie there still, and what is not synced would be damage.
        for sync in (self.properties.sync, self.removals.sync):
            with contextlib.suppress(StorageError):
                sync()
        self._note_files()
        self._meta.close(is_whole=not self.left_open())
        self.bound.close()
        self.leave()

    def _note_files(self) -> None:
        """Have it known which files this run has made: the next start is to miss them."""
        known = self._meta.opened
        with contextlib.suppress(OSError):
            there = known._replace(
                has_notes=known.has_notes or self._files.size(REMOVED_FILE) is not None,
                has_properties=known.has_properties or self._files.size(PROPERTY_FILE) is not None,
            )
            if there != known:
                self._meta.note_opened(there)

    def leave(self) -> None:
        """Release the lock; of a store that was not closed, the next start finds out the rest."""
        self.space.leave()
        self._lock = None

    def _recover_topics(self, entries: list[FolderEntry], *, is_known: bool) -> None:
        """Recover all but those that rest; `is_known`: there are notes of all that was removed."""
        events = self._meta.by_folder()
        topics = self._folders.find(entries)
        for topic in topics:
            resting = None
            if len(topics) > FEW_TOPICS:
                with contextlib.suppress(InvalidTopicName):  # told by what follows
                    place = self._files, self._meta, self._folders.path_of(topic), events
                    resting = resting_events(*place)
                    if resting is None and is_known:
                        resting = left_behind_events(*place)
            # Notes of what is there after all are of a removal that was interrupted.
            if resting and not self.removals.is_noted(topic, {each.timestamp for each in resting}):
                self.topics.resting[topic] = resting
                continue
            with contextlib.suppress(TopicFailed):
                self.recover_topic(topic)
        known = {
            (folder_bytes(segment.path.split("/")[1]), segment.timestamp)
            for segments in self.topics.loaded.values()
            for segment in segments
        }
        # What is there, though it is not served now, keeps its events.
        unserved = self._folders.unserved([*self.failed, *self.topics.resting])
        known |= {key for key in self._meta.live if key[0] in unserved}
        begun_us = self._files.modified_us(META_FILE) or 0
        gone = self._meta.live.keys() - known
        removed = {key for key in gone if self._is_noted_as_removed(*key)}
        for lost in sorted(self._meta.keep_only(known, removed), key=lambda each: each.timestamp):
            note_lost(
                self.removals, lost, self.topics.loaded, begun_us, is_exact=self._meta.was_closed
            )
        unknown_high = max(begun_us, self.newest_pointer())
        is_noted = self.removals.begin(self.topics, unknown_high, is_known=is_known)
        if is_noted and not is_known:
            # Not before: had this start died, the next one would have taken it that all is known.
            has_notes = self.removals.unknown_high > 0
            opened = self._meta.opened._replace(notes_removals=True, has_notes=has_notes)
            self._meta.note_opened(opened)
        self.properties.begin()
        for told in self.foreign():
            _log.error("%s; put them where they belong, or remove them", told)

    def _is_noted_as_removed(self, folder: bytes, timestamp: int) -> bool:
        topic = topic_in(os.fsdecode(folder))
        return topic is not None and self.removals.has(topic, timestamp)


def _begin(files: Files, owner: str) -> tuple[StoreMeta, bool]:
    """Note that a server begins, and tell whether all that was removed so far was noted.

    `owner` is what the lock told of the server before.
    """
    is_this_boot = files.boot_id != "" and files.boot_id in owner
    # Where there are topics, the original has left them, without notes of what it has removed.
    is_empty = files.modified_us(TOPICS_FOLDER) is None
    meta = StoreMeta(files, os.urandom(16), OpenState(is_empty), is_same_boot=is_this_boot)
    if not meta.was_closed:
        when = "in this boot" if is_this_boot else "before a reboot"
        _log.warning("the last server on %s was not stopped, %s", files.base, when)
    _log.info("store %s in %s", meta.store_id.hex(), files.base)
    before = meta.opened
    has_notes = files.size(REMOVED_FILE) is not None
    has_properties = files.size(PROPERTY_FILE) is not None
    # A power cut takes the name of a file that nobody was told of yet.
    is_certain = meta.was_closed or is_this_boot
    if is_certain and before.has_properties and not has_properties:
        _log.error("%s is lost, and with it the properties of all topics", PROPERTY_FILE)
    is_known = before.notes_removals and before.has_notes <= has_notes
    opened = OpenState(is_known, has_notes, has_properties)
    meta.begin(opened, is_same_boot=is_this_boot)
    return meta, is_known


def _bases_behind(going: list[Segment], staying: list[Segment]) -> list[RemovedExtent]:
    """Return what is to be noted of the ordinals of a topic before segments of it go."""
    if not going:
        return []
    bases = []
    if staying:
        # The others are told theirs by it, should they not know.
        bases.append(base_of(staying[-1].timestamp, staying[-1].base))
    next_ordinal = max(segment.next_ordinal for segment in going)
    if not staying or staying[-1].base + staying[-1].count < next_ordinal:
        bases.append(base_of(0, next_ordinal))
    return bases


def _extents(segments: Iterable[Segment]) -> list[RemovedExtent]:
    """Return what segments hold, but for those that hold nothing."""
    return [
        RemovedExtent(segment.timestamp, segment.pointer_low, segment.last_pointer)
        for segment in segments
        if segment.pointer_low is not None
    ]


@contextlib.contextmanager
def _usable(base: Path | Files) -> Iterator[None]:
    """Say of what a base folder does not let be that another one is wanted."""
    try:
        yield
    except OSError as error:
        allowed = f"a folder that this user may write ({error.strerror or error})"
        folder = str(base) if isinstance(base, Path) else base.base
        failure = as_storage_error(error, folder)
        if isinstance(failure, NoDescriptors):
            raise failure from error
        raise OptionError(key="dir", value=folder, allowed=allowed) from error
