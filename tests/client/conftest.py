from contextlib import closing

import pytest

from poe import Node
from tests.client.consumers import Consumers


@pytest.fixture(params=["blocking", "asyncio"])
def consumers(request):
    with closing(Consumers(request.param)) as consumers:
        yield consumers


@pytest.fixture
def shedding(tmp_path):
    """A node that begins a segment with each message, so that all but the newest can go."""
    options = {"dir": tmp_path / "data", "port": 0, "size_limit": 1, "check_interval": 0.01}
    with Node(options) as node:
        yield node
