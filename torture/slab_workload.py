"""A slab log at work: messages that are made up beforehand, written by a victim, and read back.

Each message is a put of its own, whose pointer is its address; so the one judge serves here, too.
It is acknowledged once it was flushed, or synced.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from poe.errors import OptionError
from poe.storage import Files
from poe.storage.slab_log import CorruptSlabRecord, EndOfLog, Reader, Writer
from torture.checker import Journal, Put, Record, Sender
from torture.workload import Acked

LOG = b"log"
Damage = tuple[int, int]
"""The address of a record that cannot be read, and where it goes on behind."""

_SLAB_BYTES = 1000
_BUFFER_BYTES = 300


def make_puts(random: Random, journal: Journal, count: int, length_max: int = 60) -> list[Put]:
    """Make up messages; they are noted."""
    sender = Sender(journal, random)
    return [sender.begin(LOG, count_max=1, length_max=length_max) for _ in range(count)]


def write_puts(
    files: Path | Files,
    puts: Sequence[Put],
    acked: Acked,
    *,
    is_synced: bool = False,
    slab_bytes: int = _SLAB_BYTES,
) -> Writer:
    """Open a log, and write messages into small slabs, 1 to 7 a flush. The writer is open then."""
    writer = Writer(files, slab_bytes, buffer_bytes_max=_BUFFER_BYTES)
    save: Callable[[], None] = writer.sync if is_synced else writer.flush
    waiting: list[tuple[Put, int]] = []
    for put in puts:
        waiting.append((put, writer.write(put.messages[0])))
        if len(waiting) > put.number % 7 or put is puts[-1]:
            save()
            for each in waiting:
                acked(*each)
            waiting.clear()
    return writer


def note_pointer(put: Put, pointer: int) -> None:
    """Note an acknowledgement, where the writer is no other process."""
    put.pointer = pointer


def read_log(files: Path | Files) -> tuple[list[Record], list[Damage]]:
    """Read all that can be read, and where damage was told on the way."""
    records: list[Record] = []
    damages: list[Damage] = []
    try:
        reader = Reader(files)
    except OptionError:
        return [], []  # not even a first slab was made
    while True:
        address = reader.address
        try:
            records.append((address, reader.read()))
        except EndOfLog:
            return records, damages
        except CorruptSlabRecord as damage:
            # Not the error itself, whose traceback would keep the files open.
            damages.append(_forwards(address, damage.next_address))
            reader.seek(damage.next_address)


def _forwards(address: int, next_address: int) -> Damage:
    if next_address <= address:
        raise RuntimeError(f"behind the damage at {address} it goes on at {next_address}")
    return address, next_address
