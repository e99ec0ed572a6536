"""The pipelines in examples/spark, run as their reader would, find what a plain loop finds."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyarrow import parquet

import poe
from tests import python_process
from tests.test_readme import COMMAND, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = python_process.ROOT / "examples" / "spark"
DOCUMENT = python_process.ROOT / "docs" / "spark.md"
SESSION = (
    "python push_logs.py",
    "poe pipeline run failed_logins.toml --available-now",
    "poe pipeline run bad_hours.py --available-now",
    "poe read alerts",
)
FAILED = re.compile(r"Failed password for .* from ([0-9.]+) port")
ATTACK = 20
LOGHUB = os.environ.get("LOGHUB", python_process.ROOT.parent / "shared" / "data" / "loghub")
"""The examples are copied away from where they look for it."""


@dataclass(frozen=True)
class Ran:
    """What a reader has who typed the session, in a copy of the examples."""

    folder: Path
    port: int
    printed: dict[str, str]

    def messages(self, topic: str) -> list[str]:
        with poe.protocol.socket(port=self.port) as socket:
            return [message.decode() for _, message in socket.read(topic, 0, 10_000)]


def typed(command: str, folder: Path, *arguments: str) -> str:
    """Run a command in a folder; return what it printed."""
    program = [sys.executable, *(["-m", "poe"] if command.startswith("poe") else [])]
    done = subprocess.run(
        [*program, *command.split()[1:], *arguments],
        cwd=folder,
        env=python_process.environment(LOGHUB=str(LOGHUB)),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def session_typed(tmp_path: Path) -> Iterator[Ran]:
    """Type the session over real logs; over the samples where there are none."""
    folder = tmp_path / "spark"
    shutil.copytree(EXAMPLES, folder)
    with poe.Node(dir=folder / "data", port=0) as node:
        assert node.address is not None
        port = node.address[1]
        yield Ran(
            folder,
            port,
            {command: typed(command, folder, "--port", str(port)) for command in SESSION},
        )


def time_in(text: str, form: str) -> datetime:
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def ssh_time(line: str) -> datetime:
    return time_in(f"2015 {line[:15]}", "%Y %b %d %H:%M:%S")


def hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0)


def rows(folder: Path, name: str) -> list[tuple[object, ...]]:
    """What a pipeline has written; Spark's Parquet says of no time that it is UTC."""
    table = parquet.read_table(folder / f"{name}.parquet")
    values = (tuple(row.values()) for row in table.to_pylist())
    return [(begins.replace(tzinfo=UTC), *others) for begins, *others in values]


def failed_logins(lines: list[str]) -> Counter[tuple[datetime, str]]:
    """The failed log-ins of each ten minutes and address."""
    found: Counter[tuple[datetime, str]] = Counter()
    for line in lines:
        if match := FAILED.search(line):
            time = ssh_time(line)
            begins = time.replace(minute=time.minute // 10 * 10, second=0)
            repeated = re.search("repeated ([0-9]+) times", line)
            found[begins, match[1]] += int(repeated[1]) if repeated else 1
    return found


def check_that_failed_log_ins_are_counted_by_address_and_ten_minutes(ran):
    expected = failed_logins(ran.messages("sshd"))
    assert sorted(rows(ran.folder, "failed_logins")) == sorted(
        (*key, count, count >= ATTACK) for key, count in expected.items()
    )


def check_that_attackers_are_on_the_topic_alerts_once(ran):
    alerts = [json.loads(message) for message in ran.messages("alerts")]
    logins = failed_logins(ran.messages("sshd"))
    attacks = [(*key, count) for key, count in logins.items() if count >= ATTACK]
    assert len(attacks) > 1
    assert sorted(attacks) == sorted(
        (datetime.fromisoformat(each["begins"]), each["address"], each["failed"]) for each in alerts
    )


def check_that_hours_of_both_logs_are_joined(ran):
    addresses: defaultdict[datetime, list[str]] = defaultdict(list)
    errors: Counter[datetime] = Counter()
    for line in ran.messages("sshd"):
        match = FAILED.search(line)
        addresses[hour_of(ssh_time(line))] += [match[1]] if match else []
    for line in ran.messages("apache"):
        errors[hour_of(time_in(line[5:25], "%b %d %H:%M:%S %Y"))] += "[error]" in line
    addresses.pop(max(addresses))  # the hour of the last line is not over
    expected = [
        (hour, len(found), len(set(found)), errors[hour])
        for hour, found in addresses.items()
        if hour in errors
    ]
    assert len(expected) > 3
    assert sorted(rows(ran.folder, "bad_hours")) == sorted(expected)


def check_that_the_plots_are_drawn(ran, tmp_path):
    told = typed("python plots.py", ran.folder, ".", str(tmp_path))
    assert told.split() == ["failed_logins.png", "bad_hours.png"]
    for name in told.split():
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 100_000


def check_that_the_document_shows_what_was_printed(ran):
    shown = dict(COMMAND.findall("\n".join(blocks(DOCUMENT, "console"))))
    # Two queries run beside each other, and come to each state in either order.
    assert {command: sorted(shown[command].splitlines()) for command in SESSION} == {
        command: sorted(printed.splitlines()) for command, printed in ran.printed.items()
    }


def test_the_pipelines_find_what_a_plain_loop_finds(java, tmp_path):
    """One test: several of a module may go to several workers, and the session is long."""
    with session_typed(tmp_path) as ran:
        check_that_failed_log_ins_are_counted_by_address_and_ten_minutes(ran)
        check_that_attackers_are_on_the_topic_alerts_once(ran)
        check_that_hours_of_both_logs_are_joined(ran)
        if find_spec("matplotlib") is not None:
            check_that_the_plots_are_drawn(ran, tmp_path)
        if Path(LOGHUB).is_dir():
            check_that_the_document_shows_what_was_printed(ran)
