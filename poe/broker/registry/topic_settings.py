"""What holds for the servers and the segments of a topic: its properties, else the node's options.

A pure look-up: nobody is told of a change here, the topic registry does that.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from poe.broker.appendix.server import AppendixOptions, Configure
from poe.storage import Store
from poe.topic_properties import TopicDescription, TopicProperties, is_reserved

_APPENDIX_NAMES = ("count_limit", "size_limit", "read")


class Retention(NamedTuple):
    """How long the messages of a topic are kept, and how many."""

    max_age_s: float | None = None
    """None: for ever."""

    max_bytes: int | None = None
    """Of a partition; None sets no limit."""

    keep_unread: tuple[str, ...] = ()
    """Groups whose unread messages outlast that."""

    keep_unread_bytes: int | None = None
    """What a partition may have for their sake; None sets no limit."""

    @property
    def is_endless(self) -> bool:
        """Whether nothing ever goes by itself."""
        return self.max_age_s is None and self.max_bytes is None


_ENDLESS = Retention()


def retention_of(topic: bytes, holder: TopicDescription | None, node: Retention) -> Retention:
    """Return how long the messages of a partition are kept.

    The node's own topics expire only as they say themselves.

    Args:
        topic: its name.
        holder: the topic whose partition it is, where somebody has described that.
        node: how long they are kept where the topic does not say it.
    """
    kept = _ENDLESS if is_reserved(topic) else node
    return kept if holder is None else _merged(kept, holder.properties)


class TopicSettings:
    """The settings of the topics of one store."""

    __slots__ = ("_appendix", "_limited", "_looked_at", "_retention", "_store")

    def __init__(self, store: Store, appendix: AppendixOptions, retention: Retention) -> None:
        """Take the options of the node, which hold where a topic has no property of its own."""
        self._store = store
        self._appendix = appendix
        self._retention = retention
        self._limited: list[TopicDescription] = []
        self._looked_at = -1

    def appendix(self, topic: bytes) -> AppendixOptions:
        """Return the options of the appendix servers of a partition."""
        holder = self._store.properties.holder(topic)
        return self._appendix if holder is None else self.appendix_with(holder.properties)

    def appendix_with(self, properties: TopicProperties) -> AppendixOptions:
        """Return the options that servers would have with these properties.

        Raises:
            OptionError: they do not go with the node's options.
        """
        values = {name: getattr(properties, name) for name in _APPENDIX_NAMES}
        own = {name: value for name, value in values.items() if value is not None}
        return replace(self._appendix, **own) if own else self._appendix

    def is_replicated(self, topic: bytes) -> bool:
        """Return whether nodes of a cluster agree on a partition."""
        holder = self._store.properties.holder(topic)
        return holder is not None and holder.properties.is_replicated

    def change(self, topic: bytes) -> Configure:
        """Return what tells the servers of a partition of its settings."""
        return Configure(self.appendix(topic), self._store.segment_options(topic))

    def retention(self, topic: bytes) -> Retention:
        """Return how long the messages of a partition are kept."""
        return retention_of(topic, self._store.properties.holder(topic), self._retention)

    def retention_with(self, properties: TopicProperties) -> Retention:
        """Return how long messages would be kept with these properties."""
        return _merged(self._retention, properties)

    def retentions(self) -> list[Retention]:
        """Return all under which something may ever go."""
        own = (self.retention_with(each.properties) for each in self._limited_topics())
        return [self._retention, *own]

    def limited(self, topics: Collection[bytes]) -> list[bytes]:
        """Return which of these partitions something may expire of, sorted."""
        if not self._retention.is_endless:
            return sorted(topics)
        return sorted(self.limited_by_themselves(topics))

    def limited_by_themselves(self, topics: Collection[bytes]) -> list[bytes]:
        """Return which of these partitions are of topics that say how long they are kept.

        A topic costs as much as it has of these at most, not as it may have.
        """
        limited = self._limited_topics()
        if sum(each.properties.partitions for each in limited) <= len(topics):
            names = (name for each in limited for name in each.partition_topics())
            return [each for each in names if each in topics]
        holder = self._store.properties.holder
        holders = ((each, holder(each)) for each in topics) if limited else ()
        return [each for each, found in holders if found is not None and _is_limited(found)]

    def _limited_topics(self) -> list[TopicDescription]:
        """Return the topics that say how long they are kept."""
        properties = self._store.properties
        if properties.changes_count != self._looked_at:
            self._limited = [each for each in properties.all_described() if _is_limited(each)]
            self._looked_at = properties.changes_count
        return self._limited


def _is_limited(topic: TopicDescription) -> bool:
    return topic.properties.max_age is not None or topic.properties.max_bytes is not None


def _merged(node: Retention, own: TopicProperties) -> Retention:
    max_age_s = node.max_age_s if own.max_age is None else own.max_age
    max_bytes = node.max_bytes if own.max_bytes is None else own.max_bytes
    return Retention(
        None if max_age_s == "none" else max_age_s,
        None if max_bytes == "none" else max_bytes,
        own.keep_unread,
        own.keep_unread_bytes,
    )
