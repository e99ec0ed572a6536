"""The same system on each base: GenServers must not notice which one they run on."""

from collections.abc import Iterator

import pytest

from poe.actors import HostedSystem, LoopSystemBase

System = LoopSystemBase | HostedSystem

BASES = ("loop", "simpleSystemBase", "multiprocQueueBase", "multiprocTCPBase")


@pytest.fixture(params=BASES)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    system = LoopSystemBase() if request.param == "loop" else HostedSystem(request.param)
    yield system
    system.shutdown()


@pytest.fixture(params=["multiprocQueueBase", "multiprocTCPBase"])
def processes(request: pytest.FixtureRequest) -> Iterator[HostedSystem]:
    """A system with a process for each actor."""
    system = HostedSystem(request.param)
    yield system
    system.shutdown()
