"""Calls go on while a server is away, and end when it stays away."""

import pytest

from poe import Node
from poe.errors import ConnectFailed, InvalidTopicName, NodeIsBehind
from poe.protocol import Socket
from poe.protocol.server import Server
from poe.spark.retrying_socket import RetryingSocket
from tests.broker.nodes import address

pytestmark = pytest.mark.spark


def test_call_is_made_again_on_a_new_connection(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        host, port = address(node)
        server = RetryingSocket([Server(host, port)], 10.0)
        server.call(Socket.write, b"t", [b"m"])
    with Node(dir=tmp_path, port=port), server:
        assert [message for _, message in server.call(Socket.read, b"t", 0, 1)] == [b"m"]


def test_where_there_are_several_the_next_one_is_asked_also_by_who_is_new(tmp_path):
    with Node(dir=tmp_path / "a", port=0) as node:
        away = Server(*address(node))
    with Node(dir=tmp_path / "b", port=0) as node:
        servers = [away, away, Server(*address(node))]
        with RetryingSocket(servers, 10.0, is_known=False) as server:
            assert server.call(Socket.topics) == []
            assert server.everywhere(Socket.topics) == [[]]
    with RetryingSocket([away, away], 10.0, is_known=False) as server, pytest.raises(ConnectFailed):
        server.call(Socket.topics)


def test_a_server_that_is_not_up_to_a_call_is_left_for_the_next_one(tmp_path):
    with Node(dir=tmp_path / "a", port=0) as one, Node(dir=tmp_path / "b", port=0) as two:
        two.put("t", b"m")
        servers = [Server(*address(one)), Server(*address(two))]

        def check(socket):
            if not socket.topics():
                raise NodeIsBehind("it", "t")

        with RetryingSocket(servers, 10.0) as server:
            assert len(server.call(Socket.read, b"t", 0, 1, check=check)) == 1
        with RetryingSocket(servers[:1], 0.1) as server, pytest.raises(NodeIsBehind):
            server.call(Socket.read, b"t", 0, 1, check=check)


def test_refusal_is_raised_at_once(tmp_path):
    with (
        Node(dir=tmp_path, port=0) as node,
        RetryingSocket([Server(*address(node))], 1e9) as server,
    ):
        with pytest.raises(InvalidTopicName):
            server.call(Socket.write, b"no/good", [b"m"])
        assert server.call(Socket.topics) == []


def test_patience_ends(tmp_path):
    with Node(dir=tmp_path, port=0) as node:
        where = address(node)
    with RetryingSocket([Server(*where)], 0.0) as server, pytest.raises(ConnectFailed):
        server.call(Socket.topics)
