import pytest

from tests.cluster.fabric.listener import Cluster


@pytest.fixture
def cluster():
    """Nodes on loopback by zenoh, which are closed in the end."""
    pytest.importorskip("zenoh")
    with Cluster() as made:
        yield made
