from contextlib import closing
from functools import partial

import pytest

from poe import Node
from tests.client.consumers import Consumers


@pytest.fixture
def node(tmp_path):
    with Node(dir=tmp_path / "data", port=0) as node:
        yield node


@pytest.fixture(params=["blocking", "asyncio"])
def consumers(request):
    with closing(Consumers(request.param)) as consumers:
        yield consumers


@pytest.fixture
def consumer(node, consumers):
    """A function that makes consumers of the node."""
    return partial(consumers, node)
