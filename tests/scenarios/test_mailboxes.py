"""What waits for an actor is bounded by the connections: one request of each, however many it sent.

An actor that does not get on is suspended here, as none of the product's is by itself.
"""

import pytest

from poe import Node
from poe.errors import CallTimeout
from poe.protocol import ControlRequest, PointerRequest, PutReply, PutRequest
from poe.testing import wait_until
from tests.scenarios.clients import RawClient
from tests.scenarios.conftest import TOPIC

CLIENTS_COUNT = 30
REQUESTS_COUNT = 200
TICKS_MAX = 20
"""Reminders of the product's own, one in half a second, while an actor is suspended."""


def mailbox_lengths(node):
    """Tell how many messages wait for each actor, by its reference."""
    rows = node.control("tree", all=True)
    return {row["ref"]: row["mailbox_length"] for row in rows}


def flood(clients, requests_of):
    for number, client in enumerate(clients):
        client.send(b"".join(request.encode() for request in requests_of(number)))


@pytest.mark.slow
def test_an_appendix_server_has_one_request_of_each_connection_waiting(node, crowd):
    ((_, ((writer, _),)),) = node.info()
    node.system.suspend(writer)
    clients = crowd(node.address, CLIENTS_COUNT)
    flood(clients, lambda _: [PutRequest(TOPIC, [b"x" * 100])] * REQUESTS_COUNT)
    wait_until(lambda: mailbox_lengths(node)[str(writer)] >= CLIENTS_COUNT)
    flood(clients, lambda _: [PointerRequest(TOPIC, 0, 1)] * REQUESTS_COUNT)
    with RawClient(node.address) as other:
        assert other.write(b"other", [b"x"])
    lengths = mailbox_lengths(node)
    assert CLIENTS_COUNT <= lengths.pop(str(writer)) <= CLIENTS_COUNT + TICKS_MAX
    assert max(lengths.values()) <= 1
    node.system.resume(writer)
    for client in clients:
        replies = [client.frame()[0] for _ in range(REQUESTS_COUNT)]
        assert set(replies) == {PutReply.MESSAGE_TYPE}
    assert node.info()[-1][1][0][1].count == 3 + CLIENTS_COUNT * REQUESTS_COUNT


@pytest.mark.slow
@pytest.mark.parametrize(
    "requests_of",
    [
        lambda number: [PutRequest(b"new-%d" % number, [b"x"])] * REQUESTS_COUNT,
        lambda number: [ControlRequest("create", number, {"topic": b"t-%d" % number})] * 200,
    ],
)
def test_the_registry_has_one_request_of_each_connection_waiting(node, crowd, requests_of):
    registry = node.system.whereis("topic_registry")
    node.system.suspend(registry)
    clients = crowd(node.address, CLIENTS_COUNT)
    flood(clients, requests_of)
    wait_until(lambda: mailbox_lengths(node)[str(registry)] >= CLIENTS_COUNT)
    with RawClient(node.address) as other:
        assert other.write(TOPIC, [b"x"])  # a topic with a writer needs no registry
    assert CLIENTS_COUNT <= mailbox_lengths(node)[str(registry)] <= CLIENTS_COUNT + TICKS_MAX
    node.system.resume(registry)
    for client in clients:
        for _ in range(REQUESTS_COUNT):
            assert client.frame() is not None


def test_a_connection_has_no_messages_waiting_however_much_its_client_sends(node, crowd):
    ((_, ((writer, _),)),) = node.info()
    node.system.suspend(writer)
    (client,) = crowd(node.address, 1)
    flood([client], lambda _: [PutRequest(TOPIC, [b"x" * 100])] * REQUESTS_COUNT)
    wait_until(lambda: mailbox_lengths(node)[str(writer)] >= 1)
    rows = [row for row in node.control("tree", all=True) if row["actor"] == "Connection"]
    assert [row["mailbox_length"] for row in rows] == [0]
    node.system.resume(writer)


@pytest.mark.parametrize("name", ["writer", "registry"])
def test_a_put_to_an_actor_that_does_not_get_on_ends_with_a_typed_timeout(tmp_path, name):
    with Node(dir=tmp_path / "other", port=0, put_timeout=0.05) as node:
        node.put(TOPIC, b"1")
        ((_, ((writer, _),)),) = node.info()
        assert writer is not None
        stuck = writer if name == "writer" else "topic_registry"
        node.system.suspend(stuck)
        with RawClient(node.address) as raw, pytest.raises(CallTimeout, match=r"0\.05 s"):
            raw.write(TOPIC if name == "writer" else b"new", [b"2"])
        node.system.resume(stuck)
