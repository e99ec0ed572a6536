"""Options come as text; what is wrong is said with what is allowed."""

import pytest
from pyspark.sql.types import StringType, StructType

from poe.errors import OptionError, UnknownOption
from poe.protocol.server import Server
from poe.spark.read_options import ReadOptions
from poe.storage import POINTER_MAX
from tests.spark.sources import data_source

pytestmark = pytest.mark.spark


def parse(mode="batch", **options):
    return ReadOptions.parse({"topic": "t", **options}, mode)


def topics(**options):
    return ReadOptions.parse(options, "batch")


def test_names_have_no_case_and_values_have_types():
    options = parse(HOST="h", port="77", includesegment="True", targetPartitionBytes="9")
    assert options.servers == (Server("h", 77),)
    assert options.include_segment is True
    assert options.target_partition_bytes == 9
    assert parse() == ReadOptions(topic="t")


def test_a_list_of_topics_is_written_with_commas_or_as_a_list():
    expected = ("a", "b.c")
    for text in ("a,b.c", " a , b.c ", "['a', 'b.c']", '["a", "b.c"]', "a,b.c,a"):
        assert topics(topics=text).topics == expected
    for text in ("", ",", "[]", "[1]", "['a'", "a,,b"):
        with pytest.raises(OptionError, match="topics"):
            topics(topics=text)


def test_exactly_one_of_the_ways_to_name_topics_is_given():
    for options in ({}, {"topic": "a", "topics": "b"}, {"topics": "b", "topicPattern": "c"}):
        with pytest.raises(OptionError, match="exactly one"):
            topics(**options)


def test_a_pattern_matches_whole_names_and_never_the_topics_of_writes():
    options = topics(topicPattern="a.*|poe.*")
    assert [t for t in ("a", "ab", "ba", "poe.x", "poe.staging.0a") if options.selects(t)] == [
        "a",
        "ab",
        "poe.x",
    ]
    with pytest.raises(OptionError, match="regular expression"):
        topics(topicPattern="(")


def test_a_named_topic_is_selected_and_no_other():
    assert topics(topic="a,b").selects("a,b")
    assert not topics(topic="a,b").selects("a")
    assert topics(topics="a,b").selects("a")


def test_pointers_are_numbers_or_words():
    assert parse(startingPointer="earliest").starting_pointer == 0
    assert parse(startingPointer="LATEST").starting_pointer == POINTER_MAX
    assert parse(startingPointer="12").starting_pointer == 12
    assert parse(endingPointer="latest").ending_pointer == POINTER_MAX
    for name, text in [
        ("startingPointer", "-1"),
        ("startingPointer", str(POINTER_MAX + 1)),
        ("startingPointer", "soon"),
        ("endingPointer", "earliest"),
    ]:
        with pytest.raises(OptionError, match=name):
            parse(**{name: text})


def test_a_time_begins_with_its_own_messages_and_ends_before_them():
    options = parse(
        startingTimestamp="2026-01-31T12:00:00", endingTimestamp="2026-01-31T13:00:01+01:00"
    )
    noon_us = 1_769_860_800_000_000
    assert options.starting_pointer == noon_us - 1
    assert options.ending_pointer == noon_us + 1_000_000 - 1
    assert parse(startingTimestamp="1900-01-01").starting_pointer == 0
    with pytest.raises(OptionError, match="without a zone it is UTC"):
        parse(startingTimestamp="noon")
    with pytest.raises(OptionError, match="either startingPointer or startingTimestamp"):
        parse(startingPointer="1", startingTimestamp="2026-01-31")


def test_a_server_and_a_path_exclude_each_other():
    with pytest.raises(OptionError, match="either the options of a server, or path"):
        parse(path="/data", port="5555")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "0"),
        ("port", "65536"),
        ("port", "1e3"),
        ("port", "5" * 5000),
        ("includeSegment", "yes"),
        ("maxMessagesPerTrigger", "0"),
        ("failOnDataLoss", ""),
        ("host", ""),
        ("retryTimeout", "nan"),
        ("retryTimeout", "long"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_its_option(name, text):
    with pytest.raises(OptionError, match=name) as raised:
        parse("stream", **{name: text})
    assert raised.value.value == text


def test_an_unknown_name_lists_those_that_are_known_for_this_kind_of_read():
    with pytest.raises(
        UnknownOption, match=r"'tpoic' is not known; use one of .*endingPointer"
    ) as raised:
        parse(tpoic="x")
    assert "maxMessagesPerTrigger" not in str(raised.value)
    with pytest.raises(UnknownOption, match="maxMessagesPerTrigger"):
        parse("stream", endingPointer="latest")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("tpoic", "topic"), ("StartingPonter", "startingPointer"), ("maxMessagePerTriger", "maxM"),
     ("producerID2", "producerId"), ("retryTimeouts", "retryTimeout")],
)  # fmt: skip
def test_an_unknown_name_is_refused_before_spark_begins_with_the_nearest(key, nearest):
    with pytest.raises(UnknownOption, match=f"(?i)'{key}' is not known.*did you mean {nearest}"):
        data_source(topic="t", **{key: "1"})


def test_a_wrong_value_is_refused_before_spark_begins():
    with pytest.raises(OptionError, match="'port' is '0'"):
        data_source(topic="t", port=0)
    with pytest.raises(OptionError, match="missingTopics"):
        data_source(topic="t", missingTopics="maybe")


def test_what_spark_passes_on_of_its_own_is_let_through():
    source = data_source(topic="t", checkpointLocation="/c", queryName="q", PATH="/p")
    assert source.schema()


def test_nothing_near_is_not_guessed_at():
    with pytest.raises(UnknownOption) as raised:
        data_source(zzzzzz="1")
    assert "did you mean" not in str(raised.value)


def test_a_table_of_the_catalog_is_refused_with_what_works():
    """Spark 4.3 makes it with properties, and reads it without any option."""
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        data_source(**{"provider": "poe", "option.topic": "t", "topic": "t"})
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        ReadOptions.parse({}, "batch")


def test_rows_of_a_table_of_the_catalog_do_not_go_to_another_server():
    """Spark 4.3 asks nobody about a table with columns, and writes it without any option."""
    schema = StructType().add("message", StringType()).add("topic", StringType())
    with pytest.raises(OptionError, match=r"instead of INSERT use df\.write: of a table in its"):
        data_source().writer(schema, overwrite=False)
