"""Each option has one value, or one for each topic, and wrong ones are told at once."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.client.producer.producer_options import ProducerOptions, TopicOptions
from poe.errors import OptionError, UnknownOption

WRONG = [
    ("partitions", 0),
    ("partitions", 1.0),
    ("partitions", True),
    ("partitions", "3"),
    ("batch_count", 1 << 19),
    ("batch_bytes", 0),
    ("linger_s", -1),
    ("linger_s", float("nan")),
    ("linger_s", float("inf")),
    ("linger_s", None),
    ("linger_s", True),
    ("linger_s", "1"),
    ("request_timeout_s", 0),
    ("delivery_timeout_s", 0),
    ("in_flight", 0),
    ("in_flight", 65),
    ("workers", 0),
    ("downtime_count", -1),
    ("downtime_drop", "both"),
    ("on_full", None),
    ("strategy", "ketama"),
    ("strategy", b"random"),
    ("envelope", 1),
    ("envelope", "no"),
    ("ordered", None),
    ("picker", "random"),
    ("picker", lambda key: key),
    ("massage", b"x"),
    ("buffer_count", 0),
    ("buffer_bytes", 1e9),
    ("spool_bytes", 0),
    ("spool_fsync", "yes"),
    ("spool_dir", ""),
    ("spool_dir", b"folder"),
    ("client_id", ""),
    ("client_id", b"poe"),
    ("reconnect_min_s", 6),
    ("reconnect_max_s", 0),
    ("close_timeout_s", -1),
    ("callbacks", print),
    ("callbacks", {"flushh": print}),
    ("metrics", "prometheus"),
    ("kafka", ["acks"]),
]
OF_TOPICS = {field.name for field in dataclasses.fields(TopicOptions)}


def test_without_arguments_every_option_has_its_default():
    options = ProducerOptions.load({})
    assert options == ProducerOptions()
    assert options.of(b"t") == TopicOptions()


@given(
    values=st.dictionaries(st.sampled_from(["a", "b", "*"]), st.integers(1, 99)),
    topic=st.sampled_from(["a", "b", "c"]),
)
def test_a_topic_has_its_own_value_else_that_of_the_others_else_the_default(values, topic):
    options = ProducerOptions.load({"partitions": values, "linger_s": 2})
    expected = values.get(topic, values.get("*", TopicOptions().partitions))
    assert options.of(topic.encode()).partitions == expected
    assert options.of(topic.encode()).linger_s == 2


def test_topics_are_text_or_bytes():
    options = ProducerOptions.load({"linger_s": {"ä": 1, b"b": 2}})
    assert options.of("ä".encode()).linger_s == 1
    assert options.of(b"b").linger_s == 2


def first_partition(topic, key, partitions):
    return partitions[0]


def test_functions_may_differ_by_topic():
    options = ProducerOptions.load({"picker": {"a": first_partition}})
    assert options.of(b"a").picker is first_partition
    assert options.of(b"b").picker is None


def test_there_are_never_fewer_workers_at_most_than_at_first():
    assert TopicOptions(workers=4).workers_max == 4
    assert TopicOptions(workers=4, workers_max=9).workers_max == 9


def test_a_spool_may_be_named_by_text():
    assert ProducerOptions.load({"spool_dir": "spool"}).spool_dir == Path("spool")


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_told_with_what_is_allowed(name, value):
    with pytest.raises(OptionError) as caught:
        ProducerOptions.load({name: value})
    assert caught.value.key in {name, "reconnect_max_s"}
    assert caught.value.allowed


@pytest.mark.parametrize(("name", "value"), [each for each in WRONG if each[0] in OF_TOPICS])
def test_a_wrong_value_is_told_before_its_topic_is_used(name, value):
    with pytest.raises(OptionError) as caught:
        ProducerOptions.load({name: {"orders": value}})
    assert caught.value.key == f"{name}['orders']"


@pytest.mark.parametrize("topic", ["", 7, None])
def test_what_can_be_no_topic_has_no_options(topic):
    with pytest.raises(OptionError, match="names of topics"):
        ProducerOptions.load({"workers": {topic: 1}})


@pytest.mark.parametrize("name", ["lingers", "topics", "ekaf_buffer_ttl"])
def test_the_error_of_an_unknown_option_lists_those_there_are(name):
    with pytest.raises(UnknownOption) as caught:
        ProducerOptions.load({name: 1})
    assert caught.value.key == name
    names = caught.value.allowed.removeprefix("one of ").split(", ")
    assert set(names) > OF_TOPICS
    assert "topics" not in names


def test_topics_that_share_a_spool_drop_from_the_same_side():
    drops = {"downtime_drop": {"a": "newest"}}
    assert ProducerOptions.load(drops).of(b"a").downtime_drop == "newest"
    with pytest.raises(OptionError, match="share a folder"):
        ProducerOptions.load(drops | {"spool_dir": "spool"})
