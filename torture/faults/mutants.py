"""A scenario against all of its mutants: each must make it fail, or it proves nothing."""

from torture import mutants
from torture.scenario import Run, Trial
from torture.scenario import play as play_scenario
from torture.table import SCENARIOS


def play(run: Run, name: str) -> None:
    """Break the product in each trial in another way."""
    scenario = SCENARIOS[name]

    def once(trial: Trial) -> None:
        mutant = scenario.mutants[trial.number]
        with mutants.chosen(mutant):
            count = scenario.bite_count or scenario.ci
            other = play_scenario(scenario, seed=run.seed, count=count, mutant=mutant)
        trial.expect(is_true=other.failed_count > 0, otherwise=f"{mutant} was not noticed")
        trial.note(trials=other.passed_count + other.failed_count, failed=other.failed_count)

    for number in range(len(scenario.mutants)):
        run.one(number, once)
