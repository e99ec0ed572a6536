"""What one supervisor tells the ring of its actor system: which end led to which restart.

The supervisor calls it where something has happened; it keeps nothing but which event tells of a
child's end, and since when the child is away. Where a system has no ring there is no chronicle, and
a restart costs what it cost without.

What leads to what:

    an end            whatever ended the actor, if a supervisor below has told: that it gave up
    a restart         the end, or the failed start, of the child that was to be restarted
    a failed start    what the start was for; or the failed start of a child further down
    giving up         the end, or the failed start, that was one too many
    a start below     of a child whose supervisor is being restarted: what that restart is for
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from poe.actors import ActorRef, GenServer
from poe.actors.run_queue import RunQueue
from poe.errors.short_text import short_repr
from poe.supervision.event_ring import EventRing

_rings: WeakKeyDictionary[RunQueue, EventRing] = WeakKeyDictionary()
"""Of the actor systems that have one."""


@dataclass(slots=True)
class _Away:
    """A child that does not run."""

    since_s: float
    cause_seq: int | None
    """The event that tells why; None of one that was stopped for the sake of a sibling."""
    delay_s: float = 0.0
    """How long its restart is put off by a back-off."""


class Chronicle:
    """What the children of one supervisor went through, for the ring; lives as long as it does."""

    __slots__ = ("_away", "_name", "_parent", "_ref", "_ring", "_supervisor")

    def __init__(self, supervisor: GenServer, ring: EventRing) -> None:
        self._ring = ring
        self._supervisor = supervisor
        self._ref = str(supervisor.ref)
        self._name = supervisor.name or self._ref
        self._parent = None if supervisor.parent is None else str(supervisor.parent)
        self._away: dict[Hashable, _Away] = {}

    # ---- ends ---------------------------------------------------------------------------------

    def ended(self, key: Hashable, child: object, ref: ActorRef, reason: str) -> None:
        """A child ended by itself, and should not have; `key` stands for it until it is back."""
        self._end(key, ref, self._told("child_terminated", child, ref, reason))

    def ended_alike(self, child: object, ref: ActorRef, reason: str) -> None:
        """The same of one of many instances alike; those that end one after the other are one."""
        if self._ring.end_of(str(ref)) is None:
            fields = self._fields(child, reason, str(ref))
            self._end(ref, ref, self._ring.add_alike("child_terminated", **fields))
        else:
            self.ended(ref, child, ref, reason)

    def stopped(self, key: Hashable, child: object, ref: ActorRef, reason: str) -> None:
        """A child was stopped; `reason` is empty unless it ended in another way than it should."""
        if reason:
            self._told("shutdown_error", child, ref, reason)
        self._away[key] = _Away(self._supervisor.monotonic_s(), None)

    def waits(self, key: Hashable, delay_s: float) -> None:
        """The restart of a child is put off."""
        if key in self._away:
            self._away[key].delay_s = delay_s

    def forget(self, key: Hashable) -> None:
        """A child is not started again."""
        self._away.pop(key, None)

    def gave_up(self, key: Hashable, child: object, reason: str, intensity: list[int]) -> None:
        """The supervisor is about to end: a restart was one too many."""
        cause = self._cause(key)
        fields = self._fields(child, reason, "")
        seq = self._ring.add("gave_up", cause_seq=cause, intensity=intensity, **fields)
        self._ring.ended(self._ref, seq)

    def shut_down(self, key: Hashable, child: object, reason: str) -> None:
        """The supervisor is about to end, since a significant child has."""
        fields = self._fields(child, reason, "")
        seq = self._ring.add("auto_shutdown", cause_seq=self._cause(key), **fields)
        self._ring.ended(self._ref, seq)

    def _end(self, key: Hashable, ref: ActorRef, seq: int) -> None:
        self._ring.ended(str(ref), seq)
        self._away[key] = _Away(self._supervisor.monotonic_s(), seq)

    def _told(self, kind: str, child: object, ref: ActorRef, reason: str) -> int:
        cause = self._ring.end_of(str(ref))
        return self._ring.add(kind, cause_seq=cause, **self._fields(child, reason, str(ref)))

    # ---- starts -------------------------------------------------------------------------------

    @contextmanager
    def starting(self, key: Hashable | None = None) -> Iterator[int | None]:
        """Let the block start children: again, since the one of `key` had ended; or at first.

        Yields the event that this is for; None where nothing had ended. Those that start below
        meanwhile start for the same.
        """
        cause = self._ring.cause_of_start(self._parent) if key is None else self._cause(key)
        self._ring.begin_start(self._ref, cause)
        try:
            yield cause
        finally:
            self._ring.end_start(self._ref)

    def start_failed(
        self,
        key: Hashable,
        child: object,
        reason: str,
        cause_seq: int | None = None,
        *,
        is_init: bool = False,
    ) -> None:
        """A child did not start, for what its start was for, or what has failed below it.

        With `is_init` its supervisor will not start either.
        """
        below = self._ring.cause_of_failed_start(self._ref)
        cause = cause_seq if below is None else below
        seq = self._ring.add("start_error", cause_seq=cause, **self._fields(child, reason, ""))
        if is_init and self._parent is not None:
            self._ring.start_failed(self._parent, seq)
        away = self._away.setdefault(key, _Away(self._supervisor.monotonic_s(), seq))
        away.cause_seq = seq

    def restarted(  # noqa: PLR0913 - who, with whom, why, and how much of that is allowed
        self,
        key: Hashable,
        child: object,
        ref: ActorRef,
        cause_seq: int | None,
        *,
        together: Sequence[object] = (),
        strategy: str = "",
        intensity: Sequence[int] = (),
        generation: int = 0,
    ) -> None:
        """A child runs again, alone or `together` with others; why, where it has no own reason."""
        away = self._away.pop(key, None)
        own = None if away is None else away.cause_seq
        self._ring.add(
            "restarted",
            cause_seq=cause_seq if own is None else own,
            **self._fields(child, "", str(ref)),
            **{"with": [_text(each) for each in together]},
            strategy=strategy,
            delay_s=0.0 if away is None else away.delay_s,
            away_s=None if away is None else self._supervisor.monotonic_s() - away.since_s,
            intensity=list(intensity),
            generation=generation,
        )

    def _cause(self, key: Hashable) -> int | None:
        away = self._away.get(key)
        return None if away is None else away.cause_seq

    def _fields(self, child: object, reason: str, ref: str) -> dict[str, str]:
        return {"supervisor": self._name, "child": _text(child), "ref": ref, "reason": reason}


def keep_events(run_queue: RunQueue, ring: EventRing) -> None:
    """Have the supervisors that start from now on in an actor system tell a ring."""
    _rings[run_queue] = ring


def chronicle_of(supervisor: GenServer) -> Chronicle | None:
    """Return what tells of a supervisor's children; None where its actor system has no ring."""
    ring = _rings.get(supervisor.ref.cell.run_queue)
    return None if ring is None else Chronicle(supervisor, ring)


def _text(child: object) -> str:
    return child if type(child) is str else short_repr(child)
