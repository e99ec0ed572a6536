"""A worker in a process of its own, which can be killed: counts the lines of logs in a database.

`python -m tests.client.group.log_worker URL DATABASE`: the effect of a job is a row whose key is
the ordinal of its message, so that what comes twice has its effect once.
"""

import sqlite3
import sys

from poe.client import Queue


def main(place, database):
    """Work until killed."""
    options = {"group_options": {"session_s": 1, "retry_s": 0}, "batch": 50}
    with (
        sqlite3.connect(database, timeout=30, isolation_level=None) as rows,
        Queue(place, "logs", group="counters", **options) as queue,
    ):
        for job in queue:
            with job:
                rows.execute(
                    "INSERT INTO effects VALUES (?, ?) ON CONFLICT (ordinal) DO NOTHING",
                    (job.ordinal, job.value),
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
