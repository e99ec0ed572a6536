"""Queues of a cluster over HTTP: put onto one, which queues there are, and how the cluster is.

    POST /queues/{topic}    200 when so many nodes hold the messages, 202 when fewer do
    GET /queues             those that the client may describe
    GET /cluster            what the server says of its cluster, and of its members

They are taken by the routes of groups, of mode `shared`. Where the server is in no cluster, a topic
of its own is the queue.
"""

import time
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from poe.broker.access.permission import Need
from poe.client.async_socket import AsyncSocket
from poe.client.group.queue_core import COPIES_MAX, DEADLINE_MAX_S
from poe.client.producer import payload
from poe.errors import NotInCluster, UnderCopies
from poe.gateway.http.body import messages_in, once
from poe.gateway.http.group_fields import name_text, told_of
from poe.gateway.http.later import due_of, parts_for_later
from poe.gateway.http.parameters import parameters_of
from poe.gateway.http.parts import GatewayParts
from poe.gateway.http.produce import topic_of
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply
from poe.security.policy import GROUP, TOPIC

_PARAMETERS: Final = {"copies", "deadline_s", "delay_s", "at"}


class QueueRoutes:
    """Turns requests into what a broker is asked of its cluster; belongs to one event loop."""

    def __init__(self, parts: GatewayParts) -> None:
        self._options, self._brokers, self._inflow, self._admission = parts

    async def post(self, request: Request) -> Response:
        """Put messages onto a queue, which is made where there is none; later, if asked for so."""
        queue = topic_of(request)
        given = parameters_of(request, _PARAMETERS)
        copies = int(_number("copies", given.get("copies", "0"), COPIES_MAX))
        deadline_s = _number("deadline_s", given.get("deadline_s", "0"), DEADLINE_MAX_S)
        due_us = due_of(dict(once(request.scope["query_string"])), time.time_ns() // 1000)
        body = await self._inflow.receive(request)
        try:
            messages = await self._messages(request, body)
            timeout_s = self._options.sync_timeout_s + deadline_s
            async with self._brokers.connection(timeout_s) as connection:
                await self._check_may_make(request, connection, queue)
                if due_us is not None:
                    later = {"topic": queue, "due_us": due_us, "queue": True}
                    for some in parts_for_later(messages):
                        await connection.control("queue_put", messages=some, **later)
                    content = {"accepted": len(messages), "due_us": due_us}
                    return json_reply(content, HTTPStatus.ACCEPTED)
                try:
                    pointer = await connection.put_onto_queue(queue, messages, copies, deadline_s)
                except UnderCopies as under:
                    content = {"accepted": len(messages), "copies": under.made}
                    return json_reply(content | {"wanted": under.wanted}, HTTPStatus.ACCEPTED)
            return json_reply({"delivered": len(messages), "pointer": pointer})
        finally:
            self._inflow.release(len(body))

    async def get_queues(self, request: Request) -> Response:
        """List the queues that there are."""
        parameters_of(request, set())
        try:
            rows: list[dict[str, Any]] = await self._ask("queues")
        except NotInCluster:
            rows = []
        names = [row["name"] for row in rows]
        known = set(await self._admission.permitted(request, "describe", TOPIC, names))
        told = [row for row in rows if row["name"] in known]
        groups = sorted({each.encode() for row in told for each in row["groups"]})
        shown = set(await self._admission.permitted(request, "describe", GROUP, groups))
        for row in told:
            row["groups"] = {
                name: group for name, group in row["groups"].items() if name.encode() in shown
            }
        queues = [{**told_of(row), "name": name_text(row["name"])} for row in told]
        return json_reply({"queues": queues})

    async def get_cluster(self, request: Request) -> Response:
        """Return how the cluster is, and its members."""
        parameters_of(request, set())
        told = await self._ask("cluster")
        return json_reply({**told_of(told), "nodes": told_of(await self._ask("cluster_members"))})

    async def _ask(self, op: str) -> Any:  # noqa: ANN401 - what the op answers
        async with self._brokers.connection(self._options.read_timeout_s) as connection:
            return await connection.control(op)

    async def _messages(self, request: Request, body: bytes) -> list[bytes]:
        """Return the messages of a body, without keys: a queue has none.

        Raises:
            RequestRefused: there is none, or the body is not what it says.
            InvalidPayload: one is empty.
        """
        content_type = request.headers.get("content-type", "")
        messages = await messages_in(content_type, body, None, None, self._options.messages_max)
        parsed = payload.parse(messages, empty=False)
        return [each if isinstance(each, bytes) else each.value or b"" for each in parsed]

    async def _check_may_make(
        self, request: Request, connection: AsyncSocket, queue: bytes
    ) -> None:
        """Let those pass who may make the queue, and where there is one, everybody.

        Raises:
            Denied: the client may not.
        """
        create = Need.of_topic("create", queue)
        if not await self._admission.meets(request, create) and (
            await connection.find_topic(queue) is None
        ):
            await self._admission.require(request, [create])


def _number(name: str, text: str, most: float) -> float:
    """Return a number that a parameter says.

    Raises:
        RequestRefused: it says none, or one that is not allowed.
    """
    is_number = text.replace(".", "", name == "deadline_s").isdecimal() and text.isascii()
    if not is_number or float(text) > most:
        refuse(f"parameter {name} is {text!r:.100}; give a number up to {most:g}")
    return float(text)
