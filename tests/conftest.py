"""What tests of several packages need."""

import gc
import ssl
from collections.abc import Callable, Iterator

import pytest

from poe import Node
from poe.actors import LoopSystem
from poe.testing import SimulatedClock
from tests.small_disk import SmallDisk, small_disk
from tests.tls import Certificates, TlsNode


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    """An authority, and a server's certificate that it has signed."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tls_pair(certificates) -> Iterator[Callable[[], tuple[ssl.SSLSocket, ssl.SSLSocket]]]:
    """Connect a server and a client by TLS; both are closed at the end."""
    opened: list[ssl.SSLSocket] = []

    def connect():
        pair = certificates.pair()
        opened.extend(pair)
        return pair

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    """A disk that is full when it is told to be."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def system() -> Iterator[LoopSystem]:
    """A system without threads; `advance` moves its time."""
    base = LoopSystem(clock=SimulatedClock())
    yield base
    base.shutdown()


@pytest.fixture
def live() -> Iterator[LoopSystem]:
    """A system as in production, with an event loop in a thread of its own."""
    base = LoopSystem()
    yield base
    base.shutdown()


def pytest_generate_tests(metafunc):
    """Play the tests of a module by all its `TRANSPORTS`, as far as they have to do with nodes."""
    transports = getattr(metafunc.module, "TRANSPORTS", ())
    if transports and "transport" in metafunc.fixturenames:
        metafunc.parametrize("transport", transports)


@pytest.fixture
def transport() -> str:
    """How clients connect to nodes: `plain`, unless the module has other `TRANSPORTS`."""
    return "plain"


@pytest.fixture
def serve(transport, tmp_path, certificates) -> Iterator[Callable[..., Node]]:
    """Make a node in real time that listens on any port."""
    nodes: list[Node] = []

    def start(**options):
        options = {"dir": tmp_path / f"node{len(nodes)}", **options}
        is_plain = transport == "plain"
        node = Node({"port": 0, **options}) if is_plain else TlsNode.of(certificates, options)
        nodes.append(node.start())
        return nodes[-1]

    yield start
    for node in nodes:
        node.stop()


@pytest.fixture
def node(request, serve, tmp_path) -> Node:
    """A node that listens; what a module calls `NODE` are its options."""
    node: Node = serve(dir=tmp_path / "data", **getattr(request.module, "NODE", {}))
    return node


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory) -> Iterator[Node]:
    """A node that listens, for all tests of a module; each has topics of its own."""
    with Node(dir=tmp_path_factory.mktemp("shared") / "data", port=0) as node:
        yield node


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collector, which would do what is to be done without it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
