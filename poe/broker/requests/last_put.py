"""Tells how far a producer came on a topic, by its writer, which alone knows."""

from poe.actors import GenServer
from poe.broker.appendix.message import MOVED, FindLastPut
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.registry.topic_registry import EnsureWriter
from poe.broker.requests.retry import RETRY_S, TRIES_MAX, may_repeat
from poe.errors import ActorDead, TopicUnavailable
from poe.storage import LastPut


async def find_last_put(
    actor: GenServer, routes: RoutingTable, topic: bytes, producer: bytes, timeout_s: float | None
) -> LastPut | None:
    """Tell the newest sequenced put of a producer that a topic has, on behalf of `actor`.

    None where it has none, or nobody has put anything onto it. With `ack="fsync"` it is durable.

    Raises:
        StorageError: the topic takes no puts.
        TopicUnavailable: it had no writer for 5 s.
        CallTimeout: the disk has not taken it in time.
    """
    if routes.is_without_route(topic):
        await actor.call(REGISTRY, EnsureWriter(topic), timeout_s=timeout_s)
    for _ in range(TRIES_MAX):
        route = routes.get(topic)
        if route is None:
            return None
        try:
            found = await actor.call(route.writer, FindLastPut(producer), timeout_s=timeout_s)
        except ActorDead as error:
            if not may_repeat(error, is_put=False):
                raise
        else:
            if found is not MOVED:
                return found  # type: ignore[no-any-return]  # a reply to FindLastPut
            await actor.call(REGISTRY, EnsureWriter(topic), timeout_s=timeout_s)
        await actor.sleep(RETRY_S)
    raise TopicUnavailable(topic, TRIES_MAX * RETRY_S)
