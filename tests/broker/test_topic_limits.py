"""How many topics there may be, how fast they may come, and whether puts make them at all."""

import pytest

from poe.errors import Overloaded, TopicNotCreated, UnknownTopic
from tests.broker.nodes import connect
from tests.tls import BOTH

TRANSPORTS = BOTH


def test_puts_onto_more_topics_than_allowed_are_refused_and_others_go_on(simulate):
    sim = simulate(topics_max=3)
    for number in range(3):
        sim.node.put(b"t%d" % number, b"1")
    with pytest.raises(Overloaded, match="topics_max of 3"):
        sim.node.put(b"t3", b"1")
    with pytest.raises(Overloaded, match="topics_max of 3"):
        sim.node.control("create", topic=b"t3")
    sim.node.put(b"t2", b"2")
    assert sim.node.topics() == [b"t0", b"t1", b"t2"]
    assert not (sim.folder / "topics/t3").exists()


def test_topics_that_are_there_are_served_though_there_may_be_fewer(simulate):
    sim = simulate()
    for number in range(3):
        sim.node.put(b"t%d" % number, b"1")
    sim.stop()
    sim.options["topics_max"] = 1
    sim.start()
    sim.node.put(b"t2", b"2")
    assert len(sim.node.topics()) == 3


def test_topics_come_no_faster_than_allowed(simulate):
    sim = simulate(topic_creation_rate=5)
    sim.advance(10)
    for number in range(5):
        sim.node.put(b"t%d" % number, b"1")
    with pytest.raises(Overloaded, match="topic_creation_rate of 5"):
        sim.node.put(b"t5", b"1")
    sim.node.put(b"t0", b"2")
    sim.advance(1.01)
    sim.node.put(b"t5", b"1")
    assert len(sim.node.topics()) == 6


def test_without_auto_create_only_create_makes_topics(simulate):
    sim = simulate(auto_create=False)
    with pytest.raises(TopicNotCreated, match="control request create"):
        sim.node.put(b"t", b"1")
    with pytest.raises(UnknownTopic):
        sim.node.next(b"t", 0)
    assert sim.node.topics() == []
    sim.node.control("create", topic=b"t")
    sim.node.put(b"t", b"1")
    sim.stop()
    sim.start()
    sim.node.put(b"t", b"2")


def test_a_client_is_told_and_its_connection_stays(serve):
    with connect(serve(auto_create=False)) as client:
        with pytest.raises(TopicNotCreated) as caught:
            client.write(b"t", [b"1"])
        assert caught.value.topic == b"t"
        client.control("create", topic=b"t")
        client.write(b"t", [b"1"])
