"""Watching many actors at once: refs and a deadline in; who lives, or how all ended, out.

The supervisor of dynamic children stops all of them together. It cannot await 100 000 ends one by
one: while it waits for one, the others' notices pile up in its mailbox, and finding each there
costs a walk through all. A watcher is never suspended, so every notice is one constant step.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from poe.actors import KILL, NO_REPLY, NORMAL, ActorRef, Call, Down, GenServer, Stop


@dataclass(frozen=True, slots=True)
class AllGone:
    """Wait for the end of all, and answer with the list of their exit reasons."""

    grace_s: float | None
    """Seconds until those that are left are killed; None: never."""


@dataclass(frozen=True, slots=True)
class WhoLives:
    """Answer at once with the set of those that are alive."""


@dataclass(frozen=True, slots=True)
class _GraceOver:
    """Message of the timer to the watcher itself."""


class Watcher(GenServer):
    """Watches `refs` from its start on, answers one request, and ends.

    Exit signals are sent by the supervisor, after the watcher's start: a child obeys its parent
    only, and a child that ended before it was watched would have lost its reason. `WhoLives` needs
    no clock: the notice of an actor that was dead already comes before the request.
    """

    # Stopping children must not start a process.
    colocated = True

    def init(self, refs: Iterable[ActorRef]) -> None:
        """Watch all of them."""
        self._left = set(refs)
        self._reasons: list[object] = []
        self._caller: Call | None = None
        for ref in self._left:
            self.monitor(ref)

    def handle_call(self, request: AllGone | WhoLives, caller: Call) -> object:
        """Answer now, or when the last one is gone."""
        if isinstance(request, WhoLives):
            return Stop(NORMAL, self._left)
        if not self._left:
            return Stop(NORMAL, self._reasons)
        self._caller = caller
        if request.grace_s is not None:
            self.send_after(request.grace_s, _GraceOver())
        return NO_REPLY

    def handle_info(self, message: object) -> Stop | None:
        """Note an end, or kill those that had time enough."""
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


async def living(supervisor: GenServer, refs: Iterable[ActorRef]) -> set[ActorRef]:
    """Return those of `refs` whose actor is alive at this moment."""
    watcher = await supervisor.start_link(Watcher, refs)
    assert watcher is not None
    alive: set[ActorRef] = await supervisor.call(watcher, WhoLives(), timeout_s=None)
    return alive
