"""What the gateway tells of itself: health, metrics, and the document of its routes."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request

from poe import Node
from poe.client.url import parse_url
from poe.errors import NotInCluster
from poe.gateway.http import health
from poe.gateway.http.brokers import Brokers
from poe.gateway.http.options import GatewayOptions
from tests.gateway.http.front import Front
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_gateway_with_its_broker_is_ready(front):
    assert front.http.get("/readyz").json() == {"status": "ready"}


def test_a_gateway_whose_node_takes_no_puts_is_not_ready(tmp_path):
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with Node(dir=folder, port=0) as node, Front(node) as front:
        folder.rename(elsewhere)
        wait_until(lambda: front.http.get("/readyz").status_code == 503, 20)
        assert "the node is refusing" in front.http.get("/readyz").text
        elsewhere.rename(folder)
        wait_until(lambda: front.http.get("/readyz").status_code == 200, 20)


def test_metrics_are_those_of_the_gateway_and_of_its_producer(front, topic):
    front.http.post(f"/sync/{topic}", content=b"x")
    front.http.post(f"/sync/{topic}", content=b"")
    front.http.get("/no such path")
    reply = front.http.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain")
    lines = reply.text.splitlines()
    for method, route, status in (
        ("POST", "/sync/{topic}", 200),
        ("POST", "/sync/{topic}", 400),
        ("GET", "other", 404),
    ):
        labels = f'method="{method}",route="{route}",status="{status}"'
        assert any(each.startswith(f"poe_gateway_requests_total{{{labels}}}") for each in lines)
    delivered = [each for each in lines if each.startswith("poe_producer_messages_delivered_total")]
    assert any(f'topic="{topic}"' in each and each.endswith(" 1.0") for each in delivered)


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize("version", ['"0.0.4"', "abc", "1.x", "", "1.0.0", "9" * 5000])
def test_metrics_are_told_whatever_version_is_asked_for(front, kind, version):
    accept = f"{kind};version={version};q=0.5, */*;q=0.1"
    reply = front.http.get("/metrics", headers={"Accept": accept})
    assert reply.status_code == 200, reply.text
    assert "poe_node_up 1.0" in reply.text


class Silent(Brokers):
    """Some of which nothing is heard, however long one waits."""

    @asynccontextmanager
    async def connection(self, timeout_s):
        del timeout_s
        await asyncio.Event().wait()
        yield


async def test_metrics_do_not_wait_for_a_node_for_longer_than_those_who_read_them(monkeypatch):
    monkeypatch.setattr(health, "_NODE_S", 0.01)
    routes = health.HealthRoutes(GatewayOptions(), Silent(parse_url("poe://h"), {}, 1.0))
    async with asyncio.timeout(20):
        reply = await routes.get_metrics(Request({"type": "http", "headers": []}))
    assert b"poe_node_up 0.0" in reply.body


class Late(Brokers):
    """Some whose node answers once it is told to."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked_count = 0
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def connection(self, timeout_s):
        del timeout_s
        yield self

    async def counters(self):
        self.asked_count += 1
        self.asked.set()
        await self.answer.wait()
        return {"node": {}, "topics": {}}

    async def control(self, _op):
        raise NotInCluster


async def test_two_who_read_metrics_at_once_are_told_the_same():
    """An older answer that came behind a newer one would say that counts have fallen."""
    late = Late(parse_url("poe://h"), {}, 1.0)
    routes = health.HealthRoutes(GatewayOptions(), late)
    request = Request({"type": "http", "headers": []})
    readers = [asyncio.ensure_future(routes.get_metrics(request)) for _ in range(2)]
    await late.asked.wait()
    late.answer.set()
    for each in readers:
        assert b"poe_node_up 1.0" in (await each).body
    assert late.asked_count == 1
    assert b"poe_node_up 1.0" in (await routes.get_metrics(request)).body
    assert late.asked_count == 2


def test_no_client_can_make_metrics_without_end(front):
    def count():
        return front.http.get("/metrics").text.count('route="other"')

    front.http.request("GET", "/path")
    before = count()
    for i in range(20):
        front.http.request(f"M{i}", f"/path/{i}")
        front.http.get(f"/path/{i}", headers={"Host": f"host{i}.example"})
    assert count() - before < 10
