"""Which groups of replicated topics a node has heard of; read without a message."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from poe.storage import TopicDescriptions

LOG_GROUPS_TOPIC: Final = b"poe.groups.replicated"
"""What is known of the groups; a replicated topic, which the first group makes."""


class LogGroupsTable:
    """Which groups of replicated topics this node has heard of, and whether it coordinates them.

    Any actor of the node may look. What it says of topics was true once; who coordinates says
    whether it still is.
    """

    __slots__ = ("_known", "_properties", "here")

    def __init__(self, properties: Callable[[], TopicDescriptions | None]) -> None:
        self._properties = properties
        self._known: dict[str, tuple[bytes, ...]] = {}
        self.here: Any = None
        """What answers for groups, where this node coordinates: a `Coordination`."""

    @property
    def are_any(self) -> bool:
        """Whether there is a log of such groups."""
        properties = self._properties()
        return properties is not None and properties.find(LOG_GROUPS_TOPIC) is not None

    def __contains__(self, group: str) -> bool:
        return group in self._known

    def topics(self, group: str) -> tuple[bytes, ...]:
        """Return the topics of a group; none of one that was not heard of."""
        return self._known.get(group, ())

    def rows(self) -> list[tuple[str, tuple[bytes, ...]]]:
        """Return all groups and their topics."""
        return sorted(self._known.items())

    def learn(self, group: str, topics: Iterable[bytes]) -> None:
        """Take the topics of a group."""
        self._known[group] = tuple(topics)

    def forget(self, group: str) -> None:
        """Note that there is no such group."""
        self._known.pop(group, None)

    def floor(self, group: str, topic: bytes) -> int | None:
        """Return up to where a group has read; only who coordinates knows it."""
        return None if self.here is None else self.here.floor(group, topic)
