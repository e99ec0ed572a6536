"""What holds for the servers and the segments of a topic: its properties, else the node's options.

A pure look-up: nobody is told of a change here, the topic registry does that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from poe.broker.appendix.server import AppendixOptions, Configure
from poe.storage import Store
from poe.topic_properties import TopicProperties, is_reserved

_APPENDIX_NAMES = ("count_limit", "size_limit", "read")


@dataclass(frozen=True, slots=True)
class Retention:
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


class TopicSettings:
    """The settings of the topics of one store."""

    __slots__ = ("_appendix", "_endless", "_retention", "_store")

    def __init__(self, store: Store, appendix: AppendixOptions, retention: Retention) -> None:
        """Take the options of the node, which hold where a topic has no property of its own."""
        self._store = store
        self._appendix = appendix
        self._retention = retention
        self._endless = Retention()

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
        """Return how long the messages of a partition are kept.

        The node's own topics expire only as they say themselves.
        """
        node = self._endless if is_reserved(topic) else self._retention
        holder = self._store.properties.holder(topic)
        return node if holder is None else _merged(node, holder.properties)

    def retention_with(self, properties: TopicProperties) -> Retention:
        """Return how long messages would be kept with these properties."""
        return _merged(self._retention, properties)

    def retentions(self) -> list[Retention]:
        """Return all that there are."""
        return [self._retention, *(self.retention_with(each) for each in self._own())]

    def limited(self, topics: Iterable[bytes]) -> list[bytes]:
        """Return which of these partitions something may expire of, sorted."""
        if not self._retention.is_endless:
            return sorted(topics)
        return sorted({*topics}.intersection(self.limited_by_themselves()))

    def limited_by_themselves(self) -> Iterator[bytes]:
        """Yield the partitions of the topics that say themselves how long they are kept."""
        for each in self._store.properties.all_described():
            if each.properties.max_age is not None or each.properties.max_bytes is not None:
                yield from each.partition_topics()

    def _own(self) -> Iterator[TopicProperties]:
        return (each.properties for each in self._store.properties.all_described())


def _merged(node: Retention, own: TopicProperties) -> Retention:
    max_age_s = node.max_age_s if own.max_age is None else own.max_age
    max_bytes = node.max_bytes if own.max_bytes is None else own.max_bytes
    return Retention(
        None if max_age_s == "none" else max_age_s,
        None if max_bytes == "none" else max_bytes,
        own.keep_unread,
        own.keep_unread_bytes,
    )
