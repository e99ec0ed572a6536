"""Ways to keep messages on disk and get them back, each with the calls that its users would write.

A way writes all messages into an empty folder, and later reads all of them in order, which include
opening and closing. None syncs: what is compared survives the end of the process, not a power cut.
"""

import importlib.util
import itertools
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poe.storage import Messages
from poe.storage.slab_log import EndOfLog, Reader, Writer

BATCH_COUNT = 10_000
TRANSACTION_COUNT = 1_000
_LENGTH = struct.Struct("<I")
_KEY = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Way:
    """One row of the table."""

    name: str
    run: Callable[[Path, Any], None]
    """Takes the folder, and what `given` makes of the messages beforehand."""

    given: Callable[[list[bytes]], Any] = list

    bar: float | None = None
    """The least of the plain loop's rate that will do."""

    part: int = 1
    """One in so many messages is written; slow ways would take minutes for all."""

    package: str | None = None
    """What it needs beside Python and Poe."""

    def is_installed(self) -> bool:
        """Whether it can be run."""
        return self.package is None or importlib.util.find_spec(self.package) is not None


def in_batches(messages: list[bytes], count: int) -> Iterator[list[bytes]]:
    """Cut a list into lists."""
    return (messages[at : at + count] for at in range(0, len(messages), count))


def as_lists(messages: list[bytes]) -> list[list[bytes]]:
    """Make the batches of a program that collects messages in lists."""
    return list(in_batches(messages, BATCH_COUNT))


def as_matrices(messages: list[bytes]) -> list[NDArray[np.uint8]]:
    """Make the batches of a program that has its messages in arrays."""
    return [
        np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)
        for batch in as_lists(messages)
    ]


def plain_write(folder: Path, messages: list[bytes]) -> None:
    """Length and message, as the seed's benchmark does: the least by which they can be read."""
    with (folder / "plain").open("wb") as file:
        for message in messages:
            file.write(_LENGTH.pack(len(message)))
            file.write(message)


def plain_read(folder: Path, messages: list[bytes]) -> None:
    count = 0
    with (folder / "plain").open("rb") as file:
        while length := file.read(4):
            file.read(*_LENGTH.unpack(length))
            count += 1
    assert count == len(messages)


def bare_write(folder: Path, messages: list[bytes]) -> None:
    """Without lengths: only for messages of one size that the reader knows."""
    with (folder / "bare").open("wb") as file:
        for message in messages:
            file.write(message)


def bare_read(folder: Path, messages: list[bytes]) -> None:
    size, count = len(messages[0]), 0
    with (folder / "bare").open("rb") as file:
        while file.read(size):
            count += 1
    assert count == len(messages)


def log_write(folder: Path, messages: list[bytes]) -> None:
    with Writer(folder / "log") as writer:
        for message in messages:
            writer.write(message)


def log_write_many(folder: Path, batches: Sequence[Messages]) -> None:
    with Writer(folder / "log") as writer:
        for batch in batches:
            writer.write_many(batch)


def log_read(folder: Path, messages: list[bytes]) -> None:
    reader, count = Reader(folder / "log"), 0
    try:
        while True:
            reader.read()
            count += 1
    except EndOfLog:
        assert count == len(messages)


def log_iterate(folder: Path, messages: list[bytes]) -> None:
    count = 0
    for _ in Reader(folder / "log"):
        count += 1
    assert count == len(messages)


def log_read_many(folder: Path, messages: list[bytes]) -> None:
    reader, count = Reader(folder / "log"), 0
    while batch := reader.read_many():
        count += len(batch)
    assert count == len(messages)


def sqlite_write(folder: Path, messages: list[bytes]) -> None:
    database = sqlite3.connect(folder / "sqlite")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE log (address INTEGER PRIMARY KEY, message BLOB)")
    for batch in in_batches(messages, TRANSACTION_COUNT):
        with database:
            rows = [(message,) for message in batch]
            database.executemany("INSERT INTO log (message) VALUES (?)", rows)
    database.close()


def sqlite_read(folder: Path, messages: list[bytes]) -> None:
    database = sqlite3.connect(folder / "sqlite")
    count = sum(1 for _ in database.execute("SELECT message FROM log ORDER BY address"))
    database.close()
    assert count == len(messages)


def lmdb_write(folder: Path, messages: list[bytes]) -> None:
    lmdb = importlib.import_module("lmdb")
    environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 32, sync=False)
    keys = map(_KEY.pack, itertools.count())
    for batch in in_batches(messages, TRANSACTION_COUNT):
        with environment.begin(write=True) as transaction:
            for message in batch:
                transaction.put(next(keys), message, append=True)
    environment.close()


def lmdb_read(folder: Path, messages: list[bytes]) -> None:
    lmdb = importlib.import_module("lmdb")
    environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 32, readonly=True)
    with environment.begin() as transaction:
        count = sum(1 for _ in transaction.cursor().iternext(keys=False, values=True))
    environment.close()
    assert count == len(messages)


def persist_queue_write(folder: Path, messages: list[bytes]) -> None:
    queue = importlib.import_module("persistqueue").Queue(str(folder / "queue"))
    for message in messages:
        queue.put(message)


def persist_queue_read(folder: Path, messages: list[bytes]) -> None:
    queue = importlib.import_module("persistqueue").Queue(str(folder / "queue"))
    for _ in messages:
        queue.get(block=False)
        queue.task_done()


def leveldb_write(folder: Path, messages: list[bytes]) -> None:
    database = importlib.import_module("plyvel").DB(str(folder / "leveldb"), create_if_missing=True)
    for number, message in enumerate(messages):
        database.put(_KEY.pack(number), message)
    database.close()


def leveldb_read(folder: Path, messages: list[bytes]) -> None:
    database = importlib.import_module("plyvel").DB(str(folder / "leveldb"))
    with database.iterator(include_key=False) as values:
        count = sum(1 for _ in values)
    database.close()
    assert count == len(messages)


PLAIN_WRITE = Way("plain loop: length, message", plain_write)
PLAIN_READ = Way("plain loop: length, message", plain_read)

WRITES = (
    Way("`Writer.write`", log_write, bar=0.5),
    Way(
        f"`Writer.write_many`, matrices of {BATCH_COUNT:,}",
        log_write_many,
        given=as_matrices,
        bar=5,
    ),
    Way(f"`Writer.write_many`, lists of {BATCH_COUNT:,}", log_write_many, given=as_lists, bar=5),
    Way("bare loop: message only", bare_write),
    Way("SQLite, WAL, 1,000 per transaction", sqlite_write, part=5),
    Way("LMDB, 1,000 per transaction", lmdb_write, part=5, package="lmdb"),
    Way("LevelDB (plyvel), single puts", leveldb_write, part=10, package="plyvel"),
    Way("persist-queue", persist_queue_write, part=500, package="persistqueue"),
)
"""In the order of the table."""

READS = (
    Way("`Reader.read`", log_read, bar=0.5),
    Way("`for message in Reader`", log_iterate, bar=0.5),
    Way("`Reader.read_many`", log_read_many, bar=5),
    Way("bare loop: message only", bare_read),
    Way("SQLite, in order", sqlite_read, part=5),
    Way("LMDB, cursor", lmdb_read, part=5, package="lmdb"),
    Way("LevelDB (plyvel), iterator", leveldb_read, part=10, package="plyvel"),
    Way("persist-queue", persist_queue_read, part=500, package="persistqueue"),
)
