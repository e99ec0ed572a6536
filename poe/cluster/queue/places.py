"""How far a group of a queue is on this node, and how it is set somewhere else."""

from typing import Any

from poe.cluster.identity import StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.ledger import Ledger
from poe.errors import OptionError, UnknownTopic


class Places:
    """Compares what a group has done with what this node holds."""

    def __init__(self, ledger: Ledger, copies: Copies) -> None:
        self._ledger = ledger
        self._copies = copies

    def lag(self, now_us: int) -> dict[bytes, dict[str, Any]]:
        """Return what of each stream is held here and not done: messages, and how old they are."""
        return {
            self._ledger.unit(stream): self._lag(stream, now_us)
            for stream in sorted(self._copies.streams())
        }

    def reset(
        self,
        to: str | int | dict[bytes, int],
        units: tuple[bytes, ...],
        *,
        dry: bool,
        force: bool,
        now_us: int,
    ) -> dict[bytes, list[Any]]:
        """Count as done what comes before a place; return the old one, the new one, and how far.

        How far is in messages that are held here. `to` is a word, a time in microseconds, or a
        pointer for each unit; `dry` moves nothing. What is done stays so: it is kept by nobody.

        Raises:
            OptionError: it is to begin with what is done.
            GroupActive: there are members, and no force.
            UnknownTopic: a unit is none of the group.
        """
        if to == "oldest":
            raise OptionError("to", to, "newest, a time or pointers: what is done is not kept")
        streams = {self._ledger.unit(stream): stream for stream in self._copies.streams()}
        moved: dict[bytes, list[Any]] = {}
        for unit in to if isinstance(to, dict) else units or sorted(streams):
            if unit not in streams:
                raise UnknownTopic(unit)
            stream = streams[unit]
            place = to[unit] if isinstance(to, dict) else self._place(stream, to)
            # What is put later is passed over by nobody: it could never be had again.
            place = min(place, max(now_us - 1, self._last(stream)))
            moved[unit] = [self.floor(stream), place, self._count(stream, place)]
        if not dry:
            self._ledger.state.reset({}, now_us, force=force)
            for unit, (_, place, _) in moved.items():
                if place:
                    self._ledger.knowledge.finish(streams[unit], 0, place)
                    self._ledger.shared.learn_done(unit, 0, place)
        return moved

    def _lag(self, stream: StreamId, now_us: int) -> dict[str, Any]:
        newest = self._last(stream)
        left = self._ledger.not_done(stream, 0, newest) if newest else []
        batches = [batch for each in left for batch in self._copies.batches(stream, *each)]
        return {
            "position": self.floor(stream),
            "newest": newest,
            "messages": sum(batch.messages_count for batch in batches),
            "seconds": max(0, now_us - batches[0].first) / 1e6 if batches else 0.0,
        }

    def floor(self, stream: StreamId) -> int:
        """Return the pointer up to which all of a stream is done."""
        first = self._ledger.knowledge.get(stream).done.first()
        return first[1] if first is not None and first[0] == 0 else 0

    def _last(self, stream: StreamId) -> int:
        return max((last for _, last in self._copies.held(stream)), default=0)

    def _place(self, stream: StreamId, to: str | int) -> int:
        # A pointer is a time: what came at that very microsecond is still to be worked on.
        return self._last(stream) if to == "newest" else max(0, int(to) - 1)

    def _count(self, stream: StreamId, place: int) -> int:
        left = self._ledger.not_done(stream, 0, place) if place else []
        return sum(
            batch.messages_count
            for bounds in left
            for batch in self._copies.batches(stream, *bounds)
        )
