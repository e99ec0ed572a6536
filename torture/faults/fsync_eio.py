"""A disk whose fsync fails: what was not synced is not acknowledged, then or later.

The power is cut after it, so that what the failing sync has not written is really gone. A second
sync of the same file, as kernels are, would say that all is well.
"""

import errno
import time
from random import Random

from torture import product
from torture.checker import Journal
from torture.disk import powered_disk
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics
from torture.shim import Shim

_TOPICS = (b"one", b"two")


def play(run: Run) -> None:
    """Let a sync fail under load, go on, cut the power, and look what is left."""
    with powered_disk(run.folder) as disk:
        shim = Shim(run.folder, disk.folder)

        def options(trial: Trial) -> dict[str, object]:
            return {
                "folder": disk.folder / str(trial.number),
                "log": run.folder / "server.log",
                "boot": disk.boot,
                "min_free": 0,
                "ack": "fsync",
                "check_interval": 0.02,
            }

        def fail_once(trial: Trial) -> None:
            random = trial.random
            journal = Journal()
            with Server(environment=shim.environment, **options(trial)) as server:  # type: ignore[arg-type]  # of several types
                producers = [
                    Producer(server, journal, topic, Random(random.random()), window=4)
                    for topic in _TOPICS
                ]
                for producer in producers:
                    producer.start()
                producers[0].join(0.05)
                is_for_ever = random.random() < 0.3
                shim.fail("sync", random.randrange(20), errno.EIO, is_for_ever=is_for_ever)
                deadline_s = time.monotonic() + 10
                while not shim.failed_count and time.monotonic() < deadline_s:
                    time.sleep(0.005)
                producers[0].join(0.1)
                refused = sum(len(producer.refused) for producer in producers)
                trial.expect(is_true=refused > 0, otherwise="no put was told of the failing sync")
                shim.heal()
                _expect_service(trial, server, journal)
                trial.expect(is_true=server.is_alive, otherwise="the server has ended")
                server.freeze()  # for the reason told in power.py
                disk.cut()
                server.kill()
                for producer in producers:
                    producer.join()
            disk.restore()
            with Server(**options(trial)) as server:  # type: ignore[arg-type]  # as above
                stored = read_topics(server)
                trial.failures += journal.judge(stored, are_halves_told=product.HAS_SUMS)
            trial.note(failed_syncs=1, refused=refused, acked=journal.acked_count())

        run.each(fail_once)


def _expect_service(trial: Trial, server: Server, journal: Journal) -> None:
    """Expect that both topics take puts again, by themselves."""
    producers = [
        Producer(server, journal, topic, Random(trial.random.random()), window=1, puts_max=40)
        for topic in _TOPICS
    ]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(20)
        trial.expect(is_true=producer.acked_count > 0, otherwise="puts are refused for good")
