"""Messages that are put later: what is asked of the actor that keeps them."""

from typing import Any, Final, NamedTuple

from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.retry import until_answered

DELAYER: Final = "delayer"
"""Name of the actor that puts messages when they are due."""


class PutLater(NamedTuple):
    """Asked of `DELAYER`: keep messages until they are due; answers how many wait then."""

    topic: bytes
    due_us: int
    messages: list[bytes]
    is_moved: bool = False
    """Whether they wait already, for another topic."""


async def put_later(
    handler: RequestHandler, topic: bytes, due_us: int, messages: list[bytes]
) -> dict[str, Any]:
    """Have messages put onto a topic or a queue at a time; at once where that is over.

    Raises:
        InvalidMessage: a message is too large; nothing is kept.
        Overloaded: too many wait already.
        StorageError: they could not be written down.
        ActorDead: who keeps them has ended before it answered; they may be put.
    """
    actor, later = handler.actor, PutLater(topic, due_us, messages)

    async def ask() -> Any:  # noqa: ANN401 - how many wait
        return await actor.call(DELAYER, later, timeout_s=None)

    waiting_count = await until_answered(actor, handler.routes, topic, ask, is_put=True)
    return {"due_us": due_us, "waiting": waiting_count}
