"""Turn the batches of a writer into entries of its sum file, next to nothing a batch.

Strategy: one hash object takes in the data of each batch. When it has 64 KiB, its digest is noted
(a cut); entries are made of the cuts when the index is flushed, whose bytes they need, too. So sums
trail the data, and are written with the index, many at once.
"""

from xxhash import xxh3_64, xxh3_64_intdigest

from poe.record import ENTRY_BYTES
from poe.storage.files import OpenFile
from poe.storage.formats.sum_file import SUM_DATA_BYTES, SUMS, Flag, SumEntry, SumState


class SumWriter:
    """The open sum file of a writer; one thread at a time may call it.

    `update` takes in the bytes of a batch that was accepted; then, once `cut_at` is reached, `cut`
    is to be called. A failing `write` loses nothing, the next one tries again. From `begin_sync` to
    the end of the sync nothing is to be written: only so can what comes next say that all before it
    is durable.
    """

    __slots__ = (
        "_counted",
        "_cuts",
        "_digest",
        "_file",
        "_pending",
        "_synced_bytes",
        "_to_be_synced",
        "cut_at",
        "is_syncing",
        "state",
        "update",
    )

    def __init__(self, file: OpenFile, state: SumState, size_bytes: int, count: int) -> None:
        """Go on behind `size_bytes` of data with `count` records, all of them covered."""
        self.state = state
        self._file = file
        self.is_syncing = False
        # Sizes of the sum file: a sync has covered so much of it, with its data.
        self._synced_bytes = self._to_be_synced = 0
        self._pending: list[SumEntry] = []
        self._cuts: list[tuple[int, int, int, int]] = []
        self._begin(size_bytes, count)

    def cut(self, size_bytes: int, count: int, last_pointer: int) -> None:
        """Let what was taken in be an entry; it ends at `size_bytes` of data, with `count`."""
        if count > self._counted:
            self._cuts.append((size_bytes, last_pointer, count - self._counted, self._digest()))
            self._begin(size_bytes, count)

    def close_entries(self, index_bytes: bytes | bytearray) -> None:
        """Make entries of all cuts; `index_bytes` are the index entries of exactly their records.

        They wait for `write`.
        """
        at = 0
        view = memoryview(index_bytes)
        for end, last_pointer, count, data_hash in self._cuts:
            index_end = at + count * ENTRY_BYTES
            index_hash = xxh3_64_intdigest(view[at:index_end])
            self._pending.append(SumEntry(end, last_pointer, count, 0, data_hash, index_hash))
            at = index_end
        self._cuts.clear()

    def write(self) -> None:
        """Write the entries that wait.

        Raises:
            OSError: as reported by the file layer; they go on waiting.
        """
        if self._pending:
            if self._synced_bytes == self.state.size_bytes:
                first = self._pending[0]
                self._pending[0] = first._replace(flags=first.flags | Flag.EARLIER_SYNCED)
            content, chain = SUMS.encode(self._pending, self.state.chain)
            self._file.write_at(content, self.state.size_bytes)
            size_bytes = self.state.size_bytes + len(content)
            self.state = SumState(size_bytes, chain, self._pending[-1].flags)
            self._pending.clear()

    def begin_sync(self) -> None:
        """Say that data and sums, which are all written, are about to be synced."""
        self.is_syncing = True
        self._to_be_synced = self.state.size_bytes

    def sync(self) -> None:
        """Make the entries durable, in any thread; their data must be so already.

        Raises:
            OSError: as reported by the file layer.
        """
        self._file.sync()

    def end_sync(self) -> None:
        """Say that the sync is over, be it of this file or of all."""
        self.is_syncing = False

    def note_synced(self) -> None:
        """Have the next entry say that what the last sync covered is durable, as all before it."""
        self._synced_bytes = self._to_be_synced

    def truncate(self) -> None:
        """Cut off what lies behind the entries that count: of a failed write, of what is given up.

        Raises:
            OSError: as reported by the file layer.
        """
        if self._file.size() != self.state.size_bytes:
            self._file.truncate(self.state.size_bytes)

    def _begin(self, size_bytes: int, count: int) -> None:
        hash_ = xxh3_64()
        self.update = hash_.update
        self._digest = hash_.intdigest
        self._counted = count
        self.cut_at = size_bytes + SUM_DATA_BYTES
