"""A disk that takes its time with the copy of one topic: all else goes on."""

import os
import threading

import pytest

from tests.broker.test_slow_disk import SLOW, SlowDisk
from tests.cluster.log.replicated import replicated
from tests.waiting import wait_until


@pytest.fixture
def disk(monkeypatch):
    disk = SlowDisk(os.fdatasync)
    disk.gate.set()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    yield disk
    disk.gate.set()


def test_nobody_else_waits_while_a_full_segment_is_synced(tmp_path, disk):
    with replicated(tmp_path, count_limit=10, sync_interval=60) as nodes:
        a = nodes["a"]
        for topic in (SLOW, b"other"):
            a.create_topic(topic, replicas=3)
            a.put_many(topic, [b"first"] * 10)
        disk.begun = 0
        disk.gate.clear()
        told: list[int] = []
        producer = threading.Thread(target=lambda: told.append(a.put(SLOW, b"behind it")))
        producer.start()
        wait_until(lambda: disk.begun == 3, 10)  # that of each node
        a.put(b"other", b"second")
        a.put(b"new", b"1")
        assert not told
        disk.gate.set()
        producer.join(20)
        assert a.next(SLOW, told[0] - 1) == (told[0], b"behind it")
        nodes.wait_same("slow")
