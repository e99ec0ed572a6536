"""The segments of topics by name, each read from its folder when it is asked for first.

A start with many topics would wait for the folders of all of them. A topic that rests, as the store
has noted of it, is known by its events alone until somebody wants it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping

from poe.errors import PoeError, SegmentLocked, StorageError, TopicFailed
from poe.storage.formats.store_meta import Event
from poe.storage.segment.segment import Segment

_log = logging.getLogger(__name__)


class TopicTable(MutableMapping[bytes, list[Segment]]):
    """All topics that can be served; to look one up reads its folder, if nobody did before.

    Always: no topic is in two of `loaded`, `resting` and `failed`, the latter is not served.
    """

    __slots__ = ("_read", "failed", "loaded", "resting")

    def __init__(self, read: Callable[[bytes, Iterable[Event]], list[Segment]]) -> None:
        """Begin with none; `read` reads one, of which there are these events, from its folder."""
        self._read = read
        self.loaded: dict[bytes, list[Segment]] = {}
        self.resting: dict[bytes, tuple[Event, ...]] = {}
        """The events of the segments of each topic that nobody has asked for, oldest first."""
        self.failed: dict[bytes, StorageError] = {}
        """Why each of the topics that cannot be read is not served."""

    def __getitem__(self, topic: bytes) -> list[Segment]:
        """Return the segments of a topic.

        Raises:
            KeyError: there is none.
            StorageError: it cannot be read or repaired.
        """
        if topic in self.resting:
            self.recover(topic)
        return self.loaded[topic]

    def recover(self, topic: bytes) -> None:
        """Read the segments of a topic from its folder; those that were there have left it.

        Raises:
            TopicFailed: it cannot be read or repaired, as `failed` tells from now on.
            SegmentLocked: a live program that is not a server of ours writes to it.
        """
        resting = self.resting.pop(topic, None)
        try:
            segments = self._read(topic, resting or ())
        except SegmentLocked:
            if resting is not None:
                self.resting[topic] = resting
            raise
        except StorageError as error:
            raise self.fail(topic, error) from error
        self.failed.pop(topic, None)
        if segments:
            self.loaded[topic] = segments

    def fail(self, topic: bytes, error: PoeError) -> TopicFailed:
        """Note why a topic cannot be served, and return that; each request for it tries again."""
        # Not the one that is raised: its traceback refers to frames, and so keeps files open.
        self.failed[topic] = TopicFailed(topic, str(error))
        _log.error("%s", self.failed[topic])
        return TopicFailed(topic, str(error))

    def __setitem__(self, topic: bytes, segments: list[Segment]) -> None:
        self.resting.pop(topic, None)
        self.loaded[topic] = segments

    def __delitem__(self, topic: bytes) -> None:
        del self.loaded[topic]

    def __contains__(self, topic: object) -> bool:
        return topic in self.loaded or topic in self.resting

    def __iter__(self) -> Iterator[bytes]:
        yield from list(self.loaded)
        yield from list(self.resting)

    def __len__(self) -> int:
        return len(self.loaded) + len(self.resting)
