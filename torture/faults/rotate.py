"""Writers, readers and rotation race on one topic: nothing is missing, nothing is there twice."""

import threading
import time
from random import Random

from poe.protocol import Socket
from torture.checker import Journal, Record
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_all

_TOPIC = b"raced"
_WRITERS = 64
_LIMITS = (1, 2, 49, 50, 51, 1000)
_MESSAGES_PER_TRIAL = {"ci": 30_000, "release": 100_000}
_PATIENCE_S = 10.0


def play(run: Run) -> None:
    """Write so many messages in each trial, into segments of 50, with a tick each 10 ms."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    journal = Journal()
    folder = run.folder / f"data-{trial.number}"
    with Server(folder, count_limit=50, check_interval=0.01, worker_timeout=0.05) as server:
        producers = [
            Producer(
                server,
                journal,
                _TOPIC,
                Random(trial.random.random()),
                window=4,
                puts_max=_MESSAGES_PER_TRIAL[run.column] // _WRITERS // 5,
                count_max=9,
                length_max=20,
            )
            for _ in range(_WRITERS)
        ]
        readers = [_Follower(server.connect(), limit) for limit in _LIMITS]
        for thread in (*producers, *readers):
            thread.start()
        for producer in producers:
            producer.join()
            trial.expect(is_true=not producer.is_gone, otherwise="a producer lost its connection")
        with server.connect() as client:
            stored = read_all(client, _TOPIC)
            segments_count = len(client.control("segments", topic=_TOPIC))
        trial.failures += journal.judge({_TOPIC: stored})
        for reader in readers:
            reader.finish_at = stored[-1][0]
        _join_while_they_go_on(readers)
        for reader in readers:
            trial.expect(
                is_true=reader.records == stored,
                otherwise=f"a reader with limit {reader.limit} saw {len(reader.records)} records, "
                f"not the {len(stored)} that there are",
            )
    trial.note(messages=len(stored), segments=segments_count, readers=len(readers))


def _join_while_they_go_on(readers: list["_Follower"]) -> None:
    """Wait for the end of all, or until none has seen anything new for a while."""
    seen_count, deadline_s = -1, 0.0
    while alive := [reader for reader in readers if reader.is_alive()]:
        count = sum(len(reader.records) for reader in readers)
        if count > seen_count:
            seen_count, deadline_s = count, time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline_s:
            return
        alive[0].join(0.1)


class _Follower(threading.Thread):
    """Reads all the time from where it was, until it has seen the last pointer."""

    def __init__(self, client: Socket, limit: int) -> None:
        super().__init__(daemon=True)
        self.limit = limit
        self.records: list[Record] = []
        self.finish_at: int | None = None
        self._client = client

    def run(self) -> None:
        pointer = 0
        with self._client as client:
            while self.finish_at is None or pointer < self.finish_at:
                found = client.read(_TOPIC, pointer, self.limit)
                self.records += found
                if found:
                    pointer = found[-1][0]
                else:
                    client.wait(_TOPIC, pointer, 0.05)
