"""What nodes tell each other about a queue: frames, to bytes and back.

A frame may be lost, come twice, or late; each says enough to be understood alone. What comes from a
peer is checked here, so that whoever is handed a frame can take it for one: lengths, types, ranges
that rise, and of records their headers. What it says may still be untrue.

Wire: a msgpack array of the kind, a number, and the fields of the frame. Ranges are one flat array,
after and last of each. Kinds and the fields of each stand in `docs/formats.md`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.groups.ranges import Bounds
from poe.cluster.batch import Batch
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue_record import TIME_MAX_US, GroupRecord, QueueRecord
from poe.errors import PoeError, RemoteProtocolError
from poe.record import POINTER_MAX

_T = TypeVar("_T")

WHOLE: Final = -1
"""In place of the version that changes follow: they are all that there is."""

KNOWN_RANGES_MAX: Final = 50_000
"""What is known of groups travels, and is written, in pieces of so many ranges: many times less
than an envelope holds, though names and causes count as a few."""
_NAMED_RANGES = 64
"""As many bytes as so many ranges a group's name has, or a cause, at most."""

Outcome = Literal["held", "full", "failed"]
"""What became of messages at a node: it holds them, has no room for them, or cannot write them."""


class Store(NamedTuple):
    """Hold these messages; answered with `Stored`."""

    queue: bytes
    record: QueueRecord
    """For a node that has not heard of the queue yet."""
    stream: StreamId
    batch: Batch
    holders: tuple[NodeRef, ...]
    """Who holds them, or was asked to: the sender, too, if it does."""
    is_copy: bool
    """Whether they are copied anew after a loss, and not put."""


class Stored(NamedTuple):
    """What became of a `Store`."""

    queue: bytes
    stream: StreamId
    after: int
    last: int
    outcome: Outcome


class Held(NamedTuple):
    """What a node holds of a stream that it did not before, and what not any more."""

    stream: StreamId
    added: tuple[Bounds, ...]
    dropped: tuple[Bounds, ...]


class Again(NamedTuple):
    """Messages that were handed out again knowingly."""

    cause: str
    node: NodeRef
    """Which hands them out again."""
    other: NodeRef
    """To which they were handed out before."""
    since_us: int
    ranges: tuple[Bounds, ...]


class Known(NamedTuple):
    """What a node knows of a group and a stream: all of it is joined by union."""

    group: str
    stream: StreamId
    done: tuple[Bounds, ...]
    granted: tuple[tuple[NodeRef, tuple[Bounds, ...]], ...]
    """What each node has handed to a client."""
    again: tuple[Again, ...]


class News(NamedTuple):
    """What has changed at a node, or all of it, as far as it was asked for."""

    queue: bytes
    life_us: int
    """Since when the sender has its copies without a break."""
    since: int
    """The version that these news follow, or `WHOLE`: `held` is all that there is."""
    version: int
    """That of the sender now; as `since` where it answers a question, and not what it holds."""
    held: tuple[Held, ...]
    known: tuple[Known, ...]
    groups: tuple[GroupRecord, ...]


class Summary(NamedTuple):
    """What a node knows of a group and a stream, in short."""

    group: str
    stream: StreamId
    digest: int
    """A hash of it, 64 bits."""


class Digest(NamedTuple):
    """What a node knows, in short; whoever knows other things answers with `Difference`."""

    queue: bytes
    life_us: int
    version: int
    known: tuple[Summary, ...]
    groups: tuple[GroupRecord, ...]
    forgotten: tuple[tuple[bytes, int], ...]
    """Up to which epoch the streams of an origin are over, and done everywhere."""
    is_answer: bool
    """Whether it is one to a digest, and wants none itself."""


class Difference(NamedTuple):
    """Tell me all of this; answered with `News`."""

    queue: bytes
    is_held_asked: bool
    """Whether all that the receiver holds is."""
    known: tuple[tuple[str, StreamId], ...]


class Want(NamedTuple):
    """Lend me messages, of which my members have none; answered with `Given`, now or later.

    One that was answered is answered the same, as far as that still holds.
    """

    queue: bytes
    group: str
    number: int
    """Greater than that of each `Given` that the sender has taken; the same until it has."""
    limit: int
    """Messages at most; 0: none is wanted any more."""
    bytes_max: int
    """Bytes of records at most, though one message always comes."""


class Loan(NamedTuple):
    """A lease that a node was given, and its messages."""

    lease: int
    stream: StreamId
    after: int
    last: int
    attempts: int
    """As `Failures` of groups have them, and the next two."""
    limit: int | None
    reason: str
    batches: tuple[Batch, ...]
    """Empty: the receiver holds them itself."""


class Given(NamedTuple):
    """These are yours while you keep them; else whoever gave them hands them out again."""

    queue: bytes
    group: str
    number: int
    """That of the `Want`."""
    loans: tuple[Loan, ...]


class Keep(NamedTuple):
    """I still have these leases; those that are none any more are answered with `Revoked`."""

    queue: bytes
    group: str
    leases: tuple[int, ...]


class Back(NamedTuple):
    """A range of a lease that is handed back."""

    lease: int
    after: int
    last: int
    attempts: int
    limit: int | None
    delay_us: int
    """Not before that."""
    reason: str


class Release(NamedTuple):
    """Hand these out yourself again."""

    queue: bytes
    group: str
    parts: tuple[Back, ...]


class Revoked(NamedTuple):
    """These leases are yours no more."""

    queue: bytes
    group: str
    leases: tuple[int, ...]


class Paused(NamedTuple):
    """Whether the group hands anything out, and since when; the latest word holds."""

    queue: bytes
    group: str
    since_us: int
    is_paused: bool


class Claim(NamedTuple):
    """I hold these in your place, of what is handed out once at most; answered with `Ceded`."""

    queue: bytes
    group: str
    stream: StreamId
    """Of the receiver."""
    ranges: tuple[Bounds, ...]


class Ceded(NamedTuple):
    """These are yours to hand out, for good: I did not, and count them as done."""

    queue: bytes
    group: str
    stream: StreamId
    ranges: tuple[Bounds, ...]


ShareFrame = Want | Given | Keep | Release | Revoked | Paused | Claim | Ceded
"""What the parts of a group tell each other."""


class Prove(NamedTuple):
    """Show that you hold these messages; answered with `Proof`."""

    queue: bytes
    stream: StreamId
    after: int
    last: int
    seed: int
    """What the hash begins with."""


class Proof(NamedTuple):
    """The answer to `Prove`."""

    queue: bytes
    stream: StreamId
    after: int
    last: int
    seed: int
    digest: int | None
    """A hash of the records; None: they are not all here."""


QueueFrame = ShareFrame | Store | Stored | News | Digest | Difference | Prove | Proof


def encode(frame: QueueFrame) -> bytes:
    """Return a frame as bytes."""
    kind, flatten, _ = _KINDS[type(frame)]
    body: bytes = msgpack.packb((kind, *flatten(frame)))
    return body


def decode(body: bytes | memoryview) -> QueueFrame:
    """Return a frame that a peer has sent.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        kind, *fields = msgpack.unpackb(body, use_list=False)
        parse = _PARSERS[kind]
        return parse(fields)
    except RemoteProtocolError:
        raise
    except (
        PoeError, ValueError, TypeError, KeyError, OverflowError, msgpack.UnpackException,
    ) as error:  # fmt: skip
        msg = f"a frame of a queue cannot be read ({type(error).__name__}: {error})"
        raise RemoteProtocolError(msg[:200]) from error


def flat(ranges: Sequence[Bounds]) -> list[int]:
    """Return ranges as they travel."""
    return [end for bounds in ranges for end in bounds]


def take_ranges(ends: Any) -> tuple[Bounds, ...]:  # noqa: ANN401 - whatever came
    """Check ranges that came from elsewhere.

    Raises:
        RemoteProtocolError: they are none, or overlap.
    """
    if not isinstance(ends, tuple) or len(ends) % 2 or set(map(type, ends)) - {int}:
        raise _wrong("ranges", ends)
    if ends and not 0 <= ends[0] < ends[-1] <= POINTER_MAX:
        raise _wrong("ranges", ends)
    afters, lasts = ends[::2], ends[1::2]
    is_rising = all(map(int.__lt__, afters, lasts)) and all(map(int.__le__, lasts, afters[1:]))
    if not is_rising:
        raise _wrong("ranges", ends)
    return tuple(zip(afters, lasts, strict=True))


def take_bytes(value: Any, size_max: int = 255) -> bytes:  # noqa: ANN401
    """Check bytes that came from elsewhere.

    Raises:
        RemoteProtocolError: they are none, or too many.
    """
    if not isinstance(value, bytes) or len(value) > size_max:
        raise _wrong("bytes", value)
    return value


def take_text(value: Any) -> str:  # noqa: ANN401
    """Check a text that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none, or too long.
    """
    if not isinstance(value, str) or len(value) > _TEXT_MAX:
        raise _wrong("text", value)
    return value


def take_number(value: Any, lowest: int = 0) -> int:  # noqa: ANN401
    """Check a number that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none, or out of range.
    """
    if type(value) is not int or not lowest <= value < 1 << 64:
        raise _wrong("number", value)
    return value


def take_time(value: Any) -> int:  # noqa: ANN401
    """Check a time in microseconds that came from elsewhere, or a length of time.

    Raises:
        RemoteProtocolError: it is none, or so late that nothing could come after it.
    """
    if take_number(value) > TIME_MAX_US:
        raise _wrong("time", value)
    return int(value)


def take_flag(value: Any) -> bool:  # noqa: ANN401
    """Check a truth value that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not isinstance(value, bool):
        raise _wrong("flag", value)
    return value


def take_node(value: Any) -> NodeRef:  # noqa: ANN401
    """Check a life of a node that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none.
    """
    node, epoch = value
    return NodeRef(take_bytes(node, _NODE_BYTES), take_number(epoch))


def take_stream(value: Any) -> StreamId:  # noqa: ANN401
    """Check a stream that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none.
    """
    origin, epoch = value
    return StreamId(take_bytes(origin, _NODE_BYTES), take_number(epoch))


def _each(take: Callable[[Any], _T]) -> Callable[[Any], tuple[_T, ...]]:
    """Return what checks each item of an array that came from elsewhere."""
    return lambda items: tuple(map(take, items))


def _parser(make: Callable[..., _T], *takes: Callable[[Any], Any]) -> Callable[[Any], _T]:
    """Return what makes something of fields that came from elsewhere, each by a check of its own.

    It raises `RemoteProtocolError`, or ValueError where there are more fields, or fewer.
    """
    return lambda fields: make(*[take(each) for take, each in zip(takes, fields, strict=True)])


def _as_they_are(*fields: Any) -> tuple[Any, ...]:  # noqa: ANN401 - whatever they are
    return fields


take_known: Final = _parser(
    Known,
    take_text,
    take_stream,
    take_ranges,
    _each(_parser(_as_they_are, take_node, take_ranges)),
    _each(_parser(Again, take_text, take_node, take_node, take_number, take_ranges)),
)
take_paused: Final = _parser(Paused, take_bytes, take_text, take_time, take_flag)


def flat_known(known: Known) -> tuple[Any, ...]:
    """Return what is known of a group as it travels."""
    group, stream, done, granted, again = known
    return (
        group,
        stream,
        flat(done),
        [(node, flat(ranges)) for node, ranges in granted],
        [(*each[:-1], flat(each.ranges)) for each in again],
    )


def parts_of(known: Known) -> Iterator[Known]:
    """Yield what is known in parts, none of them too large; joined they are all of it."""
    if _weight(known) <= KNOWN_RANGES_MAX:
        yield known
        return
    nothing = known._replace(done=(), granted=(), again=())
    for ranges in _split(known.done):
        yield nothing._replace(done=ranges)
    for node, granted in known.granted:
        for ranges in _split(granted):
            yield nothing._replace(granted=((node, ranges),))
    for each in known.again:
        for ranges in _split(each.ranges):
            yield nothing._replace(again=(each._replace(ranges=ranges),))


def in_frames(known: Iterable[Known]) -> list[tuple[Known, ...]]:
    """Return what is known as so many frames hold it: one at least."""
    frames: list[list[Known]] = [[]]
    room = KNOWN_RANGES_MAX
    for each in known:
        for part in parts_of(each):
            weight = _weight(part)
            if weight > room and frames[-1]:
                frames.append([])
                room = KNOWN_RANGES_MAX
            frames[-1].append(part)
            room -= weight
    return [tuple(each) for each in frames]


def _weight(known: Known) -> int:
    """Return how many ranges something known is worth, by the bytes that it takes."""
    named = [ranges for _, ranges in known.granted] + [each.ranges for each in known.again]
    count = len(known.done) + sum(map(len, named))
    return count + _NAMED_RANGES * (1 + len(named))


def _split(ranges: tuple[Bounds, ...]) -> Iterator[tuple[Bounds, ...]]:
    size = KNOWN_RANGES_MAX // 2
    return (ranges[begin : begin + size] for begin in range(0, len(ranges), size))


def take_queue_record(value: Any) -> QueueRecord:  # noqa: ANN401
    """Check the record of a queue that came from elsewhere.

    Raises:
        RemoteProtocolError: it is none.
        OptionError: no queue may be so.
    """
    return _queue_record(*value)


@lru_cache(maxsize=64, typed=True)
def _queue_record(*fields: Any) -> QueueRecord:  # noqa: ANN401
    """Check the fields of a record: each `Store` of a queue brings the same ones."""
    name, copies, persist, bytes_max, messages_max, on_full, created_us, by, deleted_us = fields
    record = QueueRecord(
        take_bytes(name), take_number(copies), take_flag(persist), take_number(bytes_max),
        take_number(messages_max), on_full, take_number(created_us), take_bytes(by, _NODE_BYTES),
        take_number(deleted_us),
    )  # fmt: skip
    record.check()
    return record


def take_group_record(value: Any) -> GroupRecord:  # noqa: ANN401
    """Check the record of a group that came from elsewhere; its options are not looked at.

    Raises:
        RemoteProtocolError: it is none.
    """
    queue, name, options, created_us, by, deleted_us = value
    if not isinstance(options, dict) or len(options) > _OPTIONS_MAX:
        raise _wrong("options", options)
    return GroupRecord(
        take_bytes(queue), take_text(name), options, take_time(created_us),
        take_bytes(by, _NODE_BYTES), take_time(deleted_us),
    )  # fmt: skip


def take_batch(value: Any) -> Batch:  # noqa: ANN401
    """Check messages that came from elsewhere, their records included.

    Raises:
        RemoteProtocolError: they are none.
    """
    after, last, count, records, starts = value
    batch = Batch(
        take_number(after), take_number(last), take_number(count, 1), records, starts
    )  # fmt: skip
    if not isinstance(records, bytes) or not isinstance(starts, bytes):
        raise _wrong("records", records)
    batch.check()
    return batch


_NODE_BYTES: Final = 8
_OPTIONS_MAX: Final = 64
_TEXT_MAX: Final = 255
_HOLDERS_MAX: Final = 1000
_OUTCOMES: Final = ("held", "full", "failed")


def _wrong(what: str, value: object) -> RemoteProtocolError:
    return RemoteProtocolError(f"a frame of a queue has no {what} where it must: {value!r:.80}")


def _take_store(value: Any) -> Store:  # noqa: ANN401
    queue, record, stream, batch, holders, is_copy = value
    if len(holders) > _HOLDERS_MAX:
        raise _wrong("holders", holders)
    store = Store(
        take_bytes(queue), take_queue_record(record), take_stream(stream), take_batch(batch),
        tuple(map(take_node, holders)), take_flag(is_copy),
    )  # fmt: skip
    if store.record.name != store.queue:
        raise _wrong("record", record)
    return store


def _take_stored(value: Any) -> Stored:  # noqa: ANN401
    queue, stream, after, last, outcome = value
    if outcome not in _OUTCOMES:
        raise _wrong("outcome", outcome)
    bounds = take_ranges((after, last))[0]
    return Stored(take_bytes(queue), take_stream(stream), *bounds, outcome)


def _flat_news(frame: News) -> tuple[Any, ...]:
    held = [(each.stream, flat(each.added), flat(each.dropped)) for each in frame.held]
    return (*frame[:4], held, [flat_known(each) for each in frame.known], frame.groups)


def _take_loan(value: Any) -> Loan:  # noqa: ANN401
    lease, stream, after, last, attempts, limit, reason, batches = value
    [bounds] = take_ranges((after, last))
    loan = Loan(
        take_number(lease), take_stream(stream), *bounds, take_number(attempts),
        _take_limit(limit), take_text(reason), tuple(map(take_batch, batches)),
    )  # fmt: skip
    places = [end for batch in loan.batches for end in (batch.after, batch.last)]
    if places and (take_ranges(tuple(places))[0][0] < after or places[-1] > last):
        raise _wrong("range", places)
    return loan


def _take_back(value: Any) -> Back:  # noqa: ANN401
    lease, after, last, attempts, limit, delay_us, reason = value
    [bounds] = take_ranges((after, last))
    return Back(
        take_number(lease), *bounds, take_number(attempts), _take_limit(limit),
        take_time(delay_us), take_text(reason),
    )  # fmt: skip


def _take_limit(value: Any) -> int | None:  # noqa: ANN401
    return None if value is None else take_number(value, 1)


def _flat_claim(frame: Claim | Ceded) -> tuple[Any, ...]:
    return (*frame[:3], flat(frame.ranges))


def _take_prove(value: Any) -> Prove:  # noqa: ANN401
    queue, stream, after, last, seed = value
    bounds = take_ranges((after, last))[0]
    return Prove(take_bytes(queue), take_stream(stream), *bounds, take_number(seed))


def _take_proof(value: Any) -> Proof:  # noqa: ANN401
    *asked, digest = value
    return Proof(*_take_prove(asked), None if digest is None else take_number(digest))


def _as_it_is(frame: tuple[Any, ...]) -> tuple[Any, ...]:
    return frame


_take_held: Final = _parser(Held, take_stream, take_ranges, take_ranges)
_take_summary: Final = _parser(Summary, take_text, take_stream, take_number)
_take_since: Final = partial(take_number, lowest=WHOLE)
_take_id: Final = partial(take_bytes, size_max=_NODE_BYTES)
_GROUP: Final = take_bytes, take_text
"""The first fields of all that the parts of a group tell each other."""
_KINDS: Final[dict[type, tuple[int, Callable[[Any], Sequence[Any]], Callable[..., QueueFrame]]]] = {
    Store: (1, _as_it_is, _take_store),
    Stored: (2, _as_it_is, _take_stored),
    News: (
        3, _flat_news,
        _parser(
            News, take_bytes, take_number, _take_since, take_number,
            _each(_take_held), _each(take_known), _each(take_group_record),
        ),
    ),
    Digest: (
        4, _as_it_is,
        _parser(
            Digest, take_bytes, take_number, take_number,
            _each(_take_summary), _each(take_group_record),
            _each(_parser(_as_they_are, _take_id, take_number)), take_flag,
        ),
    ),
    Difference: (
        5, _as_it_is,
        _parser(
            Difference, take_bytes, take_flag, _each(_parser(_as_they_are, take_text, take_stream))
        ),
    ),
    Prove: (6, _as_it_is, _take_prove),
    Proof: (7, _as_it_is, _take_proof),
    Want: (10, _as_it_is, _parser(Want, *_GROUP, take_number, take_number, take_number)),
    Given: (11, _as_it_is, _parser(Given, *_GROUP, take_number, _each(_take_loan))),
    Keep: (12, _as_it_is, _parser(Keep, *_GROUP, _each(take_number))),
    Release: (13, _as_it_is, _parser(Release, *_GROUP, _each(_take_back))),
    Revoked: (14, _as_it_is, _parser(Revoked, *_GROUP, _each(take_number))),
    Paused: (15, _as_it_is, take_paused),
    Claim: (16, _flat_claim, _parser(Claim, *_GROUP, take_stream, take_ranges)),
    Ceded: (17, _flat_claim, _parser(Ceded, *_GROUP, take_stream, take_ranges)),
}  # fmt: skip
_PARSERS: Final = {kind: parse for kind, _, parse in _KINDS.values()}
