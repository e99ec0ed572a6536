"""What is fuzzed of what lies in files; each target takes any bytes, and fails only as it says.

A target `forged-…` gives the bytes the hashes that they should have: the fuzzer, which cannot guess
these, would not come behind them. What a mutant replaces is looked up when it is called.
"""

import contextlib
import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from poe.client.producer.payload import Message
from poe.client.spool.spool import Spool
from poe.client.spool.spool_mark import MARK_FILE, SpoolMark
from poe.errors import (
    CorruptRecord,
    FormatNotSupported,
    ProducerFenced,
    ReadFailed,
    RepeatedPut,
    SequenceGap,
    StorageError,
)
from poe.storage import ArchivedFile, Manifest, RowGroup, SegmentOptions
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import RECEIPTS
from poe.storage.formats.store_meta import META_FILE, META_MAGIC
from poe.storage.formats.sum_file import SUMS, seed_of
from poe.storage.slab_log import Writer
from poe.storage.store.property_file import PROPERTY_FILE, PROPERTY_MAGIC
from poe.storage.store.removals import REMOVED_FILE, REMOVED_MAGIC, encode_note
from poe.topic_properties import TopicProperties
from torture.layers.memory import Inode, MemoryFiles
from torture.slab_workload import read_log
from torture.workload import open_store, read_store

_SIZE = struct.Struct(">H")
_HASH = struct.Struct(">Q")
_SUM_BYTES, _RECEIPT_BYTES = (each.size_bytes - _HASH.size for each in (SUMS, RECEIPTS))
_SEGMENT = "topics/t/1"
_SLAB, _SLAB_SUM = f"{0:020}.slab", f"{0:020}.sum"
_STORE_ID = bytes(range(16))
"""The same in each run: what was found is to be found again."""
_FOREIGN_DATA = "quarantine/foreign/t/1_data"
_LOWEST, _HIGHEST = 100, 10_000


def _segment(data: bytes) -> None:
    """Data, index and lock without sums."""
    files = MemoryFiles()
    files.folders |= {"topics", "topics/t"}
    for suffix, part in zip(("_data", "_index", "_lock"), _parts(data, 3), strict=True):
        if part or suffix != "_lock":
            files.inodes[_SEGMENT + suffix] = Inode(part)
    with contextlib.suppress(CorruptRecord):  # found, and told
        _read(files)


def _index(data: bytes) -> None:
    """The index of a segment whose data is sound, with sums: nothing of that may be lost."""
    _damage(_SEGMENT + "_index", data)


def _sums(data: bytes) -> None:
    """The sums of a segment whose data is sound: nothing of that may be lost."""
    _damage(_SEGMENT + "_sum", data)


def _receipts(data: bytes) -> None:
    """The receipts of a segment, closed or not: no message may be lost, and a put be answered."""
    for is_locked in (False, True):
        files = _sound_store().copy("boot")
        truth = _read(files.copy("boot"))
        files.inodes[_SEGMENT + "_seq"] = Inode(data)
        if is_locked:
            files.inodes[_SEGMENT + "_lock"] = Inode()
        with contextlib.suppress(FormatNotSupported):
            store = open_store(files, SegmentOptions())
            if b"t" in store.failed:
                assert "use a newer version" in str(store.failed[b"t"])
                continue
            assert read_store(store) == truth
            segment = store.topics[b"t"][-1]
            with contextlib.suppress(RepeatedPut, SequenceGap, ProducerFenced):
                segment.unseal()
                segment.append([b"next"], 9, (b"p" * 16, 0, 1))
            store.close()


def _meta(data: bytes) -> None:
    """The events of a store whose data is sound: nothing of that may be lost."""
    _damage(META_FILE, data)


def _topic_properties(data: bytes) -> None:
    """What topics have: as damaged as it may be, no message is lost, and it can be changed."""
    files = _sound_store().copy("boot")
    truth = _read(files.copy("boot"))
    for content in (data, _forge_topics(data)):
        files.inodes[PROPERTY_FILE] = Inode(content)
        with contextlib.suppress(FormatNotSupported):
            store = open_store(files.copy("boot"), SegmentOptions())
            assert store.properties.of(b"t").partition_topics()
            assert read_store(store) == truth


def _forge_topics(data: bytes) -> bytes:
    """Give notes their hashes; in front of each is its size."""
    made = [FileHeader(_STORE_ID, 0).encode(PROPERTY_MAGIC)]
    *notes, _ = _parts(data, 1 + data.count(b"\0"))
    return b"".join([*made, *(note + _hash_of(_STORE_ID + note) for note in notes)])


def _removals(data: bytes) -> None:
    """The notes of what was removed, damaged: no message is lost."""
    files = _sound_store().copy("boot")
    truth = _read(files.copy("boot"))
    files.inodes[REMOVED_FILE] = Inode(data)
    with contextlib.suppress(FormatNotSupported):
        assert _read(files) == truth


def _forge_removals(data: bytes) -> bytes:
    """Give notes their hashes; in front of each is its size."""
    made = [FileHeader(_STORE_ID, 0).encode(REMOVED_MAGIC)]
    *notes, _ = _parts(data, 1 + data.count(b"\0"))
    return b"".join([*made, *(note + _hash_of(_STORE_ID + note) for note in notes)])


def _damage(path: str, content: bytes) -> None:
    """Change one file; every message is there all the same, or is put away with its segment.

    Sums may be, to the byte, those that data of another topic has: then the segment is foreign, as
    is found when it is opened, or read.
    """
    files = _sound_store().copy("boot")
    truth = _read(files.copy("boot"))
    files.inodes[path].content[:] = content
    with contextlib.suppress(FormatNotSupported):
        try:
            found = _read(files)
        except ReadFailed:
            found = {}
        foreign = files.inodes.get(_FOREIGN_DATA)
        is_put_away = foreign is not None and bytes(foreign.content) == _DATA
        assert found == ({} if is_put_away else truth)


def _forged(path: str, forge: Callable[[bytes], bytes], data: bytes) -> None:
    """A file of a store that says anything at all, in good order."""
    files = _sound_store().copy("boot")
    files.inodes[path] = Inode(forge(data))
    with contextlib.suppress(StorageError):
        _read(files)


def _forge_chained(data: bytes, *, piece_bytes: int, is_chain_first: bool) -> bytes:
    """Give sums or receipts their hashes: those of the header, and of each entry's chain."""
    head, rest = data[: FILE_HEADER_BYTES - _HASH.size], data[FILE_HEADER_BYTES - _HASH.size :]
    chain = seed_of(_SEGMENT, head[24:40].ljust(16, b"\0"))
    made = [head, _hash_of(head)]
    for at in range(0, len(rest), piece_bytes):
        piece, before = rest[at : at + piece_bytes], _HASH.pack(chain)
        chain = xxh3_64_intdigest(before + piece if is_chain_first else piece + before)
        made += [piece, _HASH.pack(chain)]
    return b"".join(made)


def _forge_meta(data: bytes) -> bytes:
    """Give events their hashes; in front of each is its size."""
    made = [FileHeader(_STORE_ID, 0).encode(META_MAGIC)]
    *events, _ = _parts(data, 1 + data.count(b"\0"))
    for event in events:
        made += [event, _hash_of(_STORE_ID + event)]
    return b"".join(made)


def _unforged(data: bytes, piece_bytes: int) -> bytes:
    """Leave out the hashes of a file with a header."""
    rest = data[FILE_HEADER_BYTES:]
    pieces = range(0, len(rest), piece_bytes + _HASH.size)
    return data[: FILE_HEADER_BYTES - _HASH.size] + b"".join(
        rest[at : at + piece_bytes] for at in pieces
    )


def _hash_of(content: bytes) -> bytes:
    return _HASH.pack(xxh3_64_intdigest(content))


def _slab(data: bytes) -> None:
    """A slab and its side file."""
    slab, sums = _parts(data, 2)
    _read_slab(slab, sums)


def _forged_slab(data: bytes) -> None:
    """A slab whose records have their hashes, without a side file."""
    made = []
    while data:
        message = data[1 : 1 + data[0]]
        made += [struct.pack("<II", len(message), xxh32_intdigest(message)), message]
        data = data[1 + data[0] :]
    _read_slab(b"".join(made), b"")


def _read_slab(slab: bytes, sums: bytes) -> None:
    files = MemoryFiles()
    files.inodes = {_SLAB: Inode(slab)}
    if sums:
        files.inodes[_SLAB_SUM] = Inode(sums)
    with contextlib.suppress(ReadFailed):  # of a newer version
        read_log(files)
        with Writer(files) as writer:
            added = writer.write(b"next"), b"next"
        assert read_log(files)[0][-1] == added


def _mark(data: bytes) -> None:
    """The mark of a spool: it stays within the log, and what is noted then is found again."""
    for content in (data, _forge_mark(data)):
        files = MemoryFiles()
        files.inodes[MARK_FILE] = Inode(content)
        with contextlib.suppress(FormatNotSupported):
            mark = SpoolMark(files, _LOWEST, _HIGHEST)
            assert _LOWEST <= mark.address <= _HIGHEST
            mark.move(_HIGHEST - 1)
            assert SpoolMark(files, _LOWEST, _HIGHEST).address == _HIGHEST - 1


def _forge_mark(data: bytes) -> bytes:
    # A number that one more does not fit would take a while.
    slots = (data[:16] + b"\0" + data[16:31], data[31:47] + b"\0" + data[47:62])
    return b"".join((slot + _hash_of(slot)).ljust(512, b"\0") for slot in slots)


def _spooled(data: bytes) -> None:
    """A batch in a spool whose checksums are right: it is one, or is told."""
    files = MemoryFiles()
    Spool(files).close()
    with Writer(files) as writer:
        writer.write(data)
    with contextlib.suppress(FormatNotSupported), Spool(files) as spool:
        taken = spool.take()
        assert taken is not None
        assert taken.batch.messages
        spool.done(taken)
        assert spool.is_empty
        assert spool.count == 0


def _manifests(data: bytes) -> None:
    """What an archive has of a segment."""
    with contextlib.suppress(FormatNotSupported, ReadFailed):
        manifest = Manifest.decode(data, "manifest")
        assert Manifest.decode(manifest.encode(), "manifest") == manifest


def _parts(data: bytes, count: int) -> list[bytes]:
    """Take input apart: all parts but the last have their size in front."""
    parts = []
    for _ in range(count - 1):
        size = _SIZE.unpack_from(data)[0] if len(data) >= _SIZE.size else 0
        parts.append(data[_SIZE.size : _SIZE.size + size])
        data = data[_SIZE.size + size :]
    return [*parts, data]


def _joined(*parts: bytes) -> bytes:
    return b"".join(_SIZE.pack(len(part)) + part for part in parts[:-1]) + parts[-1]


def _read(files: MemoryFiles) -> object:
    return read_store(open_store(files, SegmentOptions()))


@cache
def _sound_store() -> MemoryFiles:
    files = MemoryFiles()
    files.inodes[META_FILE] = Inode(FileHeader(_STORE_ID, 0).encode(META_MAGIC))
    store = open_store(files, SegmentOptions())
    segment = store.create_segment(b"t", 1)
    for number in range(3):
        put = (b"p" * 16, 0, 0) if number == 1 else None
        segment.append([b"message %d" % number] * 2, number, put)
        segment.flush()
    store.close()
    return files


def _sound_slab() -> bytes:
    files = MemoryFiles()
    with Writer(files) as writer:
        for number in range(3):
            writer.write_many([b"message %d" % number] * 2)
            writer.flush()
    snapshot = files.snapshot()
    return _joined(snapshot[_SLAB], snapshot[_SLAB_SUM])


def _sound_mark() -> bytes:
    files = MemoryFiles()
    SpoolMark(files, _LOWEST, _HIGHEST).move(_LOWEST + 1)
    return files.snapshot()[MARK_FILE]


def _sound_topics() -> bytes:
    files = MemoryFiles()
    files.inodes[META_FILE] = Inode(FileHeader(_STORE_ID, 0).encode(META_MAGIC))
    store = open_store(files, SegmentOptions())
    store.create_topic(b"t", TopicProperties(partitions=2, envelope=True), 1)
    store.close()
    return files.snapshot()[PROPERTY_FILE]


def _sound_events() -> bytes:
    content, events = _SOUND[META_FILE][FILE_HEADER_BYTES:], []
    while content:
        size = 60 + int.from_bytes(content[2:4])
        events.append(content[:size])
        content = content[size + _HASH.size :]
    return _joined(*events, b"")


_SOUND: dict[str, Any] = _sound_store().snapshot()
_DATA, _INDEX, _SUM, _SEQ = (
    _SOUND[_SEGMENT + each] for each in ("_data", "_index", "_sum", "_seq")
)
_REMOVED = b"".join(
    (
        FileHeader(_STORE_ID, 0).encode(REMOVED_MAGIC),
        encode_note(b"t", struct.pack(">QQQ", 0, 0, 9), _STORE_ID),
    )
)
_BEYOND_POINTERS = bytes.fromhex(
    "706f652d73756d0000010100010000000000000200000000000102030405060708090a0b0c0d"
    "0e0f0000000000002a0001000000000000000000000000000007080000000001000000010700"
    "0000000000000000002800000000000000020000000028cc510311e78491f1816e02"
)
"""Sums, less their hashes, whose entry ends with a pointer that there is not."""
_SPOOLED = msgpack.packb((1, b"topic", 0, bytes(24), 8, [Message(b"value", b"key", {"n": b"x"})]))
_forge_sums = partial(_forge_chained, piece_bytes=_SUM_BYTES, is_chain_first=False)
_forge_receipts = partial(_forge_chained, piece_bytes=_RECEIPT_BYTES, is_chain_first=True)
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "segment": (_segment, [_joined(_DATA, _INDEX, b"")]),
    "index": (_index, [_INDEX]),
    "sums": (_sums, [_SUM]),
    "forged-sums": (
        partial(_forged, _SEGMENT + "_sum", _forge_sums),
        [_unforged(_SUM, _SUM_BYTES), _BEYOND_POINTERS],
    ),
    "receipts": (_receipts, [_SEQ]),
    "forged-receipts": (
        partial(_forged, _SEGMENT + "_seq", _forge_receipts),
        [_unforged(_SEQ, _RECEIPT_BYTES)],
    ),
    "meta": (_meta, [_SOUND[META_FILE]]),
    "forged-meta": (partial(_forged, META_FILE, _forge_meta), [_sound_events()]),
    "topics": (
        _topic_properties,
        [_sound_topics(), _joined(_sound_topics()[FILE_HEADER_BYTES : -_HASH.size], b"")],
    ),
    "removals": (_removals, [_REMOVED]),
    "forged-removals": (
        partial(_forged, REMOVED_FILE, _forge_removals),
        [_joined(_REMOVED[FILE_HEADER_BYTES : -_HASH.size], b"")],
    ),
    "slab": (_slab, [_sound_slab()]),
    "forged-slab": (_forged_slab, [b"\x05first\x06second"]),
    "mark": (_mark, [_sound_mark()]),
    "spooled": (_spooled, [_SPOOLED]),
    "manifests": (
        _manifests,
        [Manifest.of((ArchivedFile("a", (RowGroup(1, 2, 2, 9),)),)).encode()],
    ),
}
"""By name: what takes any bytes, and some that are right."""
