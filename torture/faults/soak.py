"""Everything for as long as it is wanted: a fault that is chosen at random, one after the other."""

from torture.scenario import Run, Scenario, Trial, Unavailable
from torture.scenario import play as play_scenario

_VICTIMS = ("crash", "crash-nested", "power", "power-store", "enospc", "fsync-eio", "fds", "sim")


def play(run: Run) -> None:
    """Do a trial of another scenario in each."""
    from torture.table import SCENARIOS

    def once(trial: Trial) -> None:
        scenario: Scenario = SCENARIOS[trial.random.choice(_VICTIMS)]
        try:
            other = play_scenario(scenario, seed=trial.random.randrange(1 << 32), count=2)
        except Unavailable:
            trial.note(skipped=1)
            return
        trial.failures += [f"{scenario.name}, seed {other.seed}: {f}" for f in other.failures]
        trial.note(**{scenario.name: 1})

    run.each(once)
