"""The control operations of queues, and of the cluster whose nodes hold them.

A queue across nodes is looked for among those of the cluster. Where there is none of its name but a
topic of this node's own, that is put onto: it is a queue of one node.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from poe.broker.access.permission import Need, check
from poe.broker.registry.queue_table import QueueTable
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.delayed import put_later
from poe.broker.requests.listing import may_tell
from poe.broker.requests.log_messages import LOGS, ForgetLogNode, MoveLog
from poe.broker.requests.logs import replicated_partitions
from poe.broker.requests.queue_messages import (
    QUEUES,
    Browsed,
    BrowseQueue,
    ClusterRequest,
    DeleteQueue,
    DescribeQueue,
    FindQueue,
    ListQueues,
    QueueStored,
)
from poe.broker.requests.request_handler import QUEUE_PUT_S, WAIT_MAX_S, RequestHandler
from poe.broker.requests.retry import until_answered
from poe.errors import (
    CopyNotReached,
    NoLogEngine,
    NoQuorum,
    NotAQueue,
    NotInCluster,
    PoeError,
    QueueMismatch,
    RemoteProtocolError,
    ReservedTopic,
    TopicExists,
    UnknownNode,
    UnknownQueue,
    UnknownTopic,
)
from poe.errors.short_text import short_repr
from poe.protocol import IndexedRecords
from poe.protocol.maps import take_text
from poe.storage import POINTER_MAX, Messages
from poe.topic_name import folder_name
from poe.topic_properties import is_reserved

_COPIES_MAX: Final = 64
_BROWSED_MAX: Final = 1000
_BROWSED_BYTES_MAX: Final = 1 << 20
_PROPERTIES: Final = ("copies", "persist", "bytes_max", "messages_max", "on_full")


async def put_onto(
    handler: RequestHandler, name: bytes, messages: Messages, copies: int, deadline_s: float
) -> QueueStored:
    """Put messages onto a queue, which is made where there is none; or onto the node's own topic.

    `copies` 0 are as many as the queue has; `deadline_s` 0 is as long as a put looks for nodes.

    Raises:
        NotAuthorized: it would have to be made, and who asks may not do so.
        InvalidTopicName, PropertyMismatch, ReservedTopic: nobody can put anything onto it.
        NotInCluster, NotAQueue: several copies of it cannot be had here.
        TooFewNodes, QueueBusy, InvalidMessage: nothing is stored.
        UnderCopies: it is stored on fewer nodes than was asked for.
        PutUnconfirmed: nobody who was asked to hold it has said so in time; it may be stored.
        PoeError: as a put onto a topic.
    """
    if is_reserved(name):
        raise ReservedTopic(name)
    if _is_queue(handler, name):
        await _ensure(handler, name, copies)
        return await handler.put_onto_queue(
            name, messages, copies or None, deadline_s or QUEUE_PUT_S
        )
    if copies > 1:
        raise _no_copies(handler, name)
    return QueueStored(await handler.put(name, messages), 1)


async def queue_put(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Put messages onto a queue, as `put_onto`; later, where a time is told.

    What is put later goes onto what is called so then; `queue` has a queue made now.

    Raises:
        RemoteProtocolError: a missing or wrong argument.
        QueueMismatch: it is put later, and the queue has other copies than are asked for.
        Overloaded: too many wait already.
        StorageError: they could not be written down.
        ActorDead: who was to keep them has ended before it answered; they may be put.
        PoeError: as `put_onto`.
    """
    routes, topic = handler.routes, _name(arguments)
    messages, copies = _messages(arguments), _copies(arguments)
    if arguments.get("due_us") is None and (routes.queues is not None or copies):
        deadline_s = 0.0
        if "deadline_s" in arguments:
            deadline_s = float(arg.number(arguments, "deadline_s", WAIT_MAX_S))
        handler.permissions.wrote(sum(map(len, messages)))
        return (await put_onto(handler, topic, messages, copies, deadline_s))._asdict()
    due_us = arg.whole(arguments, "due_us", POINTER_MAX)
    is_queue = _is_queue(handler, topic)
    if is_queue and (arg.flag(arguments, "queue") or routes.queue(topic) is not None):
        await _ensure(handler, topic, copies)
        if copies:  # what is put later is on as many nodes as the queue says
            await handler.actor.call(QUEUES, FindQueue(topic, {"copies": copies}), timeout_s=None)
    elif copies > 1:
        raise _no_copies(handler, topic)
    elif routes.get(topic) is None and routes.queue(topic) is None:
        folder_name(topic, routes.names)
        if not (routes.check_partition(topic) or routes.is_without_route(topic)):
            check(handler.permissions, [Need.of_topic("create", topic)])
    handler.permissions.wrote(sum(map(len, messages)))
    return await put_later(handler, topic, due_us, messages)


def _is_queue(handler: RequestHandler, name: bytes) -> bool:
    """Return whether what is put onto a name as onto a queue goes to the cluster."""
    return handler.routes.queues is not None and not handler.routes.is_topic(name)


def _no_copies(handler: RequestHandler, name: bytes) -> PoeError:
    return NotInCluster() if handler.routes.queues is None else NotAQueue(name)


async def describe_queue(handler: RequestHandler, arguments: Arguments) -> dict[str, Any] | None:
    """Describe a queue as if it were a topic; None where this name is not that of one.

    With `queue` one that there is not yet is described, too, by an empty map.
    """
    routes, name = handler.routes, arg.topic(arguments)
    if routes.queues is None or routes.is_topic(name) or is_reserved(name):
        return None
    told: dict[str, Any] = {}
    if name in routes.queues:
        told = _told(handler, await _ask(handler, name, DescribeQueue()))
    elif not arg.flag(arguments, "queue"):
        return None
    created_us = told.get("created_us", 0)
    row = {"name": name, "id": b"", "created_us": created_us, "version": 0}
    return {**row, "properties": {}, "partitions": [], "queue": told}


async def _queues(handler: RequestHandler, _: Arguments) -> list[dict[str, Any]]:
    """Return what there is of queues, sorted by name, of those that who asks may know of."""
    _table(handler)
    rows = await handler.actor.call(QUEUES, ListQueues(), timeout_s=None)
    return [_told(handler, row) for row in rows if may_tell(handler.permissions, row["name"])]


async def _queue_create(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Make a queue with these properties, and describe it.

    Raises:
        TopicExists: a topic of this node's own has that name.
        QueueExists: there is a queue of that name.
    """
    name = _name(arguments)
    _table(handler)
    folder_name(name, handler.routes.names)
    if handler.routes.is_topic(name):
        raise TopicExists(name)
    given = {each: value for each, value in arguments.items() if each in _PROPERTIES}
    await handler.actor.call(QUEUES, FindQueue(name, given, is_new=True), timeout_s=None)
    return _told(handler, await _ask(handler, name, DescribeQueue()))


def _told(handler: RequestHandler, row: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a queue; of its groups, what who asks may know of."""
    may = handler.permissions.may
    groups = row["groups"].items()
    known = {name: told for name, told in groups if may(Need.of_group("describe", name.encode()))}
    return {**row, "groups": known}


async def _queue_delete(handler: RequestHandler, arguments: Arguments) -> None:
    _table(handler)
    await handler.actor.call(QUEUES, DeleteQueue(_name(arguments)), timeout_s=None)


async def _queue_browse(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return messages that this node holds, one stream at a time, as pairs of pointer and bytes."""
    found = await _browse(handler, arguments, _BROWSED_MAX)
    messages = []
    if found.records is not None:
        records = IndexedRecords.of(found.records.entries, memoryview(found.records.data))
        messages = list(map(list, records.pairs()))
    return {"unit": found.unit, "last": found.last, "messages": messages}


async def _queue_dump(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return the same as records, as they lie in files."""
    found = await _browse(handler, arguments, arg.U32_MAX)
    data = b"" if found.records is None else found.records.data
    return {"unit": found.unit, "last": found.last, "records": data}


async def _browse(handler: RequestHandler, arguments: Arguments, limit: int) -> Browsed:
    unit = arg.place(arguments, "unit")
    pointer = arg.whole(arguments, "pointer", POINTER_MAX) if unit else 0
    if "limit" in arguments:
        limit = min(limit, arg.whole(arguments, "limit", arg.U32_MAX))
    _table(handler)
    name, bytes_max = _name(arguments), _BROWSED_BYTES_MAX
    found: Browsed = await _ask(handler, name, BrowseQueue((unit, pointer), limit, bytes_max))
    return found


def _of_cluster(op: str) -> Callable[[RequestHandler, Arguments], Awaitable[Any]]:
    """Return what asks the cluster, where there is one."""

    async def ask(handler: RequestHandler, arguments: Arguments) -> Any:  # noqa: ANN401 - as it answers
        _table(handler)
        return await handler.actor.call(QUEUES, ClusterRequest(op, arguments), timeout_s=None)

    return ask


async def _forget(handler: RequestHandler, arguments: Arguments) -> Any:  # noqa: ANN401 - as it answers
    """Forget a node, by its engine, too, which gives other nodes what it had.

    By that last: it wants a majority, which may be gone for good, and what is put onto queues is
    not to wait for that. Who is told so asks again.
    """
    forgotten = await _of_cluster("cluster_forget")(handler, arguments)
    if handler.routes.replicas is not None:
        name = _engine_name(forgotten)
        try:
            await handler.actor.call(LOGS, ForgetLogNode(name), timeout_s=None)
        except NoQuorum as error:
            who = f"node {short_repr(forgotten['name'])} ({forgotten['id']})"
            done = f"{who} is forgotten, and queues wait for it no more"
            what = "the nodes of the replicated log"
            raise NoQuorum(what, done=done) from error
    return forgotten


async def _move(handler: RequestHandler, arguments: Arguments) -> None:
    """Have a node lead all partitions of a replicated topic, or one of them.

    Raises:
        NoLogEngine: this node has no engine.
        UnknownNode: no member is meant, or more than one.
        UnknownTopic: there is no replicated topic of that name.
        CopyNotReached: the node has no replica, or cannot be reached.
        NoQuorum: the node does not lead in time; it may later all the same.
    """
    if handler.routes.replicas is None:
        raise NoLogEngine
    topic, member = (
        arg.topic(arguments),
        await _member(handler, take_text(arguments, "node", "cluster_move")),
    )
    parts = replicated_partitions(handler, topic)
    if not parts:
        raise UnknownTopic(topic)
    try:
        await handler.actor.call(LOGS, MoveLog(parts, _engine_name(member)), timeout_s=None)
    except UnknownNode as error:  # a member it is
        raise CopyNotReached(topic, member["name"]) from error


async def _member(handler: RequestHandler, node: str) -> Mapping[str, Any]:
    """Return the member that is meant by a name, or by its id, as `MemberTable.find` does.

    Raises:
        UnknownNode: there is none, or more than one.
    """
    found = await _of_cluster("cluster_members")(handler, {"node": node})
    if len(found) != 1:
        raise UnknownNode(node)
    return found[0]  # type: ignore[no-any-return]  # as the op answers


def _engine_name(member: Mapping[str, Any]) -> str:
    """Return what engines call a member: by the id of its folder."""
    return str(member["id"]).partition(".")[0]


async def _ensure(handler: RequestHandler, name: bytes, copies: int) -> None:
    """Make a queue where there is none, if who asks may do so.

    Raises:
        NotAuthorized: they may not.
        PoeError: no queue may be called so, or made now.
    """
    if handler.routes.queue(name) is not None:
        return
    folder_name(name, handler.routes.names)
    check(handler.permissions, [Need.of_topic("create", name)])
    properties = {"copies": copies} if copies else {}
    with suppress(QueueMismatch):  # somebody else has just made it; the put asks for its copies
        wanted = FindQueue(name, properties, is_for_put=bool(copies))
        await handler.actor.call(QUEUES, wanted, timeout_s=None)


async def _ask(handler: RequestHandler, name: bytes, request: object) -> Any:  # noqa: ANN401
    """Ask the actor of a queue.

    Raises:
        UnknownQueue: there is none.
        PoeError: as it says.
    """

    async def ask() -> Any:  # noqa: ANN401 - as it answers
        ref = handler.routes.queue(name)
        if ref is None:
            raise NotAQueue(name) if handler.routes.is_topic(name) else UnknownQueue(name)
        return await handler.actor.call(ref, request, timeout_s=None)

    return await until_answered(handler.actor, handler.routes, name, ask)


def _table(handler: RequestHandler) -> QueueTable:
    """Return the queues.

    Raises:
        NotInCluster: this node is in none.
    """
    if handler.routes.queues is None:
        raise NotInCluster
    return handler.routes.queues


def _name(arguments: Arguments) -> bytes:
    """Return the name of a queue, or of a topic that is one.

    Raises:
        RemoteProtocolError: it is missing.
        ReservedTopic: it is the node's own.
    """
    name = arg.topic(arguments)
    if is_reserved(name):
        raise ReservedTopic(name)
    return name


def _copies(arguments: Arguments) -> int:
    """Return how many copies are asked for; 0: as many as the queue has."""
    if arguments.get("copies") is None:
        return 0
    copies = arg.whole(arguments, "copies", _COPIES_MAX)
    if not copies:
        msg = "argument copies is 0; send 1 or more"
        raise RemoteProtocolError(msg)
    return copies


def _messages(arguments: Arguments) -> list[bytes]:
    messages = arguments.get("messages")
    if not isinstance(messages, list) or set(map(type, messages)) != {bytes} or not all(messages):
        told = short_repr(messages)
        msg = f"argument messages is {told:.80}; send an array of 1 message or more, none empty"
        raise RemoteProtocolError(msg)
    return messages


QUEUE_OPERATIONS: Final[dict[str, Callable[[RequestHandler, Arguments], Awaitable[Any]]]] = {
    "queue_put": queue_put,
    "queues": _queues,
    "queue_create": _queue_create,
    "queue_delete": _queue_delete,
    "queue_browse": _queue_browse,
    "queue_dump": _queue_dump,
    **{op: _of_cluster(op) for op in ("cluster", "cluster_members", "cluster_report")},
    "cluster_forget": _forget,
    "cluster_move": _move,
}
"""The operations by name."""
