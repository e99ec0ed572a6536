"""What a node writes down of a queue that is to outlive its process, and how it is read again.

Each message of the log says one thing: messages are held, a range is not any more, something is
known of a group, there is a group, it is paused, a node has come or gone. All of it may be read
twice. So a snapshot is nothing but what holds now, written once more; then all before it can go.

Layout of a message: a msgpack array of a text and
    batch   stream, batch
    drop    stream, ranges
    known   what is known, as in `News`
    group   record of a group
    paused  as the frame `Paused` has it
    node    life of a node, whether it is there
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.broker.groups.ranges import Bounds
from poe.cluster.batch import Batch
from poe.cluster.frames import (
    Known,
    Paused,
    flat,
    flat_known,
    take_batch,
    take_group_record,
    take_known,
    take_node,
    take_paused,
    take_ranges,
    take_stream,
)
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue_record import GroupRecord
from poe.errors import PoeError, RemoteProtocolError

LOG_BYTES_MIN: Final = 4 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024


class Dropped(NamedTuple):
    """A range that is held no more."""

    stream: StreamId
    ranges: tuple[Bounds, ...]


class Kept(NamedTuple):
    """Messages that are held."""

    stream: StreamId
    batch: Batch


class Seen(NamedTuple):
    """Another node is there, or is not any more."""

    node: NodeRef
    is_there: bool


Entry = Kept | Dropped | Known | GroupRecord | Paused | Seen


def encode_entry(entry: Entry) -> bytes:
    """Return an entry as a message of the log."""
    match entry:
        case Kept(stream, batch):
            fields: tuple[Any, ...] = ("batch", stream, batch)
        case Dropped(stream, ranges):
            fields = ("drop", stream, flat(ranges))
        case Known():
            fields = ("known", flat_known(entry))
        case GroupRecord():
            fields = ("group", entry)
        case Paused():
            fields = ("paused", entry)
        case Seen(node, is_there):
            fields = ("node", node, is_there)
    body: bytes = msgpack.packb(fields)
    return body


def decode_entry(message: bytes) -> Entry:
    """Return what a message of the log says.

    Raises:
        RemoteProtocolError: it is damaged.
    """
    try:
        match msgpack.unpackb(message, use_list=False):
            case ("batch", stream, batch):
                return Kept(take_stream(stream), take_batch(batch))
            case ("drop", stream, ends):
                return Dropped(take_stream(stream), take_ranges(ends))
            case ("known", known):
                return take_known(known)
            case ("group", record):
                return take_group_record(record)
            case ("paused", paused):
                return take_paused(paused)
            case ("node", node, bool(is_there)):
                return Seen(take_node(node), is_there)
        msg = "it is of no known kind"
        raise RemoteProtocolError(msg)
    except (PoeError, ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        msg = f"a message of the log of a queue cannot be read: {error}"
        raise RemoteProtocolError(msg[:200]) from error


class Compaction:
    """When to write all once more, and how far that is.

    Always: what was written is at most some thrice of what holds.
    """

    def __init__(self) -> None:
        self._log_bytes = 0
        self._known_bytes = 0
        """What the last snapshot has besides messages."""
        self._entries: Iterator[Entry] | None = None
        self.first = 0
        """The number of the first message that a snapshot under way has written."""

    def wrote(self, size_bytes: int) -> None:
        """Count what was written."""
        self._log_bytes += size_bytes

    def is_due(self, live_bytes: int) -> bool:
        """Return whether more was written than is worth keeping, with messages of so many bytes."""
        whole_bytes = live_bytes + self._known_bytes
        return self._entries is None and self._log_bytes > LOG_BYTES_MIN + 2 * whole_bytes

    def begin(self, entries: Iterable[Entry], number: int) -> None:
        """Write these entries from now on, the first as a message of this number."""
        self._entries = iter(entries)
        self.first = number
        self._log_bytes = self._known_bytes = 0

    def take_chunk(self) -> list[bytes]:
        """Return the next messages to write; none where nothing is left, or one of them failed."""
        messages: list[bytes] = []
        size = 0
        for entry in self._entries or ():
            messages.append(encode_entry(entry))
            size += len(messages[-1])
            if not isinstance(entry, Kept):
                self._known_bytes += len(messages[-1])
            if size >= CHUNK_BYTES:
                break
        return messages

    def fail(self) -> None:
        """Note that a message was not written: it may be one of those that are to stay."""
        self._entries = None

    def end(self) -> int | None:
        """Return the number of the message before which all can go; None: nothing can."""
        entries, self._entries = self._entries, None
        return None if entries is None else self.first
