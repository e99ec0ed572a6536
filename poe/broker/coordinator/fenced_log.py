"""The log of the groups of replicated topics, as the node that coordinates them writes it.

It is a replicated topic. All that is put onto it are puts of one producer, whose life is the claim
by which a node coordinates: every copy refuses what is put under an older claim, at the same place
of the stream. So who coordinates no more changes nothing, whatever it believes.

One put is under way at a time, and what comes meanwhile shares the next one. A put that nobody has
confirmed is made again under its number, until it is stored or refused: then it is all over.

What is only read is answered for `LEASE_S` behind a put that was stored, and not before another one
then; who coordinates next waits for as long before it begins.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from poe.actors import NO_REPLY, ActorRef, Call, Error, GenServer
from poe.broker.appendix.message import Put
from poe.broker.coordinator.group_log import Kind, encode
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.log_groups import GROUPS_OF_LOG, LOG_GROUPS
from poe.errors import (
    InvalidMessage,
    NoQuorum,
    PoeError,
    ProducerFenced,
    PutTooLarge,
    RepeatedPut,
    SequenceGap,
)
from poe.protocol import PutId
from poe.storage import Clock
from poe.storage.segment.producers import FAMILY_BYTES, PINNED_PREFIX, PRODUCER_BYTES

logger = logging.getLogger("poe.broker")

FENCED_WRITER: Final = "log_groups_writer"
"""Name of the actor that alone puts onto the log."""

LEASE_S: Final = 2.0
"""For so long behind a put that was stored nobody else answers for groups."""
HANDOVER_S: Final = 1.25 * LEASE_S
"""For so long a node waits before it answers, where another one has coordinated: clocks differ."""

_FAMILY: Final = PINNED_PREFIX + b"claim"
"""One that is known however long nothing is put."""
assert len(_FAMILY) == FAMILY_BYTES
_CONFIRM_S: Final = 10.0
_STUCK_S: Final = 15.0
"""Longer than the election of a leader takes."""
_RETRY_S: Final = 0.2
_BATCH_COUNT: Final = 1000
_BATCH_BYTES: Final = 4 * 1024 * 1024
_OVER: Final = (ProducerFenced, SequenceGap, RepeatedPut)
"""Somebody else coordinates."""


class Fence:
    """What a node knows of its claim; the writer changes it, any actor of the node looks."""

    __slots__ = ("begun_s", "confirmed_s", "epoch", "is_alone", "is_over")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.confirmed_s = float("-inf")
        """When the last put was begun that was stored under this claim."""
        self.is_alone = False
        """Whether whoever coordinated before answers no more."""
        self.begun_s = float("inf")
        """When the put was begun that is under way; infinite: none is."""
        self.is_over = False
        """Whether another one is known to hold."""

    def is_stuck(self, now_s: float) -> bool:
        """Return whether it is better that another node coordinates: this one can write nothing.

        Its copy of the log may stand still, for want of room, while those of others go on.
        """
        return now_s - self.begun_s > _STUCK_S


class Append(NamedTuple):
    """Asked of the writer: answers the pointer of a message once a majority has it.

    Raises:
        NoQuorum: another node coordinates; what was put may be stored.
    """

    message: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """Asked of the writer, or cast: answers as `Append`, of a message that says who coordinates."""


@dataclass(frozen=True, slots=True)
class End:
    """Cast to the writer: another node coordinates."""


class Fenced(NamedTuple):
    """Cast to `LOG_GROUPS`: a put was refused, since another node coordinates."""

    epoch: int


class _Batch(NamedTuple):
    number: int
    messages: list[bytes]


class _Stored(NamedTuple):
    pointer: int
    began_s: float


async def confirm(actor: GenServer, fence: Fence) -> None:
    """Make sure that this node still coordinates, after something was read.

    Raises:
        NoQuorum: it does not, or cannot know.
    """
    age_s = actor.monotonic_s() - fence.confirmed_s
    if fence.is_over:
        raise NoQuorum(GROUPS_OF_LOG)
    if age_s > LEASE_S:
        await actor.call(FENCED_WRITER, Confirm(), timeout_s=_CONFIRM_S)
    elif age_s > LEASE_S / 2:
        actor.cast(FENCED_WRITER, Confirm())


class FencedWriter(GenServer):
    """Puts what it is given onto the log, one batch after the other, under one claim.

    Always: `_under_way` is what was given to the putter, in order; `_number` is its number, or that
    of the next batch.
    """

    async def init(self, fence: Fence, routes: RoutingTable, node: str, clock: Clock) -> None:
        """Begin with the put that fences off who coordinated before."""
        self._fence = fence
        self._node = node
        self._clock = clock
        self._number = 0
        self._waiting: deque[tuple[bytes, Call | None]] = deque()
        self._under_way: list[tuple[bytes, Call | None]] = []
        self._is_confirming = False
        putter = await self.start_link(_Putter, self.ref, routes, fence.epoch)
        assert putter is not None
        self._putter = putter
        self._waiting.append((self._claim(), None))
        self._begin()

    def describe_role(self) -> str:
        """Return under which claim it puts, and how often it has."""
        return f"claim {self._fence.epoch}, {self._number} puts"

    def handle_call(self, request: Append | Confirm, caller: Call) -> Any:  # noqa: ANN401
        """Put something, as soon as what is under way is stored."""
        if self._fence.is_over:
            return Error(NoQuorum(GROUPS_OF_LOG))
        message = request.message if isinstance(request, Append) else self._claim()
        self._waiting.append((message, caller))
        self._begin()
        return NO_REPLY

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401
        """Hear what became of a batch, or that all is over."""
        match message:
            case Confirm():
                if not self._is_confirming and not self._fence.is_over:
                    self._is_confirming = True
                    self._waiting.append((self._claim(), None))
                    self._begin()
            case _Stored(pointer, began_s):
                self._stored(pointer, began_s)
            case End():
                self._end()
            case PoeError() if isinstance(message, _OVER):
                logger.warning("this node coordinates groups no more: %s", message)
                self._end()
                self.cast(LOG_GROUPS, Fenced(self._fence.epoch))
            case PoeError():
                self._refused(message)

    def _claim(self) -> bytes:
        return encode(Kind.CLAIM, "", b"", self._node, self._clock.now_us())

    def _begin(self) -> None:
        if self._under_way or not self._waiting:
            return
        size_bytes = 0
        while self._waiting and len(self._under_way) < _BATCH_COUNT:
            size_bytes += len(self._waiting[0][0])
            if self._under_way and size_bytes > _BATCH_BYTES:
                break
            self._under_way.append(self._waiting.popleft())
        self._fence.begun_s = self.monotonic_s()
        self.cast(self._putter, _Batch(self._number, [each for each, _ in self._under_way]))

    def _stored(self, pointer: int, began_s: float) -> None:
        if self._fence.is_over:
            return  # nobody waits for it any more
        self._number += 1
        self._fence.confirmed_s, self._fence.begun_s = began_s, float("inf")
        self._is_confirming = False
        stored, self._under_way = self._under_way, []
        first = pointer - len(stored) + 1
        for behind, (_, caller) in enumerate(stored):
            if caller is not None:
                self.reply(caller, first + behind)
        self._begin()

    def _refused(self, error: PoeError) -> None:
        """Tell that a batch can never be put; its number is that of the next one."""
        refused, self._under_way = self._under_way, []
        self._fence.begun_s = float("inf")
        self._is_confirming = False
        for _, caller in refused:
            if caller is not None:
                self.reply_error(caller, error)
        self._begin()

    def _end(self) -> None:
        self._fence.is_over = True
        given = [*self._under_way, *self._waiting]
        self._under_way = []
        self._waiting.clear()
        for _, caller in given:
            if caller is not None:
                self.reply_error(caller, NoQuorum(GROUPS_OF_LOG))


class _Putter(GenServer):
    """Makes the puts of a writer, its parent; each one until it is known what became of it."""

    def init(self, writer: ActorRef, routes: RoutingTable, epoch: int) -> None:
        self._writer = writer
        self._routes = routes
        self._producer = _FAMILY + epoch.to_bytes(PRODUCER_BYTES - FAMILY_BYTES)

    async def handle_cast(self, batch: _Batch) -> None:
        """Put a batch, and tell the writer."""
        # Behind the last number of an epoch comes the first one of the next.
        put = Put(batch.messages, PutId(self._producer, *divmod(batch.number, 1 << 32)))
        while True:
            began_s = self.monotonic_s()
            replica = (self._routes.replicas or {}).get(LOG_GROUPS_TOPIC)
            if replica is not None:
                try:
                    pointer = await self.call(replica, put, timeout_s=None)
                except (*_OVER, PutTooLarge, InvalidMessage) as error:
                    self.cast(self._writer, error)
                    return
                except PoeError as error:  # it may be stored: under its number it is stored once
                    logger.warning("the log of groups of replicated topics waits: %s", error)
                else:
                    self.cast(self._writer, _Stored(pointer, began_s))
                    return
            await self.sleep(_RETRY_S)
