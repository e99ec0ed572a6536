"""What goes to one peer, and when: the frames that wait for it, and the asks that are under way.

Frames that are told become envelopes: at once while few bytes are under way, else together with
all others that come meanwhile. So a fast peer gets small asks soon, and one that cannot keep up
gets as much as it takes, and the rest is refused here, where it costs nobody anything.

Pure: whoever owns a sender asks it what to send, brings it the answers, and says what time it is.
A frame may be lost; nobody sends it again but who told it.
"""

from collections import deque
from enum import Enum
from typing import Final, NamedTuple

from poe.cluster.fabric.envelope import FRAME_MAX_BYTES, FRAMES_MAX, encode_envelope


class Pace(Enum):
    """How a peer keeps up."""

    OK = "ok"
    SLOW = "slow"
    """It answers late: choose another one for what can go there. Little may wait for it."""
    DOWN = "down"
    """It has not answered: nothing goes to it but a small ask now and then, to see whether it is
    back."""


class SenderLimits(NamedTuple):
    """How much may be on its way to one peer, and for how long."""

    window_bytes: int = 256 * 1024
    """Under way without an answer; a larger envelope goes when nothing else is."""
    asks_max: int = 4
    queue_bytes_max: int = 8 * 1024 * 1024
    """What waits for a peer that is ok; for a slow one it is `window_bytes`."""
    envelope_bytes: int = 128 * 1024
    """Size from which on frames go in a further envelope."""
    answer_bytes: int = 64 * 1024
    """Size from which on frames do not ride on an answer."""
    slow_after_us: int = 150_000
    """Age of an ask without answer, or of a frame that waits, that makes a peer slow."""
    look_after_us: int = 250_000
    """Until a peer that is not ok, and has nothing to answer, is asked whether it is."""


USUAL_LIMITS: Final = SenderLimits()


class Ask(NamedTuple):
    """What is to be asked; its answer, or that none came, is told by its number."""

    number: int
    payload: bytes


class _UnderWay(NamedTuple):
    size_bytes: int
    sent_us: int
    frames_count: int


class Sender:
    """The way to one peer.

    Always, without what the frames are wrapped in:

    under way <= window_bytes, or it is one ask
    asks under way <= asks_max
    waiting <= queue_bytes_max, or it is one frame
    """

    def __init__(self, version: int, limits: SenderLimits = USUAL_LIMITS) -> None:
        """Make one that speaks a version of the protocol, which the peer understands."""
        self._version = version
        self._limits = limits
        self.pace = Pace.OK
        self.silent_since_us: int | None = None
        """When the oldest ask left of those that have failed since the last answer."""
        self._waiting: deque[tuple[bytes, int]] = deque()
        """Frames, and when they were told."""
        self.waiting_bytes = 0
        self._under_way: dict[int, _UnderWay] = {}
        self.under_way_bytes = 0
        """What has been sent and not answered."""
        self._number = 0
        self._look_at_us = 0
        self.told_count = 0
        self.refused_count = 0
        """Frames that were not taken."""
        self.lost_count = 0
        """Frames that were taken, and may not have arrived."""

    @property
    def waiting_count(self) -> int:
        """Return how many frames wait to be sent."""
        return len(self._waiting)

    def tell(self, frame: bytes, now_us: int) -> bool:
        """Have a frame sent; False: the peer is down, or too much waits for it.

        Raises:
            ValueError: the frame is larger than `FRAME_MAX_BYTES`.
        """
        size = len(frame)
        if size > FRAME_MAX_BYTES:
            msg = f"a frame of {size} bytes is too large; {FRAME_MAX_BYTES} are the most"
            raise ValueError(msg)
        limits = self._limits
        room = limits.queue_bytes_max if self.pace is Pace.OK else limits.window_bytes
        is_full = self.waiting_bytes + size > room and self._waiting
        if self.pace is Pace.DOWN or is_full:
            self.refused_count += 1
            if is_full:
                self.pace = Pace.SLOW
            return False
        self._waiting.append((frame, now_us))
        self.waiting_bytes += size
        self.told_count += 1
        return True

    def next_ask(self, now_us: int) -> Ask | None:
        """Return what can be sent now; ask again until it is None."""
        if len(self._under_way) >= self._limits.asks_max:
            return None
        if self._waiting:
            size = len(self._waiting[0][0])
            if self._under_way and self.under_way_bytes + size > self._limits.window_bytes:
                return None
            room = self._limits.window_bytes - self.under_way_bytes
            frames = self._take(min(room, self._limits.envelope_bytes))
        elif self.pace is not Pace.OK and not self._under_way and now_us >= self._look_at_us:
            frames = []
        else:
            return None
        payload = encode_envelope(frames, self._version)
        self._number += 1
        self._under_way[self._number] = _UnderWay(len(payload), now_us, len(frames))
        self.under_way_bytes += len(payload)
        return Ask(self._number, payload)

    def take_answer(self) -> bytes:
        """Return what is to be answered to an ask of this peer: what waits for it goes along."""
        fits = self._waiting and len(self._waiting[0][0]) <= self._limits.answer_bytes
        frames = self._take(self._limits.answer_bytes) if fits else ()
        return encode_envelope(frames, self._version)

    def answered(self, number: int, now_us: int) -> None:
        """Note that an ask was answered."""
        ask = self._end(number)
        if ask is None:
            return
        self.silent_since_us = None
        is_soon = now_us - ask.sent_us <= self._limits.slow_after_us
        self.pace = Pace.OK if is_soon and not self._is_late(now_us) else Pace.SLOW
        self._look_at_us = now_us + self._limits.look_after_us

    def failed(self, number: int, now_us: int) -> None:
        """Note that no answer came: the peer is down, and what waits for it is lost."""
        ask = self._end(number)
        if ask is None:
            return
        if self.silent_since_us is None:
            self.silent_since_us = ask.sent_us
        self.pace = Pace.DOWN
        self.lost_count += ask.frames_count + len(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        self._look_at_us = now_us + self._limits.look_after_us

    def tick(self, now_us: int) -> None:
        """Find out that a peer has become slow."""
        if self.pace is Pace.OK and self._is_late(now_us):
            self.pace = Pace.SLOW

    def next_deadline_us(self) -> int | None:
        """Return when `tick` or `next_ask` may have something new; None: not by time alone."""
        if self.pace is Pace.OK:
            oldest_us = self._oldest_us()
            return None if oldest_us is None else oldest_us + self._limits.slow_after_us
        return None if self._under_way else self._look_at_us

    def _take(self, room_bytes: int) -> list[bytes]:
        """Take out the first frame, and those behind it while they fit."""
        waiting, frames = self._waiting, list[bytes]()
        taken_bytes = 0
        while waiting and len(frames) < FRAMES_MAX:
            size = len(waiting[0][0])
            if frames and taken_bytes + size > room_bytes:
                break
            frames.append(waiting.popleft()[0])
            taken_bytes += size
        self.waiting_bytes -= taken_bytes
        return frames

    def _end(self, number: int) -> _UnderWay | None:
        ask = self._under_way.pop(number, None)
        if ask is not None:
            self.under_way_bytes -= ask.size_bytes
        return ask

    def _oldest_us(self) -> int | None:
        # Asks are in the order in which they were sent, and so is what waits.
        asked_us = next(iter(self._under_way.values())).sent_us if self._under_way else None
        if not self._waiting:
            return asked_us
        waits_us = self._waiting[0][1]
        return waits_us if asked_us is None else min(waits_us, asked_us)

    def _is_late(self, now_us: int) -> bool:
        oldest_us = self._oldest_us()
        return oldest_us is not None and now_us - oldest_us >= self._limits.slow_after_us
