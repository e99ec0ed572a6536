"""What consumers make of envelopes, and of what is none."""

import pytest

from poe.errors import InvalidEnvelope
from poe.protocol.envelope import encode
from tests.client.consumers import values


def test_envelopes_come_with_their_key_and_headers(node, consumer):
    node.put_many("t", [encode(b"k", b"v", {"h": b"1"}), encode(None, b"w"), encode(b"gone", None)])
    received = list(consumer(envelope=True))
    assert [(each.key, each.value, each.headers) for each in received] == [
        (b"k", b"v", {"h": b"1"}),
        (None, b"w", None),
        (b"gone", None, None),
    ]


@pytest.mark.parametrize("follow", [False, True])
def test_of_a_topic_that_is_made_later_it_is_found_out_whether_it_has_envelopes(
    node, consumer, follow
):
    with consumer(start="newest", follow=follow) as reader:
        node.create_topic("t", envelope=True)
        node.put("t", encode(b"k", b"v"))
        [received] = reader.receive()
    assert (received.key, received.value) == (b"k", b"v")


def test_what_is_no_envelope_is_an_error_that_comes_in_its_turn(node, consumer):
    last = node.put_many("t", [encode(None, b"a"), b"plain", encode(None, b"b")])
    reader = consumer(envelope=True)
    assert values(reader.receive()) == [b"a"]
    for _ in range(2):
        with pytest.raises(InvalidEnvelope, match=f"pointer {last - 1} is no envelope") as caught:
            reader.receive()
    assert caught.value.pointer == last - 1
    reader.seek(last - 1)
    assert values(reader) == [b"b"]


def test_of_several_partitions_it_is_said_in_which_one_something_is_no_envelope(node, consumer):
    """One goes on behind it there alone: a pointer by itself would be for the others, too."""
    node.create_topic("t", partitions=2, envelope=True)
    bad = node.put("t-1", b"plain")
    node.put("t-1", encode(None, b"b"))
    reader = consumer()
    with pytest.raises(InvalidEnvelope) as caught:
        reader.receive()
    assert caught.value.__notes__ == ["in partition 1, topic 't-1'"]
    reader.seek({1: bad})
    assert values(reader) == [b"b"]


def test_what_is_no_envelope_can_be_skipped_and_is_counted(node, consumer):
    node.put_many("t", [b"plain", encode(None, b"a"), b"plain"])
    reader = consumer(envelope=True, on_corrupt="skip", follow=True)
    assert values(reader.receive()) == [b"a"]
    node.put_many("t", [b"plain"])
    node.put_many("t", [encode(None, b"b")])
    assert values(reader.receive()) == [b"b"]
    assert reader.statistics().corrupt_count == 3
    assert reader.statistics().received_count == 2
