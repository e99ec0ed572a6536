"""Turns a request into its reply: what to send from memory, and what from a data file.

What is made in memory for a client is bounded by the budget of the node before it is sent, since
nobody knows when the client will take it.
"""

from contextlib import aclosing
from typing import TypeAlias

from poe.actors import Call
from poe.broker.appendix.message import GetRange
from poe.broker.groups.options import check_name
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.byte_budget import Room
from poe.broker.requests.control import LISTINGS, control, listed
from poe.broker.requests.groups import lease_messages
from poe.broker.requests.queue_messages import HeldRecords
from poe.broker.requests.queues import put_onto
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import Overloaded, PoeError, RemoteProtocolError
from poe.errors.tracebacks import drop_tracebacks
from poe.protocol import (
    RANGE_COUNT_MAX,
    ControlReply,
    ControlRequest,
    DataReply,
    ErrorReply,
    IndexedReply,
    LeaseReply,
    LeaseRequest,
    PointerRequest,
    PutReply,
    PutRequest,
    QueuePutRequest,
    RangeRequest,
    Request,
)
from poe.protocol.leases import Lease
from poe.protocol.maps import pack_items
from poe.record import ENTRY_BYTES
from poe.storage import FileSlice

Reply: TypeAlias = tuple[bytes | memoryview, FileSlice | None]


async def make_reply(
    handler: RequestHandler, request: Request, begun: Call | None, room: Room
) -> Reply:
    """Carry out a request, of which a first call may have begun; an error is a reply, too."""
    try:
        match request:
            case PointerRequest():
                records = await handler.get(*request, room.frame_max - 2, begun)
                return DataReply.header(0 if records is None else records.length), records
            case RangeRequest():
                return await _indexed_reply(handler, request, room)
            case LeaseRequest():
                return await _lease_reply(handler, request, begun, room)
            case PutRequest() | QueuePutRequest():
                return PutReply.frame(await _put(handler, request, begun)), None
            case ControlRequest():
                # As a view: of a large one, what the peer has not taken is not copied.
                return memoryview(await _control_reply(handler, request, room)), None
    except PoeError as error:
        drop_tracebacks(error)  # their frames hold the request, and the call that has failed
        return error_reply(error, request, handler.routes), None


async def _put(
    handler: RequestHandler, request: PutRequest | QueuePutRequest, begun: Call | None
) -> int:
    if isinstance(request, QueuePutRequest):
        return (await put_onto(handler, *request)).pointer
    topic, messages, put_id = request
    return await handler.put(topic, messages, begun, put_id)


def error_reply(error: PoeError, request: Request, routes: RoutingTable) -> bytes:
    """Return the frame that tells that a request is refused, and count that."""
    request_id, topic = None, getattr(request, "topic", None)
    if isinstance(request, ControlRequest):
        request_id, topic = request.id, request.arguments.get("topic")
    routes.counters.refuse(topic if isinstance(topic, bytes) else None, error)
    return ErrorReply.from_error(error, request_id).encode()


async def _indexed_reply(handler: RequestHandler, request: RangeRequest, room: Room) -> Reply:
    """Find records of a range: half a frame of them at most, and no more than the budget allows.

    Their entries need no more than the other half, since no record is shorter than its entry.
    """
    count_max = RANGE_COUNT_MAX
    if not room.holding.may_hold(min(request.limit, count_max) * ENTRY_BYTES):
        count_max = room.holding.budget.share_bytes // ENTRY_BYTES
    wanted = GetRange(
        request.pointer,
        request.last,
        min(request.limit, count_max),
        min(request.bytes_max, room.frame_max // 2 - ENTRY_BYTES),
    )
    found = await handler.get_range(request.topic, wanted)
    if found is None:
        return IndexedReply.head(b"", 0), None
    head = IndexedReply.head(found.entries, found.records.length, found.ordinal)
    # As a view: a rest of it is cut off without a copy each time the peer takes some.
    return memoryview(head), found.records


async def _lease_reply(
    handler: RequestHandler, request: LeaseRequest, begun: Call | None, room: Room
) -> Reply:
    """Tell a group what became of its messages, and find more: bounded as those of a range."""
    check_name(request.group)
    limit = min(request.limit, RANGE_COUNT_MAX)
    if not room.holding.may_hold(limit * ENTRY_BYTES):
        limit = room.holding.budget.share_bytes // ENTRY_BYTES
    bytes_max = min(request.bytes_max, room.frame_max // 2 - ENTRY_BYTES)
    asked = request._replace(limit=limit, bytes_max=bytes_max)
    lease, found = await lease_messages(handler, asked, begun)
    if found is None:
        return LeaseReply.head(lease, b"", 0), None
    if isinstance(found, HeldRecords):
        return held_lease(lease, found), None
    head = LeaseReply.head(lease, found.entries, found.records.length, found.ordinal)
    return memoryview(head), found.records


def held_lease(lease: Lease, found: HeldRecords) -> memoryview:
    """Return the reply with messages that lie in memory; a view, as in `_indexed_reply`."""
    head = LeaseReply.head(lease, found.entries, len(found.data), found.ordinal)
    return memoryview(head + found.data)


async def _control_reply(handler: RequestHandler, request: ControlRequest, room: Room) -> bytes:
    if request.op in LISTINGS:
        reply = await _listing_reply(handler, request)
    else:
        result = await control(handler, request.op, request.arguments)
        reply = ControlReply(request.id, result).encode()
    _check_size(reply, room)
    return reply


async def _listing_reply(handler: RequestHandler, request: ControlRequest) -> bytes:
    """Encode a map of topics part by part, so that others have their turn in between."""
    count, parts = 0, []
    async with aclosing(listed(handler, request.op, request.arguments)) as pages:
        async for page in pages:
            count += len(page)
            parts.append(pack_items(page, "control reply"))
    return ControlReply.join(request.id, count, parts)


def _check_size(reply: bytes, room: Room) -> None:
    """Refuse a reply that the client would refuse, and end the connection for.

    Raises:
        RemoteProtocolError: it exceeds `frame_max`.
        Overloaded: there is no room for it.
    """
    if len(reply) > room.frame_max:
        msg = f"the reply has {len(reply)} bytes, more than option frame_max; ask for less"
        raise RemoteProtocolError(msg)
    if not room.holding.may_hold(len(reply)):
        raise Overloaded("in_flight_max", room.holding.budget.bytes_max)
