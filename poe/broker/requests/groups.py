"""The control operations of groups: arguments checked, then asked of the group's own actor."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

from poe.actors import ActorRef, Call, GenServer
from poe.actors.server_cell import ServerCell
from poe.broker.access.permission import Need, check, first_refusal
from poe.broker.groups.membership import MemberInfo
from poe.broker.groups.options import check_name
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.byte_budget import Room
from poe.broker.requests.log_groups import (
    Question,
    ask_log_groups,
    check_heard,
    is_replicated,
    lease_of_log,
    list_log_groups,
)
from poe.broker.requests.needs import lease_needs
from poe.broker.requests.request_handler import WAIT_MAX_S, WAIT_SLICE_S, RequestHandler
from poe.broker.requests.retry import may_repeat, until_answered
from poe.errors import (
    ActorDead,
    GroupFenced,
    PointerOutOfRange,
    RemoteProtocolError,
    UnknownGroup,
)
from poe.protocol.leases import EXTEND_S_MAX, MEMBER_BYTES, Failed, Lease, LeaseRequest
from poe.record import ENTRY_BYTES
from poe.storage import POINTER_MAX
from poe.topic_properties import is_reserved

GROUPS: Final = "groups"
"""Name of the actor that knows all groups."""

REPLICATED_GROUPS: Final = "log_groups_registry"
"""Name of the actor that knows those of replicated topics, where this node coordinates them."""

_OF_MEMBERS: Final = frozenset({"group_heartbeat", "group_extend"})
_FEW_COUNT = 1024
"""Messages of which the index entries need no room that has to be asked for."""


class GroupRequest(NamedTuple):
    """Asked of a group; answers what its op answers."""

    op: str
    arguments: dict[str, Any]
    group: str = ""
    """Its name, for the actor of a queue, which serves all groups that take from it."""


class FindGroup(NamedTuple):
    """Asked of `GROUPS`: answers the actor of a group, or of the queue that it takes from.

    With a mode the group is made where there is none, and must be of that mode and those topics.
    """

    name: str
    mode: str | None = None
    topics: tuple[bytes, ...] = ()
    options: Any = None
    is_new: bool = False
    """Whether there must be none."""
    may_create: bool = True


class DeleteGroup(NamedTuple):
    """Asked of `GROUPS`: deletes a group; one that has members only with `force`."""

    name: str
    force: bool


class EndGroup(NamedTuple):
    """Asked of a group by `GROUPS`: it writes that it is deleted, and ends; answers None."""

    force: bool


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Asked of `GROUPS`: answers a map of name, mode and topics for each group, sorted."""


class Undelivered(NamedTuple):
    """Cast to a group: who asked for a lease has not been told of it, and never will be."""

    lease: Lease
    group: str = ""
    """As in `GroupRequest`."""


class ForgetUnits(NamedTuple):
    """Asked of `GROUPS`: has groups forget how far they are in what was deleted; answers None."""

    topic: bytes
    """Of which they are partitions, or that is the only one."""
    units: tuple[bytes, ...]


def address_of(name: str) -> str:
    """Return the name under which the actor of a group is registered."""
    return f"group {name}"


def log_address_of(name: str) -> str:
    """Return the name of the actor of a group of replicated topics, at the node that has it."""
    return f"replicated group {name}"


def is_of_log(routes: RoutingTable, find: FindGroup) -> bool:
    """Return whether a group may be one of replicated topics, which another node may coordinate.

    A group of this node's own, or of a queue, comes first.

    Raises:
        OptionError: it would be of replicated topics and of others.
        NoQuorum: as `check_heard`.
    """
    table, name = routes.log_groups, find.name
    if table is None:
        return False
    if name in table:
        return True
    if routes.is_own_group(name) or _queue_of(routes, name) is not None:
        return False
    if find.mode is None:
        return table.are_any
    if not is_for_queue(routes, find):
        check_heard(routes, find.topics)
    return is_replicated(routes, find.topics)


async def ask_group(
    handler: RequestHandler, find: FindGroup, request: GroupRequest | LeaseRequest
) -> Any:  # noqa: ANN401 - what the request answers
    """Ask a group, which is started for that where it does not run.

    Raises:
        GroupError: as the group says.
        GroupFenced: a member asks, and the group takes from a queue, as far as anybody knows, of
            which this node has not heard yet: the member joins anew.
        ActorDead: it has crashed, of this request or another; what was answered stands.
    """
    actor, routes = handler.actor, handler.routes

    async def ask() -> Any:  # noqa: ANN401
        ref = None
        if not find.mode:
            ref = actor.whereis(address_of(find.name)) or _queue_of(routes, find.name)
        if ref is None:
            try:
                ref = await actor.call(GROUPS, find)
            except UnknownGroup:
                queues, is_member = routes.queues, _is_of_member(request)
                if queues is None or not is_member or queues.is_deleted(find.name):
                    raise
                raise GroupFenced(find.name, "this node does not know the group") from None
        return await actor.call(ref, request, timeout_s=None)

    return await until_answered(actor, routes, b"", ask)


def _is_of_member(request: GroupRequest | LeaseRequest) -> bool:
    return isinstance(request, LeaseRequest) or request.op in _OF_MEMBERS


def _queue_of(routes: RoutingTable, group: str) -> ActorRef | None:
    """Return the actor of the queue that a group takes from; None where it takes from none."""
    return None if routes.queues is None else routes.queues.actor_of_group(group)


def is_for_queue(routes: RoutingTable, wanted: FindGroup) -> bool:
    """Return whether a group that there is not yet is to take from a queue.

    That is one of mode `shared` whose only topic is none of the node's own, in a cluster.
    """
    if routes.queues is None or wanted.mode != "shared" or len(wanted.topics) != 1:
        return False
    (topic,) = wanted.topics
    return b"*" not in topic and not is_reserved(topic) and not routes.is_topic(topic)


def tell_undelivered(actor: GenServer, routes: RoutingTable, group: str, lease: Lease) -> None:
    """Tell a group that who asked for a lease has not been told of it."""
    to = _queue_of(routes, group) or address_of(group)
    actor.cast(to, Undelivered(lease, group))


def begin_lease(
    cell: ServerCell, routes: RoutingTable, request: LeaseRequest, room: Room
) -> Call | None:
    """Make the call that a lease usually takes; None where it does not run, or much is asked for.

    Mostly it is done at once, and its value a lease and its messages. `lease_messages` goes on from
    it if not.
    """
    if request.limit > _FEW_COUNT or request.bytes_max > room.frame_max // 2 - ENTRY_BYTES:
        return None
    group = cell.system.find(address_of(request.group))
    ref = _queue_of(routes, request.group) if group is None else group.address
    return None if ref is None else cell.call_leaf(ref, request)


async def lease_messages(
    handler: RequestHandler, request: LeaseRequest, begun: Call | None = None
) -> Any:  # noqa: ANN401 - a lease, and where its messages lie
    """Ask a group for messages; while nothing comes, look now and then who still wants them.

    `begun` is the first call for it, if one was made. A group answers after `WAIT_SLICE_S`, so that
    nothing is leased to a client that has gone meanwhile, or may not read them any more.

    Raises:
        GroupError: as the group says.
        PoeError: the messages cannot be read.
        NotAuthorized: nobody grants to read them any more.
    """
    find, topics_of = FindGroup(request.group), handler.routes.topics_of_group
    if begun is None and is_of_log(handler.routes, find):
        answered = await lease_of_log(handler, request)
        if answered is not None:
            return answered
    left_s = min(request.wait_s, WAIT_MAX_S)
    lost: tuple[int, ...] = ()
    asked = request
    while True:
        try:
            leased = await (begun or ask_group(handler, find, asked))
        except ActorDead as error:
            if begun is None or not may_repeat(error, is_put=False):
                raise
            begun = None
            continue
        begun = None
        lease, found = leased
        lost = lost or lease.lost
        is_over = left_s <= WAIT_SLICE_S or not handler.is_wanted
        if found is not None or is_over:
            break
        left_s -= WAIT_SLICE_S
        check(handler.permissions, lease_needs(request, topics_of))
        asked = request._replace(done=(), failed=(), wait_s=left_s)  # the others are told
    if found is None:
        return lease._replace(lost=lost), None
    refusal = first_refusal(handler.permissions, lease_needs(request, topics_of))
    if refusal is not None or not handler.is_wanted:
        given_back = Failed(lease.id, lease.after, lease.last, "release")
        await ask_group(handler, find, asked._replace(limit=0, done=(), failed=(given_back,)))
    if refusal is not None:
        raise refusal
    return lease._replace(lost=lost), found


async def group_operation(handler: RequestHandler, op: str, arguments: Arguments) -> Any:  # noqa: ANN401
    """Carry out one of `GROUP_OPERATIONS`.

    Raises:
        RemoteProtocolError: a missing or wrong argument.
        GroupError: the group's refusal.
        NotAuthorized: it would have to be made, and who asks may not do so.
    """
    if op == "groups":
        rows = await handler.actor.call(GROUPS, ListGroups())
        rows = sorted([*rows, *await list_log_groups(handler)], key=itemgetter("group"))
        return [each for each in rows if handler.permissions.may(_need("describe", each["group"]))]
    name = take_name(arguments)
    if op == "group_delete":
        return await _delete(handler, name, force=arg.flag(arguments, "force"))
    parsed = GROUP_OPERATIONS[op](arguments)
    find = FindGroup(name)
    if op == "group_create" or (op == "group_join" and arguments.get("mode") is not None):
        find = FindGroup(
            name,
            _text(arguments, "mode"),
            arg.names(arguments, "topics"),
            _map(arguments, "options"),
            is_new=op == "group_create",
            may_create=handler.permissions.may(_need("create", name)),
        )
        if is_for_queue(handler.routes, find) and handler.routes.queue(find.topics[0]) is None:
            check(handler.permissions, [Need.of_topic("create", find.topics[0])])
    try:
        # Again where the group was another one, which was deleted elsewhere: that is forgotten.
        while is_of_log(handler.routes, find):
            question = _question(handler.routes, op, find, arguments)
            answered = await ask_log_groups(handler, question)
            if answered is not None:
                return answered.result
            if find.mode is None:
                break
        return await ask_group(handler, find, GroupRequest(op, parsed, name))
    except UnknownGroup as error:
        if find.mode is None:
            raise
        create = _need("create", name)
        raise handler.permissions.refusal(create) or create.refusal from error


async def _delete(handler: RequestHandler, name: str, *, force: bool) -> None:
    if is_of_log(handler.routes, FindGroup(name)):
        question = Question("group_delete", name, arguments={"force": force})
        if await ask_log_groups(handler, question) is not None:
            return
    await handler.actor.call(GROUPS, DeleteGroup(name, force))


def _question(routes: RoutingTable, op: str, find: FindGroup, arguments: Arguments) -> Question:
    """Return what the node that coordinates is asked, which looks at the arguments again.

    It makes no group of other topics, though one of its name may have been deleted elsewhere.
    """
    is_to_be_made = find.may_create and find.mode is not None
    return Question(
        op,
        find.name,
        find.mode,
        find.topics,
        find.options,
        find.is_new,
        is_to_be_made and is_replicated(routes, find.topics),
        arguments=dict(arguments),
    )


def _need(operation: str, group: str) -> Need:
    return Need.of_group(operation, group.encode())


def take_name(arguments: Arguments) -> str:
    """Return the name of a group.

    Raises:
        InvalidGroupName: it is none.
    """
    name = arguments.get("group")
    check_name(name)
    return str(name)


def _join(arguments: Arguments) -> dict[str, Any]:
    instance = _text(arguments, "instance") if arguments.get("instance") is not None else None
    info = MemberInfo(
        id=_member(arguments),
        name=_text(arguments, "name", ""),
        instance=instance,
        topics=arg.names(arguments, "topics") or None,
        metadata=_bytes(arguments, "metadata"),
    )
    return {"info": info}


def _heartbeat(arguments: Arguments) -> dict[str, Any]:
    owned, wait_s = arg.names(arguments, "owned"), arg.wait_s(arguments, WAIT_MAX_S)
    return {**_fenced(arguments), "owned": owned, "wait_s": wait_s}


def _leave(arguments: Arguments) -> dict[str, Any]:
    last = _commit(arguments) if "positions" in arguments else None
    return {"member": _member(arguments), "last": last}


def _commit(arguments: Arguments) -> dict[str, Any]:
    positions = {}
    for unit, position in _map(arguments, "positions").items():
        match position:
            case [pointer, bytes(data)]:
                positions[arg.checked_name("positions", unit)] = (_pointer(pointer), data)
            case int():
                positions[arg.checked_name("positions", unit)] = (_pointer(position), b"")
            case _:
                _refuse("positions", position, "a pointer, or a pointer and bytes, for each unit")
    return {**_fenced(arguments), "positions": positions}


def _extend(arguments: Arguments) -> dict[str, Any]:
    leases = arguments.get("leases")
    if not isinstance(leases, list) or not all(type(each) is int for each in leases):
        _refuse("leases", leases, "the numbers of some")
    seconds = arg.number(arguments, "seconds", EXTEND_S_MAX)
    return {"member": _member(arguments), "leases": leases, "seconds": float(seconds)}


def _reset(arguments: Arguments) -> dict[str, Any]:
    to = arguments.get("to")
    if isinstance(to, dict) and set(to) == {"time_us"}:
        to = arg.whole(to, "time_us", POINTER_MAX)
    elif isinstance(to, dict):
        to = {arg.checked_name("to", unit): _pointer(pointer) for unit, pointer in to.items()}
    elif not isinstance(to, str) or to not in {"oldest", "newest"}:
        _refuse("to", to, 'oldest, newest, {"time_us": …}, or a pointer for each unit')
    return {
        "to": to,
        "units": arg.names(arguments, "units"),
        "dry": arg.flag(arguments, "dry"),
        "force": arg.flag(arguments, "force"),
    }


def _nothing(_: Arguments) -> dict[str, Any]:
    return {}


GROUP_OPERATIONS: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    "groups": _nothing,
    "group": _nothing,
    "group_create": _nothing,
    "group_delete": _nothing,
    "group_join": _join,
    "group_heartbeat": _heartbeat,
    "group_leave": _leave,
    "group_commit": _commit,
    "group_positions": _nothing,
    "group_extend": _extend,
    "group_reset": _reset,
    "group_pause": _nothing,
    "group_resume": _nothing,
    "group_lag": _nothing,
}
"""The operations by name, and what makes values of their arguments."""


def _fenced(arguments: Arguments) -> dict[str, Any]:
    generation = arg.whole(arguments, "generation", arg.U64_MAX)
    return {"member": _member(arguments), "generation": generation}


def _member(arguments: Arguments) -> bytes:
    member = arguments.get("member")
    if not isinstance(member, bytes) or len(member) != MEMBER_BYTES:
        _refuse("member", member, f"{MEMBER_BYTES} bytes, drawn at random")
    return member


def _text(arguments: Arguments, name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        _refuse(name, value, "text")
    return value


def _bytes(arguments: Arguments, name: str) -> bytes:
    value = arguments.get(name, b"")
    if not isinstance(value, bytes):
        _refuse(name, value, "bytes")
    return value


def _map(arguments: Arguments, name: str) -> dict[Any, Any]:
    value = arguments.get(name, {})
    if not isinstance(value, dict):
        _refuse(name, value, "a map")
    return value


def _pointer(value: object) -> int:
    if type(value) is not int or not 0 <= value <= POINTER_MAX:
        raise PointerOutOfRange(value if isinstance(value, int) else -1)
    return value


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    msg = f"argument {name} is {value!r:.80}; send {allowed}"
    raise RemoteProtocolError(msg)
