"""Who waits for news hears of it at once, in simulated time: not a step later than the put."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from poe.actors import GenServer
from poe.broker import RoutingTable
from poe.broker.requests.request_handler import RequestHandler
from tests.broker.nodes import SimulatedNode

TOPIC = b"t"
PUT_AFTER_S = 1.0
STEP_S = 0.01  # of simulated time, while somebody waits for an answer


class LatePut(GenServer):
    """Puts one message after a while, as another client would."""

    def init(self, routes: RoutingTable, topic: bytes):
        self.handler = RequestHandler(self, routes)
        self.topic = topic
        self.send_after(PUT_AFTER_S, "now")

    async def handle_info(self, message: Any):
        await self.handler.put(self.topic, [b"news"])


@pytest.fixture
def simulate(tmp_path) -> Iterator[Callable[..., SimulatedNode]]:
    nodes: list[SimulatedNode] = []

    def start(**options):
        nodes.append(SimulatedNode(tmp_path / "node", **options))
        return nodes[-1]

    yield start
    for sim in nodes:
        sim.stop()


@pytest.mark.parametrize("ack", ["memory", "flushed", "fsync"])
def test_a_put_ends_the_wait_for_it_at_once(simulate, ack):
    sim = simulate(ack=ack)
    newest = sim.node.put(TOPIC, b"1")
    sim.system.start(LatePut, sim.routes, TOPIC)
    start_s = sim.clock.monotonic_s()
    assert sim.node.control("wait", topic=TOPIC, pointer=newest, timeout_s=30) is True
    assert sim.clock.monotonic_s() - start_s <= PUT_AFTER_S + 2 * STEP_S


def test_rotation_does_not_delay_the_news(simulate):
    sim = simulate(count_limit=1, check_interval=PUT_AFTER_S / 3)
    newest = sim.node.put(TOPIC, b"1")
    sim.system.start(LatePut, sim.routes, TOPIC)
    start_s = sim.clock.monotonic_s()
    assert sim.node.control("wait", topic=TOPIC, pointer=newest, timeout_s=30) is True
    assert sim.clock.monotonic_s() - start_s <= PUT_AFTER_S + 2 * STEP_S
    assert len(sim.servers()) > 1


def test_a_wait_longer_than_a_look_at_the_peer_goes_on(simulate):
    """Every few seconds it is checked that somebody still waits; that must not end the wait."""
    sim = simulate()
    newest = sim.node.put(TOPIC, b"1")
    start_s = sim.clock.monotonic_s()
    assert sim.node.control("wait", topic=TOPIC, pointer=newest, timeout_s=9) is False
    assert 9 <= sim.clock.monotonic_s() - start_s <= 9 + 2 * STEP_S
