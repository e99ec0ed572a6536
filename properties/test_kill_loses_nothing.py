"""Whatever moment a server is killed at, each message it acknowledged is there, once, in order.

A real process, real sockets and SIGKILL. Requests are sent without waiting for replies, so that
some are under way when the end comes; each of those is stored whole or not at all, and never
without those before it.
"""

import shutil
import socket
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from poe.protocol import FrameReader, PutReply, PutRequest, decode_reply
from properties.models import NodeModel
from properties.strategies import BATCHES, LIMITS, TOPICS
from tests.broker.nodes import read_by_frames
from tests.broker.server_process import ServerProcess

REQUESTS = st.lists(st.tuples(TOPICS, BATCHES), min_size=1, max_size=25)
KILLS_MAX = 4
"""Each costs a start of the interpreter."""


class KillAgreement(RuleBasedStateMachine):
    """A server process against the model."""

    @initialize(ack=st.sampled_from(["flushed", "flushed", "fsync"]))
    def begin(self, ack):
        self.home = Path(mkdtemp(prefix="poe-props-"))
        self.options = {"count_limit": 40, "check_interval": 0.01, "worker_timeout": 0.02}
        self.options["ack"] = ack
        self.kill_count = 0
        self.model = NodeModel()
        self.start()

    def start(self):
        self.server = ServerProcess(self.home / "data", **self.options)
        self.client = self.server.connect()

    @rule(topic=TOPICS, messages=BATCHES)
    def put(self, topic, messages):
        self.model.put(topic, messages, self.client.write(topic, messages))

    @rule(topic=TOPICS, limit=LIMITS)
    def read_all(self, topic, limit):
        found = read_by_frames(self.client.read, topic, limit)
        assert found == self.model.topics.get(topic, [])

    @precondition(lambda self: self.kill_count < KILLS_MAX)
    @rule()
    def stop_and_start(self):
        self.kill_count += 1
        self.client.close()
        assert self.server.stop() == 0
        assert not list((self.home / "data").glob("topics/*/*_lock"))
        self.start()

    @precondition(lambda self: self.kill_count < KILLS_MAX)
    @rule(requests=REQUESTS, replies_share=st.floats(0, 1))
    def kill_while_putting(self, requests, replies_share):
        self.kill_count += 1
        replies_count = int(len(requests) * replies_share)
        pointers = self.send_and_kill(requests, replies_count)
        for (topic, messages), pointer in zip(requests, pointers, strict=False):
            self.model.put(topic, messages, pointer)
        self.start()
        self.adopt_unacknowledged(requests[replies_count:])

    def send_and_kill(self, requests, replies_count):
        """Send all requests, kill the server after some replies, and tell their pointers."""
        self.client.close()
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as raw:
            frames = b"".join(PutRequest(*request).encode() for request in requests)
            raw.sendall(frames)
            pointers = receive_pointers(raw, replies_count)
            self.server.kill()
        return pointers

    def adopt_unacknowledged(self, requests):
        """Find out which of the unacknowledged requests were stored: the first so many."""
        stored = {
            topic: read_by_frames(self.client.read, topic, 1000)
            for topic in {topic for topic, _ in requests}
        }
        is_missing = False
        for topic, messages in requests:
            records = stored[topic]
            start = len(self.model.topics.get(topic, []))
            if len(records) == start:
                is_missing = True
                continue
            assert not is_missing, "a later request was stored, but not this one's predecessor"
            batch = records[start : start + len(messages)]
            assert [message for _, message in batch] == messages, "half a request was stored"
            self.model.put(topic, messages, batch[-1][0])
        for topic, records in stored.items():
            assert records == self.model.topics.get(topic, [])

    def teardown(self):
        if hasattr(self, "server"):
            self.client.close()
            self.server.kill()
            shutil.rmtree(self.home)


def receive_pointers(raw, count):
    """Receive so many put replies."""
    reader = FrameReader()
    pointers: list[int] = []
    while len(pointers) < count:
        while len(pointers) < count and (frame := reader.next_frame()) is not None:
            reply = decode_reply(PutReply, *frame)
            assert isinstance(reply, PutReply), reply
            pointers.append(reply.pointer)
        if len(pointers) < count:
            size = raw.recv_into(reader.buffer())
            assert size, "server closed the connection"
            reader.received(size)
    return pointers


TestKill = KillAgreement.TestCase
TestKill.settings = settings(
    max_examples=max(3, settings().max_examples // 15), stateful_step_count=20
)
