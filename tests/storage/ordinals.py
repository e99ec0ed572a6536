"""What the tests of ordinals share: topics of messages that tell who they are."""

from itertools import pairwise

from torture.numbered_topic import numbered

NOW = 1_700_000_000_000_000
TOPIC = b"t"


def fill(store, count=3, begin=0, batch=4, topic=TOPIC):
    """Make so many segments of `batch` messages each, which are their ordinals; close none."""
    number = begin
    for _ in range(count):
        segment = store.create_segment(topic, NOW)
        segment.append([b"%d" % each for each in range(number, number + batch)], NOW)
        segment.flush()
        number += batch
    return number


def put(segment, number, count=1):
    """Append messages that are their ordinals, from a number on."""
    segment.append([b"%d" % each for each in range(number, number + count)], NOW)


def found_on(store, topic=TOPIC):
    """Return (ordinal, message) of each record of a topic; the ordinals rise."""
    segments = store.topics.get(topic, [])
    for before, segment in pairwise(segments):
        assert before.next_ordinal <= segment.base
    found = [each for segment in segments for each in numbered(segment)]
    assert all(one < other for (one, _), (other, _) in pairwise(found))
    return found


def all_true(found):
    """Return whether each message has the ordinal that it was put with."""
    return all(message == b"%d" % ordinal for ordinal, message in found)


def newest_writer(store, topic=TOPIC):
    """Return who takes the next message, as the registry would make it."""
    segments = store.topics.get(topic, [])
    if not segments:
        return store.create_segment(topic, NOW)
    segments[-1].unseal()
    return store.create_segment(topic, NOW) if segments[-1].failure else segments[-1]
