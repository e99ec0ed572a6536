"""Reads and replaces the small files in which a node keeps what it is in its cluster.

Each is replaced as a whole, and durable, with its name, when `write_node_file` returns.

Layout:
    magic    8 bytes  which file it is
    content  bytes    msgpack
    hash     u64      xxh3-64 of the bytes before, big endian
"""

from typing import Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_digest

from poe.errors import CorruptIdentity
from poe.storage.failure import reading, writing
from poe.storage.files import Files
from poe.storage.replacement import replace_file

_MAGIC_BYTES: Final = 8
_HASH_BYTES: Final = 8
_FILE_BYTES_MAX: Final = 16 << 20


def read_node_file(files: Files, path: str, magic: bytes) -> object | None:
    """Return what a file holds; None: there is no file.

    Raises:
        CorruptIdentity: it is another file, damaged, or too large.
        ReadFailed, NoDescriptors: it cannot be read.
    """
    where = f"{files.base}/{path}"
    with reading(where):
        size = files.size(path)
        if size is None:
            return None
        if size > _FILE_BYTES_MAX:
            raise CorruptIdentity(where, f"it has {size} bytes, and {_FILE_BYTES_MAX} are the most")
        content = files.open(path, "r").read_at(size, 0)
    if content[:_MAGIC_BYTES] != magic:
        raise CorruptIdentity(where, "it is another file")
    if xxh3_64_digest(content[:-_HASH_BYTES]) != content[-_HASH_BYTES:]:
        raise CorruptIdentity(where, "its hash is not that of its content")
    try:
        value: object = msgpack.unpackb(content[_MAGIC_BYTES:-_HASH_BYTES])
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptIdentity(where, "what it holds cannot be read") from error
    return value


def write_node_file(files: Files, path: str, magic: bytes, value: object) -> None:
    """Put a value in place of what a file holds; on an error that is still there.

    Raises:
        StorageFull, WriteFailed, NoDescriptors: it cannot be written.
    """
    content = magic + msgpack.packb(value)
    with writing(f"{files.base}/{path}"):
        replace_file(files, path, content + xxh3_64_digest(content))
        files.sync_folder("")
