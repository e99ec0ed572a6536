"""Reports of pipelines: there and back, and what is refused."""

import pytest

from poe.errors import RemoteProtocolError
from poe.protocol.pipeline_report import TEXT_MAX, PipelineReport, QueryReport, RuleReport


def report(*states):
    queries = tuple(QueryReport(name=f"q{i}", state=state) for i, state in enumerate(states))
    return PipelineReport(name="p", host="h", pid=1, queries=queries)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["running", "failed"], "running"),
        (["done", "restarting"], "running"),
        (["done", "failed", "stopped"], "failed"),
        (["done", "stopped"], "stopped"),
        (["done", "done"], "done"),
    ],
)
def test_a_pipeline_runs_while_one_of_its_queries_may_go_on(states, state):
    assert report(*states).state == state
    assert report(*states).is_ended == (state != "running")


def test_a_report_comes_back_as_it_was():
    query = QueryReport(name="q", state="running", rows_per_s=2.5, lag_s=0.25, batch=3, restarts=1)
    rule = RuleReport(name="vip", what="to a", per_s=1.5, counts={"to": 5, "error": 1})
    before = PipelineReport(name="p", host="h", pid=7, queries=(query,), rules=(rule,))
    assert PipelineReport.from_map(before.as_map()) == before
    assert query.summary() == "2 rows/s, lag 0.2 s"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": 1}, "pipeline report: name is missing or of a wrong type"),
        ({"pid": True}, "pipeline report: pid is missing"),
        ({"queries": {}}, "pipeline report: queries is missing"),
        ({"queries": [1]}, "query report is no map"),
        ({"queries": [{"name": "q"}]}, "query report: state is missing"),
        (
            {"queries": [{"name": "q", "state": "odd"}]},
            "query report has state 'odd'; use starting,",
        ),
        ({"rules": [{}] * 201}, "pipeline report has 201 rules; 200 at most"),
        ({"rules": [{"counts": {}}]}, "rule report: name is missing"),
        ({"rules": [{"name": "r", "counts": [1]}]}, "rule report: counts is missing or of a wrong"),
        ({"rules": [{"name": "r", "counts": {"to": "1"}}]}, "rule report: counts are no few"),
        ({"rules": [{"name": "r", "counts": {1: 1}}]}, "rule report: counts are no few"),
        ({"queries": [{}] * 101}, "pipeline report has 101 queries; 100 at most"),
    ],
)
def test_what_is_no_report_is_refused(change, told):
    with pytest.raises(RemoteProtocolError, match=f"^{told}"):
        PipelineReport.from_map({**report("done").as_map(), **change})


def test_an_error_is_told_up_to_a_length():
    values = QueryReport(name="q", state="failed", last_error="e" * 5000)
    told = PipelineReport.from_map(
        {
            **report().as_map(),
            "queries": [{"name": "q", "state": "failed", "last_error": values.last_error}],
        }
    )
    assert len(told.queries[0].last_error) == TEXT_MAX
