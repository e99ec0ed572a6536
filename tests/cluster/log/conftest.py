import pytest

from tests.cluster.log.replicated import replicated


@pytest.fixture
def three(tmp_path):
    with replicated(tmp_path) as nodes:
        yield nodes
