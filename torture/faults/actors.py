"""Any actor of a node is killed at any time: service is back within 200 ms, with everything."""

from torture.checker import Journal, Sender
from torture.layers.simulated_disk import SimulatedDisk
from torture.scenario import Run, Trial
from torture.simulated_node import SimulatedNode

_KILLS = 20
_BACK_MAX_S = 0.2
_STEP_S = 0.005
_TOPICS = (b"a", b"b", b"c")


def play(run: Run) -> None:
    """Kill `_KILLS` actors of one node in each trial, with puts under way."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    senders = [Sender(journal, random) for _ in range(4)]
    node = SimulatedNode(SimulatedDisk(), random.choice(["flushed", "fsync"]), count_limit=20)
    for _ in range(_KILLS):
        for number, sender in enumerate(senders):
            node.begin_put(number, sender.begin(random.choice(_TOPICS)))
        victims = ["topic_registry", "appendix_sup", *node.servers()]
        node.kill_actor(random.choice(victims), random.choice(["kill", "a bug"]))
        put = senders[0].begin(random.choice(_TOPICS))
        node.begin_put(0, put)
        waited_s = 0.0
        while put.pointer is None and not put.is_refused and waited_s < 5:
            node.advance(_STEP_S)
            waited_s += _STEP_S
        run.measure("back_s", waited_s)
        is_back = waited_s <= _BACK_MAX_S and not put.is_refused
        trial.expect(is_true=is_back, otherwise=f"not back after {waited_s:.3f} s")
        # Faster than this a topic would be read only for a while, as it should.
        node.advance(12.1)
        trial.failures += journal.judge(node.read_all())
    node.stop()
    trial.note(kills=_KILLS, acked=journal.acked_count())
