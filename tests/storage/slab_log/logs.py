"""What the tests of the slab log share: logs of distinct messages, and ways to read all of one."""

import struct
from pathlib import Path

from xxhash import xxh32_intdigest

from poe.storage.slab_log import CorruptSlabRecord, EndOfLog, Reader, Writer


def message(number):
    """A message unlike all others, of a size of its own."""
    return b"%d:" % number + bytes([number % 251]) * (number * 7 % 23)


def messages(count, first=0):
    return [message(number) for number in range(first, first + count)]


def write_log(path, batches, **options):
    """Write a log, a flush per batch, and return all addresses, that of the end the last."""
    with Writer(path, **options) as writer:
        addresses = []
        for batch in batches:
            addresses += [writer.write(each) for each in batch]
            writer.flush()
        return [*addresses, writer.address]


def read_all(path, address=None):
    """Read a log in all ways, and check that they agree."""
    reader = Reader(path, address)
    found = list(reader)
    end = reader.address
    reader.seek(address)
    in_batches = []
    while some := reader.read_many(7):
        assert len(some) <= 7
        in_batches += some
    assert (in_batches, reader.address) == (found, end)
    reader.seek(address)
    one_by_one = []
    while (one := read_or_none(reader)) is not None:
        one_by_one.append(one)
    assert (one_by_one, reader.address) == (found, end)
    return found


def read_or_none(reader):
    try:
        return reader.read()
    except EndOfLog:
        return None


def read_past_damage(path):
    """Read what can be read, and where it could not: (messages, [(address, next address)])."""
    reader = Reader(path)
    found, damages = [], []
    while True:
        try:
            for each in reader:  # `list` would forget what came before the damage
                found.append(each)  # noqa: PERF402
        except CorruptSlabRecord as damage:
            damages.append((damage.address, damage.next_address))
            reader.seek(damage.next_address)
        else:
            return found, damages


def slab_of(path: Path, start=0) -> Path:
    return path / f"{start:020}.slab"


def sum_of(path: Path, start=0) -> Path:
    return path / f"{start:020}.sum"


def slabs_in(path: Path) -> list[int]:
    return sorted(int(slab.stem) for slab in path.glob("*.slab"))


def record(content):
    """A record as the original writes it, byte by byte."""
    return struct.pack("<II", len(content), xxh32_intdigest(content)) + content


def write_foreign(path: Path, contents, start=0):
    """Write a slab as the original does: without a side file."""
    path.mkdir(exist_ok=True)
    slab_of(path, start).write_bytes(b"".join(map(record, contents)))


def flip(path: Path, at, bits=0x55):
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)
