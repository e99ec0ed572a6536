"""Real logs through eight workers that are killed at random: each line has its effect once."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.client.consumers import url
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LOGHUB = Path(os.environ.get("LOGHUB", ROOT.parent / "shared" / "data" / "loghub"))
WORKERS = 8
KILLS = 16


def lines():
    logs = sorted(LOGHUB.glob("*.log"))
    if not logs:
        pytest.skip(f"no logs in {LOGHUB}")
    return [line for log in logs for line in log.read_bytes().splitlines() if line]


def start(node, database):
    command = [sys.executable, "-m", "tests.client.group.log_worker", url(node), str(database)]
    return subprocess.Popen(command, cwd=ROOT, env=environment())


def effects(database):
    with closing(sqlite3.connect(database, timeout=30)) as rows:
        return rows.execute("SELECT ordinal, line FROM effects ORDER BY ordinal").fetchall()


@pytest.mark.timeout(180)
def test_each_line_of_real_logs_has_its_effect_exactly_once(node, tmp_path):
    chance = random.Random(16)
    wanted = lines()
    database = tmp_path / "effects.db"
    with closing(sqlite3.connect(database)) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.execute("CREATE TABLE effects (ordinal INTEGER PRIMARY KEY, line BLOB)")
    with ExitStack() as stack:
        workers = [start(node, database) for _ in range(WORKERS)]
        stack.callback(lambda: [(each.kill(), each.wait()) for each in workers])
        part = len(wanted) // KILLS + 1
        for number in range(KILLS):
            node.put_many("logs", wanted[number * part : (number + 1) * part])
            time.sleep(chance.random() * 0.3)  # a moment in their work, whatever they are at
            at = chance.randrange(WORKERS)
            workers[at].kill()
            workers[at].wait()
            workers[at] = start(node, database)
        wait_until(
            lambda: node.control("group_lag", group="counters")[b"logs"]["messages"] == 0, 90
        )
        told = node.control("group", group="counters")
    assert effects(database) == list(enumerate(wanted))
    assert told["counts"].get("dead", 0) == 0
