"""What is older than max_age goes, a whole segment at a time, and nothing younger ever does."""

from contextlib import closing
from dataclasses import replace

import pytest

from poe import Node
from poe.broker.appendix.hybrid_clock import JumpWatch
from poe.broker.appendix.server import AppendixOptions
from poe.broker.appendix.sync_rounds import SyncRounds
from poe.broker.registry import appendix_servers
from poe.broker.registry.appendix_servers import AppendixServers
from poe.broker.registry.expiry import Expiring, ExpiringSegment, Expiry, count_soon_due, tick_s
from poe.broker.registry.topic_settings import Retention, TopicSettings
from poe.errors import UnknownTopic
from poe.storage import POINTER_MAX, Store
from poe.topic_properties import TopicDescription, TopicProperties
from tests.broker.nodes import connect, open_files, read_by_frames, read_by_next
from tests.storage.segments import create, files_at
from tests.waiting import wait_until

TOPIC = b"t"
MAX_AGE_S = 100.0


@pytest.fixture
def sim(simulate):
    return simulate(count_limit=2, max_age=MAX_AGE_S)


def messages(sim):
    return [message for _, message in read_by_next(sim.node, TOPIC)]


def data_files(sim):
    return sorted(path.name for path in sim.folder.glob("topics/*/*_data"))


def test_nothing_goes_before_its_time(sim):
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(MAX_AGE_S - 1)
    assert messages(sim) == [b"1", b"2"]


def test_an_old_reader_goes_with_its_files(sim):
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(50)
    sim.node.put(TOPIC, b"3")
    sim.advance(61)
    assert messages(sim) == [b"3"]
    assert sim.roles(TOPIC) == "w"
    assert len(data_files(sim)) == 1
    sim.advance(3)
    assert open_files(sim.folder) == ["store.lock"]


def test_what_goes_of_several_topics_is_waited_for_at_once(sim, monkeypatch):
    """One by one, each topic might take as long as its disk may."""
    finish, waited = AppendixServers._finish, []  # noqa: SLF001 - what it is given is counted

    async def count(self, refs):
        waited.append(len(refs))
        await finish(self, refs)

    monkeypatch.setattr(AppendixServers, "_finish", count)
    for topic in (TOPIC, b"other"):
        sim.node.put_many(topic, [b"1", b"2"])
    sim.advance(MAX_AGE_S * 1.1 + 1)
    assert len(data_files(sim)) == 2, "the new ones"
    assert max(waited) == 2


@pytest.mark.parametrize("read", ["flushed", "synced"])
def test_what_goes_waits_for_no_sync_that_has_yet_to_begin(tmp_path, monkeypatch, read):
    """It did in the thread of all actors: where many segments went, nobody else was served."""
    held, pointers = [], []
    submit = SyncRounds.submit

    def hold(rounds, job):
        server = job.func.__self__._cell.instance  # noqa: SLF001 - whose sync it is
        if server._segment.is_writer:  # noqa: SLF001 - a topic goes on behind the sync of that
            submit(rounds, job)
        else:
            held.append(job)

    monkeypatch.setattr(SyncRounds, "submit", hold)
    monkeypatch.setattr(appendix_servers, "_FINISH_S", 0.01)
    with (
        Node(dir=tmp_path, port=0, count_limit=2, sync_interval=0.01, read=read) as node,
        connect(node) as client,
    ):

        def are_some_held():
            pointers.append(node.put(TOPIC, b"m"))
            return len(held) > 2

        wait_until(are_some_held)
        try:
            assert client.control("trim", topic=TOPIC, pointer=pointers[-1]) > 2
        finally:
            for job in held:
                job()


def test_an_age_beyond_all_clocks_keeps_everything(simulate):
    sim = simulate(max_age=1e308)
    registry = sim.node.system.whereis("topic_registry")
    sim.node.put(TOPIC, b"1")
    sim.advance(601)
    assert messages(sim) == [b"1"]
    assert sim.node.system.whereis("topic_registry") == registry


def test_an_idle_writer_goes_too(sim):
    """The original kept it for ever."""
    old = sim.node.put(TOPIC, b"1")
    sim.advance(MAX_AGE_S * 1.1 + 1)
    assert messages(sim) == []
    assert sim.read(TOPIC, 0, 10) == []
    assert sim.roles(TOPIC) == "w"
    assert sim.node.put(TOPIC, b"2") > old
    assert messages(sim) == [b"2"]


def test_a_segment_with_one_young_message_stays_whole(sim):
    sim.node.put(TOPIC, b"1")
    sim.advance(90)
    sim.node.put(TOPIC, b"2")
    sim.advance(90)
    assert messages(sim) == [b"1", b"2"]
    sim.advance(25)
    assert messages(sim) == []


def test_segments_go_oldest_first(sim):
    for number in range(10):
        sim.node.put_many(TOPIC, [b"%d" % number] * 2)
        sim.advance(20)
    left = [int(message) for message in messages(sim)]
    assert left == sorted(left)
    assert left[-1] == 9
    assert left[0] in {4, 5}
    assert [m for _, m in read_by_frames(sim.read, TOPIC, 1)] == [b"%d" % n for n in left]


def test_an_empty_writer_is_kept(sim):
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(1)
    sim.advance(MAX_AGE_S * 5)
    assert sim.roles(TOPIC) == "w"
    assert len(data_files(sim)) == 1
    assert sim.node.topics() == [TOPIC]


def test_an_expired_topic_is_known_after_a_restart_and_goes_on_behind_its_pointers(sim):
    old = sim.node.put(TOPIC, b"1")
    sim.advance(MAX_AGE_S * 1.1 + 1)
    sim.stop()
    sim.wall.offset_us = -3_600_000_000
    sim.start()
    assert sim.node.next(TOPIC, 0) is None
    assert sim.node.put(TOPIC, b"2") > old
    with pytest.raises(UnknownTopic):
        sim.node.next(b"never put onto", 0)


def test_expiry_wakes_nothing(sim):
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(50)
    sim.node.put_many(TOPIC, [b"3", b"4"])
    for _ in range(40):
        sim.advance(2.5)
    assert open_files(sim.folder) == ["store.lock"]


def test_a_reader_that_is_killed_and_too_old_goes_after_its_repair(sim, quiet):
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(1)
    sim.node.put(TOPIC, b"3")
    sim.system.exit(sim.servers()[0], "kill")
    assert messages(sim) == [b"1", b"2", b"3"]
    sim.advance(MAX_AGE_S * 1.2)
    assert messages(sim) == []


@pytest.mark.slow
def test_without_max_age_nothing_ever_goes(simulate):
    sim = simulate(count_limit=2)
    sim.node.put_many(TOPIC, [b"1", b"2"])
    sim.advance(10_000)
    assert messages(sim) == [b"1", b"2"]


# ---- clocks that jump ---------------------------------------------------------------------------

YEAR_US = 365 * 24 * 3600 * 1_000_000


def fill(sim, count=6):
    for number in range(count):
        sim.node.put_many(TOPIC, [b"%d" % number] * 2)
        sim.advance(1)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("where", ["at run time", "across a restart"])
def test_a_clock_that_jumps_ahead_costs_one_segment_a_tick(sim, where):
    fill(sim)
    sim.advance(10)
    before = len(data_files(sim))
    if where == "across a restart":
        sim.stop()
        sim.wall.offset_us = 10 * YEAR_US
        sim.start()
    else:
        sim.wall.offset_us = 10 * YEAR_US
    for ticks in range(1, 4):
        sim.advance(MAX_AGE_S / 10)
        assert before - len(data_files(sim)) <= ticks
    sim.wall.offset_us = 0
    left = messages(sim)
    assert left
    sim.advance(MAX_AGE_S / 10)
    assert messages(sim) == left


@pytest.mark.usefixtures("quiet")
def test_after_a_jump_of_the_clock_a_new_segment_lets_none_go_that_is_not_too_much(simulate):
    """What is put after it would take as many of those before it that seem to be too old."""
    sim = simulate(count_limit=2, max_age=MAX_AGE_S, max_bytes=1_000_000)
    fill(sim)
    sim.stop()
    sim.wall.offset_us = 10 * YEAR_US
    sim.start()
    sim.advance(MAX_AGE_S / 10)
    left = messages(sim)
    fill(sim, 4)
    assert messages(sim)[: len(left)] == left


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("back_us", [3600 * 1_000_000, 10 * YEAR_US])
def test_a_clock_that_jumps_back_loses_nothing_and_puts_go_on(sim, back_us):
    fill(sim)
    newest = sim.node.put(TOPIC, b"x")
    before = messages(sim)
    sim.wall.offset_us = -back_us
    for _ in range(5):
        pointer = sim.node.put(TOPIC, b"y")
        assert pointer > newest
        newest = pointer
        sim.advance(MAX_AGE_S / 10)
    assert messages(sim) == [*before, *[b"y"] * 5]


def test_after_a_long_stop_all_that_is_too_old_goes_in_the_end(sim):
    fill(sim)
    sim.stop()
    sim.wall.offset_us = round(MAX_AGE_S * 20) * 1_000_000
    sim.start()
    sim.advance(MAX_AGE_S * 2)
    assert messages(sim) == []


def make_topic(sim, topic, **properties):
    sim.node.control("topic_create", topic=topic, properties=properties)


@pytest.mark.slow
def test_partitions_that_nobody_has_put_onto_cost_a_look_nothing(simulate, monkeypatch):
    """Some topics of a thousand partitions and a tiny age once kept a node busy for ever."""
    sim = simulate()
    for number in range(20):
        make_topic(sim, b"t%d" % number, partitions=1024, max_age=1e-5)
    sim.node.put(b"t7-1000", b"1")
    named: list[bytes] = []
    names = TopicDescription.partition_topics

    def noted(self):
        named.append(self.name)
        return names(self)

    monkeypatch.setattr(TopicDescription, "partition_topics", noted)
    sim.advance(1)
    assert read_by_next(sim.node, b"t7-1000") == []
    assert not named


@pytest.mark.parametrize("partitions", [3, 1024], ids="{} partitions".format)
def test_what_may_expire_are_partitions_that_there_are(tmp_path, partitions):
    there = {b"kept-2", b"aged-2", b"large-2", b"aged-5000", b"other"}
    with closing(Store.open(tmp_path)) as store:
        settings = TopicSettings(store, AppendixOptions(), Retention())
        assert settings.limited(there) == []
        kept = TopicProperties(partitions=partitions)
        for name, own in {
            b"kept": kept,
            b"aged": replace(kept, max_age=1000),
            b"large": replace(kept, max_bytes=1000),
        }.items():
            store.properties.create(name, own, 1)
        assert settings.limited(there) == [b"aged-2", b"large-2"]
        store.properties.alter(b"aged", {"max_age": None})
        assert settings.limited(there) == [b"large-2"]
        assert settings.limited({b"other"}) == []


# ---- with an archive ----------------------------------------------------------------------------

NOW_US = 2_000_000_000


@pytest.fixture
def readers(tmp_path):
    """Three segments of two messages each, at 1000 s, 1100 s and 1200 s."""
    files = files_at(tmp_path)
    made = [create(files, seconds * 1_000_000) for seconds in (1000, 1100, 1200)]
    for segment in made:
        segment.append([b"1", b"2"], segment.timestamp)
    return list(enumerate(made))


def aged(max_age_s):
    return Retention(max_age_s)


def look(expiry, kept, readers):
    """Tell which readers go, and the keys of what waits."""
    expiry.begin(NOW_US, 0.0)
    chosen = expiry.choose(TOPIC, kept, readers, 0)
    waiting = expiry.end()
    return chosen, [] if waiting is None else [each.key for each in waiting.segments]


def expiry_of(*, has_archive, newest_us=0):
    return Expiry(JumpWatch(newest_us, NOW_US), lambda topic: has_archive)


def test_without_an_archive_what_is_old_goes(readers):
    assert look(expiry_of(has_archive=False), aged(850), readers) == ([0, 1], [])


def test_with_an_archive_what_is_old_waits_until_it_is_archived(readers):
    expiry = expiry_of(has_archive=True)
    first, second = (TOPIC, 1_000_000_000), (TOPIC, 1_100_000_000)
    assert look(expiry, aged(850), readers) == ([], [first, second])
    expiry.archived = frozenset({second})
    assert look(expiry, aged(850), readers) == ([1], [first])
    expiry.archived = frozenset({first, second})
    assert look(expiry, aged(850), readers) == ([0, 1], [])


def test_the_archiver_is_told_what_each_segment_holds(readers):
    expiry = expiry_of(has_archive=True)
    expiry.begin(NOW_US, 0.0)
    assert expiry.oldest_us(950) == NOW_US - 950_000_000
    expiry.choose(TOPIC, aged(950), readers[:1], 0)
    waiting = expiry.end()
    first_us = 1_000_000_000
    expected = ExpiringSegment(TOPIC, first_us, first_us, first_us + 1, 2)
    assert waiting == Expiring((expected,))


def test_a_segment_without_messages_waits_for_no_archive(tmp_path):
    empty = create(files_at(tmp_path), 5)
    assert look(expiry_of(has_archive=True), aged(850), [(0, empty)]) == ([0], [])


def test_after_a_jump_of_the_clock_one_archived_segment_goes_at_a_time(readers):
    expiry = expiry_of(has_archive=True, newest_us=1)
    expiry.archived = frozenset((TOPIC, segment.timestamp) for _, segment in readers)
    assert look(expiry, aged(100), readers) == ([0], [])
    assert look(expiry, aged(100), readers[1:]) == ([1], [])


@pytest.mark.parametrize(
    ("kept", "gone"),
    [(Retention(None, 24), [0, 1]), (Retention(100, 24), [0, 1]), (Retention(100, 72), [0])],
)
def test_after_a_jump_of_the_clock_what_is_too_much_goes_at_once_all_the_same(readers, kept, gone):
    """Else a full disk that stood still for a minute would be freed a segment in ten minutes."""
    assert look(expiry_of(has_archive=False, newest_us=1), kept, readers) == (gone, [])


def test_an_age_that_is_not_over_yet_keeps_everything(readers):
    assert look(expiry_of(has_archive=True), aged(10_000), readers) == ([], [])


@pytest.mark.parametrize(
    ("limit", "writer_bytes", "gone"),
    [
        (72, 0, []),
        (71, 0, [0]),
        (72, 1, [0]),
        (24, 0, [0, 1]),
        (23, 0, [0, 1, 2]),
        (1, 1000, [0, 1, 2]),
    ],
)
def test_the_oldest_segments_go_until_the_rest_is_within_its_bytes(
    readers, limit, writer_bytes, gone
):
    assert [each.size_bytes for _, each in readers] == [24, 24, 24]
    expiry = expiry_of(has_archive=False)
    expiry.begin(NOW_US, 0.0)
    assert expiry.choose(TOPIC, Retention(None, limit), readers, writer_bytes) == gone


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        (Retention(), 0),
        (aged(1001), 1),
        (aged(800 / 0.9), 2),
        (aged(1e308), 0),
        (Retention(None, 80), 0),
        (Retention(None, 79), 1),
        (Retention(None, 1), 3),
        (Retention(1001, 30), 2),
        (Retention(1, 1, ("a",)), 3),
    ],
)
def test_what_soon_has_to_go_is_due_for_the_archive(readers, kept, count):
    measures = [(segment.last_pointer, segment.size_bytes) for _, segment in readers]
    assert count_soon_due(kept, NOW_US, measures, 0) == count


def test_what_waits_is_told_once_however_often_a_topic_is_looked_at(readers):
    """A topic beyond its `max_bytes` is looked at whenever it gets a segment, too."""
    expiry = expiry_of(has_archive=True)
    expiry.begin(NOW_US, 0.0)
    for _ in range(3):
        assert expiry.choose(TOPIC, Retention(None, 30), readers, 0) == []
    waiting = expiry.end()
    assert waiting is not None
    assert [each.timestamp for each in waiting.segments] == [1_000_000_000, 1_100_000_000]


def test_age_and_bytes_hold_both(readers):
    expiry = expiry_of(has_archive=False)
    assert look(expiry, Retention(950, 30), readers) == ([0, 1], [])
    assert look(expiry, Retention(850, 1000), readers) == ([0, 1], [])


@pytest.mark.parametrize(
    ("floors", "cap", "gone"),
    [
        ({"a": 0}, None, []),
        ({"a": 1_000_000_000}, None, []),
        ({"a": 1_000_000_001}, None, [0]),
        ({"a": 1_100_000_005}, None, [0, 1]),
        ({"a": 2_000_000_000, "b": 0}, None, []),
        ({}, None, [0, 1, 2]),
        ({"b": 1_100_000_001}, None, [0, 1]),
        ({"a": 0}, 72, []),
        ({"a": 0}, 71, [0]),
        ({"a": 0}, 30, [0, 1]),
        ({"a": 1_100_000_001}, 60, [0, 1]),
    ],
)
def test_what_a_group_has_not_read_stays_as_long_as_it_has_room(readers, floors, cap, gone):
    """Of a group that there is not, nobody is waited for."""
    expiry = Expiry(
        JumpWatch(0, NOW_US), lambda topic: False, lambda group, topic: floors.get(group)
    )
    expiry.begin(NOW_US, 0.0)
    kept = Retention(1, 1, ("a", "b"), cap)
    assert expiry.choose(TOPIC, kept, readers, 0) == gone


@pytest.mark.parametrize("floors", [{}, {"a": POINTER_MAX}, {"b": POINTER_MAX}])
def test_a_group_that_may_be_of_another_node_has_read_nothing(readers, floors):
    expiry = Expiry(
        JumpWatch(0, NOW_US), lambda topic: False, lambda group, topic: floors.get(group)
    )
    expiry.begin(NOW_US, 0.0)
    kept = Retention(1, 1, ("a", "b"))
    assert expiry.choose(TOPIC, kept, readers, 0, are_groups_elsewhere=True) == []
    unnamed = Retention(1, 1)
    assert expiry.choose(TOPIC, unnamed, readers, 0, are_groups_elsewhere=True)


def test_looks_come_as_often_as_the_shortest_age_needs():
    assert tick_s([Retention(), Retention()]) is None
    assert tick_s([Retention(), Retention(50), Retention(1e9)]) == 5
    assert tick_s([Retention(1e9)]) == 600
    assert tick_s([Retention(None, 5)]) == 600
    assert tick_s([Retention(5e-324)]) == 0.01, "a node that looks all the time serves nobody"
