"""A fresh world for each supervision test."""

from collections.abc import Iterator

import pytest

from tests.supervision.workers import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.base.shutdown()
