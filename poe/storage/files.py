"""The file layer that storage is written against: what may be done to files, and nothing more.

Storage reaches the disk through a `Files` object only, which is handed in. `RealFiles` (in
`real_files.py`) does what it says; tests put a layer between that fails the Nth call, writes short
or forgets, so every fault of a disk can be played through.

Paths are relative to one base folder, with `/` between names; nothing outside it can be named.
Operations raise `OSError`; storage turns it into a `PoeError` where it knows what was being done.
"""

import mmap
from typing import Literal, NamedTuple, Protocol

Mode = Literal["r", "r+", "x+", "w+"]
"""Read; read and write; make a new file (it must not exist); make or empty a file."""


class OpenFile(Protocol):
    """An open file; its descriptor closes when the last reference to the object is gone.

    There is no `close` on purpose: a `FileSlice` that is being sent shares the file with its
    segment, and a descriptor closed under it could by then mean another file.
    """

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`; when it raises, any part of it may have been written."""
        ...

    def read_at(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer at the end of the file."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        ...

    def allocate(self, size: int) -> None:
        """Extend the file to `size` bytes, with disk blocks reserved for all of them."""
        ...

    def reserve(self, size: int) -> None:
        """Reserve disk blocks for the first `size` bytes, and leave the size of the file as it is.

        `truncate` gives blocks behind the end back. Where the system cannot, nothing happens.
        """
        ...

    def sync(self) -> None:
        """Make what was written durable (fdatasync)."""
        ...

    def map(self, length: int, *, is_writable: bool = False) -> mmap.mmap:
        """Map the first `length` bytes, 1 or more, into memory."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for `sendfile`; valid while the object is referenced."""
        ...


class FolderEntry(NamedTuple):
    """A name in a folder."""

    name: str
    is_folder: bool
    """False for symbolic links, wherever they lead."""


class Files(Protocol):
    """The operations on the names below one base folder."""

    base: str
    """The base folder, for messages only."""

    boot_id: str
    """Identity of this boot of the machine: what the page cache holds is coherent within one. Empty
    where the system does not tell."""

    @property
    def process_id(self) -> int:
        """Of this process, for whoever finds its locks; of a simulated one always the same."""
        ...

    unlink_threads: int
    """In so many threads at once, many files are removed faster than in one."""

    def open(self, path: str, mode: Mode) -> OpenFile:
        """Open a file; symbolic links are never followed."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None when there is none."""
        ...

    def modified_us(self, path: str) -> int | None:
        """Return when a file was last written, in microseconds since the epoch; None: no file."""
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def list_folder(self, path: str) -> list[FolderEntry]:
        """List a folder, in no order."""
        ...

    def make_folder(self, path: str) -> bool:
        """Make a folder; tell whether it was missing."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable; "" is the base folder."""
        ...

    def sync_all(self) -> None:
        """Make all that was written to the file system durable, names and all, by whomever.

        It is refused where a failure could go unnoticed. One that is not refused may still miss
        what the system gave up before; so nobody may be told of its success, but by what is
        written to the same file system behind it.
        """
        ...

    def lock(self, path: str) -> OpenFile:
        """Open a file, made when missing, under an exclusive lock that ends with its descriptor.

        Raises:
            BlockingIOError: it is locked already.
        """
        ...

    def is_open_elsewhere(self, path: str) -> bool | None:
        """Return whether another process has the file open; None when one may out of our sight."""
        ...

    def is_in_place(self, path: str, file: OpenFile) -> bool:
        """Return whether a path, from the base folder's own on, still leads to an open file."""
        ...

    def free_bytes(self) -> int:
        """Return how many bytes may still be written to the disk."""
        ...

    def file_system(self) -> str:
        """Return the type of the file system, as `mount` does; empty where that is not known."""
        ...


class FileSlice(NamedTuple):
    """Whole records that lie one behind the other in a data file, ready for `sendfile`.

    It keeps the file open: neither hibernation nor expiry of the segment harms a slice.
    """

    file: OpenFile
    offset: int
    length: int
    """Bytes, 1 or more."""

    record_count: int
    """1 or more."""

    last_pointer: int
    """Pointer of the last record in the slice; the next read continues from it."""

    number: int
    """Of the first record, in its segment; 0 is the oldest."""

    content: bytes = b""
    """Its bytes, where they are read already: those of a small record that is alone."""

    def read(self) -> bytes:
        """Return the bytes of the slice, fewer where the file has been cut."""
        return self.content or self.file.read_at(self.length, self.offset)


class IndexedSlice(NamedTuple):
    """Whole records, and where each of them lies."""

    entries: bytes
    """As they lie in the index, one for each record."""

    records: FileSlice

    ordinal: int
    """Of the first record."""

    is_compared_once: bool = True
    """Whether they may be read later, too; else each read is to compare them with their sums."""
