"""What `deploy/` has for Prometheus and Grafana, in a real Prometheus that reads a gateway."""

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest

from poe import Node
from tests.broker.nodes import connect, kill
from tests.gateway.http.front import Front
from tests.python_process import ROOT
from tests.waiting import wait_until

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana.json"
HAS_PROMETHEUS = shutil.which("prometheus") and shutil.which("promtool")
MAY_BE_EMPTY = re.compile(r"refused|failed|read_only_topics > 0|== 0|increase|> 1|> 0.5|poe_log_")
"""What is above a limit in none but bad times, and what a node outside of a cluster has not."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_PROMETHEUS, reason="prometheus and promtool are not installed"),
]


class Prometheus:
    """A Prometheus on a free port that reads a gateway each second."""

    def __init__(self, folder: Path, target: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = folder / "prometheus.yml"
        targets = f"[{{targets: ['127.0.0.1:{target}']}}]"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 200ms}\n"
            f"rule_files: [{json.dumps(str(RULES))}]\n"
            f"scrape_configs: [{{job_name: poe, static_configs: {targets}}}]\n"
        )
        subprocess.run(["promtool", "check", "config", str(config)], check=True, timeout=60)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=10)
        self._log = (folder / "log").open("wb")
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        command.append(f"--storage.tsdb.path={folder / 'data'}")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def stop(self) -> None:
        self._http.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(path, params=parameters)
        if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            msg = "it is still starting"
            raise httpx.TransportError(msg)
        reply = answer.json()
        assert reply["status"] == "success", reply
        return reply["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/query", query=expression)["result"]
        return found

    def wait(self, expression: str, timeout_s: float = 40.0) -> list[dict[str, Any]]:
        """Query until something comes of it."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            try:
                found = self.query(expression)
            except httpx.TransportError:
                found = []
            if found:
                return found
            time.sleep(0.1)
        msg = f"nothing comes of {expression}"
        raise AssertionError(msg)

    def evaluated_rules(self, timeout_s: float = 40.0) -> list[dict[str, Any]]:
        """Return the rules, once each was evaluated."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            groups = self.get("/rules")["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            is_done = all(rule["health"] != "unknown" for rule in rules)
            if is_done or time.monotonic() > deadline_s:
                return rules
            time.sleep(0.1)


@pytest.fixture
def node(tmp_path) -> Iterator[Node]:
    with Node(dir=tmp_path / "data", port=0, message_max=1000, sync_interval=0.1) as node:
        yield node


@pytest.fixture
def front(node) -> Iterator[Front]:
    with Front(node) as front:
        yield front


@pytest.fixture
def prometheus(front, tmp_path) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, front.port)
    yield running
    running.stop()


def expressions() -> list[str]:
    """The queries of the dashboard, as Grafana would send them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in found]


def test_rules_load_and_all_queries_find_what_a_gateway_tells(prometheus, front, node):
    prometheus.wait("poe_node_up == 1")
    with connect(node) as client:
        with pytest.raises(Exception, match="message"):
            client.write("orders", [b"x" * 2000])

        def has_rate():
            # A rate is of two looks, and on a busy machine some are not in time.
            node.put("orders", b"m" * 100)
            node.next("orders", 0)
            front.http.post("/sync/posted", content=b"x")
            node.sync()
            time.sleep(0.4)
            return prometheus.query("poe:topic_messages_in:rate1m{topic='orders'} > 0")

        wait_until(has_rate, 60)
    rules = prometheus.evaluated_rules()
    assert len(rules) == 10
    assert {rule["health"] for rule in rules} == {"ok"}
    assert "firing" not in {rule.get("state") for rule in rules}
    for expression in [*expressions(), *(rule["query"] for rule in rules)]:
        if MAY_BE_EMPTY.search(expression):
            prometheus.query(expression)
        else:
            prometheus.wait(expression)
    (refused,) = prometheus.query("poe_node_requests_refused_total{error='InvalidMessage'}")
    assert refused["value"][1] == "1"


def test_a_restart_and_the_end_of_a_node_are_seen(prometheus, node):
    prometheus.wait("poe_node_restarts_total == 0")
    kill(node, "scrubber")
    prometheus.wait("poe_node_restarts_total == 1")
    node.stop()
    prometheus.wait("poe_node_up == 0 and on(instance) up == 1")  # the gateway goes on


def test_every_metric_that_is_queried_is_told(front, node):
    node.put("t", b"m")
    told = set(re.findall(r"^# TYPE (\w+) ", front.http.get("/metrics").text, re.MULTILINE))
    text = RULES.read_text() + DASHBOARD.read_text()
    asked = set(re.findall(r"\bpoe_(?:node|topic)_\w+", text))
    assert {name for name in asked if name not in told} == set()
