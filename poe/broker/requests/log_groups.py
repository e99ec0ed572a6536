"""The groups of replicated topics, which one node of the cluster coordinates, as any node asks it.

Who is asked checks what whoever asks may do, and passes the question on; it reads the messages of a
lease from its own copy.

Layout of a question: the byte `g`, and msgpack [version: 1, op, group, mode or nil, topics,
options, whether it must be new, whether it may be made, topics that may be read, arguments, a lease
request or nothing]. An answer is a frame of the client protocol (a control reply, a lease reply, an
error), or a byte and what belongs to it:

    P           this node coordinates
    N           it does not
    D           it does not any more, and may have done it
    T msgpack   the topics of the group are these: may they be read?
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.access.permission import Need, check, first_refusal
from poe.broker.appendix.message import GetRange
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC, LogGroupsTable
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests import arguments as arg
from poe.broker.requests.log_messages import LOGS, CreateLog
from poe.broker.requests.needs import lease_needs, pattern_needs
from poe.broker.requests.request_handler import WAIT_MAX_S, WAIT_SLICE_S, RequestHandler
from poe.errors import (
    CallTimeout,
    CatalogChangedMeanwhile,
    NoQuorum,
    OptionError,
    PoeError,
    RemoteProtocolError,
    TopicExists,
    UnknownGroup,
)
from poe.protocol import ControlReply, ErrorReply
from poe.protocol.frames import HEADER_SIZE, split_frame
from poe.protocol.leases import Failed, Lease, LeaseReply, LeaseRequest
from poe.topic_name import topic_text
from poe.topic_properties import TopicProperties

logger = logging.getLogger("poe.broker")

LOG_GROUPS: Final = "log_groups"
"""Name of the actor that knows which node coordinates."""
GROUPS_OF_LOG: Final = "who coordinates the groups of replicated topics"

PING: Final = b"g"
HERE: Final = b"P"
NOT_HERE: Final = b"N"
DOUBT: Final = b"D"
TOPICS: Final = b"T"
LEASE: Final = "lease"
FORGET: Final = "forget"
LIST: Final = "groups"
UNREACHED: Final = "unreached"
"""In place of the mode of a group that nobody can be asked for."""

SERVE_S: Final = 10.0
"""For so long a group may take, and what it waits for is not counted."""
_MARGIN_S: Final = 2.0
_PATIENCE_S: Final = 20.0
"""For so long somebody is looked for who coordinates."""
_LIST_S: Final = 8.0
"""The same, of who lists groups, and has others to show."""
_GUESS_S: Final = 2.0
"""The same, of what may well be the group of a queue."""
_PAUSE_S: Final = 0.1
_COPY_S: Final = 5.0
"""For so long this node's copy may be behind that of who leases messages of it."""
_COPY_PAUSE_S: Final = 0.01
_TRIES_MAX: Final = 50
_VERSION: Final = 1
_FIELDS: Final = (str, str, str | None, list, object, bool, bool, list, object, bytes)
"""What a question holds behind its version."""
_ONCE: Final = frozenset({"group_create", "group_delete", "group_reset"})
"""Operations that are not asked for again where nobody knows whether they were done."""
_OF_QUEUES: Final = frozenset({"group_heartbeat", "group_extend", LEASE})
"""Operations of members of groups that take from queues, too."""
_READING: Final = frozenset(
    {"group_heartbeat", "group_commit", "group_positions", "group_extend", "group_join", LEASE}
)
"""Operations of who may read the topics of the group."""


class Question(NamedTuple):
    """What is asked, of which group."""

    op: str
    group: str
    mode: str | None = None
    topics: tuple[bytes, ...] = ()
    options: Any = None
    is_new: bool = False
    may_create: bool = False
    readable: tuple[bytes, ...] = ()
    """Topics that whoever asks may read."""
    arguments: Any = None
    lease: bytes = b""
    """The body of a lease request."""

    @property
    def needs_topics(self) -> bool:
        """Whether whoever asks has to be allowed to read the topics of the group."""
        return self.op in _READING and self.mode is None

    def encode(self) -> bytes:
        """Encode it."""
        packed: bytes = msgpack.packb((_VERSION, *self))
        return PING + packed

    @classmethod
    def decode(cls, payload: bytes) -> "Question":
        """Decode one.

        Raises:
            RemoteProtocolError: it is none.
        """
        try:
            version, *fields = msgpack.unpackb(payload[1:], use_list=True, strict_map_key=False)
            if version != _VERSION or len(fields) != len(_FIELDS):
                msg = f"version {version!r} of a question of groups is not known; update this node"
                raise RemoteProtocolError(msg)
            question = cls(*fields)
            topics, readable = tuple(question.topics), tuple(question.readable)
            are_names = all(type(each) is bytes for each in topics + readable)
            if not are_names or not all(map(isinstance, fields, _FIELDS)):
                msg = f"question of groups of {len(payload)} bytes has wrong fields"
                raise RemoteProtocolError(msg)
            return question._replace(topics=topics, readable=readable)
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            msg = f"question of groups of {len(payload)} bytes: {error}"
            raise RemoteProtocolError(msg) from error


class AskCoordinator(NamedTuple):
    """Asked of `LOG_GROUPS`: answers what the node says that coordinates; see above.

    `DOUBT` where it has not answered in time.
    """

    payload: bytes
    deadline_s: float


def is_replicated(routes: RoutingTable, topics: Iterable[bytes]) -> bool:
    """Return whether topics are replicated, all of them.

    Raises:
        OptionError: some are, and some are not.
    """
    properties = routes.properties
    if properties is None or routes.log_groups is None:
        return False
    own: list[str] = []
    replicated: list[str] = []
    for topic in topics:
        found = properties.holder(topic) or properties.find(topic)
        is_one = found is not None and found.properties.is_replicated
        (replicated if is_one else own).append(topic_text(topic))
    if own and replicated:
        given = ", ".join([*replicated, *own])
        allowed = (
            f"replicated topics only ({', '.join(replicated)}), or none of them: "
            "make a group for these and another one for those"
        )
        raise OptionError("topics", given, allowed)
    return bool(replicated)


def check_heard(routes: RoutingTable, topics: Iterable[bytes]) -> None:
    """Refuse to make a group of this node's own for topics that may be replicated.

    It would be another one than that of the other nodes.

    Raises:
        NoQuorum: one is not known here, where it has yet to be heard which ones are replicated.
    """
    if routes.is_catalog_known or routes.properties is None:
        return
    for topic in topics:
        if b"*" in topic or routes.is_topic(topic):
            continue
        what = f"whether topic {topic_text(topic)} is replicated"
        raise NoQuorum(what)


class Answered(NamedTuple):
    """An answer, of a group of which one may know."""

    result: Any


async def ask_log_groups(handler: RequestHandler, question: Question) -> Answered | None:
    """Ask the node that coordinates; None where there is no such group.

    Raises:
        GroupError: as the group says.
        NotAuthorized: who asks may not read its topics.
        NoQuorum: nobody coordinates just now.
        CallTimeout: who does has not answered; it may be done later.
    """
    if question.mode is not None and question.may_create and not _table(handler).are_any:
        await _make_log(handler, question.topics)
    if question.op == "group_heartbeat":
        return await _heartbeat(handler, question)
    return await _ask(handler, question, 0.0)


def _table(handler: RequestHandler) -> LogGroupsTable:
    table = handler.routes.log_groups
    assert table is not None
    return table


async def _make_log(handler: RequestHandler, topics: tuple[bytes, ...]) -> None:
    """Make the topic that holds what is known of such groups, with as many copies as these have."""
    properties = handler.routes.properties
    assert properties is not None
    replicas = 3
    for topic in topics:
        found = properties.holder(topic) or properties.find(topic)
        if found is not None:
            replicas = max(replicas, found.properties.replicas)
    made = CreateLog(LOG_GROUPS_TOPIC, TopicProperties(replicas=replicas))
    for _ in range(_TRIES_MAX):
        # Maybe another node makes it just now.
        with suppress(TopicExists, CatalogChangedMeanwhile):
            await handler.actor.call(LOGS, made, timeout_s=None)
        if _table(handler).are_any:
            return
        await handler.actor.sleep(_PAUSE_S)
    raise NoQuorum(GROUPS_OF_LOG)


async def _heartbeat(handler: RequestHandler, question: Question) -> Answered | None:
    """Ask again and again, for a while each time: who coordinates may be another one by then."""
    actor, arguments = handler.actor, dict(question.arguments)
    until_s = actor.monotonic_s() + arg.wait_s(arguments, WAIT_MAX_S)
    while True:
        left_s = until_s - actor.monotonic_s()
        slice_s = arguments["wait_s"] = min(WAIT_SLICE_S, max(0.0, left_s))
        answered = await _ask(handler, question._replace(arguments=arguments), slice_s)
        is_over = left_s <= WAIT_SLICE_S or not handler.is_wanted
        if answered is None or is_over or _has_news(answered.result, arguments):
            return answered


def _has_news(told: Any, said: dict[str, Any]) -> bool:  # noqa: ANN401 - a map, as a group tells it
    return bool(told["revoke"]) or set(told["keep"]) != set(said.get("owned", ()))


async def _ask(handler: RequestHandler, question: Question, wait_s: float) -> Answered | None:
    """Ask once, and again where the topics of the group are others than was thought."""
    table = _table(handler)
    while True:
        if question.needs_topics:
            topics = table.topics(question.group)
            of_group = Need.of_group("read", question.group.encode())
            check(handler.permissions, chain([of_group], pattern_needs("read", topics)))
            question = question._replace(readable=topics)
        try:
            answer = await _reach(handler, question, wait_s)
        except (NoQuorum, CallTimeout):
            if _is_guess(table, question):
                return None  # one of a queue, maybe, which needs no majority
            raise
        if answer[:1] == TOPICS:
            table.learn(question.group, msgpack.unpackb(answer[1:]))
            continue
        try:
            result = _decode(answer)
        except UnknownGroup:
            table.forget(question.group)
            if question.mode is not None and is_replicated(handler.routes, question.topics):
                raise
            return None
        if question.op == "group_delete":
            table.forget(question.group)
        elif question.mode is not None:
            table.learn(question.group, question.topics)
        return Answered(result)


def _is_guess(table: LogGroupsTable, question: Question) -> bool:
    """Return whether a group may as well be that of a queue, of which this node has not heard."""
    return question.op in _OF_QUEUES and question.group not in table


async def _reach(handler: RequestHandler, question: Question, wait_s: float) -> bytes:
    """Return what whoever coordinates answers; look for them for a while."""
    table, actor = _table(handler), handler.actor
    payload = question.encode()
    is_guess = _is_guess(table, question)
    patience_s = _GUESS_S if is_guess else _LIST_S if question.op == LIST else _PATIENCE_S
    until_s = actor.monotonic_s() + patience_s
    is_doubtful = False
    while True:
        if table.here is not None:
            answer = await table.here.answer(RequestHandler(actor, handler.routes), question)
        else:
            serve_s = patience_s if is_guess else SERVE_S + _MARGIN_S
            asked = AskCoordinator(payload, serve_s + wait_s)
            answer = await actor.call(LOG_GROUPS, asked, timeout_s=None)
        if answer not in {NOT_HERE, DOUBT}:
            return bytes(answer)
        is_doubtful = is_doubtful or answer == DOUBT
        is_late = actor.monotonic_s() >= until_s or not handler.is_wanted
        if is_doubtful and (is_late or question.op in _ONCE):
            raise CallTimeout(GROUPS_OF_LOG, patience_s)
        if is_late:
            raise NoQuorum(GROUPS_OF_LOG)
        await actor.sleep(_PAUSE_S)
        if is_doubtful and not handler.is_wanted:
            # Who gave it up may have said something else since, which this would come behind.
            raise CallTimeout(GROUPS_OF_LOG, _PATIENCE_S)


def _decode(answer: bytes) -> Any:  # noqa: ANN401 - what was asked for
    """Return what an answer says.

    Raises:
        PoeError: it says so.
    """
    if len(answer) < HEADER_SIZE:
        msg = f"answer of groups of {len(answer)} bytes is not known"
        raise RemoteProtocolError(msg)
    kind, body = split_frame(answer)
    if kind == ErrorReply.MESSAGE_TYPE:
        raise ErrorReply.decode(body).to_error()
    if kind == ControlReply.MESSAGE_TYPE:
        return ControlReply.decode(body).result
    if kind == LeaseReply.MESSAGE_TYPE:
        return LeaseReply.decode(body).lease
    msg = f"answer of groups of type {kind} is not known; update this node"
    raise RemoteProtocolError(msg)


# ---- leases -------------------------------------------------------------------------------------


async def lease_of_log(handler: RequestHandler, request: LeaseRequest) -> Any:  # noqa: ANN401
    """Ask a group of replicated topics for messages; None where there is no such group.

    Answers a lease, and where its messages lie in this node's copy.

    Raises:
        GroupError, NoQuorum, CallTimeout, NotAuthorized: as `ask_log_groups`.
        PoeError: this node's copy cannot be read; somebody else gets the messages.
    """
    lease = await _poll(handler, request)
    if lease is None or not lease.id:
        return None if lease is None else (lease, None)
    needs = lease_needs(request, handler.routes.topics_of_group)
    refusal = first_refusal(handler.permissions, needs)
    found, failure = None, refusal
    if refusal is None and handler.is_wanted:
        try:
            found = await _find(handler, lease, request)
        except PoeError as error:
            failure = error
    if found is None:
        own = RequestHandler(handler.actor, handler.routes)  # whatever the client may do by now
        await _ask(own, release_question(request.group, request.member, lease), 0.0)
    if failure is not None:
        raise failure
    return lease if found is not None else Lease()._replace(lost=lease.lost), found


async def _poll(handler: RequestHandler, request: LeaseRequest) -> Lease | None:
    """Ask for a lease, for a while each time: who coordinates may be another one by then."""
    asked, left_s = request, min(request.wait_s, WAIT_MAX_S)
    lost: tuple[int, ...] = ()
    is_told = False
    """Whether who coordinates has heard what became of messages."""
    while True:
        asked = asked._replace(wait_s=min(left_s, WAIT_SLICE_S))
        try:
            answered = await _ask(handler, _lease_question(asked), asked.wait_s)
        except PoeError:
            if not is_told:
                raise
            return Lease()._replace(lost=lost)  # who asks next is told, too
        if answered is None:
            return None
        lease: Lease = answered.result
        lost = lost or lease.lost
        if lease.id or left_s <= WAIT_SLICE_S or not handler.is_wanted:
            return lease._replace(lost=lost)
        left_s -= WAIT_SLICE_S
        asked, is_told = asked._replace(done=(), failed=()), True


async def _find(handler: RequestHandler, lease: Lease, asked: LeaseRequest) -> Any:  # noqa: ANN401
    """Find the messages of a lease in this node's copy; None where it has not got all of them."""
    until_s = handler.actor.monotonic_s() + _COPY_S
    while True:
        wanted = GetRange(lease.after, lease.last, asked.limit, asked.bytes_max)
        found = await handler.get_range(lease.topic, wanted)
        if found is not None and found.records.last_pointer == lease.last:
            return found
        if handler.actor.monotonic_s() >= until_s or not handler.is_wanted:
            return None
        await handler.actor.sleep(_COPY_PAUSE_S)


def _lease_question(request: LeaseRequest) -> Question:
    return Question(LEASE, request.group, lease=bytes(request.encode()[HEADER_SIZE:]))


def release_question(group: str, member: bytes, lease: Lease) -> Question:
    """Return what gives a lease back of which nobody was told."""
    back = Failed(lease.id, lease.after, lease.last, "release")
    return _lease_question(LeaseRequest(group, member, 0, 0, 0.0, (), (back,)))


async def list_log_groups(handler: RequestHandler) -> list[dict[str, Any]]:
    """Return name, mode and topics of all groups of replicated topics.

    Where nobody coordinates, of those that this node has heard of, with mode `unreached`.
    """
    table = handler.routes.log_groups
    if table is None or not table.are_any:
        return []
    try:
        answered = await _ask(handler, Question(LIST, ""), 0.0)
    except (NoQuorum, CallTimeout):
        return [
            {"group": name, "mode": UNREACHED, "topics": list(topics)}
            for name, topics in table.rows()
        ]
    return [] if answered is None else list(answered.result)


async def forget_units(handler: RequestHandler, topic: bytes, units: tuple[bytes, ...]) -> None:
    """Have the groups of replicated topics forget how far they are in one that was deleted.

    What fails is said, and stays: the topic is deleted all the same.
    """
    table = handler.routes.log_groups
    if table is None or not table.are_any:
        return
    arguments = {"topic": topic, "units": list(units)}
    try:
        await _ask(handler, Question(FORGET, "", arguments=arguments), 0.0)
    except PoeError as error:
        logger.error("groups do not forget topic %s: %s", topic_text(topic), error)
