"""What clients ask a server, as data: a request, the reply it takes, and what that comes to.

The blocking and the asyncio socket send these and wait; they know no more of them, but for puts,
which are the simplest and the most frequent. Arguments are checked here, so that what is wrong with
them is told before anything is sent.
"""

from collections.abc import Callable, Collection, Mapping
from itertools import count
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from poe.errors import CorruptRecord, PoeError, RemoteProtocolError
from poe.errors.timeout import check_delay
from poe.protocol.arguments import check_pointer, range_arguments, topic_bytes
from poe.protocol.control import ControlReply, ControlRequest
from poe.protocol.described_topic import DescribedTopic, no_topic
from poe.protocol.leases import LeaseReply, LeaseRequest
from poe.protocol.messages import DataReply, PointerRequest
from poe.protocol.node_event import EventPage
from poe.protocol.put import LastPut, PutId, check_producer
from poe.protocol.ranges import IndexedRecords, IndexedReply, RangeRequest, Span
from poe.protocol.records import Record
from poe.protocol.removed import Removed
from poe.protocol.scan import Scanned
from poe.topic_properties import TopicProperties

T = TypeVar("T")

PAGE_COUNT = 500
"""Topics in a page of `info`: they are told page by page, so that no other client waits for it."""

_ids = count(1)
_records = attrgetter("records")


def _raised(error: PoeError) -> PoeError:
    """Have any refusal raised, as it is."""
    return error


class Exchange(NamedTuple, Generic[T]):
    """One request and its reply."""

    frame: bytes
    reply_class: type[Any]
    finish: "Callable[[Any], T | Exchange[T]]"
    """Makes the result of the reply, or what is to be asked next."""
    refused: "Callable[[PoeError], T | Exchange[T] | PoeError]" = _raised
    """Does the same with the error of a server that refuses the request, or returns it, to be
    raised by who asks: who raises what it was given keeps it, and with it the callers' frames."""
    extra_s: float = 0.0
    """How long the request lets the server wait, beside what any call may take."""
    id: int | None = None
    """Of a control request, which the reply repeats."""

    def mismatch(self, reply: ControlReply) -> str:
        """Return what is wrong with a reply to another request: no later one fits, either."""
        if reply.id == self.id:
            return ""
        return f"control request {self.id} was answered with id {reply.id}"


def read(topic: bytes | str, pointer: int, limit: int) -> Exchange[list[Record]]:
    """Read records that follow a pointer."""
    frame = PointerRequest(topic_bytes(topic), pointer, limit).encode()
    return Exchange(
        frame,
        DataReply,
        _records,
        lambda error: read(topic, pointer, 1) if _is_vague(error, limit) else error,
    )


def read_range(
    topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
) -> Exchange[IndexedRecords]:
    """Read records as arrays."""
    frame = RangeRequest(topic_bytes(topic), pointer, last, limit, bytes_max).encode()
    return Exchange(
        frame,
        IndexedReply,
        _records,
        lambda error: (
            read_range(topic, pointer, last, 1, bytes_max) if _is_vague(error, limit) else error
        ),
    )


def lease(request: LeaseRequest) -> Exchange[LeaseReply]:
    """Tell what became of leases, and ask for another; the reply may take `wait_s` longer."""
    return Exchange(request.encode(), LeaseReply, lambda reply: reply, extra_s=request.wait_s)


def _is_vague(error: PoeError, limit: int) -> bool:
    """Return whether damage is told of, and not where it lies.

    Asked for one record, the server looks at it, and tells that.
    """
    return isinstance(error, CorruptRecord) and error.pointer is None and limit != 1


def control(
    op: str,
    arguments: dict[str, Any],
    finish: Callable[[Any], T | Exchange[T]],
    refused: Callable[[PoeError], T | Exchange[T] | PoeError] = _raised,
    extra_s: float = 0.0,
) -> Exchange[T]:
    """Ask for anything else; `finish` gets the result of the reply."""
    request = ControlRequest(op, next(_ids), arguments)
    return Exchange(
        request.encode(),
        ControlReply,
        lambda reply: finish(reply.result),
        refused,
        extra_s,
        request.id,
    )


def auth(mechanism: str, data: bytes) -> Exchange[dict[str, Any]]:
    """Log in, or take one step of it."""
    return control("auth", {"mechanism": mechanism, "data": data}, dict)


def wait(topic: bytes | str, pointer: int, timeout_s: float) -> Exchange[bool]:
    """Wait until something follows a pointer; whether it does."""
    check_pointer(pointer)
    check_delay(timeout_s, "timeout_s")
    arguments = {"topic": topic_bytes(topic), "pointer": pointer, "timeout_s": timeout_s}
    return control("wait", arguments, bool, extra_s=timeout_s)


def topics() -> Exchange[list[bytes]]:
    """Ask for the names of all topics."""
    return control("topics", {}, list)


def status() -> Exchange[dict[bytes, list[Any]]]:
    """Ask for the appendix servers of all topics."""
    return control("status", {}, dict)


def info() -> Exchange[dict[bytes, list[dict[str, Any]]]]:
    """Ask for the segments of all topics, page by page."""
    told: dict[bytes, list[dict[str, Any]]] = {}
    return _paged("info", {"after": b""}, told.update, end_of, lambda _: told)


def _paged(
    op: str,
    place: dict[str, Any],
    take: Callable[[Any], object],
    next_of: Callable[[Any, Any], Any],
    result: Callable[[Any], T],
) -> Exchange[T]:
    """Ask for pages behind one another; `next_of` tells behind what the next is, None: no more."""

    def finish(page: Any) -> Any:  # noqa: ANN401 - as `control` says
        take(page)
        behind = next_of(page, place["after"])
        if behind is None:
            return result(page)
        return _paged(op, {**place, "after": behind}, take, next_of, result)

    return control(op, {"count": PAGE_COUNT, **place}, finish)


def counters(*, are_all: bool) -> Exchange[dict[str, Any]]:
    """Ask what a node has done since it started, and its topics, page by page."""
    told: dict[bytes, dict[str, Any]] = {}
    return _paged(
        "counters",
        {"after": b"", "all": are_all},
        lambda page: told.update(page["topics"]),
        lambda page, after: page["next"] if (page["next"] or b"") > after else None,
        lambda page: {"node": page["node"], "topics": told},
    )


def connections() -> Exchange[list[dict[str, Any]]]:
    """Ask who is connected, page by page."""
    told: list[dict[str, Any]] = []
    return _paged(
        "connections",
        {"after": 0},
        lambda page: told.extend(page["connections"]),
        lambda page, _: len(told) if page["connections"] and len(told) < page["count"] else None,
        lambda _: told,
    )


def list_topics(*, are_all: bool) -> Exchange[list[DescribedTopic]]:
    """Ask for all topics, page by page, but for what their partitions hold."""
    told: list[DescribedTopic] = []

    def take(page: dict[bytes, dict[str, Any]]) -> None:
        told.extend(DescribedTopic.from_map(row | {"name": name}) for name, row in page.items())

    return _paged("topic_list", {"after": b"", "all": are_all}, take, end_of, lambda _: told)


def topic_names() -> Exchange[list[bytes]]:
    """Ask for the names of all topics, page by page; a server that is older tells more."""
    told: list[bytes] = []
    place = {"after": b"", "brief": True}
    return _paged(
        "topic_list", place, lambda page: told.extend(map(bytes, page)), end_of, lambda _: told
    )


def end_of(page: Collection[bytes], after: bytes) -> bytes | None:
    """Return behind which topic the next page begins; None when this was the last one.

    A server that knows no pages tells of all topics each time.
    """
    if len(page) != PAGE_COUNT:
        return None
    end = max(page)
    return end if end > after else None


def events(after: int, limit: int, wait_s: float) -> Exchange[EventPage]:
    """Ask what has happened behind an event, and wait where nothing has yet."""
    check_delay(wait_s, "wait_s")
    arguments = {"after": after, "limit": limit, "wait_s": wait_s}
    return control("events", arguments, EventPage.from_map, extra_s=wait_s)


def scan(topic: bytes | str, after: int, last: int, **arguments: Any) -> Exchange[Scanned]:  # noqa: ANN401 - those of the op
    """Look for messages in a range of a topic."""
    check_pointer(after)
    check_pointer(last)
    given = {name: value for name, value in arguments.items() if value is not None}
    asked = {"topic": topic_bytes(topic), "after": after, "last": last, **given}
    return control("scan", asked, Scanned.from_map)


def producers(topic: bytes | str) -> Exchange[list[dict[str, Any]]]:
    """Ask who numbers its puts onto a topic."""
    return control("producers", {"topic": topic_bytes(topic)}, list)


def node_config() -> Exchange[dict[str, dict[str, Any]]]:
    """Ask for the options that a node goes by."""
    return control("config", {}, dict)


def segments(topic: bytes | str) -> Exchange[list[dict[str, Any]]]:
    """Ask for the segments of a topic."""
    return control("segments", {"topic": topic_bytes(topic)}, list)


def removed(topic: bytes | str, pointer: int) -> Exchange[Removed]:
    """Ask what was removed of a topic."""
    check_pointer(pointer)
    arguments = {"topic": topic_bytes(topic), "pointer": pointer}
    return control("removed", arguments, Removed.from_map, _removed_of_old)


def _removed_of_old(error: PoeError) -> Removed | PoeError:
    return Removed.unknown(error) if isinstance(error, RemoteProtocolError) else error


def span(
    topic: bytes | str, pointer: int, last: int, limit: int, bytes_max: int
) -> Exchange[Span | None]:
    """Ask what a range holds, without its bytes."""
    arguments = range_arguments(topic, pointer, last, limit, bytes_max)
    return control("span", arguments, lambda found: None if found is None else Span(*found))


def ordinal(topic: bytes | str, pointer: int) -> Exchange[int]:
    """Ask for the ordinal of the first message behind a pointer."""
    check_pointer(pointer)
    return control("ordinal", {"topic": topic_bytes(topic), "pointer": pointer}, int)


def pointer_at(topic: bytes | str, ordinal: int) -> Exchange[int | None]:
    """Ask for the pointer of the first message with an ordinal, or a greater one."""
    arguments = {"topic": topic_bytes(topic), "ordinal": ordinal}
    return control("pointer", arguments, lambda found: None if found is None else int(found))


def trim(topic: bytes | str, pointer: int) -> Exchange[int]:
    """Delete segments up to a pointer; how many."""
    check_pointer(pointer)
    return control("trim", {"topic": topic_bytes(topic), "pointer": pointer}, int)


def delete(topic: bytes | str) -> Exchange[None]:
    """Delete a topic."""
    return control("delete", {"topic": topic_bytes(topic)}, lambda _: None)


def describe(topic: bytes | str) -> Exchange[DescribedTopic]:
    """Ask what a topic has, and what its partitions hold."""
    return control("describe", {"topic": topic_bytes(topic)}, DescribedTopic.from_map)


def find_topic(topic: bytes | str, *, is_queue: bool = False) -> Exchange[DescribedTopic | None]:
    """Ask the same of a topic that may not be there, of a server that may not know to tell.

    With `is_queue` a node of a cluster describes a queue that there is not yet, too.
    """
    arguments: dict[str, Any] = {"topic": topic_bytes(topic)}
    if is_queue:
        arguments["queue"] = True
    return control("describe", arguments, DescribedTopic.from_map, no_topic)


def create_topic(topic: bytes | str, properties: Mapping[str, Any]) -> Exchange[DescribedTopic]:
    """Make a topic."""
    return _change("topic_create", topic, properties)


def alter_topic(topic: bytes | str, changes: Mapping[str, Any]) -> Exchange[DescribedTopic]:
    """Change properties of a topic."""
    return _change("topic_alter", topic, changes)


def adopt_topic(topic: bytes | str, properties: Mapping[str, Any]) -> Exchange[DescribedTopic]:
    """Take topics for the partitions of one."""
    return _change("topic_adopt", topic, properties)


def _change(op: str, topic: bytes | str, properties: Mapping[str, Any]) -> Exchange[DescribedTopic]:
    TopicProperties.from_map(properties)
    values = {name: list(each) if name == "keep_unread" else each
              for name, each in properties.items()}  # fmt: skip
    arguments = {"topic": topic_bytes(topic), "properties": values}
    return control(op, arguments, DescribedTopic.from_map)


def copy(
    source: bytes | str, pointer: int, last: int, topic: bytes | str, put_id: PutId
) -> Exchange[int]:
    """Copy records from topic to topic; the last pointer there."""
    check_pointer(pointer)
    check_pointer(last)
    put_id.encode()
    arguments = {
        "source": topic_bytes(source),
        "pointer": pointer,
        "last": last,
        "topic": topic_bytes(topic),
        **put_id._asdict(),
    }
    return control("copy", arguments, int)


def last_put(topic: bytes | str, producer: bytes) -> Exchange[LastPut | None]:
    """Ask for the newest put of a producer."""
    arguments = {"topic": topic_bytes(topic), "producer": check_producer(producer)}
    return control("last_put", arguments, lambda found: None if found is None else LastPut(*found))
