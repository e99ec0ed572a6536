"""The wall clock jumps, in a life and between two: every put is accepted, in order."""

from torture.checker import Journal, Sender
from torture.layers.simulated_disk import SimulatedDisk
from torture.scenario import Run, Trial
from torture.simulated_node import SimulatedNode

_HOUR_US = 3_600_000_000
_YEAR_US = 365 * 24 * _HOUR_US
_JUMPS_US = (-_HOUR_US, -10 * _YEAR_US, 10 * _YEAR_US, 1_000_000, -1_000_000, -1, 1)
_STEPS = 50


def play(run: Run) -> None:
    """Put, jump, put, restart: `_STEPS` times in each trial."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    sender = Sender(journal, random)
    node = SimulatedNode(SimulatedDisk(), "flushed", count_limit=30)
    for _ in range(_STEPS):
        node.wall.offset_us += random.choice(_JUMPS_US)
        if random.random() < 0.3:
            node.stop() if random.random() < 0.5 else node.abandon(node.disk.kill)
            node.disk.kill()
            node.start()
        for _ in range(3):
            put = sender.begin(random.choice([b"a", b"b"]))
            node.begin_put(0, put)
            node.advance(random.choice([0.0, 0.6]))
            trial.expect(is_true=put.pointer is not None, otherwise=f"{put} was not accepted")
        trial.failures += journal.judge(node.read_all())
        if trial.failures:
            break
    node.stop()
    trial.note(jumps=_STEPS, acked=journal.acked_count())
