"""The blocking client: calls to request frames, replies to values.

One call sends one request and waits for its reply; only `write_batches` and `read_ranges` have
several requests under way. What a request and its reply mean is in `exchange.py` and `messages.py`;
the connection, its time-outs and its end are in `wire.py`.
"""

from collections.abc import Generator, Iterable, Iterator
from ssl import SSLContext
from typing import Any, Self

from poe.errors import CorruptRecord, LocalProtocolError
from poe.errors.timeout import limit_of
from poe.protocol import exchange
from poe.protocol.arguments import topic_bytes
from poe.protocol.described_topic import DescribedTopic
from poe.protocol.frames import FRAME_MAX
from poe.protocol.leases import LeaseReply, LeaseRequest
from poe.protocol.node_event import EVENTS_COUNT_MAX, EventPage
from poe.protocol.put import LastPut, Messages, PutId, PutReply, PutRequest, put_frame
from poe.protocol.ranges import (
    RANGE_BYTES,
    RANGE_COUNT_MAX,
    IndexedRecords,
    IndexedReply,
    RangeRequest,
    Span,
)
from poe.protocol.records import Record
from poe.protocol.removed import Removed
from poe.protocol.scan import Scanned
from poe.protocol.server import Server, server_at
from poe.protocol.wire import IN_FLIGHT_MAX, Wire, open_wire
from poe.record import POINTER_MAX
from poe.security.credentials import Credentials
from poe.security.entry import Entry
from poe.security.tls import Tls

FOLLOW_WAIT_S = 30.0
"""How long `follow` lets the server wait for new messages before it asks again."""


def socket(  # noqa: PLR0913 - where it is, how to get in, and what to put up with
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    tls: Tls | SSLContext | None = None,
    credentials: Credentials | None = None,
    timeout_s: float | None = None,
    frame_max: int = FRAME_MAX,
) -> "Socket":
    """Connect to a server.

    Args:
        host: name or address.
        port: TCP port; None is 5555, or 5556 with `tls`.
        tls: what to demand of TLS, and to show of oneself; None is to speak without.
        credentials: how to log in; None is not to.
        timeout_s: time that connecting, and later each call, may take; None for no limit.
        frame_max: largest frame in bytes to send or to accept.

    Raises:
        ConnectFailed: nobody listens there, or not within `timeout_s`.
        TlsFailed: what there is is no TLS connection to that server.
        AuthenticationFailed: the credentials are wrong.
        InvalidTimeout: `timeout_s` is no time.
        PoeError: the credentials cannot be used, or another refusal.
    """
    return open_socket(server_at(host, port, Entry(tls, credentials)), timeout_s, frame_max)


def open_socket(
    server: Server,
    timeout_s: float | None = None,
    frame_max: int = FRAME_MAX,
    *,
    connect_timeout_s: float | None = None,
) -> "Socket":
    """Connect to a server, see `socket`; `connect_timeout_s` is for connecting, if it is less."""
    limit_s = limit_of(timeout_s)
    return Socket(open_wire(server, limit_s, frame_max, connect_timeout_s), frame_max)


def write(topic: bytes | str, messages: Messages, socket: "Socket") -> int:
    """Append messages to a topic through an open socket; see `Socket.write`."""
    return socket.write(topic, messages)


def read(topic: bytes | str, pointer: int, limit: int, socket: "Socket") -> list[Record]:
    """Return records that follow a pointer through an open socket; see `Socket.read`."""
    return socket.read(topic, pointer, limit)


class Socket:
    """One connection to a server; made by `poe.protocol.socket`.

    Not thread-safe: a second thread needs a socket of its own, and so does a forked process, where
    the copy of this one is not usable. A refused request leaves the socket usable. After a
    time-out, an interrupt, a lost connection or a reply that makes no sense it is not, since nobody
    could tell which reply belongs to which request; each further call says so.
    """

    def __init__(self, wire: Wire, frame_max: int) -> None:
        self._wire = wire
        self._frame_max = frame_max

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; further calls raise `ConnectionClosed`."""
        self._wire.close("it was closed here")

    @property
    def is_usable(self) -> bool:
        """Return whether it can still be used: not closed, nor broken by what came or did not."""
        return self._wire.is_usable

    def write(self, topic: bytes | str, messages: Messages, put_id: PutId | None = None) -> int:
        """Append all messages to the topic, or none, and return the pointer of the last.

        With a `put_id` they are stored once, however often this is called with it: call it again
        where it is not known whether they were stored.

        Raises:
            SequenceGap, ProducerFenced: nothing was stored; see `PutId`.
            RepeatedPut: they were stored before, at a pointer that is not known any more.
            LocalProtocolError: nothing was sent; topic or messages are not acceptable, or do not
                fit into one frame of `frame_max` bytes.
            ConnectionClosed, CallTimeout, ActorDead: the messages may have been stored, or not.
            PoeError: the server's refusal; nothing was stored.
        """
        frame = put_frame(topic_bytes(topic), messages, put_id, self._frame_max)
        return self._wire.call(frame, PutReply).pointer

    def write_batches(
        self, topic: bytes | str, batches: Iterable[Messages]
    ) -> Generator[int, None, None]:
        """Write many batches without waiting for each reply; yield each batch's last pointer.

        A pointer comes late: when `IN_FLIGHT_MAX` later batches were sent or none is left. Other
        calls must wait until the iterator has ended or was closed. When it raises, up to
        `IN_FLIGHT_MAX` batches whose pointers were not yielded may have been stored.

        Raises:
            PoeError: as `write`.
        """
        name = topic_bytes(topic)
        wire = self._wire
        wire.prepare()
        try:
            for batch in batches:
                frame = PutRequest(name, batch).encode(self._frame_max)
                if wire.in_flight_count == IN_FLIGHT_MAX:
                    yield wire.receive(PutReply).pointer
                if wire.is_to_renew():
                    while wire.in_flight_count:
                        yield wire.receive(PutReply).pointer
                    wire.prepare()
                wire.send(frame)
            while wire.in_flight_count:
                yield wire.receive(PutReply).pointer
        finally:
            wire.drop_replies(PutReply)

    def read(self, topic: bytes | str, pointer: int, limit: int) -> list[Record]:
        """Return (pointer, message) of up to `limit` records that follow `pointer`, oldest first.

        An empty list means that nothing follows yet, or that the topic is not known.

        Raises:
            LocalProtocolError, PointerOutOfRange: nothing was sent; an argument is out of range.
            ConnectionClosed, CallTimeout: no reply came.
            CorruptRecord: the first record that follows is damaged; those before it were read.
            PoeError: the server's refusal.
        """
        return self._wire.ask(exchange.read(topic, pointer, limit))

    def read_range(
        self,
        topic: bytes | str,
        pointer: int,
        last: int,
        limit: int = RANGE_COUNT_MAX,
        bytes_max: int = RANGE_BYTES,
    ) -> IndexedRecords:
        """Return records that follow `pointer` up to `last`, oldest first, as arrays.

        They are of one segment, at most `limit`, and about `bytes_max` bytes at most, though it is
        one record at least. There are none where nothing follows up to `last`.

        Raises:
            PoeError: as `read`.
        """
        return self._wire.ask(exchange.read_range(topic, pointer, last, limit, bytes_max))

    def read_ranges(
        self,
        topic: bytes | str,
        pointer: int,
        last: int,
        limit: int = RANGE_COUNT_MAX,
        bytes_max: int = RANGE_BYTES,
    ) -> Generator[IndexedRecords, None, None]:
        """Yield all records that follow `pointer` up to `last`, a `read_range` at a time.

        The next ones are asked for before those that came are yielded. Other calls must wait until
        the iterator has ended or was closed.

        Raises:
            PoeError: as `read_range`.
        """
        name, wire = topic_bytes(topic), self._wire
        wire.prepare()
        try:
            wire.send(RangeRequest(name, pointer, last, limit, bytes_max).encode())
            while wire.in_flight_count:
                try:
                    records = wire.receive(IndexedReply).records
                except CorruptRecord:
                    records = self.read_range(name, pointer, last, 1)
                if len(records):
                    pointer = int(records.pointers[-1])
                    if pointer < last:
                        wire.prepare()
                        wire.send(RangeRequest(name, pointer, last, limit, bytes_max).encode())
                    yield records
        finally:
            wire.drop_replies(IndexedReply)

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Tell a group what became of its messages, and ask for more.

        Raises:
            LocalProtocolError: nothing was sent; a field is out of range.
            GroupError: the group's refusal; what was told may have been taken.
            CorruptRecord: the first record is damaged.
            ConnectionClosed, CallTimeout: no reply came; `wait_s` is added to the time-out.
        """
        return self._wire.ask(exchange.lease(request))

    def control(self, op: str, **arguments: object) -> Any:  # noqa: ANN401 - any msgpack value
        """Return the result of a control request, such as `info` or `sync`.

        Raises:
            LocalProtocolError: nothing was sent; an argument cannot be sent.
            ConnectionClosed, CallTimeout: no reply came.
            PoeError: the server's refusal.
        """
        return self._wire.ask(exchange.control(op, arguments, lambda result: result))

    def wait(self, topic: bytes | str, pointer: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until something follows `pointer`; return whether it does.

        Raises:
            PointerOutOfRange: nothing was sent.
            PoeError: as `control`; the socket's own time-out is added to `timeout_s`.
        """
        return self._wire.ask(exchange.wait(topic, pointer, timeout_s))

    def topics(self) -> list[bytes]:
        """Return the names of all topics.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.topics())

    def status(self) -> dict[bytes, list[Any]]:
        """Return for each topic the reference and role of each of its appendix servers.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.status())

    def info(self) -> dict[bytes, list[dict[str, Any]]]:
        """Return for each topic what is known of its segments, oldest first, a map for each.

        They are asked for page by page, so that no reply is longer than it need be.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.info())

    def counters(self, *, are_all: bool = False) -> dict[str, Any]:
        """Return what the node and its topics have done since it started; see `docs/operations.md`.

        `node` and `topics` are maps; topics that nobody has put onto or read are not in it, and
        those of the node's own only with `are_all`.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.counters(are_all=are_all))

    def events(
        self, after: int = 0, *, limit: int = EVENTS_COUNT_MAX, wait_s: float = 0.0
    ) -> EventPage:
        """Return what has happened behind the event with seq `after`, oldest first.

        Where nothing has, wait for it up to `wait_s` seconds.

        Raises:
            NotAuthorized: whoever asks does not administer the node.
            PoeError: as `control`; the socket's own time-out is added to `wait_s`.
        """
        return self._wire.ask(exchange.events(after, limit, wait_s))

    def scan(  # noqa: PLR0913 - what is looked for, where, and how far
        self,
        topic: bytes | str,
        after: int = 0,
        last: int = POINTER_MAX,
        *,
        contains: bytes | str | None = None,
        regex: str | None = None,
        bytes_max: int | None = None,
        matches_max: int | None = None,
    ) -> Scanned:
        """Look for messages behind `after` and up to `last` that contain or match something.

        One call looks through 16 MiB, or `bytes_max`, at most 64 MiB; for a second; and up to 100
        matches, or `matches_max`, at most 1000. Go on behind `looked_up_to` until `is_end`.

        Raises:
            UnknownTopic: nobody put anything onto it.
            InvalidPattern: the regular expression is none, or the node has no RE2.
            RemoteProtocolError: not one of `contains` and `regex` is given, or a limit is wrong.
            PoeError: as `control`.
        """
        found = {"contains": contains, "regex": regex}
        limits = {"bytes_max": bytes_max, "matches_max": matches_max}
        return self._wire.ask(exchange.scan(topic, after, last, **found, **limits))

    def connections(self) -> list[dict[str, Any]]:
        """Return who is connected to the node, oldest first, a map for each.

        Raises:
            NotAuthorized: whoever asks does not administer the node.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.connections())

    def producers(self, topic: bytes | str) -> list[dict[str, Any]]:
        """Return those who number their puts onto a topic, a map for each, the newest first.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.producers(topic))

    def config(self) -> dict[str, dict[str, Any]]:
        """Return the node's options by name: `value`, and `from` where it came.

        Raises:
            NotAuthorized: whoever asks does not administer the node.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.node_config())

    def segments(self, topic: bytes | str) -> list[dict[str, Any]]:
        """Return what is known of the segments of a topic, oldest first, a map for each.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.segments(topic))

    def removed(self, topic: bytes | str, pointer: int) -> Removed:
        """Return what was removed of a topic from `pointer` on; the topic need not exist any more.

        Raises:
            PointerOutOfRange: nothing was sent.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.removed(topic, pointer))

    def span(
        self, topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
    ) -> Span | None:
        """Return what a `read_range` would return, without its bytes; None where it is nothing.

        Raises:
            LocalProtocolError, PointerOutOfRange: nothing was sent; an argument is out of range.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.span(topic, pointer, last, limit, bytes_max))

    def ordinal(self, topic: bytes | str, pointer: int) -> int:
        """Return the ordinal of the first message behind `pointer`; where none is, the next one.

        Differences of ordinals are numbers of messages, but for those that damage has cost.

        Raises:
            PointerOutOfRange: nothing was sent.
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.ordinal(topic, pointer))

    def pointer_at(self, topic: bytes | str, ordinal: int) -> int | None:
        """Return the pointer of the first message with an ordinal, or a greater one; None: not yet.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.pointer_at(topic, ordinal))

    def trim(self, topic: bytes | str, pointer: int) -> int:
        """Delete the segments that hold nothing behind `pointer`; return how many. The topic stays.

        Raises:
            PointerOutOfRange: nothing was sent.
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.trim(topic, pointer))

    def delete(self, topic: bytes | str) -> None:
        """Delete a topic with all its partitions; the next put onto it makes a new one.

        Raises:
            UnknownTopic: nobody put anything onto it.
            PoeError: as `control`.
        """
        self._wire.ask(exchange.delete(topic))

    def describe(self, topic: bytes | str) -> DescribedTopic:
        """Return what a topic has, and what its partitions hold.

        Raises:
            UnknownTopic: nobody has made it, or put anything onto it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.describe(topic))

    def find_topic(self, topic: bytes | str, *, is_queue: bool = False) -> DescribedTopic | None:
        """Return the same; None where there is no such topic, or the server is too old to tell.

        With `is_queue` a node of a cluster describes a queue that there is not yet, too.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.find_topic(topic, is_queue=is_queue))

    def create_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Make a topic that has these properties, and return it; see `TopicProperties`.

        Raises:
            OptionError: nothing was sent; a property that there is not, or a wrong value.
            TopicExists: it is there, or a topic that would be a partition of it.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.create_topic(topic, properties))

    def alter_topic(self, topic: bytes | str, **changes: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Change properties of a topic, and return what it has then.

        Raises:
            OptionError: nothing was sent; as `create_topic`.
            UnknownTopic: nobody has made it, or put anything onto it.
            PropertyFixed: fewer partitions, or another envelope; nothing was changed.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.alter_topic(topic, changes))

    def adopt_topic(self, topic: bytes | str, **properties: Any) -> DescribedTopic:  # noqa: ANN401 - checked
        """Take topics `t-0` to `t-(n-1)`, which are there, for the `partitions` of topic `t`.

        Raises:
            OptionError: nothing was sent; as `create_topic`.
            UnknownTopic: none of them is there.
            PropertyMismatch: there are more of them.
            TopicExists: it was described before, or `t` itself is there.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.adopt_topic(topic, properties))

    def list_topics(self, *, are_all: bool = False) -> list[DescribedTopic]:
        """Return all topics, sorted, without their partitions.

        `are_all`: the node's own, too. A partition of another topic is none of them.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.list_topics(are_all=are_all))

    def topic_names(self) -> list[bytes]:
        """Return the names of all topics, sorted, as `list_topics`, and much sooner.

        Raises:
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.topic_names())

    def copy(
        self, source: bytes | str, pointer: int, last: int, topic: bytes | str, put_id: PutId
    ) -> int:
        """Copy what a put has stored on `source` onto another topic; return the last pointer there.

        It is the put `put_id` there, and so copied once, however often this is called with it. The
        server does it: no message comes here.

        Args:
            source: topic where it is.
            pointer: the one before the first of its records; its last less their number.
            last: pointer of its last record, as `write` has returned it.
            topic: where the records are to go.
            put_id: as of `write`.

        Raises:
            RangeGone: not all of its records are there any more; nothing was copied.
            PoeError: as `write` and `control`.
        """
        return self._wire.ask(exchange.copy(source, pointer, last, topic, put_id))

    def last_put(self, topic: bytes | str, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer that the topic has; None where it has none.

        It tells no number that is free: what was sent before this may come in behind it, and of a
        replicated topic the copy of the node may end earlier.

        Raises:
            LocalProtocolError: nothing was sent; the producer is none.
            PoeError: as `control`.
        """
        return self._wire.ask(exchange.last_put(topic, producer))

    def follow(self, topic: bytes | str, pointer: int = 0, batch: int = 100) -> Iterator[Record]:
        """Yield each record that follows `pointer`, for ever; wait where none is there yet.

        Between two records the socket may be used for other calls.

        Args:
            topic: name of the topic, which need not exist yet.
            pointer: the last one seen; 0 begins with the oldest record.
            batch: records to read at a time, 1 or more.

        Raises:
            PoeError: as `read` and `wait`.
        """
        if batch < 1:
            msg = f"batch is {batch}; follow reads 1 record or more at a time"
            raise LocalProtocolError(msg)
        last_pointer = pointer
        while True:
            records = self.read(topic, last_pointer, batch)
            yield from records
            if records:
                last_pointer = records[-1][0]
            else:
                self.wait(topic, last_pointer, FOLLOW_WAIT_S)
