"""Micro-batches are planned topic by topic, from the files of a folder; no JVM."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from poe.errors import ConnectFailed, DataLost, OptionError
from tests.spark.sources import Topics, messages, stream_reader, table

pytestmark = pytest.mark.spark

MAX_AGE_S = 100


@pytest.fixture
def topics(tmp_path):
    topics = Topics(tmp_path / "poe", count_limit=3, max_age=MAX_AGE_S)
    yield topics
    topics.stop()


class Query:
    """Drives a stream reader as Spark does, offsets going through JSON."""

    def __init__(self, node, offset=None, *, is_available_now=False, **options):
        self.reader = stream_reader(path=node.folder, **options)
        self.limit = self.reader.getDefaultReadLimit()
        if is_available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.offset = through_json(self.reader.initialOffset()) if offset is None else offset

    def batch(self, limit=None):
        """Run a micro-batch and return its messages; None where there is nothing to do."""
        end = through_json(self.reader.latestOffset(self.offset, limit or self.limit))
        if json.dumps(end) == json.dumps(self.offset):
            return None
        read = messages(table(self.reader, self.reader.partitions(self.offset, end)))
        self.offset = end
        return [message.decode() for message in read]


def through_json(offset):
    return json.loads(json.dumps(offset))


def test_batches_follow_each_other_and_an_idle_topic_makes_none(topics):
    topics.put("t", "a", "b")
    query = Query(topics, topic="t")
    assert query.batch() == ["a", "b"]
    assert query.batch() is None
    last = topics.put("t", "c")
    for each in "defg":
        last = topics.put("t", each)
    assert query.batch() == list("cdefg")
    assert query.offset == {"t": last}
    assert query.reader.reportLatestOffset() == {"t": last}
    assert query.batch() is None


def test_a_batch_that_is_replayed_has_the_same_messages(topics):
    query = Query(topics, topic="t", startingPointer=0)
    topics.put("t", "a", "b")
    start = query.offset
    assert query.batch() == ["a", "b"]
    topics.put("t", "c")
    replayed = stream_reader(path=topics.folder, topic="t")
    parts = replayed.partitions(start, query.offset)
    assert messages(table(replayed, parts)) == [b"a", b"b"]


def test_a_query_begins_where_it_is_told_to(topics):
    pointers = [topics.put("t", each) for each in "abcde"]
    assert Query(topics, topic="t").batch() == list("abcde")
    assert Query(topics, topic="t", startingPointer=pointers[1]).batch() == list("cde")
    latest = Query(topics, topic="t", startingPointer="latest")
    assert latest.batch() is None
    topics.put("t", "f")
    assert latest.batch() == ["f"]


def test_a_topic_that_comes_later_begins_where_the_query_was_told_to(topics):
    query = Query(topics, topicPattern="[tu]", startingTimestamp="2023-11-14T22:15:00")
    topics.put("t", "a")
    topics.put("u", "b")
    assert query.batch() is None
    topics.advance(100)
    topics.put("t", "c")
    assert query.batch() == ["c"]
    topics.put("t", "d")
    assert query.batch() == ["d"]
    assert list(query.offset) == ["t"]


def test_a_start_before_the_oldest_message_loses_nothing(topics):
    topics.put("t", "a")
    assert Query(topics, topic="t", startingPointer=1).batch() == ["a"]
    assert Query(topics, topic="t", startingTimestamp="2001-01-01").batch() == ["a"]


def test_a_topic_that_does_not_exist_yet_is_waited_for(topics):
    query = Query(topics, topic="t")
    assert query.offset == {}
    assert query.batch() is None
    topics.put("t", "a")
    assert query.batch() == ["a"]


def test_a_new_topic_that_matches_joins_in_from_its_oldest_message(topics):
    topics.put("a1", "x")
    query = Query(topics, topicPattern="a.", startingPointer="latest")
    topics.put("a2", "y")
    topics.put("b1", "z")
    assert query.batch() == ["y"]
    assert list(query.offset) == ["a1", "a2"]


def test_a_topic_that_is_not_chosen_any_more_is_left_alone(topics):
    topics.put("a", "x")
    topics.put("b", "y")
    query = Query(topics, topics="a,b")
    assert query.batch() == ["x", "y"]
    topics.put("a", "x2")
    topics.put("b", "y2")
    assert Query(topics, query.offset, topic="b").batch() == ["y2"]


def test_messages_at_most_are_taken_for_a_batch(topics):
    for each in "abcdefg":
        topics.put("t", each)
    query = Query(topics, topic="t", maxMessagesPerTrigger=3)
    assert query.limit == ReadMaxRows(3)
    batches = [query.batch() for _ in range(4)]
    assert batches == [["a", "b", "c"], ["d", "e", "f"], ["g"], None]


def test_bytes_at_most_are_taken_for_a_batch_but_one_message_always(topics):
    for each in ("a" * 9, "b" * 9, "c" * 500, "d"):
        topics.put("t", each)
    query = Query(topics, topic="t", maxBytesPerTrigger=45)
    assert query.limit == ReadMaxBytes(45)
    assert [query.batch() for _ in range(4)] == [["a" * 9, "b" * 9], ["c" * 500], ["d"], None]


def test_both_limits_are_kept(topics):
    for each in ("a" * 9, "b" * 9, "c", "d"):
        topics.put("t", each)
    query = Query(topics, topic="t", maxBytesPerTrigger=35, maxMessagesPerTrigger=2)
    assert [query.batch() for _ in range(3)] == [["a" * 9], ["b" * 9, "c"], ["d"]]


def test_a_trigger_that_wants_everything_overrules_the_limits(topics):
    topics.put("t", "a", "b", "c", "d")
    query = Query(topics, topic="t", maxMessagesPerTrigger=1)
    assert query.batch(ReadAllAvailable()) == list("abcd")


def test_available_now_ends_with_what_was_there_when_it_began(topics):
    topics.put("t", "a", "b", "c")
    query = Query(topics, is_available_now=True, topicPattern=".*", maxMessagesPerTrigger=2)
    topics.put("t", "later")
    topics.put("u", "new topic")
    assert [query.batch() for _ in range(3)] == [["a", "b"], ["c"], None]
    again = Query(topics, query.offset, is_available_now=True, topicPattern=".*")
    assert again.batch() == ["later", "new topic"]


def expire(topics):
    topics.advance(2 * MAX_AGE_S + 20)


def test_what_retention_has_deleted_before_it_was_read_fails_the_query(topics):
    topics.put("t", "a")
    query = Query(topics, topic="t")
    assert query.batch() == ["a"]
    topics.put("t", "unseen")
    lost_from = query.offset["t"] + 1
    expire(topics)
    topics.put("t", "b")
    with pytest.raises(DataLost, match=rf"topic 't' with pointers from {lost_from} to \d+ were"):
        Query(topics, query.offset, topic="t").batch()


def test_what_retention_has_deleted_is_a_warning_where_that_is_wanted(topics, caplog):
    topics.put("t", "a")
    offset = Query(topics, topic="t")
    assert offset.batch() == ["a"]
    topics.put("t", "unseen")
    expire(topics)
    topics.put("t", "b")
    query = Query(topics, offset.offset, topic="t", failOnDataLoss="false")
    assert query.batch() == ["b"]
    assert "deleted before they were read" in caplog.text
    caplog.clear()
    topics.put("t", "c")
    assert query.batch() == ["c"]
    assert not caplog.text


def test_a_topic_that_was_deleted_fails_a_query_that_had_not_read_all_of_it(topics):
    topics.put("t", "a")
    topics.put("u", "b")
    query = Query(topics, topicPattern=".")
    query.batch()
    lost = topics.put("t", "unseen")
    topics.node.control("delete", topic=b"t")
    topics.node.control("delete", topic=b"u")
    with pytest.raises(DataLost, match=rf"topic 't' with pointers from \d+ to {lost} were"):
        Query(topics, query.offset, topicPattern=".").batch()


def test_a_scheduled_query_that_had_read_everything_goes_on_after_expiry(topics):
    """Each run begins from the checkpoint, and so did not see that it had come to the end."""

    def run(offset=None):
        query = Query(topics, offset, is_available_now=True, topic="t")
        while query.batch() is not None:
            pass
        return query.offset

    topics.put("t", "a", "b")
    offset = run()
    expire(topics)
    assert run(offset) == offset
    topics.stop()
    topics.start()
    assert run(offset) == offset
    topics.node.control("delete", topic=b"t")
    assert run(offset) == offset
    last = topics.put("t", "c")
    assert run(offset) == {"t": last}


def test_a_query_that_had_read_everything_loses_nothing_to_retention(topics):
    topics.put("t", "a")
    query = Query(topics, topic="t")
    assert query.batch() == ["a"]
    assert query.batch() is None
    expire(topics)
    assert query.batch() is None
    topics.put("t", "b")
    assert query.batch() == ["b"]


def test_what_comes_and_goes_between_two_batches_is_lost(topics):
    topics.put("t", "a")
    query = Query(topics, topic="t")
    assert query.batch() == ["a"]
    assert query.batch() is None
    lost = topics.put("t", "unseen")
    topics.node.control("trim", topic=b"t", pointer=lost)
    with pytest.raises(DataLost, match=f"to {lost} were"):
        query.batch()


def test_a_hole_in_the_middle_fails_the_query_once(topics, caplog):
    pointers = [topics.put("t", *each) for each in ("abc", "def", "ghi", "j")]
    query = Query(topics, topic="t", maxMessagesPerTrigger=3)
    assert query.batch() == list("abc")
    topics.stop()
    names = sorted(int(path.name[:-5]) for path in topics.folder.glob("topics/t/*_data"))
    for path in topics.folder.glob(f"topics/t/{names[1]}_*"):
        path.unlink()
    topics.start()
    with pytest.raises(DataLost, match=f"from {pointers[0] + 1} to {pointers[1]} were"):
        Query(topics, query.offset, topic="t").batch()
    again = Query(topics, query.offset, topic="t", failOnDataLoss="false")
    assert again.batch() == list("ghij")
    assert again.batch() is None
    assert caplog.text.count("deleted before they were read") == 1
    assert Query(topics, {"t": pointers[1]}, topic="t").batch() == list("ghij")
    assert Query(topics, topic="t").batch() == list("abcghij"), "a new query begins with what is"


def test_a_replayed_batch_whose_messages_are_gone_fails(topics):
    query = Query(topics, topic="t")
    topics.put("t", "a")
    start = query.offset or {"t": 1}
    query.batch()
    expire(topics)
    again = stream_reader(path=topics.folder, topic="t")
    with pytest.raises(DataLost):
        again.partitions(start, query.offset)


def test_the_reader_is_pickled_without_its_connection(topics):
    topics.put("t", "a")
    query = Query(topics, topic="t")
    assert query.batch() == ["a"], "its partitions are read by a pickled reader"
    query.reader.stop()


def test_a_named_topic_that_never_was_fails_a_query_that_takes_what_is_there(topics):
    topics.put("readings", "a")
    query = Query(topics, is_available_now=True, topic="raedings")
    with pytest.raises(OptionError, match=r"'topic' is 'raedings'.*did you mean 'readings'\?"):
        query.batch()
    with pytest.raises(OptionError, match=r"'topics' is 'raedings'.*missingTopics=wait"):
        Query(topics, is_available_now=True, topics="readings,raedings").batch()
    both = Query(topics, is_available_now=True, topics="readings,x", missingTopics="wait")
    assert both.batch() == ["a"]


def test_a_stream_waits_for_a_topic_with_a_warning_or_fails_where_that_is_wanted(topics, caplog):
    query = Query(topics, topic="t")
    assert query.batch() is None
    assert "topic 't' is not there yet; the stream waits for it" in caplog.text
    with pytest.raises(OptionError, match="missingTopics=wait"):
        Query(topics, topic="t", missingTopics="error").batch()
    topics.put("t", "a")
    assert query.batch() == ["a"]


def test_a_topic_that_was_read_and_deleted_is_no_typing_error(topics):
    topics.put("t", "a")
    query = Query(topics, is_available_now=True, topic="t")
    assert query.batch() == ["a"]
    topics.node.control("delete", topic=b"t")
    assert Query(topics, query.offset, is_available_now=True, topic="t").batch() is None
    assert Query(topics, is_available_now=True, topic="t").batch() is None


def test_a_query_that_goes_on_from_its_checkpoint_waits_for_the_server(monkeypatch):
    """`retryTimeout` counts from its first look; a new query fails at once."""
    asked = []

    def open_segments(options, *, is_known):
        asked.append(is_known)
        raise ConnectFailed(options.servers[0].host, options.servers[0].port, "it is away")

    monkeypatch.setattr("poe.spark.stream_reader.open_segments", open_segments)

    def reader():
        made = stream_reader(host="h", port=1, topic="t")
        made.prepareForTriggerAvailableNow()
        return made

    for ask in (
        lambda: reader().initialOffset(),
        lambda: reader().latestOffset({"t": 1}, ReadAllAvailable()),
        lambda: reader().partitions({"t": 1}, {"t": 2}),
    ):
        with pytest.raises(ConnectFailed):
            ask()
    assert asked == [False, True, True]


def test_what_a_stream_cannot_have_is_said_when_spark_asks_something():
    reader = stream_reader(topic="t", endingPointer="latest")
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    ):
        with pytest.raises(OptionError, match=r"(?i)'endingPointer' is not known"):
            ask()
    reader.stop()
