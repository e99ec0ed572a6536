"""The node's own topics: no limit on topics refuses them, nothing expires or archives them."""

from pathlib import Path

import pytest

from poe.broker import ArchiveFolders
from poe.storage import RealFiles, TopicOptions, check_segments

OWN = (b"poe.groups", b"poe.delayed")
MEMBER = b"a" * 16


def use(sim):
    """Have the node write to both."""
    sim.node.control("group_join", group="g", mode="shared", topics=["jobs"], member=MEMBER)
    due_us = sim.wall.now_us() + 3600 * 1_000_000
    sim.node.control("queue_put", topic="jobs", messages=[b"later"], due_us=due_us)


def count(sim, topic):
    return sum(row["count"] for row in sim.node.control("segments", topic=topic))


@pytest.mark.parametrize(
    "options",
    [
        {"auto_create": False},
        {"topics_max": 1},
        {"topic_creation_rate": 1},
        {"message_max": 10},
    ],
    ids=str,
)
def test_no_limit_on_topics_and_messages_refuses_them(simulate, options):
    sim = simulate(**options)
    sim.node.control("create", topic=b"jobs")
    use(sim)
    assert all(count(sim, topic) for topic in OWN)


@pytest.mark.parametrize("options", [{"max_age": 10}, {"max_bytes": 100}], ids=str)
def test_they_do_not_expire(simulate, options):
    sim = simulate(count_limit=2, **options)
    for _ in range(5):
        use(sim)
        sim.node.put(b"jobs", b"x" * 100)
        sim.advance(1)
    before = {topic: count(sim, topic) for topic in OWN}
    sim.advance(300)
    assert count(sim, b"jobs") < 5
    assert {topic: count(sim, topic) for topic in OWN} == before
    sim.stop()
    sim.start()
    sim.advance(300)
    assert sim.node.control("groups")
    assert {topic: count(sim, topic) for topic in OWN} == before


def test_they_are_not_archived_unless_one_is_named():
    everything = ArchiveFolders.of(Path("/archive"), ())
    assert [everything.folder(topic) for topic in OWN] == [None, None]
    assert everything.folder(b"jobs") == Path("/archive")
    own = TopicOptions(topic="poe.groups", archive_dir=Path("/own"))
    assert ArchiveFolders.of(Path("/archive"), [own]).folder(b"poe.groups") == Path("/own")


def test_a_check_of_the_folder_finds_them_sound(simulate):
    sim = simulate()
    use(sim)
    sim.stop()
    checks = {check.path: check.damage for check in check_segments(RealFiles.at(sim.folder))}
    for topic in OWN:
        assert [damage for path, damage in checks.items() if topic.decode() in path] == [[]]
    sim.start()
