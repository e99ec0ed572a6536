"""What a client must know of the original's server, which speaks the oldest part of the protocol.

It knows pointer requests for 2 messages or more, and plain puts. At anything else it closes the
connection without a word, as a server does that is killed. Strategy: a client whose connection was
closed in answer to such a request asks another one for a topic that nobody has. The original
answers in its own way: it announces 0 bytes and sends the type of a data reply, which it does not
count.

Source: poe_listener.erl, loop/2; appendix_server.erl, file_pointer/3.
"""

from struct import Struct
from typing import Final

from poe.errors import RemoteProtocolError
from poe.protocol.frames import HEADER_SIZE, POINTER_REQUEST, PUT_REQUEST, FrameReader
from poe.protocol.messages import REQUESTS, DataReply, PointerRequest
from poe.record import POINTER_BYTES

HEAD_SIZE: Final = HEADER_SIZE + POINTER_BYTES + 4
"""Bytes at the begin of a request that tell whether the original knows it."""
PROBE: Final = PointerRequest(b"is-this-the-original", 0, 2).encode()
"""What to ask a server to find out."""
_UNKNOWN_TOPIC: Final = bytes(5) + bytes([DataReply.MESSAGE_TYPE])
_LIMIT_MIN = 2
_TYPE = Struct(">4xH")
_LIMIT = Struct(f">{HEADER_SIZE + POINTER_BYTES}xI")
_LACKING = {
    "ControlRequest": "control requests",
    "LeaseRequest": "leases",
    "QueuePutRequest": "puts onto queues across nodes",
    "RangeRequest": "range requests",
    "SequencedPutRequest": "sequenced puts",
}


class ReplyReader(FrameReader):
    """Reads frames, and the original's reply for an unknown topic: as one without records."""

    __slots__ = ()

    def _unfinished(self) -> tuple[int, memoryview] | None:
        try:
            return super()._unfinished()
        except RemoteProtocolError:
            # It writes these few bytes at once. To wait for the last of them where they come apart
            # would be to wait for ever for a server that sends no more.
            if bytes(self._unread()[:HEADER_SIZE]) != _UNKNOWN_TOPIC:
                raise
            self._start += HEADER_SIZE
            self.pending_bytes -= HEADER_SIZE
            return DataReply.MESSAGE_TYPE, self._view[self._start : self._start]


def lacking(head: bytes) -> str:
    """Return what a request needs, by its begin, that the original has not; empty: it has all."""
    if len(head) < HEADER_SIZE:
        return ""
    (message_type,) = _TYPE.unpack_from(head)
    if message_type == PUT_REQUEST:
        return ""
    if message_type == POINTER_REQUEST:
        is_small = len(head) >= HEAD_SIZE and _LIMIT.unpack_from(head)[0] < _LIMIT_MIN
        return f"reads of fewer than {_LIMIT_MIN} messages" if is_small else ""
    return _LACKING.get(REQUESTS[message_type].__name__, "")


def is_original_reply(reply: bytes) -> bool:
    """Return whether it is the original that has answered the probe so."""
    return reply == _UNKNOWN_TOPIC
