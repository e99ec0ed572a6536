"""The reader of a slab log: gives message after message from an address on, also while one writes.

Strategy: a window of good records is read, checked and taken apart at once, and `read` hands its
messages out one by one. Where the reader stands follows from how many are left.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint
from pathlib import Path

from poe.storage.failure import reading
from poe.storage.files import Files
from poe.storage.slab_log.errors import CorruptSlabRecord, EndOfLog, OutOfBounds
from poe.storage.slab_log.record import Window
from poe.storage.slab_log.slab_name import find_slabs, no_log, open_log, warn_of_strays
from poe.storage.slab_log.slab_reader import SlabReader


class Reader:
    """A place in a log; any number of readers share nothing with each other or with the writer.

    It never gives a part of a record, nor what its writer has not flushed. At an error it stays
    where it is. One thread at a time may call it; its files close when nobody refers to it.

    Source: queuefka.go, Reader.
    """

    __slots__ = ("_addresses", "_files", "_message_max", "_slab", "_window")

    def __init__(
        self,
        path: str | Path | Files,
        address: int | None = None,
        *,
        message_max: int = 16 * 1024 * 1024,
    ) -> None:
        """Open a log at an address.

        Args:
            path: its folder, or a file layer in its place.
            address: where a record begins, or the end of the log; None: the oldest record left.
            message_max: in slabs without a side file, a longer message is taken for damage.

        Raises:
            OptionError, OutOfBounds, ReadFailed: as `seek`.
        """
        self._files = open_log(path)
        self._message_max = message_max
        self._window: Iterator[bytes] = iter(())
        with reading(self._files.base):
            warn_of_strays(self._files)
        self.seek(address)

    @property
    def address(self) -> int:
        """Where the next read goes on; the address of the message that it will give."""
        return self._addresses[-1 - length_hint(self._window)]

    def seek(self, address: int | None) -> None:
        """Go to an address: where a record begins, or the end of the log; None: the oldest record.

        Raises:
            OptionError: there is no log.
            OutOfBounds: the address lies before or behind the log.
            ReadFailed: the log cannot be read.
        """
        with reading(self._files.base):
            slab, starts = self._slab_of(address, None)
            if address is None:
                address = starts[0]
            if slab.start == starts[-1] and address > slab.end():
                raise OutOfBounds(self._files.base, address, starts[0], slab.end())
        window = self._window
        self._slab, self._window = slab, iter(())
        self._addresses: Sequence[int] = (address,)
        """Of the messages in the window, and the address behind."""
        for _ in window:
            pass  # an iteration that goes on has it, too, and would give what is left of it

    def read(self) -> bytes:
        """Read the next message.

        Raises:
            EndOfLog: there is none yet.
            CorruptSlabRecord: it is damaged; seek to the `next_address` of the error to go on.
            OutOfBounds: retention has removed it.
            ReadFailed: the log cannot be read.
        """
        message = next(self._window, None)
        if message is None:
            if self._load() is None:
                raise EndOfLog(self._files.base, self.address)
            message = next(self._window)
        return message

    def read_many(self, limit: int | None = None) -> list[bytes]:
        """Read the next messages: one or more, as many as are checked at once; none at the end.

        Args:
            limit: messages at most.

        Raises:
            CorruptSlabRecord, OutOfBounds, ReadFailed: as `read`.
        """
        messages = list(islice(self._window, limit))
        if messages or limit == 0:
            return messages
        found = self._load()
        if found is None or limit is not None:
            return list(islice(self._window, limit))
        self._window = iter(())
        return found.messages

    def __iter__(self) -> Iterator[bytes]:
        """Read up to the end of the log; iterate again, and it goes on with what came since.

        Raises:
            CorruptSlabRecord, OutOfBounds, ReadFailed: as `read`.
        """
        yield from self._window
        while self._load() is not None:
            yield from self._window

    def _load(self) -> Window | None:
        """Fill the window, which is empty; None where there is nothing to read yet."""
        address = self.address
        with reading(self._files.base):
            found = self._slab.load(address) or self._load_behind(address)
        if found is not None:
            self._addresses, self._window = found.addresses, iter(found.messages)
        return found

    def _load_behind(self, address: int) -> Window | None:
        """Read where the slab at hand has nothing more, which may have changed meanwhile."""
        # Slabs are listed before the last look into this one: when the next one is there, this one
        # is complete.
        self._slab, starts = self._slab_of(address, self._slab)
        found = self._slab.load(address)
        if found is None and starts[-1] > address:
            next_start = starts[bisect_right(starts, address)]
            raise CorruptSlabRecord(self._files.base, address, next_start)
        return found

    def _slab_of(
        self, address: int | None, at_hand: SlabReader | None
    ) -> tuple[SlabReader, list[int]]:
        """Open the slab that holds an address, the oldest one for None, and list all slabs."""
        while True:
            starts = find_slabs(self._files)
            if not starts:
                raise no_log(self._files.base)
            if address is not None and address < starts[0]:
                newest = SlabReader.open(self._files, starts[-1], self._message_max)
                raise OutOfBounds(self._files.base, address, starts[0], newest.end())
            at = 0 if address is None else bisect_right(starts, address) - 1
            start, next_start = starts[at], starts[at + 1] if at + 1 < len(starts) else None
            is_at_hand = at_hand is not None and at_hand.start == start and at_hand.is_summed()
            if at_hand is not None and is_at_hand and at_hand.end_at(next_start):
                return at_hand, starts
            # Retention may be faster; then the list is shorter the next time.
            with contextlib.suppress(FileNotFoundError):
                slab = SlabReader.open(self._files, start, self._message_max)
                slab.end_at(next_start)
                return slab, starts
