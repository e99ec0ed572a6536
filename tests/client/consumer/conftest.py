from functools import partial

import pytest


@pytest.fixture
def consumer(node, consumers):
    """A function that makes consumers of the node."""
    return partial(consumers, node)
