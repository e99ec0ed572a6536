"""Actor systems for the tests: one whose time stands still, one with real threads and time."""

from collections.abc import Iterator

import pytest

from poe.actors import LoopSystemBase, SimulatedClock


@pytest.fixture
def system() -> Iterator[LoopSystemBase]:
    """A system without threads; `advance` moves its time."""
    base = LoopSystemBase(clock=SimulatedClock())
    yield base
    base.shutdown()


@pytest.fixture
def live() -> Iterator[LoopSystemBase]:
    """A system as in production, with an event loop in a thread of its own."""
    base = LoopSystemBase()
    yield base
    base.shutdown()
