"""The life of a producer with a spool, without threads and sockets: it ends, and another begins."""

import pytest

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import TopicState, WorkerState
from poe.client.producer.topic_queues import TopicQueues
from poe.client.producer.transport import Partition, TopicMetadata
from poe.client.producer.worker_record import WorkerRecord
from poe.client.spool.spool import Spool
from poe.client.spool.spooler import Spooler
from poe.errors import ConnectFailed
from tests.client.simulated import SimulatedLink, SimulatedTime, StoringServer
from tests.storage.faulty_files import FaultyFiles
from torture.layers.memory import MemoryFiles

DOWN = ConnectFailed("host", 1, "nobody listens")


class Life:
    """A process with a producer: what it has in memory ends with it."""

    def __init__(
        self, files, time, bytes_max=1 << 20, drop="oldest", *, knows_partitions=True, **options
    ):
        self.spool = Spool(files, bytes_max=bytes_max, drop=drop)
        loaded = ProducerOptions.load({"batch_count": 3, "in_flight": 4, **options})
        self.accumulator = Accumulator(time, loaded.buffer_count, loaded.buffer_bytes)
        self.observer = observer = Instrumentation(loaded, self.accumulator, takes_empty=False)
        topics: dict[bytes | str, TopicQueues] = {}
        self.spooler = Spooler(self.spool, topics, self.accumulator, observer)
        self.topic = topics[b"t"] = TopicQueues(
            b"t",
            loaded.of(b"t"),
            self.accumulator,
            observer,
            is_numbered=True,
            spooler=self.spooler,
        )
        self.queues = []
        self.links = []
        if knows_partitions:
            self.learn()
        self.topic.enter(TopicState.DOWNTIME, DOWN)

    def learn(self):
        self.topic.learn(TopicMetadata(b"t", (), (Partition(0, 0), Partition(1, 0))))
        self.queues = self.topic.queues()

    def connect(self, servers):
        self.topic.enter(TopicState.READY)
        self.links = [SimulatedLink(server) for server in servers]
        for queue, link in zip(self.queues, self.links, strict=True):
            queue.connect(WorkerRecord(1, "host:1", [queue], WorkerState.READY, link))

    def disconnect(self, *, is_told_first=False):
        for queue, link in zip(self.queues, self.links, strict=True):
            for action in (link.close, queue.disconnect)[:: 1 if is_told_first else -1]:
                action()
        self.links = []
        self.topic.enter(TopicState.DOWNTIME, DOWN)

    def run(self, time):
        """Let everything happen until nothing is left to do."""
        for _ in range(200):
            for link in self.links:
                link.run()
            time.advance(1.0)
            if not self.accumulator.count and self.spool.is_empty:
                return
        pytest.fail("it does not come to an end")


def numbers(first, last):
    return [b"%d" % number for number in range(first, last)]


class World:
    def __init__(self, **options):
        self.time = SimulatedTime()
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.servers = [StoringServer(), StoringServer()]
        self.options = options
        self.life = Life(self.files, self.time, **options)

    @property
    def queue(self):
        return self.life.queues[0]

    @property
    def log(self):
        return self.servers[0].log

    def add(self, messages):
        return [delivery for each in messages for delivery in self.queue.add([each], is_due=True)]

    def deliver(self):
        self.life.connect(self.servers)
        self.life.run(self.time)
