"""In process, by a blocking socket or by an asyncio client: everybody sees the same messages.

The node runs in real time with ticks of milliseconds, so that rotation and hibernation go on beside
the steps, and the listener's actors are killed like all others.
"""

import asyncio
import gc
import shutil
import sys
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from poe import Node, client, protocol
from poe.actors import LoopSystem
from poe.storage import POINTER_MAX
from poe.supervision.api import WhichChildren
from properties.models import NodeModel
from properties.strategies import BATCHES, LIMITS, PLACES, TOPICS
from tests.broker.nodes import KILLING, descriptors, is_served, open_files, read_by_next
from tests.protocol.streams import records_of
from tests.waiting import wait_until

KILLS_MAX = 6
"""Fewer than the supervisors' intensities allow in a second."""
WAYS = st.sampled_from(["api", "socket", "asyncio"])


def lasting_descriptors(home):
    """Tell what is open; without what is not this node's, and comes and goes.

    That is sockets where Spark is in this process, and segments of a node that other tests share.
    """
    sockets = ("socket:",) if "pyspark" in sys.modules else ()
    return [
        path
        for path in descriptors()
        if not path.startswith(sockets) and ("/topics/" not in path or path.startswith(str(home)))
    ]


class WaysAgreement(RuleBasedStateMachine):
    """Three ways to one node, and the model."""

    @initialize()
    def begin(self):
        self.home = Path(mkdtemp(prefix="poe-props-"))
        # The first event loop of a process opens pipes for signals, which stay.
        LoopSystem().run_queue.event_loop().stop()
        gc.collect()
        self.descriptors = lasting_descriptors(self.home)
        self.kill_count = 0
        self.model = NodeModel()
        self.runner = asyncio.Runner()
        self.node = self.start()
        self.connect()

    def start(self):
        return Node(
            dir=self.home / "data",
            port=0,
            count_limit=5,
            check_interval=0.005,
            worker_timeout=0.01,
        ).start()

    def connect(self):
        assert self.node.address is not None
        host, port = self.node.address
        self.socket = protocol.socket(host, port, timeout_s=10)
        self.async_socket = self.run(client.connect(host, port, timeout_s=10))

    def disconnect(self):
        self.socket.close()
        self.run(self.async_socket.close())

    def run(self, coroutine):
        return self.runner.run(coroutine)

    # ---- the same calls, three ways -----------------------------------------------------------

    def write(self, way, topic, messages):
        if way == "api":
            return self.node.put_many(topic, messages)
        if way == "socket":
            return self.socket.write(topic, messages)
        return self.run(self.async_socket.write(topic, messages))

    def reads(self, topic, pointer, limit):
        """Read by all three ways; a read ends where a segment does."""
        yield self.socket.read(topic, pointer, limit)
        yield self.run(self.async_socket.read(topic, pointer, limit))
        if topic in self.model.topics:
            record = self.node.next(topic, pointer)
            yield [record] if record else []

    # ---- rules --------------------------------------------------------------------------------

    @rule(way=WAYS, topic=TOPICS, messages=BATCHES)
    def put(self, way, topic, messages):
        self.model.put(topic, messages, self.write(way, topic, messages))

    @rule(topic=TOPICS, batches=st.lists(BATCHES, min_size=1, max_size=80))
    def put_pipelined(self, topic, batches):
        pointers = list(self.socket.write_batches(topic, batches))
        for messages, pointer in zip(batches, pointers, strict=True):
            self.model.put(topic, messages, pointer)

    @rule(topic=TOPICS, batches=st.lists(BATCHES, min_size=2, max_size=10))
    def put_by_tasks(self, topic, batches):
        async def put_all():
            return await asyncio.gather(
                *[self.async_socket.write(topic, messages) for messages in batches]
            )

        for messages, pointer in zip(batches, self.run(put_all()), strict=True):
            self.model.put(topic, messages, pointer)

    @rule(topic=TOPICS, place=PLACES, limit=LIMITS)
    def read(self, topic, place, limit):
        for pointer in (0, self.model.place(topic, *place), POINTER_MAX):
            expected = self.model.read(topic, pointer, limit)
            for found in self.reads(topic, pointer, limit):
                assert found == expected[: len(found)]
                assert bool(found) == bool(expected)

    @rule(topic=TOPICS, place=PLACES, last=PLACES, limit=LIMITS)
    def read_by_ranges(self, topic, place, last, limit):
        pointer, end = self.model.place(topic, *place), self.model.place(topic, *last)
        expected = [each for each in self.model.read(topic, pointer, 10_000) if each[0] <= end]
        found = list(self.socket.read_ranges(topic, pointer, end, limit))
        assert [record for each in found for record in records_of(each)] == expected
        found = [self.run(self.async_socket.read_range(topic, pointer, end, limit))]
        assert records_of(found[0]) == expected[: len(found[0])]
        assert bool(len(found[0])) == bool(expected)

    @rule(topic=TOPICS, place=PLACES)
    def trim(self, topic, place):
        if topic in self.model.topics:
            pointer = self.model.place(topic, *place)
            self.socket.trim(topic, pointer)
            left = self.socket.read(topic, 0, 1)
            dropped = self.model.drop_before(topic, left[0][0] if left else POINTER_MAX)
            assert all(each <= pointer for each, _ in dropped)

    @rule(topic=TOPICS)
    def delete(self, topic):
        if topic in self.model.topics:
            self.socket.delete(topic)
            del self.model.topics[topic]

    @rule(topic=TOPICS, limit=LIMITS)
    def follow_to_the_end(self, topic, limit):
        expected = self.model.topics.get(topic, [])
        by_socket = self.socket.follow(topic, 0, limit)
        assert [next(by_socket) for _ in expected] == expected

        async def follow():
            records = self.async_socket.follow(topic, 0, limit)
            return [await anext(records) for _ in expected]

        assert self.run(follow()) == expected
        if topic in self.model.topics:
            assert read_by_next(self.node, topic) == expected

    @rule(topic=TOPICS, place=PLACES)
    def wait_no_time(self, topic, place):
        pointer = self.model.place(topic, *place)
        has_news = self.model.next(topic, pointer) is not None
        assert self.socket.wait(topic, pointer, 0) == has_news
        assert self.node.control("wait", topic=topic, pointer=pointer, timeout_s=0) == has_news

    @rule()
    def compare_lists_of_topics(self):
        topics = sorted(self.model.topics)
        assert self.node.topics() == topics
        assert self.socket.topics() == topics
        assert sorted(self.run(self.async_socket.status())) == topics

    @rule()
    def let_all_fall_asleep(self):
        def is_asleep():
            gc.collect()  # an appendix server that was killed leaves its files to the collector
            roles = {role for _, rows in self.node.status() for _, role in rows[:-1]}
            return open_files(self.home / "data") == ["store.lock"] and roles <= {"h"}

        wait_until(is_asleep)

    @precondition(lambda self: self.kill_count < KILLS_MAX)
    @rule(name=st.sampled_from(["topic_registry", "appendix_sup"]))
    def kill_what_stores(self, name):
        self.kill_count += 1
        self.kill(self.node.system.actors.find(name).address)

    @precondition(lambda self: self.kill_count < KILLS_MAX)
    @rule(name=st.sampled_from(["connection_sup", "listener_sup", "acceptor"]))
    def kill_what_listens(self, name):
        self.kill_count += 1
        port = self.node.address
        if name == "acceptor":
            children = self.node.system.call("listener_sup", WhichChildren())
            self.kill(next(child.ref for child in children if child.id == ("acceptor", 3)))
        else:
            self.kill(self.node.system.actors.find(name).address)
        self.disconnect()
        wait_until(lambda: is_served(self.node))
        assert self.node.address == port
        self.connect()

    @rule(number=st.integers(0, 1000))
    def kill_an_appendix_server(self, number):
        servers = [ref for _, rows in self.node.status() for ref, _ in rows]
        if servers:
            self.kill(servers[number % len(servers)])

    def kill(self, ref):
        self.node.system.exit(ref, "kill")

    @rule()
    def stop_and_start(self):
        self.disconnect()
        self.node.stop()
        assert open_files(self.home / "data") == []
        self.node = self.start()
        self.kill_count = 0
        self.connect()

    def teardown(self):
        if not hasattr(self, "node"):
            return
        self.disconnect()
        self.node.stop()
        self.runner.close()
        shutil.rmtree(self.home)
        gc.collect()
        # Others may close some of theirs meanwhile, as clients of a node that other tests share do.
        assert not Counter(lasting_descriptors(self.home)) - Counter(self.descriptors)


TestWays = KILLING(WaysAgreement.TestCase)
TestWays.settings = settings(max_examples=max(5, settings().max_examples // 4))
