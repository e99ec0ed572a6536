"""Groups over HTTP: a member is what a client says that it is, and the gateway keeps nothing of it.

    GET /groups                                    all groups
    GET, PUT, DELETE /groups/{group}               one: what it does, make it, delete it
    GET /groups/{group}/lag, /positions            how far it is
    POST /groups/{group}/pause, /resume, /reset
    POST /groups/{group}/members                   join
    DELETE /groups/{group}/members/{member}        leave

    …/members/{member}/heartbeat                   in mode ordered: what the member may own
    …/members/{member}/read, /commit               its units' messages, and how far it is
    …/members/{member}/lease                       in mode shared: messages to work on
    …/members/{member}/acknowledge, /extend        what became of them

Each request has a connection to the broker of its own; a read that waits has another one, by which
its member is heard of. Who waits for messages and goes away has them closed, so that nothing is
leased to nobody.
"""

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from poe.broker.access.permission import Need
from poe.broker.requests.needs import needs_of
from poe.client import AsyncSocket
from poe.client.consumer.poe_source import PartitionReader
from poe.client.consumer.source import ConsumerOptions, ConsumerStatistics, Fetched
from poe.errors import (
    GroupFull,
    GroupPaused,
    LeaseLost,
    RequestRefused,
    UnknownGroup,
)
from poe.gateway.http import group_fields as field
from poe.gateway.http.admission import Denied
from poe.gateway.http.group_fields import Field, fields_of, member_of, name_text, told_of
from poe.gateway.http.inquiry import TTL_MAX_S
from poe.gateway.http.options import DOWN_WAIT_S
from poe.gateway.http.parameters import parameters_of
from poe.gateway.http.parts import GatewayParts
from poe.gateway.http.record import record_of, text_member
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply
from poe.protocol import ControlRequest, envelope
from poe.protocol.leases import MEMBER_BYTES, LeaseReply, LeaseRequest
from poe.record import POINTER_MAX
from poe.security.policy import GROUP

WAIT_MAX_S: Final = 60.0
"""How long a client may have the gateway wait for messages."""
EXTEND_MAX_S: Final = 3600.0

_READ_BYTES = 1 << 20
"""Of the messages of one answer, unless a single one is larger."""
_LOOK_S = 0.5
"""How often several units are looked at while nothing comes on the first of them."""
_REVOKED_S = 1.0
"""How long a member is not told, at most, that it is to give units up."""
_PAUSE_S = 0.1
"""Between two heartbeats of who waits: a node that ends holds none back."""
_ENVELOPE_S = 10.0
"""How long is kept whether a topic's messages are envelopes: it may be deleted and made anew."""
_TOPICS_MAX = 1000
_READ_BATCHES = 10  # a fetch is of so many batches


class GroupRoutes:
    """Turns requests into what a broker is asked of its groups; belongs to one event loop."""

    def __init__(self, parts: GatewayParts) -> None:
        self._options, self._brokers, self._inflow, self._admission = parts
        self._servers = self._options.broker_url.servers
        self._count = field.whole(1, self._options.read_count_max)
        self._waiting: set[asyncio.Task[Any]] = set()
        self._envelopes: dict[bytes, tuple[bool, float]] = {}
        self._topics: dict[str, tuple[list[bytes], float]] = {}

    def stop(self) -> None:
        """Let those go who wait for messages."""
        for task in self._waiting:
            task.cancel()

    # ---- groups ---------------------------------------------------------------------------------

    async def get_groups(self, request: Request) -> Response:
        """List the groups that there are."""
        parameters_of(request, set())
        groups = await self._ask("groups")
        names = [each["group"].encode() for each in groups]
        known = set(await self._admission.permitted(request, "describe", GROUP, names))
        return json_reply(
            {"groups": told_of([each for each in groups if each["group"].encode() in known])}
        )

    async def at_group(self, request: Request) -> Response:
        """Describe a group, make it, or delete it."""
        group = _group(request)
        if request.method == "PUT":
            fields = {"mode": field.text, "topics": field.names, "options": field.options}
            asked = await self._fields(request, fields, {"mode", "topics"})
            made = await self._ask_for(request, "group_create", group=group, **asked)
            return json_reply(told_of(made), HTTPStatus.CREATED)
        if request.method == "DELETE":
            force = parameters_of(request, {"force"}).get("force", "false")
            if force not in {"true", "false"}:
                refuse(f"force {force!r:.100} is neither true nor false")
            await self._ask_for(request, "group_delete", group=group, force=force == "true")
            return json_reply({})
        parameters_of(request, set())
        return json_reply(told_of(await self._ask_for(request, "group", group=group)))

    async def get_lag(self, request: Request) -> Response:
        """Return how far behind each unit is."""
        parameters_of(request, set())
        lag = await self._ask_for(request, "group_lag", group=_group(request))
        return json_reply({"units": [{"unit": name_text(unit)} | lag[unit] for unit in lag]})

    async def get_positions(self, request: Request) -> Response:
        """Return how far a group of mode ordered is in each unit; null: it never had a position."""
        parameters_of(request, set())
        positions = await self._ask_for(request, "group_positions", group=_group(request))
        return json_reply({"units": [_position(*each) for each in positions.items()]})

    async def post_pause(self, request: Request) -> Response:
        """Have nothing handed out from now on."""
        await self._fields(request, {}, set())
        await self._ask_for(request, "group_pause", group=_group(request))
        return json_reply({})

    async def post_resume(self, request: Request) -> Response:
        """Go on after a pause."""
        await self._fields(request, {}, set())
        await self._ask_for(request, "group_resume", group=_group(request))
        return json_reply({})

    async def post_reset(self, request: Request) -> Response:
        """Have units go on somewhere else, or tell what that would mean."""
        fields = {
            "to": field.choice("oldest", "newest"),
            "time_us": field.pointer,
            "positions": field.pointers,
            "units": field.names,
            "dry": field.flag,
            "force": field.flag,
        }
        asked = await self._fields(request, fields, set())
        places = [asked.pop(name) for name in ("to", "positions") if name in asked]
        places += [{"time_us": asked.pop("time_us")}] if "time_us" in asked else []
        if len(places) != 1:
            refuse("the body says where to in other than one way; send to, time_us or positions")
        group = _group(request)
        moved = await self._ask_for(request, "group_reset", group=group, to=places[0], **asked)
        rows = [
            {"unit": name_text(unit), "old": old, "new": new, "messages": messages}
            for unit, (old, new, messages) in moved.items()
        ]
        return json_reply({"units": rows})

    # ---- members --------------------------------------------------------------------------------

    async def post_members(self, request: Request) -> Response:
        """Become a member, of a group that is made where there is none and a mode is given."""
        fields: dict[str, Field] = {
            "member": lambda _, value: member_of(field.text("member", value)),
            "name": field.text,
            "instance": field.text,
            "topics": field.names,
            "mode": field.text,
            "options": field.options,
        }
        asked = await self._fields(request, fields, set())
        asked.setdefault("member", os.urandom(MEMBER_BYTES))
        joined = await self._ask_for(request, "group_join", group=_group(request), **asked)
        del joined["granted"]  # who has no place of a unit yet is told it by a read
        return json_reply({"member": asked["member"].hex()} | told_of(joined))

    async def at_member(self, request: Request) -> Response:
        """Leave: what the member had is free at once."""
        parameters_of(request, set())
        await self._ask_for(request, "group_leave", **_member(request))
        return json_reply({})

    async def post_heartbeat(self, request: Request) -> Response:
        """Count a sign of life; tell what the member may own, and what it is to give up."""
        fields = {"generation": field.whole(0, field.GENERATION_MAX), "owned": field.names}
        asked = {"generation": 0, "owned": []} | await self._fields(request, fields, set())
        told = await self._ask_for(request, "group_heartbeat", **_member(request), **asked)
        del told["granted"]
        return json_reply(told_of(told))

    async def post_read(self, request: Request) -> Response:
        """Return what follows in one of the units that the member owns."""
        fields = {
            "generation": field.whole(0, field.GENERATION_MAX),
            "units": field.places,
            "limit": self._count,
            "wait_s": field.seconds(WAIT_MAX_S),
        }
        asked = {"limit": self._options.read_count} | await self._fields(request, fields, set())
        named = _member(request)
        heard = ControlRequest("group_heartbeat", 0, named)
        await self._check(request, heard)
        return await self._while_wanted(request, heard, self._read(named, **asked))

    async def post_commit(self, request: Request) -> Response:
        """Keep how far a member is; units that are not told are not its own any more."""
        fields = {"generation": field.whole(0, field.GENERATION_MAX), "positions": field.positions}
        asked = await self._fields(request, fields, {"generation", "positions"})
        taken = await self._ask_for(request, "group_commit", **_member(request), **asked)
        return json_reply({"units": [_place(*each) for each in taken.items()]})

    async def post_lease(self, request: Request) -> Response:
        """Tell what became of leases, and return another one with its messages."""
        fields = {
            "limit": self._count,
            "wait_s": field.seconds(WAIT_MAX_S),
            "done": field.done,
            "failed": field.failed,
        }
        asked = {"limit": self._options.read_count} | await self._fields(request, fields, set())
        wanted = LeaseRequest(**_member(request), bytes_max=_READ_BYTES, **asked)
        await self._check(request, wanted)
        return await self._while_wanted(request, wanted, self._lease(wanted))

    async def post_acknowledge(self, request: Request) -> Response:
        """Tell what became of leases; those that were not held any more are told."""
        fields: Mapping[str, Field] = {"done": field.done, "failed": field.failed}
        asked = await self._fields(request, fields, set())
        told = LeaseRequest(**_member(request), limit=0, bytes_max=0, **asked)
        await self._check(request, told)
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            reply = await connection.lease(told)
        leases = {each.lease for each in told.done} | {each.lease for each in told.failed}
        return _lost(told.group, leases, reply.lease.lost)

    async def post_extend(self, request: Request) -> Response:
        """Hold leases for longer; those that were not held any more are told."""
        fields = {"leases": field.leases, "seconds": field.seconds(EXTEND_MAX_S)}
        asked = await self._fields(request, fields, {"leases", "seconds"})
        named = _member(request)
        lost = await self._ask_for(request, "group_extend", **named, **asked)
        return _lost(named["group"], set(asked["leases"]), lost)

    # ---- messages -------------------------------------------------------------------------------

    async def _lease(self, wanted: LeaseRequest) -> Response:
        """Lease messages.

        Raises:
            GroupPaused, GroupFull: there are none for anybody, whatever the topic holds.
            PoeError: the group refuses.
        """
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            reply = await connection.lease(wanted)
            lease, is_envelope = reply.lease, False
            if lease.id:
                is_envelope = await self._has_envelope(connection, lease.topic)
            elif not (wanted.done or wanted.failed):  # what was told is taken, and is no error
                _check_open(await connection.control("group", group=wanted.group))
        content: dict[str, Any] = {"lease": None}
        if lease.id:
            content = {
                "lease": str(lease.id),
                "unit": name_text(lease.topic),
                "after": lease.after,
                "last": lease.last,
                "attempts": lease.attempts,
                "left_s": lease.left_s,
            }
        lost = [str(each) for each in lease.lost]
        messages = _messages(reply, is_envelope=is_envelope)
        return json_reply({**content, "lost": lost, "messages": messages})

    async def _has_envelope(self, connection: AsyncSocket, unit: bytes) -> bool:
        is_envelope, until_s = self._envelopes.get(unit, (False, 0.0))
        now_s = time.monotonic()
        if now_s >= until_s:
            found = await connection.find_topic(unit)
            is_envelope = found is not None and found.properties.envelope
            if len(self._envelopes) >= _TOPICS_MAX:
                self._envelopes.clear()
            self._envelopes[unit] = is_envelope, now_s + _ENVELOPE_S
        return is_envelope

    async def _read(
        self,
        named: dict[str, Any],
        *,
        generation: int = 0,
        units: dict[bytes, int | None] | None = None,
        limit: int,
        wait_s: float = 0.0,
    ) -> Response:
        """Return messages of the first unit that has some, and in which order to look next time."""
        claimed = units or {}
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            asked = {"generation": generation, "owned": list(claimed)}
            told = await connection.control("group_heartbeat", **named, **asked)
            places = {unit: claimed[unit] for unit in claimed if unit in set(told["keep"])}
            places |= dict.fromkeys(unit for unit in told["keep"] if unit not in places)
            # Asked without units, too: in mode shared, where nobody has any, this is refused.
            if not places or None in places.values():
                known = await connection.control("group_positions", group=named["group"])
                places = {
                    unit: (known.get(unit) or (0,))[0] if place is None else place
                    for unit, place in places.items()
                }
            pointers = {unit: place or 0 for unit, place in places.items()}
            # Others wait for what is to be given up, and the member is to hear of that soon.
            first_s = min(wait_s, _REVOKED_S) if told["revoke"] else 0.0
            unit = await _unit_with_news(connection, pointers, first_s)
            if unit is None and wait_s and not told["revoke"]:
                heard = {"generation": told["generation"], "owned": list(pointers)}
                news = _unit_with_news(connection, pointers, wait_s)
                unit, told = await self._news(news, named | heard, told)
        keep = set(told["keep"])
        messages = []
        if unit is not None:
            messages = await self._messages_of(unit, pointers.pop(unit), limit)
            pointers[unit] = messages[-1]["pointer"] if messages else places[unit] or 0
        content = {
            "generation": told["generation"],
            "units": [_place(*each) for each in pointers.items() if each[0] in keep],
            "revoke": [name_text(each) for each in told["revoke"]],
            "messages": messages,
        }
        return json_reply(content)

    async def _news(
        self,
        news: Coroutine[Any, Any, bytes | None],
        asked: dict[str, Any],
        told: dict[str, Any],
    ) -> tuple[bytes | None, dict[str, Any]]:
        """Return the unit with news, or what a group tells a member that is heard of meanwhile.

        Who only waits would be no member any more after a session.
        """
        waiting, beating = asyncio.ensure_future(news), asyncio.ensure_future(self._beat(asked))
        try:
            await asyncio.wait({waiting, beating}, return_when=asyncio.FIRST_COMPLETED)
            unit = waiting.result() if waiting.done() else None
            return unit, beating.result() if beating.done() else told
        finally:
            for each in (waiting, beating):
                each.cancel()
            await asyncio.gather(waiting, beating, return_exceptions=True)

    async def _beat(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Send heartbeats until the group tells of other units than the member has; return that."""
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            while True:
                wait_s = self._options.read_timeout_s / 2  # the group answers within its own time
                told: dict[str, Any] = await connection.control(
                    "group_heartbeat", **asked, wait_s=wait_s
                )
                if told["revoke"] or set(told["keep"]) != set(asked["owned"]):
                    return told
                await asyncio.sleep(_PAUSE_S)

    async def _messages_of(self, unit: bytes, pointer: int, limit: int) -> list[dict[str, Any]]:
        """Read a unit as a consumer does, which finds out whether something is lost.

        Raises:
            MessagesLost: messages behind the pointer were deleted.
            CorruptRecord, PoeError: they cannot be read.
        """
        options = ConsumerOptions(
            batch=-(-limit // _READ_BATCHES),
            fetch_bytes=_READ_BYTES,
            timeout_s=DOWN_WAIT_S,
            request_timeout_s=self._options.read_timeout_s,
        )
        reader = PartitionReader(self._servers, unit, 0, options, ConsumerStatistics())
        try:
            await reader.begin(pointer)
            fetched = await reader.read()
        finally:
            await reader.close()
        return [] if fetched is None else _rows(unit, fetched)[:limit]

    async def _while_wanted(
        self,
        request: Request,
        asked: ControlRequest | LeaseRequest,
        work: Coroutine[Any, Any, Response],
    ) -> Response:
        """Return what work comes to; it ends when the client is gone, or the gateway stops.

        Raises:
            Denied: it ends since the client may not read the group, or a topic of it, any more.
            RequestRefused: the gateway stops.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(request))
        denied = asyncio.ensure_future(self._until_denied(request, asked))
        self._waiting.add(task)
        try:
            await asyncio.wait({task, gone, denied}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                if denied.done():
                    raise denied.result()
            return await task
        except asyncio.CancelledError:
            why = "the gateway stops; ask another one, or retry later"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, why) from None
        finally:
            self._waiting.discard(task)
            for each in (task, gone, denied):
                each.cancel()

    async def _until_denied(self, request: Request, asked: ControlRequest | LeaseRequest) -> Denied:
        """Wait for as long as the client may ask this, then return why it may not."""
        topics = await self._topics_of(_group(request)) if self._admission.is_guarded else None
        needs = tuple(needs_of(asked, lambda _: topics or ()))
        return await self._admission.until_denied(request, needs)

    async def _ask_for(self, request: Request, op: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the op answers
        """Ask what the client may ask."""
        await self._check(request, ControlRequest(op, 0, arguments))
        return await self._ask(op, **arguments)

    async def _ask(self, op: str, **arguments: Any) -> Any:  # noqa: ANN401 - as the op answers
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            return await connection.control(op, **arguments)

    async def _check(self, request: Request, asked: ControlRequest | LeaseRequest) -> None:
        """Let those pass who meet the needs that the broker would have of them.

        Raises:
            Denied: the client does not.
        """
        if not self._admission.is_guarded:
            return
        group = _group(request)
        topics = await self._topics_of(group)
        await self._admission.require_for(request, asked, lambda _: topics or ())
        if isinstance(asked, ControlRequest) and "mode" in asked.arguments and topics is None:
            await self._admission.require(request, [Need.of_group("create", group.encode())])
            await self._check_may_make(request, **asked.arguments)

    async def _check_may_make(
        self, request: Request, *, mode: str, topics: Sequence[bytes] = (), **_: object
    ) -> None:
        """Let those pass who may make what a new group takes from, if that is a queue to be made.

        The broker makes it for the gateway, which may make all.

        Raises:
            Denied: the client may not.
        """
        if mode != "shared" or len(topics) != 1 or b"*" in topics[0]:
            return  # those take from no queue
        create = Need.of_topic("create", topics[0])
        if await self._admission.meets(request, create):
            return
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            found = await connection.find_topic(topics[0], is_queue=True)
        if found is not None and found.queue == {}:
            await self._admission.require(request, [create])

    async def _topics_of(self, group: str) -> list[bytes] | None:
        """Return the topics of a group; None where there is no such group."""
        topics, until_s = self._topics.get(group, ([], 0.0))
        now_s = time.monotonic()
        if now_s < until_s:
            return topics
        try:
            topics = list((await self._ask("group", group=group))["topics"])
        except UnknownGroup:
            return None
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics[group] = topics, now_s + TTL_MAX_S
        return topics

    async def _fields(
        self, request: Request, fields: Mapping[str, Field], required: set[str]
    ) -> dict[str, Any]:
        """Return the members of a request's body."""
        parameters_of(request, set())
        body = await self._inflow.receive(request)
        try:
            return fields_of(body, fields, required)
        finally:
            self._inflow.release(len(body))


def _group(request: Request) -> str:
    return unquote(request.path_params["group"])


def _member(request: Request) -> dict[str, Any]:
    return {"group": _group(request), "member": member_of(request.path_params["member"])}


async def _gone(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _unit_with_news(
    connection: AsyncSocket, pointers: dict[bytes, int], wait_s: float
) -> bytes | None:
    """Return the first unit in which something follows its pointer, once there is one."""
    until_s = time.monotonic() + wait_s
    while True:
        for unit, pointer in pointers.items():
            if await connection.span(unit, pointer, POINTER_MAX, 1, 1) is not None:
                return unit
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return None
        if not pointers:
            await asyncio.sleep(left_s)
            continue
        unit, pointer = next(iter(pointers.items()))
        await connection.wait(
            unit, pointer, min(left_s, WAIT_MAX_S if len(pointers) == 1 else _LOOK_S)
        )


def _check_open(described: dict[str, Any]) -> None:
    """Tell messages that are kept back from messages that there are not.

    Raises:
        GroupPaused, GroupFull: they are kept back.
    """
    if described["state"] == "paused":
        raise GroupPaused(described["name"])
    if described.get("full"):
        raise GroupFull(described["name"], *described["full"])


def _rows(unit: bytes, fetched: Fetched) -> list[dict[str, Any]]:
    """Return messages side by side as rows."""
    nothing = [None] * len(fetched.pointers)
    columns = fetched.keys or nothing, fetched.values, fetched.headers or nothing
    return [
        {"unit": name_text(unit), "pointer": pointer, "ordinal": ordinal}
        | record_of(key, value, headers)
        for pointer, ordinal, key, value, headers in zip(
            fetched.pointers, fetched.ordinals, *columns, strict=True
        )
    ]


def _messages(reply: LeaseReply, *, is_envelope: bool) -> list[dict[str, Any]]:
    """Return what was leased; each message's range is that from `after` to `pointer`."""
    rows, after = [], reply.lease.after
    for pointer, message in reply.records.pairs():
        # What is none is the client's to judge, or would come again.
        held = envelope.opened(message) if is_envelope else (None, message, None)
        rows.append({"after": after, "pointer": pointer} | record_of(*held))
        after = pointer
    return rows


def _place(unit: bytes, pointer: int) -> dict[str, Any]:
    return {"unit": name_text(unit), "pointer": pointer}


def _position(unit: bytes, position: tuple[int, bytes] | None) -> dict[str, Any]:
    if position is None:
        return {"unit": name_text(unit), "pointer": None}
    pointer, data = position
    return _place(unit, pointer) | text_member("data", data)


def _lost(group: str, told: set[int], lost: Any) -> Response:  # noqa: ANN401 - as it was sent
    """Return which leases were not held any more.

    Raises:
        LeaseLost: none of them was.
    """
    if told and told <= set(lost):
        raise LeaseLost(group, min(told))
    return json_reply({"lost": [str(each) for each in lost]})
