"""Whatever happens to a node, whoever reads it sees what was put, once and in order.

Time is simulated and there are no sockets, so that thousands of steps take seconds and every
failure replays. `max_age`, rotation, hibernation and all kinds of sudden ends are rules like puts
and reads. `properties/test_ways_agree.py` does the same over sockets in real time.
"""

import shutil
from collections import deque
from math import inf
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poe.storage import POINTER_MAX
from properties.models import NodeModel
from properties.strategies import BATCHES, LIMITS, PERIODS_S, PLACES, TOPICS
from tests.broker.nodes import SimulatedNode, open_files, read_by_frames, read_by_next

# Each start and stop of a node waits for the disk, of which somebody else may have much to ask.
pytestmark = pytest.mark.timeout(600)

COUNT_LIMIT = 5
MAX_AGE_S = 30.0
EXPIRY_SLACK_US = 4_000_000
"""An expiry tick each max_age / 10, and one more for a writer that had to get a successor."""
CRASHES_MAX = 5
CRASHES_PERIOD_S = 60.0
"""A topic whose writer crashes more often than that takes no messages for a while."""
DESCRIPTORS_MAX = 5
"""Of one awake segment: data and index, its map, sums and lock."""


class NodeAgreement(RuleBasedStateMachine):
    """A node against the model; `ack` decides what a crash may take away."""

    ack = "flushed"
    max_age: float | None = None

    @initialize()
    def begin(self):
        self.home = Path(mkdtemp(prefix="poe-props-"))
        self.crash_count = 0
        self.killed_at_s = deque([-inf] * CRASHES_MAX, maxlen=CRASHES_MAX)
        self.model = NodeModel()
        self.sim = SimulatedNode(
            self.home / "0",
            count_limit=COUNT_LIMIT,
            max_age=self.max_age,
            ack=self.ack,
            buffer_count_max=20,
        )

    # ---- putting ------------------------------------------------------------------------------

    @rule(topic=TOPICS, message=st.binary(min_size=1, max_size=30))
    def put(self, topic, message):
        self.model.put(topic, [message], self.sim.node.put(topic, message))

    @rule(topic=TOPICS, messages=BATCHES)
    def put_many(self, topic, messages):
        self.model.put(topic, messages, self.sim.node.put_many(topic, messages))

    # ---- reading ------------------------------------------------------------------------------

    @rule(topic=TOPICS, place=PLACES)
    def next(self, topic, place):
        pointer = self.model.place(topic, *place)
        if topic in self.model.topics:
            assert self.sim.node.next(topic, pointer) == self.model.next(topic, pointer)

    @rule(topic=TOPICS, place=PLACES, limit=LIMITS)
    def read(self, topic, place, limit):
        for pointer in (self.model.place(topic, *place), 0, POINTER_MAX):
            found = self.sim.read(topic, pointer, limit)
            expected = self.model.read(topic, pointer, limit)
            # A read ends where a segment does; what follows comes with the next one.
            assert found == expected[: len(found)]
            assert bool(found) == bool(expected)

    @rule(topic=TOPICS, limit=LIMITS)
    def read_all(self, topic, limit):
        if topic in self.model.topics:
            expected = self.model.topics[topic]
            assert read_by_next(self.sim.node, topic) == expected
            assert read_by_frames(self.sim.read, topic, limit) == expected

    @rule(topic=TOPICS, place=PLACES)
    def wait(self, topic, place):
        pointer = self.model.place(topic, *place)
        has_news = self.sim.node.control("wait", topic=topic, pointer=pointer, timeout_s=0)
        assert has_news == (self.model.next(topic, pointer) is not None)

    @rule()
    def sync(self):
        self.sim.node.sync()

    # ---- time ---------------------------------------------------------------------------------

    @rule(period_s=PERIODS_S)
    def let_time_pass(self, period_s):
        self.sim.advance(period_s)
        self.expect_expiry()

    @rule()
    def let_all_fall_asleep(self):
        self.sim.advance(5)
        assert open_files(self.sim.folder) == ["store.lock"]
        for topic, rows in self.sim.node.status():
            assert "r" not in [role for _, role in rows], topic
        self.expect_expiry()

    @precondition(lambda self: self.max_age is None)
    @rule(step_us=st.integers(-10_000_000, 10_000_000))
    def set_the_wall_clock(self, step_us):
        self.sim.wall.offset_us += step_us

    def expect_expiry(self):
        """Take out of the model what the node has deleted, if it was allowed to."""
        if self.max_age is None:
            return
        now_us = self.sim.wall.now_us()
        max_age_us = int(self.max_age * 1_000_000)
        for topic, records in self.model.topics.items():
            oldest = self.sim.node.next(topic, 0)
            pointer = oldest[0] if oldest else POINTER_MAX
            dropped = self.model.drop_before(topic, pointer)
            assert all(p < now_us - max_age_us for p, _ in dropped), "deleted too early"
            assert records[len(dropped) :] == self.model.topics[topic]
        for topic, rows in self.sim.node.info():
            for _, segment in rows:
                newest = segment.pointer_high or now_us
                is_due = now_us - newest > max_age_us + EXPIRY_SLACK_US
                assert not (is_due and self.has_run_s(max_age_us + EXPIRY_SLACK_US)), topic

    def has_run_s(self, period_us):
        """Tell whether the node has had the time to notice."""
        return self.sim.clock.monotonic_s() - self.started_s > period_us / 1_000_000

    started_s = 0.0

    # ---- sudden ends --------------------------------------------------------------------------

    @rule(number=st.integers(0, 1000), reason=st.sampled_from(["kill", "some bug", "shutdown"]))
    def kill_an_appendix_server(self, number, reason):
        servers = self.sim.servers()
        now_s = self.sim.clock.monotonic_s()
        if servers and self.killed_at_s[0] <= now_s - CRASHES_PERIOD_S:
            self.killed_at_s.append(now_s)
            self.sim.system.exit(servers[number % len(servers)], reason)

    @rule(name=st.sampled_from(["topic_registry", "appendix_sup"]))
    def kill_a_part_of_the_tree(self, name):
        self.sim.kill(name)
        # Less than intensity 10 in 1 s of the root supervisor; and a tick for the registry.
        self.sim.advance(0.6)
        self.started_s = self.sim.clock.monotonic_s()
        self.expect_expiry()
        assert self.sim.node.is_running

    @rule()
    def stop_and_start(self):
        self.sim.stop()
        assert open_files(self.sim.folder) == []
        locks = list(self.sim.folder.glob("topics/*/*_lock"))
        assert not locks
        self.sim.start()
        self.started_s = self.sim.clock.monotonic_s()
        self.expect_expiry()

    @rule()
    def crash_and_start(self):
        """Go on with a copy of the files as they are: what kill -9 would leave."""
        self.crash_count += 1
        copy = self.home / str(self.crash_count)
        shutil.copytree(self.sim.folder, copy)
        self.sim.stop()
        shutil.rmtree(self.sim.folder)
        self.sim.folder = copy
        self.sim.start()
        self.started_s = self.sim.clock.monotonic_s()
        self.expect_expiry()

    # ---- always -------------------------------------------------------------------------------

    @invariant()
    def roles_and_numbers_are_plausible(self):
        info = dict(self.sim.node.info())
        assert set(info) >= {topic for topic, records in self.model.topics.items() if records}
        for topic, rows in info.items():
            records = self.model.topics.get(topic, [])
            roles = "".join(segment.role for _, segment in rows)
            assert roles.strip("rh") == "w", roles
            assert roles.endswith("w"), roles
            assert sum(segment.count for _, segment in rows) == len(records)
            assert sum(s.size_bytes for _, s in rows) == sum(11 + len(m) for _, m in records)
            bounds = [
                pointer
                for _, segment in rows
                for pointer in (segment.pointer_low, segment.pointer_high)
                if pointer is not None
            ]
            assert bounds == sorted(bounds)
            assert bounds[:1] == [p for p, _ in records[:1]]
            assert bounds[-1:] == [p for p, _ in records[-1:]]
        assert self.sim.node.topics() == sorted(info)

    @invariant()
    def descriptors_are_bounded(self):
        segment_count = len(self.sim.servers())
        assert len(open_files(self.sim.folder)) <= 2 + DESCRIPTORS_MAX * segment_count

    def teardown(self):
        if hasattr(self, "sim"):
            self.sim.stop()
            assert open_files(self.sim.folder) == []
            shutil.rmtree(self.home)


class ExpiringNodeAgreement(NodeAgreement):
    """The same, while old messages are deleted."""

    max_age = MAX_AGE_S


class SyncedNodeAgreement(NodeAgreement):
    """The same, with puts that wait for the disk in groups."""

    ack = "fsync"


TestNode = NodeAgreement.TestCase
TestExpiringNode = ExpiringNodeAgreement.TestCase
TestSyncedNode = SyncedNodeAgreement.TestCase
