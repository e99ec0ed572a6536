"""Lets actors await what an engine is asked, which tells its outcome in a thread of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from poe.actors import NO_REPLY, Call, Exit, GenServer, Mailslot, Stop
from poe.cluster.log.engine import LogEngine
from poe.errors import PoeError


class Ask(NamedTuple):
    """Asked of an `EngineDoor`: `begin` is given what takes the outcome; answers that."""

    begin: Callable[[Callable[[Any], None]], None]


class _Told(NamedTuple):
    caller: Call
    outcome: Any


class EngineDoor(GenServer):
    """Answers a call when the engine has told what came of it; an error is raised at the caller."""

    def init(self) -> None:
        """Begin."""
        self._slot = Mailslot(self)

    def handle_call(self, request: Ask, caller: Call) -> object:
        """Ask the engine."""
        request.begin(partial(_tell, self._slot, caller))
        return NO_REPLY

    def handle_info(self, message: _Told) -> None:
        """Answer who has asked."""
        if isinstance(message.outcome, PoeError):
            self.reply_error(message.caller, message.outcome)
        else:
            self.reply(message.caller, message.outcome)


class EngineLeaver(GenServer):
    """Leaves the engine before those are stopped that it was started behind.

    What they await of the engine ends with it: a stop would wait for that, and then kill them.
    """

    trap_exits = True

    def init(self, engine: LogEngine) -> None:
        """Begin."""
        self._engine = engine

    def terminate(self, reason: Any) -> None:  # noqa: ANN401 - as `GenServer`
        """Leave the engine."""
        del reason
        self._engine.close()

    def handle_info(self, message: Exit) -> Stop:
        """End when it is told to."""
        return Stop(message.reason)


def _tell(slot: Mailslot, caller: Call, outcome: Any) -> None:  # noqa: ANN401 - as it is told
    slot.post(_Told(caller, outcome))
