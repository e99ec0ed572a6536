"""Tests of Kafka: all need confluent-kafka, and those with a broker Java and Maven."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kafka.kafka_broker import KafkaBroker


def pytest_pycollect_makemodule(module_path, parent):
    """Skip what cannot be imported, with the reason."""
    if find_spec("confluent_kafka") is None:
        pytest.skip("needs confluent-kafka: the extra poe-queue[kafka]", allow_module_level=True)


@pytest.fixture(scope="session")
def session_broker(tmp_path_factory) -> Iterator["KafkaBroker"]:
    """The one Apache Kafka of this process; use `kafka_broker`."""
    from tests.kafka.kafka_broker import KafkaBroker, Unavailable  # noqa: PLC0415 - only where it can be imported

    try:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    except Unavailable as error:
        pytest.skip(str(error))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def kafka_broker(session_broker: "KafkaBroker") -> "KafkaBroker":
    """Apache Kafka, serving; whoever kills it starts it again, with all its data."""
    session_broker.wait_ready()
    return session_broker
