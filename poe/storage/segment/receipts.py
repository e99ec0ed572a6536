"""The sequenced puts of a topic, as its newest segment knows them, in memory and on disk."""

import logging
from typing import NamedTuple, Self

from poe.storage.failure import as_storage_error, reading, writing
from poe.storage.files import Files, OpenFile
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.receipt_file import (
    RECEIPT_MAGIC,
    RECEIPTS,
    PutKey,
    Receipt,
    ReceiptKind,
    cover,
    earlier_receipt,
    make_receipts,
    place_alone,
    read_receipts,
    receipt_of,
)
from poe.storage.segment.producers import LastPut, Producers

_log = logging.getLogger(__name__)


class _Written(NamedTuple):
    """A receipt that lies in the file, and whose data is about to follow."""

    receipt: Receipt
    chain: int


class Receipts:
    """The receipts of one segment, `path` less `_data`; one thread at a time may call it.

    Nothing is read before it is asked for. A put is stored by `write`, then its data, then
    `confirm`, or `take_back` where the data was not taken. What it knows of producers stays in
    memory while the segment is written to, however long that hibernates.

    Always, of the segment that is written to:

        bytes of receipts that a sync has covered <= bytes of those that count
        data that counts and lies behind `reach` was put without a sequence since the last sync
    """

    __slots__ = (
        "_chain",
        "_file",
        "_files",
        "_place",
        "_producers",
        "_reach",
        "_size_bytes",
        "_store_id",
        "_synced_bytes",
        "_to_be_synced",
        "_written",
        "path",
    )

    def __init__(self, files: Files, path: str, store_id: bytes) -> None:
        """Stand for a file that is there."""
        self.path = path
        self._files = files
        self._store_id = store_id
        self._file: OpenFile | None = None
        self._producers: Producers | None = None
        self._size_bytes: int | None = None  # None stands for all of the file
        self._synced_bytes = self._to_be_synced = 0
        self._chain = self._reach = 0
        self._place = (0, 0)  # and the pointer there
        self._written: _Written | None = None

    @classmethod
    def make(
        cls, files: Files, path: str, store_id: bytes, earlier: list[Receipt], size_bytes: int
    ) -> Self:
        """Make the file of a segment that has so much data, all of it without receipts.

        Raises:
            OSError: as reported by the file layer.
        """
        receipts = [*earlier, cover(size_bytes)] if size_bytes else earlier
        make_receipts(files, path, store_id, receipts)
        made = cls(files, path, store_id)
        made._begin(FILE_HEADER_BYTES + len(receipts) * RECEIPTS.size_bytes)
        return made

    @property
    def is_full(self) -> bool:
        """Return whether too many producers are kept in memory."""
        return self._producers is not None and self._producers.is_full

    def find(self, put: PutKey) -> int | None:
        """Return the pointer of a put that is stored; None where it is the next one to store.

        Raises:
            RepeatedPut, SequenceGap, ProducerFenced: see `Producers.find`.
            ReadFailed: the file cannot be read.
        """
        return self._loaded().find(put)

    def last(self, producer: bytes) -> LastPut | None:
        """Return the newest put of a producer.

        Raises:
            ReadFailed: the file cannot be read.
        """
        return self._loaded().last(producer)

    def newest(self, count: int) -> list[tuple[bytes, LastPut]]:
        """Return producers with their newest puts, the one that put last first.

        Raises:
            ReadFailed: the file cannot be read.
        """
        return self._loaded().newest(count)

    def earlier(self, now_us: int) -> list[Receipt]:
        """Return what a new segment is to begin with.

        Raises:
            ReadFailed: the file cannot be read.
        """
        puts = [earlier_receipt(put, pointer) for put, pointer in self._loaded().live(now_us)]
        return [*puts, place_alone(*self._place)] if self._place[0] else puts

    def known(self) -> list[tuple[PutKey, int]]:
        """Return all puts that are known, and their pointers.

        Raises:
            ReadFailed: the file cannot be read.
        """
        return list(self._loaded().known())

    def place(self) -> int:
        """Return up to where in the stream of a replicated topic its data goes; 0: not known.

        Raises:
            ReadFailed: the file cannot be read.
        """
        self._loaded()
        return self._place[0]

    def write(
        self,
        put: PutKey | None,
        pointer: int,
        end: int,
        data: bytes | memoryview,
        place: int = 0,
    ) -> None:
        """Write the receipt of a batch whose records are about to end at `end`.

        Raises:
            StorageFull: no room for it; nothing is changed.
            WriteFailed: another failure; likewise.
            ReadFailed: the file cannot be opened.
        """
        self._written = self._write(receipt_of(put, pointer, end, data, place))

    def write_place(self, place: int, pointer: int, size_bytes: int) -> None:
        """Write that all of the data goes up to a place, where nothing was stored.

        Raises:
            StorageError: as `write`.
        """
        written = self._write(place_alone(place, pointer, size_bytes))
        self._advance(written)
        self._note(self._loaded(), written.receipt)

    def confirm(self) -> None:
        """Note that the data has followed."""
        written, self._written = self._written, None
        assert written is not None
        self._advance(written)
        self._note(self._loaded(), written.receipt)

    def take_back(self) -> None:
        """Remove the receipt whose data was not taken.

        Raises:
            StorageFull, WriteFailed: it is still there, so nothing may be put behind it.
        """
        self._written = None
        self.cut()

    def cover(self, size_bytes: int) -> OpenFile:
        """Say that all data has its receipts; return the file, which is about to be synced.

        Raises:
            StorageFull: no room for it.
            WriteFailed: another failure.
            ReadFailed: the file cannot be opened or read.
        """
        self._loaded()
        if self._reach != size_bytes:
            self._advance(self._write(cover(size_bytes)))
        assert self._size_bytes is not None
        self._to_be_synced = self._size_bytes
        return self._opened()

    def note_synced(self) -> None:
        """Note that what `cover` was called for is durable, and the data, too."""
        self._synced_bytes = self._to_be_synced

    def prepare(self, size_bytes: int) -> None:
        """Get ready for writing behind data that is durable, be it also from somebody else.

        Raises:
            StorageError: as `cover`; FormatNotSupported where a newer version has written it.
        """
        path = self.path + "_seq"
        with reading(path):
            file = self._files.open(path, "r")
            FileHeader.decode(file.read_at(FILE_HEADER_BYTES, 0), path, RECEIPT_MAGIC)
            self._begin(file.size())
            last_at = max(file.size() - RECEIPTS.size_bytes, 0)
            last = RECEIPTS.decode(file.read_at(RECEIPTS.size_bytes, last_at), 0)
        if size_bytes and not (last and last[0].entry.end == size_bytes):
            file = self.cover(size_bytes)
            with writing(path):
                file.sync()
            self.note_synced()

    def cut(self) -> None:
        """Cut off what lies behind the receipts that count.

        Raises:
            StorageFull, WriteFailed: it is still there.
            ReadFailed: the file cannot be opened or read.
        """
        self._loaded()
        with writing(self.path + "_seq"):
            file = self._opened()
            if file.size() != self._size_bytes:
                assert self._size_bytes is not None
                file.truncate(self._size_bytes)

    def rewind(self) -> None:
        """Give up what no sync has covered."""
        self.forget()
        self._size_bytes = self._synced_bytes

    def close(self) -> None:
        """Let the file go until it is needed again."""
        self._file = None

    def forget(self) -> None:
        """Let go of everything; what is asked for is read again."""
        self.close()
        self._size_bytes = self._producers = self._written = None

    def _begin(self, size_bytes: int) -> None:
        self._size_bytes = self._synced_bytes = self._to_be_synced = size_bytes

    def _write(self, receipt: Receipt) -> _Written:
        self._loaded()
        content, chain = RECEIPTS.encode([receipt], self._chain)
        assert self._size_bytes is not None
        file = self._opened()
        # Not `with writing`, which is three calls: each sequenced put comes here.
        try:
            file.write_at(content, self._size_bytes)
        except OSError as error:
            raise as_storage_error(error, self.path + "_seq") from error
        return _Written(receipt, chain)

    def _advance(self, written: _Written) -> None:
        assert self._size_bytes is not None
        self._size_bytes += RECEIPTS.size_bytes
        self._chain = written.chain
        self._reach = written.receipt.end

    def _note(self, producers: Producers, receipt: Receipt) -> None:
        """Know of a batch that is stored."""
        if receipt.kind in {ReceiptKind.PUT, ReceiptKind.EARLIER}:
            producers.add(receipt.put, receipt.pointer)
        if receipt.place:
            self._place = receipt.place, receipt.pointer

    def _opened(self) -> OpenFile:
        if self._file is None:
            with reading(self.path + "_seq"):
                self._file = self._files.open(self.path + "_seq", "r+")
        return self._file

    def _loaded(self) -> Producers:
        if self._producers is None:
            self._producers = self._load()
        return self._producers

    def _load(self) -> Producers:
        """Read the file, up to the size that counts."""
        with reading(self.path + "_seq"):
            found = read_receipts(self._files, self.path, self._store_id)
        producers = Producers()
        if found is None:
            _log.error("%s_seq is lost; what is put again may be stored again", self.path)
            self._size_bytes = self._size_bytes or FILE_HEADER_BYTES
            return producers
        limit_bytes = len(found.content) if self._size_bytes is None else self._size_bytes
        at = FILE_HEADER_BYTES
        self._chain, self._reach, self._place = found.seed, 0, (0, 0)
        for receipt, chain, is_chained in found.receipts:
            if at >= limit_bytes:
                break
            at += RECEIPTS.size_bytes
            self._chain = chain
            if not is_chained:
                _log.error("%s_seq is damaged at offset %d", self.path, at - RECEIPTS.size_bytes)
                continue
            self._reach = receipt.end
            self._note(producers, receipt)
        self._size_bytes = at
        return producers
