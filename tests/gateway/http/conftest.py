from collections.abc import Iterator

import pytest

from poe.node import Node
from tests.gateway.http.front import Front
from tests.tls import Certificates


@pytest.fixture(scope="session")
def node(tmp_path_factory) -> Iterator[Node]:
    """A node that all tests share; each has topics of its own."""
    with Node(dir=tmp_path_factory.mktemp("node"), port=0, names="escape") as node:
        yield node


@pytest.fixture(scope="session")
def front(node) -> Iterator[Front]:
    """A gateway with default options, likewise."""
    with Front(node) as front:
        yield front


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    """Those of gateways that speak HTTPS."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def topic(request) -> str:
    """The test's own topic."""
    return "".join(each if each.isalnum() else "_" for each in request.node.name)
