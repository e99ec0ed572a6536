"""The power fails while much is not synced: with `ack="flushed"`, the default, and with `memory`.

Just before, the kernel writes some pages of some files, as it may at any time. What is left is an
earlier point in time of each topic, nothing of it is told as damaged, and with `flushed` it is not
much earlier.
"""

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

from poe.protocol import PutId
from poe.storage import check_segments, stopped_store
from torture.checker import Journal, Put
from torture.disk import FileSystem, PoweredDisk, powered_disk, write_back_parts
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics
from torture.workload import Ack

_TOPICS = (b"one", b"two", b"three", b"four")
_LIVES_PER_FOLDER = 4
_SIZE_MIB = 256
"""What one history puts must fit, also on a fast machine. The image is sparse."""
_SLACK_S = 1.0
"""A sync may take as long, on a machine that does other things besides."""


def play(run: Run, kind: FileSystem) -> None:
    """Cut the power, start again in another boot, check, and go on with the same folder."""
    history: _History | None = None

    def cut_once(trial: Trial) -> None:
        nonlocal history
        if history is None or trial.number % _LIVES_PER_FOLDER == 0 or history.has_failed:
            if history is not None:
                history.remove()
            history = _History(disk, run.folder, trial)
        history.live(trial)

    with powered_disk(run.folder, _SIZE_MIB, kind) as disk:
        run.each(cut_once)


class _History:
    """One folder, and the lives of the servers on it."""

    def __init__(self, disk: PoweredDisk, folder: Path, trial: Trial) -> None:
        self._disk = disk
        self._folder = disk.folder / f"life-{trial.number}"
        self._log = folder / f"{trial.number}.log"
        self._journal = Journal()
        random = trial.random
        acks: list[Ack] = ["flushed", "flushed", "memory"]
        self._ack = random.choice(acks)
        self._sync_interval_s = random.choice([1.0, 0.2])
        # The defaults, or segments that are full all the time.
        self._options: dict[str, Any] = random.choice(
            [
                {},
                {"count_limit": 1000, "check_interval": 0.02},
                {"count_limit": 50},
            ]
        )
        self._cut_s = 0.0
        self.has_failed = False

    def live(self, trial: Trial) -> None:
        """Start on what the last life has left, put, lose the power, and look what is left."""
        self.has_failed = True  # unless it gets to the end
        with self._start() as server:
            # What the last trial left is judged before more is put on top of it.
            trial.failures += self._journal.judge(read_topics(server))
            producers = self._load_and_cut(server, trial)
        self._disk.restore()
        self._log.unlink()
        with self._start() as server:
            stored = read_topics(server)
            trial.failures += self._journal.judge(stored, may_lose=self._may_lose)
            for producer in producers:
                self._check_sequence(server, producer, trial)
            server.stop()
        told = [line for line in self._log.read_text().splitlines() if " ERROR " in line]
        trial.failures += [f"{self._ack}: logged {line}" for line in told[:3]]
        self._check_files(trial)
        self.has_failed = bool(trial.failures)
        if trial.failures:
            trial.failures.append(f"of {self._ack}, {self._options}")

    def remove(self) -> None:
        """Give its room on the disk back."""
        shutil.rmtree(self._folder)

    def _start(self) -> Server:
        return Server(
            self._folder,
            boot=self._disk.boot,
            min_free=0,
            log=self._log,
            ack=self._ack,
            sync_interval=self._sync_interval_s,
            worker_timeout=0.3,
            **self._options,
        )

    def _load_and_cut(self, server: Server, trial: Trial) -> list[Producer]:
        random = trial.random
        acked_before = self._journal.acked_count()
        producers = [
            Producer(
                server,
                self._journal,
                topic,
                Random(random.random()),
                window=random.choice([1, 8]),
                length_max=random.choice([60, 400]),
                pause_s=random.choice([0.0, 0.01]),
                producer=random.randbytes(16) if number % 2 else None,
            )
            for number, topic in enumerate(_TOPICS[: random.randint(2, len(_TOPICS))])
        ]
        for producer in producers:
            producer.start()
        producers[0].join(random.choice([0.1, 0.7, 1.5]) + 0.3 * random.random())
        server.freeze()
        self._cut_s = time.monotonic()
        write_back_parts(self._folder, random, synced_share=random.choice([0.0, 0.1, 0.3]))
        self._disk.cut(has_flushed_log=random.random() < 0.3)
        server.kill()
        for producer in producers:
            producer.join()
        trial.note(cuts=1, acked=self._journal.acked_count() - acked_before)
        return [producer for producer in producers if producer.puts]

    def _may_lose(self, put: Put) -> bool:
        """Tell what a power cut may take: with `flushed`, what was put since about a sync ago."""
        window_s = 2 * self._sync_interval_s + _SLACK_S
        is_new = put.acked_s is None or put.acked_s > self._cut_s - window_s
        return self._ack == "memory" or put.is_unanswered or is_new

    def _check_sequence(self, server: Server, producer: Producer, trial: Trial) -> None:
        """Expect that the server knows exactly the puts that are there, and takes the next one."""
        assert producer.producer is not None
        is_there = [put.pointer is not None for put in producer.puts]
        count = is_there.index(False) if False in is_there else len(is_there)
        with server.connect() as client:
            last = client.last_put(producer.topic, producer.producer)
            known = 0 if last is None else last.sequence + 1
            trial.expect(
                is_true=count == known == sum(is_there),
                otherwise=f"{producer.topic!r}: {sum(is_there)} sequenced puts are there, "
                f"{count} of them without a gap, {known} are known",
            )
            for number in range(max(known - 1, 0), min(known + 1, len(producer.puts))):
                put = producer.puts[number]
                put_id = PutId(producer.producer, 0, number)
                pointer = client.write(producer.topic, put.messages, put_id)
                trial.expect(
                    is_true=put.pointer in {None, pointer},
                    otherwise=f"{put} is at {put.pointer}, and was put again at {pointer}",
                )
                put.pointer, put.is_refused = pointer, False
                put.acked_s = time.monotonic()

    def _check_files(self, trial: Trial) -> None:
        """Expect that a check of the stopped store finds all sound."""
        with stopped_store(self._folder) as files:
            for check in check_segments(files):
                trial.failures += [f"{check.path}: {damage}" for damage in check.damage]
