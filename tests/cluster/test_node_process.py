"""Nodes in processes, as tests of clusters start, stop and hurt them; none is in a cluster here."""

import pytest

from poe import protocol
from poe.errors import CallTimeout, ConnectFailed
from tests.cluster.network import network
from tests.cluster.nodes import CALL_S, PORT, RunningNode

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def node(tmp_path):
    with network(1) as net:
        made = RunningNode(net.hosts[0], tmp_path, [])
        made.start()
        made.wait()
        yield made
        if made.program is not None:
            made.kill()


def connect(node, timeout_s=CALL_S):
    return protocol.socket(node.host.client_address, PORT, timeout_s=timeout_s)


def test_a_node_is_asked_from_where_the_test_is(node):
    assert node.control("topics") == []
    assert node.stop() == 0
    with pytest.raises(ConnectFailed):
        connect(node)


def test_a_frozen_node_answers_nobody_until_it_is_thawed(node):
    with connect(node, 1) as socket:
        node.process.freeze()
        with pytest.raises(CallTimeout):
            socket.control("topics")
    node.process.thaw()
    assert node.control("topics") == []


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_killed_node_starts_again_with_its_folder_or_without(node, has_folder):
    with connect(node) as socket:
        socket.write("t", [b"m"])
    node.kill()
    if not has_folder:
        node.lose_folder()
    node.start()
    node.wait()
    with connect(node) as socket:
        assert [message for _, message in socket.read("t", 0, 10)] == [b"m"] * has_folder


def test_a_node_that_does_not_start_says_why(node):
    node.stop()
    node.variables["POE_PORT_"] = "1"
    node.start()
    with pytest.raises(AssertionError, match="ended"):
        node.wait()
    assert "POE_PORT_" in node.log.read_text()
