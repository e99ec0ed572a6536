"""The control operation of messages that are put later."""

from dataclasses import dataclass
from typing import Any, Final

from poe.broker.access.permission import Need, check
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.retry import until_answered
from poe.errors import RemoteProtocolError, ReservedTopic
from poe.errors.short_text import short_repr
from poe.storage import POINTER_MAX
from poe.topic_name import folder_name
from poe.topic_properties import is_reserved

DELAYER: Final = "delayer"
"""Name of the actor that puts messages when they are due."""


@dataclass(frozen=True, slots=True)
class PutLater:
    """Asked of `DELAYER`: keep messages until they are due; answers how many wait then."""

    topic: bytes
    due_us: int
    messages: list[bytes]


async def queue_put(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Have messages put onto a topic at a time; at once where that is over.

    Raises:
        RemoteProtocolError: a missing or wrong argument.
        NotAuthorized: it would have to be made, and who asks may not do so.
        InvalidTopicName, PropertyMismatch, ReservedTopic: nobody can put anything onto it.
        InvalidMessage: a message is too large; nothing is kept.
        Overloaded: too many wait already.
        StorageError: they could not be written down.
        ActorDead: who keeps them has ended before it answered; they may be put.
    """
    actor, routes = handler.actor, handler.routes
    topic = arg.topic(arguments)
    if is_reserved(topic):
        raise ReservedTopic(topic)
    if routes.get(topic) is None:
        folder_name(topic, routes.names)
        if not (routes.check_partition(topic) or routes.is_without_route(topic)):
            check(handler.permissions, [Need.of_topic("create", topic)])
    due_us = arg.whole(arguments, "due_us", POINTER_MAX)
    later = PutLater(topic, due_us, _messages(arguments))
    handler.permissions.wrote(sum(map(len, later.messages)))

    async def ask() -> Any:  # noqa: ANN401 - how many wait
        return await actor.call(DELAYER, later, timeout_s=None)

    waiting_count = await until_answered(actor, routes, topic, ask, is_put=True)
    return {"due_us": due_us, "waiting": waiting_count}


def _messages(arguments: Arguments) -> list[bytes]:
    messages = arguments.get("messages")
    if not isinstance(messages, list) or set(map(type, messages)) != {bytes} or not all(messages):
        told = short_repr(messages)
        msg = f"argument messages is {told:.80}; send an array of 1 message or more, none empty"
        raise RemoteProtocolError(msg)
    return messages
