"""What a server tells of a topic is taken, and held against what a client was told."""

import pytest

from poe.errors import CallTimeout, PropertyMismatch, RemoteProtocolError, UnknownTopic
from poe.protocol import DescribedPartition, DescribedTopic
from poe.protocol.described_topic import no_topic

ROW = {"topic": b"t-0", "oldest": 1, "newest": 5, "messages": 2, "bytes": 24, "segments": 1}
TOLD = {
    "name": b"t",
    "id": bytes(16),
    "created_us": 7,
    "version": 2,
    "properties": {"partitions": 1, "envelope": True},
    "partitions": [ROW],
}


def test_it_is_taken_from_a_map_and_given_back():
    topic = DescribedTopic.from_map(TOLD)
    assert topic.partitions == (DescribedPartition(b"t-0", 1, 5, 2, 24, 1),)
    assert topic.properties.envelope
    assert DescribedTopic.from_map(topic.as_map()) == topic


def test_what_a_newer_server_tells_besides_is_left_out():
    newer = TOLD | {"colour": 1, "properties": {"colour": "red"}, "partitions": [ROW | {"x": 1}]}
    assert DescribedTopic.from_map(newer).partitions[0].messages == 2


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        TOLD | {"properties": None},
        TOLD | {"properties": {"partitions": 0}},
        TOLD | {"partitions": [{}]},
        TOLD | {"partitions": 5},
        TOLD | {"name": "t"},
        TOLD | {"version": "x"},
    ],
)
def test_an_answer_that_is_none_is_refused(content):
    with pytest.raises(RemoteProtocolError):
        DescribedTopic.from_map(content)


def test_what_a_client_was_told_must_be_what_the_topic_has():
    topic = DescribedTopic.from_map(TOLD)
    topic.check({"partitions": 1, "envelope": True})
    topic.check({"partitions": None, "envelope": None})
    with pytest.raises(PropertyMismatch) as refused:
        topic.check({"partitions": 1, "envelope": False})
    error = refused.value
    assert (error.topic, error.name, error.asked, error.has) == (b"t", "envelope", False, True)


def test_of_a_topic_that_a_put_has_made_nobody_knows_better_than_its_clients():
    topic = DescribedTopic.from_map(TOLD | {"version": 0})
    assert not topic.is_told
    topic.check({"partitions": 5, "envelope": False})


def test_a_topic_that_is_not_there_and_a_server_that_cannot_tell_are_no_errors():
    assert no_topic(UnknownTopic(b"t")) is None
    assert no_topic(RemoteProtocolError("control op 'describe' is unknown; use topics")) is None
    for error in (RemoteProtocolError("else"), CallTimeout("server", 1.0)):
        assert no_topic(error) is error
