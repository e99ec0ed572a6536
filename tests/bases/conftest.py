"""The same system on each base: GenServers must not notice which one they run on."""

import gc
import warnings
from collections.abc import Iterator

import pytest

from poe.actors import LoopSystem
from poe.thespian import HostedSystem

System = LoopSystem | HostedSystem

# Each start of processes takes its time, and most of what there is of it is the same in both.
PROCESSES = [pytest.param("multiprocQueueBase", marks=pytest.mark.slow), "multiprocTCPBase"]
BASES = ["loop", "simpleSystemBase", *PROCESSES]


@pytest.fixture(params=BASES)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    system = LoopSystem() if request.param == "loop" else HostedSystem(request.param)
    yield system
    if isinstance(system, HostedSystem):
        _end(system)
    else:
        system.shutdown()


@pytest.fixture(params=PROCESSES)
def processes(request: pytest.FixtureRequest) -> Iterator[HostedSystem]:
    """A system with a process for each actor."""
    system = HostedSystem(request.param)
    yield system
    _end(system)


def _end(system: HostedSystem) -> None:
    """End a system, and let go of what Thespian has not closed before anybody is told of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        system.shutdown()
        gc.collect()
