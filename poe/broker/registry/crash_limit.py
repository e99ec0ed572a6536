"""How often the writer of a topic may crash: one that goes on crashing gets a rest.

A producer that sends again what has crashed the writer would otherwise crash it for ever, and each
time the segment is repaired while all other topics wait. A writer that was killed, alone or with
its supervisor, has not crashed by what it was asked to store: the registry does not count it.
"""

import logging
from collections import deque

from poe.errors import TopicFailed

logger = logging.getLogger("poe.broker")

_RESTARTS_MAX = 5
_PERIOD_S = 60.0


class CrashLimit:
    """The last crashes of each topic's writer; owned by the topic registry.

    A topic may take messages unless its last `_RESTARTS_MAX` + 1 crashes lie within `_PERIOD_S`.
    """

    __slots__ = ("_crashed_at_s",)

    def __init__(self) -> None:
        self._crashed_at_s: dict[bytes, deque[float]] = {}

    def count(self, topic: bytes, now_s: float) -> None:
        """Count one more crash of a topic's writer."""
        crashed_at_s = self._crashed_at_s.setdefault(topic, deque(maxlen=_RESTARTS_MAX + 1))
        crashed_at_s.append(now_s)
        if not self.allows_puts(topic, now_s):
            logger.error("topic %r crashes too often; for a while it can only be read", topic)

    def allows_puts(self, topic: bytes, now_s: float) -> bool:
        """Return whether a topic may take messages."""
        return self._rest_s(topic, now_s) <= 0

    def check(self, topic: bytes, now_s: float) -> None:
        """Refuse messages for a topic that crashes too often.

        Raises:
            TopicFailed: it does; it says for how long.
        """
        if not self.allows_puts(topic, now_s):
            reason = (
                f"its writer crashed {_RESTARTS_MAX + 1} times within {_PERIOD_S:.0f} s; it can be "
                f"read, and takes messages again in {self._rest_s(topic, now_s):.0f} s"
            )
            raise TopicFailed(topic, reason)

    def _rest_s(self, topic: bytes, now_s: float) -> float:
        crashed_at_s = self._crashed_at_s.get(topic)
        if crashed_at_s is None or len(crashed_at_s) <= _RESTARTS_MAX:
            return 0.0
        return crashed_at_s[0] + _PERIOD_S - now_s
