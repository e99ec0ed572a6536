import tracemalloc
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import FrameTooLarge, RemoteProtocolError
from poe.protocol import FRAME_MAX, FrameReader, frame_header
from poe.protocol.frame_memory import FrameMemory
from tests.protocol.streams import feed, new_reader, scramble

SCRATCH_SIZE = 64


def frame(message_type: int, body: bytes) -> bytes:
    return pack(">IH", 2 + len(body), message_type) + body


def take(reader: FrameReader) -> tuple[int, memoryview]:
    """The next frame, which must be there."""
    frame = reader.next_frame()
    assert frame is not None
    return frame


def taken(reader: FrameReader) -> tuple[int, bytes]:
    message_type, body = take(reader)
    return message_type, bytes(body)


def receive(reader: FrameReader, data: bytes) -> None:
    reader.buffer()[: len(data)] = data
    reader.received(len(data))


def test_header_is_length_and_type():
    assert frame_header(2, 10) == b"\x00\x00\x00\x0c\x00\x02"


@pytest.mark.parametrize("piece_size", [1, 2, 3, 5, 6, 7, 63, 64, 65, 10_000])
@pytest.mark.parametrize(
    "bodies",
    [
        [b""],
        [b"x"],
        [b"", b"", b""],
        [b"a" * 57, b"b" * 58, b"c" * 59],
        [b"fits" * 5, b"large" * 100, b"fits" * 5],
        [b"large" * 100, b"larger" * 200],
        [b"x" * 1000, b"", b"y" * 1000],
    ],
)
def test_frames_come_out_as_they_went_in(bodies, piece_size):
    frames = [(number, body) for number, body in enumerate(bodies)]
    data = b"".join(frame(*each) for each in frames)
    reader, scratch = new_reader()
    assert list(feed(reader, data, piece_size, scratch)) == frames
    assert reader.pending_bytes == 0


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=12),
    piece_size=st.integers(1, 400),
    scratch_size=st.integers(8, 200),
)
def test_no_cutting_of_the_stream_changes_the_frames(bodies, piece_size, scratch_size):
    data = b"".join(frame(7, body) for body in bodies)
    reader, scratch = new_reader(scratch_size)
    received = feed(reader, data, piece_size, scratch)
    assert list(received) == [(7, body) for body in bodies]


def test_whole_frame_is_a_view_into_the_scratch():
    reader, scratch = new_reader()
    receive(reader, frame(1, b"body"))
    _, body = take(reader)
    assert body.obj is scratch.obj


def test_bytes_after_a_frame_wait_for_the_rest_of_theirs():
    reader, scratch = new_reader()
    first, second = frame(1, b"one"), frame(2, b"two")
    receive(reader, first + second[:5])
    assert taken(reader) == (1, b"one")
    assert reader.next_frame() is None
    assert reader.pending_bytes == 5
    scramble(scratch)
    receive(reader, second[5:])
    assert taken(reader) == (2, b"two")
    assert reader.next_frame() is None


def test_kept_frames_survive_the_next_user_of_the_scratch():
    reader, scratch = new_reader()
    receive(reader, frame(1, b"one") + frame(2, b"two") + frame(3, b"three") + b"\x00\x00")
    assert taken(reader) == (1, b"one")
    reader.release()
    scramble(scratch)
    assert taken(reader) == (2, b"two")
    assert taken(reader) == (3, b"three")
    assert reader.next_frame() is None
    scramble(scratch)
    receive(reader, frame(4, b"four")[2:])
    assert taken(reader) == (4, b"four")


def test_giving_the_scratch_back_does_not_disturb_a_large_frame():
    reader, scratch = new_reader()
    large = frame(1, b"x" * 300)
    receive(reader, large[:64])
    assert reader.next_frame() is None
    reader.release()
    scramble(scratch)
    rest = large[64:]
    assert list(feed(reader, rest, 50, scratch)) == [(1, b"x" * 300)]


def test_large_frame_is_received_into_memory_of_its_own():
    reader, scratch = new_reader()
    receive(reader, frame(1, b"x" * 100)[:SCRATCH_SIZE])
    assert reader.next_frame() is None
    assert reader.buffer().obj is not scratch.obj
    assert len(reader.buffer()) == 106 - SCRATCH_SIZE


def test_large_frame_leaves_nothing_behind():
    reader, scratch = new_reader()
    (large,) = feed(reader, frame(1, b"x" * 500), 50, scratch)
    assert large == (1, b"x" * 500)
    assert reader.buffer() is scratch


def test_receiving_without_taking_the_frames_is_noticed():
    reader, _ = new_reader()
    receive(reader, b"\x00" * SCRATCH_SIZE)
    with pytest.raises(AssertionError, match="take the frames"):
        reader.buffer()


@pytest.mark.parametrize("length", [0, 1])
def test_frame_without_a_type_is_refused_as_soon_as_its_length_is_known(length):
    reader, _ = new_reader()
    receive(reader, pack(">I", length))
    with pytest.raises(RemoteProtocolError, match=f"frame of {length} bytes has no type"):
        reader.next_frame()


@pytest.mark.parametrize("length", [1001, FRAME_MAX, 0xFFFFFFFF])
@pytest.mark.parametrize("more", [b"", b"\x00", b"\x00\x02", b"\x00\x02" + b"x" * 50])
def test_frame_beyond_the_limit_is_refused_as_soon_as_its_length_is_known(length, more):
    reader, _ = new_reader(frame_max=1000)
    receive(reader, pack(">I", length) + more)
    for _ in range(2):
        with pytest.raises(FrameTooLarge) as caught:
            reader.next_frame()
        assert (caught.value.size_bytes, caught.value.frame_max) == (length, 1000)


def test_frame_of_exactly_the_limit_is_taken():
    body = b"x" * 998
    assert list(feed(new_reader(frame_max=1000)[0], frame(1, body), 64)) == [(1, body)]


def test_frames_before_a_bad_one_are_handed_out():
    reader, _ = new_reader()
    receive(reader, frame(1, b"good") + pack(">I", 1))
    assert taken(reader) == (1, b"good")
    with pytest.raises(RemoteProtocolError):
        reader.next_frame()


def test_memory_follows_what_was_received_not_what_was_announced():
    reader, _ = new_reader(64 * 1024)
    tracemalloc.start()
    try:
        receive(reader, pack(">IH", FRAME_MAX, 2) + b"x" * 4)
        assert reader.next_frame() is None
        after_ten_bytes, _ = tracemalloc.get_traced_memory()
        received = 10
        while received < 1_000_000:
            room = reader.buffer()
            size = min(len(room), 64 * 1024)
            reader.received(size)
            received += size
            assert reader.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_ten_bytes < 500
    # While it grows, the old memory and twice of it exist for a moment.
    assert peak < 3 * received + 10_000


def test_idle_reader_is_small():
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        memory = FrameMemory()
        readers = [FrameReader(memory=memory) for _ in range(1000)]
        for reader in readers:
            receive(reader, frame(1, b"x" * 10_000) + b"\x00\x00")
            assert reader.next_frame() is not None
            assert reader.next_frame() is None
            reader.release()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before - memory.scratch_bytes) / len(readers) < 600


def test_what_was_kept_is_let_go_of_once_it_was_handed_out():
    """A burst that was served in turns from memory of its own, with the begin of a frame behind."""
    reader, _ = new_reader(20_000)
    frames = (frame_header(0, 10) + b"x" * 10) * 1000
    received = frames + frames[:5]
    room = reader.buffer()
    room[: len(received)] = received
    reader.received(len(received))
    assert reader.next_frame() is not None
    reader.release()  # the turn is over
    while reader.next_frame() is not None:
        pass
    assert (reader.pending_bytes, reader.held_bytes) == (5, 5)
