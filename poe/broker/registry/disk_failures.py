"""Which topics take no messages because their disk has failed, and when that is tried again."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from poe.errors import ActorError, ChildStartFailed, NoDescriptors, StorageError, TopicReadOnly
from poe.storage import Segment
from poe.supervision.event_ring import EventRing
from poe.topic_name import topic_text

_TELLER = "topic_registry"

logger = logging.getLogger("poe.broker")

RETRY_S = 1.0
"""Between two tries to give a topic a new segment."""


class DiskFailures:
    """Paces the tries to go on after a failing disk, each topic's; owned by the topic registry.

    Always: tries of a topic begin `RETRY_S` or more apart.
    """

    __slots__ = ("_events", "_monotonic_s", "_next_try_s", "_read_only")

    def __init__(
        self, read_only: dict[bytes, str], monotonic_s: Callable[[], float], events: EventRing
    ) -> None:
        """Begin with no failure; what is read-only, and why, is told in the table."""
        self._events = events
        self._monotonic_s = monotonic_s
        self._next_try_s: dict[bytes, float] = {}
        self._read_only = read_only
        read_only.clear()

    @contextmanager
    def trying(self, topic: bytes, reason: str) -> Iterator[None]:
        """Let the block give a topic a new segment, since the disk has failed the one that it has.

        Raises:
            TopicReadOnly: the block failed, or it is too early to run it.
            NoDescriptors: the block met that, which is no failure of the disk.
        """
        now_s = self._monotonic_s()
        if now_s < self._next_try_s.get(topic, now_s):
            raise self._refusal(topic, reason)
        self._next_try_s[topic] = now_s + RETRY_S
        try:
            yield
        except NoDescriptors:
            del self._next_try_s[topic]
            raise
        except (StorageError, ActorError, ChildStartFailed) as error:
            raise self._refusal(topic, str(error)) from error
        self.end(topic)

    def unseal(self, topic: bytes, newest: Segment) -> None:
        """Let a topic that was recovered take messages, if the disk lets its newest segment.

        Without room for a lock file it can be read all the same; the next put tries again.
        """
        try:
            newest.unseal()
        except StorageError as error:
            logger.error("topic %r takes no messages for now: %s", topic, error)
        else:
            self.end(topic)

    def end(self, topic: bytes) -> None:
        """Note that a topic takes messages, be it that it has not failed or does so no more."""
        if self._read_only.pop(topic, None) is not None:
            logger.warning("topic %r takes messages again", topic)
            self._events.add("topic_writable", supervisor=_TELLER, child=topic_text(topic))

    def _refusal(self, topic: bytes, reason: str) -> TopicReadOnly:
        refusal = TopicReadOnly(topic, reason)
        if topic not in self._read_only:
            logger.error("%s", refusal)
            child = topic_text(topic)
            self._events.add("topic_read_only", supervisor=_TELLER, child=child, reason=reason)
        self._read_only[topic] = reason
        return refusal
