"""A real server for the producers of a module, and a topic for each test."""

import pytest


@pytest.fixture(scope="module")
def node(shared_node):
    return shared_node


@pytest.fixture
def url(node):
    return "poe://{}:{}".format(*node.address)


@pytest.fixture
def topic(request):
    return request.node.name
