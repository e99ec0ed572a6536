"""The supervision tree of one node, as child specs.

    poe_sup                    one_for_one, intensity 10 in 1 s
    ├── appendix_sup           simple_one_for_one, temporary children, shutdown 5 s
    ├── topic_registry         recovers all topics before its start is done
    ├── local_requests         slow path of application threads
    └── listener_sup           rest_for_one; started last, absent without a port

Source: poe_sup.erl, appendix_sup.erl.
"""

from dataclasses import dataclass, field
from typing import Any

from poe.actors import Call, Error, GenServer
from poe.broker.appendix_server import REGISTRY, AppendixOptions, AppendixServer
from poe.broker.connection import ConnectionOptions
from poe.broker.listener import ListenerOptions, ListenerParts, ListenerSup
from poe.broker.request_handler import RequestHandler
from poe.broker.routing_table import RoutingTable
from poe.broker.topic_registry import APPENDIX_SUP, RegistryOptions, TopicRegistry
from poe.errors import PoeError
from poe.storage import Clock, Messages, Store
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
)

LOCAL_REQUESTS = "local_requests"


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node's tree is built from."""

    store: Store
    ack: str
    clock: Clock
    registry: RegistryOptions
    appendix: AppendixOptions
    listener: ListenerParts
    routes: RoutingTable = field(default_factory=RoutingTable)


class NodeSup(Supervisor):
    """poe_sup: the root of the tree."""

    def configure(self, parts: NodeParts) -> Any:  # noqa: ANN401 - flags and specs
        """Describe the children in start order."""
        template = ChildSpec(id="appendix_server", actor=AppendixServer, restart=Restart.TEMPORARY)
        children = [
            ChildSpec(
                id=APPENDIX_SUP,
                actor=Supervisor,
                args=(SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE), [template]),
                kind=ChildKind.SUPERVISOR,
                name=APPENDIX_SUP,
            ),
            ChildSpec(
                id=REGISTRY,
                actor=TopicRegistry,
                args=(
                    parts.store,
                    parts.routes,
                    parts.ack,
                    parts.registry,
                    parts.appendix,
                    parts.clock,
                ),
                name=REGISTRY,
            ),
            ChildSpec(
                id=LOCAL_REQUESTS, actor=LocalRequests, args=(parts.routes,), name=LOCAL_REQUESTS
            ),
        ]
        if parts.listener.options.port is not None:
            listener = ChildSpec(
                id="listener_sup",
                actor=ListenerSup,
                args=(parts.listener,),
                kind=ChildKind.SUPERVISOR,
                name="listener_sup",
            )
            children.append(listener)
        flags = SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=10, period_s=1)
        return flags, children


@dataclass(frozen=True, slots=True)
class PutSlowly:
    """Append a batch wherever the topic's writer is by then."""

    topic: bytes
    messages: Messages


@dataclass(frozen=True, slots=True)
class NextSlowly:
    """Read the message behind a pointer wherever it is by then."""

    topic: bytes
    pointer: int


@dataclass(frozen=True, slots=True)
class ControlLocally:
    """Carry out a control request for an application thread."""

    op: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DescribeLocally:
    """Answer `[(ref, SegmentInfo)]` of a topic."""

    topic: bytes


class LocalRequests(GenServer):
    """Serves application threads where asking the appendix server directly did not do."""

    def init(self, routes: RoutingTable) -> None:
        """Make the handler that connections use, too."""
        self._handler = RequestHandler(self, routes)

    async def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Carry out one request; its error goes to the caller."""
        handler = self._handler
        try:
            match request:
                case PutSlowly(topic, messages):
                    return await handler.put(topic, messages)
                case NextSlowly(topic, pointer):
                    return await handler.next(topic, pointer)
                case ControlLocally(op, arguments):
                    return await handler.control(op, arguments)
                case DescribeLocally(topic):
                    return await handler.describe(topic)
        except PoeError as error:
            return Error(error)
        return super().handle_call(request, caller)
