"""What is fuzzed: each target takes any bytes, and whatever they are, fails only as it says.

    python -m torture.fuzz_targets TARGET CORPUS [options of libFuzzer]

is the fuzzer's process, which atheris ends by itself. It loads Poe only once atheris watches: the
code that is loaded before is not instrumented, and the fuzzer blind. So all imports are inside.
"""

import contextlib
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torture.layers.memory import MemoryFiles

_SIZE = struct.Struct(">H")
_SEGMENT = "topics/t/1"
_META = "store.meta"
_SLAB, _SLAB_SUM = f"{0:020}.slab", f"{0:020}.sum"


def _requests(data: bytes) -> None:
    """What a client sends; control requests are the extended protocol's."""
    from poe.errors import ProtocolError
    from poe.protocol import decode_request

    with contextlib.suppress(ProtocolError):
        for frame in _frames(data):
            decode_request(*frame)


def _replies(data: bytes) -> None:
    """What a server sends."""
    from poe.errors import ProtocolError
    from poe.protocol import ControlReply, DataReply, PutReply, decode_reply

    kinds: tuple[Any, ...] = (DataReply, PutReply, ControlReply)
    for kind in kinds:
        with contextlib.suppress(ProtocolError):
            for frame in _frames(data):
                decode_reply(kind, *frame)


def _frames(data: bytes) -> Iterator[Any]:
    from poe.protocol import FrameReader

    reader = FrameReader()
    scratch = memoryview(bytearray(65536))
    while data:
        buffer = reader.buffer(scratch)
        size = min(len(buffer), len(data))
        buffer[:size], data = data[:size], data[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            yield frame


def _records(data: bytes) -> None:
    """The data of a segment, as a client gets it."""
    from poe.errors import CorruptRecord
    from poe.storage import decode_records

    try:
        records = decode_records(data)
    except CorruptRecord:
        return
    assert sum(11 + len(message) for _, message in records) == len(data)


def _segment(data: bytes) -> None:
    """Data, index and lock without sums."""
    from poe.errors import CorruptRecord
    from torture.layers.memory import Inode, MemoryFiles

    files = MemoryFiles()
    files.folders |= {"topics", "topics/t"}
    for suffix, part in zip(("_data", "_index", "_lock"), _parts(data, 3), strict=True):
        if part or suffix != "_lock":
            files.inodes[_SEGMENT + suffix] = Inode(part)
    with contextlib.suppress(CorruptRecord):  # found, and told
        _read(files)


def _sums(data: bytes) -> None:
    """The sums of a segment whose data is sound: nothing of that may be lost."""
    _damage(_SEGMENT + "_sum", data)


def _receipts(data: bytes) -> None:
    """The receipts of a segment, closed or not: no message may be lost, and a put be answered."""
    from poe.errors import FormatNotSupported, ProducerFenced, RepeatedPut, SequenceGap
    from poe.storage import SegmentOptions
    from torture.layers.memory import Inode
    from torture.workload import open_store, read_store

    for is_locked in (False, True):
        files = _sound_store().copy("boot")
        truth = _read(files.copy("boot"))
        files.inodes[_SEGMENT + "_seq"] = Inode(data)
        if is_locked:
            files.inodes[_SEGMENT + "_lock"] = Inode()
        with contextlib.suppress(FormatNotSupported):
            store = open_store(files, SegmentOptions())
            assert read_store(store) == truth
            segment = store.topics[b"t"][-1]
            with contextlib.suppress(RepeatedPut, SequenceGap, ProducerFenced):
                segment.unseal()
                segment.append([b"next"], 9, (b"p" * 16, 0, 1))
            store.close()


def _meta(data: bytes) -> None:
    """The events of a store whose data is sound: nothing of that may be lost."""
    _damage(_META, data)


def _damage(path: str, content: bytes) -> None:
    from poe.errors import FormatNotSupported

    files = _sound_store().copy("boot")
    truth = _read(files.copy("boot"))
    files.inodes[path].content[:] = content
    with contextlib.suppress(FormatNotSupported):
        assert _read(files) == truth


def _slab(data: bytes) -> None:
    """A slab and its side file."""
    from poe.errors import ReadFailed
    from poe.storage.slab_log import Writer
    from torture.layers.memory import Inode, MemoryFiles
    from torture.slab_workload import read_log

    files = MemoryFiles()
    slab, sums = _parts(data, 2)
    files.inodes = {_SLAB: Inode(slab), _SLAB_SUM: Inode(sums)}
    with contextlib.suppress(ReadFailed):  # of a newer version
        read_log(files)
        with Writer(files) as writer:
            added = writer.write(b"next"), b"next"
        assert read_log(files)[0][-1] == added


def _config(data: bytes) -> None:
    """A configuration file."""
    from poe.config import Config
    from poe.errors import ConfigError

    with tempfile.NamedTemporaryFile(suffix=".toml", dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(ConfigError):
            Config.load({"dir": "x"}, toml_path=file.name)


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


def _read(files: "MemoryFiles") -> object:
    from poe.storage import SegmentOptions
    from torture.workload import open_store, read_store

    return read_store(open_store(files, SegmentOptions()))


@cache
def _sound_store() -> "MemoryFiles":
    from poe.storage import SegmentOptions
    from torture.layers.memory import MemoryFiles
    from torture.workload import open_store

    files = MemoryFiles()
    store = open_store(files, SegmentOptions())
    segment = store.create_segment(b"t", 1)
    for number in range(3):
        put = (b"p" * 16, 0, 0) if number == 1 else None
        segment.append([b"message %d" % number] * 2, number, put)
        segment.flush()
    store.close()
    return files


def _sound_slab() -> bytes:
    from poe.storage.slab_log import Writer
    from torture.layers.memory import MemoryFiles

    files = MemoryFiles()
    with Writer(files) as writer:
        for number in range(3):
            writer.write_many([b"message %d" % number] * 2)
            writer.flush()
    snapshot = files.snapshot()
    return _joined(snapshot[_SLAB], snapshot[_SLAB_SUM])


def _sound_segment() -> bytes:
    snapshot = _sound_store().snapshot()
    return _joined(snapshot[_SEGMENT + "_data"], snapshot[_SEGMENT + "_index"], b"")


def _sound_requests() -> bytes:
    from poe.protocol import (
        ControlRequest,
        PointerRequest,
        PutId,
        PutRequest,
        SequencedPutRequest,
    )

    put = PutRequest(b"topic", [b"one", b"two"])
    numbered = SequencedPutRequest(b"topic", [b"one", b"two"], PutId(bytes(16), 0, 1))
    pointer = PointerRequest(topic=b"topic", pointer=1, limit=2)
    control = ControlRequest("wait", 1, {"topic": b"topic", "pointer": 1})
    return b"".join(each.encode() for each in (put, numbered, pointer, control))


def _sound_replies() -> bytes:
    from poe.errors import UnknownTopic
    from poe.protocol import ControlReply, ErrorReply, PutReply

    error = ErrorReply.from_error(UnknownTopic(b"topic"))
    return b"".join(each.encode() for each in (PutReply(1), error, ControlReply(1, {"a": [1]})))


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], bytes]]] = {
    "requests": (_requests, _sound_requests),
    "replies": (_replies, _sound_replies),
    "records": (_records, lambda: _sound_store().snapshot()[_SEGMENT + "_data"]),
    "segment": (_segment, _sound_segment),
    "sums": (_sums, lambda: _sound_store().snapshot()[_SEGMENT + "_sum"]),
    "receipts": (_receipts, lambda: _sound_store().snapshot()[_SEGMENT + "_seq"]),
    "meta": (_meta, lambda: _sound_store().snapshot()[_META]),
    "slab": (_slab, _sound_slab),
    "config": (_config, lambda: b'ack = "fsync"\ncheck_interval = 0.5\n'),
}
"""By name: what takes any bytes, and what makes some that are right."""


def main() -> None:
    """Be the fuzzer of one target."""
    import logging

    import atheris

    logging.getLogger("poe").setLevel(logging.CRITICAL + 1)
    name, corpus = sys.argv.pop(1), sys.argv[1]
    target, make_seed = TARGETS[name]
    with atheris.instrument_imports(include=["poe.storage", "poe.protocol", "poe.config"]):
        seed = make_seed()
        target(seed)
    from torture import mutants

    mutants.apply_chosen()
    Path(corpus, "seed").write_bytes(seed)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
    os._exit(0)


if __name__ == "__main__":
    main()
