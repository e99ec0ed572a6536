"""When a request is made again, how often, and what is done for it in between.

That is one whose appendix server has ended, or could open no more files.
"""

from poe.actors import KILLED, NOPROC, GenServer, is_orderly
from poe.actors.reason import is_word
from poe.broker.appendix.message import ReleaseFiles
from poe.broker.registry.routing_table import RoutingTable
from poe.errors import ActorDead

TRIES_MAX = 500
"""Tries of one request while an appendix server is being replaced, `RETRY_S` apart."""
RETRY_S = 0.01


def may_repeat(error: ActorDead, *, is_put: bool) -> bool:
    """Tell whether a request whose appendix server ended may be made again.

    One that was never there or was stopped in good order has not touched the request: it answers
    all that it began. One that was killed may have stored a put that waited for the disk. One that
    crashed may have done so because of the request, and its successor is not fed the same again.
    """
    reason = error.reason
    return is_word(reason, NOPROC) or is_orderly(reason) or (is_word(reason, KILLED) and not is_put)


async def release_files(actor: GenServer, routes: RoutingTable, *, is_urgent: bool) -> None:
    """Have segments let their files go, so that another try may succeed."""
    for _, route in routes:
        for ref in route.refs:
            actor.cast(ref, ReleaseFiles(is_urgent))
    await actor.sleep(RETRY_S)
