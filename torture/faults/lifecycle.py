"""Segments fall asleep, wake, are sealed and expire while everybody reads and writes."""

import threading
import time
from bisect import bisect_left, bisect_right
from itertools import pairwise
from random import Random

from poe.errors import PoeError
from poe.protocol import Socket
from torture.checker import Journal, Record
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_TOPICS = (b"one", b"two", b"three")
_TRIAL_S = 5.0
_MAX_AGE_S = 1.0
_PAUSES_S = (0.0, 0.005, 0.05, 0.3)


def play(run: Run) -> None:
    """Let it go on for `_TRIAL_S` in each trial."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    folder = trial.folder / "data"
    with Server(
        folder,
        count_limit=30,
        worker_timeout=0.01,
        check_interval=0.01,
        max_age=_MAX_AGE_S,
    ) as server:
        producers = [
            Producer(server, journal, topic, Random(random.random()), window=2) for topic in _TOPICS
        ]
        readers = [
            _Reader(server.connect(), topic, Random(random.random()))
            for topic in _TOPICS
            for _ in range(4)
        ]
        for thread in (*producers, *readers):
            thread.start()
        time.sleep(_TRIAL_S)
        for producer in producers:
            producer.stop()
            told = f"{len(producer.refused)} puts were refused: {producer.refused[:1]}"
            trial.expect(is_true=not producer.refused and not producer.is_gone, otherwise=told)
        for reader in readers:
            reader.has_to_stop.set()
            reader.join(20)
            trial.failures += reader.failures
        server.stop()
        oldest_us = _oldest_us()
    # What expires between two reads of a judge would look like a hole.
    with Server(folder) as server:
        stored = read_topics(server)
    for reader in readers:
        trial.failures += reader.skipped(journal)
    # Only what is old enough may be gone, even of what expired while it was read.
    trial.failures += journal.judge(
        stored, may_lose=lambda put: (put.pointer or 0) < oldest_us, lost_end="oldest"
    )
    trial.note(
        acked=sum(producer.acked_count for producer in producers),
        reads=sum(reader.count for reader in readers),
    )


def _oldest_us() -> int:
    """Tell the pointer from which on nothing may be deleted now."""
    return time.time_ns() // 1000 - int(_MAX_AGE_S * 1_000_000)


class _Reader(threading.Thread):
    """Reads at its own pace; what it sees must rise, and be whole."""

    def __init__(self, client: Socket, topic: bytes, random: Random) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.failures: list[str] = []
        self._steps: list[tuple[int, int]] = []
        """From a pointer that was too young to be deleted to the next one that was read."""
        self.has_to_stop = threading.Event()
        self._client, self._topic, self._random = client, topic, random

    def run(self) -> None:
        pointer = 0
        with self._client as client:
            while not self.has_to_stop.is_set() and not self.failures:
                try:
                    found = client.read(self._topic, pointer, self._random.choice([1, 7, 1000]))
                except PoeError as error:
                    self.failures.append(f"a read of {self._topic!r} failed: {error}")
                    return
                self.count += 1
                self._look(pointer, found)
                pointer = found[-1][0] if found else self._random.choice([pointer, 0])
                time.sleep(self._random.choice(_PAUSES_S))

    def _look(self, pointer: int, found: list[Record]) -> None:
        pointers = [pointer, *(each for each, _ in found)]
        if pointers != sorted(set(pointers)):
            self.failures.append(f"pointers of {self._topic!r} do not rise")
        oldest_us = _oldest_us()
        self._steps += [(a, b) for a, b in pairwise(pointers) if a > oldest_us]

    def skipped(self, journal: Journal) -> list[str]:
        """Tell the messages that it was not given, though they were there."""
        known = sorted(
            put.pointer - number
            for put in journal.puts[self._topic]
            if put.pointer is not None
            for number in range(len(put.messages))
        )
        return [
            f"a reader of {self._topic!r} was led from {a} to {b}, past others"
            for a, b in self._steps
            if bisect_right(known, a) < bisect_left(known, b)
        ][:3]
