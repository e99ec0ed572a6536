import pytest

from tests.cli.processes import Server


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    """A server that the tests of a module share, each with a topic of its own."""
    with Server(tmp_path_factory.mktemp("served") / "data") as running:
        yield running


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "data") as running:
        yield running
