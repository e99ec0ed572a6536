"""The control operations on topics as a whole: making, altering and describing them.

A description is made of what the store knows of the topic and of its segments; only who asks for
one has partitions woken that rest, whose ordinals nobody knows before. Only the topic registry
changes anything.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import islice
from typing import Any, Final

from poe.broker.registry.topic_registry import AdoptTopic, AlterTopic, CreateTopic, Delete, Trim
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.groups import GROUPS, ForgetUnits
from poe.broker.requests.listing import (
    TURN_COUNT,
    Page,
    SegmentRows,
    describe,
    may_tell,
    page_of,
    pages,
)
from poe.broker.requests.log_groups import forget_units
from poe.broker.requests.log_messages import LOGS, AlterLog, CreateLog, DeleteLog
from poe.broker.requests.logs import replicated_partitions, trim_log
from poe.broker.requests.queues import describe_queue
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    NoLogEngine,
    NotATopic,
    OptionError,
    PoeError,
    ReservedTopic,
    StorageError,
    UnknownTopic,
)
from poe.storage import POINTER_MAX, TopicDescriptions
from poe.topic_properties import TopicDescription, TopicProperties, is_reserved

_PAGE_COUNT: Final = 500
_PAUSE_S: Final = 0.001


async def topic_create(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Make a topic.

    Raises:
        PoeError: as `TopicDescriptions.create`, or that there are too many topics.
    """
    properties = TopicProperties.from_map(arguments.get("properties", {}))
    topic = _own_topic(handler, arguments)
    if properties.is_replicated:
        return await _told(handler, await _ask_logs(handler, CreateLog(topic, properties)))
    return await _changed(handler, CreateTopic(topic, properties))


async def topic_alter(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Change properties of a topic.

    Raises:
        PoeError: as `TopicDescriptions.alter`.
    """
    changes = arguments.get("properties", {})
    TopicProperties.from_map(changes)
    topic = _own_topic(handler, arguments)
    if replicated_partitions(handler, topic):
        return await _told(handler, await _ask_logs(handler, AlterLog(topic, changes)))
    return await _changed(handler, AlterTopic(topic, changes))


async def topic_adopt(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Take topics for the partitions of one.

    Raises:
        PoeError: as `TopicDescriptions.adopt`.
    """
    given = arguments.get("properties", {})
    properties = TopicProperties.from_map(given)
    if "partitions" in arguments:
        values = properties.as_map() | {"partitions": arguments["partitions"]}
        properties = TopicProperties.from_map(values)
    if properties.is_replicated:
        allowed = "1: what is here cannot be given to other nodes; make a topic, and copy onto it"
        raise OptionError("replicas", properties.replicas, allowed)
    return await _changed(handler, AdoptTopic(_own_topic(handler, arguments), properties))


async def describe_topic(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return what a topic has, and what its partitions hold; of a queue, what it has.

    Raises:
        UnknownTopic: there is none of that name.
        StorageError: it is out of service, and was never described.
    """
    topic = arg.topic(arguments)
    queue = await describe_queue(handler, arguments)
    if queue is not None:
        return queue
    description = _properties(handler, topic).of(topic)
    for each in description.partition_topics():
        with contextlib.suppress(StorageError):  # what is out of service is described as far as can
            await handler.recover(each)
    return await _told(handler, description)


async def topic_list(handler: RequestHandler, arguments: Arguments) -> dict[bytes, Any]:
    """Return the topics by name, sorted; the node's own with `all`, partitions never.

    With `brief` the names alone: descriptions of 10 000 topics take more than a second.
    """
    after, count, are_all = page_of(arguments)
    is_brief = arg.flag(arguments, "brief")
    told: dict[bytes, Any] = {}
    # Of names alone as many fit into a turn as into an answer.
    turn_count = _PAGE_COUNT if is_brief else TURN_COUNT
    async with aclosing(_names(handler, after, turn_count)) as found:
        async for names in found:
            for name in names:
                if len(told) >= count:
                    return told
                if (are_all or not is_reserved(name)) and may_tell(handler.permissions, name):
                    told[name] = {} if is_brief else _row(_properties(handler, name), name)
    return told


async def trim(handler: RequestHandler, arguments: Arguments) -> Any:  # noqa: ANN401 - a number
    """Delete segments with nothing behind a pointer; tell how many.

    Raises:
        UnknownTopic: there is no such topic.
        ReservedTopic: it is the node's own.
    """
    topic = _own_topic(handler, arguments)
    pointer = arg.whole(arguments, "pointer", POINTER_MAX)
    if replicated_partitions(handler, topic):
        return await trim_log(handler, topic, pointer)
    await handler.recover(topic)
    return await handler.ask_registry(Trim(topic, pointer))


async def delete(handler: RequestHandler, arguments: Arguments) -> None:
    """Delete a topic.

    Raises:
        UnknownTopic: there is no such topic.
        ReservedTopic: it is the node's own.
    """
    topic = _own_topic(handler, arguments)
    await handler.recover(topic)
    properties = handler.routes.properties
    described = None if properties is None else properties.find(topic)
    units = (topic,) if described is None else described.partition_topics()
    if described is not None and described.properties.is_replicated:
        await _ask_logs(handler, DeleteLog(topic))
    else:
        await handler.ask_registry(Delete(topic))
    # Another topic of that name is none on which the groups have been.
    await handler.actor.call(GROUPS, ForgetUnits(topic, units), timeout_s=None)
    if described is not None and described.properties.is_replicated:
        await forget_units(handler, topic, units)


async def _changed(
    handler: RequestHandler, request: CreateTopic | AlterTopic | AdoptTopic
) -> dict[str, Any]:
    return await _told(handler, await handler.ask_registry(request))


async def _told(handler: RequestHandler, description: TopicDescription) -> dict[str, Any]:
    rows = []
    for number, topic in enumerate(description.partition_topics(), 1):
        told = await describe(handler.actor, handler.routes, topic)
        rows.append(_partition_row(topic, told, handler.next_new_ordinal(topic)))
        if number % _PAGE_COUNT == 0:
            await handler.actor.sleep(_PAUSE_S)
    return description.as_map() | {"partitions": rows}


async def _ask_logs(handler: RequestHandler, request: CreateLog | AlterLog | DeleteLog) -> Any:  # noqa: ANN401 - as it answers
    """Ask the registry of replicated topics.

    Raises:
        NoLogEngine: this node has none.
    """
    if handler.routes.replicas is None:
        raise NoLogEngine
    return await handler.actor.call(LOGS, request, timeout_s=None)


def _partition_row(topic: bytes, rows: SegmentRows, next_ordinal: int) -> dict[str, Any]:
    """Return what a partition holds; its pointers are None as long as there is no message.

    `next_ordinal` is what the next one is not less than, of what is gone.
    """
    infos = [info for _, info in rows]
    held = [info for info in infos if info.count]
    are_known = all(info.base is not None for info in infos)
    if infos:
        next_ordinal = max(next_ordinal, (infos[-1].base or 0) + infos[-1].count)
    first_ordinal = held[0].base if held else next_ordinal
    return {
        "topic": topic,
        "oldest": held[0].pointer_low if held else None,
        "newest": held[-1].pointer_high if held else None,
        "first_ordinal": first_ordinal if are_known else None,
        "next_ordinal": next_ordinal if are_known else None,
        "messages": sum(info.count for info in infos),
        "bytes": sum(info.size_bytes for info in infos),
        "segments": len(infos),
        "roles": _roles_text(Counter(info.role for info in infos)),
    }


def _roles_text(counts: Counter[str]) -> str:
    return " ".join(f"{counts[role]} {role}" for role in "wrh" if counts[role])


async def _names(
    handler: RequestHandler, after: bytes, turn_count: int
) -> AsyncGenerator[Iterable[bytes], None]:
    """Yield all topics behind one, sorted, in parts: those with segments, and those without."""
    routes = handler.routes
    properties = _properties(handler, after)
    described = [each for each in properties.described() if each > after]
    at = 0
    asked = Page(after, are_all=True)
    async with aclosing(pages(handler.actor, routes, asked, turn_count)) as found:
        async for names in found:
            begin = at
            while at < len(described) and described[at] <= names[-1]:
                at += 1
            free = names
            if properties.described_count:  # else none is a partition of another
                free = [each for each in names if _is_own(properties, each)]
            yield sorted({*free, *described[begin:at]})
    while page := list(islice(described, at, at + _PAGE_COUNT)):
        at += len(page)
        yield page
        await handler.actor.sleep(_PAUSE_S)


def _is_own(properties: TopicDescriptions, topic: bytes) -> bool:
    """Return whether a topic is no partition of another."""
    holder = properties.holder(topic)
    return holder is None or holder.name == topic


def _row(properties: TopicDescriptions, topic: bytes) -> dict[str, Any]:
    try:
        told = properties.of(topic).as_map()
    except PoeError as error:  # out of service, or deleted just now
        return {"error": str(error)}
    del told["name"]
    return told


def _properties(handler: RequestHandler, topic: bytes) -> TopicDescriptions:
    properties = handler.routes.properties
    if properties is None:  # the node stops
        raise UnknownTopic(topic)
    return properties


def _own_topic(handler: RequestHandler, arguments: Arguments) -> bytes:
    """Return the name of a topic that clients may change.

    Raises:
        ReservedTopic: they may not.
        NotATopic: it is a queue.
    """
    topic = arg.topic(arguments)
    if is_reserved(topic):
        raise ReservedTopic(topic)
    if handler.routes.queue(topic) is not None:
        raise NotATopic(topic)
    return topic


TOPIC_OPERATIONS: Final = {
    "describe": describe_topic,
    "topic_create": topic_create,
    "topic_alter": topic_alter,
    "topic_adopt": topic_adopt,
    "topic_list": topic_list,
    "trim": trim,
    "delete": delete,
}
