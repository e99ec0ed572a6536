"""Which topics there are, what they have, and who may make which: the rules of properties.

A topic that was made by a put is described by its segments alone. Topics that were described hold
their partitions together; what would make two topics share one is refused.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from poe.errors import (
    PropertyFixed,
    PropertyMismatch,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from poe.storage.store.property_file import (
    BEGUN,
    GONE,
    PropertyFile,
    PropertyNote,
    note_of,
)
from poe.storage.store.topic_table import TopicTable
from poe.topic_name import NamePolicy, folder_name
from poe.topic_properties import PARTITIONS_MAX, TopicDescription, TopicProperties

_log = logging.getLogger(__name__)


class TopicDescriptions:
    """The descriptions of the topics of one store, whose lock is held.

    Always: no topic is a partition of two; what was answered survives a power cut.
    """

    __slots__ = ("_file", "_names", "_topics", "changes_count")

    def __init__(self, file: PropertyFile, topics: TopicTable, names: NamePolicy) -> None:
        self._file = file
        self._topics = topics
        self._names = names
        self.changes_count = 0
        """How often something has changed."""

    def begin(self) -> None:
        """Forget when topics were made whose files somebody has removed: the next are others."""
        for topic in [each for each in self._file.known.begun if not self._is_there(each)]:
            try:
                self._file.change(PropertyNote(GONE, topic))
            except StorageError as error:
                _log.error("that topic %r is gone is not noted: %s", topic, error)

    def described(self) -> list[bytes]:
        """Return the topics that somebody has made, altered or adopted, sorted."""
        return sorted(self._file.known.described)

    @property
    def described_count(self) -> int:
        """How many these are."""
        return len(self._file.known.described)

    def holder(self, topic: bytes) -> TopicDescription | None:
        """Return the topic that was described and of which this one is a partition."""
        return self._file.known.holder(topic)

    def all_described(self) -> list[TopicDescription]:
        """Return what somebody has made, altered or adopted, in no order."""
        return list(self._file.known.described.values())

    def find(self, topic: bytes) -> TopicDescription | None:
        """Return the description of a topic that somebody has made, altered or adopted."""
        return self._file.known.described.get(topic)

    def check(self, topic: bytes) -> None:
        """Refuse to put onto a partition that its topic has not got.

        Raises:
            PropertyMismatch: it names the topic.
        """
        self._file.known.check(topic)

    def of(self, topic: bytes) -> TopicDescription:
        """Describe a topic; it is not woken.

        Raises:
            UnknownTopic: there is none of that name.
            StorageError: it is out of service, and was never described.
        """
        found = self._file.known.of(topic, self._first_us(topic))
        if found is not None:
            return found
        if topic in self._topics.failed:
            raise self._topics.failed[topic].with_traceback(None)
        raise UnknownTopic(topic)

    def create(self, topic: bytes, properties: TopicProperties, now_us: int) -> TopicDescription:
        """Make a topic; its partitions get their segments when something is put onto them.

        Args:
            topic: its name.
            properties: what it is to have.
            now_us: greater than all pointers that topics of this name ever had.

        Raises:
            TopicExists: it is there, or a topic that would be a partition of it.
            PropertyMismatch: its name is that of a partition, of which its topic has not so many.
            InvalidTopicName: its partitions cannot be folders.
            StorageFull, WriteFailed: it cannot be noted.
        """
        is_known = topic in self._file.known.described or self.holder(topic) is not None
        if is_known or self._is_there(topic):
            raise TopicExists(topic)
        self.check(topic)
        first_is_plain = properties.partitions == 1
        made = self._described(topic, now_us, properties, first_is_plain=first_is_plain)
        self._check_free(topic, made.partition_topics())
        return self._note(made)

    def alter(self, topic: bytes, changes: Mapping[str, Any]) -> TopicDescription:
        """Change properties of a topic, and return what it has then.

        Raises:
            UnknownTopic: there is none of that name.
            OptionError: a property that there is not, or a value that is not allowed.
            PropertyFixed: it cannot become that; also of a partition, which has its topic's.
            TopicExists: a new partition is a topic that is there.
            InvalidTopicName, StorageFull, WriteFailed: as `create`.
        """
        old = self.of(topic)
        holder = self.holder(topic)
        if holder is not None and holder.name != topic:
            name = next(iter(changes), "partitions")
            whose = f"that of {holder.name.decode(errors='backslashreplace')}"
            raise PropertyFixed(topic, name, whose, changes.get(name))
        new = old.altered(changes)
        if new is old:
            return old
        there = old.partition_topics()
        self._check_free(topic, new.partition_topics()[len(there) :])
        return self._note(new)

    def adopt(self, topic: bytes, properties: TopicProperties) -> TopicDescription:
        """Take topics that are there for the partitions of one, as clients have named them so far.

        Those of several are `t-0` to `t-(n-1)`, the only one is `t` itself.

        Raises:
            TopicExists: the topic was described already, or a partition was; or it is there, and
                would be none of several.
            UnknownTopic: none of its partitions is there.
            PropertyMismatch: there are more of them.
            InvalidTopicName, StorageFull, WriteFailed: as `create`.
        """
        count = properties.partitions
        draft = self._described(topic, 0, properties, first_is_plain=count == 1)
        parts = draft.partition_topics()
        for each in {topic, *parts}:
            holds = each in self._file.known.described or self.holder(each) is not None
            if holds or (each not in parts and self._is_there(each)):
                raise TopicExists(each)
        there = [each for each in parts if self._is_there(each)]
        if not there:
            raise UnknownTopic(topic)
        if count > 1:
            for number in range(PARTITIONS_MAX - 1, count - 1, -1):
                if self._is_there(b"%b-%d" % (topic, number)):
                    raise PropertyMismatch(topic, "partitions", count, number + 1)
        folder_name(max(parts, key=len), self._names)
        created_us = min(self.of(each).created_us for each in there)
        return self._note(self._described(topic, created_us, properties, first_is_plain=count == 1))

    def install(self, wanted: TopicDescription) -> TopicDescription:
        """Have a replicated topic be as its nodes have agreed on; again, it is as it was.

        Raises:
            TopicExists, InvalidTopicName: as `check_agreed`.
            StorageFull, WriteFailed: it cannot be noted.
        """
        self.check_agreed(wanted)
        return wanted if self.find(wanted.name) == wanted else self._note(wanted)

    def check_agreed(self, wanted: TopicDescription) -> None:
        """Refuse what nodes may agree on, or have agreed on, and cannot be here.

        Raises:
            TopicExists: there is another topic of that name, or one that would be a partition.
            InvalidTopicName: its partitions cannot be folders.
        """
        known = self.find(wanted.name)
        is_other = known is not None and known.id != wanted.id
        if is_other or (known is None and self._is_there(wanted.name)):
            raise TopicExists(wanted.name)
        there = () if known is None else known.partition_topics()
        parts = wanted.partition_topics()[len(there) :]
        if parts:
            self._check_free(wanted.name, parts)

    def delete(self, topic: bytes) -> None:
        """Forget what a topic has, once its messages are gone.

        Raises:
            StorageFull, WriteFailed: it cannot be noted.
        """
        if topic in self._file.known.described:
            self._file.change(PropertyNote(GONE, topic))
            self.changes_count += 1

    def note_begun(self, topic: bytes, removed_us: Collection[int]) -> None:
        """Note when a topic was made, if its oldest segment is about to be removed; see `sync`.

        Args:
            topic: its name.
            removed_us: what names the segments that go; where all do, so does the topic.

        Raises:
            StorageFull, WriteFailed: it cannot be noted.
        """
        known = self._file.known
        segments = self._topics.loaded.get(topic, [])
        if all(each.timestamp in removed_us for each in segments):
            if topic in known.begun and segments:
                self._file.note(PropertyNote(GONE, topic))
            return
        # Of a described name, too, there may be segments of its own: a power cut brings them back.
        is_described = topic in known.described or known.holder(topic) is not None
        is_told = topic in known.begun or is_described
        if segments[0].timestamp in removed_us and not is_told:
            self._file.note(PropertyNote(BEGUN, topic, segments[0].timestamp))

    def sync(self) -> None:
        """Make what was noted survive a power cut.

        Raises:
            StorageFull, WriteFailed: the disk did not take it.
        """
        self._file.sync()

    def _described(
        self, topic: bytes, created_us: int, properties: TopicProperties, *, first_is_plain: bool
    ) -> TopicDescription:
        own_id = self._file.known.id_of(topic, created_us, properties)
        return TopicDescription(
            topic, own_id, created_us, properties=properties, first_is_plain=first_is_plain
        )

    def _note(self, description: TopicDescription) -> TopicDescription:
        self._file.change(note_of(description))
        self.changes_count += 1
        return description

    def _check_free(self, topic: bytes, parts: tuple[bytes, ...]) -> None:
        """Refuse partitions that are topics of their own, or cannot be folders."""
        for each in parts:
            is_other = each != topic and each in self._file.known.described
            if is_other or self.holder(each) is not None or self._is_there(each):
                raise TopicExists(each)
        for each in parts[-1:]:
            folder_name(each, self._names)

    def _is_there(self, topic: bytes) -> bool:
        return topic in self._topics or topic in self._topics.failed

    def _first_us(self, topic: bytes) -> int | None:
        """Return what names the oldest segment of a topic: when that was made."""
        loaded = self._topics.loaded.get(topic)
        if loaded:
            return loaded[0].timestamp
        events = self._topics.resting.get(topic)
        return events[0].timestamp if events else None
