"""What an acknowledgement is worth: memory, flushed, fsync."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest

from poe.actors.message import ExitSignal
from poe.errors import ActorDead, SyncFailed, TopicReadOnly, UnknownTopic
from tests.broker.nodes import SimulatedNode, read_by_frames, read_by_next
from tests.broker.putters import put_at_once

TOPIC = b"t"


def crash_and_reopen(sim, tmp_path):
    """Open a copy of the files as they are: what kill -9 would leave."""
    shutil.copytree(sim.folder, tmp_path / "crashed")
    return SimulatedNode(tmp_path / "crashed", **sim.options)


def texts(node):
    return [message for _, message in read_by_next(node, TOPIC)]


def put_together(sim, messages):
    """Have several actors put before anything else happens, and tell their answers."""
    sim.node.control("create", topic=TOPIC)
    return put_at_once(sim.system, sim.routes, TOPIC, messages)


# ---- memory -----------------------------------------------------------------------------------


@pytest.fixture
def memory(simulate):
    return simulate(ack="memory", buffer_count_max=10)


def test_memory_messages_can_be_read_before_they_are_written(memory):
    pointer = memory.node.put(TOPIC, b"1")
    assert memory.node.next(TOPIC, 0) == (pointer, b"1")
    assert memory.read(TOPIC, 0, 10) == [(pointer, b"1")]


def test_memory_messages_that_were_not_written_are_lost_in_a_crash(memory, tmp_path):
    memory.node.put_many(TOPIC, [b"1"] * 9)
    crashed = crash_and_reopen(memory, tmp_path)
    assert crashed.node.next(TOPIC, 0) is None
    crashed.stop()


def test_memory_messages_are_written_when_the_buffer_is_full(memory, tmp_path):
    for number in range(12):
        memory.node.put(TOPIC, b"%d" % number)
    crashed = crash_and_reopen(memory, tmp_path)
    assert texts(crashed.node) == [b"%d" % number for number in range(10)]
    crashed.stop()


def test_memory_messages_are_written_after_a_moment(memory, tmp_path):
    memory.node.put(TOPIC, b"1")
    memory.advance(0.06)
    crashed = crash_and_reopen(memory, tmp_path)
    assert texts(crashed.node) == [b"1"]
    crashed.stop()


def test_memory_messages_are_written_at_the_end(memory):
    memory.node.put(TOPIC, b"1")
    memory.stop()
    memory.start()
    assert texts(memory.node) == [b"1"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("reason", ["kill", "some bug"])
def test_memory_messages_survive_their_appendix_server(memory, reason):
    """The buffer belongs to the segment, which the registry owns when the actor is gone."""
    memory.node.put(TOPIC, b"1")
    memory.system.exit(memory.servers()[0], reason)
    assert texts(memory.node) == [b"1"]


@pytest.mark.usefixtures("quiet")
def test_memory_messages_survive_the_registry(memory):
    memory.node.put(TOPIC, b"1")
    memory.kill("topic_registry")
    assert texts(memory.node) == [b"1"]


# ---- flushed ----------------------------------------------------------------------------------


def test_flushed_messages_survive_a_crash(simulate, tmp_path):
    sim = simulate(ack="flushed", count_limit=3)
    expected = [b"%d" % number for number in range(20)]
    for message in expected:
        sim.node.put(TOPIC, message)
        sim.advance(0.3)
    crashed = crash_and_reopen(sim, tmp_path)
    assert texts(crashed.node) == expected
    assert [m for _, m in read_by_frames(crashed.read, TOPIC, 2)] == expected
    crashed.stop()


def name_of(fd):
    """Tell what a sync is of; but for `store.bound`, which a thread syncs now and then."""
    name = Path(f"/proc/self/fd/{fd}").readlink().name
    return "" if name.startswith("store.bound") else name


def test_flushed_puts_do_not_wait_for_the_disk(simulate, monkeypatch):
    synced: list[str] = []
    sim = simulate(ack="flushed")
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(name_of(fd)))
    sim.node.put(TOPIC, b"1")
    assert not any(synced)


def test_index_and_sums_follow_within_a_moment(simulate):
    sim = simulate(ack="flushed")
    sim.node.put(TOPIC, b"1")
    folder = sim.folder / "topics" / "t"
    sizes = {path.name.partition("_")[2]: path for path in folder.iterdir()}
    assert (sizes["index"].stat().st_size, sizes["sum"].stat().st_size) == (0, 64)
    sim.advance(0.06)
    assert (sizes["index"].stat().st_size, sizes["sum"].stat().st_size) == (12, 64 + 48)


def test_sync_makes_flushed_messages_durable(simulate, monkeypatch):
    synced = []
    sim = simulate(ack="flushed")
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    sim.node.put(TOPIC, b"1")
    sim.node.put(b"other", b"1")
    sim.node.sync()
    synced = [path for path in synced if not path.name.startswith("store.bound")]
    assert [path.parent.name for path in synced] == ["other"] * 2 + ["t"] * 2
    assert [path.name.partition("_")[2] for path in synced] == ["data", "sum"] * 2


# ---- fsync ------------------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch):
    """Record the syncs in order; `errors` are raised by the next ones."""

    class Disk:
        events: list[str]
        errors: list[OSError]

        def __init__(self):
            self.events = []
            self.errors = []

        def fdatasync(self, fd):
            name = Path(f"/proc/self/fd/{fd}").readlink().name
            if self.errors and not name.startswith("store.bound"):
                raise self.errors.pop()
            real_fdatasync(fd)
            if not name.startswith(("store.meta", "store.bound")):
                self.events.append(name.removesuffix("_new").rpartition("_")[2])

    real_fdatasync = os.fdatasync
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


def test_fsync_puts_are_acknowledged_after_the_sync(simulate, disk):
    sim = simulate(ack="fsync")
    for number in range(3):
        sim.node.put(TOPIC, b"%d" % number)
        disk.events.append("acknowledged")
    # The data, then its sums: without them a start after a power cut would not trust the data.
    assert disk.events == ["data", "sum", "acknowledged"] * 3
    assert texts(sim.node) == [b"0", b"1", b"2"]


def test_puts_that_come_together_share_a_sync(simulate, disk):
    sim = simulate(ack="fsync")
    pointers = put_together(sim, [b"1", b"2", b"3", b"4"])
    assert disk.events == ["data", "sum"]
    assert [pointer for pointer, _ in read_by_next(sim.node, TOPIC)] == pointers


def test_a_group_waits_for_half_of_the_last_one_but_not_for_long(simulate, disk):
    sim = simulate(ack="fsync")
    put_together(sim, [b"1", b"2", b"3", b"4", b"5", b"6"])
    put_together(sim, [b"7", b"8"])
    assert disk.events == ["data", "sum"]
    put_together(sim, [b"9"])
    assert disk.events == ["data", "sum"] * 2
    put_together(sim, [b"10"])
    assert disk.events == ["data", "sum"] * 2
    sim.advance(0.001)
    assert disk.events == ["data", "sum"] * 3


def test_a_put_within_the_process_is_made_again_when_its_sync_fails(simulate, disk):
    sim = simulate(ack="fsync")
    sim.node.control("create", topic=TOPIC)
    disk.errors = [OSError(errno.EIO, "Input/output error")]
    pointer = sim.node.put_many(TOPIC, [b"1", b"2"])
    assert disk.errors == []
    assert read_by_next(sim.node, TOPIC) == [(pointer - 1, b"1"), (pointer, b"2")]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_a_node_stops_in_order_while_its_disk_takes_no_syncs(simulate, disk, ack):
    sim = simulate(ack=ack, sync_interval=0.2)
    sim.node.put(TOPIC, b"1")
    disk.errors = [OSError(errno.EIO, "Input/output error")] * 1000
    taken = [b"1"]
    for message in (b"2", b"3"):
        with contextlib.suppress(SyncFailed, TopicReadOnly):
            sim.node.put(TOPIC, message)
            taken.append(message)
        sim.advance(0.3)
    sim.stop()
    disk.errors.clear()
    sim.start()
    assert [message for message in texts(sim.node) if message in taken] == taken
    sim.node.put(TOPIC, b"4")


def end_the_writer_at_the_next_put(sim, reason):
    """Post an exit signal from within the next put: behind the put, before the sync."""
    sim.node.control("create", topic=TOPIC)
    writer = sim.servers()[-1]
    real_now_us = sim.wall.now_us

    def now_us():
        sim.wall.now_us = real_now_us
        writer.cell.post(ExitSignal(None, reason))
        return real_now_us()

    sim.wall.now_us = now_us


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("put", ["in process", "as a connection"])
def test_a_put_whose_server_is_killed_before_the_sync_fails_and_is_not_stored_twice(
    simulate, disk, put
):
    """Whether to try again is for the caller to decide: the message may be there already."""
    sim = simulate(ack="fsync")
    end_the_writer_at_the_next_put(sim, "kill")
    if put == "in process":
        with pytest.raises(ActorDead):
            sim.node.put(TOPIC, b"1")
    else:
        assert type(put_together(sim, [b"1"])[0]) is ActorDead
    # Then what it has left is recovered, and made durable.
    assert disk.events == ["index", "data", "sum"]
    sim.node.put(TOPIC, b"2")
    assert texts(sim.node) == [b"1", b"2"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("reason", ["shutdown", "some bug"])
def test_a_server_that_ends_in_order_syncs_and_acknowledges_what_waits(simulate, disk, reason):
    sim = simulate(ack="fsync")
    end_the_writer_at_the_next_put(sim, reason)
    pointer = sim.node.put(TOPIC, b"1")
    # Data and sums before the answer. What was asked to end is recovered, as the store was not
    # closed; what failed is closed, with the index, and that it was closed.
    closed = {"shutdown": ["index", "data", "sum"], "some bug": ["data", "index", "sum", "sum"]}
    assert disk.events == ["data", "sum", *closed[reason]]
    assert read_by_next(sim.node, TOPIC) == [(pointer, b"1")]


# ---- unasked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["memory", "flushed"])
def test_what_nobody_waits_for_is_synced_after_sync_interval(simulate, disk, ack):
    sim = simulate(ack=ack, sync_interval=2.0)
    sim.node.put(TOPIC, b"1")
    sim.advance(1.9)
    assert disk.events == []
    sim.node.put(TOPIC, b"2")
    sim.advance(0.2)
    assert disk.events == ["data", "sum"]
    sim.advance(10)
    assert disk.events == ["data", "sum"]
    sim.node.put(TOPIC, b"3")
    sim.advance(2.1)
    assert disk.events == ["data", "sum"] * 2


def test_what_is_put_after_a_restart_is_synced_unasked_too(simulate, disk):
    sim = simulate()
    sim.node.put(TOPIC, b"1")
    sim.stop()
    sim.start()
    disk.events.clear()
    sim.node.put(TOPIC, b"2")
    sim.advance(1.1)
    assert disk.events == ["lock", "data", "sum"]


def test_a_sync_interval_of_0_is_never(simulate, disk):
    sim = simulate(sync_interval=0.0)
    sim.node.put(TOPIC, b"1")
    sim.advance(100)
    assert disk.events == []


@pytest.mark.usefixtures("quiet")
def test_a_segment_whose_unasked_sync_fails_gets_a_successor(simulate, disk):
    sim = simulate()
    sim.node.put(TOPIC, b"1")
    disk.errors = [OSError(errno.EIO, "Input/output error")]
    sim.advance(1.1)
    assert sim.roles(TOPIC) in {"rw", "hw"}
    sim.node.put(TOPIC, b"2")
    sim.advance(1.1)
    assert disk.events == ["data", "sum"]
    assert texts(sim.node) == [b"1", b"2"]


def test_who_asks_for_a_sync_does_not_wait_for_the_next_one_that_nobody_asks_for(simulate, disk):
    sim = simulate(sync_interval=2.0)
    sim.node.put(TOPIC, b"1")
    sim.advance(2.1)
    sim.node.put(TOPIC, b"2")
    asked_at_s = sim.clock.monotonic_s()
    sim.node.sync()
    assert sim.clock.monotonic_s() == asked_at_s
    assert disk.events == ["data", "sum"] * 2


# ---- what consumers see -------------------------------------------------------------------------


@pytest.fixture
def careful(simulate, disk):
    """A node whose consumers see nothing that a power cut undoes."""
    return simulate(read="synced", count_limit=5)


def seen(sim):
    """Tell what consumers see, by both ways to read."""
    by_next = read_by_next(sim.node, TOPIC)
    assert read_by_frames(sim.read, TOPIC, 3) == by_next
    return [message for _, message in by_next]


def test_consumers_see_what_is_synced_and_nothing_else(careful):
    assert careful.node.put(TOPIC, b"1")
    assert seen(careful) == []
    careful.advance(1.01)
    assert seen(careful) == [b"1"]
    careful.node.put_many(TOPIC, [b"2", b"3"])
    assert seen(careful) == [b"1"]
    careful.node.sync()
    assert seen(careful) == [b"1", b"2", b"3"]


def test_who_waits_for_news_is_told_once_it_is_synced(careful):
    pointer = careful.node.put(TOPIC, b"1")
    assert not careful.node.control("wait", topic=TOPIC, pointer=0, timeout_s=0.5)
    assert careful.node.control("wait", topic=TOPIC, pointer=0, timeout_s=1.0)
    assert not careful.node.control("wait", topic=TOPIC, pointer=pointer, timeout_s=3.0)


def test_with_fsync_consumers_see_what_is_acknowledged(simulate):
    sim = simulate(ack="fsync", read="synced")
    for number in range(3):
        sim.node.put(TOPIC, b"%d" % number)
        assert seen(sim)[-1] == b"%d" % number


def test_consumers_find_their_way_through_sealed_segments_and_restarts(careful):
    expected = [b"%d" % number for number in range(30)]
    for message in expected:
        careful.node.put(TOPIC, message)
        careful.advance(0.2)
    assert seen(careful) == expected[: len(seen(careful))]
    assert len(seen(careful)) >= 25
    careful.stop()
    careful.start()
    assert seen(careful) == expected
    assert len(careful.servers()) > 3


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("reason", ["kill", "some bug"])
def test_what_was_unsynced_when_its_server_ended_is_synced_before_it_is_seen(careful, disk, reason):
    careful.node.put(TOPIC, b"1")
    careful.system.exit(careful.servers()[0], reason)
    careful.advance(0.1)
    assert seen(careful) == [b"1"]
    assert "data" in disk.events


# ---- levels of single topics --------------------------------------------------------------------


def test_each_topic_has_its_own_level(simulate, disk, tmp_path):
    topics = {"careful": {"ack": "fsync"}, "careless": {"ack": "memory"}}
    sim = simulate(ack="flushed", topics=topics)
    for topic, syncs in ((b"careful", ["data", "sum"]), (b"careless", []), (b"other", [])):
        sim.node.put(topic, b"1")
        assert disk.events == syncs
        disk.events.clear()
    crashed = crash_and_reopen(sim, tmp_path)
    assert crashed.node.next(b"careful", 0)
    assert crashed.node.next(b"other", 0)
    assert crashed.node.next(b"careless", 0) is None
    crashed.stop()


def test_a_topic_has_its_level_after_a_restart_and_a_rotation_too(simulate, disk):
    sim = simulate(topics={"t": {"ack": "fsync"}}, count_limit=2)
    for _ in range(2):
        for number in range(5):
            disk.events.clear()
            sim.node.put(TOPIC, b"%d" % number)
            assert "data" in disk.events
            sim.advance(1)
        sim.stop()
        sim.start()


def test_who_wants_more_for_a_topic_syncs_it_alone(simulate, monkeypatch):
    synced = []
    sim = simulate(ack="memory", buffer_count_max=10)
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    pointer = sim.node.put(TOPIC, b"1")
    sim.node.put(b"other", b"1")
    synced.clear()  # of the bound of pointers
    sim.node.control("sync", topic=TOPIC)
    assert [path.parent.name for path in synced] == ["t", "t"]
    (data,) = (sim.folder / "topics/t").glob("*_data")
    assert data.read_bytes().endswith(pointer.to_bytes(7, "big") + b"1")
    sim.node.control("sync", topic="t")
    assert len(synced) == 2
    with pytest.raises(UnknownTopic):
        sim.node.control("sync", topic=b"unknown")
