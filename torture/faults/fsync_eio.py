"""A disk whose fsync or write fails: what was not synced is not acknowledged, then or later.

A single failing sync nobody notices: what waited for it is put again, and is there once. One that
goes on is told. The power is cut after it, so that what the failing sync has not written is really
gone. A second sync of the same file, as kernels are, would say that all is well.
"""

import errno
import time
from collections.abc import Callable
from random import Random

from torture import product
from torture.checker import Journal
from torture.disk import powered_disk
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics
from torture.shim import Call, Shim

_TOPICS = (b"one", b"two")
_FAULTS: tuple[tuple[Call, bool], ...] = (("sync", False), ("sync", True), ("pwrite", False))
_PATIENCE_S = 20.0
_PAUSE_S = 0.02
"""Between puts while a topic may be read-only: its disk is tried once a second."""


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
            call, is_for_ever = random.choice(_FAULTS)
            with Server(environment=shim.environment, **options(trial)) as server:  # type: ignore[arg-type]  # of several types
                producers = [
                    Producer(server, journal, topic, Random(random.random()), window=4)
                    for topic in _TOPICS
                ]
                for producer in producers:
                    producer.start()
                producers[0].join(0.05)
                shim.fail(call, random.randrange(20), errno.EIO, is_for_ever=is_for_ever)
                _wait_for(lambda: shim.failed_count > 0)
                producers[0].join(0.1)
                refused = sum(len(producer.refused) for producer in producers)
                if is_for_ever:
                    trial.expect(is_true=refused > 0, otherwise="no put was told of the fault")
                    _expect_to_be_told(trial, server)
                elif call == "sync":
                    trial.expect(is_true=not refused, otherwise="a put was not put again")
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
            if trial.failures:
                trial.failures.append(f"{call} fails, {is_for_ever=}")
            trial.note(faults=1, refused=refused, acked=journal.acked_count())

        run.each(fail_once)


def _expect_to_be_told(trial: Trial, server: Server) -> None:
    """Expect that the server says of both topics that they can only be read."""

    def told() -> set[bytes]:
        with server.connect() as client:
            return set(client.control("health")["read_only"])

    is_told = _wait_for(lambda: told() == set(_TOPICS))
    trial.expect(is_true=is_told, otherwise="the server does not say that it takes no puts")


def _expect_service(trial: Trial, server: Server, journal: Journal) -> None:
    """Expect that both topics take puts again, by themselves."""
    producers = [
        Producer(server, journal, topic, Random(trial.random.random()), window=1, pause_s=_PAUSE_S)
        for topic in _TOPICS
    ]
    for producer in producers:
        producer.start()
    is_served = _wait_for(lambda: all(producer.acked_count for producer in producers))
    trial.expect(is_true=is_served, otherwise="puts are refused for good")
    for producer in producers:
        producer.stop()


def _wait_for(condition: Callable[[], bool]) -> bool:
    """Wait until it holds; tell whether it does."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True
