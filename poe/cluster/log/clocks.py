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
from poe.broker.appendix.server import REGISTRY
from poe.broker.log_limit import ONCE_A_MINUTE
from poe.broker.registry.copy_messages import ClocksCompared, CompareClocks
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
PAUSE_S: Final = 5.0
"""Between two tries: each look asks, for each topic that has something to go."""
_US: Final = 1_000_000


def middle_us(others_us: list[int]) -> int:
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
        self._tried_s: float | None = None

    async def handle_cast(self, message: CompareClocks) -> None:
        """Find out how far the clock is ahead, and have the registry look again, which waits."""
        del message
        now_s, routes = self.monotonic_s(), self._parts.routes
        if routes.clock_ahead is not None and routes.clock_ahead.is_valid(now_s):
            return
        if self._tried_s is not None and now_s - self._tried_s < PAUSE_S:
            return
        self._tried_s = now_s
        with contextlib.suppress(PoeError):
            ahead_us = await self._ahead_us()
            if ahead_us is None:
                logger.warning(
                    "no other node tells what time it is: until one does, nothing of replicated "
                    "topics is too old",
                    extra=ONCE_A_MINUTE,
                )
                return
            self._tell(ahead_us / _US)
            self.cast(REGISTRY, ClocksCompared())

    def _tell(self, ahead_s: float) -> None:
        self._parts.routes.clock_ahead = ClockAhead(ahead_s, self.monotonic_s())
        if ahead_s > JUMP_S:
            logger.error(
                "the clock of this node is %.0f s ahead of those of the other nodes: set it right; "
                "what is too old of replicated topics goes by theirs",
                ahead_s,
                extra=ONCE_A_MINUTE,
            )

    async def _ahead_us(self) -> int | None:
        """Return how far the clock is ahead; None where that is not known."""
        parts = self._parts
        state: EngineState = await self._ask(partial(parts.engine.state, ASK_S))
        if not state.leader:  # who leads nobody may know of nobody
            return None
        others = sorted(name for name in state.peers if name != parts.me)
        question = encode_question(TellTime(CLOCK_STREAM))
        asked = [
            (parts.clock.now_us(), self._ask(partial(parts.engine.ask, name, question, ASK_S)))
            for name in others
            if state.peers[name]
        ]
        differences: list[int] = []
        for asked_us, call in asked:
            # An older node does not tell it, nor does one that has just begun.
            with contextlib.suppress(UnknownNode, RemoteProtocolError):
                answer: bytes | None = await call
                if answer is not None:
                    between_us = (asked_us + parts.clock.now_us()) // 2
                    differences.append(between_us - decode_time(answer))
        return None if others and not differences else middle_us(differences)

    def _ask(self, begin: Any) -> Call:  # noqa: ANN401 - as `LogEngine` tells
        return self.call(self._door, Ask(begin), timeout_s=None)
