"""Reads topics from a server; one that is away for a while, as when it restarts, is waited for.

Reading changes nothing, so that whatever was interrupted is asked again, from where it was.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from poe.errors import NotAuthorized
from poe.protocol import IndexedRecords, Removed, Socket, Span
from poe.protocol.server import Server
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.planning import NO_LIMIT, SegmentRange, names_of
from poe.spark.retrying_socket import RetryingSocket
from poe.storage import POINTER_MAX
from poe.topic_properties import partition_of


class BrokerSegments:
    """The topics of one server, see `Segments`; connects when it is first asked."""

    def __init__(self, server: Server, *, retry_timeout_s: float, is_known: bool) -> None:
        self._server = RetryingSocket(server, retry_timeout_s, is_known=is_known)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return names_of(self._server.call(Socket.topics))

    def partitions(self, topic: str) -> list[str]:
        """Return the topics that hold the partitions of a topic."""
        try:
            found = self._server.call(Socket.find_topic, topic)
        except NotAuthorized as refused:
            # Whoever may read a topic may describe it.
            raise NotAuthorized("read", refused.resource) from refused
        if found is None or not found.is_told:
            return [topic]
        return [each.topic.decode() for each in found.partitions]

    def place(self, topic: str) -> Place:
        """Return which partition of its topic this one is, and whether that has envelopes."""
        own = os.fsencode(topic)
        part = partition_of(own)
        place = None
        if part is not None:
            # By its name it could be a partition; who may read it alone need not know of what.
            with suppress(NotAuthorized):
                place = self._place_in(part[0], own)
        return place or self._place_in(own, own) or Place()

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic."""
        ranges = []
        for row in self._server.call(Socket.segments, topic):
            timestamp = int(row["path"].rpartition("/")[2])
            first, last = row["pointer_low"], row["pointer_high"]
            if not row["count"]:
                first, last = timestamp, timestamp - 1
            ranges.append(
                SegmentRange(topic, timestamp, first, last, row["count"], row["size_bytes"])
            )
        return [*ranges[:-1], self._readable(ranges[-1], after)] if ranges else []

    def removed(self, topic: str, pointer: int) -> Removed:
        """Return what was removed of a topic from a pointer on."""
        return self._server.call(Socket.removed, topic, pointer)

    def follows(self, topic: str, after: int) -> bool:
        """Return whether something is stored behind a pointer."""
        found = self._server.call(Socket.span, topic, after, POINTER_MAX, 1, NO_LIMIT)
        return found is not None

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Return what so much of a range covers."""
        after = whole.first - 1
        return self._server.call(Socket.span, whole.topic, after, whole.last, count, bytes_max)

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches."""
        reached = whole.first - 1

        def rest(server: Socket) -> Iterator[IndexedRecords]:
            return server.read_ranges(whole.topic, reached, whole.last)

        for records in self._server.each(rest):
            reached = int(records.pointers[-1])
            columns = records.pointers, records.starts, records.data, records.ordinal
            yield reached, batches.batch(whole.topic, whole.segment, *columns)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _place_in(self, name: bytes, own: bytes) -> Place | None:
        """Return which partition of a topic another one is; None where it is none."""
        found = self._server.call(Socket.find_topic, name)
        names = [each.topic for each in found.partitions] if found and found.is_told else []
        if found is None or own not in names:
            return None
        return Place(names.index(own), found.properties.envelope, os.fsdecode(name))

    def _readable(self, newest: SegmentRange, after: int) -> SegmentRange:
        """Return what can be read of a topic's newest segment behind a pointer.

        With the server's option `read="synced"` that is less than what is stored.
        """
        first = max(newest.first, after + 1)
        rest = replace(newest, first=first)
        found = replace(newest, first=first, last=first - 1, count=0, bytes=0)
        while found.last < newest.last and (span := self.span(rest, NO_LIMIT, NO_LIMIT)):
            found = replace(
                found,
                last=span.last_pointer,
                count=found.count + span.record_count,
                bytes=found.bytes + span.size_bytes,
            )
            rest = replace(rest, first=found.last + 1)
        return found
