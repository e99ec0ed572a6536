"""Pipelines at a node with users: who may, runs, lists and stops one; who may not, is told why."""

import logging

import pytest

from poe.errors import AuthenticationFailed, TlsFailed
from poe.spark import Pipeline
from poe.spark.pipeline.runner import RunOptions, run_pipeline
from tests.broker.nodes import address, read_by_next
from tests.cli.processes import Background, complaint, poe
from tests.spark.secured import SecuredNode
from tests.spark.test_grants import STAGING
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

DEADLINE_S = 120
FLOW = [("read", {"topics": "in"}), ("write create", {"topics": "out"}), *STAGING]
FILE = """
name = "flow"

[server]
url = "{url}"
caFile = "{ca}"
tokenFile = "operator"

[sources.in]
topic = "in"

[sinks.out]
takes = "in"
topic = "out"
"""


@pytest.fixture
def secured(tmp_path, certificates):
    """A node where `operator` may all that a pipeline needs, and others lack one thing each."""
    node = SecuredNode(tmp_path, certificates)
    node.add("operator", [*FLOW, ("admin", {})])
    node.add("unlisted", FLOW)
    for number in range(2):
        node.add(f"lacks{number}", [*FLOW[:number], *FLOW[number + 1 :], ("admin", {})])
    node.start()
    node.node.put_many("in", [b"1", b"2"])
    yield node
    node.stop()


@pytest.fixture
def run(spark, secured, tmp_path):
    """Run a pipeline from `in` to `out` with some options of a server; return its query."""

    def to_its_end(**server):
        pipeline = Pipeline("flow", checkpoint=tmp_path / "state", intensity=0, server=server)
        pipeline.source("in", topic="in")
        pipeline.sink("out", takes="in", topic="out")
        (query,) = run_pipeline(pipeline, RunOptions(available_now=True), spark).queries
        return query

    return to_its_end


def written(node):
    is_made = b"out" in node.node.topics()
    return [message for _, message in read_by_next(node.node, "out")] if is_made else []


def test_a_file_runs_is_listed_and_stopped_by_who_may(java, secured, tmp_path):
    path, ca = tmp_path / "flow.toml", secured.certificates.file("ca.pem")
    path.write_text(FILE.format(url=secured.url, ca=ca))
    place = ("--url", secured.url, "--ca", ca, "--token-file")
    with Background("pipeline", "run", path, "--conf", "spark.driver.memory=1g") as running:
        process = running.process
        wait_until(lambda: written(secured) or process.poll() is not None, DEADLINE_S)
        assert process.poll() is None, process.communicate()
        assert written(secured) == [b"1", b"2"]
        listed = poe("pipeline", "list", *place, tmp_path / "operator").stdout
        assert listed.startswith(b"flow\trunning\t")
        refused = poe("pipeline", "stop", "flow", *place, tmp_path / "unlisted")
        assert complaint(refused).startswith("poe: not authorized to administer the node")
        stopped = poe("pipeline", "stop", "flow", *place, tmp_path / "operator")
        assert stopped.stdout == b"flow\tstopped\n"
        told, complaints = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, complaints
    assert told.splitlines() == [b"out starting", b"out running", b"out stopped"]


def test_who_may_not_be_listed_runs_all_the_same(run, secured, caplog):
    with caplog.at_level(logging.WARNING, "poe.spark"):
        assert run(**secured.options("unlisted")).state == "done"
    assert "goes on without reports to the server: not authorized to administer" in caplog.text
    assert written(secured) == [b"1", b"2"]
    assert secured.node.control("pipelines") == []


@pytest.mark.parametrize(("number", "deed"), [(0, "read topic 'in'"), (1, "write topic 'out'")])
def test_a_query_that_lacks_a_grant_is_given_up_and_says_which(run, secured, number, deed):
    query = run(**secured.options(f"lacks{number}"))
    assert query.state == "failed"
    assert f"not authorized to {deed}" in query.last_error
    assert written(secured) == []


def test_who_does_not_get_in_starts_nothing(run, secured, tmp_path):
    right = secured.options("operator")
    secured.users.remove("lacks0")
    secured.reload()
    with pytest.raises(AuthenticationFailed):
        run(**{**right, "tokenFile": str(tmp_path / "lacks0")})
    host, port = address(secured.node)
    with pytest.raises(TlsFailed):
        run(**{**right, "url": f"poes://{host}:{port}"})
    assert not (tmp_path / "state").exists()
