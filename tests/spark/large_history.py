"""A history of a cluster, as large as is wanted: what simulated ones did, on many queues at once.

usage: python -m tests.spark.large_history FILE [--events N] [--seed SEED] [--log]

With `--log` it is one of replicated topics: what is a row there, and a record of one, is an event.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from torture.cluster_history import Event, HistoryFile
from torture.faults import log
from torture.faults.cluster import simulate
from torture.log_history import LogHistory, Row, to_rows, write_rows
from torture.scenario import Run, Trial
from torture.table import SCENARIOS

HOUR_US = 3600 * 1_000_000
CLUSTERS_COUNT = 6
LOG_TOPICS_COUNT = 9
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


def large_log_history(events_count: int, seed: int = 1) -> Iterator[Row]:
    """Yield rows of at least so many events, which break no rule.

    Each topic is what a simulated one was again and again, an hour later each time.
    """
    histories = _untrimmed(seed)
    told_count = 0
    for number in count():
        if told_count >= events_count:
            return
        hours, at = divmod(number, LOG_TOPICS_COUNT)
        for row in again(histories[at % len(histories)], f"h{at}", hours):
            told_count += 1 + len(row.get("records", ()))
            yield row


def _untrimmed(seed: int) -> list[LogHistory]:
    """Return some histories in which nothing was trimmed: a trim excuses all that lies before."""
    run = Run(SCENARIOS["log"], seed, 1, "ci", Path())
    histories = (log.simulate(Trial(run, number)) for number in count())
    return list(islice((each for each in histories if not each.trims), CLUSTERS_COUNT // 2))


def again(history: LogHistory, suffix: str, hours: int) -> Iterator[Row]:
    """Yield what happened, on topics of other names, so many hours later, by other clients."""
    shift_us = hours * HOUR_US
    first = min((copy.records[0][0] for copy in history.copies if copy.records), default=1)
    later = f"{suffix}.{hours}"
    counts = {(copy.node, copy.topic): len(copy.records) for copy in history.copies}

    def moved(record: Row) -> Row:
        return {"pointer": record["pointer"] + shift_us, "message": record["message"] + later}

    for row in to_rows(history):
        if row["kind"] == "copy" and hours:
            continue
        changed: dict[str, Any] = {}
        if "topic" in row:
            changed["topic"] = row["topic"] + suffix
        match row["kind"]:
            case "put":
                changed["client"] = row["client"] + later
                changed["messages"] = [each + later for each in row["messages"]]
                changed["tries"] = [
                    {
                        **each,
                        "pointer": each["pointer"] + shift_us,
                        "asked_us": each["asked_us"] + shift_us,
                    }
                    for each in row["tries"]
                ]
            case "held":
                changed["begin"] = row["begin"] + hours * counts[row["node"], row["topic"]]
            case "read":
                changed["at_us"] = row["at_us"] + shift_us
                changed["after"] = max(row["after"], first - 1) + shift_us
                changed["end"] = row["end"] + shift_us
            case "delete":
                # What is deleted last is there no more, nor what was before.
                changed["ended_us"] = row["ended_us"] and row["ended_us"] + shift_us
        if "records" in row:
            changed["records"] = [moved(each) for each in row["records"]]
        yield {**row, **changed}


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
    parser.add_argument("--log", action="store_true", help="of replicated topics")
    arguments = parser.parse_args()
    if arguments.log:
        write_rows(arguments.file, large_log_history(arguments.events, arguments.seed))
        return
    write(arguments.file, large_history(arguments.events, arguments.seed))


if __name__ == "__main__":
    main()
