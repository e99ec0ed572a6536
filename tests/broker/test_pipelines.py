"""What a broker knows of pipelines: through a socket, and in simulated time."""

import pytest

from poe.broker.requests.pipelines import LOST_AFTER_S, PIPELINES_MAX
from poe.errors import PipelineRunning, RemoteProtocolError, UnknownPipeline
from poe.protocol.pipeline_report import QUERIES_MAX, PipelineReport, QueryReport
from poe.supervision.live_tree import ROWS_MAX, TEXT_MAX
from tests.broker.nodes import connect
from tests.tls import BOTH

TRANSPORTS = BOTH


def report(name="ssh", pid=1, state="running", **query):
    queries = (QueryReport(name="alerts", state=state, **query),)
    return PipelineReport(name=name, host="here", pid=pid, queries=queries).as_map()


def states(node):
    return {each["name"]: each["state"] for each in node.control("pipelines")}


def test_the_newest_report_of_each_pipeline_is_told(serve):
    with connect(serve()) as client:
        assert client.control("pipelines") == []
        assert client.control("pipeline_report", report=report()) == {"stop": False}
        client.control("pipeline_report", report=report(rows_per_s=9.0))
        client.control("pipeline_report", report=report("join", state="done"))
        told = client.control("pipelines")
        assert [(each["name"], each["state"]) for each in told] == [
            ("join", "done"),
            ("ssh", "running"),
        ]
        assert told[1]["queries"][0]["rows_per_s"] == 9.0


def test_the_wish_to_stop_reaches_the_run_that_it_is_meant_for(simulate):
    node = simulate().node
    with pytest.raises(UnknownPipeline, match="no pipeline 'ssh' is running"):
        node.control("pipeline_stop", name="ssh")
    node.control("pipeline_report", report=report())
    node.control("pipeline_stop", name="ssh")
    assert node.control("pipeline_report", report=report()) == {"stop": True}
    node.control("pipeline_report", report=report(state="stopped"))
    with pytest.raises(UnknownPipeline):
        node.control("pipeline_stop", name="ssh")
    assert node.control("pipeline_report", report=report(pid=2)) == {"stop": False}


def test_a_name_belongs_to_one_run_until_that_has_ended_or_is_lost(simulate):
    sim = simulate()
    sim.node.control("pipeline_report", report=report(pid=1))
    with pytest.raises(PipelineRunning, match="runs already, as process 1 on here; use `poe"):
        sim.node.control("pipeline_report", report=report(pid=2))
    sim.advance(LOST_AFTER_S + 0.1)
    assert states(sim.node) == {"ssh": "lost"}
    sim.node.control("pipeline_report", report=report(pid=2))
    assert states(sim.node) == {"ssh": "running"}


def test_a_pipeline_that_has_ended_is_never_lost(simulate):
    sim = simulate()
    sim.node.control("pipeline_report", report=report(state="failed", last_error="why"))
    sim.advance(1000)
    assert states(sim.node) == {"ssh": "failed"}


def test_the_tree_shows_pipelines_and_their_queries(serve):
    node = serve()
    query = {"rows_per_s": 1200.0, "lag_s": 0.5, "restarts": 2, "last_error": "no disk"}
    node.control("pipeline_report", report=report(**query))
    rows = node.control("tree")
    place = next(number for number, row in enumerate(rows) if row["name"] == "pipelines")
    pipeline, below = rows[place + 1 : place + 3]
    assert (pipeline["depth"], pipeline["id"], pipeline["role"]) == (2, "ssh", "driver 1 on here")
    assert (below["depth"], below["id"], below["state"]) == (3, "alerts", "running")
    assert (below["role"], below["restarts"]) == ("1200 rows/s, lag 0.5 s", 2)
    assert below["last_reason"] == "no disk"
    assert rows[place + 3]["id"] == "events"


@pytest.mark.slow
def test_the_tree_is_bounded_whatever_pipelines_report(simulate):
    node = simulate().node
    long = "x" * 1000
    queries = [QueryReport(name=long, state="failed", last_error=long)] * QUERIES_MAX
    for number in range(PIPELINES_MAX + 1):
        name = f"{number}{long}"
        sent = PipelineReport(name=name, host=long, pid=1, queries=tuple(queries))
        node.control("pipeline_report", report=sent.as_map())
    assert len(node.control("pipelines")) == PIPELINES_MAX
    rows = node.control("tree")
    assert len(rows) == ROWS_MAX
    assert max(len(row[text]) for row in rows for text in ("id", "role", "last_reason")) == TEXT_MAX


def test_wrong_requests_are_refused_and_nothing_else_happens(serve):
    with connect(serve()) as client:
        with pytest.raises(RemoteProtocolError, match="pipeline report is no map"):
            client.control("pipeline_report")
        with pytest.raises(RemoteProtocolError, match="pipeline_stop needs text as its name"):
            client.control("pipeline_stop", name=7)
        assert client.control("pipelines") == []
