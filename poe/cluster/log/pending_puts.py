"""Which puts of this node wait for a majority, and what is done about them; pure.

A put is published again and again under one name until it comes back in the stream, where it is
stored once. It is refused only where it is sure that it never was: every try of it was refused. One
that may be stored waits for as long as the engine knows its name, but not for a copy that stands
still: its client is told that it may be stored.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from poe.actors import Call
from poe.cluster.log.engine import NotStored, Stored
from poe.cluster.log.gathering import Shared
from poe.errors import NoQuorum, PoeError, PutUnconfirmed

REFUSE_AFTER_S: Final = 3.0
"""For so long a put is tried that is stored nowhere for sure, or that the copy here does not take;
then its client decides."""
GIVE_UP_AFTER_S: Final = 100.0
"""For so long one that may be stored: less than the two minutes that the engine knows its name."""
TRY_S: Final = 2.0
"""What one try may take."""
_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2)


class Publish(NamedTuple):
    """Publish a put, maybe once more."""

    number: int
    payload: bytes


class Answer(NamedTuple):
    """Answer who has put it."""

    caller: Call | Shared | None
    outcome: int | PoeError


Effect = Publish | Answer


@dataclass(slots=True)
class _Pending:
    caller: Call | Shared | None
    payload: bytes
    began_s: float
    tries_count: int = 1
    is_under_way: bool = True
    is_doubtful: bool = False
    """Whether it may be stored."""
    retry_at_s: float = 0.0
    place: float = math.inf
    """Where it is stored; infinite as long as that is not known."""


class PendingPuts:
    """The puts of one partition and one life of its replica, by their numbers."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._pending: dict[int, _Pending] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_number(self) -> int:
        """Return the number of the next put."""
        self._last_number += 1
        return self._last_number

    def add(
        self, number: int, payload: bytes, caller: Call | Shared | None, now_s: float
    ) -> Publish:
        """Begin to wait for a put, which is to be published now."""
        self._pending[number] = _Pending(caller, payload, now_s)
        return Publish(number, payload)

    def told(
        self,
        number: int,
        told: Stored | NotStored,
        now_s: float,
        copy_place: int = 0,
        *,
        stands_still: bool = False,
    ) -> Iterator[Effect]:
        """Take what became of a try; `copy_place` is up to where this node's copy goes.

        While that copy `stands_still`, what may be stored is not waited for longer than what is
        not: another node knows it, and who puts it there again is answered.
        """
        put = self._pending.get(number)
        if put is None:
            return
        put.is_under_way = False
        put.is_doubtful = put.is_doubtful or isinstance(told, Stored) or not told.is_sure
        age_s = now_s - put.began_s
        if isinstance(told, Stored):
            put.place = told.place
        if isinstance(told, NotStored) and not put.is_doubtful and age_s >= REFUSE_AFTER_S:
            del self._pending[number]
            yield Answer(put.caller, NoQuorum(f"topic {self._topic}", told.why))
        elif (
            age_s >= (REFUSE_AFTER_S if stands_still else GIVE_UP_AFTER_S)
            or put.place <= copy_place
        ):
            yield self._unconfirmed(number, age_s)
        elif isinstance(told, Stored):
            # It will come in the stream; should it not, it is published again, and found.
            put.retry_at_s = now_s + TRY_S
        else:
            pause_s = _PAUSES_S[min(put.tries_count, len(_PAUSES_S)) - 1]
            put.retry_at_s = now_s + pause_s

    def passed(self, place: int, now_s: float) -> list[Effect]:
        """Take that the copy goes up to a place, by another way than its stream.

        What lies there does not come any more, and nobody knows its pointers.
        """
        gone = [number for number, put in self._pending.items() if put.place <= place]
        return [self._unconfirmed(number, now_s - self._pending[number].began_s) for number in gone]

    def _unconfirmed(self, number: int, age_s: float) -> Answer:
        """Give up a put that may be stored: soon the engine would take it for another one."""
        caller = self._pending.pop(number).caller
        return Answer(caller, PutUnconfirmed(self._topic, round(age_s, 1)))

    def applied(self, number: int, outcome: int | PoeError) -> Iterator[Effect]:
        """Take what became of a put that has come back in the stream."""
        put = self._pending.pop(number, None)
        if put is not None:
            yield Answer(put.caller, outcome)

    def due(self, now_s: float) -> Iterable[Effect]:
        """Return what is to be published again by now, and what is given up.

        This may come late, after a node stood still: the engine has forgotten names meanwhile.
        """
        effects: list[Effect] = []
        for number, put in list(self._pending.items()):
            if put.is_under_way or put.retry_at_s > now_s:
                continue
            age_s = now_s - put.began_s
            if put.is_doubtful and age_s >= GIVE_UP_AFTER_S:
                effects.append(self._unconfirmed(number, age_s))
            else:
                put.is_under_way = True
                put.tries_count += 1
                effects.append(Publish(number, put.payload))
        return effects

    def wait_s(self, now_s: float) -> float | None:
        """Return in how many seconds something is due; None: nothing waits for that."""
        times = [put.retry_at_s for put in self._pending.values() if not put.is_under_way]
        return max(min(times) - now_s, 0.0) if times else None

    def give_up(self) -> list[Effect]:
        """Forget all, since the replica ends; who waits is told that it may be stored."""
        given, self._pending = self._pending, {}
        return [Answer(put.caller, PutUnconfirmed(self._topic, 0.0)) for put in given.values()]
