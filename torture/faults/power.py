"""The power fails while a whole server is under load; with `ack="fsync"` nothing is lost."""

import time
from pathlib import Path
from random import Random

from torture import product
from torture.checker import Journal
from torture.disk import PoweredDisk, powered_disk
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_TOPICS = (b"one", b"two", b"three")
_TRIALS_PER_FOLDER = 10
_ACKED_MIN = 30
_PATIENCE_S = 5.0


def play(run: Run) -> None:
    """Cut the power, start again in another boot, check, and go on with the same folder."""
    journal = Journal()

    def cut_once(trial: Trial) -> None:
        nonlocal journal
        if trial.number % _TRIALS_PER_FOLDER == 0:
            journal = Journal()
        folder = disk.folder / f"life-{trial.number // _TRIALS_PER_FOLDER}"
        # A disk that takes its time, as all but this one do: puts come while a sync is running.
        sync_s = trial.random.choice([0.0, 0.02])
        with _start(run, folder, disk, sync_s) as server:
            # What the last trial left is judged before more is put on top of it.
            trial.failures += journal.judge(read_topics(server), are_halves_told=product.HAS_SUMS)
            _load_and_cut(server, journal, trial, disk, sync_s)
        disk.restore()
        with _start(run, folder, disk) as server:
            trial.failures += journal.judge(read_topics(server), are_halves_told=product.HAS_SUMS)

    with powered_disk(run.folder) as disk:
        run.each(cut_once)


def _start(run: Run, folder: Path, disk: PoweredDisk, sync_s: float = 0.0) -> Server:
    return Server(
        folder,
        boot=disk.boot,
        sync_s=sync_s,
        min_free=0,
        log=run.folder / "server.log",
        ack="fsync",
        count_limit=1000,
        check_interval=0.02,
        worker_timeout=0.05,
    )


def _load_and_cut(
    server: Server, journal: Journal, trial: Trial, disk: PoweredDisk, sync_s: float
) -> None:
    random = trial.random
    acked_before = journal.acked_count()
    # One that is alone on a topic puts nothing during a sync: all of its window waits for it.
    producers = [
        Producer(server, journal, topic, Random(random.random()), window=window)
        for topic in _TOPICS[: random.randint(1, 3)]
        for window in ((8, 1, 3) if sync_s else (8,))
    ]
    for producer in producers:
        producer.start()
    if sync_s:  # so that there are groups, on a machine that does other things besides, too
        deadline_s = time.monotonic() + _PATIENCE_S
        while producers[0].acked_count < _ACKED_MIN and time.monotonic() < deadline_s:
            producers[0].join(0.005)
    producers[0].join(0.005 + 0.1 * random.random())
    # Between two system calls: a sync that is under way while the file system shuts down seems to
    # return as if it had been done. Only the last put of a topic was ever missing, and never so.
    server.freeze()
    disk.cut(has_flushed_log=random.random() < 0.3)
    server.kill()
    for producer in producers:
        producer.join()
    trial.note(cuts=1, acked=journal.acked_count() - acked_before)
