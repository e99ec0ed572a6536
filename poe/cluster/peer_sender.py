"""The actor that sends to one peer: it owns the `Sender`, and its asks answer to it.

What the peer asks is answered here, too, so that what waits for the peer rides on the answer. A
question is heard by other actors first; what they tell the peer at once is here before the answer
leaves, and otherwise it leaves without anything a moment later.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from poe.actors import Call, GenServer, LoopAddress, Mailslot, Timer
from poe.broker.requests.queue_messages import QUEUES
from poe.cluster.actor_messages import FABRIC, MEMBERS, FramesHeard, PaceSeen
from poe.cluster.fabric.envelope import decode_envelope
from poe.cluster.fabric.interface import Fabric
from poe.cluster.fabric.sender import Pace, Sender
from poe.cluster.identity import PROTOCOL, NodeRef, Peer
from poe.errors import MailboxFull, PoeError

logger = logging.getLogger("poe.cluster")

ASK_DEADLINE_S: Final = 1.0
ANSWER_AFTER_S: Final = 0.001
"""Until a question is answered with nothing."""
SILENCE_US: Final = 4_000_000
"""A peer that answers nothing for so long is as good as gone, whatever the network says. Longer
than routers take to find another way, which is the lease and a little more."""

_FLUSH: Final = "flush"
_TICK: Final = "tick"
_ANSWER: Final = "answer"


class Tell(NamedTuple):
    """Cast to a sender: send a frame, if the peer keeps up."""

    frame: bytes


class Owe(NamedTuple):
    """Cast to a sender: the peer has asked, and waits for its answer."""

    answer: Callable[[bytes], None]


class Silence(NamedTuple):
    """Cast to `FABRIC`: a peer does not answer any more, or does again."""

    ref: NodeRef
    is_silent: bool


@dataclass(frozen=True, slots=True)
class SenderMetrics:
    """Asked of a sender: answers a map of counts."""


class _Answered(NamedTuple):
    number: int
    payload: bytes | None


class PeerSender(GenServer):
    """Sends to one peer, for as long as the fabric's actor lives and knows the peer."""

    def init(self, fabric: Fabric, owner: LoopAddress, peer: Peer) -> None:
        """Begin with nothing to send.

        Args:
            fabric: what asks; `owner` has opened it.
            owner: the fabric's actor.
            peer: who is sent to; an older one is spoken to as it understands.
        """
        self.link(owner)
        self._fabric, self._peer = fabric, peer.ref
        self._sender = Sender(min(peer.protocol, PROTOCOL))
        self._slot = Mailslot(self)
        self._owed: deque[Callable[[bytes], None]] = deque()
        self._owed_since_s = 0.0
        """When the first of them was asked."""
        self._answer_timer: Timer | None = None
        self._is_flushing = self._is_silent = False
        self._pace = Pace.OK
        self._tick: Timer | None = None
        self._malformed_count = self._dropped_count = 0

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401 - as `GenServer`
        """Answer counts."""
        if isinstance(request, SenderMetrics):
            sender = self._sender
            return {
                "frames_told": sender.told_count,
                "frames_refused": sender.refused_count,
                "frames_lost": sender.lost_count,
                "answers_malformed": self._malformed_count,
                "frames_dropped": self._dropped_count,
                "waiting_bytes": sender.waiting_bytes,
                "under_way_bytes": sender.under_way_bytes,
            }
        return super().handle_call(request, caller)

    def handle_cast(self, message: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Take what is to be sent; all that comes meanwhile leaves with it."""
        if isinstance(message, Tell):
            if self._sender.tell(message.frame, self._now_us()) and not self._is_flushing:
                self._is_flushing = True
                self.cast(self.ref, _FLUSH)
        elif isinstance(message, Owe):
            if not self._owed:
                self._owed_since_s = self.monotonic_s()
            self._owed.append(message.answer)
            # One timer at a time: most questions are answered before it, and cost none.
            if self._answer_timer is None:
                self._answer_timer = self.send_after(ANSWER_AFTER_S, _ANSWER)
        elif message == _FLUSH:
            self._flush()
        else:
            super().handle_cast(message)

    def handle_info(self, message: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Take an answer; let time pass."""
        if isinstance(message, _Answered):
            self._take_answer(message)
        elif message == _ANSWER:
            self._answer_if_due()
        elif message == _TICK:
            self._tick = None
            self._sender.tick(self._now_us())
            self._send()
        else:
            super().handle_info(message)

    def _now_us(self) -> int:
        return int(self.monotonic_s() * 1e6)

    def _flush(self) -> None:
        self._is_flushing = False
        self._answer()
        self._send()

    def _answer_if_due(self) -> None:
        self._answer_timer = None
        left_s = self._owed_since_s + ANSWER_AFTER_S - self.monotonic_s()
        if left_s <= 0:
            self._answer()
        elif self._owed:
            self._answer_timer = self.send_after(left_s, _ANSWER)

    def _answer(self) -> None:
        while self._owed:
            self._owed.popleft()(self._sender.take_answer())

    def _send(self) -> None:
        now_us = self._now_us()
        while (ask := self._sender.next_ask(now_us)) is not None:
            answered = partial(_post, self._slot, ask.number)
            self._fabric.ask(self._peer, ask.payload, ASK_DEADLINE_S, answered)
        self._say_pace()
        deadline_us = self._sender.next_deadline_us()
        if deadline_us is not None and self._tick is None:
            self._tick = self.send_after(max(0, deadline_us - now_us) / 1e6, _TICK)

    def _take_answer(self, answered: _Answered) -> None:
        now_us = self._now_us()
        if answered.payload is None:
            self._sender.failed(answered.number, now_us)
        else:
            self._sender.answered(answered.number, now_us)
            try:
                frames = decode_envelope(answered.payload)
            except PoeError as error:
                self._malformed_count += 1
                logger.warning("peer %s: %s", self._peer, error)
            else:
                self._hear(frames)
        self._send()

    def _hear(self, frames: list[bytes]) -> None:
        try:
            if frames:
                self.cast(QUEUES, FramesHeard(self._peer, frames))
        except MailboxFull:
            self._dropped_count += len(frames)

    def _say_pace(self) -> None:
        """Tell of a change: to who chooses holders, and to who knows which peers there are."""
        pace, since_us = self._sender.pace, self._sender.silent_since_us
        if (pace is Pace.OK) != (self._pace is Pace.OK):
            self.cast(MEMBERS, PaceSeen(self._peer, pace is not Pace.OK))
        self._pace = pace
        is_silent = since_us is not None and self._now_us() - since_us >= SILENCE_US
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            self.cast(FABRIC, Silence(self._peer, is_silent))


def _post(slot: Mailslot, number: int, payload: bytes | None) -> None:
    slot.post(_Answered(number, payload))
