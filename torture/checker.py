"""The one judge: what was sent and acknowledged, against what is stored afterwards.

A `Journal` is kept on the producers' side. Whatever the fault was, four things must hold:

- what was acknowledged is there: once, with its bytes, at the pointers that the reply named
- a put is whole or absent, whether it was acknowledged or not; one that was refused is absent
- pointers rise, and the puts of one producer lie in the order in which they were sent
- what a fault may take away goes from one end: nothing is there that came later, or of what
  expired nothing that came before

The judge knows records (pointer, message) and nothing of files, segments or actors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Literal

Record = tuple[int, bytes]
Stored = Mapping[bytes, Sequence[Record]]
"""All records of each topic, as they were read."""

_SHOWN_MAX = 5


@dataclass(slots=True, eq=False)
class Put:
    """One put request and what became of it."""

    topic: bytes
    producer: int
    number: int
    """Counts the puts of its producer."""

    messages: list[bytes]
    pointer: int | None = None
    """Of its last message, once that is acknowledged, or was found without."""

    is_refused: bool = False
    """It must not be there, and must never come back."""

    is_doubtful: bool = False
    """Its client was told that it may be stored, and to put it again."""

    acked_s: float | None = None
    """When it was acknowledged, where a fault may take away what is newer than some time."""

    is_unanswered: bool = False
    """It was found, but nobody was promised that it is there."""

    put_id: tuple[bytes, int, int] | None = None
    """With one it may be put again; whoever does so says when."""

    answer: int | Exception | None = None
    """What its client was told last; None: it waits for that."""

    is_halved: bool = False
    """A part of it is there, or its bytes are torn, by a fault that may do that."""

    def __repr__(self) -> str:
        return f"put {self.number} of producer {self.producer} ({len(self.messages)} messages)"


@dataclass(slots=True)
class Journal:
    """All puts of a run, which a `Sender` for each producer notes."""

    puts: dict[bytes, list[Put]] = field(default_factory=dict)
    senders_count: int = 0

    def acked_count(self) -> int:
        """Count the puts whose acknowledgement has arrived."""
        return sum(put.pointer is not None for puts in self.puts.values() for put in puts)

    def forget(self, topic: bytes, pointer: int) -> None:
        """Forget puts up to a pointer, which was that of one, since they may be gone or not."""
        puts = self.puts.get(topic, [])
        self.puts[topic] = [put for put in puts if put.pointer is None or put.pointer > pointer]

    def judge(
        self,
        stored: Stored,
        *,
        may_lose: Callable[[Put], bool] = lambda _: False,
        may_return: Callable[[Put], bool] = lambda _: False,
        are_halves_told: bool = True,
        lost_end: Literal["newest", "oldest"] = "newest",
    ) -> list[str]:
        """Compare with what is stored; say what is wrong.

        What was found is settled: a put without a reply that is there counts as acknowledged from
        now on, one that is absent as refused.

        Args:
            stored: what was read.
            may_lose: which acknowledged puts this fault may take away.
            may_return: which puts this fault may bring back that were absent.
            are_halves_told: whether a part of a put is a failure, or torn bytes in it, where the
                put is unacknowledged, or may be lost.
            lost_end: where the fault takes away: a power cut the newest, expiry the oldest.
        """
        failures: list[str] = []
        for topic in sorted({*self.puts, *stored}):
            puts = self.puts.get(topic, [])
            judge = _TopicJudge(puts, may_lose, may_return, are_halves_told=are_halves_told)
            records = stored.get(topic, ())
            judge.judge(records)
            oldest, newest = (records[0][0], records[-1][0]) if records else (0, 0)
            for put in puts:
                if put not in judge.pointers and put.pointer is not None:
                    if not may_lose(put):
                        judge.failures.append(f"{put} was acknowledged and is not there")
                    elif lost_end == "newest" and put.pointer < newest:
                        judge.failures.append(f"{put} is not there, and what came later is")
                    elif lost_end == "oldest" and oldest and put.pointer > oldest:
                        judge.failures.append(f"{put} is not there, and what came before is")
                put.is_unanswered |= put.pointer is None
                put.pointer = judge.pointers.get(put)
                put.is_refused = put.pointer is None
            failures += [f"{topic!r}: {failure}" for failure in judge.failures]
        shown = failures[:_SHOWN_MAX]
        hidden_count = len(failures) - len(shown)
        return [*shown, f"… and {hidden_count} more"] if hidden_count else shown


class _TopicJudge:
    """Walks through the records of one topic, put by put."""

    def __init__(
        self,
        puts: Iterable[Put],
        may_lose: Callable[[Put], bool],
        may_return: Callable[[Put], bool],
        *,
        are_halves_told: bool,
    ) -> None:
        self._may_lose = may_lose
        self._may_return = may_return
        self._by_message = {
            message: (put, at) for put in puts for at, message in enumerate(put.messages)
        }
        self._by_name = {_name(message): put for message, (put, _) in self._by_message.items()}
        self._are_halves_told = are_halves_told
        self._last_numbers: dict[int, int] = {}
        self.pointers: dict[Put, int] = {}
        self.failures: list[str] = []

    def judge(self, records: Sequence[Record]) -> None:
        pointers = [pointer for pointer, _ in records]
        if any(a >= b for a, b in pairwise(pointers)):
            self.failures.append("pointers do not rise")
        start = 0
        while start < len(records):
            start += self._judge_put(records, start)

    def _judge_put(self, records: Sequence[Record], start: int) -> int:
        """Judge the put that begins at a record; tell how many records to go on by."""
        pointer, message = records[start]
        found = self._by_message.get(message)
        if found is None:
            if not self._may_be_torn(self._by_name.get(_name(message))):
                self.failures.append(f"nobody sent {message[:40]!r} at pointer {pointer}")
            return 1
        put, at = found
        if at and put.is_halved:
            return 1
        if at:
            self.failures.append(f"{put} begins with its message {at}, at pointer {pointer}")
            return 1
        size = _stored_part(put, records, start)
        if size < len(put.messages):
            if not self._may_be_torn(put):
                self.failures.append(f"{put} is there in part: its first {size} messages")
            return size
        self._judge_whole(put, records[start + size - 1][0])
        return size

    def _may_be_torn(self, put: Put | None) -> bool:
        """Tell whether a part of a put may be there, and remember it."""
        if put is None or (put.pointer is not None and not self._may_lose(put)):
            return False
        put.is_halved = put.is_halved or not self._are_halves_told
        return put.is_halved

    def _judge_whole(self, put: Put, pointer: int) -> None:
        if put in self.pointers:
            self.failures.append(f"{put} is there twice, again at pointer {pointer}")
        elif put.is_refused and not self._may_return(put):
            self.failures.append(f"{put} was refused, or had gone, and is there")
        elif put.pointer not in {None, pointer}:
            self.failures.append(f"{put} was acknowledged at {put.pointer}, and is at {pointer}")
        if put.number <= self._last_numbers.get(put.producer, -1):
            self.failures.append(f"{put} lies behind a later one of its producer")
        self._last_numbers[put.producer] = put.number
        self.pointers[put] = pointer


def _stored_part(put: Put, records: Sequence[Record], start: int) -> int:
    """Tell how many messages of a put lie at a place, one behind the other."""
    first_pointer = records[start][0]
    for at, message in enumerate(put.messages):
        if start + at >= len(records) or records[start + at] != (first_pointer + at, message):
            return at
    return len(put.messages)


def _name(message: bytes) -> bytes:
    """Return the part of a message that tells of which put it is, though the rest be torn."""
    return b".".join(message.partition(b":")[0].split(b".")[:2])


class Sender:
    """Makes up the puts of one producer; each message tells whose it is."""

    def __init__(self, journal: Journal, random: Random) -> None:
        journal.senders_count += 1
        self._journal = journal
        self._producer = journal.senders_count
        self._random = random
        self._number = 0
        self._filler = random.randbytes(1 << 16)

    def begin(self, topic: bytes, count_max: int = 20, length_max: int = 120) -> Put:
        """Note a put of 1 to `count_max` messages, before it is sent.

        Its messages are mostly of one size, as a fast producer's are, else of mixed sizes.
        """
        random = self._random
        count = random.randint(1, count_max)
        length = random.randint(0, length_max)
        is_mixed = random.random() < 0.3
        self._number += 1
        messages = [
            self._message(at, random.randint(0, length_max) if is_mixed else length)
            for at in range(count)
        ]
        put = Put(topic, self._producer, self._number, messages)
        self._journal.puts.setdefault(topic, []).append(put)
        return put

    def _message(self, at: int, length: int) -> bytes:
        start = self._random.randrange(len(self._filler) - length)
        name = b"%d.%06d.%04d:" % (self._producer, self._number, at)
        return name + self._filler[start : start + length]
