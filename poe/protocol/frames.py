"""Cut a stream of received bytes into frames, and make the header of a frame.

It never sees a socket: the caller receives into the memory that `FrameReader.buffer` names and says
how much arrived. In the usual case whole frames are cut out of the caller's scratch buffer, which
all connections share, so that nothing is allocated and nothing copied. Only the bytes of an
unfinished frame are kept between two receives.

Wire (big-endian):
    length  u32   bytes that follow: 2 + len(body)
    type    u16   see `poe.protocol.messages`
    body    rest

Source: poe_protocol.erl; `{packet, 4}` of gen_tcp, which accepted any length.
"""

from struct import Struct

from poe.errors import FrameTooLarge, RemoteProtocolError
from poe.protocol.frame_memory import FrameMemory

FRAME_MAX = 64 * 1024 * 1024
SCRATCH_SIZE = 128 * 1024
LENGTH_SIZE = 4
TYPE_SIZE = 2
HEADER_SIZE = LENGTH_SIZE + TYPE_SIZE

_SHOWN_BYTES = 40

_HEADER = Struct(">IH")
_unpack_header = _HEADER.unpack_from
_EMPTY = memoryview(b"")


def frame_header(message_type: int, body_size: int) -> bytes:
    """Return the 6 bytes that announce a body of `body_size` bytes."""
    return _HEADER.pack(TYPE_SIZE + body_size, message_type)


class FrameReader:
    """The unread bytes of one connection; not thread-safe.

    Each round trip of the caller is

        view = reader.buffer(scratch)
        reader.received(sock.recv_into(view))
        while (frame := reader.next_frame()) is not None:
            message_type, body = frame

    A `body` is a view into the scratch: use it or copy it before anything else is received into
    that scratch, by this connection or another one. When `next_frame` has returned None, all that
    must survive is in memory of the reader's own; a caller that stops before calls `keep`.

    Invariants:
        start <= end <= len(view)
        length of a frame <= frame_max, checked as soon as its 4 bytes are there
        memory held <= 2 x bytes received of the unfinished frame, whatever length it announces
        no memory is held while no frame is unfinished
    """

    __slots__ = ("_end", "_frame_max", "_growing", "_memory", "_scratch_size", "_start", "_view")

    def __init__(self, frame_max: int = FRAME_MAX, memory: FrameMemory | None = None) -> None:
        """Begin with nothing; readers of one thread may share `memory` for large frames."""
        self._frame_max = frame_max
        self._memory = memory or FrameMemory(blocks_max=1)
        self._view = _EMPTY
        self._start = 0
        self._end = 0
        self._scratch_size = 0
        self._growing = False
        """True while `_view` is own memory that the rest of a large frame is received into."""

    @property
    def pending_bytes(self) -> int:
        """Bytes received but not handed out; not 0 at the end of a stream: it was cut short."""
        return self._end - self._start

    @property
    def is_growing(self) -> bool:
        """Whether the frame at hand lies in own memory, not in the scratch."""
        return self._growing

    @property
    def held_bytes(self) -> int:
        """Bytes of own memory, after `next_frame` has returned None or after `keep`."""
        return len(self._view)

    def buffer(self, scratch: memoryview) -> memoryview:
        """Return the memory to receive into: the scratch, or the reader's own for a large frame.

        The start of the scratch is overwritten with the kept bytes of an unfinished frame.

        Args:
            scratch: writable memory of the same size at each call, which callers may share.
        """
        kept_size = self._end - self._start
        if not kept_size:
            self._start_over(scratch)
            return scratch
        if self._growing:
            room = self._view[self._end :]
        else:
            scratch[:kept_size] = self._view[self._start : self._end]
            self._start_over(scratch)
            self._end = kept_size
            room = scratch[kept_size:]
        # Receiving into no memory returns 0 bytes, which would look like the end of the stream.
        assert room, "take the frames before receiving more"
        return room

    def received(self, size: int) -> None:
        """Take note that `size` bytes were received into what `buffer` returned."""
        self._end += size

    def next_frame(self) -> tuple[int, memoryview] | None:
        """Return type and body of the next whole frame, or None when more must be received first.

        Raises:
            FrameTooLarge: the peer announces more than `frame_max` bytes.
            RemoteProtocolError: the peer announces a frame without a type.
                After either error the stream cannot be followed any more; each call repeats it.
        """
        start = self._start
        if self._end - start >= HEADER_SIZE:
            length, message_type = _unpack_header(self._view, start)
            frame_end = start + LENGTH_SIZE + length
            if frame_end <= self._end and TYPE_SIZE <= length <= self._frame_max:
                self._start = frame_end
                return message_type, self._view[start + HEADER_SIZE : frame_end]
        if self._end == start:
            self._view, self._start, self._end, self._growing = _EMPTY, 0, 0, False
        else:
            self._keep_unfinished()
        return None

    def explained(self, error: RemoteProtocolError, peer: str) -> RemoteProtocolError:
        """Return the error for a client whose server sends what is no frame: it shows the bytes.

        Any text is a frame of half a gigabyte or more, of a type that there is not.
        """
        unread = bytes(self._view[self._start : self._end][:_SHOWN_BYTES])
        is_frame = len(unread) >= HEADER_SIZE and unread[LENGTH_SIZE] == 0
        if not isinstance(error, FrameTooLarge) or error.size_bytes <= FRAME_MAX or is_frame:
            return error
        msg = (
            f"{peer} is no server of Poe: what it sends begins with {unread!r}, "
            f"which as a frame of {error.size_bytes} bytes is refused"
        )
        return RemoteProtocolError(msg)

    def keep(self) -> None:
        """Move unread bytes out of the scratch, so that others may receive into it.

        Needed only before `next_frame` has returned None, as when too many requests are under way;
        `next_frame` then goes on from the kept bytes.
        """
        if self._growing:
            return
        rest = self._view[self._start : self._end]
        self._end -= self._start
        self._start = 0
        self._view = memoryview(bytes(rest)) if rest else _EMPTY

    def _start_over(self, scratch: memoryview) -> None:
        self._view = scratch
        self._scratch_size = len(scratch)
        self._start = 0
        self._end = 0
        self._growing = False

    def _keep_unfinished(self) -> None:
        """Keep what is there of a frame, in memory in proportion to what was received of it."""
        received = self._end - self._start
        if received < LENGTH_SIZE:
            self._growing = False
            self.keep()
            return
        frame_size = self._checked_frame_size()
        if self._growing:
            if self._end == len(self._view):
                self._grow(min(frame_size, 2 * received))
        elif frame_size > self._scratch_size <= 2 * received:
            self._grow(min(frame_size, 2 * received))
        else:
            self.keep()

    def _checked_frame_size(self) -> int:
        # Checked before the body arrives: a peer that announces 4 GiB must not make us keep it.
        length = int.from_bytes(self._view[self._start : self._start + LENGTH_SIZE], "big")
        if length > self._frame_max:
            raise FrameTooLarge(length, self._frame_max)
        if length < TYPE_SIZE:
            msg = f"frame of {length} bytes has no type; send {TYPE_SIZE} bytes or more"
            raise RemoteProtocolError(msg)
        return LENGTH_SIZE + length

    def _grow(self, capacity: int) -> None:
        """Move the unread bytes into own memory of `capacity` bytes."""
        received = self._end - self._start
        if self._growing:
            self._view = self._memory.extend(self._view, capacity)
        else:
            view = self._memory.take(capacity)
            view[:received] = self._view[self._start : self._end]
            self._view = view
        self._start = 0
        self._end = received
        self._growing = True
