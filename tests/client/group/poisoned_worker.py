"""A worker that a message kills, and that is started again at once, as the same instance.

`python -m tests.client.group.poisoned_worker KIND URL JOURNAL`: each message is a line of the
journal before it is dealt with. It runs until its process group is killed.
"""

import os
import sys
import threading
from typing import Any

from poe.client import GroupWorker, Queue

GROUP, TOPIC, POISON = "handlers", "jobs", b"poison"
BATCH, CONCURRENCY, ATTEMPTS_MAX = 100, 8, 3
OPTIONS: dict[str, Any] = {
    "group": GROUP,
    "instance": "the worker",
    "batch": BATCH,
    "group_options": {"session_s": 60, "attempts_max": ATTEMPTS_MAX, "retry_s": 0},
}


def _run_queue(place, handle):
    with Queue(place, TOPIC, **OPTIONS) as queue:
        for job in queue:
            with job:
                handle(job)


def _run_worker(place, handle):
    with GroupWorker(place, TOPIC, handle, concurrency=CONCURRENCY, **OPTIONS):
        threading.Event().wait()


RUNS = {"queue": _run_queue, "worker": _run_worker}


def main(kind, place, journal):
    """Start the worker as often as it is killed."""
    notes = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(job):
        os.write(notes, job.value + b"\n")
        if job.value == POISON:
            os._exit(1)

    while True:
        # A process that is forked need not import all of it anew.
        worker = os.fork()
        if not worker:
            RUNS[kind](place, handle)
        os.waitpid(worker, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
