"""Fixtures for pytest: `pytest_plugins = ["poe.testing.fixtures"]` in a `conftest.py`."""

from collections.abc import Iterator

import pytest

from poe.testing.broker import KafkaBroker, PoeBroker, broker


@pytest.fixture
def poe_broker() -> Iterator[PoeBroker]:
    """A broker of Poe of the test's own; see `poe.testing.broker`."""
    with broker() as started:
        yield started


@pytest.fixture
def poe_kafka_broker() -> Iterator[KafkaBroker]:
    """A mock of Kafka of the test's own; the test is skipped where confluent-kafka is missing."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: poe-queue[kafka]")
    with broker("kafka") as started:
        yield started
