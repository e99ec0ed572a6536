"""`poe pipeline run` as a process: its end, its output, other masters, a terminal."""

import contextlib
import io
import os
import re
import signal
from pathlib import Path

import pytest
from rich.console import Console

from poe import protocol
from poe.cli.endpoint_options import endpoint_of
from poe.cli.exit_code import ExitCode
from poe.cli.pipeline import run_to_the_end
from poe.cli.pipeline_progress import Bars
from poe.cli.saved_login import SavedLogins
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from poe.spark import Pipeline
from tests.cli.processes import Background, Server, poe
from tests.process_tree import descendants
from tests.waiting import wait_until

DEADLINE_S = 240
MEMORY = ("--conf", "spark.driver.memory=1g")

PYTHON = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from poe.spark import Pipeline

pipeline = Pipeline("doubles", config={"spark.sql.shuffle.partitions": 2})
pipeline.source("lines", format="text", schema="value STRING", path="in")

@F.udf(StringType())
def doubled(text):
    import os
    return f"{text}{text} {os.getpid()}"

def doubles(lines):
    return lines.select(doubled("value").alias("value"))

pipeline.step("doubles", function=doubles)
pipeline.sink("out", takes="doubles", format="text", path="out")
"""

TICKS = """
name = "ticks"
[sources.ticks]
format = "rate"
[sinks.out]
takes = "ticks"
format = "noop"
trigger = "200 milliseconds"
"""


@pytest.fixture
def doubles(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb\n")
    path = tmp_path / "doubles.py"
    path.write_text(PYTHON)
    return path


def run_to_its_end(path, *options):
    """Run a pipeline over what is there; without a broker, which it does not need."""
    command = ("pipeline", "run", path, "--available-now", *MEMORY, *options)
    with Background(*command, port=1) as running:
        told = running.process.communicate(timeout=DEADLINE_S)
    assert running.process.returncode == 0, told
    return told[0].decode()


def written(folder):
    lines = [
        line for part in (folder / "out").glob("*.txt") for line in part.read_text().split("\n")
    ]
    return sorted(line for line in lines if line)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.usefixtures("java")
def test_a_file_runs_on_executors(tmp_path, doubles):
    """In one process files run in `test_runner.py`, and those of the examples."""
    master = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=1g")
    told = run_to_its_end(doubles, *master)
    assert told.splitlines() == ["out starting", "out running", "out done"]
    assert [line.split()[0] for line in written(tmp_path)] == ["aa", "bb"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.usefixtures("java")
def test_a_running_pipeline_is_told_and_ends_in_order(tmp_path):
    (tmp_path / "p.toml").write_text(TICKS)
    command = ("pipeline", "run", tmp_path / "p.toml", *MEMORY)
    with (
        Server(tmp_path / "data") as server,
        protocol.socket(port=server.port, timeout_s=30) as client,
        Background(*command, port=server.port) as running,
    ):
        wait_until(lambda: batch(client) > 0, DEADLINE_S)
        line = poe("pipeline", "status", "ticks", port=server.port).stdout.decode()
        assert re.fullmatch(r"ticks/out\trunning\t\d+ rows/s\t0 restarts\n", line)
        # As a terminal that closes does it; Java is in the same group.
        for pid in (running.process.pid, *descendants(running.process.pid)):
            with contextlib.suppress(ProcessLookupError):  # what Spark starts for a moment
                os.kill(pid, signal.SIGHUP)
        reached = batch(client)
        wait_until(lambda: batch(client) > reached + 3, DEADLINE_S)
        running.process.send_signal(signal.SIGTERM)
        told, complaints = running.process.communicate(timeout=DEADLINE_S)
        assert running.process.returncode == ExitCode.TERMINATED, complaints
        assert told.splitlines() == [b"out starting", b"out running", b"out stopped"]
        assert b"SIGHUP: there is nothing to reload; going on" in complaints
        assert b"ticks\tstopped\t" in poe("pipeline", "list", port=server.port).stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.usefixtures("java")
def test_a_pipeline_whose_java_is_killed_tells_which_queries_it_has_given_up(tmp_path):
    (tmp_path / "p.toml").write_text("intensity = 0\n" + TICKS)
    with Background("pipeline", "run", tmp_path / "p.toml", *MEMORY, port=1) as running:
        pid = running.process.pid
        running.read_until(b"out running\n", timeout_s=DEADLINE_S)
        (java,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(java), signal.SIGKILL)
        told, complaints = running.process.communicate(timeout=DEADLINE_S)
    assert running.process.returncode == ExitCode.FAILURE
    assert told.splitlines()[-1].startswith(b"out failed: ")
    assert complaints.splitlines()[-1].startswith(b"poe: query 'out' was given up: "), complaints


def test_all_servers_of_the_command_s_url_have_the_topics(monkeypatch, tmp_path):
    given = []

    def run_pipeline(pipeline, options):
        given.append(options.server)
        return PipelineReport(name=pipeline.name, host="h", pid=1, queries=())

    monkeypatch.setattr("poe.spark.pipeline.runner.run_pipeline", run_pipeline)
    endpoint = endpoint_of({"url": "poe://a,b:7"}, {}, SavedLogins(tmp_path))
    run_to_the_end(Pipeline("p"), endpoint, master="local[2]", available_now=False, config={})
    assert given == [{"url": "poe://a:5555,b:7"}]


def batch(client):
    return max((each["queries"][0]["batch"] for each in client.control("pipelines")), default=-1)


def bar(*lags_s, state="running"):
    """The last line that a terminal shows after these reports."""
    screen = io.StringIO()
    with Bars(Console(file=screen, force_terminal=True, no_color=True, width=100)) as bars:
        for lag_s in lags_s:
            query = QueryReport(name="alerts", state=state, rows_per_s=1200.0, lag_s=lag_s)
            bars.show(PipelineReport(name="p", host="h", pid=1, queries=(query,)))
    return next(line for line in reversed(screen.getvalue().splitlines()) if "alerts" in line)


def test_a_terminal_shows_how_much_of_the_lag_is_gone():
    assert bar(10.0, 2.5).endswith("running, 1200 rows/s, lag 2.5 s")
    none, three_quarters, full = (bar(10.0, lag_s).count("━") for lag_s in (10.0, 2.5, 0.0))
    assert (none, full) == (0, 40)
    assert three_quarters == 30
    assert bar(None, state="done").count("━") == full
