"""Brings a copy up to where its stream can be followed, from the copy of another node.

What is fetched are records as they lie there, segment by segment, so that both are the same. Until
all is here and synced the copy says of itself that its place is not known: who finds it so, after
whatever has ended the last try, goes on fetching.
"""

import contextlib
from functools import partial
from typing import Any, Final, NamedTuple

from poe.actors import ActorRef, Call, GenServer
from poe.broker.appendix.message import AppendRecords, SetPlace, Sync
from poe.broker.appendix.server import REGISTRY
from poe.broker.registry.copy_messages import (
    BeginSegment,
    CopyWriter,
    DropCopy,
    EnsureCopy,
    TrimCopy,
)
from poe.broker.registry.routing_table import RoutingTable
from poe.cluster.log.engine import EngineState, LogEngine
from poe.cluster.log.engine_door import Ask
from poe.cluster.log.peer_frames import (
    CopyDescription,
    CopySegment,
    DescribeCopy,
    Question,
    ReadCopy,
    decode_description,
    decode_records,
    encode_question,
)
from poe.errors import CopyNotFetched, CorruptRecord, PoeError, RemoteProtocolError, UnknownNode
from poe.record import ENTRY_BYTES
from poe.storage import PLACE_UNKNOWN

_ASK_S: Final = 10.0
_DESCRIBE_S: Final = 5.0
_STATE_S: Final = 5.0


class Source(NamedTuple):
    """A node whose copy goes far enough."""

    node: str
    copy: CopyDescription


class FetchParts(NamedTuple):
    """What fetching works with."""

    topic: bytes
    stream: str
    me: str
    """Name of this node, as the engine knows it."""

    engine: LogEngine
    door: ActorRef
    routes: RoutingTable


def is_begin_of(here: CopyWriter, there: CopyDescription) -> bool:
    """Return whether a copy is what another one was at some time, as far as that can be told."""
    found = next((each for each in there.segments if each.timestamp == here.timestamp), None)
    if found is None:
        return False
    is_short = here.segment_count < found.messages and here.last_pointer < found.last_pointer
    is_same = here.segment_count == found.messages and here.last_pointer <= found.last_pointer
    return is_short or is_same


class Fetching:
    """Fetches one copy, on behalf of its replica, which serves nobody meanwhile."""

    def __init__(self, actor: GenServer, parts: FetchParts) -> None:
        self._actor = actor
        self._parts = parts

    async def fetch(self, least_place: int) -> int:
        """Have the copy be as another one that goes at least up to a place; return its place.

        Where one is damaged, or its node does not answer, the next one is tried.

        Raises:
            CopyNotFetched, RemoteProtocolError: no node that is reached has given one.
            PoeError: something failed on the way; another try goes on from there.
        """
        failed: PoeError | None = None
        for source in await self._find(least_place):
            try:
                return await self._fetch_from(source)
            except (CopyNotFetched, RemoteProtocolError) as error:
                failed = error
        assert failed is not None
        raise failed

    async def _fetch_from(self, source: Source) -> int:
        here = await self._begin(source.copy)
        for segment in source.copy.segments:
            if here is None or segment.timestamp >= here.timestamp:
                here = await self._fetch_segment(source, segment, here)
        route = self._parts.routes.get(self._parts.topic)
        if route is not None:
            for ref in route.refs:
                await self._actor.call(ref, Sync(), timeout_s=None)
            request = SetPlace(source.copy.place, source.copy.puts)
            await self._actor.call(route.writer, request, timeout_s=None)
        return source.copy.place

    async def is_elsewhere(self, place: int) -> bool:
        """Return whether another node that is reached has a copy that goes up to a place."""
        try:
            await self._find(place)
        except PoeError:
            return False
        return True

    async def describe_all(self) -> dict[str, CopyDescription | str]:
        """Return what the copies of all other nodes hold, by node, or why that is not known."""
        engine = self._parts.engine
        state: EngineState = await self._ask(partial(engine.state, _STATE_S))
        others = sorted(state.peers.keys() - {self._parts.me})
        question = DescribeCopy(self._parts.stream)
        # All at once: one that does not answer has nobody wait for the others.
        asked = {
            node: self._begin_to_ask(node, question, _DESCRIBE_S)
            for node in others
            if state.peers[node]
        }
        told: dict[str, CopyDescription | str] = dict.fromkeys(others, "it is not reached")
        for node, answer in asked.items():
            try:
                told[node] = decode_description(await self._answer(node, answer))
            except PoeError as error:
                told[node] = str(error)
        return told

    async def ask_node(self, node: str, question: Question) -> bytes:
        """Ask the replica of another node.

        Raises:
            CopyNotFetched: it does not answer.
        """
        return await self._answer(node, self._begin_to_ask(node, question, _ASK_S))

    def _begin_to_ask(self, node: str, question: Question, limit_s: float) -> Call:
        return self._ask(partial(self._parts.engine.ask, node, encode_question(question), limit_s))

    async def _answer(self, node: str, asked: Call) -> bytes:
        with contextlib.suppress(UnknownNode):
            answer = await asked
            if answer is not None:
                return bytes(answer)
        raise CopyNotFetched(self._parts.topic, f"node {node} does not answer")

    def _ask(self, begin: Any) -> Call:  # noqa: ANN401 - as `LogEngine` tells
        return self._actor.call(self._parts.door, Ask(begin), timeout_s=None)

    async def _find(self, least_place: int) -> list[Source]:
        """Return the copies that go far enough, the one that goes furthest first; one at least."""
        told = await self.describe_all()
        sources = [
            Source(node, copy)
            for node, copy in told.items()
            if isinstance(copy, CopyDescription) and least_place <= copy.place < PLACE_UNKNOWN
        ]
        if not sources:
            why = ", ".join(f"{node}: {_short(copy)}" for node, copy in told.items())
            raise CopyNotFetched(self._parts.topic, why or "there is no other node")
        return sorted(sources, key=lambda each: each.copy.place, reverse=True)

    async def _begin(self, there: CopyDescription) -> CopyWriter | None:
        """Keep what is here of the other copy, and say that it goes on from there."""
        topic, call = self._parts.topic, self._actor.call
        here: CopyWriter | None = await call(REGISTRY, EnsureCopy(topic), timeout_s=None)
        if here is not None and not is_begin_of(here, there):
            await call(REGISTRY, DropCopy(topic), timeout_s=None)
            return None
        if here is not None:
            await call(here.ref, SetPlace(PLACE_UNKNOWN), timeout_s=None)
            # What the other one has let go of is nothing that this one is to have.
            trim = TrimCopy(topic, there.segments[0].timestamp - 1)
            await call(REGISTRY, trim, timeout_s=None)
        return here

    async def _fetch_segment(
        self, source: Source, segment: CopySegment, here: CopyWriter | None
    ) -> CopyWriter:
        topic, call = self._parts.topic, self._actor.call
        if here is None:
            begin: Any = EnsureCopy(topic, segment.timestamp, segment.base)
            here = await call(REGISTRY, begin, timeout_s=None)
        elif segment.timestamp > here.timestamp:
            here = await call(REGISTRY, BeginSegment(topic), timeout_s=None)
        assert here is not None
        if here.timestamp != segment.timestamp:
            await call(REGISTRY, DropCopy(topic), timeout_s=None)
            raise CopyNotFetched(topic, "it is not what the other nodes have")
        pointer, count = here.last_pointer, here.segment_count
        while count < segment.messages:
            question = ReadCopy(self._parts.stream, pointer, segment.last_pointer)
            records = decode_records(await self.ask_node(source.node, question))
            if not records.entries:
                raise CopyNotFetched(topic, f"node {source.node} has let go of it meanwhile")
            try:
                pointer = await call(here.ref, AppendRecords(*records), timeout_s=None)
            except CorruptRecord as error:
                why = f"node {source.node} has sent records that are damaged"
                raise CopyNotFetched(topic, why) from error
            got_count = len(records.entries) // ENTRY_BYTES
            count += got_count
        if count != segment.messages:
            msg = f"node {source.node} has sent {count} messages of {segment.messages}"
            raise RemoteProtocolError(msg)
        return here


def _short(copy: CopyDescription | str) -> str:
    return copy if isinstance(copy, str) else f"only up to {copy.place}"
