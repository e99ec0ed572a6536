"""`poe pipeline`, as far as it needs no Spark: what a server tells, and wrong files."""

import threading
import time
from contextlib import contextmanager

import pytest

from poe import protocol
from poe.cli.exit_code import ExitCode
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from tests.cli.processes import complaint, poe

pytestmark = pytest.mark.slow


def report(client, state, **query):
    queries = (QueryReport(name="alerts", state=state, **query),)
    told = PipelineReport(name="ssh", host="here", pid=7, queries=queries)
    return client.control("pipeline_report", report=told.as_map())


@pytest.fixture
def client(server):
    with protocol.socket(port=server.port, timeout_s=10) as connection:
        yield connection


def test_a_server_without_pipelines_has_nothing_to_tell(server):
    assert poe("pipeline", "list", port=server.port).stdout == b""
    assert poe("pipeline", "status", port=server.port).stdout == b""
    assert poe("status", port=server.port).stdout == b""
    run = poe("pipeline", "stop", "ssh", port=server.port)
    assert run.returncode == ExitCode.FAILURE
    assert complaint(run) == "poe: no pipeline 'ssh' is running; see `poe pipeline list`"


@contextmanager
def running(client, **query):
    """Do as a pipeline does meanwhile: report again and again, or it counts as lost."""
    is_over = threading.Event()

    def drive():
        while not is_over.wait(0.5):
            report(client, "running", **query)

    report(client, "running", **query)
    driver = threading.Thread(target=drive)
    driver.start()
    try:
        yield
    finally:
        is_over.set()
        driver.join()


def test_status_tells_of_queries_and_the_tree_has_them(server, client):
    query = {"rows_per_s": 1200.0, "lag_s": 0.5, "restarts": 1, "last_error": "no\ndisk"}
    client.write("t", [b"m"])
    line = "ssh/alerts\trunning\t1200 rows/s, lag 0.5 s\t1 restart\tno\\ndisk\n"
    with running(client, **query):
        assert poe("pipeline", "status", "ssh", port=server.port).stdout.decode() == line
        assert poe("status", port=server.port).stdout.decode() == "t\t:w\n" + line
        listed = poe("pipeline", "list", port=server.port).stdout.decode()
        tree = poe("tree", port=server.port).stdout.decode()
    assert listed.startswith("ssh\trunning\tprocess 7 on here\t")
    row = next(each for each in tree.splitlines() if "alerts" in each)
    assert "1200 rows/s, lag 0.5 s" in row
    assert row.endswith("no\\ndisk")
    run = poe("pipeline", "status", "other", port=server.port)
    assert complaint(run) == "poe: no pipeline 'other' is running; see `poe pipeline list`"


def test_a_pipeline_of_which_a_query_goes_on_is_running_and_tells_what_its_others_do(
    server, client
):
    states = ("failed", "running", "running")
    queries = tuple(QueryReport(name=f"q{n}", state=state) for n, state in enumerate(states))
    told = PipelineReport(name="ssh", host="here", pid=7, queries=queries)
    client.control("pipeline_report", report=told.as_map())
    listed = poe("pipeline", "list", port=server.port).stdout.decode()
    assert listed.startswith("ssh\trunning\t")
    assert listed.endswith("\t1 failed, 2 running\n")
    ended = tuple(QueryReport(name="q", state="failed") for _ in range(1))
    told = PipelineReport(name="ssh", host="here", pid=7, queries=ended)
    client.control("pipeline_report", report=told.as_map())
    listed = poe("pipeline", "list", port=server.port).stdout.decode()
    assert listed.startswith("ssh\tfailed\t")
    assert "1 failed" not in listed


def test_stop_waits_until_the_pipeline_has_stopped(server, client):
    report(client, "running")

    def drive():
        """Do as a pipeline does: report, until it is asked to stop."""
        while not report(client, "running")["stop"]:
            time.sleep(0.01)
        report(client, "stopped")

    driver = threading.Thread(target=drive)
    driver.start()
    run = poe("pipeline", "stop", "ssh", port=server.port)
    driver.join()
    assert (run.returncode, run.stdout) == (0, b"ssh\tstopped\n")


def test_a_mapping_is_no_pipeline_and_goes_on(server, client):
    queries = (QueryReport(name="orders", state="running"),)
    told = PipelineReport(name="m here:7", host="here", pid=7, kind="mapping", queries=queries)
    client.control("pipeline_report", report=told.as_map())
    run = poe("pipeline", "stop", "m here:7", port=server.port)
    assert run.returncode == ExitCode.FAILURE
    assert complaint(run) == "poe: no pipeline 'm here:7' is running; see `poe pipeline list`"
    assert not client.control("pipeline_report", report=told.as_map())["stop"]


def test_a_wrong_file_is_told_before_spark_is_started(tmp_path):
    pytest.importorskip("pyspark", reason="needs PySpark")
    path = tmp_path / "p.toml"
    path.write_text('[sources.s]\ntopic = "t"\n[sinks.k]\ntakes = "x"\nformat = "console"\n')
    run = poe("pipeline", "run", path)
    assert run.returncode == ExitCode.USAGE
    assert complaint(run) == (
        f"poe: {path}, line 4: sinks.k.takes: names 'x', which is not there; use s"
    )
    path.write_text('[sources.s]\ntopic = "t"\n[sources.s.options]\nhots = "x"\n')
    run = poe("pipeline", "run", path)
    assert run.returncode == ExitCode.USAGE
    told = complaint(run)
    assert told.startswith(f"poe: {path}, line 4: sources.s.options.hots: is not known; use one of")
    assert told.endswith("; did you mean host?")
    run = poe("pipeline", "run", path, "--conf", "x")
    assert (
        complaint(run)
        == "poe: option '--conf' is 'x'; use KEY=VALUE, as in spark.executor.memory=2g"
    )
