"""Topics are made, altered, adopted, put onto, trimmed and deleted, and the server dies in between.

Whatever happens, what was answered is known, no topic is a partition of two, and an id is that of
one topic for ever.
"""

import errno
import random
from dataclasses import replace
from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poe.errors import PoeError, StorageError, UnknownTopic
from poe.storage import Store
from poe.topic_properties import TopicDescription, TopicProperties, partition_of
from torture.layers.simulated_disk import SimulatedDisk
from torture.layers.watched import Failing

START_US = 1_000_000
NAMES = st.sampled_from([b"t", b"u", b"t-1", b"t-2", b"t-1-0"])
PROPERTIES = st.builds(
    TopicProperties,
    partitions=st.integers(1, 4),
    envelope=st.booleans(),
    ack=st.sampled_from([None, "fsync"]),
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "partitions": st.integers(1, 5),
        "envelope": st.booleans(),
        "ack": st.sampled_from([None, "fsync", "memory"]),
        "max_age": st.sampled_from([None, "none", 5]),
    },
)
ENDS = st.tuples(st.integers(0, 8), st.integers(0, 99), st.booleans())
"""At which step, a seed, and whether the power is cut."""
STEPS = {"write_at", "sync", "rename", "truncate", "sync_folder", "unlink", "remove_folder"}


class _Dying:
    """Fails from some step on, which may be done in part."""

    def __init__(self, step: int, share: float):
        self.left = step
        self.share = share

    def __call__(self, operation):
        self.left -= operation.name in STEPS
        if self.left < 0:
            operation.do_in_part(self.share)
            raise OSError(errno.EIO, "the process is dead")


class TopicsMachine(RuleBasedStateMachine):
    """A store on a simulated disk beside what it has promised."""

    def __init__(self):
        super().__init__()
        self.disk = SimulatedDisk()
        self.store = Store.open(self.disk.files())
        self.now_us = START_US
        self.described: dict[bytes, TopicDescription] = {}
        self.held: dict[bytes, bytes | None] = {}
        """Topics with segments, and the id of each that has one of its own."""
        self.ids: dict[bytes, bytes] = {}
        """Whose each id that was ever seen is."""
        self.retired: set[bytes] = set()

    @initialize()
    def begin(self):
        self.now_us += 1

    # ---- what clients do ------------------------------------------------------------------------

    @rule(topic=NAMES, properties=PROPERTIES)
    def create(self, topic, properties):
        self.change(topic, lambda: self.store.create_topic(topic, properties, self.tick()))

    @rule(topic=NAMES, changes=CHANGES)
    def alter(self, topic, changes):
        self.change(topic, lambda: self.store.properties.alter(topic, changes))

    @rule(topic=NAMES, properties=PROPERTIES)
    def adopt(self, topic, properties):
        self.change(topic, lambda: self.store.properties.adopt(topic, properties))

    @rule(topic=NAMES, part=st.sampled_from([b"", b"-0", b"-1", b"-3"]), count=st.integers(1, 3))
    def put(self, topic, part, count):
        name = topic + part
        try:
            self.store.properties.check(name)
        except PoeError:
            return
        for _ in range(count):
            segment = self.store.create_segment(name, self.tick())
            segment.append([b"m"], self.tick())
            segment.sync()
        self.held.setdefault(name, None)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 2))
    def remove_oldest(self, data, count):
        topic = data.draw(st.sampled_from(sorted(self.held)))
        segments = self.store.topics[topic][:-1][:count]
        for segment in segments:
            segment.close()
        self.store.note_removal(topic, segments)
        self.store.sync_notes()
        for segment in segments:
            self.store.destroy_segment(topic, segment)

    @rule(topic=NAMES)
    def delete(self, topic):
        """Delete all that a topic has, as the registry does."""
        found = self.described.get(topic)
        parts = (topic,) if found is None else found.partition_topics()
        for name in parts:
            if name not in self.held:
                continue
            segments = self.store.topics[name].copy()
            self.store.note_removal(name, segments)
            self.store.sync_notes()
            for segment in segments:
                segment.close()
                self.store.destroy_segment(name, segment)
            del self.held[name]
            self.retire(name)
        if found is not None:
            self.store.forget_topic(topic)
            del self.described[topic]
            self.retired.add(found.id)

    # ---- what happens to it ---------------------------------------------------------------------

    @rule(how=st.sampled_from(["stop", "kill"]))
    def restart(self, how):
        if how == "stop":
            self.store.close()
        self.disk.kill()
        self.store = Store.open(self.disk.files())

    @rule(topic=NAMES, properties=PROPERTIES, changes=CHANGES, end=ENDS)
    def die_meanwhile(self, topic, properties, changes, end):
        """Make a topic or alter it, and die at one of the steps of that."""
        step, seed, is_power_cut = end
        before = self.described.get(topic)
        for segments in self.store.topics.loaded.values():
            for segment in segments:
                segment.sync()
        self.disk.failing = cast("Any", _Dying(step, seed / 99))
        after, may_be_done = before, False
        try:
            if before is None:
                after = self.store.create_topic(topic, properties, self.tick())
            else:
                after = self.store.properties.alter(topic, changes)
        except StorageError:
            may_be_done = True
        except PoeError:
            pass
        self.disk.failing = Failing()
        known = set(self.store.topics)
        self.disk.cut_power(random.Random(seed)) if is_power_cut else self.disk.kill()
        self.store = Store.open(self.disk.files())
        found = self.store.properties.find(topic)
        if may_be_done and found is not None and found != before:
            after = found if before is None else before.altered(changes)
            assert before is not None or found.properties == properties
        assert found == after
        if found is not None:
            self.take(topic, found)
        self.forget_lost()
        if is_power_cut:
            self.take_back(known)

    # ---- what must hold -------------------------------------------------------------------------

    @invariant()
    def what_was_promised_is_known(self):
        properties = self.store.properties
        assert {each: properties.of(each) for each in properties.described()} == self.described

    @invariant()
    def no_topic_is_a_partition_of_two(self):
        holders: dict[bytes, bytes] = {}
        for topic, each in self.described.items():
            for part in each.partition_topics():
                assert holders.setdefault(part, topic) == topic
                assert self.store.properties.holder(part) == each

    @invariant()
    def an_id_is_that_of_one_topic_for_ever(self):
        for topic in self.held:
            found = self.store.properties.of(topic)
            if topic in self.described or self.store.properties.holder(topic) is not None:
                self.held[topic] = None
                continue
            known = self.held[topic]
            assert known in (None, found.id), topic
            self.held[topic] = found.id
            self.note_id(topic, found.id)
        for topic in [b"t", b"u"]:
            if topic not in self.described and topic not in self.held:
                self.assert_unknown(topic)

    # ---- helpers --------------------------------------------------------------------------------

    def tick(self) -> int:
        self.now_us += 10
        return self.now_us

    def change(self, topic, do):
        """Do what may be refused; then nothing has changed."""
        try:
            made = do()
        except PoeError:
            return
        if made.version:
            self.take(topic, made)

    def take(self, topic, made):
        before = self.described.get(topic)
        if before is not None:
            assert replace(made, version=0, properties=before.properties) == replace(
                before, version=0
            )
            assert made.properties.partitions >= before.properties.partitions
            assert made.properties.envelope == before.properties.envelope
        self.described[topic] = made
        self.note_id(topic, made.id)

    def note_id(self, topic, own_id):
        assert own_id not in self.retired
        assert self.ids.setdefault(own_id, topic) == topic

    def retire(self, name):
        self.retired.update(own_id for own_id, topic in self.ids.items() if topic == name)

    def forget_lost(self):
        """Forget topics with segments that a power cut has taken, names and all."""
        for name in [each for each in self.held if each not in self.store.topics]:
            del self.held[name]
            self.retire(name)

    def take_back(self, known):
        """Know the topics again whose deletion a power cut has undone, and so their ids."""
        for name in self.store.topics.keys() - known:
            self.held[name] = None
            self.retired.clear()

    def assert_unknown(self, topic):
        part = partition_of(topic)
        try:
            self.store.properties.of(topic)
        except UnknownTopic:
            return
        assert part is not None


TestTopics = TopicsMachine.TestCase
