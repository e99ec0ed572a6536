"""When a request is made again, how often, and what is done for it in between.

That is one whose appendix server has moved, has ended, or could open no more files.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

from poe.actors import KILLED, NOPROC, GenServer, is_orderly
from poe.actors.reason import is_word
from poe.broker.appendix.message import MOVED, ReleaseFiles
from poe.broker.registry.routing_table import RoutingTable
from poe.errors import ActorDead, NoDescriptors, TopicUnavailable

TRIES_MAX = 500
"""Tries of one request while an appendix server is being replaced, `RETRY_S` apart."""
RETRY_S = 0.01
RELEASES_MAX = 3
"""How often files are let go of for a request of one segment."""
_WAITS_MAX = 25
_WAIT_S = 0.1
"""Then it waits for two seconds and a half: of topics that are made faster than they are synced
none can let its files go, but each does so once it is synced and rests."""


def may_repeat(error: ActorDead, *, is_put: bool) -> bool:
    """Return whether a request whose appendix server ended may be made again.

    One that was never there or was stopped in good order has not touched the request: it answers
    all that it began. One that was killed may have stored a put that waited for the disk. One that
    crashed may have done so because of the request, and its successor is not fed the same again.
    """
    reason = error.reason
    return is_word(reason, NOPROC) or is_orderly(reason) or (is_word(reason, KILLED) and not is_put)


async def until_answered(  # noqa: PLR0913 - a request, and who makes it
    actor: GenServer,
    routes: RoutingTable,
    topic: bytes,
    ask: Callable[[], Awaitable[Any]],
    *,
    is_put: bool = False,
    releases_max: int = RELEASES_MAX,
) -> Any:  # noqa: ANN401 - whatever it is answered
    """Make a request until it is answered, the first time again at once; then `RETRY_S` apart.

    Args:
        actor: on behalf of whom.
        routes: whose files are let go of where one could not be opened.
        topic: that the error names.
        ask: makes it once; returns `MOVED` when somebody else must be asked.
        is_put: whether it must not be stored twice.
        releases_max: how often files are let go of.

    Raises:
        ActorDead: who was asked has ended, and may have done it.
        NoDescriptors: no file could be opened though others were let go of.
        TopicUnavailable: nobody answered for 5 s.
    """
    for attempt in range(TRIES_MAX):
        if attempt > 1:
            await actor.sleep(RETRY_S)
        try:
            answer = await ask()
        except ActorDead as error:
            if not may_repeat(error, is_put=is_put):
                raise
        except NoDescriptors:
            if attempt >= min(releases_max + _WAITS_MAX, TRIES_MAX - 1):
                raise
            if attempt < releases_max:
                _release_files(actor, routes, is_urgent=attempt > 0)
            await actor.sleep(RETRY_S if attempt < releases_max else _WAIT_S)
        else:
            if answer is not MOVED:
                return answer
    raise TopicUnavailable(topic, TRIES_MAX * RETRY_S)


def _release_files(actor: GenServer, routes: RoutingTable, *, is_urgent: bool) -> None:
    """Have segments let their files go, so that another try may succeed.

    Once for all requests that want it at a time: where each of them asked all segments, 60 clients
    of 3,000 topics kept everybody waiting for five seconds.
    """
    now_s = actor.monotonic_s()
    if now_s < routes.released_s.get(is_urgent, -math.inf) + RETRY_S:
        return
    routes.released_s[is_urgent] = now_s
    for _, route in routes.sorted_items():
        for ref in route.refs:
            actor.cast(ref, ReleaseFiles(is_urgent))
