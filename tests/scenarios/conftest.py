"""One node with real sockets, and clients of all kinds."""

from collections.abc import Callable, Iterator

import pytest

from poe import Node
from tests.scenarios.clients import CLIENTS, RawClient

TOPIC = b"t"
FRAME_MAX = 1 << 20


@pytest.fixture(params=["plain", "tls"])
def transport(request) -> str:
    """How clients connect: every scenario is played in plaintext and by TLS."""
    return str(request.param)


@pytest.fixture
def node(serve, tmp_path) -> Node:
    """A node that holds three messages in topic `t` and refuses frames of more than 1 MiB."""
    node: Node = serve(dir=tmp_path / "data", frame_max=FRAME_MAX)
    node.put_many(TOPIC, [b"1", b"2", b"3"])
    return node


@pytest.fixture
def raw(node) -> Iterator[RawClient]:
    with RawClient(node.address) as raw:
        yield raw


@pytest.fixture
def crowd() -> Iterator[Callable[..., list[RawClient]]]:
    """Open many raw clients at once; all are closed at the end."""
    clients: list[RawClient] = []

    def open_clients(address, count):
        opened = [RawClient(address) for _ in range(count)]
        clients.extend(opened)
        return opened

    yield open_clients
    for client in clients:
        client.close()


@pytest.fixture(params=CLIENTS)
def client(request, node) -> Iterator[object]:
    """Each kind of client in turn; all have `write`, `read` and `control`."""
    client = CLIENTS[request.param](node.address)
    yield client
    client.close()


@pytest.fixture
def unharmed(node) -> Iterator[Callable[[], None]]:
    """Check, now and at the end, that another client is served and nothing was stored."""
    bystander = RawClient(node.address)

    def check():
        assert [message for _, message in bystander.read(TOPIC, 0, 100)] == [b"1", b"2", b"3"]
        assert bystander.control("topics") == [TOPIC]

    check()
    yield check
    check()
    bystander.close()
