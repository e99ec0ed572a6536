"""What is fuzzed of what nodes tell each other and agree on, and of what mappings read.

Each target takes any bytes, and whatever they are, fails only as it says. What can be understood is
understood the same after it was sent on.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_digest

from poe.broker.coordinator import delayed_log, waiting
from poe.broker.requests.log_groups import Question as GroupQuestion
from poe.cluster import frames, identity, members_actor, node_frames, queues
from poe.cluster.batch import Batch
from poe.cluster.fabric.envelope import decode_envelope, encode_envelope
from poe.cluster.fabric.token import decode_token, encode_token
from poe.cluster.identity import NodeRef, Peer, StreamId
from poe.cluster.log import entry as log_entry
from poe.cluster.log import peer_frames
from poe.cluster.log.claims import Claim
from poe.cluster.log.record import LogRecord
from poe.cluster.members.table import Member
from poe.cluster.queue import log as queue_log
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.errors import (
    AuthenticationFailed,
    ClusterError,
    CorruptIdentity,
    InvalidMapping,
    MappingError,
    RemoteProtocolError,
    UndecodableMessage,
    UnknownPlan,
)
from poe.mapping import decoding
from poe.mapping.document import load_text
from poe.mapping.plan import Plan, Trial
from poe.security.scram import ScramClient, ScramServer
from poe.topic_properties import TopicProperties
from torture.layers.memory import Inode, MemoryFiles

_SIZE_BYTES = 2


def _envelopes_of_nodes(data: bytes) -> None:
    """An envelope is frames, each of which says what it is."""
    with contextlib.suppress(ClusterError, RemoteProtocolError):
        for frame in decode_envelope(data):
            (_node_frames if node_frames.is_of_node(frame) else _queue_frames)(frame)


def _queue_frames(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        frame = frames.decode(data)
        assert frames.decode(frames.encode(frame)) == frame


def _node_frames(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        node_frames.decode(data)


def _tokens(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        peer = decode_token(data.decode("latin-1")).peer
        assert decode_token(encode_token(peer)).peer == peer


def _queue_log(data: bytes) -> None:
    """What a node has written down of a queue."""
    with contextlib.suppress(RemoteProtocolError):
        found = queue_log.decode_entry(data)
        assert queue_log.decode_entry(queue_log.encode_entry(found)) == found


def _node_files(data: bytes) -> None:
    """The small files of a node, with their right hashes: what is in them is one, or is told."""
    for path, magic, read in _NODE_FILES:
        content = magic + data
        files = MemoryFiles()
        files.inodes[path] = Inode(content + xxh3_64_digest(content))
        with contextlib.suppress(CorruptIdentity, ClusterError):
            read(files)


def _log_entries(data: bytes) -> None:
    """An entry that nodes agree on, and what each makes of it."""
    with contextlib.suppress(RemoteProtocolError):
        found = log_entry.decode_entry(data)
        if isinstance(found, log_entry.PutEntry):
            batch = log_entry.encode_batch(found.messages)
            sent = log_entry.encode_put(found.origin, found.number, batch, found.put_id)
            again = log_entry.decode_entry(sent)
            assert isinstance(again, log_entry.PutEntry)
            assert list(map(bytes, again.messages)) == list(map(bytes, found.messages))
        else:
            assert log_entry.decode_entry(log_entry.encode_trim(*found)) == found


def _log_questions(data: bytes) -> None:
    """What one copy asks another one, and what that answers."""
    for read in _LOG_READERS:
        with contextlib.suppress(RemoteProtocolError):
            read(data)


def _log_records(data: bytes) -> None:
    """What stands in the catalog."""
    with contextlib.suppress(RemoteProtocolError):
        record = LogRecord.decode(data)
        assert record.streams()
        assert LogRecord.decode(record.encode()) == record
    with contextlib.suppress(RemoteProtocolError):
        claim = Claim.decode(data, 1)
        assert Claim.decode(claim.encode(), 1) == claim


def _delayed(data: bytes) -> None:
    """The log of what is put later: what means nothing is left out, and the rest waits."""
    history = delayed_log.DelayedHistory()
    for pointer, record in enumerate(_pieces(data), 1):
        delayed_log.decode_later(record)
        history.add(pointer, memoryview(record))
    history.waiting()


def _plans(data: bytes) -> None:
    """What a mapping has noted with a position."""
    with contextlib.suppress(UnknownPlan):
        plan = Plan.decode(data)
        assert isinstance(plan.is_empty, bool)
        assert plan.spread.get(b"", 1)
        with contextlib.suppress(MappingError):  # it takes more room than it came in
            assert Plan.decode(plan.encode()) == plan


def _bodies_of_mappings(data: bytes) -> None:
    """Values that are decoded all at once are what each is by itself."""
    values = _pieces(data)
    for decode in decoding.DECODES:
        load = decoding.loader(decode)
        try:
            each: object = repr([load(value) for value in values])
        except decoding.REFUSALS:
            each = None
        try:
            together: object = repr(decoding.load_all(decode, values))
        except decoding.REFUSALS:
            together = None
        assert each == together
        for value in values:
            with contextlib.suppress(UndecodableMessage):
                decoding.decoder(decode)(value)


def _mapping_files(data: bytes) -> None:
    """A file of rules is a mapping, or it is said what is wrong with it."""
    with contextlib.suppress(InvalidMapping, UnicodeDecodeError):
        load_text(data.decode(), Path("mapping.toml"), has_functions=False)


def _logins(data: bytes) -> None:
    """What a client says that would log in, and what a server says to one."""
    pieces = _pieces(data) or [b""]
    server = ScramServer(lambda _: [], b"s" * 32, None, nonce="n")
    with contextlib.suppress(AuthenticationFailed):
        server.first(pieces[0])
        server.final(pieces[-1])
    client = ScramClient("u", "p", None, nonce="n")
    # Of a number of iterations that is allowed the hash takes a while.
    if b"i=" not in data:
        with contextlib.suppress(RemoteProtocolError):
            client.final(pieces[0])


def _pieces(data: bytes) -> list[bytes]:
    """Take input apart: each piece has its size in front."""
    pieces = []
    while data:
        size = int.from_bytes(data[:_SIZE_BYTES])
        pieces.append(data[_SIZE_BYTES : _SIZE_BYTES + size])
        data = data[_SIZE_BYTES + size :]
    return pieces


def _joined(pieces: Sequence[bytes]) -> bytes:
    return b"".join(len(piece).to_bytes(_SIZE_BYTES) + piece for piece in pieces)


def _later() -> list[bytes]:
    records, _ = delayed_log.encode_later(delayed_log.Later(b"t", 1_700_000_000_000_000, [b"m"]))
    number = waiting.Number(1, 1)
    batch = waiting.Batch(b"t", (waiting.entry(5, 1, 1, 20),), number)
    return [
        *records,
        delayed_log.encode_intent(batch, number),
        delayed_log.encode_done(b"t", number),
        delayed_log.encode_void(b"t", waiting.Number(1, 2)),
    ]


_NODE = NodeRef(bytes(8), 1_700_000_000_000_000)
_STREAM = StreamId(*_NODE)
_RECORD = QueueRecord(b"q", 2, created_us=1, created_by=bytes(8))
_BATCH = Batch.encode([b"one", b"three"], 5, 6)
_GROUP = GroupRecord(b"q", "g", {"attempts": 3}, 1, bytes(8), 0)
_AGAIN = frames.Again("gone", _NODE, _NODE, 1, ((5, 7),))
_KNOWN = frames.Known("g", _STREAM, ((5, 6),), ((_NODE, ((6, 7),)),), (_AGAIN,))
_QUEUE_FRAMES: list[frames.QueueFrame] = [
    frames.Store(b"q", _RECORD, _STREAM, _BATCH, (_NODE,), is_copy=False),
    frames.Stored(b"q", _STREAM, 5, 7, "held"),
    frames.News(b"q", 1, 0, 1, (frames.Held(_STREAM, ((5, 7),), ()),), (_KNOWN,), (_GROUP,)),
    frames.Digest(
        b"q", 1, 1, (frames.Summary("g", _STREAM, 9),), (_GROUP,), ((bytes(8), 1),), is_answer=True
    ),
    frames.Difference(b"q", is_held_asked=True, known=(("g", _STREAM),)),
    frames.Prove(b"q", _STREAM, 5, 7, 1),
    frames.Proof(b"q", _STREAM, 5, 7, 1, None),
    frames.Want(b"q", "g", 1, 10, 1000),
    frames.Given(b"q", "g", 1, (frames.Loan(1, _STREAM, 5, 7, 0, None, "", (_BATCH,)),)),
    frames.Release(b"q", "g", (frames.Back(1, 5, 7, 1, 3, 0, "why"),)),
    frames.Paused(b"q", "g", 1, is_paused=True),
    frames.Claim(b"q", "g", _STREAM, ((5, 7),)),
]
_MEMBER = Member(bytes(8), "joined", 1, "name", "zone", "tcp/127.0.0.1:7000")
_NODE_FRAMES = [
    node_frames.encode_members([_MEMBER]),
    node_frames.encode_records([_RECORD], is_answer=True),
    node_frames.encode_digest(7),
]
_QUEUE_ENTRIES: list[queue_log.Entry] = [
    queue_log.Kept(_STREAM, _BATCH),
    queue_log.Dropped(_STREAM, ((5, 6),)),
    _KNOWN,
    _GROUP,
    queue_log.Seen(_NODE, is_there=True),
]
_NODE_FILES: list[tuple[str, bytes, Callable[[MemoryFiles], object]]] = [
    (
        identity.IDENTITY_FILE,
        b"poe-node",
        lambda files: identity.take_identity(files, 2, lambda size: b"x" * size),
    ),
    (members_actor.MEMBERS_FILE, b"poe-memb", lambda files: members_actor.read_members(files, "c")),
    (queues.QUEUES_FILE, b"poe-queu", queues.read_queues),
]
_DESCRIPTION = peer_frames.CopyDescription(
    9, (peer_frames.CopySegment(1, 0, 2, 30, 7),), (((b"p" * 16, 0, 1), 7),)
)
_LOG_READERS: list[Callable[[bytes], Any]] = [
    peer_frames.decode_question,
    peer_frames.decode_description,
    peer_frames.decode_records,
    peer_frames.decode_hash,
    peer_frames.decode_known,
    GroupQuestion.decode,
]
_LOG_QUESTIONS = [
    peer_frames.encode_question(peer_frames.ReadCopy("stream", 1, 9)),
    peer_frames.encode_answer(_DESCRIPTION),
    peer_frames.encode_answer(peer_frames.CopyRecords(b"entries", b"data")),
    peer_frames.encode_answer(peer_frames.CopyHash(b"digest")),
    peer_frames.encode_answer(peer_frames.Whether(is_so=True)),
    b"g" + msgpack.packb([1, "lease", "g", "shared", [b"t"], {}, False, True, [b"t"], {}, b""]),
]
_LOG_ENTRIES = [
    log_entry.encode_put(bytes(8), 1, log_entry.encode_batch([b"one", b"two"])),
    log_entry.encode_put(bytes(8), 2, log_entry.encode_batch([b"one"]), (b"p" * 16, 0, 1)),
    log_entry.encode_trim(bytes(8), 3, 9),
]
_PLAN = Plan(
    life=1, number=2, first=5, last=9, count=4, rules=b"hash", spread={b"topic!": 3},
    trial=Trial(1, 9, b"process", 1),
)  # fmt: skip
_MAPPING = b"""name = "orders"
source = { topics = ["orders", "web.*"] }
decode = "json"
otherwise = "dead"
on_error = { retry = 5, backoff_s = [1, 60], then = "dead" }
[[rule]]
id = "vip"
body = { type = "order", amount = { gt = 100 }, country = ["DE", "FR"] }
to = ["orders.vip", "audit"]
[[rule]]
id = "parts"
when = "body.type == 'order' && has(body.items)"
to = "parts.{body.country}"
key = "{body.id}"
[[rule]]
id = "tests"
header = { trace = { prefix = "test-" } }
drop = "a test"
[[test]]
in = { topic = "orders", body = { type = "order" } }
expect = { rule = "vip" }
"""
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "node-envelopes": (
        _envelopes_of_nodes,
        [encode_envelope([*map(frames.encode, _QUEUE_FRAMES), *_NODE_FRAMES])],
    ),
    "queue-frames": (_queue_frames, list(map(frames.encode, _QUEUE_FRAMES))),
    "node-frames": (_node_frames, _NODE_FRAMES),
    "tokens": (
        _tokens,
        [
            encode_token(
                Peer(
                    _NODE,
                    "name",
                    "zone",
                    1,
                    bytes(identity.INCARNATION_BYTES),
                    "tcp/127.0.0.1:7000",
                )
            ).encode()
        ],
    ),
    "queue-log": (_queue_log, list(map(queue_log.encode_entry, _QUEUE_ENTRIES))),
    "node-files": (
        _node_files,
        [
            msgpack.packb([1, *_NODE]),
            msgpack.packb([1, "c", [list(_MEMBER)]]),
            msgpack.packb([1, [_RECORD]]),
        ],
    ),
    "log-entries": (_log_entries, _LOG_ENTRIES),
    "log-questions": (_log_questions, _LOG_QUESTIONS),
    "log-records": (
        _log_records,
        [
            LogRecord.new(b"topic", 1, TopicProperties(partitions=2, replicas=3)).encode(),
            Claim("node", b"n" * 16, 1).encode(),
        ],
    ),
    "delayed": (_delayed, [_joined(_later())]),
    "plans": (_plans, [_PLAN.encode()]),
    "mapped-bodies": (
        _bodies_of_mappings,
        [_joined([b'{"a": [1, null, "\\ud83d\\ude00"]}', b"[1e400]"]), _joined([b"\x81\xa1a\x01"])],
    ),
    "mapping-files": (_mapping_files, [_MAPPING]),
    "logins": (
        _logins,
        [_joined([ScramClient("u", "p", None, nonce="n").first(), b"c=biws,r=nn"])],
    ),
}
"""By name: what takes any bytes, and some that are right."""
