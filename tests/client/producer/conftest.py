"""A real server for the producers of a module, and a topic for each test."""

from collections.abc import Iterator

import pytest

from poe.testing import broker
from poe.testing.broker import PoeBroker


@pytest.fixture(scope="module")
def node(shared_node):
    return shared_node


@pytest.fixture
def url(node):
    return "poe://{}:{}".format(*node.address)


@pytest.fixture
def topic(request):
    return request.node.name


@pytest.fixture
def away() -> Iterator[PoeBroker]:
    """A broker that has just gone away."""
    with broker() as stopped:
        stopped.stop()
        yield stopped
