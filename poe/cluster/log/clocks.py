"""Compares the clock of a node with those of the others when the topic registry wants to know it.

What one node takes for too old goes at all nodes. A node that was started with a clock days ahead,
as before it has heard the time, is not to delete for all of them what is young: of the clocks that
are known the middle one counts, its own among them.
"""

import contextlib
import logging
from functools import partial
from typing import Any, Final

from poe.actors import Call, GenServer, Mailslot
from poe.broker.appendix.hybrid_clock import JUMP_S
from poe.broker.log_limit import ONCE_A_MINUTE
from poe.broker.registry.copy_messages import CompareClocks
from poe.broker.registry.routing_table import ClockAhead
from poe.cluster.log.engine import EngineState
from poe.cluster.log.engine_door import Ask, EngineDoor
from poe.cluster.log.logs import LogParts
from poe.cluster.log.peer_frames import (
    CLOCK_STREAM,
    TellTime,
    Time,
    decode_time,
    encode_answer,
    encode_question,
)
from poe.cluster.log.replica import PeerQuestion
from poe.errors import PoeError, RemoteProtocolError, UnknownNode

logger = logging.getLogger("poe.cluster")

ASK_S: Final = 2.0
_US: Final = 1_000_000


def ahead_us(others_us: list[int]) -> int:
    """Return how far this node's clock is ahead of the middle one; 0 where it is not.

    Args:
        others_us: how far it is ahead of each of the others that have told; of two in the middle
            the earlier one counts.
    """
    return max(0, sorted([0, *others_us])[(len(others_us) + 1) // 2])


class TimeTeller(GenServer):
    """Tells other nodes what time it is here, also while this one waits for their answers."""

    def init(self, parts: LogParts) -> None:
        """Be there for their questions."""
        self._clock = parts.clock
        parts.slots[CLOCK_STREAM] = Mailslot(self)

    def handle_info(self, message: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Tell another node the time."""
        if isinstance(message, PeerQuestion):
            message.answer(encode_answer(Time(self._clock.now_us())))
        else:
            super().handle_info(message)


class Clocks(GenServer):
    """Compares when it is asked to."""

    async def init(self, parts: LogParts) -> None:
        """Have others told the time from now on."""
        door = await self.start_link(EngineDoor)
        assert door is not None
        await self.start_link(TimeTeller, parts)
        self._parts = parts
        self._door = door

    async def handle_cast(self, message: CompareClocks) -> None:
        """Find out how far the clock is ahead; where nobody answers it stays unknown."""
        del message
        known = self._parts.routes.clock_ahead
        if known is not None and known.is_valid(self.monotonic_s()):
            return  # several topics have asked
        with contextlib.suppress(PoeError):
            await self._compare()

    async def _compare(self) -> None:
        parts = self._parts
        state: EngineState = await self._ask(partial(parts.engine.state, ASK_S))
        others = sorted(name for name in state.peers if name != parts.me)
        question = encode_question(TellTime(CLOCK_STREAM))
        asked = [
            (parts.clock.now_us(), self._ask(partial(parts.engine.ask, name, question, ASK_S)))
            for name in others
            if state.peers[name]
        ]
        differences: list[int] = []
        heard = 0
        for asked_us, call in asked:
            with contextlib.suppress(UnknownNode, RemoteProtocolError):
                answer: bytes | None = await call
                heard += answer is not None
                if answer is not None:  # an older node does not tell it
                    between_us = (asked_us + parts.clock.now_us()) // 2
                    differences.append(between_us - decode_time(answer))
        if others and not heard:
            return
        ahead_s = ahead_us(differences) / _US
        parts.routes.clock_ahead = ClockAhead(ahead_s, self.monotonic_s())
        if ahead_s > JUMP_S:
            logger.error(
                "the clock of this node is %.0f s ahead of those of the other nodes: set it right; "
                "what is too old of replicated topics goes by theirs",
                ahead_s,
                extra=ONCE_A_MINUTE,
            )

    def _ask(self, begin: Any) -> Call:  # noqa: ANN401 - as `LogEngine` tells
        return self.call(self._door, Ask(begin), timeout_s=None)
