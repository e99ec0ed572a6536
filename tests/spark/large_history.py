"""A history of a cluster, as large as is wanted: what simulated ones did, on many queues at once.

usage: python -m tests.spark.large_history FILE [--events N] [--seed SEED]
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from torture.cluster_history import Event, HistoryFile
from torture.faults.cluster import simulate
from torture.scenario import Run, Trial
from torture.table import SCENARIOS

HOUR_US = 3600 * 1_000_000
CLUSTERS_COUNT = 6
NODE_KINDS = {"start", "kill", "crash", "down", "forget", "fault", "heal", "jump"}
"""What happens to a node, and so to all its queues."""


def large_history(events_count: int, seed: int = 1) -> list[Event]:
    """Return at least so many events, which break no rule."""
    run = Run(SCENARIOS["cluster"], seed, CLUSTERS_COUNT, "ci", Path())
    chain = chained(simulate(Trial(run, number)).events for number in range(CLUSTERS_COUNT))
    of_nodes = [each for each in chain if each.kind in NODE_KINDS]
    others = [each for each in chain if each.kind not in NODE_KINDS]
    copies = range(-(-(events_count - len(of_nodes)) // len(others)))
    return numbered([*of_nodes, *(renamed(each, f"c{copy}") for copy in copies for each in others)])


def chained(histories: Iterable[list[Event]]) -> list[Event]:
    """Return what happened to several clusters, one after the other, as if they had been one."""
    chain: list[Event] = []
    begin_us = 0
    for number, events in enumerate(histories):
        moved_us = begin_us - min(each.at_us for each in events)
        moved = [
            renamed(each, f"h{number}")._replace(
                at_us=each.at_us + moved_us,
                node=each.node and f"{each.node}h{number}",
                peers=tuple(f"{peer}h{number}" for peer in each.peers),
            )
            for each in events
        ]
        begin_us = max(each.at_us for each in moved) + HOUR_US
        lives = {(each.node, each.life): None for each in moved if each.kind == "start"}
        chain += [*moved, *(Event(begin_us, "kill", *life, state="kept") for life in lives)]
    return numbered(chain)


def renamed(event: Event, suffix: str) -> Event:
    """Return the event, of a queue, a client and messages with other names."""
    names = (message.partition("#") for message in event.messages)
    return event._replace(
        queue=event.queue and event.queue + suffix,
        client=event.client and event.client + suffix,
        messages=tuple(f"{name}{suffix}#{sum_}" for name, _, sum_ in names),
        text=event.text + suffix,
    )


def numbered(events: list[Event]) -> list[Event]:
    """Return the events, of which no two operations on different queues have the same number."""
    numbers: dict[tuple[str, int], int] = {}
    return [
        each._replace(op=each.op and numbers.setdefault((each.queue, each.op), len(numbers) + 1))
        for each in events
    ]


def write(path: Path, events: Iterable[Event]) -> Path:
    """Write the events into a file."""
    file = HistoryFile(path)
    for each in events:
        file.add(each)
    file.close()
    return path


def main() -> None:
    """Write a history into a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.file, large_history(arguments.events, arguments.seed))


if __name__ == "__main__":
    main()
