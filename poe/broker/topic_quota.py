"""How many topics there may be, how fast they may come, and who makes them."""

from collections import deque

from poe.errors import Overloaded


class TopicQuota:
    """Counts the topics that are made; owned by the topic registry.

    Always: topics made in any second <= rate, where there is one.
    """

    __slots__ = ("_made_at_s", "_rate", "_topics_max")

    def __init__(self, topics_max: int, rate: int | None) -> None:
        self._topics_max = topics_max
        self._rate = rate
        self._made_at_s: deque[float] = deque()

    def count(self, topic_count: int, now_s: float) -> None:
        """Count one more topic beside those that there are.

        Raises:
            Overloaded: there are too many, or too many new ones.
        """
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
