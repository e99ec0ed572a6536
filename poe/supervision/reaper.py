"""Waiting for the end of many actors at once: refs and a deadline in, exit reasons out.

The supervisor of dynamic children stops all of them together. It cannot await 100 000 ends one by
one: while it waits for one, the others' notices pile up in its mailbox, and finding each there
costs a walk through all. A reaper is never suspended, so every notice is one constant step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poe.actors import KILL, NO_REPLY, NORMAL, ActorRef, Down, GenServer, Stop


@dataclass(frozen=True, slots=True)
class Reap:
    """Wait until all are gone; after `grace_s` kill those that are left (None: never)."""

    grace_s: float | None


@dataclass(frozen=True, slots=True)
class _GraceOver:
    """Message of the timer to the reaper itself."""


class Reaper(GenServer):
    """Watches `refs` from its start on, answers one `Reap` with their exit reasons, and ends.

    The exit signals come from the supervisor, after the reaper's start: a child obeys its parent
    only, and a child that ended before it was watched would have lost its reason.
    """

    def init(self, refs: Sequence[ActorRef]) -> None:
        """Watch all of them."""
        self._left = set(refs)
        self._reasons: list[object] = []
        self._caller: Any = None
        for ref in refs:
            self.monitor(ref)

    def handle_call(self, request: Reap, caller: Any) -> object:  # noqa: ANN401 - the runtime's token
        """Answer now, or when the last one is gone."""
        if not self._left:
            return Stop(NORMAL, self._reasons)
        self._caller = caller
        if request.grace_s is not None:
            self.send_after(request.grace_s, _GraceOver())
        return NO_REPLY

    def handle_info(self, message: object) -> object:
        """Count an end, or kill who has had time enough."""
        if isinstance(message, Down):
            self._left.discard(message.ref)
            self._reasons.append(message.reason)
        elif isinstance(message, _GraceOver):
            for ref in self._left:
                self.exit(ref, KILL)
        if self._left or self._caller is None:
            return None
        self.reply(self._caller, self._reasons)
        return Stop(NORMAL)
