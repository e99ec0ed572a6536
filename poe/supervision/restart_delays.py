"""Which children wait for their restart, and how long the next one will wait.

They are those of a supervisor, or of an actor that starts others anew itself, as the registry of a
cluster's queues does. A wait ends with a `RestartDue` to that actor. A supervisor's child that
waits shows the slot RESTARTING; whatever changes the slot meanwhile makes that message void.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from poe.actors import Timer
from poe.actors.gen_server import GenServer
from poe.supervision.backoff import Backoff


@dataclass(frozen=True, slots=True, eq=False)
class RestartDue:
    """A timer's message to whoever starts a child anew: its wait is over."""

    child: Hashable
    """Key of the child's id; for a dynamic child the ref of its dead actor; a queue's name."""


@dataclass(slots=True)
class _Wait:
    """The last wait of one child."""

    wait_s: float
    """Without jitter."""
    end_s: float
    """When it ended or will end, on the system's clock."""
    due: RestartDue
    timer: Timer


class RestartDelays:
    """Owns the waits of the children of one actor; holds nothing of children without back-off."""

    def __init__(self, owner: GenServer) -> None:
        self._owner = owner
        self._waits: dict[Hashable, _Wait] = {}

    def begin(self, child: Hashable, backoff: Backoff) -> float:
        """Let a child wait for its `RestartDue`, and return for how many seconds."""
        now_s = self._owner.monotonic_s()
        last = self._waits.get(child)
        wait_s = backoff.first_s
        if last is not None:
            last.timer.cancel()
            if now_s - last.end_s < backoff.reset_after_s:
                wait_s = backoff.after(last.wait_s)
        delay_s = backoff.jittered(wait_s, child)
        due = RestartDue(child)
        timer = self._owner.send_after(delay_s, due)
        self._waits[child] = _Wait(wait_s, now_s + delay_s, due, timer)
        return delay_s

    def is_valid(self, due: RestartDue) -> bool:
        """Return whether this is the last wait that its child began."""
        wait = self._waits.get(due.child)
        return wait is not None and wait.due is due

    def rename(self, old: Hashable, new: Hashable) -> None:
        """Go on with a dynamic child under the ref of its new actor."""
        wait = self._waits.pop(old, None)
        if wait is not None:
            self._waits[new] = wait

    def forget(self, child: Hashable) -> None:
        """Forget a child, and end its wait."""
        wait = self._waits.pop(child, None)
        if wait is not None:
            wait.timer.cancel()

    def cancel_all(self) -> None:
        """End all waits, because their owner ends."""
        for child in list(self._waits):
            self.forget(child)
