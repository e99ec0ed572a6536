"""What is fuzzed of what comes from others at once: frames, maps, envelopes, HTTP bodies, options.

Each target takes any bytes, and whatever they are, fails only as it says. What a mutant replaces is
looked up when it is called.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from poe import protocol, storage
from poe.broker.coordinator.group_log import Entry, GroupHistory, Kind, encode
from poe.broker.groups.options import GroupDefinition, Mode
from poe.broker.groups.state import GroupState
from poe.config import Config
from poe.errors import (
    ConfigError,
    CorruptGroup,
    CorruptRecord,
    InvalidEnvelope,
    LocalProtocolError,
    PoeError,
    PointerOutOfRange,
    ProtocolError,
    RequestRefused,
    UnknownTopic,
)
from poe.gateway.http.body import CONTENT_TYPES, messages_of
from poe.protocol import (
    ControlReply,
    ControlRequest,
    DataReply,
    Done,
    ErrorReply,
    Failed,
    FrameReader,
    IndexedReply,
    Lease,
    LeaseReply,
    LeaseRequest,
    PointerRequest,
    PutId,
    PutReply,
    PutRequest,
    RangeRequest,
    SequencedPutRequest,
    envelope,
)
from poe.protocol.maps import pack_map, unpack_map
from poe.protocol.original import ReplyReader
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from poe.protocol.put import PUT_ID_SIZE

_HEADER_BYTES = 6
_COUNT_MAX = 100


def _requests(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        for frame in _frames(data, FrameReader()):
            protocol.decode_request(*frame)


def _replies(data: bytes) -> None:
    kinds: tuple[Any, ...] = (DataReply, PutReply, IndexedReply, ControlReply)
    for kind in kinds:
        with contextlib.suppress(ProtocolError):
            for frame in _frames(data, ReplyReader()):
                protocol.decode_reply(kind, *frame)


def _frames(data: bytes, reader: FrameReader) -> Iterator[Any]:
    while data:
        buffer = reader.buffer()
        size = min(len(buffer), len(data))
        buffer[:size], data = data[:size], data[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            yield frame


def _control(data: bytes) -> None:
    """What is understood of a map is the same after it was sent on."""
    for kind in (ControlRequest, ControlReply, ErrorReply):
        with contextlib.suppress(ProtocolError):
            found = kind.decode(memoryview(data))
            if isinstance(found, ErrorReply):
                assert isinstance(found.to_error(), PoeError)
            with contextlib.suppress(LocalProtocolError):  # it takes more room than it came in
                body = memoryview(found.encode())[_HEADER_BYTES:]
                # Not the values, since a number that is none is not equal to itself.
                assert repr(kind.decode(body)) == repr(found)


def _put_ids(data: bytes) -> None:
    """Each put id is one, and is sent as it came; so is a sequenced put."""
    if len(data) >= PUT_ID_SIZE:
        assert PutId.decode(memoryview(data)[:PUT_ID_SIZE]).encode() == data[:PUT_ID_SIZE]
    with contextlib.suppress(ProtocolError):
        put = SequencedPutRequest.decode(memoryview(data))
        assert put.copied().encode()[_HEADER_BYTES:] == data


def _ranges(data: bytes) -> None:
    """A range is answered with records that rise, fill their bytes, and are the simple reader's."""
    with contextlib.suppress(ProtocolError, LocalProtocolError, PointerOutOfRange):
        request = RangeRequest.decode(memoryview(data))
        assert request.encode()[_HEADER_BYTES:] == data
    try:
        records = IndexedReply.decode(memoryview(data)).records
    except (ProtocolError, CorruptRecord):
        return
    whole, starts, pointers = (
        bytes(records.data),
        records.starts.tolist(),
        records.pointers.tolist(),
    )
    assert (starts[0], starts[-1]) == (0, len(whole))
    places = zip(pointers, pairwise(starts), strict=True)
    assert storage.decode_records(whole) == [(p, whole[a + 11 : b]) for p, (a, b) in places]


def _leases(data: bytes) -> None:
    """A lease request means the same when it was sent on; a reply is a lease and records."""
    with contextlib.suppress(ProtocolError):
        request = LeaseRequest.decode(memoryview(data))
        with contextlib.suppress(LocalProtocolError):  # it takes more room than it came in
            assert LeaseRequest.decode(memoryview(request.encode())[_HEADER_BYTES:]) == request
    with contextlib.suppress(ProtocolError, CorruptRecord):
        reply = LeaseReply.decode(memoryview(data))
        assert len(reply.records) == len(reply.records.pointers)


def _group_log(data: bytes) -> None:
    """What the log of the groups holds makes groups, or is told as damaged."""
    history = GroupHistory()
    for pointer, message in enumerate(_messages(data), 1):
        entry = Entry.decode(pointer, message)
        if entry is not None:
            history.add(entry)
    if history.entries:
        history.summary()
        with contextlib.suppress(CorruptGroup):
            state = history.restore()
            assert GroupState.restore(state.snapshot()).snapshot() == state.snapshot()


def _messages(data: bytes) -> Iterator[bytes]:
    """Take input apart: each message has its size in front."""
    while data:
        size = int.from_bytes(data[:2])
        yield data[2 : 2 + size]
        data = data[2 + size :]


def _records(data: bytes) -> None:
    try:
        records = storage.decode_records(data)
    except CorruptRecord:
        return
    assert sum(11 + len(message) for _, message in records) == len(data)


def _envelopes(data: bytes) -> None:
    with contextlib.suppress(InvalidEnvelope):
        found = envelope.decode(data)
        assert envelope.decode(envelope.encode(*found)) == found._replace(
            headers=found.headers or None
        )


def _reports(data: bytes) -> None:
    """What a server stores of a pipeline is what it tells."""
    with contextlib.suppress(ProtocolError):
        report = PipelineReport.from_map(unpack_map(memoryview(data), "report"))
        assert repr(PipelineReport.from_map(report.as_map())) == repr(report)
        assert report.is_ended == (report.state != "running")


def _bodies(data: bytes) -> None:
    """The body of a POST; its first byte says which type it has."""
    content_type = CONTENT_TYPES[data[0] % len(CONTENT_TYPES)] if data else ""
    with contextlib.suppress(RequestRefused):
        messages = messages_of(content_type, data[1:], None, None, _COUNT_MAX)
        assert len(messages) <= _COUNT_MAX


def _config(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml", dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(ConfigError):
            Config.load({"dir": "x"}, toml_path=file.name)


def _group_messages(mode: Mode) -> bytes:
    """The log of a group that has done a little."""
    named = "group", bytes(16)
    state = GroupState.create(
        GroupDefinition(name=named[0], id=named[1], mode=mode, topics=(b"t",)), 1
    )
    written = [encode(Kind.SNAPSHOT, *named, state.snapshot())]
    state.reset({b"t": 5}, 2)
    changes = state.take_changes()
    if mode == "shared":
        changes += [["done", b"t", 6, 9], ["failed", b"t", 5, 6, 1, None, 3, "why"]]
    written.append(encode(Kind.CHANGES, *named, changes))
    return b"".join(len(each).to_bytes(2) + each for each in written)


_PUT_ID = PutId(bytes(range(16)), 0, 1)
_QUERY = QueryReport(name="sink", state="running", lag_s=0.5, last_error="none")
_REPORT = PipelineReport(name="p", host="h", pid=1, queries=(_QUERY,))
_RECORDS = DataReply([(1, b"one"), (2, b"two")]).encode()[_HEADER_BYTES:]
_ENTRIES = b"".join(p.to_bytes(7) + (14 * (p - 1)).to_bytes(5) for p in (1, 2))
_INDEXED = IndexedReply.head(_ENTRIES, len(_RECORDS)) + _RECORDS
_SEQUENCED = SequencedPutRequest(b"topic", [b"one", b"two"], _PUT_ID).encode()
_WAIT = ControlRequest("wait", 1, {"topic": b"topic", "pointer": 1}).encode()
_RANGE = RangeRequest(b"topic", 1, 9, 2, 100).encode()
_ERROR = ErrorReply.from_error(UnknownTopic(b"topic"), 1).encode()
_RESULT = ControlReply(1, {"a": [1, -2.5, "text", b"bytes", None, True]}).encode()
_REQUESTS = (
    PutRequest(b"topic", [b"one", b"two"]).encode()
    + _SEQUENCED
    + PointerRequest(topic=b"topic", pointer=1, limit=2).encode()
    + _RANGE
    + _WAIT
)
_REPLIES = bytes(5) + b"\1" + PutReply(1).encode() + _ERROR + _RESULT + _INDEXED
_LEASE_REQUEST = LeaseRequest(
    "group", bytes(16), 9, 99, 0.5, (Done(1), Done(2, ((3, 4),))), (Failed(3, 4, 5, "dead"),)
).encode()
_LEASE = Lease(1, b"topic", 1, 2, 1, 0.5, (7,))
_LEASE_REPLY = LeaseReply.head(_LEASE, _ENTRIES, len(_RECORDS)) + _RECORDS
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "requests": (_requests, [_REQUESTS]),
    "replies": (_replies, [_REPLIES]),
    "control": (_control, [each[_HEADER_BYTES:] for each in (_WAIT, _ERROR, _RESULT)]),
    "put-ids": (_put_ids, [_SEQUENCED[_HEADER_BYTES:]]),
    "ranges": (_ranges, [_INDEXED[_HEADER_BYTES:], _RANGE[_HEADER_BYTES:]]),
    "leases": (_leases, [_LEASE_REQUEST[_HEADER_BYTES:], _LEASE_REPLY[_HEADER_BYTES:]]),
    "group-log": (_group_log, [_group_messages("ordered"), _group_messages("shared")]),
    "records": (_records, [_RECORDS]),
    "envelopes": (_envelopes, [envelope.encode(b"key", b"value", {"name": b"x"})]),
    "reports": (_reports, [pack_map(_REPORT.as_map(), "report")]),
    "bodies": (
        _bodies,
        [
            b'\0{"records": [{"value": "v", "key_base64": "a2V5", "headers": {"a": "b"}}]}',
            b'\1{"a": [1, null]}\n"b"\n',
            b"\2key=value&a+b=%41",
        ],
    ),
    "config": (_config, [b'ack = "fsync"\ncheck_interval = 0.5\n']),
}
"""By name: what takes any bytes, and some that are right."""
