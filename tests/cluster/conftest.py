"""What tests of running clusters begin with."""

import pytest

from tests.cluster.clusters import make_witness as make_witness  # noqa: PLC0414 - a fixture
from tests.cluster.clusters import witness as witness  # noqa: PLC0414 - a fixture
from tests.cluster.linked_nodes import Links


@pytest.fixture
def links() -> Links:
    """What nodes of one process have between them."""
    return Links()
