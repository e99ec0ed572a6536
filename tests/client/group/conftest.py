from functools import partial

import pytest


@pytest.fixture
def member(node, consumers):
    """A function that makes consumers of the node which are members of a group."""
    options = {"group": "billing", "group_options": {"session_s": 2}, "commit_interval_s": 0.01}
    return partial(consumers, node, **options)
