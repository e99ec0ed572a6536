"""A disk that fills under load: no false acknowledgement, reads go on, room again is enough."""

import time
from random import Random

from poe.errors import PoeError
from torture.checker import Journal, Sender
from torture.disk import SmallDisk, small_disk
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_all, read_topics

_TOPICS = (b"one", b"two")
_RESUME_MAX_S = 2.0


def play(run: Run) -> None:
    """Fill the disk, check, give room back, check; then kill, start again, check."""
    for number in run.trials():
        kind = ("tmpfs", "ext4")[number % 2]
        with small_disk(run.folder / f"small-{number}", kind) as disk:
            run.one(number, lambda trial, disk=disk: _trial(run, trial, disk))  # type: ignore[misc]  # bound now


def _trial(run: Run, trial: Trial, disk: SmallDisk) -> None:
    random = trial.random
    journal = Journal()
    folder = disk.folder / "data"
    options = {
        "log": run.folder / "server.log",
        "min_free": random.choice([0, 2 << 20]),
        "count_limit": random.choice([300, 3000]),
        "check_interval": 0.02,
        "worker_timeout": 0.05,
    }
    with Server(folder, **options) as server:  # type: ignore[arg-type]  # of several types
        producers = [
            Producer(server, journal, topic, Random(random.random()), length_max=300)
            for topic in _TOPICS
        ]
        for producer in producers:
            producer.start()
        producers[0].join(0.02 + 0.1 * random.random())
        disk.fill()
        # The disk is asked once a second.
        producers[0].join(1.2 if options["min_free"] else 0.3)
        refused = sum(len(producer.refused) for producer in producers)
        trial.expect(is_true=refused > 0, otherwise="no put was told that the disk is full")
        for producer in producers:
            producer.stop()
        trial.failures += journal.judge(read_topics(server))
        disk.free()
        run.measure("resumed_s", _resume(trial, server, journal))
        trial.failures += journal.judge(read_topics(server))
        trial.expect(is_true=server.is_alive, otherwise="the server has ended")
    with Server(folder, **options) as server:  # type: ignore[arg-type]  # as above
        trial.failures += journal.judge(read_topics(server))
    trial.note(refused=refused, acked=journal.acked_count())


def _resume(trial: Trial, server: Server, journal: Journal) -> float:
    """Put onto each topic until it is taken; tell how long that took."""
    started_s = time.monotonic()
    sender = Sender(journal, trial.random)
    with server.connect() as client:
        for topic in _TOPICS:
            put = sender.begin(topic)
            while put.pointer is None:
                try:
                    put.pointer = client.write(topic, put.messages)
                except PoeError:
                    if time.monotonic() - started_s > _RESUME_MAX_S:
                        trial.failures.append(f"{topic!r} takes no puts 2 s after room is back")
                        return time.monotonic() - started_s
                    time.sleep(0.01)
            read_all(client, topic)
    return time.monotonic() - started_s
