"""A queue and what is around it, without threads and sockets: time, a server, and links to it."""

import heapq
import itertools
from collections import deque

from poe.client.producer.accumulator import Accumulator
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.partition_queue import PartitionQueue
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_info import WorkerState
from poe.client.producer.transport import Done, OutgoingBatch
from poe.client.producer.worker_record import WorkerRecord
from poe.errors import ConnectionClosed, InvalidMessage, PoeError
from poe.storage.segment.producers import Producers


class SimulatedTime:
    """A scheduler whose time goes on when it is told to."""

    def __init__(self):
        self._now_s = 100.0
        self._order = itertools.count()
        self._due = []

    def now_s(self):
        return self._now_s

    def call_later(self, delay_s, action):
        heapq.heappush(self._due, (self._now_s + delay_s, next(self._order), action))

    def advance(self, seconds):
        end_s = self._now_s + seconds
        while self._due and self._due[0][0] <= end_s:
            self._now_s, _, action = heapq.heappop(self._due)
            action()
        self._now_s = end_s


class StoringServer:
    """A topic, with the server's own rules for numbered puts."""

    def __init__(self):
        self.log: list[bytes] = []
        self.invalid: set[bytes] = set()
        """Messages that it refuses for good, however often they come."""
        self._producers = Producers()

    def has(self, batch):
        """Tell whether a batch is stored."""
        try:
            return self._producers.find(batch.put_id) is not None
        except PoeError:
            return False

    def put(self, batch):
        """Store a batch once; return the pointer of its last message, or the refusal."""
        batch.put_id.encode()  # or it could not be sent
        if not self.invalid.isdisjoint(batch.messages):
            return InvalidMessage(1, 0)
        try:
            pointer = self._producers.find(batch.put_id)
        except PoeError as error:
            return error
        if pointer is None:
            self.log += batch.messages
            pointer = len(self.log)
            self._producers.add(batch.put_id, pointer)
        return pointer


class SimulatedLink:
    """A connection on which nothing happens by itself."""

    def __init__(self, server):
        self.server = server
        self.is_served = False
        self.sent: deque[tuple[OutgoingBatch, Done]] = deque()
        self.answers: deque[tuple[Done, int | PoeError]] = deque()
        self.is_closed = False

    def send(self, batch, done):
        self.sent.append((batch, done))

    def store(self):
        """Have the server take the oldest batch; its answer is on the way then."""
        batch, done = self.sent.popleft()
        self.answers.append((done, self.server.put(batch)))

    def refuse(self, error):
        """Have the server refuse the oldest batch."""
        _, done = self.sent.popleft()
        self.answers.append((done, error))

    def leave_open(self, error, *, is_stored):
        """Have the server say that it does not know whether it has stored the oldest batch."""
        batch, done = self.sent.popleft()
        if is_stored:
            self.server.put(batch)
        self.answers.append((done, error))

    def is_next_new(self):
        """Tell whether the oldest batch is one that the server has not stored."""
        return bool(self.sent) and not self.server.has(self.sent[0][0])

    def answer(self):
        """Have the oldest answer arrive."""
        done, value = self.answers.popleft()
        self.is_served = self.is_served or isinstance(value, int)
        done(value)

    def run(self):
        """Let everything happen, in order, until nothing is left to do."""
        while self.sent or self.answers:
            if self.answers:
                self.answer()
            else:
                self.store()

    def assist(self, outcome, timeout_s):
        """Nobody but the test receives."""

    def close(self):
        self.is_closed = True
        for _, done in (*self.sent, *((None, done) for done, _ in self.answers)):
            done(ConnectionClosed("the connection is lost"))


class MemorySink:
    """Where metrics go that a test looks at."""

    def __init__(self):
        self.gauges: dict[str, int] = {}
        """The last value of each."""
        self.observed: list[float] = []

    def add(self, *_):
        """Take nothing."""

    def set(self, _labels, gauge, value):
        self.gauges[gauge] = value

    def observe(self, _labels, _histogram, value):
        self.observed.append(value)

    def close(self):
        """Go on to be looked at."""


class QueueWorld:
    """One queue, its time, its server, and the link of the moment."""

    def __init__(self, **options):
        self.time = SimulatedTime()
        self.server = StoringServer()
        self.options = ProducerOptions.load(options)
        self.accumulator = Accumulator(
            self.time, self.options.buffer_count, self.options.buffer_bytes
        )
        observer = Instrumentation(self.options, self.accumulator, takes_empty=False)
        self.observer = observer
        self.queue = PartitionQueue(
            b"t", 0, self.options.of(b"t"), self.accumulator, observer, is_numbered=True
        )
        self.link = SimulatedLink(self.server)

    def connect(self):
        self.link = SimulatedLink(self.server)
        self.queue.connect(WorkerRecord(1, "host:1", [self.queue], WorkerState.READY, self.link))
        return self.link

    def disconnect(self):
        self.queue.disconnect()
        self.link.close()
