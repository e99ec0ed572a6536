"""What clients of running nodes note is a history, and rules judge it; the node is alone here."""

import pytest

from tests.cluster.network import network
from tests.cluster.nodes import Nodes
from tests.cluster.witness import Witness
from tests.waiting import wait_until
from torture.cluster_rules import broken

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def witness(tmp_path):
    with network(1) as net:
        nodes = Nodes.alone(net, tmp_path)
        (node,) = nodes
        node.start()
        node.wait()
        made = Witness(nodes, copies=1, group_options={"session_s": 10})
        made.make_queue(node)
        yield made
        made.stop()
        node.kill()


def test_what_is_put_while_a_node_is_killed_is_done_in_the_end(witness):
    (node,) = witness.nodes
    witness.produce(node)
    witness.work(node)
    wait_until(lambda: len(witness.history().of("acked")) > 5)
    witness.kill(node, is_kept=True)
    witness.start(node)
    node.wait()
    count = len(witness.history().of("acked"))
    wait_until(lambda: len(witness.history().of("acked")) > count + 5)
    witness.end_puts()
    witness.drain()
    witness.stop()
    history = witness.history()
    assert broken(history) == []
    assert [event.kind for event in history.of("start")] == ["start"] * 2
    assert history.of("group")


def test_what_nobody_takes_is_open(witness):
    (node,) = witness.nodes
    assert witness.put(node, 3) == "ok"
    assert len(witness.open()) == 3
    witness.work(node)
    witness.drain()
