"""Makes what was acknowledged durable when somebody asks for it, on one topic or on all."""

from poe.actors import GenServer
from poe.broker.appendix.message import Sync
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.retry import RETRY_S, TRIES_MAX, may_repeat, release_files
from poe.errors import ActorDead, NoDescriptors, PoeError, TopicUnavailable


async def sync_topics(
    actor: GenServer, routes: RoutingTable, wanted: bytes | None, timeout_s: float | None
) -> None:
    """Sync a topic, or all, whatever becomes of one, on behalf of `actor`.

    Raises:
        PoeError: what the first one failed of.
        NoDescriptors: a segment could not be opened for 5 s.
        TopicUnavailable: a segment had no appendix server for 5 s.
    """
    for attempt in range(TRIES_MAX):
        try:
            await _sync_once(actor, routes, wanted, timeout_s)
        except ActorDead as error:
            # What was acknowledged is the next server's to sync, or is gone with its segment.
            if not may_repeat(error, is_put=False):
                raise
            await actor.sleep(RETRY_S)
        except NoDescriptors:
            # There may be more segments than files: those that are synced let theirs go.
            if attempt == TRIES_MAX - 1:
                raise
            await release_files(actor, routes, is_urgent=True)
        else:
            return
    raise TopicUnavailable(wanted or b"", TRIES_MAX * RETRY_S)


async def _sync_once(
    actor: GenServer, routes: RoutingTable, wanted: bytes | None, timeout_s: float | None
) -> None:
    # All at once: the disk serves them together, and the slowest one sets the time.
    syncs = [
        [actor.call(ref, Sync(), timeout_s=timeout_s) for ref in route.refs]
        for topic, route in routes
        if wanted in (None, topic)
    ]
    first_error: PoeError | None = None
    for calls in syncs:
        try:
            for call in calls:
                await call
        except NoDescriptors as error:
            first_error = first_error or error
        except PoeError as error:
            if first_error is None or isinstance(first_error, NoDescriptors):
                first_error = error
    if first_error is not None:
        raise first_error
