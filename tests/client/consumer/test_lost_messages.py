"""What was deleted before it was read is told, and nothing else is."""

import pytest

from poe import Node
from poe.errors import MessagesLost
from tests.client.consumers import VALUES, put_segments, values


def test_who_has_read_all_of_a_topic_loses_nothing_when_it_is_deleted(node, consumers):
    pointer = node.put_many("t", VALUES)
    node.control("delete", topic=b"t")
    reader = consumers(node, "t", start=pointer)
    assert reader.receive() == []
    node.put_many("t", VALUES[:2])
    assert values(reader) == VALUES[:2]


def test_who_has_read_all_before_a_pause_loses_nothing_to_retention(shedding, consumers):
    first, second = put_segments(shedding, b"1", b"2")
    shedding.control("trim", topic=b"t", pointer=second)
    reader = consumers(shedding, "t", start=second)
    assert reader.receive() == []
    put_segments(shedding, b"3")
    assert values(reader) == [b"3"]
    with pytest.raises(MessagesLost) as caught:
        consumers(shedding, "t", start=first).receive()
    assert caught.value.is_certain
    assert caught.value.pointer_high == second


def take_away(folder, pointer):
    """Remove the segment of a message, as only the archiver or an accident would."""
    for path in folder.glob(f"topics/t/{pointer}_*"):
        path.unlink()


def test_a_hole_in_the_middle_is_lost_once_and_nothing_else(tmp_path, consumers):
    options = {"dir": tmp_path / "data", "port": 0, "size_limit": 1, "check_interval": 0.01}
    with Node(options) as node:
        pointers = put_segments(node, b"1", b"2", b"3", b"4")
    names = sorted(int(path.name[:-5]) for path in (tmp_path / "data/topics/t").glob("*_data"))
    take_away(tmp_path / "data", names[2])
    with Node(options) as node:
        with pytest.raises(MessagesLost) as caught:
            list(consumers(node, "t", start=pointers[0]))
        assert caught.value.pointer_low == pointers[1] + 1
        assert caught.value.pointer_high == pointers[2]
        reader = consumers(node, "t", start=pointers[0], on_lost="skip")
        assert values(reader) == [b"2", b"4"]
        assert reader.statistics().lost_count == 1
        assert values(consumers(node, "t", start=pointers[2])) == [b"4"]
        assert values(consumers(node, "t")) == [b"1", b"2", b"4"], "it begins with what is there"


def test_what_came_and_went_while_nobody_asked_is_lost(shedding, consumers):
    reader = consumers(shedding, "t")
    assert reader.receive() == []
    (first,) = put_segments(shedding, b"1")
    shedding.control("trim", topic=b"t", pointer=first)
    with pytest.raises(MessagesLost) as caught:
        reader.receive()
    assert caught.value.pointer_high is not None
    reader.seek(caught.value.pointer_high)
    assert reader.receive() == []
