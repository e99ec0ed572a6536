"""A topic whose writer goes on crashing takes no messages for a while; nobody else notices."""

import pytest

from poe.errors import ActorDead, TopicFailed
from poe.storage import Segment
from tests.broker.nodes import read_by_frames

BAD, GOOD = b"bad", b"good"

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def sim(simulate, monkeypatch):
    """A node on which the message `poison` crashes whoever is to store it."""
    append = Segment.append

    def crash(segment, messages, now_us, put_id=None):
        if b"poison" in messages:
            raise RuntimeError("poisoned")
        return append(segment, messages, now_us, put_id)

    monkeypatch.setattr(Segment, "append", crash)
    sim = simulate()
    sim.node.put(BAD, b"before")
    sim.node.put(GOOD, b"before")
    return sim


def crash(sim, times):
    for _ in range(times):
        with pytest.raises(ActorDead):
            sim.node.put(BAD, b"poison")


def messages(sim, topic):
    return [message for _, message in read_by_frames(sim.read, topic)]


def test_after_five_restarts_within_a_minute_it_can_only_be_read(sim):
    crash(sim, 5)
    sim.node.put(BAD, b"between")
    crash(sim, 1)
    for message in (b"poison", b"after"):
        with pytest.raises(TopicFailed, match=r"'bad'.*crashed 6 times within 60 s"):
            sim.node.put(BAD, message)
    assert messages(sim, BAD) == [b"before", b"between"]


def test_other_topics_and_their_actors_stay(sim):
    before = {*sim.servers(), sim.system.actors.find("topic_registry").address}
    bad = [ref for ref, _ in dict(sim.node.status())[BAD]]
    crash(sim, 6)
    sim.node.put(GOOD, b"after")
    assert messages(sim, GOOD) == [b"before", b"after"]
    after = {*sim.servers(), sim.system.actors.find("topic_registry").address}
    assert before - after == {*bad}


def test_after_the_minute_it_takes_messages_again(sim):
    crash(sim, 6)
    sim.advance(59)
    with pytest.raises(TopicFailed, match="again in 1 s"):
        sim.node.put(BAD, b"after")
    sim.advance(1.1)
    sim.node.put(BAD, b"after")
    assert messages(sim, BAD) == [b"before", b"after"]


def test_crashes_that_are_rare_do_no_harm(sim):
    for _ in range(20):
        crash(sim, 1)
        sim.advance(12.1)
    sim.node.put(BAD, b"after")
    assert messages(sim, BAD) == [b"before", b"after"]


def test_a_writer_that_is_killed_has_not_crashed(sim):
    for number in range(7):
        sim.kill("appendix_sup")
        sim.advance(0.6)
        sim.system.exit(sim.node.status()[0][1][-1][0], "kill")
        sim.node.put(BAD, b"%d" % number)
    assert messages(sim, BAD) == [b"before", *(b"%d" % number for number in range(7))]


def test_readers_that_are_killed_do_not_keep_the_writer_from_its_work(simulate):
    sim = simulate(count_limit=1)
    for _ in range(2):
        sim.node.put(BAD, b"1")
        sim.advance(0.6)
    for _ in range(7):
        sim.system.exit(sim.servers()[0], "a bug")
    sim.node.put(BAD, b"2")
