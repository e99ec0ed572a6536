"""Topics that are served, ended and damaged by chance; each message keeps its ordinal."""

from torture.numbered_topic import NumberedTopic, steps
from torture.scenario import Run, Trial


def play(run: Run) -> None:
    """Lead a topic through a life in each trial."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    topic = NumberedTopic()
    life = steps(trial.random)
    for number, step in enumerate(life):
        try:
            step(topic)
            topic.check()
        except AssertionError as error:
            trial.failures.append(f"step {number} of {len(life)}: {error}")
            return
        trial.note(steps=1)
    trial.note(messages=len(topic.given))
