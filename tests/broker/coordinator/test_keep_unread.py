"""What a group has not read outlasts retention: by age, by bytes, up to a cap, over restarts."""

import pytest

from poe.errors import ReadFailed
from poe.storage import Segment

ANN = b"a" * 16
AGE_S = 100


@pytest.fixture
def sim(simulate):
    return simulate(count_limit=10, max_age=AGE_S)


def fill(sim, topic="jobs", count=50):
    pointers = [sim.node.put(topic, b"x" * 100) for _ in range(count)]
    sim.advance(1)
    return pointers


def create(sim, mode="ordered", name="billing", topics=("jobs",)):
    sim.node.control("group_create", group=name, mode=mode, topics=list(topics))


def commit(sim, pointer, name="billing", unit=b"jobs"):
    """Have the group be at a pointer."""
    joined = sim.node.control("group_join", group=name, member=ANN, mode="ordered", topics=["jobs"])
    sim.advance(0.1)
    told = sim.node.control(
        "group_heartbeat",
        group=name,
        member=ANN,
        generation=joined["generation"],
        owned=list(joined["units"]),
    )
    taken = sim.node.control(
        "group_commit",
        group=name,
        member=ANN,
        generation=told["generation"],
        positions={unit: pointer},
    )
    assert taken == {unit: pointer}


def first(sim, topic="jobs"):
    found = sim.node.next(topic, 0)
    return None if found is None else found[0]


def expire(sim):
    sim.advance(AGE_S * 2)


@pytest.mark.parametrize("mode", ["ordered", "shared"])
def test_what_a_group_has_not_read_outlasts_its_age(sim, mode):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim, mode)
    pointers = fill(sim)
    expire(sim)
    assert first(sim) == pointers[0]


def test_what_it_has_read_goes_and_the_rest_stays(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    commit(sim, pointers[24])
    expire(sim)
    assert pointers[0] < first(sim) <= pointers[25]
    commit(sim, pointers[-1])
    expire(sim)
    assert first(sim) is None


def test_the_slowest_of_several_groups_counts(sim):
    sim.node.create_topic("jobs", keep_unread=["billing", "audit"])
    create(sim)
    create(sim, name="audit")
    pointers = fill(sim)
    commit(sim, pointers[-1])
    expire(sim)
    assert first(sim) == pointers[0]


def test_a_group_that_is_not_named_keeps_nothing(sim):
    sim.node.create_topic("jobs", keep_unread=["other"])
    create(sim)
    fill(sim)
    expire(sim)
    assert first(sim) is None


def test_a_group_that_does_not_read_the_topic_keeps_nothing(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim, topics=["web.*"])
    fill(sim)
    expire(sim)
    assert first(sim) is None


def test_a_group_keeps_partitions_and_topics_of_its_patterns(sim):
    for topic, partitions in (("web.orders", 2), ("web.clicks", 1)):
        sim.node.create_topic(topic, partitions=partitions, keep_unread=["billing"])
    create(sim, topics=["web.*"])
    begun = {topic: fill(sim, topic)[0] for topic in ("web.orders-0", "web.orders-1", "web.clicks")}
    expire(sim)
    assert {topic: first(sim, topic) for topic in begun} == begun


def test_a_group_that_was_deleted_keeps_nothing(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    expire(sim)
    assert first(sim) == pointers[0]
    sim.node.control("group_delete", group="billing", force=False)
    expire(sim)
    assert first(sim) is None


def test_a_group_that_was_made_anew_has_read_nothing(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    commit(sim, fill(sim)[-1])
    sim.node.control("group_delete", group="billing", force=True)
    create(sim)
    expire(sim)
    assert first(sim) is not None


def test_after_a_restart_the_log_tells_what_is_read(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    commit(sim, pointers[24])
    sim.stop()
    sim.start()
    expire(sim)
    assert pointers[0] < first(sim) <= pointers[25]
    commit(sim, pointers[-1])
    expire(sim)
    assert first(sim) is None


def test_after_a_restart_so_it_does_of_a_queue_that_nobody_works_on(sim):
    """What was done would be kept until somebody asks for its group."""
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim, "shared")
    pointers = fill(sim)
    sim.node.control("group_reset", group="billing", to={b"jobs": pointers[24]})
    sim.stop()
    sim.start()
    expire(sim)
    assert pointers[0] < first(sim) <= pointers[25]


def test_as_long_as_nobody_knows_what_is_read_all_is_kept(sim, monkeypatch, quiet):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    commit(sim, pointers[-1])
    sim.stop()
    read = Segment.read_range

    def fail(self, *arguments):
        if "poe.groups" in self.path:
            raise ReadFailed(self.path, "no disk")
        return read(self, *arguments)

    monkeypatch.setattr(Segment, "read_range", fail)
    sim.start()
    expire(sim)
    assert first(sim) == pointers[0]
    monkeypatch.setattr(Segment, "read_range", read)
    assert sim.node.control("groups")
    expire(sim)
    assert first(sim) is None


def test_a_group_that_crashed_keeps_what_it_had_not_read(sim, quiet):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    commit(sim, pointers[24])
    sim.kill("group billing")
    sim.kill("groups")
    expire(sim)
    assert pointers[0] < first(sim) <= pointers[25]


def test_what_is_too_much_goes_only_when_it_is_read(simulate):
    sim = simulate(count_limit=10)
    sim.node.create_topic("jobs", keep_unread=["billing"], max_bytes=2000)
    create(sim)
    pointers = fill(sim)
    assert first(sim) == pointers[0]
    commit(sim, pointers[-1])
    sim.advance(3600)
    fill(sim, count=11)
    assert first(sim) > pointers[-11]


def test_a_cap_limits_what_is_kept(simulate):
    sim = simulate(count_limit=10, max_age=AGE_S)
    sim.node.create_topic("jobs", keep_unread=["billing"], keep_unread_bytes=3000)
    create(sim)
    pointers = fill(sim)
    expire(sim)
    held = sim.node.describe("jobs").partitions[0]
    assert pointers[0] < first(sim) < pointers[-1]
    assert 1000 < held.bytes <= 3000


def test_a_reset_to_the_begin_keeps_what_is_left(sim):
    sim.node.create_topic("jobs", keep_unread=["billing"])
    create(sim)
    pointers = fill(sim)
    commit(sim, pointers[24])
    named = {"group": "billing", "to": "oldest", "dry": False, "force": True}
    sim.node.control("group_reset", **named)
    expire(sim)
    assert first(sim) == pointers[0]
