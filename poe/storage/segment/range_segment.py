"""Reading a segment by ranges of pointers, with the entries of what is read."""

from poe.errors import CorruptRecord
from poe.storage.files import FileSlice, IndexedSlice
from poe.storage.segment.readable_segment import ReadableSegment, Visible


class RangeSegment(ReadableSegment):
    """A segment that is read up to a pointer; whatever lies behind that is not looked at."""

    __slots__ = ()

    def read_range(
        self, pointer: int, last: int, limit: int, bytes_max: int, visible: Visible | None = None
    ) -> IndexedSlice | None:
        """Find the records that follow `pointer` up to `last`, as `read` does, with their entries.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        visible = self._visible_up_to(pointer, last, visible)
        found = None if visible is None else self.read(pointer, limit, bytes_max, visible)
        if found is None:
            return None
        assert self._reader is not None
        stop = found.number + found.record_count
        return IndexedSlice(self._reader.index.entries(found.number, stop), found)

    def span(
        self, pointer: int, last: int, limit: int, bytes_max: int, visible: Visible | None = None
    ) -> FileSlice | None:
        """Find records as `read_range` does, by the index alone: the data is not compared.

        Raises:
            PointerOutOfRange, ReadFailed, CorruptRecord: as `read`.
        """
        visible = self._visible_up_to(pointer, last, visible)
        if visible is None or limit <= 0:
            return None
        assert self._reader is not None
        return self._reader.find(pointer, limit, bytes_max, *visible)

    def _visible_up_to(self, pointer: int, last: int, visible: Visible | None) -> Visible | None:
        """Wake to read behind `pointer`, and tell what may be found up to `last`.

        None, and no waking, where nothing follows. The index is compared with its sums first.
        """
        if pointer >= last or self._reader_behind(pointer) is None:
            return None
        if self._verification is not None:
            try:
                self._verification.open()
            except CorruptRecord:
                self._mend()
        reader = self._reader or self._wake()
        extent = visible or self._flushed_extent()
        return extent if last >= self.last_pointer else reader.extent_up_to(last, *extent)
