"""What tests of several packages need."""

from collections.abc import Iterator

import pytest

from poe.actors import LoopSystem
from poe.testing import SimulatedClock
from tests.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    """A disk that is full when it is told to be."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def system() -> Iterator[LoopSystem]:
    """A system without threads; `advance` moves its time."""
    base = LoopSystem(clock=SimulatedClock())
    yield base
    base.shutdown()


@pytest.fixture
def live() -> Iterator[LoopSystem]:
    """A system as in production, with an event loop in a thread of its own."""
    base = LoopSystem()
    yield base
    base.shutdown()
