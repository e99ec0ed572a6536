import pytest

from tests.cli.processes import Server


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "data") as running:
        yield running
