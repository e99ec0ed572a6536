"""A downtime's buffer keeps its bound, whoever fills it."""

import sys
import threading

import pytest

from poe.client import Producer
from poe.testing import broker
from tests.waiting import wait_until


@pytest.fixture
def switching_often():
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("side", ["oldest", "newest"])
@pytest.mark.usefixtures("switching_often")
def test_threads_that_fill_it_together_drop_no_more_than_is_too_much(side):
    with (
        broker() as stopped,
        Producer(stopped.url, downtime_count=10, downtime_drop=side, close_timeout_s=0) as producer,
    ):
        stopped.stop()
        topics = [f"t{number}" for number in range(20)]
        for topic in topics:
            producer.produce_async(topic, b"m")
        wait_until(lambda: {producer.info(topic).state for topic in topics} == {"downtime"})

        def fill():
            for topic in topics:
                for _ in range(10):
                    producer.produce_async(topic, b"m")

        threads = [threading.Thread(target=fill) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {producer.info(topic).buffered_count for topic in topics} == {10}
        assert producer.statistics()["messages_dropped"] == 20 * 31
