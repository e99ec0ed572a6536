from contextlib import closing
from functools import partial

import pytest

from tests.client.group.queues import Queues


@pytest.fixture
def member(node, consumers):
    """A function that makes consumers of the node which are members of a group."""
    group_options = {"session_s": 2, "heartbeat_s": 0.2}
    options = {"group": "billing", "group_options": group_options, "commit_interval_s": 0.01}
    return partial(consumers, node, **options)


@pytest.fixture(params=["blocking", "asyncio"])
def queues(request):
    with closing(Queues(request.param)) as queues:
        yield queues


@pytest.fixture
def queue(node, queues):
    """A function that makes queues of the node."""
    return partial(queues, node)
