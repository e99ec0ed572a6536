"""Reads topics from a server; one that is away for a while, as when it restarts, is waited for.

Reading changes nothing, so that whatever was interrupted is asked again, from where it was: of
several servers, at the next one. What is known to be in a replicated topic is its floor: a copy
that ends before lags, and is taken neither for an end nor for a loss (`poe.spark.copies`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa

from poe.errors import NotAuthorized, PropertyMismatch
from poe.protocol import DescribedTopic, IndexedRecords, Removed, Socket, Span
from poe.protocol.server import Server
from poe.spark.arrow_batches import ArrowBatches, Place
from poe.spark.copies import check_reaches, check_replicated
from poe.spark.planning import NO_LIMIT, SegmentRange, names_of
from poe.spark.read_options import ReadOptions
from poe.spark.retrying_socket import Check, RetryingSocket
from poe.storage import POINTER_MAX
from poe.topic_properties import partition_of


class BrokerSegments:
    """The topics of a server, or of several, see `Segments`; connects when it is first asked."""

    def __init__(
        self, servers: Sequence[Server], *, retry_timeout_s: float, is_known: bool
    ) -> None:
        self._server = RetryingSocket(servers, retry_timeout_s, is_known=is_known)
        self._floors: dict[str, int] = {}
        """By topic a pointer that it is known to have, or to have had."""
        self._replicated: dict[str, bool] = {}
        """Whether topics are, as far as that was asked."""
        self._parts: dict[str, list[str]] = {}
        """Of topics that some server has, their partitions."""

    def look(self, options: ReadOptions) -> None:
        """Find out how far the topics of a read go at all servers, where there are several."""
        if not self._server.are_several:
            return
        for topics in self._server.everywhere(_described, options):
            for found in topics:
                parts = [each.topic.decode() for each in found.partitions]
                name = found.name.decode()
                self._parts[name] = max(self._parts.get(name, []), parts, key=len)
                for each in found.partitions:
                    self.expect(each.topic.decode(), each.newest or 0)

    def expect(self, topic: str, pointer: int) -> None:
        """Take that a topic has a pointer, or had it: a copy that ends before lags."""
        self._floors[topic] = max(pointer, self._floors.get(topic, 0))

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        found = names_of(self._server.call(Socket.topics))
        return sorted({*found, *self._parts}) if self._parts else found

    def partitions(self, topic: str) -> list[str]:
        """Return the topics that hold the partitions of a topic."""
        found = self._server.call(_find_topic, topic)
        if found is None or not found.is_told:
            return self._parts.get(topic, [topic])
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
        ranges, name = [], os.fsencode(topic)
        for row in self._server.call(Socket.segments, name, check=self._check(topic)):
            timestamp = int(row["path"].rpartition("/")[2])
            first, last = row["pointer_low"], row["pointer_high"]
            if not row["count"]:
                first, last = timestamp, timestamp - 1
            ranges.append(
                SegmentRange(topic, timestamp, first, last, row["count"], row["size_bytes"])
            )
        if not ranges:
            return []
        ranges[-1] = self._readable(ranges[-1], after)
        if self._server.are_several:
            self.expect(topic, max((each.last for each in ranges if each.count), default=0))
        return ranges

    def removed(self, topic: str, pointer: int) -> Removed:
        """Return what was removed of a topic from a pointer on."""
        return self._server.call(Socket.removed, os.fsencode(topic), pointer)

    def follows(self, topic: str, after: int) -> bool:
        """Return whether something is stored behind a pointer."""
        args = os.fsencode(topic), after, POINTER_MAX, 1, NO_LIMIT
        try:
            return self._server.call(Socket.span, *args) is not None
        except PropertyMismatch:  # its topic was made anew, with other partitions
            return False

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Return what so much of a range covers."""
        after = whole.first - 1
        args = os.fsencode(whole.topic), after, whole.last, count, bytes_max
        return self._server.call(Socket.span, *args, check=self._check(whole.topic))

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches."""
        reached = whole.first - 1
        self.expect(whole.topic, whole.last)
        check = self._check(whole.topic)

        def rest(server: Socket) -> Iterator[IndexedRecords]:
            if check is not None:
                check(server)
            return server.read_ranges(os.fsencode(whole.topic), reached, whole.last)

        for records in self._server.each(rest):
            reached = int(records.pointers[-1])
            columns = records.pointers, records.starts, records.data, records.ordinal
            yield reached, batches.batch(whole.topic, whole.segment, *columns)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _place_in(self, name: bytes, own: bytes) -> Place | None:
        """Return which partition of a topic another one is; None where it is none."""
        check = self._check(os.fsdecode(own)) if self._server.are_several else None
        found = self._server.call(Socket.find_topic, name, check=check)
        names = [each.topic for each in found.partitions] if found and found.is_told else []
        if found is None or own not in names:
            return None
        self._replicated[os.fsdecode(own)] = found.properties.is_replicated
        return Place(names.index(own), found.properties.envelope, os.fsdecode(name))

    def _check(self, topic: str) -> Check | None:
        """Return what makes sure that a server has what a topic is known to have.

        Raises:
            PoeError: as `check_replicated`, or it cannot be asked.
        """
        floor = self._floors.get(topic, 0)
        if not floor or not self._is_replicated(topic):
            return None
        return partial(check_reaches, topic=os.fsencode(topic), pointer=floor)

    def _is_replicated(self, topic: str) -> bool:
        """Return whether nodes agree on a topic; each of several servers has to say so.

        Raises:
            PoeError: as `check_replicated`, or it cannot be asked.
        """
        if topic not in self._replicated:
            name = os.fsencode(topic)
            if self._server.are_several:
                self._server.call(check_replicated, [name])
                self._replicated[topic] = True
            else:
                found = None
                with suppress(NotAuthorized):  # then it is asked for what matters
                    found = self._server.call(Socket.find_topic, name)
                self._replicated[topic] = found is not None and found.properties.is_replicated
        return self._replicated[topic]

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


def _find_topic(socket: Socket, topic: str) -> DescribedTopic | None:
    """Describe a topic; None where there is none.

    Raises:
        NotAuthorized: whoever asks may not read it.
        PoeError: as `Socket.find_topic`.
    """
    try:
        return socket.find_topic(topic)
    except NotAuthorized as refused:
        # Whoever may read a topic may describe it.
        raise NotAuthorized("read", refused.resource) from refused


def _described(socket: Socket, options: ReadOptions) -> list[DescribedTopic]:
    """Describe those of the topics of a read that a server has."""
    names = options.named_topics or filter(options.selects, names_of(socket.topics()))
    return [found for each in names if (found := _find_topic(socket, each)) is not None]
