"""Reads topics from a server; one that is away for a while, as when it restarts, is waited for.

Reading changes nothing, so that whatever was interrupted is asked again, from where it was.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic, sleep
from typing import TypeVar

import pyarrow as pa

from poe.errors import CallTimeout, ConnectionClosed, PoeError
from poe.protocol import Socket, Span, socket
from poe.spark.arrow_batches import ArrowBatches
from poe.spark.planning import NO_LIMIT, SegmentRange, names_of
from poe.storage import POINTER_MAX

_log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 60.0
"""A server that runs answers a read at once; a connection to one that was unplugged never ends."""
_WAIT_FIRST_S = 0.05
_WAIT_MAX_S = 1.0

_Result = TypeVar("_Result")


class BrokerSegments:
    """The topics of one server, see `Segments`; connects when it is first asked."""

    def __init__(self, host: str, port: int, *, retry_timeout_s: float, is_known: bool) -> None:
        self._host = host
        self._port = port
        self._retry_timeout_s = retry_timeout_s
        self._is_known = is_known
        self._socket: Socket | None = None
        self._deadline_s = 0.0
        self._wait_s = 0.0

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return names_of(self._ask(lambda server: server.topics()))

    def segments(self, topic: str, after: int = 0) -> list[SegmentRange]:
        """Return the segments of a topic."""
        ranges = []
        for row in self._ask(lambda server: server.segments(topic)):
            timestamp = int(row["path"].rpartition("/")[2])
            first, last = row["pointer_low"], row["pointer_high"]
            if not row["count"]:
                first, last = timestamp, timestamp - 1
            ranges.append(
                SegmentRange(topic, timestamp, first, last, row["count"], row["size_bytes"])
            )
        return [*ranges[:-1], self._readable(ranges[-1], after)] if ranges else []

    def follows(self, topic: str, after: int) -> bool:
        """Tell whether something is stored behind a pointer."""
        found = self._ask(lambda server: server.span(topic, after, POINTER_MAX, 1, NO_LIMIT))
        return found is not None

    def span(self, whole: SegmentRange, count: int, bytes_max: int) -> Span | None:
        """Tell what so much of a range covers."""
        after = whole.first - 1
        return self._ask(
            lambda server: server.span(whole.topic, after, whole.last, count, bytes_max)
        )

    def batches(
        self, whole: SegmentRange, batches: ArrowBatches
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a range in batches."""
        reached = whole.first - 1
        while True:
            try:
                for records in self._connect().read_ranges(whole.topic, reached, whole.last):
                    self._note_success()
                    reached = int(records.pointers[-1])
                    yield (
                        reached,
                        batches.batch(
                            whole.topic,
                            whole.segment,
                            records.pointers,
                            records.starts,
                            records.data,
                        ),
                    )
            except PoeError as error:
                self._wait_or_raise(error)
            else:
                return

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

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

    def _ask(self, call: Callable[[Socket], _Result]) -> _Result:
        """Make a call until it is answered.

        Raises:
            PoeError: it was refused, or the server is away for too long.
        """
        while True:
            try:
                result = call(self._connect())
            except PoeError as error:
                self._wait_or_raise(error)
            else:
                self._note_success()
                return result

    def _connect(self) -> Socket:
        if self._socket is None or not self._socket.is_usable:
            self._socket = socket(self._host, self._port, timeout_s=CALL_TIMEOUT_S)
        return self._socket

    def _note_success(self) -> None:
        self._is_known = True
        self._wait_s = 0.0

    def _wait_or_raise(self, error: PoeError) -> None:
        """Wait before the next try, longer each time.

        Raises:
            PoeError: the error, where it does not pass, or has not passed for too long.
        """
        may_pass = error.retriable or isinstance(error, ConnectionClosed | CallTimeout)
        if not may_pass or not self._is_known:
            raise error
        if self._wait_s == 0:
            _log.warning("%s; asking again for %.0f s", error, self._retry_timeout_s)
            self._deadline_s = monotonic() + self._retry_timeout_s
        elif monotonic() >= self._deadline_s:
            raise error
        self._wait_s = min(max(2 * self._wait_s, _WAIT_FIRST_S), _WAIT_MAX_S)
        sleep(self._wait_s)
