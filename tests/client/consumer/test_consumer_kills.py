"""A consumer follows a server that is killed again and again while it is put onto."""

import threading

import pytest

from poe.client.consumer.consumer import Consumer
from poe.errors import PoeError
from poe.protocol import PutId
from tests.broker.server_process import ServerProcess

pytestmark = pytest.mark.slow

KILL_COUNT = 3
BATCHES_PER_LIFE = 40
BATCH = 50


class Putter(threading.Thread):
    """Puts numbers onto some topics, each once, however often the server dies."""

    def __init__(self, server, partitions):
        super().__init__(daemon=True)  # after a failure nobody waits for it
        self.server = server
        self.partitions = partitions
        self.done_count = 0
        self.progress = threading.Condition()
        self.start()

    def run(self):
        socket = None
        for number in range((KILL_COUNT + 1) * BATCHES_PER_LIFE):
            partition, sequence = number % self.partitions, number // self.partitions
            messages = [b"%d" % (number * BATCH + each) for each in range(BATCH)]
            put_id = PutId(b"producer of test", 1, sequence)
            while True:
                try:
                    socket = socket or self.server().connect()
                    socket.write(b"t-%d" % partition, messages, put_id)
                    break
                except PoeError:
                    socket = None
            with self.progress:
                self.done_count += 1
                self.progress.notify_all()
        assert socket is not None
        socket.close()

    def wait_for(self, count):
        with self.progress:
            assert self.progress.wait_for(lambda: self.done_count >= count, 60)


def test_a_follower_gets_each_message_once_and_in_order_through_kills(tmp_path):
    partitions = 3
    server = ServerProcess(tmp_path / "data")
    port = server.port
    place = f"poe://127.0.0.1:{port}"
    putter = Putter(lambda: server, partitions)
    received: list[list[int]] = [[] for _ in range(partitions)]
    expected_count = (KILL_COUNT + 1) * BATCHES_PER_LIFE * BATCH

    def follow():
        with Consumer(place, "t", partitions=partitions, follow=True) as reader:
            for each in reader:
                received[each.partition].append(int(each.value or b""))
                if sum(map(len, received)) == expected_count:
                    return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    for life in range(1, KILL_COUNT + 1):
        putter.wait_for(life * BATCHES_PER_LIFE)
        server.kill()
        server = ServerProcess(tmp_path / "data", port=port)
    putter.join(60)
    follower.join(60)
    server.stop()
    for partition in range(partitions):
        assert received[partition] == [
            number for number in range(expected_count) if number // BATCH % partitions == partition
        ]
