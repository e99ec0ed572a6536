"""Nodes that end with their test."""

import gc
import logging
import warnings
from collections.abc import Callable, Iterator

import pytest

from tests.broker.nodes import SimulatedNode


@pytest.fixture
def simulate(tmp_path) -> Iterator[Callable[..., SimulatedNode]]:
    """Make a node in simulated time, without sockets."""
    nodes: list[SimulatedNode] = []

    def start(**options):
        nodes.append(SimulatedNode(tmp_path / f"node{len(nodes)}", **options))
        return nodes[-1]

    yield start
    for sim in nodes:
        sim.stop()


@pytest.fixture
def quiet() -> Iterator[None]:
    """For tests that end actors on purpose: no log of it, no warning about what they leave open."""
    logger = logging.getLogger("poe")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)
    with warnings.catch_warnings():
        # An actor that is killed cannot close its socket; the collector does, with a warning.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def sim(simulate) -> SimulatedNode:
    """One of them."""
    node: SimulatedNode = simulate()
    return node
