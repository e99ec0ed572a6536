"""The routes of what topics have: telling it, making a topic that has it, and changing it.

Only a server of Poe knows that. Nothing is deleted over HTTP: who may put is not thereby somebody
who may take away.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from poe.client import AsyncSocket
from poe.errors import NotATopic, OptionError, RequestRefused
from poe.gateway.http.body import parsed, properties_in
from poe.gateway.http.parts import GatewayParts
from poe.gateway.http.produce import topic_of
from poe.gateway.http.record import text_member
from poe.gateway.http.refusal import refuse
from poe.gateway.http.reply import json_reply
from poe.protocol import ControlRequest, DescribedTopic

_Question: TypeAlias = Callable[[AsyncSocket], Awaitable[DescribedTopic]]


class PropertyRoutes:
    """Answers for `/topics/{topic}/properties`."""

    def __init__(self, parts: GatewayParts) -> None:
        options, self._brokers, self._inflow, self._admission = parts
        self._timeout_s = options.read_timeout_s

    async def serve(self, request: Request) -> Response:
        """Make a topic (PUT), change what it has (PATCH), or tell that."""
        topic = topic_of(request)
        if request.method not in {"PUT", "PATCH"}:
            return await self._answer(lambda socket: socket.describe(topic))
        properties = await self._properties(request)
        op = "topic_alter" if request.method == "PATCH" else "topic_create"
        asked = ControlRequest(op, 0, {"topic": topic, "properties": properties})
        await self._admission.require_for(request, asked, lambda _: ())
        if request.method == "PATCH":
            return await self._answer(lambda socket: socket.alter_topic(topic, **properties))
        made = await self._answer(lambda socket: socket.create_topic(topic, **properties))
        made.status_code = HTTPStatus.CREATED
        return made

    async def _answer(self, question: _Question) -> Response:
        if self._brokers.is_kafka:
            why = "topics of Kafka have no properties here; ask for those of Poe"
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, why)
        try:
            # What the first refuses the next one would do: that may be another node.
            async with self._brokers.connection(self._timeout_s) as connection:
                found = await question(connection)
        except OptionError as error:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, str(error)) from error
        if found.queue is not None:
            raise NotATopic(found.name)
        return json_reply(_plain(found))

    async def _properties(self, request: Request) -> dict[str, Any]:
        """Return the body, an object of JSON; none stands for an empty one.

        Raises:
            RequestRefused: it is no object.
        """
        body = await self._inflow.receive(request)
        self._inflow.release(len(body))
        found = parsed(body, "the body") if body else {}
        if not isinstance(found, dict):
            refuse("the body is no object; send properties by name")
        return properties_in(found)


def _plain(topic: DescribedTopic) -> dict[str, Any]:
    """Return a description as JSON can hold it."""
    told = topic.as_map() | text_member("name", topic.name) | {"id": topic.id.hex()}
    return told | {
        "partitions": [
            {name: each for name, each in row._asdict().items() if name != "topic"}
            | text_member("topic", row.topic)
            for row in topic.partitions
        ]
    }
