from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from poe.cluster.log.nats_server import find_server
from poe.errors import LogEngineMissing, LogEngineUnfit
from tests.cluster.log.engines import Engines
from tests.cluster.log.replicated import replicated

StartEngines = Callable[..., Engines]


@pytest.fixture(scope="session")
def nats_program() -> Path:
    """The `nats-server` of this machine; the test is skipped where there is none that is fit."""
    pytest.importorskip("nats")
    try:
        return find_server()
    except (LogEngineMissing, LogEngineUnfit) as error:
        pytest.skip(str(error))


@pytest.fixture
def start_engines(nats_program: Path, tmp_path: Path) -> Iterator[StartEngines]:
    """Starts servers with an engine each, which end with the test."""
    del nats_program
    with ExitStack() as stack:

        def start(count: int = 3, **options: Any) -> Engines:
            engines = stack.enter_context(Engines(tmp_path, count, **options))
            engines.start()
            engines.wait_whole()
            return engines

        yield start


@pytest.fixture
def engines(start_engines: StartEngines) -> Engines:
    """Three of them, and a stream `s`."""
    made = start_engines()
    made.make_stream("s")
    return made


@pytest.fixture
def three(tmp_path):
    with replicated(tmp_path) as nodes:
        yield nodes
