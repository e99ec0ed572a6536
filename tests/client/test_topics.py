"""Topics are made, altered, adopted, described and listed over sockets of both kinds."""

import pytest

from poe import client, protocol
from poe.errors import OptionError, PropertyFixed, TopicExists, UnknownOption, UnknownTopic
from poe.protocol import exchange


@pytest.fixture
def socket(node):
    with protocol.socket(*node.address, timeout_s=10) as socket:
        yield socket


def test_a_topic_goes_through_its_life(socket):
    made = socket.create_topic("t", partitions=2, envelope=True, keep_unread=("billing",))
    assert made.properties.keep_unread == ("billing",)
    assert [each.topic for each in made.partitions] == [b"t-0", b"t-1"]
    socket.write("t-1", [b"1", b"2"])
    altered = socket.alter_topic("t", partitions=3, ack="fsync")
    assert (altered.version, altered.id) == (2, made.id)
    assert socket.describe("t") == altered
    assert [each.messages for each in altered.partitions] == [0, 2, 0]
    socket.delete("t")
    assert socket.find_topic("t") is None
    with pytest.raises(UnknownTopic):
        socket.describe("t")


def test_topics_are_adopted(socket):
    for number in range(2):
        socket.write(f"t-{number}", [b"1"])
    adopted = socket.adopt_topic("t", partitions=2, envelope=True)
    assert [each.messages for each in adopted.partitions] == [1, 1]
    assert [each.name for each in socket.list_topics()] == [b"t"]
    assert socket.topic_names() == [b"t"]


def test_a_wrong_property_is_told_before_anything_is_sent(socket):
    with pytest.raises(OptionError):
        socket.create_topic("t", partitions=0)
    with pytest.raises(UnknownOption):
        socket.create_topic("t", colour="red")
    assert socket.list_topics() == []


def test_the_refusals_of_the_server_have_both_values(socket):
    socket.create_topic("t", partitions=2)
    with pytest.raises(TopicExists):
        socket.create_topic("t")
    with pytest.raises(PropertyFixed) as refused:
        socket.alter_topic("t", partitions=1)
    assert (refused.value.value, refused.value.asked) == (2, 1)


def test_all_topics_are_listed_page_by_page(socket, monkeypatch):
    monkeypatch.setattr(exchange, "PAGE_COUNT", 3)
    names = [b"t%02d" % number for number in range(10)]
    for name in names[::2]:
        socket.create_topic(name, partitions=2)
        socket.write(name + b"-1", [b"1"])
    for name in names[1::2]:
        socket.write(name, [b"1"])
    assert socket.topic_names() == names
    told = socket.list_topics()
    assert [each.name for each in told] == names
    assert [each.properties.partitions for each in told] == [2, 1] * 5
    assert [each.is_told for each in told] == [True, False] * 5


async def test_tasks_do_the_same(node):
    async with await client.connect(*node.address, timeout_s=10) as socket:
        made = await socket.create_topic("t", partitions=2)
        assert await socket.describe("t") == made
        assert (await socket.alter_topic("t", ack="fsync")).version == 2
        await socket.write("u-0", [b"1"])
        await socket.adopt_topic("u", partitions=2)
        assert [each.name for each in await socket.list_topics()] == [b"t", b"u"]
        assert await socket.find_topic("v") is None


def test_a_node_does_the_same_in_process(node):
    made = node.create_topic("t", partitions=2)
    node.put("t-1", b"1")
    assert node.alter_topic("t", max_age="none").properties.max_age == "none"
    assert node.describe("t").partitions[1].messages == 1
    assert node.describe("t").id == made.id
    node.put("u-0", b"1")
    assert node.adopt_topic("u", partitions=2).partitions[0].messages == 1
