"""Ways to break the slab log on purpose; otherwise as `mutants.py`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from poe.errors import StorageError
from poe.storage.formats import hashed
from poe.storage.real_files import RealFiles
from poe.storage.slab_log import record, writer
from poe.storage.slab_log.reader import Reader
from poe.storage.slab_log.record import Window
from poe.storage.slab_log.slab_name import LOCK_FILE
from poe.storage.slab_log.slab_reader import SlabReader
from poe.storage.slab_log.slab_writer import SlabWriter
from poe.storage.slab_log.writer import Writer

SlabMutant = Literal[
    "slab-ack-in-memory",
    "slab-no-data-sync",
    "slab-no-sum-sync",
    "slab-no-name-sync",
    "slab-half-records",
    "slab-no-hash",
    "slab-seek-to-batch",
    "slab-begin-again",
    "slab-ignore-write-errors",
    "slab-no-lock",
    "slab-no-settling",
    "slab-any-feature",
]


def _ack_in_memory(patch: Any) -> None:
    """Keep what is to be flushed until there is more of it."""
    flush = Writer.flush

    def flush_much(self: Any) -> None:
        if self.address - self._slab.end > 1000:
            flush(self)

    patch(Writer, "flush", flush_much)


def _no_sync(kind: str) -> Callable[[Any], None]:
    """Q15: leave out the sync of one kind of file, or of the folder."""

    class Without:
        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def open(self, path: str, mode: Any) -> Any:
            file = self.real.open(path, mode)
            return Without(file) if path.endswith(kind) else file

        def sync(self) -> None:
            pass

        def sync_folder(self, path: str) -> None:
            if kind != "folder":
                self.real.sync_folder(path)

    def apply(patch: Any) -> None:
        init = Writer.__init__

        def with_less(self: Any, path: Any, *sizes: int, **options: Any) -> None:
            files = RealFiles.at(path) if isinstance(path, Path) else path
            init(self, Without(files), *sizes, **options)

        patch(Writer, "__init__", with_less)

    return apply


def _half_records(patch: Any) -> None:
    """Q07: take what is there of a record for all of it."""
    patch(record, "_split_checked", record._split)


def _no_hash(patch: Any) -> None:
    """Serve batches without a look at their checksums."""
    patch(SlabReader, "_is_good", lambda *_: True)


def _seek_to_batch(patch: Any) -> None:
    """Q01: go to where the batch of an address begins."""
    patch(Window, "from_address", lambda self, *_: self)


def _begin_again(patch: Any) -> None:
    """Q02: at the end of the log, read its last slab again."""
    load_behind = Reader._load_behind

    def load(self: Any, address: int) -> Any:
        found = load_behind(self, address)
        if found is None:
            self.seek(self._slab.start)
        return found

    patch(Reader, "_load_behind", load)


def _ignore_write_errors(patch: Any) -> None:
    """Q10: count what was not written as written."""
    append = SlabWriter.append

    def ignore(self: Any, data: Any, last: int, count: int) -> None:
        end = self.end + len(data)
        with contextlib.suppress(StorageError):
            append(self, data, last, count)
        self.end = end  # who writes asks for it: see `Writer._write_batch`

    patch(SlabWriter, "append", ignore)


def _no_lock(patch: Any) -> None:
    """Q12: let everybody write."""
    patch(writer, "lock_log", lambda files: (files.open(LOCK_FILE, "w+"), True))


def _no_settling(patch: Any) -> None:
    """Build on what a power cut has left without making it durable."""
    patch(SlabWriter, "settle", lambda _: None)


def _any_feature(patch: Any) -> None:
    """Read and write what a newer version may mean otherwise."""
    patch(hashed, "_REQUIRED_FEATURES", 0)


SLAB_MUTANTS: dict[str, Callable[[Any], None]] = {
    "slab-ack-in-memory": _ack_in_memory,
    "slab-no-data-sync": _no_sync(".slab"),
    "slab-no-sum-sync": _no_sync(".sum"),
    "slab-no-name-sync": _no_sync("folder"),
    "slab-half-records": _half_records,
    "slab-no-hash": _no_hash,
    "slab-seek-to-batch": _seek_to_batch,
    "slab-begin-again": _begin_again,
    "slab-ignore-write-errors": _ignore_write_errors,
    "slab-no-lock": _no_lock,
    "slab-no-settling": _no_settling,
    "slab-any-feature": _any_feature,
}
assert set(SLAB_MUTANTS) == set(get_args(SlabMutant))
