"""What a node runs while it coordinates the groups of replicated topics, as child specs.

coordination        one_for_all, without a restart: who coordinates anew claims anew
├── log_groups_writer     puts what changes onto the log, fenced
├── log_group_sup         simple_one_for_one, temporary children: a group each
└── log_groups_registry   knows the groups, and starts those that are asked for
"""

from typing import Any, cast

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.actors import ActorRef
from poe.broker.coordinator.fenced_log import FENCED_WRITER, Fence, FencedWriter, confirm
from poe.broker.coordinator.group import Group
from poe.broker.coordinator.group_floors import GroupFloors
from poe.broker.coordinator.registry import LOG_GROUP_SUP, GroupParts, GroupRegistry
from poe.broker.requests.groups import (
    GROUP_OPERATIONS,
    REPLICATED_GROUPS,
    DeleteGroup,
    FindGroup,
    ForgetUnits,
    GroupRequest,
    ListGroups,
    log_address_of,
)
from poe.broker.requests.log_groups import (
    DOUBT,
    GROUPS_OF_LOG,
    LEASE,
    SERVE_S,
    TOPICS,
    Question,
)
from poe.broker.requests.request_handler import WAIT_MAX_S, RequestHandler
from poe.broker.requests.retry import until_answered
from poe.errors import ActorDead, NoQuorum, PoeError, RemoteProtocolError, TopicUnavailable
from poe.protocol import ControlReply, ErrorReply, LeaseReply, LeaseRequest
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    dynamic_supervisor,
)


def coordination(parts: GroupParts, node: str) -> tuple[SupervisorFlags, list[ChildSpec]]:
    """Return what the supervisor of a coordination is started with."""
    assert parts.fence is not None
    template = ChildSpec(id="group", actor=Group, restart=Restart.TEMPORARY)
    children = [
        ChildSpec(
            id=FENCED_WRITER,
            actor=FencedWriter,
            args=(parts.fence, parts.routes, node, parts.clock),
            name=FENCED_WRITER,
        ),
        dynamic_supervisor(LOG_GROUP_SUP, template),
        ChildSpec(id=REPLICATED_GROUPS, actor=GroupRegistry, args=(parts,), name=REPLICATED_GROUPS),
    ]
    return SupervisorFlags(strategy=Strategy.ONE_FOR_ALL, intensity=0), children


class Coordination:
    """Answers for the groups, in whatever actor asks."""

    __slots__ = ("_fence", "_floors")

    def __init__(self, fence: Fence, floors: GroupFloors) -> None:
        self._fence = fence
        self._floors = floors

    def floor(self, group: str, topic: bytes) -> int | None:
        """Return up to which pointer a group is done with a partition; see `UnreadFloor`."""
        return self._floors.floor(group, topic)

    async def answer(self, handler: RequestHandler, question: Question) -> bytes:
        """Return what the groups say, as long as this node coordinates."""
        try:
            answer = await self._serve(handler, question)
            await confirm(handler.actor, self._fence)
        except (ActorDead, NoQuorum, TopicUnavailable):
            return DOUBT
        except PoeError as error:
            return ErrorReply.from_error(error).encode()
        return answer

    async def _serve(self, handler: RequestHandler, question: Question) -> bytes:
        actor, name = handler.actor, question.group
        match question.op, question.arguments:
            case ("groups", _):
                rows = await actor.call(REPLICATED_GROUPS, ListGroups(), timeout_s=SERVE_S)
                return ControlReply(0, rows).encode()
            case ("forget", {"topic": topic, "units": units}):
                forgotten = ForgetUnits(topic, tuple(units))
                await actor.call(REPLICATED_GROUPS, forgotten, timeout_s=SERVE_S)
                return ControlReply(0, None).encode()
            case ("group_delete", {"force": force}):
                deleted = DeleteGroup(name, force is True)
                await actor.call(REPLICATED_GROUPS, deleted, timeout_s=SERVE_S)
                return ControlReply(0, None).encode()
        find = FindGroup(
            name,
            question.mode,
            question.topics,
            question.options,
            is_new=question.is_new,
            may_create=question.may_create,
        )
        ref = None if question.mode else actor.whereis(log_address_of(name))
        if ref is None:
            await actor.call(REPLICATED_GROUPS, find, timeout_s=SERVE_S)
        find = FindGroup(name)  # made by now, where it was to be
        if question.needs_topics:
            topics = self._floors.topics(name)
            if set(topics) != set(question.readable):
                return TOPICS + cast("bytes", msgpack.packb(topics))
        if question.op == LEASE:
            return await self._lease(handler, find, question)
        return await self._control(handler, find, question)

    async def _lease(self, handler: RequestHandler, find: FindGroup, question: Question) -> bytes:
        request = LeaseRequest.decode(memoryview(question.lease))
        # Where the messages lie in this node's copy is nothing to who asks: it has its own.
        wait_s = min(request.wait_s, WAIT_MAX_S)
        lease, _ = await self._ask(handler, find, request, wait_s)
        return LeaseReply.head(lease, b"", 0)

    async def _control(self, handler: RequestHandler, find: FindGroup, question: Question) -> bytes:
        parse = GROUP_OPERATIONS.get(question.op)
        if parse is None or not isinstance(question.arguments, dict):
            msg = f"operation {question.op!r} of groups is not known; update this node"
            raise RemoteProtocolError(msg)
        arguments = parse(question.arguments)
        wait_s = arguments.get("wait_s", 0.0)  # a heartbeat's, at most what a node lets one wait
        request = GroupRequest(question.op, arguments, find.name)
        return ControlReply(0, await self._ask(handler, find, request, wait_s)).encode()

    async def _ask(
        self,
        handler: RequestHandler,
        find: FindGroup,
        request: GroupRequest | LeaseRequest,
        wait_s: float,
    ) -> Any:  # noqa: ANN401 - what a group answers
        """Ask a group, which is started for that where it does not run."""
        actor = handler.actor
        timeout_s = SERVE_S + wait_s

        async def ask() -> Any:  # noqa: ANN401 - likewise
            if self._fence.is_over:
                raise NoQuorum(GROUPS_OF_LOG)
            ref: ActorRef | None = actor.whereis(log_address_of(find.name))
            if ref is None:
                ref = await actor.call(REPLICATED_GROUPS, find, timeout_s=SERVE_S)
            return await actor.call(ref, request, timeout_s=timeout_s)

        return await until_answered(actor, handler.routes, b"", ask)
