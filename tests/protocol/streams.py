"""Feeds a `FrameReader` as a socket would, in pieces of a chosen size."""

from collections.abc import Iterator

from poe.protocol import FrameReader, IndexedRecords, Record

Frame = tuple[int, bytes]


def feed(reader: FrameReader, data: bytes, scratch: memoryview, piece_size: int) -> Iterator[Frame]:
    """Receive `data` in pieces and yield a copy of each frame as soon as it is whole."""
    rest = memoryview(data)
    while rest:
        room = reader.buffer(scratch)
        size = min(len(room), len(rest), piece_size)
        room[:size] = rest[:size]
        rest = rest[size:]
        reader.received(size)
        while (frame := reader.next_frame()) is not None:
            message_type, body = frame
            yield message_type, bytes(body)
        scramble(scratch)


def scramble(scratch: memoryview) -> None:
    """Overwrite the scratch, as the next connection would."""
    scratch[:] = b"\xa5" * len(scratch)


def whole_frame(data: bytes) -> Frame:
    """Return the one frame that fills `data`, received at once."""
    (frame,) = feed(FrameReader(), data, memoryview(bytearray(len(data) + 1)), len(data))
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
