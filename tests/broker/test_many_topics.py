"""What nobody touches costs nothing: no ticks."""

import pytest

from poe.broker.appendix_message import CheckLimits
from poe.broker.appendix_server import AppendixServer
from tests.broker.nodes import SimulatedNode

TOPICS = [b"t%03d" % number for number in range(120)]


@pytest.fixture
def node(tmp_path):
    made = SimulatedNode(tmp_path, count_limit=3)
    for topic in TOPICS:
        made.node.put(topic, b"0")
    yield made
    made.stop()


def test_a_tick_reaches_only_who_was_put_onto(node, monkeypatch):
    looked = []
    take = AppendixServer.handle_cast

    def count(server, message):
        if isinstance(message, CheckLimits):
            looked.append(server.describe_role())
        return take(server, message)

    for topic in TOPICS[:5]:
        node.node.put(topic, b"1")
    node.advance(5)
    monkeypatch.setattr(AppendixServer, "handle_cast", count)
    node.advance(5)
    assert looked == []
    node.node.put(TOPICS[7], b"1")
    node.advance(5)
    assert looked == ["w t007"]


def test_a_writer_that_is_full_is_sealed_at_the_next_tick(node):
    node.node.put_many(b"t000", [b"1", b"2"])
    node.advance(1)
    assert node.roles(b"t000") in {"rw", "hw"}


def test_a_writer_that_is_full_by_limits_that_were_greater_before_is_sealed(tmp_path):
    made = SimulatedNode(tmp_path)
    made.node.put_many(b"t", [b"0"] * 10)
    made.stop()
    made = SimulatedNode(tmp_path, count_limit=5)
    made.advance(1)
    assert made.roles(b"t") in {"rw", "hw"}
    made.stop()
