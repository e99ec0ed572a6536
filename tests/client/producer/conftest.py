"""A real server for the producers of a module, and a topic for each test."""

import pytest

import poe


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with poe.Node(dir=tmp_path_factory.mktemp("poe") / "data", port=0) as node:
        yield node


@pytest.fixture
def url(node):
    return "poe://{}:{}".format(*node.address)


@pytest.fixture
def topic(request):
    return request.node.name
