"""Keeps the log quiet: the machines kill actors thousands of times, and each end is an error."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    logger = logging.getLogger("poe")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def unvisited() -> Iterator[None]:
    """Let the collector, which machines call often, leave what other tests have made alone."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
