"""Feeds a `FrameReader` as a socket would, in pieces of a chosen size."""

from collections.abc import Iterator

from poe.protocol import FRAME_MAX, FrameReader, IndexedRecords, Record
from poe.protocol.frame_memory import FrameMemory

Frame = tuple[int, bytes]


def new_reader(
    scratch_bytes: int = 64, frame_max: int = FRAME_MAX
) -> tuple[FrameReader, memoryview]:
    """Return a reader, and the scratch that it is going to be lent."""
    memory = FrameMemory(scratch_bytes=scratch_bytes)
    scratch = memory.new_scratch()
    memory.scratches.append(scratch)
    return FrameReader(frame_max, memory), scratch


def feed(
    reader: FrameReader, data: bytes, piece_size: int, scratch: memoryview | None = None
) -> Iterator[Frame]:
    """Receive `data` in pieces and yield a copy of each frame as soon as it is whole.

    Between two pieces the scratch, if it is given, is overwritten.
    """
    rest = memoryview(data)
    while rest:
        room = reader.buffer()
        size = min(len(room), len(rest), piece_size)
        room[:size] = rest[:size]
        rest = rest[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            message_type, body = frame
            yield message_type, bytes(body)
        if scratch is not None:
            scramble(scratch)


def scramble(scratch: memoryview) -> None:
    """Overwrite the scratch, as the next connection would."""
    scratch[:] = b"\xa5" * len(scratch)


def whole_frame(data: bytes) -> Frame:
    """Return the one frame that fills `data`, received at once."""
    (frame,) = feed(new_reader(len(data) + 1)[0], data, len(data))
    return frame


def body_of(data: bytes) -> memoryview:
    """Return the body of the one frame that fills `data`."""
    return memoryview(whole_frame(data)[1])


def records_of(found: IndexedRecords) -> list[Record]:
    """Return (pointer, message) of each of the records, and check what is promised of them."""
    starts = found.starts.tolist()
    assert starts[0] == 0
    assert starts[-1] == len(found.data)
    assert len(found) == len(found.pointers) == len(starts) - 1
    return [
        (pointer, bytes(found.data[start + 11 : end]))
        for pointer, start, end in zip(
            found.pointers.tolist(), starts[:-1], starts[1:], strict=True
        )
    ]
