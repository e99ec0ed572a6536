"""Cut a stream of received bytes into frames, and make the header of a frame.

It knows no socket: it is given what receives into the memory that it names. In the usual case whole
frames are cut out of a scratch, which all connections share, so that nothing is allocated and
nothing copied. Only the bytes of an unfinished frame are kept between two receives.

Wire (big-endian):
    length  u32   bytes that follow: 2 + len(body)
    type    u16   see `poe.protocol.messages`
    body    rest

Source: poe_protocol.erl; `{packet, 4}` of gen_tcp, which accepted any length.
"""

from collections.abc import Callable
from struct import Struct

from poe.errors import FrameTooLarge, RemoteProtocolError
from poe.protocol.frame_memory import FrameMemory

FRAME_MAX = 64 * 1024 * 1024
LENGTH_SIZE = 4
TYPE_SIZE = 2
HEADER_SIZE = LENGTH_SIZE + TYPE_SIZE

POINTER_REQUEST, PUT_REQUEST, SEQUENCED_PUT_REQUEST = 0, 2, 4
RANGE_REQUEST, LEASE_REQUEST, QUEUE_PUT_REQUEST = 5, 7, 9
"""Types of the requests that are tuples: a tuple with names takes no class variables."""

_SHOWN_BYTES = 40

_HEADER = Struct(">IH")
_unpack_header = _HEADER.unpack_from
_EMPTY = memoryview(b"")


def frame_header(message_type: int, body_size: int) -> bytes:
    """Return the 6 bytes that announce a body of `body_size` bytes."""
    return _HEADER.pack(TYPE_SIZE + body_size, message_type)


def split_frame(frame: bytes) -> tuple[int, memoryview]:
    """Return type and body of a frame that is whole."""
    _, message_type = _unpack_header(frame)
    return message_type, memoryview(frame)[HEADER_SIZE:]


class FrameReader:
    """The unread bytes of one connection; not thread-safe.

    Each round trip of the caller is

        reader.receive(sock.recv_into)
        while (frame := reader.next_frame()) is not None:
            message_type, body = frame
        reader.release()

    A `body` is a view into the scratch: use it or copy it before the scratch is given back by
    `release`, or anything else is received. What is unread then is moved to memory of the reader's
    own. Who shares the memory with no other reader need not release it.

    Invariants:
        start + pending_bytes <= len(view)
        length of a frame <= frame_max, checked as soon as its 4 bytes are there
        memory held <= 2 x bytes received of the unfinished frame, whatever length it announces
        no memory is held while no frame is unfinished
    """

    __slots__ = (
        "_frame_max",
        "_growing",
        "_memory",
        "_scratch",
        "_start",
        "_view",
        "pending_bytes",
    )

    def __init__(self, frame_max: int = FRAME_MAX, memory: FrameMemory | None = None) -> None:
        """Begin with nothing; readers of one thread may share `memory`."""
        self._frame_max = frame_max
        self._memory = memory or FrameMemory()
        self._scratch: memoryview | None = None
        """What is lent to it."""
        self._view = _EMPTY
        self._start = 0
        self.pending_bytes = 0
        """Bytes received but not handed out; not 0 at the end of a stream: it was cut short."""
        self._growing = False
        """True from when `_view` is own memory, into which the rest of a large frame is received,
        until something is received behind that frame."""

    def limit(self, frame_max: int) -> None:
        """Take frames of so many bytes from the next one on."""
        self._frame_max = frame_max

    @property
    def is_in_scratch(self) -> bool:
        """Whether the frame that was just handed out lies in the scratch, not in own memory."""
        return self._scratch is not None and not self._growing

    @property
    def held_bytes(self) -> int:
        """Bytes of own memory, after `next_frame` has returned None or after `release`."""
        return len(self._view)

    def receive(
        self, receive_into: Callable[[memoryview], int], room_bytes: int | None = None
    ) -> int:
        """Receive once, and return how many bytes came; 0 at the end of the stream.

        Args:
            receive_into: such as a socket's `recv_into`; what it raises is raised.
            room_bytes: receive no more than that.
        """
        room = self.buffer()
        size = receive_into(room if room_bytes is None else room[:room_bytes])
        self.pending_bytes += size
        return size

    def buffer(self) -> memoryview:
        """Return the memory to receive into: the scratch, or the reader's own for a large frame.

        For a caller that is called by who receives, as asyncio does; others call `receive`. The
        start of the scratch is overwritten with the kept bytes of an unfinished frame.
        """
        kept_size = self.pending_bytes
        if kept_size and self._growing:
            room = self._view[kept_size:]  # it begins where the memory does
        else:
            scratch = self._scratch
            if scratch is None:
                free = self._memory.scratches
                scratch = free.pop() if free else self._memory.new_scratch()
            room = scratch
            self._growing = False
            if kept_size:
                scratch[:kept_size] = self._view[self._start : self._start + kept_size]
                room = scratch[kept_size:]
            self._view = self._scratch = scratch
            self._start = 0
        # Receiving into no memory returns 0 bytes, which would look like the end of the stream.
        assert room, "take the frames before receiving more"
        return room

    def received(self, size: int) -> None:
        """Note that `size` bytes were received into what `buffer` returned."""
        self.pending_bytes += size

    def next_frame(self) -> tuple[int, memoryview] | None:
        """Return type and body of the next whole frame, or None when more must be received first.

        Raises:
            FrameTooLarge: the peer announces more than `frame_max` bytes.
            RemoteProtocolError: the peer announces a frame without a type.
                After either error the stream cannot be followed any more; each call repeats it.
        """
        start, pending_bytes = self._start, self.pending_bytes
        if pending_bytes >= HEADER_SIZE:
            view = self._view
            length, message_type = _unpack_header(view, start)
            frame_size = LENGTH_SIZE + length
            if frame_size <= pending_bytes and TYPE_SIZE <= length <= self._frame_max:
                frame_end = start + frame_size
                if frame_size == pending_bytes:
                    self._view = _EMPTY
                    self._start = self.pending_bytes = 0
                else:
                    self._start = frame_end
                    self.pending_bytes = pending_bytes - frame_size
                return message_type, view[start + HEADER_SIZE : frame_end]
        return self._unfinished() if pending_bytes else None

    def explained(self, error: RemoteProtocolError, peer: str) -> RemoteProtocolError:
        """Return the error for a client whose server sends what is no frame: it shows the bytes.

        Any text is a frame of half a gigabyte or more, of a type that there is not.
        """
        unread = bytes(self._unread()[:_SHOWN_BYTES])
        is_frame = len(unread) >= HEADER_SIZE and unread[LENGTH_SIZE] == 0
        if not isinstance(error, FrameTooLarge) or error.size_bytes <= FRAME_MAX or is_frame:
            return error
        msg = (
            f"{peer} is no server of Poe: what it sends begins with {unread!r}, "
            f"which as a frame of {error.size_bytes} bytes is refused"
        )
        return RemoteProtocolError(msg)

    def release(self) -> None:
        """Give the scratch back, so that others may receive into it; `next_frame` goes on."""
        if self._scratch is not None:
            if self.pending_bytes:
                self._keep()
            else:
                self._view = _EMPTY
            self._memory.scratches.append(self._scratch)
            self._scratch = None

    def clear(self) -> None:
        """Forget what was received; a scratch is left to who may still look into it."""
        self._view = _EMPTY
        self._start = self.pending_bytes = 0
        self._growing = False
        self._scratch = None

    def _keep(self) -> None:
        """Move unread bytes out of the scratch."""
        is_own = type(self._view.obj) is bytes and len(self._view) <= 2 * self.pending_bytes
        if self._growing or is_own:
            return  # they are in own memory, and little else is
        self._view = memoryview(bytes(self._unread()))
        self._start = 0

    def _unread(self) -> memoryview:
        return self._view[self._start : self._start + self.pending_bytes]

    def _unfinished(self) -> tuple[int, memoryview] | None:
        """Return a frame that begins as none does; None: what is there is the begin of one."""
        self._keep_unfinished()
        return None

    def _keep_unfinished(self) -> None:
        """Keep what is there of a frame, in memory in proportion to what was received of it."""
        received = self.pending_bytes
        if received < LENGTH_SIZE:
            self._growing = False
            self._keep()
            return
        frame_size = self._checked_frame_size()
        if self._growing:
            if received == len(self._view):
                self._grow(min(frame_size, 2 * received))
        elif frame_size > self._memory.scratch_bytes <= 2 * received:
            self._grow(min(frame_size, 2 * received))
        else:
            self._keep()

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
        if self._growing:
            self._view = self._memory.extend(self._view, capacity)
        else:
            view = self._memory.take(capacity)
            view[: self.pending_bytes] = self._unread()
            self._view = view
        self._start = 0
        self._growing = True
