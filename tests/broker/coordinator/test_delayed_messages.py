"""Messages that are put later: when they come, what outlives a crash, who waits for whom."""

import contextlib
import time
from collections import Counter
from functools import partial
from random import Random

import pytest

from poe import Node
from poe.broker.coordinator.delayed_log import DELAYED_TOPIC
from poe.broker.coordinator.delayed_put import DelayedPut
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import (
    InvalidMessage,
    InvalidTopicName,
    Overloaded,
    PropertyMismatch,
    RemoteProtocolError,
    ReservedTopic,
    StorageFull,
    UnknownTopic,
    WriteFailed,
)
from poe.protocol.put import DELAYED_PRODUCER
from poe.storage import Segment, SystemClock
from tests.broker.nodes import SimulatedNode, read_by_next
from tests.waiting import wait_until
from torture import simulated_node
from torture.layers.simulated_disk import SimulatedDisk

FLUSHED_S = 5.0
"""What a power cut may cost that is not synced: some time to put it, and to sync that."""

pytestmark = pytest.mark.usefixtures("quiet")


def put_later(sim, delay_s, *messages, topic=b"jobs"):
    due_us = sim.wall.now_us() + round(delay_s * 1e6)
    told = sim.node.control("queue_put", topic=topic, messages=list(messages), due_us=due_us)
    assert told["due_us"] == due_us
    return told["waiting"]


def jobs(sim, topic=b"jobs"):
    try:
        return [message for _, message in read_by_next(sim.node, topic)]
    except UnknownTopic:
        return []


def last_put(sim, topic=b"jobs"):
    return sim.node.control("last_put", topic=topic, producer=DELAYED_PRODUCER)


def segments(sim):
    return sim.node.control("segments", topic=DELAYED_TOPIC)


def refuse_puts(monkeypatch, where):
    """Have the disk refuse what is put onto a topic; return what heals it."""
    append = Segment.append

    def refuse(self, *arguments):
        if where in self.path:
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    monkeypatch.setattr(Segment, "append", refuse)
    return lambda: monkeypatch.setattr(Segment, "append", append)


def crash_before_puts(monkeypatch, sim, where):
    """Kill the delayer as soon as it is about to put onto a topic; return what ends that."""
    append = Segment.append

    def kill(self, *arguments):
        if where in self.path and arguments[-1] is not None:
            monkeypatch.setattr(Segment, "append", append)
            sim.kill("delayer")
            raise WriteFailed(self.path, "no disk")
        return append(self, *arguments)

    monkeypatch.setattr(Segment, "append", kill)


def test_messages_are_due_by_the_clock_of_the_machine_though_that_was_set(tmp_path, monkeypatch):
    """As behind a suspended machine: by the time of messages, which does not jump, hours late."""
    with Node(dir=tmp_path, port=None) as node:
        due_us = int((time.time() + 3600) * 1e6)
        monkeypatch.setattr(SystemClock, "now_us", lambda _: due_us + 1_000_000)
        node.control("queue_put", topic="jobs", messages=[b"0"], due_us=due_us)
        wait_until(lambda: b"jobs" in node.topics(), 20)
        assert [message for _, message in read_by_next(node, "jobs")] == [b"0"]


def test_a_message_comes_when_it_is_due(sim):
    put_later(sim, 10, b"later")
    sim.advance(9.9)
    assert jobs(sim) == []
    sim.advance(0.2)
    assert jobs(sim) == [b"later"]


def test_messages_come_in_the_order_of_their_time(sim):
    for delay_s in (5, 3, 9, 1, 7):
        put_later(sim, delay_s, b"%d" % delay_s)
    put_later(sim, 5, b"5, too")
    sim.advance(6)
    assert jobs(sim) == [b"1", b"3", b"5", b"5, too"]
    sim.advance(6)
    assert jobs(sim) == [b"1", b"3", b"5", b"5, too", b"7", b"9"]


@pytest.mark.slow
def test_what_is_due_at_one_time_is_put_in_one_batch(sim):
    for number in range(2500):
        put_later(sim, 5, b"%d" % number)
    sim.advance(6)
    assert jobs(sim) == [b"%d" % number for number in range(2500)]
    assert last_put(sim).sequence == 2


def test_messages_of_a_time_that_is_over_come_at_once(sim):
    assert put_later(sim, -3600, b"a", b"b") == 2
    sim.advance(0.1)
    assert jobs(sim) == [b"a", b"b"]


def test_a_put_tells_how_many_messages_wait(sim):
    assert put_later(sim, 5, b"a", b"b") == 2
    assert put_later(sim, 9, b"c", topic=b"web") == 3
    sim.advance(6)
    assert put_later(sim, 5, b"d") == 2


def test_what_waits_outlives_a_stop(sim):
    put_later(sim, 10, b"a", b"b")
    put_later(sim, 1, b"soon")
    sim.stop()
    sim.start()
    sim.advance(5)
    assert jobs(sim) == [b"soon"]
    sim.advance(6)
    assert jobs(sim) == [b"soon", b"a", b"b"]


def test_what_was_put_is_not_put_again_by_the_next_start(sim):
    put_later(sim, 1, b"a")
    sim.advance(2)
    for _ in range(3):
        sim.stop()
        sim.start()
        sim.advance(100)
    assert jobs(sim) == [b"a"]


def test_a_crash_between_the_note_and_the_put_puts_once(sim, monkeypatch):
    put_later(sim, 1, b"a")
    sim.advance(2)
    put_later(sim, 1, b"b", b"c")
    put_later(sim, 1, b"d")
    crash_before_puts(monkeypatch, sim, "jobs")
    sim.advance(5)
    assert jobs(sim) == [b"a", b"b", b"c", b"d"]
    assert put_later(sim, 1, b"e") == 1


def test_a_crash_between_the_put_and_its_answer_puts_once(sim, monkeypatch):
    put_later(sim, 1, b"a")
    append = Segment.append

    def kill(self, *arguments):
        pointer = append(self, *arguments)
        if "jobs" in self.path:
            monkeypatch.setattr(Segment, "append", append)
            sim.kill("delayer")
        return pointer

    monkeypatch.setattr(Segment, "append", kill)
    sim.advance(5)
    assert jobs(sim) == [b"a"]
    assert last_put(sim).sequence == 0


@pytest.mark.parametrize("seed", range(10))
def test_whenever_the_delayer_is_killed_each_message_comes_once(tmp_path, seed):
    sim = SimulatedNode(tmp_path, seed=seed, count_limit=20)
    wanted = []
    for number in range(60):
        message = b"%d" % number
        put_later(sim, number % 7 / 10, message)
        wanted.append(message)
        if number % 5 == seed % 5:
            sim.kill("delayer")
        if number % 13 == seed % 13:
            sim.stop()
            sim.start()
        sim.advance(0.05)
    sim.advance(100)
    assert sorted(jobs(sim)) == sorted(wanted)
    sim.stop()


def test_the_end_of_an_actor_that_puts_costs_a_pause(sim, monkeypatch):
    put = DelayedPut._messages  # noqa: SLF001 - the place where it is to break

    def crash(self, batch):
        monkeypatch.setattr(DelayedPut, "_messages", put)
        raise RuntimeError

    monkeypatch.setattr(DelayedPut, "_messages", crash)
    put_later(sim, 1, b"a")
    sim.advance(1.5)
    assert jobs(sim) == []
    sim.advance(2)
    assert jobs(sim) == [b"a"]


def test_a_topic_that_refuses_is_tried_again_and_others_go_on(sim, monkeypatch):
    heal = refuse_puts(monkeypatch, "jobs")
    put_later(sim, 1, b"a")
    put_later(sim, 2, b"b")
    put_later(sim, 2, b"other", topic=b"web")
    sim.advance(30)
    assert jobs(sim, b"web") == [b"other"]
    assert put_later(sim, 3, b"c") == 3
    heal()
    sim.advance(100)
    assert jobs(sim) == [b"a", b"b", b"c"]


def test_a_topic_that_refuses_is_tried_again_though_the_clock_is_set_back(sim, monkeypatch):
    heal = refuse_puts(monkeypatch, "jobs")
    put_later(sim, 1, b"a")
    sim.advance(400)
    sim.wall.offset_us -= 300_000_000
    heal()
    sim.advance(100)
    assert jobs(sim) == [b"a"]


def test_a_log_that_takes_no_note_puts_nothing_and_is_tried_again(sim, monkeypatch):
    put_later(sim, 1, b"a")
    heal = refuse_puts(monkeypatch, "poe.delayed")
    with pytest.raises(WriteFailed):
        put_later(sim, 1, b"refused")
    sim.advance(30)
    assert jobs(sim) == []
    heal()
    sim.advance(100)
    assert jobs(sim) == [b"a"]


def test_a_topic_that_puts_do_not_make_gets_its_messages_when_it_is_made(simulate):
    sim = simulate(auto_create=False)
    put_later(sim, 1, b"a")
    sim.advance(5)
    assert sim.node.topics() == []
    sim.node.create_topic("jobs")
    sim.advance(100)
    assert jobs(sim) == [b"a"]


def test_a_topic_that_was_made_anew_gets_what_waits(sim):
    put_later(sim, 1, b"a")
    put_later(sim, 5, b"b")
    sim.advance(2)
    sim.node.control("delete", topic=b"jobs")
    sim.advance(5)
    assert jobs(sim) == [b"b"]


def test_a_topic_that_was_made_with_partitions_gets_what_waits_for_it(sim):
    """That waited for a topic which took no puts any more, and was tried again for ever."""
    put_later(sim, 10, b"0", b"1")
    put_later(sim, 20, b"2")
    sim.node.create_topic("jobs", partitions=2)
    sim.advance(11)
    assert sorted(jobs(sim, b"jobs-0") + jobs(sim, b"jobs-1")) == [b"0", b"1"]
    assert put_later(sim, 10, b"3", topic=b"jobs-0") == 2
    sim.stop()
    sim.start()
    sim.advance(40)
    assert sorted(jobs(sim, b"jobs-0") + jobs(sim, b"jobs-1")) == [b"0", b"1", b"2", b"3"]
    assert put_later(sim, 10, b"4", topic=b"jobs-0") == 1


def test_what_waits_for_a_partition_that_is_none_any_more_comes_onto_another_one(sim):
    sim.node.create_topic("jobs", partitions=4)
    put_later(sim, 10, b"0", topic=b"jobs-3")
    sim.node.control("delete", topic=b"jobs")
    sim.node.create_topic("jobs", partitions=2)
    put_later(sim, 10, b"own", topic=b"web-1")
    sim.node.put(b"web", b"plain")
    sim.advance(11)
    assert jobs(sim, b"jobs-0") + jobs(sim, b"jobs-1") == [b"0"]
    assert jobs(sim, b"web-1") == [b"own"]


def test_what_a_topic_refuses_since_its_copy_was_behind_when_it_was_asked_gets_another_number(
    sim, monkeypatch
):
    """As at the start of a node whose clock was set back: it was taken for put."""
    put_later(sim, 1, b"a")
    sim.advance(100)
    sim.stop()
    sim.wall.offset_us -= 3_600_000_000
    sim.start()
    last_put = RequestHandler.last_put

    async def behind(self, topic, producer):
        monkeypatch.setattr(RequestHandler, "last_put", last_put)

    monkeypatch.setattr(RequestHandler, "last_put", behind)
    put_later(sim, 1, b"b")
    sim.advance(100)
    assert jobs(sim) == [b"a", b"b"]


def test_what_is_put_is_trimmed(simulate):
    sim = simulate(count_limit=10)
    for number in range(100):
        put_later(sim, 1 + number, b"%d" % number)
    sim.advance(60)
    assert sum(row["count"] for row in segments(sim)) < 200
    sim.advance(140)
    assert len(jobs(sim)) == 100
    assert sum(row["count"] for row in segments(sim)) <= 40


def test_what_waits_is_not_trimmed(simulate):
    sim = simulate(count_limit=10)
    put_later(sim, 500, b"last")
    for number in range(50):
        put_later(sim, 1, b"%d" % number)
    sim.advance(200)
    sim.stop()
    sim.start()
    sim.advance(400)
    assert jobs(sim) == [*(b"%d" % number for number in range(50)), b"last"]


def test_a_log_whose_last_segment_is_full_of_what_is_done_begins_anew(sim):
    for number in range(1000):
        put_later(sim, 1, b"%d" % number)
    sim.advance(100)
    assert sum(row["count"] for row in segments(sim)) == 0
    put_later(sim, 1, b"again")
    sim.advance(2)
    assert jobs(sim)[-1] == b"again"


def test_damage_of_the_log_costs_what_it_hit(sim):
    put_later(sim, 10, b"a")
    sim.advance(2)
    put_later(sim, 10, b"bbb")
    sim.advance(2)
    put_later(sim, 10, b"c")
    sim.stop()
    [path] = sim.folder.glob("topics/poe.delayed/*_data")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"bbb", b"bXb"))
    sim.start()
    sim.advance(20)
    assert b"c" in jobs(sim)
    assert b"bXb" not in jobs(sim)


@pytest.mark.parametrize("is_known", [True, False])
def test_what_waits_behind_an_index_that_is_damaged_comes_when_that_is_whole(sim, is_known):
    """Nothing of it is lost: nobody knows how far the damage goes, and a start mends it."""
    put_later(sim, 10, *[b"%d" % number for number in range(100)])
    put_later(sim, 10, b"last")
    sim.advance(2)
    [path] = sim.folder.glob("topics/poe.delayed/*_index")
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    if not is_known:
        sim.kill("delayer")
    sim.advance(200)
    assert jobs(sim) == []
    path.write_bytes(content)
    sim.advance(200)
    assert jobs(sim) == [*(b"%d" % number for number in range(100)), b"last"]


def test_a_log_that_cannot_be_read_keeps_no_node_from_its_start(sim, monkeypatch):
    put_later(sim, 10, b"a")
    sim.stop()
    find = Segment.read_range

    def fail(self, *arguments):
        if "poe.delayed" in self.path:
            raise WriteFailed(self.path, "no disk")
        return find(self, *arguments)

    monkeypatch.setattr(Segment, "read_range", fail)
    sim.start()
    sim.node.put(b"web", b"served")
    with pytest.raises(WriteFailed):
        put_later(sim, 1, b"b")
    sim.advance(30)
    monkeypatch.setattr(Segment, "read_range", find)
    sim.advance(100)
    assert jobs(sim) == [b"a"]


def test_what_cannot_be_put_is_refused_at_once(sim):
    sim.node.create_topic("orders", partitions=2)
    for topic, error in (
        (b"poe.groups", ReservedTopic),
        (b"x" * 300, InvalidTopicName),
        (b"orders-7", PropertyMismatch),
    ):
        with pytest.raises(error):
            put_later(sim, 1, b"a", topic=topic)
    for messages in ([], [b""], ["text"], b"one", None):
        with pytest.raises(RemoteProtocolError, match="messages"):
            sim.node.control("queue_put", topic=b"jobs", messages=messages, due_us=1)
    for due_us in (-1, 2**56, "soon", 1.5):
        with pytest.raises(RemoteProtocolError, match="due_us"):
            sim.node.control("queue_put", topic=b"jobs", messages=[b"a"], due_us=due_us)


@pytest.mark.slow
def test_more_than_may_wait_is_refused(sim):
    many = [b"x"] * 500_000
    put_later(sim, 100, *many)
    put_later(sim, 100, *many)
    with pytest.raises(Overloaded, match="delayed_max"):
        put_later(sim, 100, b"one more")


def test_messages_wait_for_no_more_topics_than_there_may_be(simulate):
    """What is known of a topic is as much as of many messages; and each would be tried for ever."""
    sim = simulate(topics_max=2)
    for topic in (b"a", b"b"):
        put_later(sim, 100, b"1", topic=topic)
    with pytest.raises(Overloaded, match="topics_max"):
        put_later(sim, 100, b"1", topic=b"c")
    assert put_later(sim, 1, b"2", topic=b"a") == 3
    sim.advance(200)
    assert jobs(sim, b"a") == [b"2", b"1"]
    assert put_later(sim, 1, b"1", topic=b"c")


def test_each_message_may_be_as_large_as_any(simulate):
    sim = simulate(message_max=100)
    put_later(sim, 1, *[b"x" * 100] * 10)
    with pytest.raises(InvalidMessage):
        put_later(sim, 1, b"small", b"x" * 101)
    sim.advance(5)
    assert jobs(sim) == [b"x" * 100] * 10


def test_large_messages_are_put_in_batches_of_bytes(sim):
    messages = [bytes([number]) * 400_000 for number in range(10)]
    put_later(sim, 1, *messages)
    sim.advance(5)
    assert jobs(sim) == messages
    assert last_put(sim).sequence > 2


def test_over_a_socket(tmp_path):
    with Node(dir=tmp_path, port=None) as node:
        told = node.control("queue_put", topic="jobs", messages=[b"a"], due_us=0)
        assert told == {"due_us": 0, "waiting": 1}


def test_on_a_full_disk_nothing_is_lost(disk):
    sim = SimulatedNode(disk.folder / "data", min_free=0)
    try:
        put_later(sim, 10, b"a")
        sim.node.put(b"jobs", b"0")
        disk.fill()
        kept = [b"a"]
        with contextlib.suppress(StorageFull):
            while len(kept) < 1000:
                message = b"%d " % len(kept) * 100
                put_later(sim, 10, message)
                kept.append(message)
        assert len(kept) < 1000
        sim.advance(60)
        disk.free()
        sim.advance(200)
        assert jobs(sim) == [b"0", *kept]
    finally:
        sim.stop()


@pytest.mark.parametrize("ack", ["fsync", "flushed"])
@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_at_any_time_loses_nothing_that_was_kept(ack, seed):
    random = Random(f"{seed} {ack}")
    disk = SimulatedDisk()
    node = simulated_node.SimulatedNode(disk, ack, 10, random)
    kept: dict[bytes, float] = {}
    lost: set[bytes] = set()
    for number in range(60):
        message = b"%d" % number
        due_us = node.wall.now_us() + random.choice([0, 100_000, 3_000_000])
        node.control("queue_put", topic=b"jobs", messages=[message], due_us=due_us)
        kept[message] = node.clock.monotonic_s()
        node.advance(random.choice([0, 0.02, 0.5]))
        if random.random() < 0.1:
            now_s = node.clock.monotonic_s()
            if ack == "flushed":
                lost |= {each for each, at_s in kept.items() if now_s - at_s < FLUSHED_S}
            node.abandon(partial(disk.cut_power, random))
            node.start()
    node.advance(100)
    found = Counter(message for _, message in node.read_all()[b"jobs"])
    assert set(kept) - set(found) <= lost
    assert set(found) <= set(kept)
    if ack == "fsync":
        assert set(found.values()) == {1}
    node.stop()


@pytest.mark.slow
def test_what_is_noted_as_put_outlives_a_power_cut_at_that_moment():
    for seed in range(20):
        random = Random(seed)
        disk = SimulatedDisk()
        node = simulated_node.SimulatedNode(disk, "flushed", 10)
        due_us = node.wall.now_us() + 29_900_000
        node.control("queue_put", topic=b"jobs", messages=[b"a"], due_us=due_us)
        node.advance(30.2)  # it is noted every 30 s, and synced only a second after it was put
        node.abandon(partial(disk.cut_power, random))
        node.start()
        node.advance(100)
        assert [message for _, message in node.read_all()[b"jobs"]] == [b"a"], seed
        node.stop()
