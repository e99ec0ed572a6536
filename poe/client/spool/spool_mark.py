"""The file that tells how far the messages of a spool were delivered or dropped.

Strategy: two slots in turns, each written in place with a hash, so that whatever a crash leaves of
one, the other is whole. It may tell too little, and then some is delivered again; never too much.

Layout (big endian), slot n at offset 512 n, so that no sector of a disk holds both:
    magic    8 bytes  "poe-spol"
    version  u32      1
    unused   4 bytes
    number   u64      of the writes; the greater one counts, and says which slot is next
    address  u64      in the slab log: everything before it is done with
    hash     u64      xxh3-64 of the bytes before
"""

import logging
import struct
from typing import Final

from poe.errors import FormatNotSupported
from poe.storage import Files
from poe.storage.failure import reading, writing
from poe.storage.formats.hashed import HASH_BYTES, seal
from poe.storage.replacement import replace_file

MARK_FILE: Final = "spool.mark"
_SLOT = struct.Struct(">8sI4xQQ")
_SLOT_BYTES = _SLOT.size + HASH_BYTES
_OFFSETS = (0, 512)
_MAGIC = b"poe-spol"
_VERSION = 1
_NUMBER_END = 1 << 63
"""So many times nobody writes it: what tells so is none of ours, and leaves no room for more."""

_log = logging.getLogger(__name__)


class SpoolMark:
    """The mark of a spool whose lock is held; one thread at a time may call it."""

    __slots__ = ("_base", "_file", "_is_failing", "_number", "address")

    def __init__(self, files: Files, lowest: int, highest: int) -> None:
        """Read the mark, or make it, of a log that holds these addresses.

        Raises:
            FormatNotSupported: a newer version has written it.
            ReadFailed: it cannot be read.
            StorageFull: no room for it.
            WriteFailed: it cannot be written for another reason.
        """
        self._base = files.base
        self._is_failing = False
        with reading(files.base):
            is_new = files.size(MARK_FILE) is None
            found = None if is_new else _read(files)
        if found is None and not is_new:
            _log.error("%s in %s is damaged: what was delivered may be so again",
                       MARK_FILE, files.base)  # fmt: skip
        self._number, address = found or (0, lowest)
        # A power cut may have taken the end of the log, and the addresses there are given anew:
        # what is written to them is not done with.
        self.address = min(max(address, lowest), highest)
        with writing(files.base):
            if found is None:
                replace_file(
                    files, MARK_FILE, self._slot().ljust(sum(_OFFSETS) + _SLOT_BYTES, b"\0")
                )
                files.sync_folder("")
            self._file = files.open(MARK_FILE, "r+")
            if found is not None and self.address < address:
                self._write()
                self._file.sync()

    def move(self, address: int) -> None:
        """Note that everything before an address is done with; should that fail, it is logged."""
        self.address = address
        try:
            self._write()
        except OSError as error:
            if not self._is_failing:
                _log.error("%s in %s cannot be written (%s): after a crash some is delivered again",
                           MARK_FILE, self._base, str(error))  # fmt: skip
            self._is_failing = True
        else:
            self._is_failing = False

    def _write(self) -> None:
        self._number += 1
        self._file.write_at(self._slot(), _OFFSETS[self._number % 2])

    def _slot(self) -> bytes:
        return seal(_SLOT.pack(_MAGIC, _VERSION, self._number, self.address))


def _read(files: Files) -> tuple[int, int] | None:
    """Return the number and the address of the newer slot; None where none is whole.

    Raises:
        FormatNotSupported: a newer version has written it.
        OSError: as reported by the file layer.
    """
    file = files.open(MARK_FILE, "r")
    found = []
    for offset in _OFFSETS:
        slot = file.read_at(_SLOT_BYTES, offset)
        content = slot[: _SLOT.size]
        if slot == seal(content):
            magic, version, number, address = _SLOT.unpack(content)
            if (magic, version) != (_MAGIC, _VERSION):
                raise FormatNotSupported(files.base, f"version {version} of {MARK_FILE}")
            if number < _NUMBER_END:
                found.append((number, address))
    return max(found, default=None)
