"""Compares the copy of a partition with those of the other nodes, segment by segment.

An actor of its own does so, and ends with it: it takes as long as reading all that there is, while
the replica goes on to take puts, and to answer nodes that compare theirs.
"""

from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_128

from poe.actors import ActorRef, Call, GenServer, Stop
from poe.broker.appendix.message import Describe, SegmentInfo
from poe.broker.registry.routing_table import RoutingTable
from poe.broker.requests.log_messages import VerifyLog
from poe.cluster.log.fetching import Fetching, FetchParts
from poe.cluster.log.peer_frames import (
    CopyDescription,
    CopyHash,
    CopySegment,
    DescribeCopy,
    HashCopy,
    decode_description,
    decode_hash,
)
from poe.errors import PoeError

COMPARER_SUP: Final = "comparer_sup"
_UNASKED_S: Final = 10.0
"""For so long one waits for who has had it started."""
_UNASKED: Final = object()
_HASHED_BYTES: Final = 1 << 20


class Comparer(GenServer):
    """Answers one `VerifyLog`."""

    def init(self, parts: FetchParts, folder: Path, replica: ActorRef) -> None:
        """Wait to be asked."""
        self._parts = parts
        self._folder = folder
        self._replica = replica
        self._fetching = Fetching(self, parts)
        self.send_after(_UNASKED_S, _UNASKED)

    async def handle_call(self, request: VerifyLog, caller: Call) -> Stop:
        """Compare, and end."""
        del request
        try:
            self.reply(caller, await self._compare_all())
        except PoeError as error:
            self.reply_error(caller, error)
        return Stop("normal")

    def handle_info(self, message: object) -> Stop:
        """End: who had it started has ended."""
        del message
        return Stop("normal")

    async def _compare_all(self) -> list[dict[str, Any]]:
        """Return a row for each node, of what this one and that have both."""
        question = DescribeCopy(self._parts.stream)
        own: CopyDescription = await self.call(self._replica, question, timeout_s=None)
        rows = []
        for node, copy in (await self._fetching.describe_all()).items():
            row: dict[str, Any] = {"node": node, "segments": 0, "messages": 0, "differing": []}
            rows.append(row)
            if isinstance(copy, str):
                row["error"] = copy
                continue
            row["behind"] = own.place - copy.place
            theirs = {each.timestamp: each for each in copy.segments}
            for segment in own.segments:
                other = theirs.get(segment.timestamp)
                if other is not None:
                    await self._compare(node, segment, other, row)
            row["differing"] = sorted({*row["differing"], *missing_segments(own, copy)})
        return rows

    async def _compare(
        self, node: str, own: CopySegment, other: CopySegment, row: dict[str, Any]
    ) -> None:
        parts = self._parts
        size_bytes = min(own.size_bytes, other.size_bytes)
        question = HashCopy(parts.stream, own.timestamp, size_bytes)
        path = await find_file(self, parts.routes, parts.topic, self._folder, question)
        if path is None:
            return  # it was trimmed meanwhile
        here = await self.run_blocking(hash_file, path, size_bytes)
        try:
            there = decode_hash(await self._fetching.ask_node(node, question))
            is_read = bool(here.digest and there.digest)
            if not is_read and await self._is_gone(node, question):
                return  # it was trimmed while it was read
        except PoeError as error:
            row["error"] = str(error)
            return
        row["segments"] += 1
        row["messages"] += min(own.messages, other.messages)
        if here != there or not is_read:  # what neither could read is not the same
            row["differing"].append(own.timestamp)

    async def _is_gone(self, node: str, question: HashCopy) -> bool:
        """Return whether this node or another one has not got by now what was to be compared."""
        parts = self._parts
        path = await find_file(self, parts.routes, parts.topic, self._folder, question)
        if path is None:
            return True
        answer = await self._fetching.ask_node(node, DescribeCopy(parts.stream))
        return not any(
            each.timestamp == question.timestamp and each.size_bytes >= question.size_bytes
            for each in decode_description(answer).segments
        )


def missing_segments(own: CopyDescription, other: CopyDescription) -> set[int]:
    """Return what names the segments that only one of two copies has, and both should have.

    Of copies that go up to the same place these are all. Else one may have begun more of them, and
    the other one may have had to let go of more.
    """
    here = {each.timestamp for each in own.segments}
    there = {each.timestamp for each in other.segments}
    alone = here ^ there
    if own.place == other.place:
        return alone
    if not here or not there:
        return set()
    first, last = max(min(here), min(there)), min(max(here), max(there))
    return {each for each in alone if first < each < last}


async def find_file(
    actor: GenServer, routes: RoutingTable, topic: bytes, folder: Path, question: HashCopy
) -> Path | None:
    """Return where the data of a segment are; None: there are not so many here."""
    route = routes.get(topic)
    if route is None:
        return None
    info: SegmentInfo = await actor.call(
        route.reader(question.timestamp - 1), Describe(), timeout_s=None
    )
    segment = segment_of(info)
    if segment.timestamp != question.timestamp or segment.size_bytes < question.size_bytes:
        return None
    return folder / (info.path + "_data")


def hash_file(path: Path | None, size_bytes: int) -> CopyHash:
    """Return what the first bytes of a file hash to; nothing of one that is shorter, or gone."""
    if path is None:
        return CopyHash(b"")
    digest = xxh3_128()
    try:
        with path.open("rb") as file:
            left = size_bytes
            while left:
                chunk = file.read(min(left, _HASHED_BYTES))
                if not chunk:
                    return CopyHash(b"")
                digest.update(chunk)
                left -= len(chunk)
    except OSError:
        return CopyHash(b"")
    return CopyHash(digest.digest())


def segment_of(info: SegmentInfo) -> CopySegment:
    """Return what other nodes are told of a segment."""
    timestamp = int(info.path.rpartition("/")[2])
    last_pointer = info.pointer_high or timestamp - 1
    return CopySegment(timestamp, info.base or 0, info.count, info.size_bytes, last_pointer)
