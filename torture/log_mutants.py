"""Ways to break replicated topics on purpose; otherwise as `mutants.py`."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

from poe.broker.appendix import message as appendix_message
from poe.broker.appendix.server import AppendixServer
from poe.broker.registry.topic_settings import TopicSettings
from poe.cluster.log import fetching, replica
from poe.cluster.log.engine import Entry, NotStored, Stored
from poe.cluster.log.entry import TrimEntry
from poe.cluster.log.pending_puts import Answer, Effect, PendingPuts
from poe.cluster.log.replica import Replica, State

LogMutant = Literal[
    "log-answer-early",
    "log-forget-place",
    "log-local-clock",
    "log-local-rotation",
    "log-no-republish",
    "log-doubt-is-refusal",
    "log-new-names",
    "log-fetch-no-producers",
    "log-trim-here",
    "log-follow-too-far",
    "log-anew-on-top",
]


def _answer_early(patch: Any) -> None:
    """Answer a put when a majority has it, before its pointer is known here."""
    told = PendingPuts.told

    def answer(
        self: Any, number: int, outcome: Stored | NotStored, now_s: float, place: int = 0
    ) -> Iterator[Effect]:
        put = self._pending.get(number)
        if put is not None and isinstance(outcome, Stored):
            del self._pending[number]
            return iter([Answer(put.caller, outcome.place)])
        return told(self, number, outcome, now_s, place)

    patch(PendingPuts, "told", answer)


def _forget_place(patch: Any) -> None:
    """Follow a stream from its begin after each restart."""

    async def begin(self: Any) -> None:
        await self._ensure(None)
        self._place = 0
        self._follow()

    patch(Replica, "_begin", begin)


def _local_clock(patch: Any) -> None:
    """Give messages pointers by the clock of the node."""
    apply = AppendixServer._apply

    def at_clock(self: Any, batches: Any) -> Any:
        now_us = self._clock.now_us()
        return apply(self, [each._replace(time_us=now_us) for each in batches])

    patch(AppendixServer, "_apply", at_clock)


def _local_rotation(patch: Any) -> None:
    """Begin segments by the options of the node."""
    patch(TopicSettings, "appendix_with", lambda self, _: self._appendix)


def _no_republish(patch: Any) -> None:
    """Publish nothing again."""
    patch(PendingPuts, "due", lambda *_: [])


def _doubt_is_refusal(patch: Any) -> None:
    """Say that nothing is stored where nobody knows."""
    told = PendingPuts.told

    def sure(
        self: Any, number: int, outcome: Stored | NotStored, now_s: float, place: int = 0
    ) -> Iterator[Effect]:
        if isinstance(outcome, NotStored):
            outcome = outcome._replace(is_sure=True)
        return told(self, number, outcome, now_s, place)

    patch(PendingPuts, "told", sure)


def _new_names(patch: Any) -> None:
    """Publish the same again under another name."""
    entry_name, count = replica.entry_name, itertools.count()

    def name(*of: Any) -> str:
        return f"{entry_name(*of)}-{next(count)}"

    patch(replica, "entry_name", name)


def _fetch_no_producers(patch: Any) -> None:
    """Fetch messages, and not what is known of who has put them."""

    def forget(place: int, _: Any = ()) -> Any:
        return appendix_message.SetPlace(place)

    patch(fetching, "SetPlace", forget)


def _trim_here(patch: Any) -> None:
    """Trim where it was asked for, and nowhere else."""
    trim = Replica._trim

    async def here(self: Any, entry: Entry, asked: TrimEntry) -> None:
        if asked.origin == self._parts.origin:
            await trim(self, entry, asked)
        else:
            self._place = entry.place

    patch(Replica, "_trim", here)


def _follow_too_far(patch: Any) -> None:
    """Leave out the entry behind the last one that is stored."""

    def follow(self: Any) -> None:
        self._follow_id += 1
        self._state = State.FOLLOWING
        place = self._place + (self._place > 0)
        self._parts.engine.follow(self._parts.stream, place, self._follow_id)

    patch(Replica, "_follow", follow)


def _anew_on_top(patch: Any) -> None:
    """Make a copy anew behind what is there."""

    async def make_anew(self: Any, _: str) -> None:
        self._stop_following()
        await self._ensure(None)
        self._place = 0
        self._follow()

    patch(Replica, "_make_anew", make_anew)


LOG_MUTANTS: dict[str, Callable[[Any], None]] = {
    "log-answer-early": _answer_early,
    "log-forget-place": _forget_place,
    "log-local-clock": _local_clock,
    "log-local-rotation": _local_rotation,
    "log-no-republish": _no_republish,
    "log-doubt-is-refusal": _doubt_is_refusal,
    "log-new-names": _new_names,
    "log-fetch-no-producers": _fetch_no_producers,
    "log-trim-here": _trim_here,
    "log-follow-too-far": _follow_too_far,
    "log-anew-on-top": _anew_on_top,
}
assert set(LOG_MUTANTS) == set(get_args(LogMutant))
