"""What each request needs: a table of all there are, as functions of the request alone.

A request or an operation that is not in it cannot be added: the import fails. What depends on what
there is stands elsewhere: whether a topic or a group must be made is decided by who makes it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from poe.broker.access.permission import ANYTHING, Need
from poe.broker.groups.options import check_name
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.errors import LocalProtocolError
from poe.protocol import (
    ControlRequest,
    LeaseRequest,
    PointerRequest,
    PutRequest,
    RangeRequest,
    Request,
)
from poe.protocol.messages import REQUESTS
from poe.protocol.put import QueuePutRequest, SequencedPutRequest

TopicsOf: TypeAlias = Callable[[str], Iterable[bytes]]
"""Tells the topics, and patterns of topics, of a group; none of one that does not exist."""

_LETS_GO = frozenset({"max_age", "max_bytes", "keep_unread", "keep_unread_bytes"})
"""Properties that decide what of a topic is deleted."""

_of_topic, _of_group, _of_node = Need.of_topic, Need.of_group, Need.of_node


def needs_of(request: Request, topics_of: TopicsOf) -> Iterable[Need]:
    """Return what a request needs; a need is not made, nor anything asked for it, before its turn.

    Raises:
        RemoteProtocolError, InvalidGroupName: an argument is missing or wrong.
    """
    return _REQUESTS[type(request)](request, topics_of)


def control_needs(request: ControlRequest, topics_of: TopicsOf) -> Iterable[Need]:
    """Return what a control request needs; nothing of one that there is not.

    Raises:
        RemoteProtocolError, InvalidGroupName: an argument is missing or wrong.
    """
    found = OPERATION_NEEDS.get(request.op)
    return () if found is None else found(request.arguments, topics_of)


def lease_needs(request: LeaseRequest, topics_of: TopicsOf) -> Iterator[Need]:
    """Return what asking for messages of a group needs: to read the group and all its topics."""
    return _member_needs(request.group, topics_of)


def pattern_needs(operation: str, topics: Iterable[bytes]) -> Iterator[Need]:
    """Return what an operation on topics needs, of which some are patterns with `*`.

    Only a prefix that covers all that a pattern could stand for allows it.
    """
    for topic in topics:
        begin, star, _ = topic.partition(b"*")
        yield _of_topic(operation, begin + ANYTHING if star else topic)


def _member_needs(group: str, topics_of: TopicsOf) -> Iterator[Need]:
    yield _of_group("read", group.encode())
    yield from pattern_needs("read", topics_of(group))


_Needs: TypeAlias = Callable[[Arguments, TopicsOf], Iterable[Need]]


def _nothing(_arguments: Arguments, _topics_of: TopicsOf) -> Iterable[Need]:
    """Return no need: whoever has authenticated may ask, and is told what they may know."""
    return ()


def _node(operation: str) -> _Needs:
    return lambda _arguments, _topics_of: [_of_node(operation)]


def _topic(*operations: str) -> _Needs:
    return lambda arguments, _: [_of_topic(each, arg.topic(arguments)) for each in operations]


def _group(operation: str) -> _Needs:
    return lambda arguments, _: [_of_group(operation, _name(arguments))]


def _member(arguments: Arguments, topics_of: TopicsOf) -> Iterable[Need]:
    return _member_needs(_name(arguments).decode(), topics_of)


def _join(arguments: Arguments, topics_of: TopicsOf) -> Iterator[Need]:
    yield from _member(arguments, topics_of)
    yield from _new_group_topics(arguments)


def _group_create(arguments: Arguments, _topics_of: TopicsOf) -> Iterator[Need]:
    yield _of_group("create", _name(arguments))
    yield from _new_group_topics(arguments)


def _new_group_topics(arguments: Arguments) -> Iterator[Need]:
    """Return what the topics need that a group would be made for, and where it would put onto."""
    yield from pattern_needs("read", arg.names(arguments, "topics"))
    options = arguments.get("options")
    dead = options.get("dead_letter_topic") if isinstance(options, dict) else None
    if isinstance(dead, str) and dead:
        yield _of_topic("write", dead.encode("utf-8", "surrogateescape"))
        yield _of_topic("create", dead.encode("utf-8", "surrogateescape"))


def _sync(arguments: Arguments, _topics_of: TopicsOf) -> Iterable[Need]:
    has_topic = "topic" in arguments
    return [_of_topic("write", arg.topic(arguments)) if has_topic else _of_node("admin")]


def _copy(arguments: Arguments, _topics_of: TopicsOf) -> Iterable[Need]:
    source, target = arg.topic(arguments, "source"), arg.topic(arguments)
    return [_of_topic("read", source), _of_topic("write", target)]


def _properties(arguments: Arguments, _topics_of: TopicsOf) -> Iterable[Need]:
    """Return what changing a topic needs: to delete it, too, where that may delete messages."""
    topic, properties = arg.topic(arguments), arguments.get("properties")
    yield _of_topic("create", topic)
    if isinstance(properties, dict) and not _LETS_GO.isdisjoint(properties):
        yield _of_topic("delete", topic)


def _name(arguments: Arguments) -> bytes:
    name = arguments.get("group")
    check_name(name)
    return str(name).encode()


OPERATION_NEEDS: Final[dict[str, _Needs]] = {
    "health": _nothing,
    "topics": _nothing,
    "topic_list": _nothing,
    "status": _nothing,
    "info": _nothing,
    "segments": _topic("describe"),
    "describe": _topic("describe"),
    "removed": _topic("read"),
    "wait": _topic("read"),
    "span": _topic("read"),
    "ordinal": _topic("read"),
    "pointer": _topic("read"),
    "last_put": _topic("write"),
    "queue_put": _topic("write"),
    "queues": _nothing,
    "queue_create": _topic("create"),
    "queue_delete": _topic("delete"),
    "queue_browse": _topic("read"),
    "queue_dump": _topic("read"),
    "cluster": _node("admin"),
    "cluster_members": _node("admin"),
    "cluster_forget": _node("admin"),
    "cluster_report": _node("admin"),
    "cluster_logs": _node("admin"),
    "cluster_move": _node("admin"),
    "cluster_verify": _node("admin"),
    "sync": _sync,
    "copy": _copy,
    "create": _topic("create"),
    "topic_create": _topic("create"),
    "topic_alter": _properties,
    "topic_adopt": _properties,
    "trim": _topic("delete"),
    "delete": _topic("delete"),
    "auth": _nothing,
    "authorize": _node("authorize"),
    "reload": _node("admin"),
    "security": _node("admin"),
    "tree": _node("admin"),
    "counters": _nothing,
    "events": _node("admin"),
    "scan": _topic("read"),
    "connections": _node("admin"),
    "producers": _topic("describe"),
    "config": _node("admin"),
    "pipelines": _node("admin"),
    "pipeline_report": _node("admin"),
    "pipeline_stop": _node("admin"),
    "groups": _nothing,
    "group": _group("describe"),
    "group_lag": _group("describe"),
    "group_create": _group_create,
    "group_delete": _group("delete"),
    "group_join": _join,
    "group_heartbeat": _member,
    "group_leave": _group("read"),
    "group_commit": _member,
    "group_positions": _member,
    "group_extend": _member,
    "group_reset": _group("write"),
    "group_pause": _group("write"),
    "group_resume": _group("write"),
}
"""The needs of the control operations by name. Who lists something is told what they may describe.
"""

AUDITED: Final = frozenset(
    {
        "cluster_forget",
        "cluster_move",
        "delete",
        "group_delete",
        "group_reset",
        "pipeline_stop",
        "queue_delete",
        "reload",
        "topic_adopt",
        "topic_alter",
        "trim",
    }
)
"""Operations of which the audit log is told who has asked for them."""

CHANGES: Final = AUDITED | {
    "create",
    "group_create",
    "group_pause",
    "group_resume",
    "queue_create",
    "topic_create",
}
"""Operations that the ring of events is told of once they are done, with who has asked."""

_REQUESTS: Final[dict[type[Request], Callable[[Any, TopicsOf], Iterable[Need]]]] = {
    PointerRequest: lambda request, _: [_of_topic("read", request.topic)],
    RangeRequest: lambda request, _: [_of_topic("read", request.topic)],
    PutRequest: lambda request, _: [_of_topic("write", request.topic)],
    QueuePutRequest: lambda request, _: [_of_topic("write", request.topic)],
    SequencedPutRequest: lambda request, _: [_of_topic("write", request.topic)],
    LeaseRequest: lease_needs,
    ControlRequest: control_needs,
}


def check_complete(what: str, known: Iterable[object], needed: Iterable[object]) -> None:
    """Refuse to go on where something has no need, or something that is not there has one.

    Raises:
        LocalProtocolError: names them.
    """
    different = {*known} ^ {*needed}
    if different:
        names = sorted(map(str, different))
        msg = f"say in poe.broker.requests.needs what each {what} needs: {names}"
        raise LocalProtocolError(msg)


check_complete("request", REQUESTS.values(), _REQUESTS)
