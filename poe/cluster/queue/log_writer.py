"""The log of one queue on one node: what is being written to it, and when all is written anew.

A queue that does not outlive its process has none: then nothing is written, and nobody waits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from poe.cluster.identity import NodeRef
from poe.cluster.queue.effects import Effect, Event, Trim, Write
from poe.cluster.queue.holders import LIVES_OVER_MAX
from poe.cluster.queue.log import Compaction, Entry, Seen, decode_entry, encode_entry
from poe.errors import PoeError

CLOSED_US: Final = 5_000_000
"""How long a node takes nothing after its log could not be written."""

Then = Callable[[PoeError | None, int], None]
"""What to do at a time when a message is written, or cannot be."""


class LogWriter:
    """Writes what a queue wants to be there after a restart; owned by its queue.

    Always: for each number in `_unwritten` the queue will say `written` or `write_failed`.
    """

    def __init__(self, emit: Callable[[Effect], None], *, is_there: bool) -> None:
        self.is_there = is_there
        """Whether there is a log."""
        self._emit = emit
        self._compaction = Compaction()
        self._writes_count = 0
        self._unwritten: dict[int, list[Then]] = {}
        """What to do when a message is written, or cannot be, by its number."""
        self._closed_until_us = 0
        self._seen: dict[NodeRef, bool] = {}
        """Who is there or was, as the log has it; what they hand out they may tell a later life."""
        self._counts: Counter[str] = Counter()

    def read(self, message: bytes) -> Entry | None:
        """Return what a message of an earlier life says; None: it is damaged, counted and told."""
        self._compaction.wrote(len(message))
        try:
            entry = decode_entry(message)
        except PoeError as error:
            self._counts["log damaged"] += 1
            self._emit(Event("log damaged", str(error)))
            return None
        match entry:
            case Seen(node, is_there):
                self._see(node, is_there=is_there)
        return entry

    def write(self, entry: Entry, then: Then | None = None) -> None:
        """Have an entry written, if there is a log."""
        if self.is_there:
            self._write_message(encode_entry(entry), then)

    def write_all(self, entries: Sequence[Entry], then: Then) -> None:
        """Have entries written; `then` is done once, with what has become of the last one."""
        for number, entry in enumerate(entries, 1):
            self.write(entry, then if number == len(entries) else None)

    def when_written(self, then: Then, now_us: int) -> None:
        """Do something when all is written, or has failed, that is being written by now."""
        if self._unwritten:
            self._unwritten[max(self._unwritten)].append(then)
        else:
            then(None, now_us)

    def written(self, number: int, now_us: int) -> None:
        """Note that a message is written."""
        self._closed_until_us = 0
        for then in self._unwritten.pop(number, ()):
            then(None, now_us)

    def write_failed(self, number: int, error: PoeError, now_us: int) -> None:
        """Note that a message cannot be written: nothing is taken for a while."""
        if not self._closed_until_us:
            self._emit(Event("log fails", str(error)))
        self._counts["writes failed"] += 1
        self._closed_until_us = now_us + CLOSED_US
        self._compaction.fail()
        for then in self._unwritten.pop(number, ()):
            then(error, now_us)

    def is_closed(self, now_us: int) -> bool:
        """Return whether nothing is to be taken, since it could not be written a while ago."""
        return now_us < self._closed_until_us

    def note_there(self, node: NodeRef) -> None:
        """Have the log say that a node is there."""
        if not self._seen.get(node):
            self._see(node, is_there=True)
            self.write(Seen(node, is_there=True))

    def note_gone(self, node: NodeRef) -> None:
        """Have the log say that a node is there no more."""
        if self._seen.get(node):
            self._see(node, is_there=False)
            self.write(Seen(node, is_there=False))

    def _see(self, node: NodeRef, *, is_there: bool) -> None:
        self._seen.pop(node, None)
        self._seen[node] = is_there
        if len(self._seen) > LIVES_OVER_MAX and not is_there:
            del self._seen[next(each for each, is_there in self._seen.items() if not is_there)]

    def nodes_there(self) -> list[NodeRef]:
        """Return the nodes that are there, as the log has it."""
        return [node for node, is_there in self._seen.items() if is_there]

    def lives(self) -> list[NodeRef]:
        """Return the nodes that are there or were, as the log has it; of the others the last."""
        return list(self._seen)

    def compact(self, live_bytes: int, entries: Callable[[], Iterable[Entry]], now_us: int) -> None:
        """Write all that holds anew, where more was written than is worth keeping.

        `entries` are taken a few at a time, each behind what was written until then.
        """
        if self.is_there and self._compaction.is_due(live_bytes):
            first = self._writes_count + 1
            self._compaction.begin(chain(self._lives(), entries()), first)
            self._go_on(first, None, now_us)

    def counters(self) -> Counter[str]:
        """Return what was counted."""
        return self._counts

    def _lives(self) -> Iterator[Entry]:
        for node in list(self._seen):
            if node in self._seen:
                yield Seen(node, self._seen[node])

    def _go_on(self, first: int, error: PoeError | None, now_us: int) -> None:
        """Write the next part of all that holds; when nothing is left, let go of the rest.

        It began with the message of this number: one that has begun since goes on by itself, else
        the first of them to come to the end would let go of what the other has yet to write.
        """
        del error, now_us
        if first != self._compaction.first:
            return
        messages = self._compaction.take_chunk()
        for number, message in enumerate(messages, 1):
            is_last = number == len(messages)
            self._write_message(message, partial(self._go_on, first) if is_last else None)
        if not messages:
            until = self._compaction.end()
            if until is not None:
                self._emit(Trim(until))

    def _write_message(self, message: bytes, then: Then | None) -> None:
        self._writes_count += 1
        if then is not None:
            self._unwritten[self._writes_count] = [then]
        self._compaction.wrote(len(message))
        self._emit(Write(self._writes_count, message))
