"""What a topic may have, what of that may change, and which topics hold its partitions."""

import pytest

from poe.errors import OptionError, PropertyFixed, UnknownOption
from poe.topic_properties import (
    TopicDescription,
    TopicProperties,
    is_reserved,
    partition_of,
    property_names,
)

ID = bytes(16)


def described(*, first_is_plain=True, **properties):
    return TopicDescription(
        b"t", ID, 1, properties=TopicProperties(**properties), first_is_plain=first_is_plain
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitions", 0),
        ("partitions", 1025),
        ("partitions", True),
        ("partitions", 1.5),
        ("partitions", None),
        ("envelope", 1),
        ("envelope", "yes"),
        ("ack", "never"),
        ("count_limit", 0),
        ("size_limit", 2**40),
        ("read", "all"),
        ("max_age", 0),
        ("max_age", float("inf")),
        ("max_age", "never"),
        ("max_bytes", 0),
        ("max_bytes", 1.5),
        ("keep_unread", "billing"),
        ("keep_unread", [".hidden"]),
        ("keep_unread", ["a" * 201]),
        ("keep_unread", ["a"] * 101),
        ("keep_unread", [1]),
        ("keep_unread_bytes", 0),
    ],
)
def test_what_a_topic_cannot_have_is_refused_by_name(name, value):
    with pytest.raises(OptionError) as refused:
        TopicProperties.from_map({name: value})
    assert refused.value.key == name


@pytest.mark.parametrize("name", property_names())
def test_what_a_refusal_says_is_allowed(name):
    with pytest.raises(OptionError) as refused:
        TopicProperties.from_map({name: object()})
    for word, value in (('"none"', "none"), ("null", None)):
        if word in str(refused.value):
            TopicProperties.from_map({name: value})


def test_a_property_that_there_is_not_is_refused_but_left_out_by_an_older_client():
    with pytest.raises(UnknownOption):
        TopicProperties.from_map({"colour": "red"})
    told = {"colour": "red", "envelope": True}
    assert TopicProperties.from_map(told, are_unknown_left_out=True) == TopicProperties(
        envelope=True
    )


@pytest.mark.parametrize("values", [None, [], "envelope", 7])
def test_properties_come_as_a_map(values):
    with pytest.raises(OptionError):
        TopicProperties.from_map(values)


def test_properties_are_the_same_after_a_map():
    properties = TopicProperties(
        partitions=7, envelope=True, ack="fsync", max_age="none", max_bytes=5, keep_unread=("a",)
    )
    assert TopicProperties.from_map(properties.as_map()) == properties
    assert list(properties.as_map()) == property_names()


@pytest.mark.parametrize(
    ("count", "first_is_plain", "topics"),
    [
        (1, True, [b"t"]),
        (3, True, [b"t", b"t-1", b"t-2"]),
        (1, False, [b"t-0"]),
        (2, False, [b"t-0", b"t-1"]),
    ],
)
def test_the_topics_of_partitions(count, first_is_plain, topics):
    found = described(first_is_plain=first_is_plain, partitions=count).partition_topics()
    assert list(found) == topics


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        (b"t-0", (b"t", 0)),
        (b"a-b-17", (b"a-b", 17)),
        (b"\n-1023", (b"\n", 1023)),
        (b"t-01", None),
        (b"t-", None),
        (b"-1", None),
        (b"t", None),
        (b"t-12345", None),
    ],
)
def test_which_partition_a_name_would_be(topic, found):
    assert partition_of(topic) == found


def test_a_change_is_the_next_version_and_none_where_nothing_differs():
    before = described(ack="fsync")
    after = before.altered({"partitions": 3, "ack": None})
    assert (after.version, after.properties) == (2, TopicProperties(partitions=3))
    assert (after.name, after.id, after.created_us) == (before.name, before.id, before.created_us)
    assert after.altered({"partitions": 3}) is after


@pytest.mark.parametrize(
    ("name", "asked"), [("partitions", 2), ("partitions", 1), ("envelope", True)]
)
def test_what_is_fixed_names_both_values(name, asked):
    with pytest.raises(PropertyFixed) as refused:
        described(partitions=3).altered({name: asked})
    error = refused.value
    has = {"partitions": 3, "envelope": False}
    assert (error.name, error.value, error.asked) == (name, has[name], asked)
    assert repr(has[name]) in str(error)
    assert repr(asked) in str(error)


def test_a_wrong_change_leaves_the_description():
    with pytest.raises(OptionError):
        described().altered({"ack": "never"})


def test_names_of_the_node_itself_are_reserved_but_not_where_spark_stages():
    assert is_reserved(b"poe.groups")
    assert not is_reserved(b"poe.staging.x")
    assert not is_reserved(b"poet")
