"""How the end of a producer's `with` block differs from `close`: nobody gets what that returns."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from poe.client.producer.topic_info import TopicState, Undelivered
from poe.client.producer.topic_queues import TopicQueues
from poe.errors.short_text import short_repr

_log = logging.getLogger(__name__)


def patience_s(error: BaseException | None, topics: Iterable[TopicQueues]) -> float | None:
    """Return how long the end of a block waits that was left by an error, if any.

    Who presses Ctrl-C while no broker can be reached is not kept waiting for one. None stands for
    `close_timeout_s`.
    """
    is_interrupt = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
    is_ready = all(topic.state is TopicState.READY for topic in topics)
    return 0.0 if is_interrupt and not is_ready else None


def log_undelivered(undelivered: Iterable[Undelivered]) -> None:
    """Tell the log, by topic, of messages that nobody else will hear of."""
    counts: Counter[bytes] = Counter()
    for each in undelivered:
        counts[each.topic] += len(each.messages)
    for topic, count in counts.items():
        _log.error("topic %s: %d messages were not delivered", short_repr(topic), count)
