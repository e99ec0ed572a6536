"""How many topics there may be, how fast they may come, and who makes them."""

from collections import deque

from poe.errors import Overloaded, TopicNotCreated
from poe.storage import Messages, PutKey, Store
from poe.storage.segment.producers import PINNED_PREFIX
from poe.topic_properties import is_reserved


class TopicQuota:
    """Counts the topics that are made; owned by the topic registry.

    Always: topics made in any second <= rate, where there is one.
    """

    __slots__ = ("_auto_create", "_made_at_s", "_rate", "_topics_max")

    def __init__(self, topics_max: int, rate: int | None, *, auto_create: bool) -> None:
        self._topics_max = topics_max
        self._rate = rate
        self._auto_create = auto_create
        self._made_at_s: deque[float] = deque()

    def admit(
        self,
        store: Store,
        topic: bytes,
        messages: Messages | None,
        now_s: float,
        put_id: PutKey | None = None,
    ) -> None:
        """Let one more topic be made beside those that there are, and count it.

        Where puts make none, they may still be the first onto a partition of one that was made.
        Those of mappings never do: these make topics before, with all that they are to have, and
        are to hear that one was deleted since.
        The node's own topics are made whenever they are needed.

        Raises:
            InvalidMessage: of what is put; the topic is not made.
            TopicNotCreated: puts make no topics.
            Overloaded: there are too many, or too many new ones.
            StorageFull: too little of the disk is free.
        """
        store.space.check(topic.decode("ascii", "backslashreplace"), now_s)
        if is_reserved(topic):
            return
        if messages is not None:
            store.check_sizes(messages)
            is_of_mapping = put_id is not None and put_id[0].startswith(PINNED_PREFIX)
            may_create = self._auto_create and not is_of_mapping
            if not may_create and store.properties.holder(topic) is None:
                raise TopicNotCreated(topic)
        described_count = store.properties.described_count
        topic_count = max(len(store.topics) + len(store.failed), described_count)
        if topic_count >= self._topics_max:
            raise Overloaded("topics_max", self._topics_max)
        if self._rate is None:
            return
        made_at_s = self._made_at_s
        while made_at_s and made_at_s[0] <= now_s - 1:
            made_at_s.popleft()
        if len(made_at_s) >= self._rate:
            raise Overloaded("topic_creation_rate", self._rate)
        made_at_s.append(now_s)
