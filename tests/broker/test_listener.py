"""Who connects is served, up to a limit, and the port survives everything below it."""

import os
import socket
import threading
from functools import partial

import pytest

from poe import Node, protocol
from poe.errors import Overloaded, PortInUse
from poe.storage.formats.record import encode_record
from poe.supervision.api import WhichChildren
from tests.broker.nodes import KILLING, START_US, connect, is_served, kill
from tests.scenarios.clients import connection_count
from tests.waiting import wait_until

TOPIC = b"t"
KILLS_MAX = 8
"""As many in a second as supervisors take for accidents."""


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


def test_nobody_listens_before_recovery_is_done(serve, tmp_path, monkeypatch):
    """In the original a start that failed left a port behind which nobody was."""
    first = serve()
    port = first.address[1]
    first.stop()
    topic = tmp_path / "data" / "topics" / "t"
    topic.mkdir(parents=True)
    (topic / f"{START_US}_data").write_bytes(encode_record(b"1", START_US, 100))
    (topic / f"{START_US}_lock").touch()
    syncing, disk = threading.Event(), threading.Event()

    def fdatasync(_):
        syncing.set()
        disk.wait()

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    node = Node(dir=tmp_path / "data", port=port)
    start = threading.Thread(target=node.start)
    start.start()
    assert syncing.wait(10)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    disk.set()
    start.join()
    assert is_served(node)
    node.stop()


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


def test_clients_beyond_the_limit_of_their_address_are_told_so(serve):
    node = serve(connections_per_address_max=2)
    clients = [connect(node) for _ in range(2)]
    for client in clients:
        client.topics()
    with (
        connect(node) as refused,
        pytest.raises(Overloaded, match="connections_per_address_max of 2"),
    ):
        refused.topics()
    elsewhere = socket.create_connection(node.address, 5, ("127.0.0.2", 0))
    elsewhere.sendall(protocol.ControlRequest("health", 1, {}).encode())
    assert elsewhere.recv(6)[4:] == protocol.ControlReply.MESSAGE_TYPE.to_bytes(2, "big")
    elsewhere.close()
    clients.pop().close()
    wait_until(lambda: connection_count(node) == 1)
    with connect(node) as welcome:
        welcome.topics()
    clients.pop().close()


@KILLING
@pytest.mark.usefixtures("quiet")
def test_connections_that_are_killed_count_no_more(serve):
    node = serve(connections_max=2)
    for _ in range(5):
        clients = [connect(node) for _ in range(2)]
        for client in clients:
            client.topics()
        for child in node.system.call("connection_sup", WhichChildren()):
            node.system.exit(child.ref, "kill")
        wait_until(lambda: connection_count(node) == 0)
        for client in clients:
            client.close()
    with connect(node) as welcome:
        welcome.topics()


def test_connections_max_holds_when_all_come_at_once(serve):
    node = serve(connections_max=5)
    raws = [socket.create_connection(node.address) for _ in range(60)]
    wait_until(lambda: connection_count(node) == 5)
    health = protocol.ControlRequest("health", 1, {}).encode()
    answers = []
    for raw in raws:
        raw.settimeout(5)
        raw.sendall(health)
        answers.append(int.from_bytes(raw.recv(6)[4:], "big"))
    assert answers.count(protocol.ControlReply.MESSAGE_TYPE) == 5
    assert answers.count(protocol.ErrorReply.MESSAGE_TYPE) == 55
    for raw in raws:
        raw.close()
    wait_until(lambda: connection_count(node) == 0)


def test_clients_that_go_at_once_leave_nothing(serve):
    node = serve()
    for _ in range(300):
        socket.create_connection(node.address).close()
    wait_until(lambda: connection_count(node) == 0)
    assert node.is_running


@KILLING
@pytest.mark.usefixtures("quiet")
def test_killed_acceptors_are_replaced(serve):
    node = serve()
    for _ in range(3):
        for child in node.system.call("listener_sup", WhichChildren())[1:4]:
            node.system.exit(child.ref, "kill")
        with connect(node) as client:
            assert client.control("health")["status"] == "ok"
    assert node.is_running


@KILLING
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["connection_sup", "listener_sup"])
def test_no_client_is_left_without_an_answer_while_the_listener_restarts(serve, name):
    """A client that an acceptor had just taken once hung until its own time-out."""
    for _ in range(4):
        node = serve()
        for _ in range(KILLS_MAX):
            first, second = connect(node), connect(node)
            kill(node, name)
            first.close()
            second.close()
            wait_until(partial(is_served, node))


@KILLING
@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_a_listener_that_is_killed_again_and_again_ends_the_node_at_last(serve):
    node = serve()
    ended = threading.Event()
    node.when_ended(lambda reason: ended.set())
    while not ended.is_set():
        cell = node.system.actors.find("listener_sup")
        if cell is not None:
            node.system.exit(cell.address, "kill")
    assert not node.is_running
