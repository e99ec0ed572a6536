"""The Nth operation on files fails, for every N: once or for ever, with each error, or short."""

import contextlib
from random import Random

from poe.errors import PoeError
from torture.checker import Journal, Sender
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import ERRORS
from torture.scenario import Run, Trial
from torture.simulated_node import SimulatedNode
from torture.workload import Ack

_TOPICS = (b"a", b"b")
_ACKS: tuple[Ack, ...] = ("flushed", "fsync")
_REPAIR_S = 3.0
_EVERY = 13
"""Of the operations one in so many fails in CI."""


def play(run: Run) -> None:
    """Make up a life of a node in each trial, and live it with a fault at each operation."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    seed = trial.random.random()
    ack = _ACKS[trial.number % len(_ACKS)]
    # The first is lived without a fault, to count what may fail.
    operations_count = _live(trial, seed, ack, nth=1 << 30, error_number=0, is_for_ever=False)
    trial.note(operations=operations_count)
    for nth in run.thinned(range(operations_count), _EVERY):
        for error_number in ERRORS:
            for is_for_ever in (False, True):
                _live(trial, seed, ack, nth=nth, error_number=error_number, is_for_ever=is_for_ever)
                trial.note(lives=1)
                if trial.failures:
                    trial.failures.append(f"at operation {nth}, {error_number=}, {is_for_ever=}")
                    return


def _live(
    trial: Trial, seed: float, ack: Ack, *, nth: int, error_number: int, is_for_ever: bool
) -> int:
    """Live once; note what is wrong, and tell how many operations on files there were."""
    random = Random(seed)
    journal = Journal()
    sender = Sender(journal, random)
    disk = SimulatedDisk()
    node = SimulatedNode(disk, ack, count_limit=20)
    disk.failing.fail(nth, error_number, is_for_ever=is_for_ever)
    for number in range(12):
        put = sender.begin(_TOPICS[number % 2], count_max=10, length_max=30)
        node.begin_put(number, put)
        node.advance((0.0, 0.6, 3.0)[number % 3])  # nothing; a rotation; hibernation
        with contextlib.suppress(PoeError):
            node.read(put.topic, 0, 3)
        if number == 7:
            _restart(node)
    operations_count = disk.failing.count
    disk.failing.heal()
    node.advance(_REPAIR_S)
    trial.failures += journal.judge(node.read_all())
    for topic in _TOPICS:
        put = sender.begin(topic)
        node.begin_put(0, put)
        node.advance(_REPAIR_S)
        trial.expect(is_true=put.pointer is not None, otherwise=f"{topic!r} takes no puts any more")
    node.abandon(disk.kill)
    node.start()
    trial.failures += journal.judge(node.read_all())
    node.stop()
    return operations_count


def _restart(node: SimulatedNode) -> None:
    """Stop and start; a start that the fault refuses is tried again on a disk that works."""
    node.stop()
    try:
        node.start()
    except PoeError:
        node.disk.kill()
        node.disk.failing.heal()
        node.start()
