"""A node tells of ordinals what they are, whatever was removed and whoever has died."""

import pytest

from poe.errors import RemoteProtocolError, UnknownTopic
from poe.storage import POINTER_MAX

TOPIC = b"t"


@pytest.fixture
def sim(simulate):
    return simulate(count_limit=3)


def put(sim, count, topic="t"):
    """Put messages one by one, and return their pointers; a segment has three or a few more."""
    pointers = []
    for number in range(count):
        pointers.append(sim.node.put(topic, b"%d" % number))
        sim.advance(1)
    return pointers


def ordinal(sim, pointer, topic=TOPIC):
    return sim.node.control("ordinal", topic=topic, pointer=pointer)


def pointer_at(sim, number, topic=TOPIC):
    return sim.node.control("pointer", topic=topic, ordinal=number)


def partition(sim, topic=TOPIC):
    (told,) = sim.node.control("describe", topic=topic)["partitions"]
    return told


def test_each_message_is_found_by_its_ordinal_and_tells_it(sim):
    pointers = put(sim, 10)
    assert len(sim.node.control("segments", topic=TOPIC)) > 2
    for number, pointer in enumerate(pointers):
        assert ordinal(sim, pointer - 1) == number
        assert ordinal(sim, pointer) == number + 1
        assert pointer_at(sim, number) == pointer
    assert ordinal(sim, 0) == 0
    assert ordinal(sim, POINTER_MAX) == 10
    assert pointer_at(sim, 10) is None


def test_segments_and_descriptions_tell_where_ordinals_begin(sim):
    put(sim, 10)
    rows = sim.node.control("segments", topic=TOPIC)
    counts = [row["count"] for row in rows]
    assert [row["base"] for row in rows] == [sum(counts[:n]) for n in range(len(counts))]
    assert partition(sim)["first_ordinal"] == 0
    assert partition(sim)["next_ordinal"] == 10


def test_what_is_trimmed_moves_nothing(sim):
    pointers = put(sim, 10)
    removed_count = sim.node.control("segments", topic=TOPIC)[0]["count"]
    assert sim.node.control("trim", topic=TOPIC, pointer=pointers[removed_count - 1]) == 1
    assert partition(sim)["first_ordinal"] == removed_count
    assert pointer_at(sim, 0) == pointers[removed_count]
    assert ordinal(sim, pointers[-1] - 1) == 9
    sim.node.control("trim", topic=TOPIC, pointer=POINTER_MAX)
    told = partition(sim)
    assert (told["first_ordinal"], told["next_ordinal"], told["messages"]) == (10, 10, 0)
    (pointer,) = put(sim, 1)
    assert pointer_at(sim, 10) == pointer


def test_a_topic_that_is_deleted_and_made_anew_goes_on(sim):
    put(sim, 4)
    sim.node.control("delete", topic=TOPIC)
    with pytest.raises(UnknownTopic):
        ordinal(sim, 0)
    put(sim, 1)
    assert (partition(sim)["first_ordinal"], partition(sim)["next_ordinal"]) == (4, 5)


def test_a_topic_that_rests_is_woken_to_tell(sim, monkeypatch):
    monkeypatch.setattr("poe.storage.store.store.FEW_TOPICS", 0)
    pointers = put(sim, 5)
    sim.stop()
    sim.start()
    assert sim.node.control("info")[TOPIC][0]["base"] is None
    assert partition(sim)["next_ordinal"] == 5
    assert ordinal(sim, pointers[3]) == 4


def test_a_crash_changes_nothing(sim):
    pointers = put(sim, 8)
    for ref in sim.servers():
        sim.system.exit(ref, "kill")
    sim.kill("topic_registry")
    assert [pointer_at(sim, number) for number in range(8)] == pointers
    put(sim, 1)
    assert partition(sim)["next_ordinal"] == 9


@pytest.mark.parametrize("wrong", [-1, 1 << 64, "1", None, 1.5])
def test_what_is_no_ordinal_is_refused(sim, wrong):
    put(sim, 1)
    with pytest.raises(RemoteProtocolError, match="argument ordinal is"):
        pointer_at(sim, wrong)


def test_of_an_unknown_topic_there_are_none(sim):
    for ask in (ordinal, pointer_at):
        with pytest.raises(UnknownTopic):
            ask(sim, 1)


def test_an_end_that_is_lost_is_left_to_another_segment(sim):
    """Whoever waits for news is not told of the end again and again meanwhile."""
    put(sim, 2)
    path = sim.node.control("segments", topic=TOPIC)[0]["path"]
    sim.stop()
    with (sim.folder / f"{path}_data").open("r+b") as data:
        data.truncate(15)
    sim.start()
    sim.advance(1)
    assert sim.roles(TOPIC).endswith("w")
    (pointer,) = put(sim, 1)
    assert pointer_at(sim, 2) == pointer
    assert partition(sim)["next_ordinal"] == 3
