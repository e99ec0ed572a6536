"""The pipelines in examples/spark, run as their reader would, find what a plain loop finds."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyarrow import parquet

import poe
from tests import python_process

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

EXAMPLES = python_process.ROOT / "examples" / "spark"
FAILED = re.compile(r"Failed password for .* from ([0-9.]+) port")
ATTACK = 20


def run(folder: Path, *command: str) -> str:
    """Run a Python program in a folder; return what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=python_process.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def messages(port: int, topic: str) -> list[str]:
    with poe.protocol.socket(port=port) as socket:
        return [message.decode() for _, message in socket.read(topic, 0, 10_000)]


@pytest.fixture(scope="module", params=["loghub", "sample"])
def ran(request, tmp_path_factory):
    """A folder in which both pipelines have run over the logs, and the port of the server."""
    if request.param == "loghub":
        request.getfixturevalue("loghub")
    sample = ["--sample"] * (request.param == "sample")
    folder = tmp_path_factory.mktemp("examples")
    files = [
        shutil.copy(EXAMPLES / name, folder) for name in ("failed_logins.toml", "bad_hours.py")
    ]
    with poe.Node(dir=folder / "data", port=0) as node:
        assert node.address is not None
        port = node.address[1]
        run(folder, str(EXAMPLES / "push_logs.py"), "--port", str(port), *sample)
        for file in files:
            run(
                folder, "-m", "poe", "pipeline", "run", file, "--available-now", "--port", str(port)
            )
        yield folder, port


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


def test_failed_log_ins_are_counted_by_address_and_ten_minutes(ran):
    folder, port = ran
    expected = failed_logins(messages(port, "sshd"))
    assert sorted(rows(folder, "failed_logins")) == sorted(
        (*key, count, count >= ATTACK) for key, count in expected.items()
    )


def test_attackers_are_on_the_topic_alerts_once(ran):
    _, port = ran
    alerts = [json.loads(message) for message in messages(port, "alerts")]
    logins = failed_logins(messages(port, "sshd"))
    attacks = [(*key, count) for key, count in logins.items() if count >= ATTACK]
    assert len(attacks) > 1
    assert sorted(attacks) == sorted(
        (datetime.fromisoformat(each["begins"]), each["address"], each["failed"]) for each in alerts
    )


def test_hours_of_both_logs_are_joined(ran):
    folder, port = ran
    addresses, errors = defaultdict(list), Counter()
    for line in messages(port, "sshd"):
        match = FAILED.search(line)
        addresses[hour_of(ssh_time(line))] += [match[1]] if match else []
    for line in messages(port, "apache"):
        errors[hour_of(time_in(line[5:25], "%b %d %H:%M:%S %Y"))] += "[error]" in line
    expected = [
        (hour, len(found), len(set(found)), errors[hour])
        for hour, found in addresses.items()
        if hour in errors
    ]
    assert len(expected) > 3
    assert sorted(rows(folder, "bad_hours")) == sorted(expected)


def test_the_plots_are_drawn(ran, tmp_path):
    pytest.importorskip("matplotlib")
    folder, _ = ran
    told = run(folder, str(EXAMPLES / "plots.py"), ".", str(tmp_path))
    assert told.split() == ["failed_logins.png", "bad_hours.png"]
    for name in told.split():
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 100_000
