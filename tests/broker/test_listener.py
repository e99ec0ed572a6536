"""Who connects is served, up to a limit, and the port survives everything below it."""

import socket
import threading

import pytest

from poe import Node, protocol
from poe.errors import ConnectionClosed, Overloaded, PortInUse
from poe.supervision.api import CountChildren, WhichChildren
from tests.waiting import wait_until

TOPIC = b"t"

# An actor that is killed cannot close its socket, which is closed when the actor is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def connect(node, timeout_s=10):
    return protocol.socket(*node.address, timeout_s=timeout_s)


def connection_count(node):
    return node.system.call("connection_sup", CountChildren()).active


def test_any_free_port_is_taken_and_told(serve):
    first, second = serve(), serve()
    assert first.address[1] != second.address[1]
    for node in (first, second):
        with connect(node) as client:
            assert client.control("health")["status"] == "ok"


def test_a_port_in_use_is_refused_and_nothing_is_left_behind(serve, tmp_path):
    port = serve().address[1]
    with pytest.raises(PortInUse):
        Node(dir=tmp_path / "second", port=port).start()
    assert not (tmp_path / "second").exists()


def test_without_a_port_nobody_listens(serve):
    node = serve(port=None)
    assert node.address is None
    node.put(TOPIC, b"1")


def test_a_stopped_node_frees_its_port(serve, tmp_path):
    node = serve()
    port = node.address[1]
    with connect(node) as client:
        client.topics()
    node.stop()
    again = Node(dir=tmp_path / "again", port=port).start()
    again.stop()


def test_clients_beyond_connections_max_are_told_so(serve):
    node = serve(connections_max=3)
    clients = [connect(node) for _ in range(3)]
    for client in clients:
        client.topics()
    with connect(node) as refused, pytest.raises(Overloaded, match="connections_max"):
        refused.topics()
    for client in clients:
        client.topics()
    clients[0].close()
    wait_until(lambda: connection_count(node) == 2)
    with connect(node) as welcome:
        welcome.topics()
    for client in clients:
        client.close()


def test_connections_max_holds_when_all_come_at_once(serve):
    node = serve(connections_max=5)
    raws = [socket.create_connection(node.address) for _ in range(60)]
    wait_until(lambda: connection_count(node) == 5)
    health = protocol.ControlRequest("health", 1, {}).encode()
    answers = []
    for raw in raws:
        raw.settimeout(5)
        try:
            raw.sendall(health)
            answers.append(int.from_bytes(raw.recv(6)[4:], "big"))
        except ConnectionError:
            answers.append(None)
    assert answers.count(protocol.ControlReply.MESSAGE_TYPE) == 5
    for raw in raws:
        raw.close()
    wait_until(lambda: connection_count(node) == 0)


def test_clients_that_go_at_once_leave_nothing(serve):
    node = serve()
    for _ in range(300):
        socket.create_connection(node.address).close()
    wait_until(lambda: connection_count(node) == 0)
    assert node.is_running


@pytest.mark.usefixtures("quiet")
def test_killed_acceptors_are_replaced(serve):
    node = serve()
    for _ in range(3):
        for child in node.system.call("listener_sup", WhichChildren())[1:4]:
            node.system.exit(child.ref, "kill")
        with connect(node) as client:
            assert client.control("health")["status"] == "ok"
    assert node.is_running


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["connection_sup", "listener_sup"])
def test_no_client_is_left_without_an_answer_while_the_listener_restarts(serve, name):
    """A client that an acceptor had just taken once hung until its own time-out."""
    node = serve()
    for _ in range(30):
        first, second = connect(node), connect(node)
        node.system.exit(node.system.find(name).address, "kill")
        first.close()
        second.close()
        wait_until(lambda: is_served(node))
        restart_budget(node)


def is_served(node):
    try:
        with connect(node, timeout_s=2) as client:
            return client.control("health")["status"] == "ok"
    except ConnectionClosed:
        return False


def restart_budget(node):
    """Forget the restarts so far: 30 in a second are more than supervisors take for an accident."""
    for name in ("poe_sup", "listener_sup"):
        sup = node.system.find(name).instance
        sup._children._history._times_s.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_listener_that_is_killed_again_and_again_ends_the_node_at_last(serve):
    node = serve()
    ended = threading.Event()
    node.when_ended(lambda reason: ended.set())
    while not ended.is_set():
        cell = node.system.find("listener_sup")
        if cell is not None:
            node.system.exit(cell.address, "kill")
    assert not node.is_running
